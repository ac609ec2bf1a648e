//! The journal of a job: which items were sent and what became of them, so that an interrupted run goes
//! on where it was, whatever interrupted it.
//!
//! Invariant: a batch is in the database before its first call begins, so an item that may have been sent and has no
//! end is always known to be such a one: *unknown*. The end of the process loses nothing. When the machine loses
//! power, commits of the last [`SYNC_EVERY`] may be lost; then every item below the run's durable *horizon* without
//! an end counts as unknown, since nothing beyond the horizon was sent.
//!
//! An item is known by its index. Ends stand in runs of neighbours ([`Ranges`]), calls in flight in rows of
//! their own, which a later run finds if the process was killed.

mod pending;
mod plan;
mod subject;
mod table;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub use subject::{DigestError, FilePrint, Subject};
pub use view::{ItemLook, Look, RunLook, StateName, look};
pub use writer::SYNC_EVERY;

use super::fault::{Fault, StoreError};
use super::sqlite::{has_table, open_write, unix_now};
use crate::item::{Item, Key};
use crate::report::summary::Earlier;
use batchgate_policy::attempt::{Account, Fate, Fault as ItemFault};
use batchgate_policy::bisect::Positions;
use batchgate_policy::ranges::{Ranges, State, Totals};
use pending::{Begun, Call, Detail, Ending, Entry, Pending, runs_of};
use plan::Plan;
use rusqlite::{Connection, TransactionBehavior};
use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use writer::Queue;

/// How long another process's lock is waited for before the journal counts as failed.
const BUSY: Duration = Duration::from_secs(5);

/// `journal show` looks whether a host holds the journal, and holds it for that moment itself.
const LOOKED_AT: Duration = Duration::from_millis(200);

const VERSION: &str = "version";
const LOST_BELOW: &str = "lost_below";

/// Why an item is unknown that no call's end was recorded for.
const CRASHED: (&str, &str) = ("in flight when the host was killed", "crash");
const LOST: (&str, &str) = (
    "may have been in flight when the machine lost power",
    "power-loss",
);

/// What a resumed run does with unknown items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnknown {
    /// Sends them again.
    Resend,
    /// Leaves them to the user.
    Hold,
}

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The database cannot be used.
    #[error("[journal] db: {0}")]
    Store(#[from] StoreError),
    /// Another host uses it.
    #[error(
        "[journal] db: {}: another run uses this journal; wait for its end, or give this job a journal of its own",
        path.display()
    )]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error(
        "[journal] db: {}: written by another version of batchgate (format {found}, this one knows {}); use that version, or give another path",
        path.display(), table::VERSION
    )]
    Version {
        /// The journal.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// The input, the component or the settings are others than those it was begun with.
    #[error(
        "[journal] db: {}: since this journal was begun, what changed is {}; undo the change, give another journal, or pass --accept-changes to go on by index",
        path.display(), changes.join(", and ")
    )]
    Changed {
        /// The journal.
        path: PathBuf,
        /// What is another.
        changes: Vec<String>,
    },
    /// The input or the component cannot be read.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// What a job asks of its journal.
pub struct Options<'a> {
    /// The database.
    pub path: &'a Path,
    /// The job's, for the log.
    pub label: &'a str,
    /// What to do with unknown items.
    pub unknown: OnUnknown,
    /// Go on although the subject changed.
    pub accept_changes: bool,
}

/// A journal that cannot be written any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal {0}")]
pub struct JournalFailed(pub StoreError);

/// The journal of a run.
pub struct Journal {
    queue: Arc<Queue>,
    unknown: OnUnknown,
    /// The input names items that failed before, to be sent again.
    again: bool,
    /// The ends that former runs left; what this run adds is not in it.
    start: Ranges,
    /// Items below this that have no end are unknown.
    lost_below: u64,
    plan: Plan,
    earlier: Mutex<Totals>,
    next_call: AtomicU64,
}

