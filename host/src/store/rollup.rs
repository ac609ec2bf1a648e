//! Sums of the usage log by minute, so that a question about a day does not read every call of it.
//!
//! Invariant: `usage_rollup` holds exactly the sums of the rows of `requests` with an id up to the
//! one in `usage_rollup_covered`, whoever writes, changes or deletes rows. New rows get higher
//! ids, so they are simply not covered yet; triggers see to rows that are. Without all the triggers
//! the sums are not believed.

use super::usage::UsageRow;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

/// The most rows of one step. A step holds the write lock, for about 20 ms.
pub(super) const STEP: i64 = 50_000;

const TRIGGERS: i64 = 3;

// Minutes are counted in whole numbers: dividing the real number could round a call into the
// next minute. Minute 0 also takes calls of the minute before 1970, see `Minutes`.
//
// A deleted row is subtracted. A row that is changed, or put among the covered ones, is so rare
// that the sums start again.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS usage_rollup (
    minute INTEGER NOT NULL,
    label TEXT NOT NULL,
    outcome TEXT NOT NULL,
    requests INTEGER NOT NULL,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (minute, label, outcome)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage_rollup_covered (id INTEGER NOT NULL);
INSERT INTO usage_rollup_covered SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM usage_rollup_covered);
CREATE TRIGGER IF NOT EXISTS usage_rollup_delete AFTER DELETE ON requests
WHEN OLD.id <= (SELECT id FROM usage_rollup_covered) BEGIN
    UPDATE usage_rollup SET requests = requests - 1, items = items - OLD.n_items,
        bytes = bytes - COALESCE(OLD.bytes, 0)
    WHERE minute = CAST(OLD.timestamp AS INTEGER) / 60 AND label = OLD.label
        AND outcome = OLD.outcome;
END;
CREATE TRIGGER IF NOT EXISTS usage_rollup_insert AFTER INSERT ON requests
WHEN NEW.id <= (SELECT id FROM usage_rollup_covered) BEGIN
    DELETE FROM usage_rollup;
    UPDATE usage_rollup_covered SET id = 0;
END;
CREATE TRIGGER IF NOT EXISTS usage_rollup_update AFTER UPDATE ON requests
WHEN MIN(OLD.id, NEW.id) <= (SELECT id FROM usage_rollup_covered) BEGIN
    DELETE FROM usage_rollup;
    UPDATE usage_rollup_covered SET id = 0;
END;
";

/// Takes up at most [`STEP`] rows more, in a transaction of its own. False if none are left.
pub(super) fn step(connection: &mut Connection) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !has_triggers(&transaction)? {
        transaction.execute_batch(SCHEMA)?;
        transaction
            .execute_batch("DELETE FROM usage_rollup; UPDATE usage_rollup_covered SET id = 0")?;
    }
    let covered = covered(&transaction)?;
    let next: Option<i64> = transaction.query_row(
        "SELECT MAX(id) FROM (SELECT id FROM requests WHERE id > ?1 ORDER BY id LIMIT ?2)",
        [covered, STEP],
        |row| row.get(0),
    )?;
    if let Some(next) = next {
        // "WHERE true" keeps the parser from taking ON for a join.
        transaction.execute(
            &format!(
                "INSERT INTO usage_rollup SELECT * FROM (\
                 SELECT CAST(timestamp AS INTEGER) / 60, label, outcome, COUNT(*), SUM(n_items), \
                 COALESCE(SUM(bytes), 0) FROM requests WHERE id > ?1 AND id <= ?2 GROUP BY 1, 2, 3\
                 ) WHERE true {ADD}"
            ),
            [covered, next],
        )?;
        cover(&transaction, next)?;
    }
    transaction.commit()?;
    Ok(next.is_some())
}

const ADD: &str = "ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, \
     items = items + excluded.items, bytes = bytes + excluded.bytes";

fn cover(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE usage_rollup_covered SET id = ?1")?
        .execute([id])?;
    Ok(())
}

/// The sums of rows that are being added: a writer that knows its rows need not read them again.
#[derive(Debug, Default)]
pub(super) struct NewRows<'a> {
    sums: Vec<(Minute<'a>, [i64; 3])>,
}

/// Minute, label and outcome.
type Minute<'a> = (i64, &'a str, &'static str);

