//! The failures CSV: `batch,error,timestamp`, a row for each attempt that failed or partly failed.
//!
//! Invariant: once [`FailuresFile::write`] has returned, the row survives the end of the process,
//! and the file holds whole rows only.

use csv::{Terminator, WriterBuilder};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The failures CSV of a run, open for adding rows.
#[derive(Debug)]
pub struct FailuresFile {
    file: File,
}

impl FailuresFile {
    /// Opens or creates the file. Rows are added to those of former runs; only a new or empty file
    /// gets a header.
    pub fn open(path: &Path) -> io::Result<FailuresFile> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let mut failures = FailuresFile { file };
        if failures.file.metadata()?.len() == 0 {
            failures.write_record(["batch", "error", "timestamp"])?;
        }
        Ok(failures)
    }

    /// Adds a row. `batch` describes the whole batch, `error` is the errors of all its failed
    /// parts, `timestamp` is in seconds since 1970.
    pub fn write(&mut self, batch: &str, error: &str, timestamp: f64) -> io::Result<()> {
        // As Python prints it: whole seconds have a ".0".
        self.write_record([batch, error, &format!("{timestamp:?}")])
    }

    /// One write for the whole row, so that neither the end of the process nor other writers can
    /// split it. If the disk takes only a part of it, the part is removed again.
    fn write_record(&mut self, fields: [&str; 3]) -> io::Result<()> {
        // CRLF ends a row of the Python library's file too.
        let mut row = WriterBuilder::new()
            .terminator(Terminator::CRLF)
            .from_writer(Vec::new());
        row.write_record(fields)?;
        let row = row
            .into_inner()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let before = self.file.metadata().map(|metadata| metadata.len());
        self.file.write_all(&row).inspect_err(|_| {
            if let Ok(before) = before {
                // If this fails as well, the first error is still the one to tell.
                let _ = self.file.set_len(before);
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rows(path: &Path) -> Vec<[String; 3]> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_path(path)
            .unwrap();
        let row = |record: csv::StringRecord| [0, 1, 2].map(|column| record[column].to_owned());
        reader
            .records()
            .map(|record| row(record.unwrap()))
            .collect()
    }

    #[test]
    fn rows_follow_those_of_former_runs_under_one_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("failures.csv");
        let odd = "a,\"b\"\r\nc\nd\0e;\u{e9}";
        FailuresFile::open(&path)
            .unwrap()
            .write(odd, "", 1_720_000_000.0)
            .unwrap();
        let mut again = FailuresFile::open(&path).unwrap();
        again.write("1;2", "x | y", 1_720_000_000.25).unwrap();
        // Without dropping the file: a row is there at once.
        let expected = [
            ["batch", "error", "timestamp"],
            [odd, "", "1720000000.0"],
            ["1;2", "x | y", "1720000000.25"],
        ];
        assert_eq!(rows(&path), expected.map(|row| row.map(str::to_owned)));
        let text = std::fs::read(&path).unwrap();
        assert!(text.starts_with(b"batch,error,timestamp\r\n"));
    }

    #[test]
    fn an_empty_file_gets_a_header_and_a_bad_path_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("failures.csv");
        File::create(&path).unwrap();
        drop(FailuresFile::open(&path).unwrap());
        assert_eq!(rows(&path).len(), 1);
        assert!(FailuresFile::open(folder.path()).is_err());
        assert!(FailuresFile::open(&folder.path().join("no/failures.csv")).is_err());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut full = FailuresFile {
            file: OpenOptions::new().append(true).open("/dev/full").unwrap(),
        };
        assert!(full.write("1", "x", 0.0).is_err());
    }
}
