//! Processor time: how much of what is allowed was used since the last sample.

use super::cgroup::Cgroups;
use super::{Files, SensorError};
use procfs_core::process::Stat;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Linux tells times of processes in hundredths of a second, on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// The last reading.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    last: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    at: Duration,
    machine: Ticks,
    /// Time used, by the folder of each cgroup that limits it.
    used: BTreeMap<PathBuf, Duration>,
}

/// Of all processors together, since the machine started.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Cpu {
    /// The first measurement has nothing to compare with.
    pub(super) fn measure(&mut self, files: &Files, now: Duration) -> Result<f64, SensorError> {
        let (machine, cores) = machine(files)?;
        let quotas = Cgroups::find(files)?.quotas(files, cores)?;
        let reading = Reading {
            at: now,
            machine,
            used: quotas.iter().map(|q| (q.dir.clone(), q.used)).collect(),
        };
        let last = self.last.replace(reading).ok_or(SensorError::First)?;
        let seconds = now.saturating_sub(last.at).as_secs_f64();
        if quotas.is_empty() {
            let all = machine.all.saturating_sub(last.machine.all);
            let busy = machine.busy.saturating_sub(last.machine.busy);
            return match all {
                0 => Err(SensorError::First),
                all => Ok(busy as f64 / all as f64),
            };
        }
        // The tightest level decides; one that is new has nothing to compare with.
        let ratios = quotas.iter().filter_map(|quota| {
            let used = quota.used.saturating_sub(*last.used.get(&quota.dir)?);
            (seconds > 0.0).then(|| used.as_secs_f64() / (quota.cores * seconds))
        });
        ratios.max_by(f64::total_cmp).ok_or(SensorError::First)
    }
}

/// The time of all processors, and their number.
fn machine(files: &Files) -> Result<(Ticks, f64), SensorError> {
    let file = Path::new("/proc/stat");
    let text = files.text(file)?;
    let cpus = text.lines().filter(|line| line.starts_with("cpu"));
    let (total, each): (Vec<_>, Vec<_>) = cpus.partition(|line| line.starts_with("cpu "));
    let ticks: Vec<u64> = total
        .first()
        .map(|line| line.split_ascii_whitespace().skip(1))
        .into_iter()
        .flatten()
        .map_while(|number| number.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user's.
    let [user, nice, system, idle, iowait, rest @ ..] = ticks.as_slice() else {
        return Err(files.malformed(file, "has no line of times for cpu"));
    };
    let busy = user + nice + system + rest.iter().take(3).sum::<u64>();
    let ticks = Ticks {
        busy,
        all: busy + idle + iowait,
    };
    Ok((ticks, each.len().max(1) as f64))
}

/// Processor time that a process has used; none if it is gone.
pub(super) fn process_time(files: &Files, pid: u32) -> Duration {
    let stat = files.parsed::<Stat>(Path::new(&format!("/proc/{pid}/stat")));
    stat.map_or(Duration::ZERO, |stat| {
        let ticks = u32::try_from(stat.utime + stat.stime).unwrap_or(u32::MAX);
        TICK * ticks
    })
}
