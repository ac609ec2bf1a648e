//! Writes a journal from a thread of its own, in grouped commits.
//!
//! Invariant: who waits for a dispatch hears of it after it is committed, and that it may be sent only then. Once a
//! commit has failed no dispatch succeeds any more; ends are kept and tried again until the journal is closed.

use super::pending::{Entry, Pending};
use super::{BUSY, JournalFailed, table};
use crate::store::fault::{Fault, StoreError};
use crate::store::sqlite::Identity;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Commits of this time may be lost when the machine loses power: so often they are forced to the disk.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How far the durable horizon is at least moved at once, in items: each move is forced to the disk, and after a loss of
/// power this many items at most are unknown that were not sent.
const HORIZON_STEP: u64 = 1024;

/// Between tries while the journal cannot be written.
const PAUSE: Duration = Duration::from_millis(200);

/// At the end, failing writes are tried again for this long.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The smallest database that SQLite makes, in bytes. What is smaller was cut short.
const SMALLEST_DATABASE: u64 = 512;

type Waiter = oneshot::Sender<Result<(), JournalFailed>>;

/// What the run tells the writer.
pub(super) struct Queue {
    path: PathBuf,
    told: Mutex<Told>,
    more: Condvar,
    done: Mutex<Option<Receiver<Result<(), JournalFailed>>>>,
}

#[derive(Default)]
struct Told {
    entries: Vec<Entry>,
    /// Wait for the commit of all entries.
    waiters: Vec<Waiter>,
    /// Whether it is to be forced to the disk.
    force: bool,
    closed: bool,
}

