//! CSV rows: an item is a JSON object of strings, by header, in the order of the columns.
//!
//! It does no I/O: bytes are fed, rows come out, the same ones wherever the bytes were cut. Rejected is
//! a row with the wrong number of fields, invalid UTF-8, text behind a closing quote, a quote that is
//! never closed, or more than the limit; nothing beyond the limit, or 16 MiB if that is more, and one block
//! is ever held.
//!
//! **After a bad row.** An open quote must not swallow the rest of the file. If no quote closes it
//! within the limit or 16 MiB, whichever is more, or text follows the one that does, its *first line* is
//! rejected and reading goes on at the line below. Until the place is passed where that became clear, a quote that is open at a
//! line end is rejected at once: the first scan was inside a quote there too, and would have gone the
//! same way. So no byte is scanned more than a few times. A row that is too long without an open quote
//! is passed over to the end of the line it has reached. The inner lines of a quoted field above 16 MiB
//! are thus read as rows; nearly all have the wrong number of fields and are rejected one by one.
//!
//! An empty line is no row and is passed over.

use super::jsonl::as_text;
use super::rejects::{RejectReason, Rejected, TEXT_BYTES};
use super::row_scan::{Field, RowScan, Scan};
use crate::item::{Item, Key};
use bytes::{Bytes, BytesMut};
use memchr::{memchr2, memchr2_iter};
use std::borrow::Cow;
use std::collections::HashMap;

/// Columns a header may have; more is no header but a file of another kind.
const MAX_COLUMNS: usize = 65_536;

/// How far a row above the limit is followed: a line in its quotes is no row, and one may come yet.
const FOLLOWED: usize = 16 << 20;

/// Bytes of items that share one allocation.
const BLOCK_BYTES: usize = 64 * 1024;

/// A CSV text.
pub struct Csv {
    /// Bytes fed; those before `start` are done with.
    fed: Vec<u8>,
    start: usize,
    is_all: bool,
    /// The most bytes a row may have, without its line end.
    limit: usize,
    scan: RowScan,
    /// The scan has begun a row that was not all there.
    in_row: bool,
    /// Counted from `fed`'s start; see "after a bad row".
    lone_until: usize,
    /// The rest of a rejected line is passed over.
    skipping: bool,
    /// The last line ended with CR: an LF that follows belongs to it.
    after_return: bool,
    /// The number of the line at `start`, from 1.
    line: u64,
    header: Option<Header>,
    block: BytesMut,
    json: Vec<u8>,
}

struct Header {
    columns: Vec<String>,
    /// For each column, what stands before its value: `{"a":`, `,"b":`.
    openings: Vec<Vec<u8>>,
    key: Option<usize>,
}

/// A row whose fields are in the scan.
struct Row {
    line: u64,
    start: usize,
    end: usize,
}

impl Csv {
    pub fn new(delimiter: u8, max_item_bytes: u64) -> Csv {
        // A window of one byte more, which tells whether the row ends in time, must not overflow.
        let limit = usize::try_from(max_item_bytes)
            .unwrap_or(usize::MAX)
            .min(usize::MAX / 2);
        Csv {
            fed: Vec::new(),
            start: 0,
            is_all: false,
            limit,
            scan: RowScan::new(delimiter, MAX_COLUMNS + 1),
            in_row: false,
            lone_until: 0,
            skipping: false,
            after_return: false,
            line: 1,
            header: None,
            block: BytesMut::new(),
            json: Vec::new(),
        }
    }

    /// Lines that are past.
    pub fn lines(&self) -> u64 {
        self.line - 1
    }