impl Journal {
    /// Opens a journal, creating it if there is none, and keeps other runs from using it until this process
    /// ends. `take` says what the run is about, given a way to ask what is known of a file.
    pub fn open(
        options: &Options<'_>,
        take: impl FnOnce(&dyn Fn(&Path) -> Option<FilePrint>) -> Result<Subject, DigestError>,
    ) -> Result<Journal, JournalError> {
        let (path, label) = (options.path, options.label);
        let lock = lock(path)?;
        let mut connection = open_write(path, "", BUSY)?;
        // What a crash left in SQLite's log, or a file that was cut short lacks, is put in its place.
        let cut_short = |error| StoreError::from_sqlite(path, &error);
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(cut_short)?;
        check(path, &connection)?;
        let failed = |error| StoreError::from_sqlite(path, &error);
        connection.execute_batch(table::SCHEMA).map_err(failed)?;
        let stored = plan::stored(path, &connection)?;
        let now = take(&|file| stored.as_ref().and_then(|stored| stored.print_of(file)))?;
        let mut pending = Pending {
            ranges: table::ranges(path, &connection)?,
            ..Pending::default()
        };
        let calls = table::calls(path, &connection)?;
        let untouched = pending.ranges.iter().next().is_none() && calls.is_empty();
        let plan = Plan::of(stored.filter(|_| !untouched), now);
        if !plan.changes.is_empty() {
            let changes = plan.changes;
            if !options.accept_changes {
                let path = path.to_owned();
                return Err(JournalError::Changed { path, changes });
            }
            tracing::warn!(
                label = %label,
                "the journal goes on by index, although what changed is {}",
                changes.join(", and ")
            );
        }
        let input = &plan.subjects.last.input;
        if input.file.is_none() {
            tracing::warn!(
                label = %label,
                "journal: whether {} is the same when a run is resumed cannot be told; items go by their position in it",
                input.name
            );
        }
        let lost_below = lost_below(path, label, &connection)?;
        // What was in flight when the host was killed is unknown from now on.
        let crashed: u64 = calls.iter().map(Call::len).sum();
        for (item, key) in calls.into_iter().flat_map(Call::into_items) {
            pending.end(unknown(item, key, CRASHED));
        }
        recover(&mut connection, &pending, lost_below).map_err(failed)?;
        pending.saved();
        if crashed > 0 {
            tracing::warn!(
                label = %label,
                "journal: {crashed} items were in flight when the host was killed; they count as unknown"
            );
        }
        let mut start = pending.ranges.clone();
        if plan.new_round {
            start.replace(State::Failed, State::FailedBefore, |_| ());
        }
        let queue = Queue::start(path, connection, lock, pending)?;
        Ok(Journal {
            queue,
            unknown: options.unknown,
            again: plan.subjects.last.of_failed,
            earlier: Mutex::new(start.totals()),
            start,
            lost_below,
            plan: Plan {
                changes: Vec::new(),
                ..plan
            },
            next_call: AtomicU64::new(1),
        })
    }

    /// A run begins: from now on the journal is about its input and component. Written with the first batch.
    pub fn begin(&self, run_id: &str) {
        let subjects = &self.plan.subjects;
        let meta = subjects.to_meta();
        self.queue.push(Entry::Begin(Begun {
            run_id: run_id.to_owned(),
            started: unix_now(),
            boot: boot(),
            meta,
            new_round: self.plan.new_round,
        }));
    }

    /// Of the items that were read next, those that this run takes up. With `sending` false nothing will be sent
    /// any more, so what has an end keeps it.
    pub fn admit(&self, items: Vec<Item>, sending: bool) -> Vec<Item> {
        if self.start.iter().next().is_none() && self.lost_below == 0 {
            return items;
        }
        let mut earlier = self.lock();
        let mut found = Vec::new();
        let mut admitted = Vec::with_capacity(items.len());
        for item in items {
            let before = self.before(item.index);
            let lost = before == Some(State::Unknown) && self.start.get(item.index).is_none();
            if lost {
                earlier.unknown += 1;
                found.push(unknown(item.index, key_of(&item), LOST));
            }
            let takes_up = match before {
                None => true,
                Some(State::Unknown) => sending && self.unknown == OnUnknown::Resend,
                Some(State::FailedBefore) => sending && self.again,
                Some(_) => false,
            };
            if takes_up {
                match before {
                    Some(State::Unknown) => earlier.unknown -= 1,
                    Some(_) => earlier.failed -= 1,
                    None => {}
                }
                admitted.push(item);
            }
        }
        drop(earlier);
        if !found.is_empty() {
            self.queue.push(Entry::Unknown(found));
        }
        admitted
    }

