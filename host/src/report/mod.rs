//! What people and scripts get to see: log, progress, summary, failures.

pub mod failed_items;
pub mod failures;
pub mod log;
pub mod progress;
pub mod summary;

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Whether a file can be written, without creating or changing it.
pub fn writable(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(facts) if facts.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        // A pipe or a device: opening it may block.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => takes_a_file(path),
        Err(error) => Err(error),
    }
}

/// Whether a file can be created in the folder of `path`.
fn takes_a_file(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::tempfile_in(folder).map(drop)
}
