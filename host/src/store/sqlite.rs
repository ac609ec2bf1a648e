//! Opens database files as the Python library does: WAL, with a busy timeout.
//!
//! Invariant: opening for reading never creates a database and never changes what one holds.

use super::fault::{Fault, StoreError, refuse_other_than_files};
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long commands and readers wait for another process's lock; the Python library's figure.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a database for writing, creating it and the tables of `schema` if they are missing.
/// Waits at most about twice `busy` for a lock of another process.
pub(super) fn open_write(
    path: &Path,
    schema: &str,
    busy: Duration,
) -> Result<Connection, StoreError> {
    let deadline = Instant::now() + busy;
    loop {
        let opened = open_at_once(path, OpenFlags::SQLITE_OPEN_CREATE, schema, busy);
        match opened {
            // Two processes that turn a new file to WAL at the same moment get an error at once,
            // whatever the busy timeout.
            Err(StoreError {
                fault: Fault::Locked,
                ..
            }) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

/// Opens a database for writing that must be there.
pub(super) fn open_existing(path: &Path, busy: Duration) -> Result<Connection, StoreError> {
    open_at_once(path, OpenFlags::empty(), "", busy)
}

fn open_at_once(
    path: &Path,
    create: OpenFlags,
    schema: &str,
    busy: Duration,
) -> Result<Connection, StoreError> {
    refuse_other_than_files(path)?;
    let failed = |error| StoreError::from_sqlite(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(busy).map_err(failed)?;
    // SQLite opens a file that it may not write for reading, without a word.
    if connection.is_readonly("main").map_err(failed)? {
        return Err(StoreError::new(path, Fault::ReadOnly));
    }
    // The answer is the mode that is in force; where WAL is impossible, another one will do.
    connection
        .query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))
        .map_err(failed)?;
    connection.execute_batch(schema).map_err(failed)?;
    Ok(connection)
}

/// Opens a database for reading; `None` if there is no such file.
pub(super) fn open_read(path: &Path, busy: Duration) -> Result<Option<Connection>, StoreError> {
    refuse_other_than_files(path)?;
    match fs::metadata(path) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(StoreError::new(path, Fault::CannotOpen(error.to_string()))),
    }
    // Open for writing but unable to write: unlike a read-only connection, the last such one to
    // close removes SQLite's side files. Without the permission it opens for reading.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let plain = Connection::open_with_flags(path, flags).and_then(|c| prepare_read(c, busy));
    match plain {
        Ok(connection) => Ok(Some(connection)),
        // A database in a folder that takes no side files. Without a log beside it, the file alone
        // is the whole truth.
        Err(error) if has_no_log(path) => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_NO_MUTEX
                | OpenFlags::SQLITE_OPEN_URI;
            let error = StoreError::from_sqlite(path, &error);
            match error.fault {
                Fault::CannotOpen(_) | Fault::ReadOnly => {
                    Connection::open_with_flags(immutable_uri(path), flags)
                        .and_then(|c| prepare_read(c, busy))
                        .map(Some)
                        .map_err(|_| error)
                }
                _ => Err(error),
            }
        }
        Err(error) => Err(StoreError::from_sqlite(path, &error)),
    }
}

fn prepare_read(connection: Connection, busy: Duration) -> rusqlite::Result<Connection> {
    connection.busy_timeout(busy)?;
    connection.execute_batch("PRAGMA query_only=ON")?;
    // Touches the file, so that one that cannot be read fails here.
    connection.query_row("SELECT COUNT(*) FROM sqlite_master", [], |_| Ok(()))?;
    Ok(connection)
}

/// Whether a table exists. A file that another process is just creating has none yet.
pub(super) fn has_table(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)",
        [table],
        |row| row.get(0),
    )
}

/// Which file stands at a path: a database that was deleted or swapped has another identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The file's identity and its size in bytes; `None` if it is not there.
    pub(super) fn of(path: &Path) -> Option<(Identity, u64)> {
        let metadata = fs::metadata(path).ok()?;
        let identity = Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        Some((identity, metadata.len()))
    }
}

/// Seconds since 1970, as the stores count them.
pub fn unix_now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

fn has_no_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).map_or(true, |metadata| metadata.len() == 0)
}

fn immutable_uri(path: &Path) -> PathBuf {
    let mut uri = b"file:".to_vec();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => uri.push(byte),
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    PathBuf::from(OsString::from_vec(uri))
}
