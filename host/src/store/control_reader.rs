//! What a running job reads of the control store: the rows that are new since the last look.
//!
//! The database is opened anew for every look, because a held connection would keep on reading
//! a file that was deleted, and its side files would confuse the one that takes its place. A look
//! costs well under a millisecond, and there is one every few seconds at most.

use super::control::{CLEARED, COLUMNS, ControlEvent, event, latest, read};
use super::fault::{Fault, StoreError};
use super::trouble::Trouble;
use batchgate_policy::controller::Override;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most rows that one look takes up; the next one goes on from there.
const MOST_ROWS: u32 = 10_000;

/// How long a look waits for a lock of another process; there is a next one. Only an exclusive
/// lock keeps readers out.
const BUSY: Duration = Duration::from_secs(1);

/// Follows a control store.
#[derive(Debug)]
pub struct ControlReader {
    path: PathBuf,
    /// The last row taken up: what follows it is new. That it still stands where it stood tells
    /// that this is still the same log.
    last: Option<ControlEvent>,
    /// Keys that were handed out and not cleared since.
    in_force: BTreeSet<String>,
    trouble: Trouble,
}

impl ControlReader {
    /// Follows the store at `path`, which need not exist yet.
    pub fn new(path: &Path) -> ControlReader {
        ControlReader {
            path: path.to_owned(),
            last: None,
            in_force: BTreeSet::new(),
            trouble: Trouble::default(),
        }
    }

    /// The first look gives the values in force, later ones the rows written since, in order,
    /// with [`CLEARED`] for a clear. If another database took the place of the one seen before, its
    /// values in force, after a clear of each key that it does not have.
    ///
    /// Blocks on file access, and up to the busy timeout on a lock.
    pub fn poll(&mut self) -> Result<Vec<Override>, StoreError> {
        let last = self.last.as_ref();
        let look = read(&self.path, BUSY, |connection| {
            if let Some(last) = last
                && stands(connection, last)?
            {
                return Ok(Look::Since(rows_after(connection, last.id)?));
            }
            Ok(Look::Anew {
                latest: latest(connection)?,
                last: last_row(connection)?,
            })
        })?;
        let mut overrides = Vec::new();
        match look {
            None if self.last.is_some() => {
                return Err(StoreError::new(&self.path, Fault::Gone));
            }
            None => {}
            Some(Look::Since(rows)) => {
                if let Some(newest) = rows.last() {
                    self.last = Some(newest.clone());
                }
                overrides.extend(rows.into_iter().map(into_override));
            }
            Some(Look::Anew { latest, last }) => {
                self.last = last;
                for key in std::mem::take(&mut self.in_force) {
                    if !latest.iter().any(|event| event.key == key) {
                        let value = CLEARED.to_owned();
                        overrides.push(Override { key, value });
                    }
                }
                overrides.extend(latest.into_iter().map(into_override));
            }
        }
        for Override { key, value } in &overrides {
            if value == CLEARED {
                self.in_force.remove(key);
            } else {
                self.in_force.insert(key.clone());
            }
        }
        Ok(overrides)
    }

    /// Like [`poll`](ControlReader::poll), for a run that goes on whatever happens, of that label if it is one job's: a failure is
    /// warned of once, and leaves the values as they are.
    pub fn poll_or_warn(&mut self, label: Option<&str>) -> Vec<Override> {
        match self.poll() {
            Ok(overrides) => {
                if self.trouble.end() {
                    tracing::warn!(
                        label,
                        "control store {} can be read again",
                        self.path.display()
                    );
                }
                overrides
            }
            Err(error) => {
                let consequence = "the values read before stay in force";
                self.trouble
                    .begin(label, "control store", &error, consequence);
                Vec::new()
            }
        }
    }
}

enum Look {
    Since(Vec<ControlEvent>),
    Anew {
        latest: Vec<ControlEvent>,
        last: Option<ControlEvent>,
    },
}

fn stands(connection: &Connection, row: &ControlEvent) -> rusqlite::Result<bool> {
    let there = connection
        .query_row(&format!("{COLUMNS} WHERE id = ?1"), [row.id], event)
        .optional()?;
    Ok(there.as_ref() == Some(row))
}

fn rows_after(connection: &Connection, id: i64) -> rusqlite::Result<Vec<ControlEvent>> {
    let sql = format!("{COLUMNS} WHERE id > ?1 ORDER BY id LIMIT ?2");
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map(params![id, MOST_ROWS], event)?;
    rows.collect()
}

fn last_row(connection: &Connection) -> rusqlite::Result<Option<ControlEvent>> {
    let sql = format!("{COLUMNS} ORDER BY id DESC LIMIT 1");
    connection.query_row(&sql, [], event).optional()
}

fn into_override(event: ControlEvent) -> Override {
    Override {
        key: event.key,
        value: event.value,
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
