//! The tables of a journal, and how they are read and written.
//!
//! Invariant: what is read was checked, so that a damaged journal is an error and never a wrong account.

use super::pending::{Call, Detail, Pending};
use crate::store::fault::{Fault, StoreError};
use crate::store::sqlite::unix_now;
use batchgate_policy::ranges::{Ranges, Run, State};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::path::Path;

/// The version of the tables, in `PRAGMA user_version`'s stead: other tables may stand in the file.
pub(super) const VERSION: &str = "1";

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS journal_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal_runs (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    started REAL NOT NULL,   -- seconds since 1970
    boot TEXT NOT NULL,      -- which start of the machine
    horizon INTEGER NOT NULL, -- items from this index on were not sent
    ended REAL,              -- NULL: it runs, or was killed
    summary TEXT             -- JSON
);
CREATE TABLE IF NOT EXISTS journal_ranges (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    state INTEGER NOT NULL,  -- 0 written, 1 skipped, 2 some written, 3 failed, 4 failed before, 5 unknown
    written INTEGER NOT NULL -- items of it that were written
);
CREATE TABLE IF NOT EXISTS journal_calls (
    id INTEGER PRIMARY KEY,
    items TEXT NOT NULL,     -- indexes in flight: '0-49,60'
    keys TEXT                -- JSON array; NULL where the index is the key
);
CREATE TABLE IF NOT EXISTS journal_items (
    item INTEGER PRIMARY KEY, -- the index
    key TEXT,                -- NULL where the index is the key
    reason TEXT NOT NULL,
    outcome TEXT NOT NULL,
    attempts INTEGER NOT NULL
);
";

/// Reads a value of `journal_meta`.
pub(super) fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT value FROM journal_meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Writes a value of `journal_meta`.
pub(super) fn set_meta(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO journal_meta (name, value) VALUES (?1, ?2)")?
        .execute([name, value])?;
    Ok(())
}

/// Changes what means nothing.
pub(super) fn touch(connection: &Connection) -> rusqlite::Result<()> {
    set_meta(connection, "forced", &unix_now().to_string())
}

/// Reads all runs of items.
pub(super) fn ranges(path: &Path, connection: &Connection) -> Result<Ranges, StoreError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    let damaged = |what: String| StoreError::new(path, Fault::Damaged(what));
    let mut ranges = Ranges::default();
    let mut statement = connection
        .prepare("SELECT first, last, state, written FROM journal_ranges ORDER BY first")
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let run = run(row).map_err(failed)?;
        let first = row.get::<_, i64>(0).map_err(failed)?;
        let fits = run.is_some_and(|run| ranges.push(run));
        if !fits {
            return Err(damaged(format!(
                "the row of journal_ranges that starts at {first} does not fit"
            )));
        }
    }
    Ok(ranges)
}

fn run(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Run>> {
    let (first, last): (i64, i64) = (row.get(0)?, row.get(1)?);
    let (code, written): (i64, i64) = (row.get(2)?, row.get(3)?);
    let whole = || {
        let state = match code {
            0 => State::Written,
            1 => State::Skipped,
            2 => State::Mixed {
                written: u64::try_from(written).ok()?,
            },
            3 => State::Failed,
            4 => State::FailedBefore,
            5 => State::Unknown,
            _ => return None,
        };
        Some(Run {
            first: u64::try_from(first).ok()?,
            end: u64::try_from(last).ok()?.checked_add(1)?,
            state,
        })
    };
    Ok(whole())
}

/// SQLite's integers end where our indexes do.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn code(run: Run) -> (i64, u64) {
    match run.state {
        State::Written => (0, run.end - run.first),
        State::Skipped => (1, 0),
        State::Mixed { written } => (2, written),
        State::Failed => (3, 0),
        State::FailedBefore => (4, 0),
        State::Unknown => (5, 0),
    }
}

