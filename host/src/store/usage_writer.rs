//! Writes the usage log from a thread of its own, in grouped commits.
//!
//! Invariant: whatever is wrong with the database, rows are kept back within bounds and tried
//! again at growing intervals; the run never waits for them, and hears of it once when it begins
//! and once when it ends.

use super::fault::{Fault, StoreError};
use super::rollup;
use super::sqlite::{Identity, open_write};
use super::trouble::Trouble;
use super::usage::{INSERT, SCHEMA, UsageRow};
use super::usage_buffer::UsageBuffer;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most rows in memory: about 14 MB.
const CAPACITY: usize = 200_000;

/// From one commit to the next. With the commit itself, rows are written within 100 ms.
const GROUP: Duration = Duration::from_millis(50);

/// How long one try waits for another process's lock. Short, so that closing is.
const BUSY: Duration = Duration::from_secs(1);

/// Between tries while the database fails: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// At the end, failing writes are tried again for this long.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// After the sums could not be brought up to date, they are left alone for this long.
const SUMS_PAUSE: Duration = Duration::from_secs(60);

/// The smallest database that SQLite makes, in bytes. What is smaller was cut short.
const SMALLEST_DATABASE: u64 = 512;

/// What became of the rows of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// Rows in the log.
    pub written: u64,
    /// Rows that found no room while the log could not be written.
    pub dropped: u64,
    /// Rows that were still kept back at the end.
    pub unwritten: u64,
}

/// The writing end of a usage log.
#[derive(Debug)]
pub struct UsageWriter {
    path: PathBuf,
    buffer: Arc<UsageBuffer>,
    done: Mutex<Option<Receiver<u64>>>,
}

impl UsageWriter {
    /// Opens the log, creating it if there is none. Only a wrong path is an error: a log that is locked, read-only,
    /// damaged or on a full disk has its rows kept back.
    pub fn open(path: &Path) -> Result<UsageWriter, StoreError> {
        UsageWriter::with_capacity(path, CAPACITY)
    }

    fn with_capacity(path: &Path, capacity: usize) -> Result<UsageWriter, StoreError> {
        let buffer = Arc::new(UsageBuffer::new(capacity));
        let mut thread = WriterThread::new(path, Arc::clone(&buffer));
        match thread.open() {
            Ok(opened) => thread.opened = Some(opened),
            Err(error) if error.fault.is_of_path() => return Err(error),
            Err(error) => thread.begin_trouble(&error),
        }
        let (report, done) = sync_channel(1);
        thread::Builder::new()
            .name("usage-log".to_owned())
            .spawn(move || thread.run(&report))
            .map_err(|error| StoreError::new(path, Fault::Other(error.to_string())))?;
        Ok(UsageWriter {
            path: path.to_owned(),
            buffer,
            done: Mutex::new(Some(done)),
        })
    }

    /// Logs a call. Never waits and never fails.
    pub fn log(&self, row: UsageRow) {
        self.buffer.add(row);
    }

    /// Writes what is kept back and ends the thread. Blocks, where the log fails for a few
    /// seconds at most, and then says how many rows are lost. Later rows are dropped.
    pub fn close(&self) -> UsageReport {
        self.buffer.close();
        let done = self
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The thread ends by itself; the limit is for a disk that does not answer.
        let written = match done.map(|done| done.recv_timeout(CLOSE_LIMIT + 2 * BUSY)) {
            Some(Ok(written)) => written,
            Some(Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) | None => 0,
        };
        let report = UsageReport {
            written,
            dropped: self.buffer.dropped(),
            unwritten: self.buffer.unwritten(),
        };
        if report.dropped + report.unwritten > 0 {
            tracing::warn!(
                "usage log {} lacks {} rows of this run: \
                 {} were dropped, {} could not be written by its end",
                self.path.display(),
                report.dropped + report.unwritten,
                report.dropped,
                report.unwritten
            );
        }
        report
    }
}

impl Drop for UsageWriter {
    fn drop(&mut self) {
        self.buffer.close();
    }
}

#[derive(Debug)]
struct WriterThread {
    path: PathBuf,
    buffer: Arc<UsageBuffer>,
    /// None while the database has to be opened again.
    opened: Option<Opened>,
    /// The file shrank: its pages are checked when it is opened again.
    shrank: bool,
    /// Rows that were taken from the buffer, in the order of their coming.
    groups: Vec<Vec<UsageRow>>,
    written: u64,
    trouble: Trouble,
    /// Rows that had been dropped when the log last worked.
    dropped_before: u64,
    sums_from: Instant,
}

#[derive(Debug)]
struct Opened {
    connection: Connection,
    identity: Identity,
    /// Bytes of the file when it was last looked at.
    size: u64,
}

impl WriterThread {
    fn new(path: &Path, buffer: Arc<UsageBuffer>) -> WriterThread {
        WriterThread {
            path: path.to_owned(),
            buffer,
            opened: None,
            shrank: false,
            groups: Vec::new(),
            written: 0,
            trouble: Trouble::default(),
            dropped_before: 0,
            sums_from: Instant::now(),
        }
    }

    fn run(mut self, report: &SyncSender<u64>) {
        let mut pause = GROUP;
        let mut next_pause = FIRST_PAUSE;
        let mut give_up = None;
        loop {
            let closed = self.buffer.wait(pause);
            let started = Instant::now();
            if self.turn() {
                if closed {
                    break;
                }
                pause = GROUP.saturating_sub(started.elapsed());
                next_pause = FIRST_PAUSE;
                continue;
            }
            pause = next_pause;
            next_pause = LAST_PAUSE.min(pause * 2);
            if closed {
                let limit = *give_up.get_or_insert_with(|| Instant::now() + CLOSE_LIMIT);
                if Instant::now() >= limit {
                    break;
                }
                // The wait at the top is over at once, now that the buffer is closed.
                thread::sleep(FIRST_PAUSE);
            }
        }
        // As the last one to close, this leaves one file without side files.
        self.opened = None;
        // Whoever waited may be gone.
        let _ = report.send(self.written);
    }

