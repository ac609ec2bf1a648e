//! What people and scripts get to see: log, progress, summary, failures.

pub mod appended;
pub mod failed_items;
pub mod failures;
pub mod log;
pub mod progress;
pub mod summary;

use crate::link::end_of;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Whether a file can be written, without creating or changing it.
pub fn writable(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(facts) if facts.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(facts) if facts.file_type().is_fifo() => appended::has_reader(path),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => takes_a_file(&end_of(path)),
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
