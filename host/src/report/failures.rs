//! The failures CSV: `batch,error,timestamp`, a row for each attempt that failed or partly failed.
//!
//! Invariant: once [`FailuresFile::write`] has returned, the row survives the end of the process,
//! and the file holds whole rows only.

use super::appended::Appended;
use csv::{Terminator, WriterBuilder};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

const COLUMNS: [&str; 3] = ["batch", "error", "timestamp"];

/// The failures CSV of a run, open for adding rows.
#[derive(Debug)]
pub struct FailuresFile {
    file: Appended,
}

impl FailuresFile {
    /// Opens or creates the file. Rows are added to those of former runs; only a new or empty file
    /// gets a header. A file that holds something else is refused and left as it is.
    pub fn open(path: &Path) -> io::Result<FailuresFile> {
        FailuresFile::check(path)?;
        let mut failures = FailuresFile {
            file: Appended::open(path)?,
        };
        if failures.file.is_empty() {
            failures.write_record(COLUMNS)?;
        }
        Ok(failures)
    }

    /// An error if there is a file that holds something else.
    pub fn check(path: &Path) -> io::Result<()> {
        if !fs::metadata(path).is_ok_and(|facts| facts.is_file()) {
            return Ok(());
        }
        let header = COLUMNS.join(",");
        let mut first = Vec::new();
        BufReader::new(fs::File::open(path)?)
            .take(header.len() as u64 + 2)
            .read_until(b'\n', &mut first)?;
        match first.is_empty() || first.trim_ascii_end() == header.as_bytes() {
            true => Ok(()),
            false => Err(io::Error::other(
                "exists and is no failures file (its first line is not `batch,error,timestamp`); name another file",
            )),
        }
    }

    /// An error if the rows that were written are not there any more.
    pub fn is_there(&self) -> io::Result<()> {
        self.file.check()
    }

    /// Adds a row. `batch` describes the whole batch, `error` is the errors of all its failed
    /// parts, `timestamp` is in seconds since 1970.
    pub fn write(&mut self, batch: &str, error: &str, timestamp: f64) -> io::Result<()> {
        // As Python prints it: whole seconds have a ".0".
        self.write_record([batch, error, &format!("{timestamp:?}")])
    }

    fn write_record(&mut self, fields: [&str; 3]) -> io::Result<()> {
        // CRLF ends a row of the Python library's file too.
        let mut row = WriterBuilder::new()
            .terminator(Terminator::CRLF)
            .from_writer(Vec::new());
        row.write_record(fields)?;
        let row = row
            .into_inner()
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.file.write_all(&row)
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
        let text = fs::read(&path).unwrap();
        assert!(text.starts_with(b"batch,error,timestamp\r\n"));
    }

    #[test]
    fn an_empty_file_gets_a_header_and_a_bad_path_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("failures.csv");
        fs::File::create(&path).unwrap();
        drop(FailuresFile::open(&path).unwrap());
        assert_eq!(rows(&path).len(), 1);
        fs::write(&path, "label = \"mine\"\n").unwrap();
        let error = FailuresFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("is no failures file"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "label = \"mine\"\n");
        assert!(FailuresFile::open(folder.path()).is_err());
        assert!(FailuresFile::open(&folder.path().join("no/failures.csv")).is_err());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut full = FailuresFile {
            file: Appended::open(Path::new("/dev/full")).unwrap(),
        };
        assert!(full.write("1", "x", 0.0).is_err());
    }
}
