//! Cgroups: which ones limit this process, of version 1 or 2, and what they say.
//!
//! Invariant: a limit of any level above the process counts, as the kernel enforces them all.

use super::{Files, SensorError};
use procfs_core::ProcessCGroups;
use procfs_core::process::MountInfos;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The cgroups that this process is in.
pub(super) struct Cgroups {
    groups: ProcessCGroups,
    mounts: MountInfos,
}

/// A level of a hierarchy with a limit on processor time.
#[derive(Debug)]
pub(super) struct Quota {
    /// Where.
    pub(super) dir: PathBuf,
    /// Processors' worth of time that it allows.
    pub(super) cores: f64,
    /// Time that its processes have used.
    pub(super) used: Duration,
}

/// A level of a hierarchy with a limit on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    /// Bytes that it allows.
    pub(super) limit: u64,
    /// Bytes in use that cannot be taken back at once, as a file's cache can.
    pub(super) used: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Cgroups {
    /// Asked anew for each sample, since processes are moved and limits set while they run. A
    /// machine without cgroups has no file of them.
    pub(super) fn find(files: &Files) -> Result<Self, SensorError> {
        let own = Path::new("/proc/self/cgroup");
        let groups = match files.optional_text(own)? {
            None => ProcessCGroups(Vec::new()),
            Some(_) => files.parsed(own)?,
        };
        Ok(Self {
            groups,
            mounts: files.parsed(Path::new("/proc/self/mountinfo"))?,
        })
    }

    /// Every level that allows less processor time than the machine has.
    pub(super) fn quotas(&self, files: &Files, cores: f64) -> Result<Vec<Quota>, SensorError> {
        let mut quotas = Vec::new();
        let Some((version, levels)) = self.levels("cpu") else {
            return Ok(quotas);
        };
        for dir in levels {
            let Some(allowed) = quota(files, version, &dir)?.filter(|quota| *quota < cores) else {
                continue;
            };
            let used = match version {
                Version::V2 => {
                    let file = dir.join("cpu.stat");
                    let text = files.text(&file)?;
                    Duration::from_micros(files.number_after(&file, &text, "usage_usec")?)
                }
                Version::V1 => self.used_v1(files, &dir)?,
            };
            quotas.push(Quota {
                dir,
                cores: allowed,
                used,
            });
        }
        Ok(quotas)
    }

    /// Every level that allows less memory than the machine has.
    pub(super) fn memory_limits(
        &self,
        files: &Files,
        total: u64,
    ) -> Result<Vec<MemoryLimit>, SensorError> {
        let mut limits = Vec::new();
        let Some((version, levels)) = self.levels("memory") else {
            return Ok(limits);
        };
        let (limit, usage, cache) = match version {
            Version::V2 => ("memory.max", "memory.current", "inactive_file"),
            Version::V1 => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
        };
        for dir in levels {
            let Some(limit) = whole_number(files, &dir.join(limit))?.filter(|l| *l < total) else {
                continue;
            };
            let usage = whole_number(files, &dir.join(usage))?.unwrap_or(0);
            let stat = dir.join("memory.stat");
            let cached = match files.optional_text(&stat)? {
                None => 0,
                Some(text) => files.number_after(&stat, &text, cache)?,
            };
            limits.push(MemoryLimit {
                limit,
                used: usage.saturating_sub(cached),
            });
        }
        Ok(limits)
    }

    /// The folders of the process's own group and of those above it. A controller is either of
    /// version 1, with a hierarchy of its own, or of version 2.
    fn levels(&self, controller: &str) -> Option<(Version, Vec<PathBuf>)> {
        let groups = self.groups.0.iter();
        let v1 = groups
            .clone()
            .find(|group| group.controllers.iter().any(|name| name == controller));
        if let Some(group) = v1
            && let Some((mount, root)) =
                self.mount(|kind, options| kind == "cgroup" && options.contains_key(controller))
        {
            return Some((Version::V1, levels(&mount, &root, &group.pathname)));
        }
        let mut unified = groups.filter(|group| group.hierarchy == 0);
        let group = unified.next()?;
        let (mount, root) = self.mount(|kind, _| kind == "cgroup2")?;
        Some((Version::V2, levels(&mount, &root, &group.pathname)))
    }

    fn mount(
        &self,
        is_it: impl Fn(&str, &std::collections::HashMap<String, Option<String>>) -> bool,
    ) -> Option<(PathBuf, String)> {
        let mut mounts = self.mounts.0.iter();
        let mount = mounts.find(|mount| is_it(&mount.fs_type, &mount.super_options))?;
        Some((mount.mount_point.clone(), mount.root.clone()))
    }

    /// Processor time is counted by another controller in version 1, which need not have the same
    /// groups. If it has none of that name, the group's processes are asked.
    fn used_v1(&self, files: &Files, dir: &Path) -> Result<Duration, SensorError> {
        if let Some((Version::V1, counting)) = self.levels("cpuacct")
            && let Some((_, limiting)) = self.levels("cpu")
            && let Some(root) = counting.last()
            && let Some(name) = limiting.last().and_then(|root| dir.strip_prefix(root).ok())
            // A group of the same name that the process is not in counts something else.
            && let group = root.join(name)
            && counting.contains(&group)
            && let Some(nanos) = whole_number(files, &group.join("cpuacct.usage"))?
        {
            return Ok(Duration::from_nanos(nanos));
        }
        let list = files.text(&dir.join("cgroup.procs"))?;
        let processes = list.lines().filter_map(|pid| pid.trim().parse().ok());
        Ok(processes
            .map(|pid| super::cpu::process_time(files, pid))
            .sum())
    }
}