    /// Items that were taken up and never put into a batch: those that had an end before keep it. Returns how many.
    pub fn give_back<'a>(&self, items: impl Iterator<Item = &'a Item>) -> u64 {
        let mut earlier = self.lock();
        let mut count = 0;
        for state in items.filter_map(|item| self.before(item.index)) {
            earlier.add(state, 1);
            count += 1;
        }
        count
    }

    /// Records that a batch is about to be sent. When it returns, it may be. Dropping it half-way is fine, if the end is
    /// recorded then.
    pub fn dispatch(&self, items: &[Item]) -> Dispatched {
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let (waiter, done) = oneshot::channel();
        self.queue
            .push_and_wait(Entry::Dispatch(id, Call::of(items)), waiter);
        Dispatched {
            id,
            done,
            queue: self.queue.clone(),
        }
    }

    /// Records the end of a batch that was dispatched. Never waits. Items that are not dispatched after all and had an end
    /// before keep it: the account then counts them as that.
    pub fn end(&self, id: u64, items: &[Item], account: &mut Account) {
        let mut endings = Vec::new();
        for end in &account.ends {
            let indexes = |positions: &Positions| match positions {
                Positions::Run(run) => {
                    let some = &items[run.start as usize..run.end as usize];
                    runs_of(some.iter().map(|item| item.index))
                }
                Positions::Some(list) => {
                    runs_of(list.iter().map(|&place| items[place as usize].index))
                }
            };
            let at = |place: u32| &items[place as usize];
            match &end.fate {
                Fate::Done { written } => {
                    let mut left = u64::from(*written);
                    for run in indexes(&end.positions) {
                        let length = run.end - run.start;
                        let some = left.min(length);
                        left -= some;
                        endings.push(Ending {
                            items: run,
                            state: State::done(some, length),
                            details: Vec::new(),
                        });
                    }
                }
                Fate::Failed(fault) => endings.extend(
                    end.positions
                        .iter()
                        .map(|place| ending(at(place), State::Failed, fault, end.calls)),
                ),
                Fate::Unknown(fault) => endings.extend(
                    end.positions
                        .iter()
                        .map(|place| ending(at(place), State::Unknown, fault, end.calls)),
                ),
                Fate::NotDispatched => {
                    let before = end
                        .positions
                        .iter()
                        .filter_map(|p| self.before(at(p).index));
                    for state in before {
                        let counts = &mut account.counts;
                        counts.not_dispatched -= 1;
                        match state {
                            State::Unknown => counts.unknown += 1,
                            _ => counts.failed += 1,
                        }
                    }
                }
            }
        }
        self.queue.push(Entry::End(id, endings));
    }

    /// Waits until all that was recorded is in the database and on the disk.
    pub async fn flush(&self) -> Result<(), JournalFailed> {
        let (waiter, done) = oneshot::channel();
        self.queue.flush(waiter);
        done.await.unwrap_or_else(|_| Err(self.queue.closed()))
    }

    /// Records a run's end and its summary, and closes the database. Blocks for some seconds at most.
    pub fn close(&self, summary: String) -> Result<(), JournalFailed> {
        self.queue.push(Entry::Ended(unix_now(), summary));
        self.queue.close()
    }

    /// The ends of the items that this run has not taken up.
    pub fn earlier(&self) -> Earlier {
        let Totals {
            written,
            skipped,
            failed,
            unknown,
        } = *self.lock();
        Earlier {
            written,
            skipped,
            failed,
            unknown,
        }
    }

    /// Whether an item failed for good in a former run.
    pub fn has_failed(&self, index: u64) -> bool {
        let state = self.start.get(index);
        matches!(state, Some(State::Failed | State::FailedBefore))
    }

    /// Whether an item failed in an interrupted run over the same items that had failed.
    pub fn has_failed_again(&self, index: u64) -> bool {
        self.start.get(index) == Some(State::Failed)
    }

    /// What became of an item in former runs.
    fn before(&self, index: u64) -> Option<State> {
        let lost = (index < self.lost_below).then_some(State::Unknown);
        self.start.get(index).or(lost)
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        // Adding cannot stop half-way.
        self.earlier.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// A batch whose dispatch is being recorded.
pub struct Dispatched {
    id: u64,
    done: oneshot::Receiver<Result<(), JournalFailed>>,
    queue: Arc<Queue>,
}

impl Dispatched {
    /// Names the batch at its end.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits until it is in the database; an error says that it must not be sent.
    pub async fn recorded(&mut self) -> Result<(), JournalFailed> {
        (&mut self.done)
            .await
            .unwrap_or_else(|_| Err(self.queue.closed()))
    }
}

/// The lock is the system's: the end of the process, however it comes, frees it. The file is never opened and closed
/// by itself later on, which would drop SQLite's own locks.
fn lock(path: &Path) -> Result<File, JournalError> {
    let cannot = |cause: std::io::Error| {
        let fault = match cause.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                Fault::ReadOnly
            }
            std::io::ErrorKind::IsADirectory => Fault::CannotOpen("it is a folder".to_owned()),
            _ => Fault::CannotOpen(cause.to_string()),
        };
        StoreError::new(path, fault)
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(cannot)?;
    let until = Instant::now() + LOOKED_AT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(JournalError::InUse { path });
            }
            Err(TryLockError::Error(cause)) => return Err(cannot(cause).into()),
        }
    }
}

