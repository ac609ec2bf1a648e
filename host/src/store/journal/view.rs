//! What can be asked of a journal, while a host uses it or not.
//!
//! Invariant: looking creates nothing and changes nothing. Items in flight of a host that is no more are
//! unknown, whether or not another run has taken note of it.

use super::pending::{Call, Detail};
use super::{CRASHED, Subject, VERSION, table};
use crate::store::fault::{Fault, StoreError};
use crate::store::sqlite::{BUSY_TIMEOUT, has_table, open_read};
use batchgate_policy::ranges::{Ranges, State, Totals};
use rusqlite::Connection;
use serde::Serialize;
use std::fs::{File, TryLockError};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// What items can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateName {
    /// Written, for sure or perhaps.
    Written,
    /// Skipped, for sure or perhaps.
    Skipped,
    /// Failed for good.
    Failed,
    /// Sent, with no answer.
    Unknown,
    /// In flight in a run that goes on.
    InFlight,
}

/// A run, as the journal has it.
#[derive(Debug, Serialize)]
pub struct RunLook {
    /// Its id.
    pub run_id: String,
    /// Seconds since 1970.
    pub started: f64,
    /// None if it goes on or was killed.
    pub ended: Option<f64>,
    /// Its summary, if it came to an end.
    pub summary: Option<serde_json::Value>,
}

/// An item, as the journal has it.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct ItemLook {
    /// Its index.
    pub index: u64,
    /// Its name. None where the journal does not keep it: of items that were written or skipped.
    pub key: Option<String>,
    /// What became of it.
    pub state: &'static str,
    /// Why, if it failed or is unknown.
    pub reason: Option<String>,
    /// The kind of that.
    pub outcome: Option<String>,
    /// Calls that contained it, as far as they are known.
    pub attempts: Option<u32>,
}

/// A journal as it is at one moment.
pub struct Look {
    path: PathBuf,
    connection: Connection,
    ranges: Ranges,
    in_flight: Vec<Call>,
    is_used: bool,
}

/// Looks at a journal; `None` if there is none.
pub fn look(path: &Path) -> Result<Option<Look>, StoreError> {
    let failed = |error| StoreError::from_sqlite(path, &error);
    // Before SQLite opens the file, whose locks closing another handle of it would drop.
    let is_used = match File::open(path) {
        Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(_) => false,
    };
    let Some(connection) = open_read(path, BUSY_TIMEOUT)? else {
        return Ok(None);
    };
    // One moment for all that is asked; the connection's end ends it.
    connection.execute_batch("BEGIN").map_err(failed)?;
    if !has_table(&connection, "journal_meta").map_err(failed)? {
        return Ok(None);
    }
    match table::meta(&connection, VERSION).map_err(failed)? {
        None => return Ok(None),
        Some(found) if found != table::VERSION => {
            let other = format!("a journal of another version of batchgate (format {found})");
            return Err(StoreError::new(path, Fault::Other(other)));
        }
        Some(_) => {}
    }
    Ok(Some(Look {
        path: path.to_owned(),
        ranges: table::ranges(path, &connection)?,
        in_flight: table::calls(path, &connection)?,
        connection,
        is_used,
    }))
}

impl Look {
    /// Whether a run uses it at this moment.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// How many items came to each end.
    pub fn totals(&self) -> Totals {
        let mut ranges = self.ranges.clone();
        if !self.is_used {
            for (index, _) in self.in_flight.iter().cloned().flat_map(Call::into_items) {
                ranges.set(index..index + 1, Some(State::Unknown), |_| ());
            }
        }
        ranges.totals()
    }

    /// How many items are in flight.
    pub fn in_flight(&self) -> u64 {
        match self.is_used {
            true => self.in_flight.iter().map(Call::len).sum(),
            false => 0,
        }
    }

    /// What the journal is about, and what its last run was about.
    pub fn subjects(&self) -> Result<Option<(Subject, Subject)>, StoreError> {
        let stored = super::plan::stored(&self.path, &self.connection)?;
        Ok(stored.map(|both| (both.main, both.last)))
    }