/// The folders from a group's up to its mount.
fn levels(mount: &Path, mount_root: &str, group: &str) -> Vec<PathBuf> {
    // In a container the mount may show only a part of the hierarchy, ours at its top.
    let below = Path::new(group)
        .strip_prefix(mount_root)
        .unwrap_or(Path::new(""));
    let inside = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let below = if inside { below } else { Path::new("") };
    let count = below.components().count();
    let own = mount.join(below);
    own.ancestors()
        .take(count + 1)
        .map(Path::to_owned)
        .collect()
}

/// Processors' worth of time that a level allows, if it sets a limit.
fn quota(files: &Files, version: Version, dir: &Path) -> Result<Option<f64>, SensorError> {
    let (quota, period, file) = match version {
        Version::V2 => {
            let file = dir.join("cpu.max");
            let Some(text) = files.optional_text(&file)? else {
                // The root has none.
                return Ok(None);
            };
            let mut words = text.split_ascii_whitespace();
            let quota = words.next().unwrap_or_default().to_owned();
            (quota, words.next().unwrap_or("100000").to_owned(), file)
        }
        Version::V1 => {
            let file = dir.join("cpu.cfs_quota_us");
            let Some(quota) = files.optional_text(&file)? else {
                return Ok(None);
            };
            let period = files.text(&dir.join("cpu.cfs_period_us"))?;
            (quota.trim().to_owned(), period.trim().to_owned(), file)
        }
    };
    if quota == "max" || quota == "-1" {
        return Ok(None);
    }
    match (quota.parse::<f64>(), period.parse::<f64>()) {
        (Ok(quota), Ok(period)) if quota > 0.0 && period > 0.0 => Ok(Some(quota / period)),
        _ => Err(files.malformed(&file, format!("{quota:?} of {period:?} is no quota"))),
    }
}

/// The number that a file holds; `None` if there is no such file, or it says that there is no limit.
fn whole_number(files: &Files, file: &Path) -> Result<Option<u64>, SensorError> {
    let Some(text) = files.optional_text(file)? else {
        return Ok(None);
    };
    match text.trim() {
        "max" => Ok(None),
        number => match number.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(files.malformed(file, format!("{number:?} is no number"))),
        },
    }
}