/// Writes what is pending.
pub(super) fn save(transaction: &Transaction<'_>, pending: &Pending) -> rusqlite::Result<()> {
    for (name, value) in &pending.meta {
        set_meta(transaction, name, value)?;
    }
    if let Some(begun) = &pending.begun {
        transaction.execute(
            "INSERT INTO journal_runs (run_id, started, boot, horizon) VALUES (?1, ?2, ?3, 0)",
            params![begun.run_id, begun.started, begun.boot],
        )?;
    }
    if let Some(horizon) = pending.horizon {
        transaction
            .prepare_cached("UPDATE journal_runs SET horizon = ?1 WHERE id = (SELECT MAX(id) FROM journal_runs)")?
            .execute([integer(horizon)])?;
    }
    if !pending.calls.is_empty() {
        let mut put = transaction.prepare_cached(
            "INSERT OR REPLACE INTO journal_calls (id, items, keys) VALUES (?1, ?2, ?3)",
        )?;
        let mut end = transaction.prepare_cached("DELETE FROM journal_calls WHERE id = ?1")?;
        for (id, call) in &pending.calls {
            match call {
                Some(call) => put.execute(params![integer(*id), call.items(), call.keys()])?,
                None => end.execute([integer(*id)])?,
            };
        }
    }
    if !pending.dirty.is_empty() {
        let mut put = transaction.prepare_cached(
            "INSERT OR REPLACE INTO journal_ranges (first, last, state, written) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let mut delete =
            transaction.prepare_cached("DELETE FROM journal_ranges WHERE first = ?1")?;
        for &first in &pending.dirty {
            match pending.ranges.starting_at(first) {
                Some(run) => {
                    let (state, written) = code(run);
                    put.execute(params![
                        integer(first),
                        integer(run.end - 1),
                        state,
                        integer(written)
                    ])?
                }
                None => delete.execute([integer(first)])?,
            };
        }
    }
    if !pending.details.is_empty() {
        let mut put = transaction.prepare_cached(
            "INSERT OR REPLACE INTO journal_items (item, key, reason, outcome, attempts) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut delete = transaction.prepare_cached("DELETE FROM journal_items WHERE item = ?1")?;
        for (item, detail) in &pending.details {
            match detail {
                Some(detail) => put.execute(params![
                    integer(*item),
                    detail.key,
                    detail.reason,
                    detail.outcome,
                    detail.attempts
                ])?,
                None => delete.execute([integer(*item)])?,
            };
        }
    }
    if let Some((ended, summary)) = &pending.ended {
        transaction.execute(
            "UPDATE journal_runs SET ended = ?1, summary = ?2 WHERE id = (SELECT MAX(id) FROM journal_runs)",
            params![ended, summary],
        )?;
    }
    Ok(())
}

/// The horizon of the last run, if it did not end and the machine was started again since.
pub(super) fn unended_horizon(
    connection: &Connection,
    boot: &str,
) -> rusqlite::Result<Option<u64>> {
    connection
        .query_row(
            "SELECT horizon FROM journal_runs WHERE id = (SELECT MAX(id) FROM journal_runs) \
             AND ended IS NULL AND (boot <> ?1 OR boot = '')",
            [boot],
            |row| row.get::<_, i64>(0),
        )
        .optional()
        .map(|horizon| horizon.and_then(|horizon| u64::try_from(horizon).ok()))
}

/// The calls that were in flight when the journal was last written.
pub(super) fn calls(path: &Path, connection: &Connection) -> Result<Vec<Call>, StoreError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    let mut statement = connection
        .prepare("SELECT id, items, keys FROM journal_calls ORDER BY id")
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut calls = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let id: i64 = row.get(0).map_err(failed)?;
        let (items, keys): (String, Option<String>) =
            (row.get(1).map_err(failed)?, row.get(2).map_err(failed)?);
        let call = Call::parse(&items, keys.as_deref()).ok_or_else(|| {
            let what = format!("row {id} of journal_calls does not fit");
            StoreError::new(path, Fault::Damaged(what))
        })?;
        calls.push(call);
    }
    Ok(calls)
}

/// What is known of the items of a run of neighbours, in their order.
pub(super) fn details(
    connection: &Connection,
    first: u64,
    last: u64,
    mut each: impl FnMut(u64, Detail),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT item, key, reason, outcome, attempts FROM journal_items \
         WHERE item BETWEEN ?1 AND ?2 ORDER BY item",
    )?;
    let mut rows = statement.query([integer(first), integer(last)])?;
    while let Some(row) = rows.next()? {
        let detail = Detail {
            key: row.get(1)?,
            reason: row.get(2)?,
            outcome: row.get::<_, String>(3)?.into(),
            attempts: row.get(4)?,
        };
        each(row.get::<_, i64>(0)? as u64, detail);
    }
    Ok(())
}
