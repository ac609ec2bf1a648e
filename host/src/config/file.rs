//! Reads a TOML file into written values that know their line.
//!
//! Invariant: whatever the file holds, the answer is its entries or one problem; a problem
//! never quotes the file's text, which may hold secrets.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use toml_edit::{Document, Item, Key, TableLike, Value};

use super::error::Problem;
use super::origin::{Origin, one_line};
use super::raw::{Raw, RawValue};
use crate::regular;

/// Bytes. A job file is written by hand; what is larger is another file, given by mistake.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The top entries of a file, in its order: keys, and tables as `RawValue::Table`.
pub(super) fn read(path: &Path) -> Result<Vec<(String, Raw)>, Problem> {
    let bytes = read_bytes(path).map_err(|e| unreadable(path, &e))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = "larger than 4 MiB, which no job file is; give the job file's path";
        return Err(Problem::at(one_line(path), message));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Problem::at(one_line(path), "is UTF-16; save it as UTF-8"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        Problem::at(
            at_line(path, line),
            "is not valid UTF-8; save the file as UTF-8",
        )
    })?;
    parse(path, text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let message = match error.kind() {
        io::ErrorKind::NotFound => "no such file; check the path".to_owned(),
        io::ErrorKind::IsADirectory => "is a folder; name the file in it".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read; check its permissions".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    Problem::at(one_line(path), message)
}

fn parse(path: &Path, text: &str) -> Result<Vec<(String, Raw)>, Problem> {
    let lines = Lines::of(path, text);
    let document = Document::parse(text).map_err(|error| {
        let span = error.span();
        let line = lines.number(span.as_ref().map_or(text.len(), |span| span.start));
        let mut message = format!("not valid TOML: {}", error.message().replace('\n', ", "));
        // Only here is the text at the fault sure to be a key, so it may be shown.
        if error.message() == "duplicate key"
            && let Some(key) = span.and_then(|span| text.get(span))
        {
            message.push_str(&format!(" {}; keep one of the two", key.escape_debug()));
        }
        Problem::at(at_line(path, line), message)
    })?;
    Ok(lines.table(document.as_table(), 1))
}

fn at_line(path: &Path, line: usize) -> String {
    format!("{}:{line}", one_line(path))
}

/// Turns places in the text into line numbers.
struct Lines {
    path: Arc<Path>,
    /// Where each line after the first starts.
    starts: Vec<usize>,
}

impl Lines {
    fn of(path: &Path, text: &str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        Self {
            path: Arc::from(path),
            starts,
        }
    }

    fn number(&self, offset: usize) -> usize {
        1 + self.starts.partition_point(|start| *start <= offset)
    }

    /// `outer` is the line of what holds the table, for what has no place of its own.
    fn table(&self, table: &dyn TableLike, outer: usize) -> Vec<(String, Raw)> {
        table
            .iter()
            .map(|(name, item)| {
                let key_span = table.key(name).and_then(Key::span);
                let span = key_span.or_else(|| item.span());
                let line = span.map_or(outer, |span| self.number(span.start));
                (
                    name.to_owned(),
                    Raw {
                        origin: self.origin(line),
                        value: self.item(item, line),
                    },
                )
            })
            .collect()
    }

    fn item(&self, item: &Item, line: usize) -> RawValue {
        match item {
            Item::None => RawValue::Table(Vec::new()),
            Item::Value(value) => self.value(value, line),
            Item::Table(table) => RawValue::Table(self.table(table, line)),
            Item::ArrayOfTables(tables) => {
                let entries = tables.iter().map(|table| Raw {
                    origin: self.origin(line),
                    value: RawValue::Table(self.table(table, line)),
                });
                RawValue::List(entries.collect())
            }
        }
    }

    fn value(&self, value: &Value, line: usize) -> RawValue {
        match value {
            Value::String(text) => RawValue::Text(text.value().clone()),
            Value::Integer(integer) => RawValue::Integer(*integer.value()),
            Value::Float(float) => RawValue::Float(*float.value()),
            Value::Boolean(boolean) => RawValue::Boolean(*boolean.value()),
            Value::Datetime(_) => RawValue::Date,
            Value::Array(array) => {
                let entries = array.iter().map(|entry| {
                    let line = entry.span().map_or(line, |span| self.number(span.start));
                    Raw {
                        origin: self.origin(line),
                        value: self.value(entry, line),
                    }
                });
                RawValue::List(entries.collect())
            }
            Value::InlineTable(table) => RawValue::Table(self.table(table, line)),
        }
    }

    fn origin(&self, line: usize) -> Origin {
        Origin::File {
            path: self.path.clone(),
            line,
        }
    }
}
