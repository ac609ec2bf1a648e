//! JSON lines: an item is a line that holds one JSON value, kept byte for byte.
//!
//! Every line is checked in full, so that a plugin never meets half a value. A line of white space is
//! no item and is passed over. Nesting is limited for the sake of the plugin's parser; ours does not recurse.

use super::key::KeyField;
use super::line_splitter::LineSplitter;
use super::rejects::{RejectReason, Rejected};
use crate::item::{Item, Key};
use serde::de::IgnoredAny;

/// As deep as serde_json parses; parsers of other languages go as far.
const MAX_DEPTH: usize = 127;

pub struct Jsonl {
    pub splitter: LineSplitter,
    /// The field that names an item.
    pub key: Option<KeyField>,
}

impl Jsonl {
    pub fn next_item(&mut self, index: u64) -> Option<Result<Item, Rejected>> {
        loop {
            let line = match self.splitter.next_line()? {
                Ok(line) if line.bytes.trim_ascii().is_empty() => continue,
                Ok(line) => line,
                Err(rejected) => return Some(Err(rejected)),
            };
            return Some(match self.check(&line.bytes) {
                Ok(key) => Ok(Item {
                    index,
                    key,
                    data: line.bytes,
                }),
                Err(reason) => Err(Rejected::new(line.number, reason, &line.bytes)),
            });
        }
    }

    fn check(&self, bytes: &[u8]) -> Result<Key, RejectReason> {
        let text = as_text(bytes)?;
        let key = match &self.key {
            // Without a key there is nothing to look for.
            None => {
                serde_json::from_str::<IgnoredAny>(text).map_err(not_json)?;
                Key::Index
            }
            Some(field) => Key::Text(field.find(text)?),
        };
        if is_too_deep(text) {
            return Err(RejectReason::TooDeep { limit: MAX_DEPTH });
        }
        Ok(key)
    }
}

pub fn as_text(bytes: &[u8]) -> Result<&str, RejectReason> {
    std::str::from_utf8(bytes).map_err(|error| RejectReason::NotUtf8 {
        byte: error.valid_up_to() + 1,
    })
}

pub fn not_json(error: serde_json::Error) -> RejectReason {
    let cause = cause_in_line(&error);
    RejectReason::NotJson { cause }
}

/// The error without serde_json's own line number, which is always 1 here.
pub fn cause_in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(cause) => format!("{cause} at byte {}", error.column()),
        None => text,
    }
}

/// Whether the JSON value nests too deep. `json` must be valid.
fn is_too_deep(json: &str) -> bool {
    let bytes = json.as_bytes();
    // Nearly every line ends here.
    if memchr::memchr2_iter(b'[', b'{', bytes).count() <= MAX_DEPTH {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}