    /// Writes what there is. False if it could not be written.
    fn turn(&mut self) -> bool {
        self.take_group();
        let written = self.write();
        match &written {
            Ok(rows) => self.end_trouble(*rows),
            Err(error) => self.begin_trouble(error),
        }
        written.is_ok()
    }

    fn take_group(&mut self) {
        let empty = match self.groups.first_mut() {
            Some(group) if group.is_empty() => std::mem::take(group),
            _ => Vec::new(),
        };
        self.groups.retain(|group| !group.is_empty());
        self.groups.push(self.buffer.take(empty));
    }

    /// Writes all rows that were taken, or none. Returns how many.
    fn write(&mut self) -> Result<usize, StoreError> {
        self.look_at_file()?;
        let rows: usize = self.groups.iter().map(Vec::len).sum();
        if rows == 0 && self.opened.is_some() {
            return Ok(0);
        }
        let mut opened = match self.opened.take() {
            Some(opened) => opened,
            None => self.open()?,
        };
        let complete = match insert(&mut opened.connection, &self.groups) {
            Ok(complete) => complete,
            Err(error) => {
                let error = StoreError::from_sqlite(&self.path, &error);
                if error.fault == Fault::Locked {
                    self.opened = Some(opened);
                } else {
                    abandon(opened);
                }
                return Err(error);
            }
        };
        self.buffer.written();
        self.written += rows as u64;
        self.groups.truncate(1);
        self.groups.iter_mut().for_each(Vec::clear);
        if !complete {
            self.catch_up(&mut opened.connection);
        }
        self.opened = Some(opened);
        Ok(rows)
    }

    fn open(&mut self) -> Result<Opened, StoreError> {
        let failed = |error| StoreError::from_sqlite(&self.path, &error);
        let connection = open_write(&self.path, SCHEMA, BUSY)?;
        // A crash of the process loses nothing; one of the machine loses the last commits.
        connection
            .execute_batch("PRAGMA synchronous=NORMAL")
            .map_err(failed)?;
        // A log that takes no rows fails here, before anything is sent: it may be read-only, or
        // have other columns.
        connection.prepare_cached(INSERT).map_err(failed)?;
        connection
            .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
            .map_err(failed)?;
        if self.shrank {
            // What the file lacks may stand in SQLite's log.
            connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                .map_err(failed)?;
            let verdict: String = connection
                .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
                .map_err(failed)?;
            if verdict != "ok" {
                return Err(StoreError::new(&self.path, Fault::Damaged(verdict)));
            }
            self.shrank = false;
        }
        let (identity, size) =
            Identity::of(&self.path).ok_or_else(|| StoreError::new(&self.path, Fault::Gone))?;
        Ok(Opened {
            connection,
            identity,
            size,
        })
    }

    /// Notices what SQLite does not: another file at the path, or one that was cut short.
    fn look_at_file(&mut self) -> Result<(), StoreError> {
        let Some(opened) = &mut self.opened else {
            return Ok(());
        };
        let gone = match Identity::of(&self.path) {
            Some((identity, size)) if identity == opened.identity => {
                // Another process's VACUUM shrinks it too, and rightly.
                self.shrank |= size < opened.size;
                opened.size = size;
                size < SMALLEST_DATABASE
            }
            _ => true,
        };
        if (gone || self.shrank)
            && let Some(opened) = self.opened.take()
        {
            abandon(opened);
        }
        if gone {
            // Opened again, it is to be whole.
            self.shrank = true;
            return Err(StoreError::new(&self.path, Fault::Gone));
        }
        Ok(())
    }

    /// Takes up other programs' rows into the sums.
    fn catch_up(&mut self, connection: &mut Connection) {
        if Instant::now() < self.sums_from {
            return;
        }
        if let Err(error) = rollup::step(connection) {
            // Only speed is lost. Whether the log itself fails, the next commit tells.
            self.sums_from = Instant::now() + SUMS_PAUSE;
            tracing::debug!("sums of the usage log {}: {error}", self.path.display());
        }
    }

    fn begin_trouble(&mut self, error: &StoreError) {
        let consequence = "the run goes on and keeps the rows back";
        // Jobs may share it.
        self.trouble.begin(None, "usage log", error, consequence);
    }

    fn end_trouble(&mut self, rows: usize) {
        let dropped = self.buffer.dropped();
        if self.trouble.end() {
            tracing::warn!(
                "usage log {} is written again: {rows} rows that were kept back are in it, \
                 {} were dropped",
                self.path.display(),
                dropped - self.dropped_before
            );
        }
        self.dropped_before = dropped;
    }
}

/// Closes a database without touching the file: SQLite would write its log of changes to it
/// first, and it may be another file by now.
fn abandon(opened: Opened) {
    let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    if let Err(error) = opened.connection.set_db_config(no_checkpoint, true) {
        tracing::debug!("{error}");
    }
}

/// True if the sums beside the log cover all rows of it.
fn insert(connection: &mut Connection, groups: &[Vec<UsageRow>]) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let complete = rollup::is_complete(&transaction)?;
    let mut new_rows = rollup::NewRows::default();
    {
        let mut statement = transaction.prepare_cached(INSERT)?;
        for row in groups.iter().flatten() {
            row.insert(&mut statement)?;
            new_rows.add(row);
        }
    }
    if complete {
        new_rows.cover(&transaction, transaction.last_insert_rowid())?;
    }
    transaction.commit()?;
    Ok(complete)
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