impl Queue {
    /// Starts the writer. It holds `lock` until it ends.
    pub fn start(
        path: &Path,
        connection: Connection,
        lock: File,
        pending: Pending,
    ) -> Result<Arc<Queue>, StoreError> {
        let (report, done) = sync_channel(1);
        let queue = Arc::new(Queue {
            path: path.to_owned(),
            told: Mutex::default(),
            more: Condvar::new(),
            done: Mutex::new(Some(done)),
        });
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        // The log is made by the first commit, which was made to get here.
        let writer = Writer {
            files: vec![Watched::database(path), Watched::log(log)],
            queue: queue.clone(),
            connection,
            pending,
            horizon: 0,
            sent: 0,
            unforced: false,
            forced_at: Instant::now(),
            failed: None,
            _lock: lock,
        };
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run(&report))
            .map_err(|error| StoreError::new(path, Fault::Other(error.to_string())))?;
        Ok(queue)
    }

    /// Tells the writer something, and does not wait for it.
    pub fn push(&self, entry: Entry) {
        self.lock().entries.push(entry);
        self.more.notify_one();
    }

    /// The same, to hear when it is committed.
    pub fn push_and_wait(&self, entry: Entry, waiter: Waiter) {
        let mut told = self.lock();
        told.entries.push(entry);
        told.waiters.push(waiter);
        drop(told);
        self.more.notify_one();
    }

    /// To hear when all is on the disk.
    pub fn flush(&self, waiter: Waiter) {
        let mut told = self.lock();
        told.waiters.push(waiter);
        told.force = true;
        drop(told);
        self.more.notify_one();
    }

    /// Lets the writer end; an error if something could not be written.
    pub fn close(&self) -> Result<(), JournalFailed> {
        self.end();
        let done = self
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The thread ends by itself; the limit is for a disk that does not answer.
        match done.map(|done| done.recv_timeout(CLOSE_LIMIT + 3 * BUSY)) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(self.closed()),
            None => Ok(()),
        }
    }

    /// Lets the writer end.
    pub fn end(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// The writer is not there any more.
    pub fn closed(&self) -> JournalFailed {
        let fault = Fault::Other("its writer has ended".to_owned());
        JournalFailed(StoreError::new(&self.path, fault))
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do, or for `most`.
    fn wait(&self, most: Duration) -> Told {
        let idle =
            |told: &mut Told| told.entries.is_empty() && told.waiters.is_empty() && !told.closed;
        let told = self.lock();
        let (mut told, _) = self
            .more
            .wait_timeout_while(told, most, idle)
            .unwrap_or_else(PoisonError::into_inner);
        let closed = told.closed;
        let taken = std::mem::take(&mut *told);
        told.closed = closed;
        taken
    }
}

struct Writer {
    queue: Arc<Queue>,
    connection: Connection,
    /// The database and its log.
    files: Vec<Watched>,
    pending: Pending,
    /// No item from here on was sent; on the disk before any that is below it is.
    horizon: u64,
    /// Items sent since the horizon was moved.
    sent: u64,
    /// There are commits that the machine's power could still take.
    unforced: bool,
    forced_at: Instant,
    failed: Option<JournalFailed>,
    /// Behind the connection: closing a file drops the locks that SQLite has on it.
    _lock: File,
}

impl Writer {
    fn run(mut self, report: &SyncSender<Result<(), JournalFailed>>) {
        let mut give_up = None;
        loop {
            let told = self
                .queue
                .wait(match (self.failed.is_some(), self.unforced) {
                    (true, _) => PAUSE,
                    (false, true) => SYNC_EVERY.saturating_sub(self.forced_at.elapsed()),
                    (false, false) => Duration::MAX,
                });
            told.entries
                .into_iter()
                .for_each(|entry| self.pending.apply(entry));
            if self.failed.is_some() {
                self.pending.forget_dispatches();
            }
            let written = self.commit(told.force || told.closed);
            if let Err(failure) = &written {
                // Their batches will not be sent, so they must not be found as sent.
                self.pending.forget_dispatches();
                self.failed.get_or_insert_with(|| failure.clone());
            }
            let answer = match &self.failed {
                Some(failure) if !told.force || written.is_err() => Err(failure.clone()),
                _ => Ok(()),
            };
            for waiter in told.waiters {
                // Whoever waited may have been told to stop.
                let _ = waiter.send(answer.clone());
            }
            if told.closed {
                let limit = *give_up.get_or_insert_with(|| Instant::now() + CLOSE_LIMIT);
                if written.is_ok() || Instant::now() >= limit {
                    self.end(written, report);
                    return;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// As the last one to close, this leaves one file without side files.
    fn end(
        self,
        written: Result<(), JournalFailed>,
        report: &SyncSender<Result<(), JournalFailed>>,
    ) {
        if written.is_err() {
            // The log must not be written to what may be another file by now.
            let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            if let Err(error) = self.connection.set_db_config(no_checkpoint, true) {
                tracing::debug!("{error}");
            }
        }
        drop(self.connection);
        // Pages that someone overwrote are found here, if SQLite had no need to read them before.
        let written = written.and_then(|()| whole(&self.queue.path).map_err(JournalFailed));
        // Whoever waited may be gone.
        let _ = report.send(written);
    }

    /// Writes all that is pending, or nothing.
    fn commit(&mut self, force: bool) -> Result<(), JournalFailed> {
        let failed = |error: StoreError| JournalFailed(error);
        self.files
            .iter_mut()
            .all(Watched::is_there)
            .then_some(())
            .ok_or_else(|| failed(StoreError::new(&self.queue.path, Fault::Gone)))?;
        self.move_horizon();
        let due = self.unforced && self.forced_at.elapsed() >= SYNC_EVERY;
        let force = self.pending.horizon.is_some() || ((force || due) && self.has_unforced());
        if self.pending.is_saved() && !force {
            return Ok(());
        }
        self.write(force)
            .map_err(|error| failed(StoreError::from_sqlite(&self.queue.path, &error)))?;
        if let Some(horizon) = self.pending.horizon {
            self.horizon = horizon;
            self.sent = 0;
        }
        self.pending.saved();
        self.unforced = !force;
        if force {
            self.forced_at = Instant::now();
        }
        Ok(())
    }

    fn has_unforced(&self) -> bool {
        self.unforced || !self.pending.is_saved()
    }

    fn write(&mut self, force: bool) -> rusqlite::Result<()> {
        // The end of the process loses no commit either way.
        let level = if force { "FULL" } else { "NORMAL" };
        self.connection.pragma_update(None, "synchronous", level)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        table::save(&transaction, &self.pending)?;
        if force && self.pending.is_saved() {
            // A commit without a change writes nothing, and so would force nothing.
            table::touch(&transaction)?;
        }
        transaction.commit()
    }

    /// By about what is sent in the time between two forced commits, so that there are few of them.
    fn move_horizon(&mut self) {
        let Some(highest) = self.pending.highest() else {
            return;
        };
        self.sent += self.pending.dispatched();
        if highest > self.horizon {
            let since = self.forced_at.elapsed().as_secs_f64().max(0.001);
            let a_second = (self.sent as f64 / since) as u64;
            let horizon = highest.saturating_add(a_second.max(HORIZON_STEP));
            // SQLite's integers end there.
            self.pending.horizon = Some(horizon.min(i64::MAX as u64));
        }
    }
}

/// Whether what was written can be read.
fn whole(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    super::check_pages(path, &connection)
}

/// A file that must stay what it is.
struct Watched {
    path: PathBuf,
    identity: Option<Identity>,
    size: u64,
    /// Whether a smaller file is another one.
    grows: bool,
}

impl Watched {
    /// The database, which only grows.
    fn database(path: &Path) -> Watched {
        let mut watched = Watched::log(path.to_owned());
        watched.grows = true;
        watched
    }

    /// SQLite's log beside it; there is none where WAL is impossible.
    fn log(path: PathBuf) -> Watched {
        let found = Identity::of(&path);
        Watched {
            identity: found.map(|(identity, _)| identity),
            size: found.map_or(0, |(_, size)| size),
            grows: false,
            path,
        }
    }

    /// Notices what SQLite does not: a file that was deleted, replaced or cut short.
    fn is_there(&mut self) -> bool {
        let Some(identity) = self.identity else {
            return true;
        };
        match Identity::of(&self.path) {
            Some((now, size)) if now == identity => {
                let whole = !self.grows || size >= self.size.max(SMALLEST_DATABASE);
                self.size = size;
                whole
            }
            _ => false,
        }
    }
}