/// Whether the database's pages fit together.
fn check_pages(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| StoreError::from_sqlite(path, &error))?;
    match verdict.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::new(path, Fault::Damaged(verdict))),
    }
}

/// Whether the database is whole, and one that this version knows.
fn check(path: &Path, connection: &Connection) -> Result<(), JournalError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    check_pages(path, connection)?;
    if !has_table(connection, "journal_meta").map_err(failed)? {
        return Ok(());
    }
    let path = path.to_owned();
    match table::meta(connection, VERSION).map_err(failed)? {
        Some(found) if found != table::VERSION => Err(JournalError::Version { path, found }),
        _ => Ok(()),
    }
}

/// Below which index items without an end are unknown: the horizon of a run that the machine's power left in the middle,
/// or what former runs found to be such.
fn lost_below(path: &Path, label: &str, connection: &Connection) -> Result<u64, StoreError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    let known = table::meta(connection, LOST_BELOW).map_err(failed)?;
    let known: u64 = known.and_then(|text| text.parse().ok()).unwrap_or(0);
    let horizon = table::unended_horizon(connection, &boot()).map_err(failed)?;
    match horizon {
        Some(horizon) => {
            tracing::warn!(
                label = %label,
                "journal: the last run was ended by the machine; items below {horizon} without an end count as unknown"
            );
            Ok(known.max(horizon))
        }
        None => Ok(known),
    }
}

/// Writes what was found out about the last run.
fn recover(
    connection: &mut Connection,
    pending: &Pending,
    lost_below: u64,
) -> rusqlite::Result<()> {
    connection.execute_batch("PRAGMA synchronous=FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM journal_calls", [])?;
    table::save(&transaction, pending)?;
    table::set_meta(&transaction, LOST_BELOW, &lost_below.to_string())?;
    table::set_meta(&transaction, VERSION, table::VERSION)?;
    transaction.commit()
}

/// Names this start of the machine; empty where that cannot be told, which makes every crash one of the machine.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn unknown(item: u64, key: Option<Box<str>>, (reason, outcome): (&str, &'static str)) -> Ending {
    let detail = Detail {
        key,
        reason: reason.into(),
        outcome: outcome.into(),
        attempts: 0,
    };
    Ending {
        items: item..item + 1,
        state: State::Unknown,
        details: vec![detail],
    }
}

fn ending(item: &Item, state: State, fault: &ItemFault, calls: u32) -> Ending {
    let detail = Detail {
        key: key_of(item),
        reason: fault.message.as_str().into(),
        outcome: Cow::Borrowed(fault.class.as_str()),
        attempts: calls,
    };
    Ending {
        items: item.index..item.index + 1,
        state,
        details: vec![detail],
    }
}

fn key_of(item: &Item) -> Option<Box<str>> {
    match &item.key {
        Key::Index => None,
        Key::Text(text) => Some(text.clone()),
    }
}
