//! The usage log: a row for every call, and what can be asked of it.
//!
//! Answers are those of the Python library over the one table `requests`; the sums that stand
//! beside it ([`super::rollup`]) only make them fast.

use super::fault::StoreError;
use super::rollup::{self, Minutes};
use super::sqlite::{BUSY_TIMEOUT, has_table, open_existing, open_read};
use batchgate_policy::outcome::UsageOutcome;
use rusqlite::{Connection, ToSql, params};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use super::sqlite::unix_now;

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp REAL NOT NULL,
    label TEXT NOT NULL,
    workers INTEGER NOT NULL,
    batch_size INTEGER NOT NULL,
    n_items INTEGER NOT NULL,
    elapsed_seconds REAL NOT NULL,
    outcome TEXT NOT NULL,
    bytes INTEGER
);
CREATE INDEX IF NOT EXISTS idx_requests_timestamp ON requests(timestamp);
";

pub(super) const INSERT: &str = "INSERT INTO requests (timestamp, label, workers, batch_size, \
     n_items, elapsed_seconds, outcome, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// A call, as it is logged.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRow {
    /// When it ended, in seconds since 1970.
    pub timestamp: f64,
    /// The job's label.
    pub label: Arc<str>,
    /// The setting that its batch was dispatched under.
    pub workers: u32,
    /// See `workers`.
    pub batch_size: u32,
    /// Items in this very call: a part of a batch has fewer.
    pub n_items: u32,
    /// Wall-clock seconds, without waits on our own limiter.
    pub elapsed_seconds: f64,
    /// How it ended.
    pub outcome: UsageOutcome,
    /// Bytes sent and received, if they were counted.
    pub bytes: Option<u64>,
}

impl UsageRow {
    pub(super) fn insert(&self, statement: &mut rusqlite::Statement<'_>) -> rusqlite::Result<()> {
        statement.execute(params![
            self.timestamp(),
            &*self.label,
            self.workers,
            self.batch_size,
            self.n_items,
            finite(self.elapsed_seconds),
            self.outcome.as_str(),
            self.bytes(),
        ])?;
        Ok(())
    }

    /// As it is stored.
    pub(super) fn timestamp(&self) -> f64 {
        finite(self.timestamp)
    }

    /// As they are stored.
    pub(super) fn bytes(&self) -> Option<i64> {
        self.bytes
            .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

/// SQLite would take a number that is none for NULL, which the table refuses.
fn finite(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds } else { 0.0 }
}

/// What the calls of a span of time come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// All calls.
    pub requests: i64,
    /// Those that ended `ok`.
    pub ok: i64,
    /// Those that ended `fail`.
    pub fail: i64,
    /// Those that ended `breach`.
    pub breach: i64,
    /// Items of all calls: an item that was sent twice counts twice.
    pub items: i64,
    /// Bytes of the calls that counted them.
    pub bytes: i64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        for (sum, value) in [
            (&mut self.requests, other.requests),
            (&mut self.ok, other.ok),
            (&mut self.fail, other.fail),
            (&mut self.breach, other.breach),
            (&mut self.items, other.items),
            (&mut self.bytes, other.bytes),
        ] {
            *sum = sum.saturating_add(value);
        }
    }
}

/// A span of time, both ends included; an absent end is open. Seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Span {
    /// The beginning.
    pub since: Option<f64>,
    /// The end.
    pub until: Option<f64>,
}

/// A usage log that is open for questions, all answered from one moment's state of it.
#[derive(Debug)]
pub struct UsageLog {
    connection: Connection,
    path: PathBuf,
}

impl UsageLog {
    /// Opens the log; `None` if there is no such file, or none with our table yet.
    ///
    /// Where many rows were added since the sums were last brought up to date, this does it first
    /// if it may write: seconds for millions of rows, once.
    pub fn open(path: &Path) -> Result<Option<UsageLog>, StoreError> {
        let failed = |error| StoreError::from_sqlite(path, &error);
        let open = || -> Result<Option<(Connection, i64)>, StoreError> {
            let Some(connection) = open_read(path, BUSY_TIMEOUT)? else {
                return Ok(None);
            };
            connection.execute_batch("BEGIN").map_err(failed)?;
            if !has_table(&connection, "requests").map_err(failed)? {
                return Ok(None);
            }
            let behind = rollup::behind(&connection).map_err(failed)?;
            Ok(Some((connection, behind)))
        };
        let Some((mut connection, behind)) = open()? else {
            return Ok(None);
        };
        if behind > CATCH_UP_AFTER {
            tracing::info!("{}: summing up {behind} rows, once", path.display());
            drop(connection);
            if let Err(error) = catch_up(path) {
                tracing::debug!("sums of the usage log are not up to date: {error}");
            }
            match open()? {
                Some((again, _)) => connection = again,
                None => return Ok(None),
            }
        }
        Ok(Some(UsageLog {
            connection,
            path: path.to_owned(),
        }))
    }

    /// Totals by label over a span of time, of one label or of all.
    pub fn totals(
        &self,
        span: Span,
        label: Option<&str>,
    ) -> Result<BTreeMap<String, Totals>, StoreError> {
        self.sum(span, label)
            .map_err(|error| StoreError::from_sqlite(&self.path, &error))
    }

