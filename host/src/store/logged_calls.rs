//! The calls in a usage log one by one, for running a controller over them.

use super::fault::StoreError;
use super::sqlite::{BUSY_TIMEOUT, has_table, open_read};
use batchgate_policy::outcome::UsageOutcome;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};

/// A logged call as a controller sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoggedCall {
    /// The row's id.
    pub id: i64,
    /// The setting that its batch was dispatched under.
    pub workers: u32,
    /// See `workers`.
    pub batch_size: u32,
    /// Items in the call.
    pub n_items: u32,
    /// Wall-clock seconds.
    pub elapsed_seconds: f64,
    /// How it ended.
    pub outcome: UsageOutcome,
}

/// The logged calls of a label, in the order in which they were written. Reads as it goes.
#[derive(Debug)]
pub struct LoggedCalls {
    connection: Connection,
    path: PathBuf,
    label: String,
    last_id: i64,
    page: std::vec::IntoIter<LoggedCall>,
    /// No page is to follow.
    at_end: bool,
}

impl LoggedCalls {
    /// Opens the log; `None` if there is no such file, or none with our table yet.
    pub fn open(path: &Path, label: &str) -> Result<Option<LoggedCalls>, StoreError> {
        let failed = |error| StoreError::from_sqlite(path, &error);
        let Some(connection) = open_read(path, BUSY_TIMEOUT)? else {
            return Ok(None);
        };
        if !has_table(&connection, "requests").map_err(failed)? {
            return Ok(None);
        }
        Ok(Some(LoggedCalls {
            connection,
            path: path.to_owned(),
            label: label.to_owned(),
            last_id: i64::MIN,
            page: Vec::new().into_iter(),
            at_end: false,
        }))
    }

    fn read_page(&mut self) -> rusqlite::Result<Vec<LoggedCall>> {
        const ROWS: usize = 10_000;
        let mut statement = self.connection.prepare_cached(
            "SELECT id, workers, batch_size, n_items, elapsed_seconds, outcome FROM requests \
             WHERE id > ?1 AND label = ?2 ORDER BY id LIMIT ?3",
        )?;
        let page = statement
            .query_map(params![self.last_id, self.label, ROWS as i64], |row| {
                Ok(LoggedCall {
                    id: row.get(0)?,
                    workers: row.get(1)?,
                    batch_size: row.get(2)?,
                    n_items: row.get(3)?,
                    elapsed_seconds: row.get(4)?,
                    outcome: match row.get_ref(5)?.as_bytes()? {
                        b"ok" => UsageOutcome::Ok,
                        b"breach" => UsageOutcome::Breach,
                        _ => UsageOutcome::Fail,
                    },
                })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        self.at_end = page.len() < ROWS;
        Ok(page)
    }
}

impl Iterator for LoggedCalls {
    type Item = Result<LoggedCall, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(call) = self.page.next() {
                self.last_id = call.id;
                return Some(Ok(call));
            }
            if self.at_end {
                return None;
            }
            match self.read_page() {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => {
                    self.at_end = true;
                    return Some(Err(StoreError::from_sqlite(&self.path, &error)));
                }
            }
        }
    }
}