impl<'a> NewRows<'a> {
    pub(super) fn add(&mut self, row: &'a UsageRow) {
        // As SQLite has it: both casts and both divisions cut off.
        let minute = (
            row.timestamp() as i64 / 60,
            &*row.label,
            row.outcome.as_str(),
        );
        let values = [1, i64::from(row.n_items), row.bytes().unwrap_or(0)];
        // Most rows are of the same minute, label and outcome as one shortly before.
        match self.sums.iter_mut().rev().find(|(key, _)| *key == minute) {
            Some((_, sums)) => {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = sum.saturating_add(value);
                }
            }
            None => self.sums.push((minute, values)),
        }
    }

    /// Covers the rows, which were inserted in this transaction. `newest` is the id of the last.
    pub(super) fn cover(&self, transaction: &Transaction<'_>, newest: i64) -> rusqlite::Result<()> {
        if self.sums.is_empty() {
            return Ok(());
        }
        let sql = format!("INSERT INTO usage_rollup VALUES (?1, ?2, ?3, ?4, ?5, ?6) {ADD}");
        let mut statement = transaction.prepare_cached(&sql)?;
        for ((minute, label, outcome), [requests, items, bytes]) in &self.sums {
            statement.execute(params![minute, label, outcome, requests, items, bytes])?;
        }
        cover(transaction, newest)
    }
}

/// Whether all rows are covered, so that new ones can be as they come.
pub(super) fn is_complete(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(has_triggers(connection)? && behind(connection)? == 0)
}

/// How many rows are not covered, at most.
pub(super) fn behind(connection: &Connection) -> rusqlite::Result<i64> {
    let newest: Option<i64> = connection
        .prepare_cached("SELECT MAX(id) FROM requests")?
        .query_row([], |row| row.get(0))?;
    Ok(newest.unwrap_or(0).saturating_sub(covered(connection)?))
}

/// Up to which id the sums can be believed; 0 without sums.
pub(super) fn covered(connection: &Connection) -> rusqlite::Result<i64> {
    if !has_triggers(connection)? {
        return Ok(0);
    }
    connection
        .prepare_cached("SELECT COALESCE((SELECT MAX(id) FROM usage_rollup_covered), 0)")?
        .query_row([], |row| row.get(0))
}

fn has_triggers(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'requests' \
             AND name IN ('usage_rollup_delete', 'usage_rollup_insert', 'usage_rollup_update')",
        )?
        .query_row([], |row| row.get(0))
        .map(|count: i64| count == TRIGGERS)
}

/// Removes sums of nothing, which deleted rows leave.
pub(super) fn sweep(connection: &Connection) -> rusqlite::Result<()> {
    if has_triggers(connection)? {
        connection.execute("DELETE FROM usage_rollup WHERE requests = 0", [])?;
    }
    Ok(())
}

/// A span of time as the sums see it: the whole minutes in it, and what the rows at its two
/// ends add and take away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Minutes {
    /// First and last minute to sum; none if the first is above the last.
    pub(super) first: i64,
    pub(super) last: i64,
    /// Covered rows with `from <= timestamp < before` count beside the minutes, if they are in
    /// the span.
    pub(super) head: Option<(f64, f64)>,
    /// Covered rows with `after < timestamp < before` are in the minutes and do not count.
    pub(super) surplus: Option<(f64, f64)>,
}

impl Minutes {
    /// Of the span from `since` to `until`, both inclusive; absent: without an end.
    pub(super) fn of(since: Option<f64>, until: Option<f64>) -> Minutes {
        let mut minutes = Minutes {
            first: i64::MIN,
            last: i64::MAX,
            head: None,
            surplus: None,
        };
        if let Some(since) = since {
            // Not minute 0, which takes two minutes' calls.
            minutes.first = (since.ceil() as i64).saturating_add(59).max(60) / 60;
            minutes.head = Some((since, minutes.first as f64 * 60.0));
        }
        if let Some(until) = until {
            minutes.last = (until.floor() as i64).max(0) / 60;
            let end = (minutes.last as f64 + 1.0) * 60.0;
            if minutes.last >= minutes.first {
                minutes.surplus = Some((until, end));
            }
        }
        minutes
    }
}
