//! Lines of the input that never became items: why, and the file they are written to.
//!
//! A rejected line is never dropped in silence: it is named, counted and, if `rejects_csv` is set, written there.

use crate::report::appended::Appended;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes kept of a rejected line: enough to recognise it.
pub(super) const TEXT_BYTES: usize = 200;

const COLUMNS: [&str; 3] = ["line", "reason", "text"];

/// A part of the input that is no item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The line where it starts, counted from 1 as an editor does.
    pub line: u64,
    /// What is wrong with it.
    pub reason: RejectReason,
    /// Its first bytes, at most 200.
    pub text: Box<[u8]>,
}

impl Rejected {
    pub(super) fn new(line: u64, reason: RejectReason, bytes: &[u8]) -> Rejected {
        let text = bytes[..bytes.len().min(TEXT_BYTES)].into();
        Rejected { line, reason, text }
    }

    /// The text for people: one line, without control characters and without half a character at its end.
    pub fn safe_text(&self) -> String {
        let complete = match std::str::from_utf8(&self.text) {
            // No error length: the text was cut inside a character.
            Err(error) if error.error_len().is_none() && self.text.len() == TEXT_BYTES => {
                &self.text[..error.valid_up_to()]
            }
            _ => &self.text,
        };
        let unsafe_char = |c: char| c.is_control() && c != '\t';
        String::from_utf8_lossy(complete)
            .trim_end_matches(['\r', '\n'])
            .replace(unsafe_char, "\u{fffd}")
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// What is wrong with a rejected line. Fields and bytes are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// A CSV row is too short or too long.
    #[error("fields: {found}, but the header has {expected}")]
    FieldCount { found: usize, expected: usize },
    /// Text was needed.
    #[error("not valid UTF-8 at byte {byte}")]
    NotUtf8 { byte: usize },
    /// Longer than an item may be.
    #[error("longer than {limit} bytes (max_item_bytes)")]
    TooLong { limit: u64 },
    /// A quote that nothing closes, up to the end or to `max_item_bytes`.
    #[error("the quote that opens field {field} is never closed")]
    UnclosedQuote { field: usize },
    /// Behind a closing quote stands neither a delimiter nor a line end.
    #[error(
        "text after the closing quote of field {field}; quotes inside a quoted field are doubled"
    )]
    TextAfterQuote { field: usize },
    /// A JSON line is not a JSON value.
    #[error("not JSON: {cause}")]
    NotJson { cause: String },
    /// A JSON value that would exhaust the stack of whoever parses it.
    #[error("JSON nested deeper than {limit} levels")]
    TooDeep { limit: usize },
    /// `key` is set and the JSON value has no such field, or is no object.
    #[error("no field {key:?}, which `key` names")]
    KeyMissing { key: Box<str> },
    /// The key field holds what cannot name an item.
    #[error("the field {key:?}, which `key` names, is {found}, not a string, number or boolean")]
    KeyType { key: Box<str>, found: &'static str },
    /// A line of a `failed_items` file is not such a row.
    #[error("not a row of failed items: {cause}")]
    NotFailedItem { cause: String },
    /// An item stands in a `failed_items` file a second time.
    #[error("item {index} has been read from this file before")]
    RepeatedIndex { index: u64 },
}

/// Why a rejects file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RejectsError {
    /// It cannot be opened, read or written.
    #[error("rejects_csv {path}: {cause}")]
    Io { path: String, cause: io::Error },
    /// It is something else, perhaps the input.
    #[error(
        "rejects_csv {path}: exists and is no rejects file (its first line is not `line,reason,text`); name another file"
    )]
    OtherFile { path: String },
}

/// The file `rejects_csv`: appended to, with a header if it is new or empty.
#[derive(Debug)]
pub struct RejectsFile {
    rows: csv::Writer<BufWriter<Appended>>,
}

impl RejectsFile {
    /// Opens or creates the file. One that holds something else is refused and left as it is.
    pub fn open(path: &Path) -> Result<RejectsFile, RejectsError> {
        let at = || path.display().to_string();
        let failed = |cause| RejectsError::Io { path: at(), cause };
        let start = RejectsFile::look_at(path)?;
        let mut file = Appended::open(path).map_err(failed)?;
        if start == Start::Torn {
            file.write_all(b"\n").map_err(failed)?;
        }
        let mut rejects = RejectsFile {
            rows: csv::Writer::from_writer(BufWriter::new(file)),
        };
        if start == Start::Empty {
            rejects.record(&COLUMNS).map_err(failed)?;
            rejects.flush().map_err(failed)?;
        }
        Ok(rejects)
    }

