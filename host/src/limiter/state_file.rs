//! Keeps the day's count in the state file, `{"day": "YYYY-MM-DD", "count": N}`, which all hosts that
//! name the same file share.
//!
//! Invariant: whatever is read of the file at any moment, by whomever, is a count that was
//! true, or the file is missing. It is created whole, under its name, and from then on a record
//! is overwritten in place by one write within its length, which needs no new space on the disk; the
//! length is only ever extended by blanks after the record. So the file that is locked is always
//! the file of that name, which would not be so if each record were a new file.

use super::calendar::{date, day_id};
use crate::link::end_of;
use batchgate_policy::quota::{DayAhead, DayId, Granted, Ledger, Wanted};
use jiff::civil::Date;
use serde::Deserialize;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Room for the longest record, so that a file of ours never grows.
const RECORD_BYTES: usize = 64;
/// A longer file is no record, and is not read.
const MAX_BYTES: usize = 4096;

/// The state file. Every method blocks: on the disk, and on another host that holds the lock.
#[derive(Debug, Clone)]
pub struct StateFile {
    path: PathBuf,
    /// This process has leased from it: from then on it must be there.
    in_use: Arc<AtomicBool>,
    /// That it counts tomorrow was said.
    said_tomorrow: Arc<AtomicBool>,
}

/// The day's count cannot be kept in the state file.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file is there, and is not what it must be.
    #[error(
        "state file {path} is damaged: {what}. Correct it to {{\"day\": \"YYYY-MM-DD\", \"count\": N}} with the calls that the day has seen, or delete it to count from 0"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file counts a day that has not come.
    #[error(
        "state file {path} cannot be used: {ahead}. Set the clock right, or correct or delete the file"
    )]
    Ahead {
        /// Which file.
        path: PathBuf,
        /// By how much.
        ahead: DayAhead,
    },
    /// The system refused.
    #[error("state file {path} cannot be {doing}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The file's content.
#[derive(Deserialize)]
struct Record {
    day: String,
    count: u64,
}