    /// Takes more bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.fed.drain(..self.start);
            self.lone_until = self.lone_until.saturating_sub(self.start);
            self.start = 0;
        }
        self.fed.extend_from_slice(bytes);
    }

    /// There are no more bytes.
    pub fn end(&mut self) {
        self.is_all = true;
    }

    /// The columns, once the header is read.
    pub fn columns(&self) -> Option<&[String]> {
        Some(&self.header.as_ref()?.columns)
    }

    /// Reads the header if it is there; `false`: more bytes are needed, or there are none at all.
    ///
    /// The error names the header's line.
    pub fn read_header(&mut self) -> Result<bool, (u64, String)> {
        let row = match self.next_row() {
            None => return Ok(false),
            Some(Err(rejected)) => return Err((rejected.line, rejected.reason.to_string())),
            Some(Ok(row)) => row,
        };
        let header = Header::new(&self.fed[row.start..row.end], self.scan.fields())
            .map_err(|cause| (row.line, cause))?;
        self.scan.keep(header.columns.len());
        self.header = Some(header);
        Ok(true)
    }

    /// Names items by the column called `name`; the error lists the columns.
    pub fn set_key(&mut self, name: &str) -> Result<(), String> {
        let Some(header) = &mut self.header else {
            return Ok(());
        };
        header.key = header.columns.iter().position(|column| column == name);
        match header.key {
            Some(_) => Ok(()),
            None => Err(name_some(&header.columns)),
        }
    }

    /// The next row as an item, or why it is none; `None`: more bytes are needed.
    pub fn next_item(&mut self, index: u64) -> Option<Result<Item, Rejected>> {
        let row = match self.next_row()? {
            Ok(row) => row,
            Err(rejected) => return Some(Err(rejected)),
        };
        let bytes = &self.fed[row.start..row.end];
        let header = self.header.as_ref()?;
        let item = header
            .key_and_json(bytes, &self.scan, &mut self.json)
            .map_err(|reason| Rejected::new(row.line, reason, bytes));
        Some(item.map(|key| Item {
            index,
            key,
            data: self.share_json(),
        }))
    }

    /// The row's JSON as a slice of a block, or by itself if it would fill one.
    fn share_json(&mut self) -> Bytes {
        if self.json.len() >= BLOCK_BYTES {
            return Bytes::from(std::mem::take(&mut self.json));
        }
        if self.block.capacity() < self.json.len() {
            self.block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        self.block.extend_from_slice(&self.json);
        self.block.split().freeze()
    }

    fn next_row(&mut self) -> Option<Result<Row, Rejected>> {
        if self.skipping && !self.skip_line() {
            return None;
        }
        if !self.in_row {
            if !self.skip_empty_lines() {
                return None;
            }
            self.scan.restart();
        }
        let lone_until = self.lone_until.saturating_sub(self.start);
        // One byte more than the window tells whether the row ends in time, however much was fed.
        let window = self.limit.max(FOLLOWED);
        let length = (self.fed.len() - self.start).min(window + 1);
        let is_full = length > window;
        let is_all = self.is_all && !is_full;
        let row = &self.fed[self.start..self.start + length];
        let scan = self.scan.resume(row, is_all, lone_until);
        let field = self.scan.count() + 1;
        self.in_row = scan == Scan::Unfinished && !is_full;
        match scan {
            Scan::Row { end } if end > self.limit => Some(Err(self.reject_long_row(end))),
            Scan::Row { end } => Some(Ok(self.take_row(end))),
            Scan::TextAfterQuote { .. } if !self.shows_line() => {
                self.in_row = true;
                None
            }
            Scan::TextAfterQuote { at } => {
                let reason = RejectReason::TextAfterQuote { field };
                Some(Err(self.reject_first_line(reason, at)))
            }
            Scan::UnclosedQuote { at } => {
                let reason = RejectReason::UnclosedQuote { field };
                Some(Err(self.reject_first_line(reason, at)))
            }
            Scan::Unfinished if !is_full => None,
            Scan::Unfinished => {
                let spans_lines = memchr2(b'\n', b'\r', row).is_some();
                Some(Err(if self.scan.is_quoted() && spans_lines {
                    self.reject_first_line(RejectReason::UnclosedQuote { field }, length)
                } else {
                    self.reject_too_long(length)
                }))
            }
        }
    }

    /// Whether what is kept of a rejected line is there.
    fn shows_line(&self) -> bool {
        let row = &self.fed[self.start..];
        self.is_all || row.len() >= TEXT_BYTES || memchr2(b'\n', b'\r', row).is_some()
    }

    fn take_row(&mut self, length: usize) -> Row {
        let row = Row {
            line: self.line,
            start: self.start,
            end: self.start + length,
        };
        if self.scan.has_quotes() {
            self.line += count_line_ends(&self.fed[row.start..row.end]);
        }
        self.start = row.end;
        self.pass_line_end();
        row
    }

    /// Rejects a row that ends beyond the limit.
    fn reject_long_row(&mut self, length: usize) -> Rejected {
        let limit = self.limit as u64;
        let row = self.take_row(length);
        let bytes = &self.fed[row.start..row.end];
        Rejected::new(row.line, RejectReason::TooLong { limit }, bytes)
    }

    /// Rejects the line that a row began with; what went wrong was clear `at` bytes into the row.
    fn reject_first_line(&mut self, reason: RejectReason, at: usize) -> Rejected {
        self.lone_until = self.lone_until.max(self.start + at);
        let row = &self.fed[self.start..];
        let line_end = memchr2(b'\n', b'\r', row);
        let length = line_end.unwrap_or(row.len());
        let rejected = Rejected::new(self.line, reason, &row[..length]);
        self.start += length;
        if line_end.is_some() {
            self.pass_line_end();
        } else {
            self.skipping = true;
        }
        rejected
    }

    /// Rejects a row that has reached the limit, and the rest of its line.
    fn reject_too_long(&mut self, length: usize) -> Rejected {
        let row = &self.fed[self.start..self.start + length];
        let limit = self.limit as u64;
        let rejected = Rejected::new(self.line, RejectReason::TooLong { limit }, row);
        self.line += count_line_ends(row);
        self.start += length;
        self.skipping = true;
        rejected
    }

    /// Passes over the rest of a line; `false`: its end has not been fed.
    fn skip_line(&mut self) -> bool {
        match memchr2(b'\n', b'\r', &self.fed[self.start..]) {
            None => {
                self.start = self.fed.len();
                false
            }
            Some(length) => {
                self.start += length;
                self.pass_line_end();
                self.skipping = false;
                true
            }
        }
    }

    /// Passes the line end at `start`; the last line may lack it.
    fn pass_line_end(&mut self) {
        if let Some(end) = self.fed.get(self.start) {
            self.after_return = *end == b'\r';
            self.start += 1;
            self.line += 1;
        }
    }

    /// `false`: more bytes are needed to tell whether a row follows.
    fn skip_empty_lines(&mut self) -> bool {
        while let Some(byte @ (b'\n' | b'\r')) = self.fed.get(self.start) {
            let is_second_half = *byte == b'\n' && self.after_return;
            if !is_second_half {
                self.line += 1;
            }
            self.after_return = *byte == b'\r';
            self.start += 1;
        }
        let is_row = self.start < self.fed.len();
        if is_row {
            self.after_return = false;
        }
        is_row
    }
}