    /// An error if there is a file that holds something else.
    pub fn check(path: &Path) -> Result<(), RejectsError> {
        RejectsFile::look_at(path).map(drop)
    }

    fn look_at(path: &Path) -> Result<Start, RejectsError> {
        let at = || path.display().to_string();
        match look(path) {
            Ok(Start::Other) => Err(RejectsError::OtherFile { path: at() }),
            Ok(start) => Ok(start),
            Err(cause) => Err(RejectsError::Io { path: at(), cause }),
        }
    }

    /// An error if the rows that were handed over are not there any more.
    pub fn is_there(&self) -> io::Result<()> {
        self.rows.get_ref().get_ref().check()
    }

    /// Adds a row. It is in the file after [`RejectsFile::flush`].
    pub fn write(&mut self, rejected: &Rejected) -> io::Result<()> {
        let line = rejected.line.to_string();
        let reason = rejected.reason.to_string();
        self.record(&[&line, &reason, &rejected.safe_text()])
    }

    /// Hands all rows to the system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.rows.flush()
    }

    fn record(&mut self, fields: &[&str; 3]) -> io::Result<()> {
        self.rows.write_record(fields).map_err(io::Error::from)
    }
}

#[derive(PartialEq)]
enum Start {
    Empty,
    Rejects,
    /// A rejects file whose last row was cut by a crash.
    Torn,
    Other,
}

fn look(path: &Path) -> io::Result<Start> {
    // A pipe or a terminal has nothing to look at, and no end to seek to.
    match fs::metadata(path) {
        Ok(facts) if facts.is_file() => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(Start::Empty),
    }
    let mut file = fs::File::open(path)?;
    let header = COLUMNS.join(",");
    let mut first = String::new();
    let longest = header.len() as u64 + 2;
    let read = BufReader::new(&mut file)
        .take(longest)
        .read_line(&mut first);
    match read {
        Ok(0) => return Ok(Start::Empty),
        Ok(_) if first.trim_end() == header => {}
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        _ => return Ok(Start::Other),
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(if last == *b"\n" {
        Start::Rejects
    } else {
        Start::Torn
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(line: u64, text: &[u8]) -> Rejected {
        let limit = 9;
        Rejected::new(line, RejectReason::TooLong { limit }, text)
    }

    #[test]
    fn rows_are_appended_under_one_header() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rejects.csv");
        for line in [3, 4] {
            let mut file = RejectsFile::open(&path).unwrap();
            file.write(&rejected(line, b"a,\"b\"\r\n")).unwrap();
            file.flush().unwrap();
        }
        let row = "longer than 9 bytes (max_item_bytes),\"a,\"\"b\"\"\"\n";
        let expected = format!("line,reason,text\n3,{row}4,{row}");
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_row_cut_by_a_crash_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rejects.csv");
        fs::write(&path, "line,reason,text\n1,no").unwrap();
        let mut file = RejectsFile::open(&path).unwrap();
        file.write(&rejected(2, b"x")).unwrap();
        file.flush().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().nth(1), Some("1,no"));
        assert!(text.lines().nth(2).unwrap().starts_with("2,"));
    }

    #[test]
    fn another_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for content in [
            &b"id,name\n1,a\n"[..],
            b"\xff\xfe\n",
            b"line,reason,text2\n",
        ] {
            let path = dir.path().join("input.csv");
            fs::write(&path, content).unwrap();
            let error = RejectsFile::open(&path).unwrap_err();
            assert!(matches!(error, RejectsError::OtherFile { .. }), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        assert!(matches!(
            RejectsFile::open(dir.path()),
            Err(RejectsError::Io { .. })
        ));
    }

    #[test]
    fn the_text_is_short_and_safe() {
        for (text, safe) in [
            (&b"a\tb\r\n"[..], "a\tb"),
            (b"a\x1b[2Jb\nc", "a\u{fffd}[2Jb\u{fffd}c"),
            (b"\xff\xe9x", "\u{fffd}\u{fffd}x"),
            (b"", ""),
        ] {
            assert_eq!(rejected(1, text).safe_text(), safe);
        }
        let long = "é".repeat(500);
        assert_eq!(rejected(1, long.as_bytes()).safe_text(), "é".repeat(100));
        let odd = format!("a{long}");
        assert_eq!(
            rejected(1, odd.as_bytes()).safe_text(),
            format!("a{}", "é".repeat(99))
        );
    }
}