impl StateFile {
    /// Names the file; touches nothing.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            in_use: Arc::default(),
            said_tomorrow: Arc::default(),
        }
    }

    /// Whether the file could be used now, so that a run can be refused before it sends anything;
    /// returns what it counts today. Writes nothing, and waits for nobody: a file that is in use is
    /// one that works.
    pub fn check(&self, today: DayId) -> Result<Option<u64>, StateFileError> {
        let mut file = match self.open() {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return self.check_folder().map(|()| None);
            }
            Err(e) => return Err(self.io("opened", e)),
        };
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(self.io("locked", e)),
        }
        let (ledger, _) = self.read(&mut file)?;
        let nothing = Wanted {
            day: today,
            starts: 0,
        };
        let mut copy = ledger;
        copy.lease(nothing, Some(u64::MAX))
            .map_err(|ahead| self.ahead(ahead))?;
        Ok((ledger.day == today).then_some(ledger.count))
    }

    /// Leases of the day's quota; when it returns, the count is on the disk.
    pub fn lease(&self, wanted: Wanted, cap: Option<u64>) -> Result<Granted, StateFileError> {
        let granted = self.change(wanted.day, |ledger| {
            ledger.lease(wanted, cap).map_err(|ahead| self.ahead(ahead))
        })?;
        if granted.tomorrow && !self.said_tomorrow.swap(true, Relaxed) {
            tracing::warn!(
                "state file {} counts tomorrow already, as the clock or the time zone of another process is ahead: \
                 nothing more is started today",
                self.path.display()
            );
        }
        Ok(granted)
    }

    /// Gives back what was leased on a day and not used.
    pub fn give_back(&self, day: DayId, unused: u64) -> Result<(), StateFileError> {
        self.change(day, |ledger| {
            ledger.give_back(day, unused);
            Ok(())
        })
    }

    /// Changes the ledger under the lock, which ends with the file handle.
    fn change<T>(
        &self,
        today: DayId,
        change: impl FnOnce(&mut Ledger) -> Result<T, StateFileError>,
    ) -> Result<T, StateFileError> {
        let mut file = self.open_locked(today)?;
        let (mut ledger, length) = self.read(&mut file)?;
        let before = ledger;
        let result = change(&mut ledger)?;
        self.in_use.store(true, Relaxed);
        if ledger != before {
            self.write(&mut file, ledger, length)
                .map_err(|e| self.io("written", e))?;
        }
        Ok(result)
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    /// Opens and locks the file, and makes it if it is missing.
    fn open_locked(&self, today: DayId) -> Result<File, StateFileError> {
        loop {
            let file = match self.open() {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    if self.in_use.load(Relaxed) {
                        return Err(self.damaged("it was deleted while in use"));
                    }
                    self.create(today).map_err(|e| self.io("created", e))?;
                    continue;
                }
                Err(e) => return Err(self.io("opened", e)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    tracing::debug!("waiting for another host's lock on {}", self.path.display());
                    file.lock().map_err(|e| self.io("locked", e))?;
                }
                Err(TryLockError::Error(e)) => return Err(self.io("locked", e)),
            }
            // Someone may have deleted or replaced the file while we waited: then others lock
            // another one.
            if self.is_still(&file).map_err(|e| self.io("opened", e))? {
                return Ok(file);
            }
        }
    }

    fn is_still(&self, file: &File) -> io::Result<bool> {
        let locked = file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (locked.dev(), locked.ino())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Written beside under another name first, so that an empty file is never seen. If another host
    /// was faster, its file stands. A process that dies right here leaves that other name behind, to
    /// be recognised by.
    fn create(&self, today: DayId) -> io::Result<()> {
        // A link to a file that is not there yet stays a link.
        let path = end_of(&self.path);
        let folder = folder_of(&path);
        let mut prefix = self.path.file_name().unwrap_or_default().to_owned();
        prefix.push(".new.");
        let mut file = tempfile::Builder::new()
            .prefix(&prefix)
            // As a plain file would have: the umask still applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        let fresh = Ledger {
            day: today,
            count: 0,
        };
        file.write_all(&record(fresh, RECORD_BYTES))?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(&path) {
            Ok(_) => File::open(folder)?.sync_all(),
            Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e.error),
        }
    }

    /// The ledger, and the file's length.
    fn read(&self, file: &mut File) -> Result<(Ledger, usize), StateFileError> {
        let kind = file.metadata().map_err(|e| self.io("read", e))?.file_type();
        if !kind.is_file() {
            return Err(self.damaged("it is not a regular file"));
        }
        let mut text = Vec::with_capacity(RECORD_BYTES + 1);
        file.take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut text)
            .map_err(|e| self.io("read", e))?;
        if text.len() > MAX_BYTES {
            return Err(self.damaged("it is too long"));
        }
        if text.trim_ascii().is_empty() {
            return Err(self.damaged("it is empty"));
        }
        let record: Record =
            serde_json::from_slice(&text).map_err(|e| self.damaged(&e.to_string()))?;
        let day: Option<Date> = record.day.parse().ok();
        // Compared, since the parser takes more than the one form.
        let day = day
            .filter(|day| day.to_string() == record.day)
            .ok_or_else(|| self.damaged(&format!("{:?} is not a day", record.day)))?;
        let ledger = Ledger {
            day: day_id(day),
            count: record.count,
        };
        Ok((ledger, text.len()))
    }

    fn write(&self, file: &mut File, ledger: Ledger, length: usize) -> io::Result<()> {
        if let Some(missing) = RECORD_BYTES.checked_sub(length) {
            file.seek(SeekFrom::Start(length as u64))?;
            file.write_all(&vec![b' '; missing])?;
        }
        file.rewind()?;
        file.write_all(&record(ledger, length.max(RECORD_BYTES)))?;
        file.sync_data()
    }

    fn check_folder(&self) -> Result<(), StateFileError> {
        let path = end_of(&self.path);
        match std::fs::metadata(folder_of(&path)) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(self.io("created", ErrorKind::NotADirectory.into())),
            Err(e) => Err(self.io("created", e)),
        }
    }

    fn damaged(&self, what: &str) -> StateFileError {
        StateFileError::Damaged {
            path: self.path.clone(),
            what: what.to_owned(),
        }
    }

    fn ahead(&self, ahead: DayAhead) -> StateFileError {
        StateFileError::Ahead {
            path: self.path.clone(),
            ahead,
        }
    }

    fn io(&self, doing: &'static str, source: io::Error) -> StateFileError {
        StateFileError::Io {
            path: self.path.clone(),
            doing,
            source,
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The record, filled up with blanks to `length`.
fn record(ledger: Ledger, length: usize) -> Vec<u8> {
    let day = date(ledger.day);
    let record = format!(r#"{{"day": "{day}", "count": {}}}"#, ledger.count);
    let width = length.saturating_sub(1);
    format!("{record:<width$}\n").into_bytes()
}

#[cfg(test)]
mod tests;