    /// The runs, oldest first.
    pub fn runs(&self) -> Result<Vec<RunLook>, StoreError> {
        let read = || -> rusqlite::Result<Vec<RunLook>> {
            let mut statement = self
                .connection
                .prepare("SELECT run_id, started, ended, summary FROM journal_runs ORDER BY id")?;
            let run = |row: &rusqlite::Row<'_>| {
                let summary: Option<String> = row.get(3)?;
                Ok(RunLook {
                    run_id: row.get(0)?,
                    started: row.get(1)?,
                    ended: row.get(2)?,
                    summary: summary.and_then(|text| serde_json::from_str(&text).ok()),
                })
            };
            statement.query_map([], run)?.collect()
        };
        read().map_err(|error| StoreError::from_sqlite(&self.path, &error))
    }

    /// The items of a state in rising order, until `each` has enough. Those in flight at a crash come last.
    pub fn items(
        &self,
        wanted: StateName,
        mut each: impl FnMut(ItemLook) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let in_flight_as = match (wanted, self.is_used) {
            (StateName::InFlight, true) => Some(("in-flight", None)),
            (StateName::Unknown, false) => Some(("unknown", Some(CRASHED))),
            _ => None,
        };
        let mut crashed = Ranges::default();
        if in_flight_as.is_some() && wanted == StateName::Unknown {
            for (index, _) in self.in_flight.iter().cloned().flat_map(Call::into_items) {
                crashed.set(index..index + 1, Some(State::Unknown), |_| ());
            }
        }
        for run in self.ranges.iter() {
            let Some(state) = word(run.state, wanted) else {
                continue;
            };
            let mut known: Vec<(u64, Detail)> = Vec::new();
            let mut next = run.first;
            while next < run.end {
                // In parts, since a run may be all of ten million items.
                let end = run.end.min(next + 10_000);
                known.clear();
                if matches!(wanted, StateName::Failed | StateName::Unknown) {
                    table::details(&self.connection, next, end - 1, |item, detail| {
                        known.push((item, detail));
                    })
                    .map_err(|error| StoreError::from_sqlite(&self.path, &error))?;
                }
                let mut details = known.drain(..).peekable();
                for index in next..end {
                    let detail = details.next_if(|(item, _)| *item == index);
                    if crashed.get(index).is_some() {
                        continue;
                    }
                    let item = ItemLook::new(index, state, detail.map(|(_, detail)| detail));
                    if each(item).is_break() {
                        return Ok(());
                    }
                }
                next = end;
            }
        }
        let Some((state, why)) = in_flight_as else {
            return Ok(());
        };
        for (index, key) in self.in_flight.iter().cloned().flat_map(Call::into_items) {
            let detail = Detail {
                key,
                reason: why.map_or("", |(reason, _)| reason).into(),
                outcome: why.map_or("", |(_, outcome)| outcome).into(),
                attempts: 0,
            };
            let mut item = ItemLook::new(index, state, Some(detail));
            if why.is_none() {
                (item.reason, item.outcome) = (None, None);
            }
            item.attempts = None;
            if each(item).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl ItemLook {
    fn new(index: u64, state: &'static str, detail: Option<Detail>) -> ItemLook {
        let known = detail.is_some();
        let (key, reason, outcome, attempts) = match detail {
            Some(detail) => (
                detail.key,
                Some(detail.reason.into()),
                Some(detail.outcome.into_owned()),
                // None was counted.
                Some(detail.attempts).filter(|&attempts| attempts > 0),
            ),
            None => (None, None, None, None),
        };
        let key = key.map(String::from);
        ItemLook {
            index,
            key: key.or_else(|| known.then(|| index.to_string())),
            state,
            reason,
            outcome,
            attempts,
        }
    }
}

/// The word for a state, if it is one of those wanted.
fn word(state: State, wanted: StateName) -> Option<&'static str> {
    match (state, wanted) {
        (State::Written, StateName::Written) => Some("written"),
        (State::Skipped, StateName::Skipped) => Some("skipped"),
        (State::Mixed { .. }, StateName::Written | StateName::Skipped) => {
            Some("written-or-skipped")
        }
        (State::Failed | State::FailedBefore, StateName::Failed) => Some("failed"),
        (State::Unknown, StateName::Unknown) => Some("unknown"),
        _ => None,
    }
}
