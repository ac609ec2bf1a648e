//! The live control store: the audit trail that is also the configuration.
//!
//! Every set and every clear is a row, nothing is ever updated or deleted, and the value of a
//! key is that of its latest row.

use super::fault::StoreError;
use super::sqlite::{BUSY_TIMEOUT, has_table, open_read, open_write, unix_now};
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

pub use batchgate_policy::controller::CLEARED;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS control_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp REAL NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    note TEXT
);
CREATE INDEX IF NOT EXISTS ix_control_events_key ON control_events(key, id);
";

/// What a live key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveValue {
    /// A whole number of at least 1.
    Count,
    /// `true` or `false`, or another word for them.
    Flag,
}

/// The keys that a host acts on, and what they take. Others are stored and ignored.
pub const LIVE_KEYS: &[(&str, LiveValue)] = &[
    ("max_workers", LiveValue::Count),
    ("min_workers", LiveValue::Count),
    ("force_workers", LiveValue::Count),
    ("hold_workers", LiveValue::Count),
    ("max_batch_size", LiveValue::Count),
    ("min_batch_size", LiveValue::Count),
    ("force_batch_size", LiveValue::Count),
    ("hold_batch_size", LiveValue::Count),
    ("pause", LiveValue::Flag),
    ("budget_min", LiveValue::Count),
    ("budget_desired", LiveValue::Count),
    ("budget_max", LiveValue::Count),
];

/// A row of the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlEvent {
    /// Rises with every row.
    pub id: i64,
    /// Seconds since 1970.
    pub timestamp: f64,
    /// The key that was set or cleared.
    pub key: String,
    /// Its value as text, or [`CLEARED`].
    pub value: String,
    /// Who or why, if it was said.
    pub note: Option<String>,
}

/// Adds a row, creating the database if there is none. Returns the row's id.
pub fn set(path: &Path, key: &str, value: &str, note: Option<&str>) -> Result<i64, StoreError> {
    let connection = open_write(path, SCHEMA, BUSY_TIMEOUT)?;
    connection
        .execute(
            "INSERT INTO control_events (timestamp, key, value, note) VALUES (?1, ?2, ?3, ?4)",
            params![unix_now(), key, value, note],
        )
        .map_err(|error| StoreError::from_sqlite(path, &error))?;
    Ok(connection.last_insert_rowid())
}

/// Clears a key: adds a row with [`CLEARED`]. Returns the row's id.
pub fn clear(path: &Path, key: &str, note: Option<&str>) -> Result<i64, StoreError> {
    set(path, key, CLEARED, note)
}

/// The values in force. Empty if there is no database.
pub fn current(path: &Path) -> Result<BTreeMap<String, String>, StoreError> {
    let in_force = read(path, BUSY_TIMEOUT, latest)?.unwrap_or_default();
    Ok(in_force.into_iter().map(|e| (e.key, e.value)).collect())
}

/// All rows, oldest first, one at a time until `each` has enough. Returns false if there is no
/// database.
pub fn log(
    path: &Path,
    mut each: impl FnMut(ControlEvent) -> ControlFlow<()>,
) -> Result<bool, StoreError> {
    let found = read(path, BUSY_TIMEOUT, |connection| {
        let mut statement = connection.prepare(&format!("{COLUMNS} ORDER BY id"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if each(event(row)?).is_break() {
                break;
            }
        }
        Ok(())
    })?;
    Ok(found.is_some())
}

/// Reads within one snapshot, waiting for a lock at most `busy`. `None` if there is no database, or
/// none with our table yet.
pub(super) fn read<T>(
    path: &Path,
    busy: Duration,
    body: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    let Some(mut connection) = open_read(path, busy)? else {
        return Ok(None);
    };
    let read = || {
        let snapshot = connection.transaction()?;
        if !has_table(&snapshot, "control_events")? {
            return Ok(None);
        }
        body(&snapshot).map(Some)
    };
    read().map_err(|error| StoreError::from_sqlite(path, &error))
}

// Casts, because a column of SQLite holds whatever type was put in.
pub(super) const COLUMNS: &str = "SELECT id, CAST(timestamp AS REAL), CAST(key AS TEXT), \
     CAST(value AS TEXT), CAST(note AS TEXT) FROM control_events";

pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<ControlEvent> {
    let text = |column| -> rusqlite::Result<Option<String>> {
        let bytes = row.get_ref(column)?.as_bytes_or_null()?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    Ok(ControlEvent {
        id: row.get(0)?,
        timestamp: row.get(1)?,
        key: text(2)?.unwrap_or_default(),
        value: text(3)?.unwrap_or_default(),
        note: text(4)?,
    })
}

/// The latest row of each key that is not cleared, oldest first.
pub(super) fn latest(connection: &Connection) -> rusqlite::Result<Vec<ControlEvent>> {
    let mut statement = connection.prepare(&format!(
        "{COLUMNS} WHERE id IN (SELECT MAX(id) FROM control_events GROUP BY key) \
         AND value <> ?1 ORDER BY id"
    ))?;
    statement.query_map([CLEARED], event)?.collect()
}