impl Header {
    fn new(row: &[u8], fields: &[Field]) -> Result<Header, String> {
        if fields.len() > MAX_COLUMNS {
            return Err(format!("it has more than {MAX_COLUMNS} columns"));
        }
        let row = as_text(row).map_err(|reason| format!("{reason}; convert the file to UTF-8"))?;
        let columns: Vec<String> = fields
            .iter()
            .map(|field| value(row, field).into_owned())
            .collect();
        check_names(&columns)?;
        let openings = columns.iter().enumerate();
        let openings = openings.map(|(at, name)| {
            let mut opening = vec![if at == 0 { b'{' } else { b',' }];
            push_json(&mut opening, name);
            opening.push(b':');
            opening
        });
        Ok(Header {
            openings: openings.collect(),
            columns,
            key: None,
        })
    }

    /// Writes the item for the row that `scan` has found, and gives its key.
    fn key_and_json(
        &self,
        row: &[u8],
        scan: &RowScan,
        json: &mut Vec<u8>,
    ) -> Result<Key, RejectReason> {
        let (found, expected) = (scan.count(), self.columns.len());
        if found != expected {
            return Err(RejectReason::FieldCount { found, expected });
        }
        let row = as_text(row)?;
        json.clear();
        for (opening, field) in self.openings.iter().zip(scan.fields()) {
            json.extend_from_slice(opening);
            push_json(json, &value(row, field));
        }
        json.push(b'}');
        Ok(match self.key {
            None => Key::Index,
            Some(column) => Key::Text(value(row, &scan.fields()[column]).into()),
        })
    }
}

fn value<'a>(row: &'a str, field: &Field) -> Cow<'a, str> {
    let text = &row[field.start..field.end];
    if field.doubled {
        Cow::Owned(text.replace("\"\"", "\""))
    } else {
        Cow::Borrowed(text)
    }
}

fn push_json(json: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(json, text).expect("a string is JSON, and a vector takes all of it");
}

/// An object needs a name for every value, and each only once.
fn check_names(columns: &[String]) -> Result<(), String> {
    let mut seen = HashMap::new();
    for (at, name) in columns.iter().enumerate() {
        let column = at + 1;
        if name.trim().is_empty() {
            return Err(format!("column {column} has no name"));
        }
        if let Some(first) = seen.insert(name, column) {
            return Err(format!(
                "columns {first} and {column} are both called {name:?}; rename one"
            ));
        }
    }
    Ok(())
}

/// The columns for a message, and what they suggest about the delimiter.
fn name_some(columns: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut names: Vec<String> = columns
        .iter()
        .take(SHOWN)
        .map(|c| format!("{c:?}"))
        .collect();
    if columns.len() > SHOWN {
        names.push(format!("… ({} in all)", columns.len()));
    }
    let names = names.join(", ");
    match columns {
        [one] => match one.chars().find(|c| ",;\t|".contains(*c)) {
            Some(other) => format!("{names}; if {other:?} separates the fields, set `delimiter`"),
            None => names,
        },
        _ => names,
    }
}

/// Lines end with LF, CRLF or CR.
fn count_line_ends(bytes: &[u8]) -> u64 {
    memchr2_iter(b'\n', b'\r', bytes)
        .filter(|&at| bytes[at] == b'\n' || bytes.get(at + 1) != Some(&b'\n'))
        .count() as u64
}
