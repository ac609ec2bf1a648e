//! How a host stands: what `batchgate host status` tells.

use crate::budget::View;
use crate::report::log::escape_line;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// How a host stands. Its text is for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The host's process.
    pub pid: u32,
    /// The folder of its job files.
    pub folder: String,
    /// Its budget, if it has one.
    pub budget: Option<View>,
    /// Its jobs, by file.
    pub jobs: Vec<JobStatus>,
}

/// How a job of it stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its file.
    pub file: String,
    /// Its label; null if the file could not be read.
    pub label: Option<String>,
    /// `preparing`, `running`, `draining`, `ended` or `refused`.
    pub state: String,
    /// The setting.
    pub workers: u32,
    /// See `workers`.
    pub batch_size: u32,
    /// Calls in flight.
    pub in_flight: u32,
    /// Slots of the budget that it may use; null without a budget.
    pub share: Option<u32>,
    /// Items that have come to their end.
    pub done: u64,
    /// Items of the run; null until that is known.
    pub total: Option<u64>,
    /// Items that failed.
    pub failed: u64,
    /// Items a second, lately.
    pub rate: f64,
    /// Why it is where it is.
    pub reason: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = escape_line(&self.folder);
        writeln!(f, "host {}: job files of {folder}", self.pid)?;
        match &self.budget {
            None => writeln!(f, "no budget")?,
            Some(budget) => {
                let View {
                    state,
                    in_use,
                    desired,
                    min,
                    max,
                    verdict,
                    ..
                } = budget;
                writeln!(
                    f,
                    "budget {state}: in use {in_use}, desired {desired} of {min}..{max}, {verdict}"
                )?;
                for signal in &budget.signals {
                    let percent = |ratio: Option<f64>| {
                        ratio.map_or("unknown".to_owned(), |r| format!("{:.0}%", r * 100.0))
                    };
                    writeln!(
                        f,
                        "  {}: overloaded {} of the time lately, {} before (limit {:.0}%)",
                        signal.name,
                        percent(signal.current),
                        percent(signal.history),
                        signal.limit * 100.0
                    )?;
                }
            }
        }
        if self.jobs.is_empty() {
            writeln!(f, "no jobs")?;
        }
        for job in &self.jobs {
            let same = |other: &&JobStatus| other.label == job.label;
            let name = match &job.label {
                None => job.file.clone(),
                Some(label) if self.jobs.iter().filter(same).count() > 1 => {
                    let file = Path::new(&job.file).file_name().unwrap_or_default();
                    format!("{label}, {}", file.to_string_lossy())
                }
                Some(label) => label.clone(),
            };
            let name = escape_line(&name);
            let JobStatus {
                state,
                workers,
                batch_size,
                in_flight,
                done,
                failed,
                rate,
                ..
            } = job;
            write!(f, "[{name}] {state}")?;
            if job.state != "refused" {
                write!(f, ": {done}")?;
                if let Some(total) = job.total {
                    write!(f, "/{total}")?;
                }
                write!(f, " items")?;
                if *failed > 0 {
                    write!(f, ", {failed} failed")?;
                }
                if job.state != "ended" {
                    write!(
                        f,
                        ", {rate:.1}/s, {workers} workers x {batch_size}, {in_flight} in flight"
                    )?;
                }
                if let Some(share) = job.share {
                    write!(f, ", share {share}")?;
                }
            }
            writeln!(f, ": {}", escape_line(&job.reason))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::SignalView;

    #[test]
    fn reads_as_lines() {
        let status = Status {
            pid: 7,
            folder: "/etc/jobs".into(),
            budget: Some(View {
                state: "running".into(),
                in_use: 3,
                slots: 1,
                desired: 5,
                min: 1,
                max: 100,
                started_last_minute: 9,
                max_tasks_per_minute: None,
                overloaded: true,
                verdict: "overloaded: cpu 58% of the time (limit 40%)".into(),
                signals: vec![SignalView {
                    name: "cpu".into(),
                    current: Some(0.58),
                    history: None,
                    limit: 0.4,
                    overloaded: true,
                }],
                consumers: Vec::new(),
            }),
            jobs: vec![
                JobStatus {
                    label: Some("orders".into()),
                    state: "running".into(),
                    workers: 8,
                    batch_size: 50,
                    in_flight: 6,
                    share: Some(6),
                    done: 120,
                    total: Some(500),
                    failed: 2,
                    rate: 12.34,
                    reason: "held at 6: budget share".into(),
                    ..JobStatus::default()
                },
                JobStatus {
                    file: "/etc/jobs/b\n.toml".into(),
                    state: "refused".into(),
                    reason: "no such file".into(),
                    ..JobStatus::default()
                },
            ],
        };
        assert_eq!(
            status.to_string(),
            "host 7: job files of /etc/jobs\n\
             budget running: in use 3, desired 5 of 1..100, overloaded: cpu 58% of the time (limit 40%)\n  \
             cpu: overloaded 58% of the time lately, unknown before (limit 40%)\n\
             [orders] running: 120/500 items, 2 failed, 12.3/s, 8 workers x 50, 6 in flight, share 6: held at 6: budget share\n\
             [/etc/jobs/b\\n.toml] refused: no such file\n"
        );
        let twin = |file: &str| JobStatus {
            file: format!("/etc/jobs/{file}"),
            label: Some("orders".into()),
            state: "preparing".into(),
            ..JobStatus::default()
        };
        let twins = Status {
            jobs: vec![twin("a.toml"), twin("b.toml")],
            ..status.clone()
        };
        let text = twins.to_string();
        assert!(
            text.contains("[orders, a.toml]") && text.contains("[orders, b.toml]"),
            "{text}"
        );
        let empty = Status {
            budget: None,
            jobs: Vec::new(),
            ..status
        };
        assert!(empty.to_string().ends_with("no budget\nno jobs\n"));
    }
}
