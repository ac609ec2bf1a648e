//! Memory: what our processes use, and what the cgroup or the machine does.
//!
//! Invariant: measuring takes less than 1 % of a core. A process's proportional share (PSS) counts
//! shared pages once and has to walk all its mappings, of which many instances have
//! thousands; so it is read as often as it is cheap, and in between the resident size tells how it
//! has changed.

use super::cgroup::Cgroups;
use super::{Files, MemoryUse, SensorError};
use procfs_core::{Meminfo, process::StatM};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a cgroup's limit leaves for us, unless it is configured.
const OF_CGROUP: f64 = 0.8;

/// What the machine's memory leaves for us, unless it is configured or a cgroup limits it.
const OF_MACHINE: f64 = 0.25;

/// Between two readings of the proportional share passes at least so many times what one takes.
const REST: u32 = 100;

/// More processes than these are not looked at.
const MAX_PROCESSES: usize = 1000;

#[derive(Debug)]
pub(super) struct Memory {
    configured: Option<u64>,
    proportional: Option<Proportional>,
}

/// The last reading of the proportional share.
#[derive(Debug, Clone, Copy)]
struct Proportional {
    at: Duration,
    took: Duration,
    bytes: u64,
    /// The resident size at that time.
    resident: u64,
}

impl Memory {
    pub(super) fn new(configured: Option<u64>) -> Self {
        Self {
            configured,
            proportional: None,
        }
    }

    pub(super) fn measure(
        &mut self,
        files: &Files,
        now: Duration,
    ) -> Result<MemoryUse, SensorError> {
        let meminfo: Meminfo = files.parsed(Path::new("/proc/meminfo"))?;
        let total = meminfo.mem_total;
        let limits = Cgroups::find(files)?.memory_limits(files, total)?;
        let tightest = limits.iter().map(|level| level.limit).min();
        let allowed = self.configured.map_or_else(
            || match tightest {
                Some(limit) => limit as f64 * OF_CGROUP,
                None => total as f64 * OF_MACHINE,
            },
            |bytes| bytes as f64,
        );
        let levels = limits.iter();
        let ratios = levels.map(|level| ratio(level.used as f64, level.limit as f64));
        let system = ratios.max_by(f64::total_cmp).unwrap_or_else(|| {
            // Kernels before 3.14 do not say what is available.
            let free = meminfo.mem_available.unwrap_or(meminfo.mem_free);
            ratio(total.saturating_sub(free) as f64, total as f64)
        });
        let own = self.own(files, now)?;
        Ok(MemoryUse {
            own: ratio(own as f64, allowed),
            system,
        })
    }

    /// Bytes that our processes use.
    fn own(&mut self, files: &Files, now: Duration) -> Result<u64, SensorError> {
        let tree = process_tree(files);
        let mut resident = 0;
        for (number, process) in tree.iter().enumerate() {
            match files.parsed::<StatM>(&process.join("statm")) {
                Ok(statm) => resident += statm.resident * page_size(),
                // A child may be gone; this process is not.
                Err(error) if number == 0 => return Err(error),
                Err(_) => {}
            }
        }
        let due = self
            .proportional
            .is_none_or(|last| now.saturating_sub(last.at) >= last.took * REST);
        if due {
            let started = Instant::now();
            let Some(bytes) = proportional(files, &tree) else {
                return Ok(resident);
            };
            self.proportional = Some(Proportional {
                at: now,
                took: started.elapsed(),
                bytes,
                resident,
            });
            return Ok(bytes);
        }
        Ok(self.proportional.map_or(resident, |last| {
            let grown = resident.saturating_sub(last.resident);
            let shrunk = last.resident.saturating_sub(resident);
            (last.bytes + grown).saturating_sub(shrunk)
        }))
    }
}

/// The proportional share of all processes; `None` if the system does not tell ours.
fn proportional(files: &Files, tree: &[PathBuf]) -> Option<u64> {
    let mut sum = 0;
    for (number, process) in tree.iter().enumerate() {
        let file = process.join("smaps_rollup");
        let text = files.text(&file);
        match text.and_then(|text| files.number_after(&file, &text, "Pss")) {
            Ok(kilobytes) => sum += kilobytes * 1024,
            Err(_) if number == 0 => return None,
            Err(_) => {}
        }
    }
    Some(sum)
}

/// The folders of this process and of all that descend from it, this one first.
fn process_tree(files: &Files) -> Vec<PathBuf> {
    let mut tree = vec![PathBuf::from("/proc/self")];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while next < tree.len() && tree.len() < MAX_PROCESSES {
        let tasks = tree[next].join("task");
        next += 1;
        let Ok(threads) = std::fs::read_dir(files.path(&tasks)) else {
            continue;
        };
        for thread in threads.flatten() {
            let list = tasks.join(thread.file_name()).join("children");
            let Ok(children) = files.text(&list) else {
                continue;
            };
            let ids = children.split_ascii_whitespace();
            let ids = ids.filter_map(|id| id.parse::<u32>().ok());
            let new: Vec<u32> = ids.filter(|id| seen.insert(*id)).collect();
            tree.extend(new.iter().map(|id| PathBuf::from(format!("/proc/{id}"))));
        }
    }
    tree
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn ratio(used: f64, allowed: f64) -> f64 {
    if allowed > 0.0 { used / allowed } else { 1.0 }
}