    /// When the first and the last call were logged; `None` in an empty log.
    pub fn ends(&self) -> Result<Option<(f64, f64)>, StoreError> {
        let end = |function| {
            // One a statement, so that each is a look at the index and not a scan.
            let sql = format!("SELECT CAST({function}(timestamp) AS REAL) FROM requests");
            self.connection
                .query_row(&sql, [], |row| row.get::<_, Option<f64>>(0))
                .map_err(|error| StoreError::from_sqlite(&self.path, &error))
        };
        Ok(end("MIN")?.zip(end("MAX")?))
    }

    fn sum(&self, span: Span, label: Option<&str>) -> rusqlite::Result<BTreeMap<String, Totals>> {
        let Span { since, until } = span;
        let covered = rollup::covered(&self.connection)?;
        let mut sum = Sum {
            connection: &self.connection,
            totals: BTreeMap::new(),
        };
        // Rows that no sum covers. The plus signs keep the index of timestamps out of it, where
        // the few rows at the end of the table are the shorter way.
        let tail = if covered > 0 {
            "id > ?1 AND (?2 IS NULL OR +timestamp >= ?2) AND (?3 IS NULL OR +timestamp <= ?3)"
        } else {
            "id > ?1 AND timestamp >= COALESCE(?2, -9e999) AND timestamp <= COALESCE(?3, 9e999)"
        };
        sum.rows(1, tail, &[&covered, &since, &until, &label])?;
        if covered > 0 {
            let minutes = Minutes::of(since, until);
            if minutes.first <= minutes.last {
                sum.minutes(minutes.first, minutes.last, label)?;
            }
            if let Some((from, before)) = minutes.head {
                let until = until.unwrap_or(f64::INFINITY);
                let head = "+id <= ?1 AND timestamp >= ?2 AND timestamp < ?3 AND timestamp <= ?5";
                sum.rows(1, head, &[&covered, &from, &before, &label, &until])?;
            }
            if let Some((after, before)) = minutes.surplus {
                let surplus = "+id <= ?1 AND timestamp > ?2 AND timestamp < ?3";
                sum.rows(-1, surplus, &[&covered, &after, &before, &label])?;
            }
        }
        sum.totals.retain(|_, totals| totals.requests != 0);
        Ok(sum.totals)
    }
}

struct Sum<'a> {
    connection: &'a Connection,
    totals: BTreeMap<String, Totals>,
}

impl Sum<'_> {
    /// Adds the rows of the log that fit a condition, whose ?4 is the label; `sign` -1 takes
    /// them away.
    fn rows(&mut self, sign: i64, condition: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT CAST(label AS TEXT), CAST(outcome AS TEXT), COUNT(*), \
             CAST(SUM(n_items) AS INTEGER), CAST(COALESCE(SUM(bytes), 0) AS INTEGER) \
             FROM requests WHERE {condition} AND (?4 IS NULL OR label = ?4) GROUP BY label, outcome"
        );
        self.add(sign, &sql, values)
    }

    /// Adds whole minutes.
    fn minutes(&mut self, first: i64, last: i64, label: Option<&str>) -> rusqlite::Result<()> {
        let sql = "SELECT CAST(label AS TEXT), CAST(outcome AS TEXT), SUM(requests), \
             CAST(SUM(items) AS INTEGER), CAST(SUM(bytes) AS INTEGER) \
             FROM usage_rollup WHERE minute BETWEEN ?1 AND ?2 AND (?3 IS NULL OR label = ?3) \
             GROUP BY label, outcome";
        self.add(1, sql, &[&first, &last, &label])
    }

    fn add(&mut self, sign: i64, sql: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            let label = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned();
            let signed = |column| {
                row.get::<_, i64>(column)
                    .map(|sum| sum.saturating_mul(sign))
            };
            let requests = signed(2)?;
            let mut group = Totals {
                requests,
                items: signed(3)?,
                bytes: signed(4)?,
                ..Totals::default()
            };
            match row.get_ref(1)?.as_bytes()? {
                b"ok" => group.ok = requests,
                b"fail" => group.fail = requests,
                b"breach" => group.breach = requests,
                // Only another program writes other words; they are calls all the same.
                _ => {}
            }
            *self.totals.entry(label).or_default() += group;
        }
        Ok(())
    }
}

/// Rows that are summed at every question; more of them are worth a step forward.
const CATCH_UP_AFTER: i64 = 20_000;

/// Between two long transactions, so that a job that waits to write gets its turn.
const BREATH: Duration = Duration::from_millis(5);

fn catch_up(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    let mut connection = open_existing(path, BUSY_TIMEOUT)?;
    connection
        .execute_batch("PRAGMA synchronous=NORMAL")
        .map_err(failed)?;
    while rollup::step(&mut connection).map_err(failed)? {
        std::thread::sleep(BREATH);
    }
    Ok(())
}

/// Removes the rows of calls before a moment (seconds since 1970) and returns how many there were.
/// The freed space is used for new rows; the file does not shrink.
pub fn prune(path: &Path, before: f64) -> Result<u64, StoreError> {
    const ROWS: u32 = 10_000;
    let failed = |error| StoreError::from_sqlite(path, &error);
    let connection = open_existing(path, BUSY_TIMEOUT)?;
    let mut removed = 0;
    loop {
        let rows = connection
            .execute(
                "DELETE FROM requests WHERE id IN \
                 (SELECT id FROM requests WHERE timestamp < ?1 LIMIT ?2)",
                params![before, ROWS],
            )
            .map_err(failed)?;
        removed += rows as u64;
        if rows == 0 {
            break;
        }
        std::thread::sleep(BREATH);
    }
    rollup::sweep(&connection).map_err(failed)?;
    Ok(removed)
}
