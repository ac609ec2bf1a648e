//! Where calls and failed attempts are recorded.
//!
//! Invariant: a record that cannot be written never loses an item silently. Usage rows are kept back by
//! their writer; a failures file that cannot be written stops the run in order.

use super::stop::Stop;
use crate::report::failures::FailuresFile;
use crate::report::summary::Stopped;
use crate::store::UsageWriter;
use crate::store::usage::UsageRow;
use batchgate_policy::outcome::UsageOutcome;
use batchgate_policy::setting::Setting;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The records of a run.
pub struct Records {
    label: Arc<str>,
    usage: Option<UsageWriter>,
    failures: Option<Mutex<FailuresFile>>,
    stop: Stop,
}

impl Records {
    /// Records for a job; what is `None` is not kept.
    pub fn new(
        label: Arc<str>,
        usage: Option<UsageWriter>,
        failures: Option<FailuresFile>,
        stop: Stop,
    ) -> Self {
        Self {
            label,
            usage,
            failures: failures.map(Mutex::new),
            stop,
        }
    }

    /// Whether failed attempts are recorded.
    pub fn keeps_failures(&self) -> bool {
        self.failures.is_some()
    }

    /// A call ended.
    pub fn call(
        &self,
        setting: Setting,
        n_items: usize,
        elapsed: Duration,
        outcome: UsageOutcome,
        bytes: Option<u64>,
    ) {
        let Some(usage) = &self.usage else { return };
        usage.log(UsageRow {
            timestamp: unix_seconds(),
            label: self.label.clone(),
            workers: setting.workers,
            batch_size: setting.batch_size,
            n_items: n_items as u32,
            elapsed_seconds: elapsed.as_secs_f64(),
            outcome,
            bytes,
        });
    }

    /// An attempt failed or partly failed.
    pub fn failure(&self, batch: &str, error: &str) {
        let Some(failures) = &self.failures else {
            return;
        };
        let written =
            failures
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .write(batch, error, unix_seconds());
        if let Err(error) = written {
            self.cannot_go_on(&format!("failures_csv cannot be written: {error}"));
        }
    }

    /// Stops the run in order, because a promise could not be kept otherwise.
    pub fn cannot_go_on(&self, reason: &str) {
        if self.stop.stop(Stopped::StoreError) {
            tracing::error!(label = %self.label, "{reason}. Stopping.");
        }
    }

    /// Writes what is still held; says what could not be written. Blocks for a few seconds at most.
    pub fn close(&self) {
        if let Some(usage) = &self.usage {
            usage.close();
        }
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
