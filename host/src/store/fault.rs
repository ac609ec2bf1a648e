//! What can be wrong with a store, in words that say what to do.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// A store that could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct StoreError {
    /// The database file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Another process holds the write lock, or an exclusive one, past the busy timeout.
    #[error("locked by another process; end that process or its transaction")]
    Locked,
    /// The file was there and is gone, was swapped for another, or was cut short.
    #[error("the file was deleted, replaced or truncated while in use")]
    Gone,
    /// The file cannot be opened or created.
    #[error("cannot be opened: {0}")]
    CannotOpen(String),
    /// The file may not be written.
    #[error("read-only; change the permissions of the file and of its folder")]
    ReadOnly,
    /// The file is something else than a database.
    #[error("not an SQLite database; give another path or move the file away")]
    NotADatabase,
    /// SQLite found pages that do not fit together.
    #[error(
        "the database is damaged ({0}); move it away, or restore it with `sqlite3 FILE .recover`"
    )]
    Damaged(String),
    /// No space left.
    #[error("the disk is full; free some space")]
    DiskFull,
    /// The system refused a read or a write.
    #[error("the disk refused a read or a write ({0}); check its space, limits and health")]
    Disk(String),
    /// Anything else, mostly a table with other columns than ours.
    #[error("{0}; is it another program's database?")]
    Other(String),
}

impl Fault {
    /// Whether it is the path that is wrong, which no waiting mends.
    pub fn is_of_path(&self) -> bool {
        match self {
            Fault::NotADatabase | Fault::CannotOpen(_) | Fault::Gone | Fault::Other(_) => true,
            Fault::Locked
            | Fault::ReadOnly
            | Fault::Damaged(_)
            | Fault::DiskFull
            | Fault::Disk(_) => false,
        }
    }
}

impl StoreError {
    pub(super) fn new(path: &Path, fault: Fault) -> StoreError {
        StoreError {
            path: path.to_owned(),
            fault,
        }
    }

    /// Translates an error of SQLite at the edge of this module.
    pub(super) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> StoreError {
        StoreError::new(path, fault(path, error))
    }
}

fn fault(path: &Path, error: &rusqlite::Error) -> Fault {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Locked,
        Some(ErrorCode::ReadOnly) => Fault::ReadOnly,
        Some(ErrorCode::NotADatabase) => Fault::NotADatabase,
        Some(ErrorCode::DatabaseCorrupt) => Fault::Damaged(error.to_string()),
        Some(ErrorCode::DiskFull) => Fault::DiskFull,
        Some(ErrorCode::SystemIoFailure) => Fault::Disk(error.to_string()),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Fault::CannotOpen(why_not_open(path))
        }
        // SQLite quotes the statement, which may have several lines.
        _ => Fault::Other(
            error
                .to_string()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        ),
    }
}

/// Refuses what is there and is no file: SQLite would wait for a pipe's other end, or call the disk broken.
pub(super) fn refuse_other_than_files(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            let what = match metadata.is_dir() {
                true => "it is a folder",
                false => "it is not a regular file",
            };
            Err(StoreError::new(path, Fault::CannotOpen(what.to_owned())))
        }
        _ => Ok(()),
    }
}

/// SQLite only says that it cannot open a file; this says why, where it can be told.
fn why_not_open(path: &Path) -> String {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.exists() {
        format!("the folder {} does not exist", folder.display())
    } else if !folder.is_dir() {
        format!("{} is not a folder", folder.display())
    } else if !path.exists() {
        "there is no such file, or it cannot be created".to_owned()
    } else {
        "check the permissions of the file and of its folder".to_owned()
    }
}
