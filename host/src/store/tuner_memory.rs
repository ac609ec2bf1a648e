//! The tuner's memory: the setting that was learned for each label and the hosts that its job calls.
//!
//! Invariant: it never stops a run. What cannot be read is not there, what cannot be written is not remembered,
//! and the first of either is said in one line.

use super::fault::{Fault, StoreError};
use super::sqlite::{has_table, open_read, open_write, unix_now};
use super::trouble::Trouble;
use batchgate_policy::controller::Learned;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the tables.
const VERSION: &str = "1";

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS tuner_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tuner_memory (
    label TEXT NOT NULL,
    hosts TEXT NOT NULL,        -- the entries of allow_hosts, sorted, with spaces between them
    learned_at REAL NOT NULL,   -- seconds since 1970
    controller TEXT NOT NULL,
    workers INTEGER NOT NULL,
    batch_size INTEGER NOT NULL,
    max_workers INTEGER NOT NULL, -- the most that there could have been
    max_batch_size INTEGER NOT NULL,
    in_flight REAL NOT NULL,    -- calls really in flight, mean
    items REAL NOT NULL,        -- in a call, mean
    seconds REAL NOT NULL,      -- of a call, geometric mean
    spread REAL NOT NULL,       -- standard deviation of the log of the seconds
    calls INTEGER NOT NULL,     -- that this is known from
    share REAL NOT NULL,        -- of the run's last rounds
    PRIMARY KEY (label, hosts)
) WITHOUT ROWID;
INSERT OR IGNORE INTO tuner_meta (name, value) VALUES ('version', '1');
";

/// How long another process's lock is waited for, at the start of a run and at its end.
const BUSY: Duration = Duration::from_secs(1);

/// Seconds after which a row that nobody renewed goes: long after it is too old to start from.
const KEPT: f64 = 90.0 * 86_400.0;

/// What is remembered of one job.
#[derive(Debug)]
pub struct TunerMemory {
    path: PathBuf,
    label: String,
    hosts: String,
    trouble: Trouble,
    /// When what was recalled had been learned.
    recalled: Option<f64>,
}

impl TunerMemory {
    /// The memory at `path`, which need not exist yet, of the job of that label which calls these hosts.
    pub fn new<'a>(path: &Path, label: &str, hosts: impl Iterator<Item = &'a str>) -> TunerMemory {
        let mut hosts: Vec<String> = hosts.map(str::to_ascii_lowercase).collect();
        hosts.sort_unstable();
        hosts.dedup();
        TunerMemory {
            path: path.to_owned(),
            label: label.to_owned(),
            hosts: hosts.join(" "),
            trouble: Trouble::default(),
            recalled: None,
        }
    }

    /// The job's label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The file, for messages.
    pub fn file_name(&self) -> std::path::Display<'_> {
        Path::new(self.path.file_name().unwrap_or(self.path.as_os_str())).display()
    }

    /// What is remembered, and its age in seconds.
    pub fn recall(&mut self) -> Option<(Learned, f64)> {
        let read = self.read();
        let (learned, at) = self.or_warn(read, "the run starts as configured")??;
        self.recalled = Some(at);
        Some((learned, unix_now() - at))
    }

    /// Remembers this from now on. Says whether it could.
    pub fn keep(&mut self, learned: &Learned, controller: &str) -> bool {
        let written = self.write(|connection| {
            let now = unix_now();
            connection.execute(
                "INSERT OR REPLACE INTO tuner_memory (label, hosts, learned_at, controller, workers, batch_size, \
                     max_workers, max_batch_size, in_flight, items, seconds, spread, calls, share) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
                params![
                    self.label,
                    self.hosts,
                    now,
                    controller,
                    learned.workers,
                    learned.batch_size,
                    learned.max_workers,
                    learned.max_batch_size,
                    learned.in_flight,
                    learned.items,
                    learned.seconds,
                    learned.spread,
                    learned.calls,
                    learned.share,
                ],
            )?;
            connection.execute(
                "DELETE FROM tuner_memory WHERE learned_at < ?1",
                [now - KEPT],
            )?;
            Ok(())
        });
        self.or_warn(written, "what this run learned is not remembered")
            .is_some()
    }

    /// Drops what was recalled, unless another run has learned something since.
    pub fn forget(&mut self) {
        let Some(recalled) = self.recalled.take() else {
            return;
        };
        let written = self.write(|connection| {
            connection.execute(
                "DELETE FROM tuner_memory WHERE label = ?1 AND hosts = ?2 AND learned_at = ?3",
                params![self.label, self.hosts, recalled],
            )?;
            Ok(())
        });
        self.or_warn(written, "what turned out to be wrong stays remembered");
    }

    fn read(&self) -> Result<Option<(Learned, f64)>, StoreError> {
        let Some(connection) = open_read(&self.path, BUSY)? else {
            return Ok(None);
        };
        let failed = |error| StoreError::from_sqlite(&self.path, &error);
        if !has_table(&connection, "tuner_memory").map_err(failed)? {
            return Ok(None);
        }
        self.check(&connection)?;
        let found = connection
            .query_row(
                "SELECT learned_at, workers, batch_size, max_workers, max_batch_size, in_flight, items, seconds, \
                     spread, calls, share \
                 FROM tuner_memory WHERE label = ?1 AND hosts = ?2",
                [&self.label, &self.hosts],
                |row| {
                    let learned = Learned {
                        workers: row.get(1)?,
                        batch_size: row.get(2)?,
                        max_workers: row.get(3)?,
                        max_batch_size: row.get(4)?,
                        in_flight: row.get(5)?,
                        items: row.get(6)?,
                        seconds: row.get(7)?,
                        spread: row.get(8)?,
                        calls: row.get(9)?,
                        share: row.get(10)?,
                    };
                    Ok((learned, row.get(0)?))
                },
            )
            .optional();
        found.map_err(failed)
    }

    /// Runs `change` in one transaction.
    fn write(
        &self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let failed = |error| StoreError::from_sqlite(&self.path, &error);
        let mut connection = open_write(&self.path, SCHEMA, BUSY)?;
        self.check(&connection)?;
        let transaction = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(failed)?;
        change(&transaction).map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    /// Refuses tables of another version, whose columns may mean something else.
    fn check(&self, connection: &Connection) -> Result<(), StoreError> {
        let version = connection
            .query_row(
                "SELECT value FROM tuner_meta WHERE name = 'version'",
                [],
                |row| row.get::<_, String>(0),
            )
            .map_err(|error| StoreError::from_sqlite(&self.path, &error))?;
        if version != VERSION {
            let fault = Fault::Other(format!(
                "its tables are of version {}, and this program's of {VERSION}",
                version.escape_debug()
            ));
            return Err(StoreError::new(&self.path, fault));
        }
        Ok(())
    }

    fn or_warn<T>(&mut self, result: Result<T, StoreError>, consequence: &str) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let label = Some(&*self.label);
                self.trouble
                    .begin(label, "tuner memory", &error, consequence);
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "tuner_memory_tests.rs"]
mod tests;
