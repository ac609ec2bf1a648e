//! Where calls and failed attempts are recorded.
//!
//! Invariant: a record that cannot be written never loses an item silently. Usage rows are kept back by
//! their writer; a journal or a file of failures that cannot be written stops the run in order.

use super::stop::Stop;
use crate::item::Item;
use crate::report::failed_items::FailedItemsFile;
use crate::report::failures::FailuresFile;
use crate::report::summary::{Earlier, Stopped, Summary};
use crate::source::failed::FailedRow;
use crate::store::journal::Journal;
use crate::store::usage::UsageRow;
use crate::store::{TunerMemory, UsageWriter};
use batchgate_policy::attempt::{Account, Fate};
use batchgate_policy::controller::Lesson;
use batchgate_policy::outcome::UsageOutcome;
use batchgate_policy::setting::Setting;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The records of a run.
pub struct Records {
    label: Arc<str>,
    usage: Option<UsageWriter>,
    failures: Option<Mutex<FailuresFile>>,
    failed_items: Mutex<Option<FailedItemsFile>>,
    journal: Option<Journal>,
    /// What the tuner remembers, and the controller's name.
    memory: Mutex<Option<(TunerMemory, String)>>,
    stop: Stop,
}

/// Names a batch in the journal; none without one.
pub type Recorded = Option<u64>;

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
            failed_items: Mutex::new(None),
            journal: None,
            memory: Mutex::new(None),
            stop,
        }
    }

    /// With a row for each item that fails.
    pub fn with_failed_items(mut self, file: Option<FailedItemsFile>) -> Self {
        self.failed_items = Mutex::new(file);
        self
    }

    /// With a journal, on which the run begins.
    pub fn with_journal(mut self, journal: Option<Journal>, run_id: &str) -> Self {
        if let Some(journal) = &journal {
            journal.begin(run_id);
        }
        self.journal = journal;
        self
    }

    /// With a memory of what the controller of that name learns.
    pub fn with_memory(mut self, memory: Option<(TunerMemory, String)>) -> Self {
        self.memory = Mutex::new(memory);
        self
    }

    /// Of items that were read, those that the run takes up; see [`Journal::admit`].
    pub fn admit(&self, items: Vec<Item>, sending: bool) -> Vec<Item> {
        match &self.journal {
            Some(journal) => journal.admit(items, sending),
            None => items,
        }
    }

    /// Of items that were taken up and not sent, how many keep the end they had; see [`Journal::give_back`].
    pub fn give_back<'a>(&self, items: impl Iterator<Item = &'a Item>) -> u64 {
        self.journal
            .as_ref()
            .map_or(0, |journal| journal.give_back(items))
    }

    /// Records that a batch is about to be sent. False if it must not be, because it could not be recorded or the
    /// run stops.
    pub async fn dispatch(&self, items: &[Item]) -> (Recorded, bool) {
        let Some(journal) = &self.journal else {
            return (None, true);
        };
        let mut dispatched = journal.dispatch(items);
        let recorded = tokio::select! {
            biased;
            recorded = dispatched.recorded() => recorded,
            () = self.stop.stopping() => return (Some(dispatched.id()), false),
        };
        if let Err(failure) = &recorded {
            self.cannot_go_on(&failure.to_string());
        }
        let may_be_sent = recorded.is_ok() && !self.stop.is_stopping();
        (Some(dispatched.id()), may_be_sent)
    }

    /// Records what became of a batch; items that go back to what they were are counted as that.
    pub fn end(&self, recorded: Recorded, items: &[Item], account: &mut Account) {
        self.add_failed_items(items, account);
        if let Some((journal, id)) = self.journal.as_ref().zip(recorded) {
            journal.end(id, items, account);
        }
    }

    /// A row for each item that failed: before the journal has it as failed, or a crash in between would leave none.
    fn add_failed_items(&self, items: &[Item], account: &Account) {
        let mut file = self.failed_items.lock().unwrap_or_else(|e| e.into_inner());
        let Some(file) = file.as_mut() else { return };
        let failed = account.ends.iter().filter_map(|end| match &end.fate {
            Fate::Failed(fault) => Some((end, fault)),
            _ => None,
        });
        let mut rows = failed
            .flat_map(|(end, fault)| {
                end.positions.iter().map(move |place| FailedRow {
                    item: &items[place as usize],
                    reason: &fault.message,
                    outcome: fault.class.as_str(),
                    attempts: end.calls,
                })
            })
            .peekable();
        if rows.peek().is_none() {
            return;
        }
        if let Err(error) = file.write(rows) {
            self.cannot_go_on(&format!("failed_items cannot be written: {error}"));
        }
    }

    /// What former runs left, of items that this run did not take up.
    pub fn earlier(&self) -> Option<Earlier> {
        self.journal.as_ref().map(Journal::earlier)
    }

    /// Waits until the ends of all batches are safe; a run whose ends are not has not come to its end.
    pub async fn flush(&self) {
        if let Some(journal) = &self.journal
            && let Err(failure) = journal.flush().await
        {
            self.cannot_go_on(&failure.to_string());
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

    /// Remembers what the tuner learned, if the run ended in a way that does not make it doubtful.
    pub fn remember(&self, lesson: Option<Lesson>, stopped: Stopped, cooling_down: bool) {
        let memory = self.memory.lock().unwrap_or_else(|e| e.into_inner()).take();
        let (Some((mut memory, controller)), Some(lesson)) = (memory, lesson) else {
            return;
        };
        let doubt = match (&lesson.learned, doubtful(stopped)) {
            (_, Some(why)) => Some(why),
            _ if cooling_down => Some("the run ended in a cooldown"),
            (None, None) => Some("no setting was kept for long enough"),
            (Some(_), None) => None,
        };
        let (label, file) = (&self.label, memory.file_name().to_string());
        if let Some(why) = doubt {
            tracing::info!(label = %label, "tune: remembers nothing new: {why} ({file})");
            if lesson.contradicted {
                memory.forget();
            }
        } else if let Some(learned) = lesson.learned
            && memory.keep(&learned, &controller)
        {
            tracing::info!(label = %label, "tune: remembers workers={}, batch_size={} ({file})",
                learned.workers,
                learned.batch_size
            );
        }
    }

    /// Writes what is still held; says what could not be written, and returns whether all that was promised is there.
    /// Blocks for a few seconds at most. `complete` if the input was read to its end and every item of it came to one.
    pub fn close(&self, summary: &Summary, complete: bool) -> bool {
        let label = &self.label;
        let mut kept = true;
        if let Some(failures) = &self.failures {
            let failures = failures.lock().unwrap_or_else(|e| e.into_inner());
            if let Err(error) = failures.is_there() {
                tracing::error!(label = %label, "failures_csv: {error}");
                kept = false;
            }
        }
        if let Some(usage) = &self.usage {
            usage.close();
        }
        let failed_items = self
            .failed_items
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take();
        if let Some(file) = failed_items
            && let Err(error) = file.finish(complete)
        {
            tracing::error!(label = %label, "{error}");
            kept = false;
        }
        if let Some(journal) = &self.journal
            && let Err(failure) = journal.close(summary.to_json())
        {
            tracing::error!(label = %label, "{failure}; what it lacks counts as unknown when the run is resumed");
            kept = false;
        }
        kept
    }
}

/// Why what was learned is not to be trusted after such an end.
fn doubtful(stopped: Stopped) -> Option<&'static str> {
    match stopped {
        Stopped::CircuitBreaker | Stopped::Fatal | Stopped::FailureLimit | Stopped::Trap => {
            Some("the run failed")
        }
        Stopped::Completed
        | Stopped::Parked
        | Stopped::Interrupted(_)
        | Stopped::InputError
        | Stopped::StoreError
        | Stopped::BudgetStopped
        | Stopped::Drained => None,
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
