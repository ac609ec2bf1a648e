//! Rows of a `failed_items` file: written when items fail, read to run exactly those again.
//!
//! A row is a JSON line: `{"index": 7, "key": "a7", "data": "…", "reason": "…", "outcome": "…",
//! "attempts": 3}`. Data that is not UTF-8 stands as `"data_base64"` in place of `"data"`. What was
//! written comes back the same: index, key and data. Reading ignores all other fields, so rows may be
//! edited or made by other tools.

use super::jsonl::{as_text, cause_in_line};
use super::line_splitter::LineSplitter;
use super::rejects::{RejectReason, Rejected};
use crate::item::{Item, Key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

/// A row may be this many times as long as the largest line that became an item: a control character
/// takes 6 bytes in CSV's JSON and 7 when that is quoted again, and the key may repeat it.
const ROW_GROWTH: u64 = 16;

/// Bytes of a row beside data and key.
const ROW_FRAME: u64 = 64 * 1024;

/// The largest index that fits the journal's integers.
const MAX_INDEX: u64 = i64::MAX as u64;

/// What is known of an item that failed.
#[derive(Debug, Clone, Copy)]
pub struct FailedRow<'a> {
    /// The item as it was sent.
    pub item: &'a Item,
    /// The message of whoever refused it.
    pub reason: &'a str,
    /// The class of the last outcome.
    pub outcome: &'a str,
    /// Calls that contained the item.
    pub attempts: u32,
}

/// Writes one row, its line end included, in one piece.
pub fn write_row(to: &mut impl Write, row: &FailedRow<'_>) -> io::Result<()> {
    let data = match std::str::from_utf8(&row.item.data) {
        Ok(text) => Data::Text(text),
        Err(_) => Data::Base64(STANDARD.encode(&row.item.data)),
    };
    let mut line = serde_json::to_vec(&Written {
        index: row.item.index,
        key: &row.item.key(),
        data,
        reason: row.reason,
        outcome: row.outcome,
        attempts: row.attempts,
    })?;
    line.push(b'\n');
    to.write_all(&line)
}

#[derive(Serialize)]
struct Written<'a> {
    index: u64,
    key: &'a str,
    #[serde(flatten)]
    data: Data<'a>,
    reason: &'a str,
    outcome: &'a str,
    attempts: u32,
}

#[derive(Serialize)]
enum Data<'a> {
    #[serde(rename = "data")]
    Text(&'a str),
    #[serde(rename = "data_base64")]
    Base64(String),
}

#[derive(Deserialize)]
struct Read<'a> {
    index: u64,
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data_base64: Option<Cow<'a, str>>,
}

/// The index in a row, if the line is one.
pub fn read_index(line: &[u8]) -> Option<u64> {
    let row: Read<'_> = serde_json::from_slice(line).ok()?;
    let has_data = row.data.is_some() || row.data_base64.is_some();
    (has_data && row.index <= MAX_INDEX).then_some(row.index)
}

/// The rows of a `failed_items` file as items. An index that comes again is rejected: the run's account,
/// the journal and a plugin's answers know an item by it.
pub struct Failed {
    pub splitter: LineSplitter,
    /// Indices read, 64 to an entry: the n-th bit of entry i is index 64 i + n.
    /// The one thing here that grows with the input: a few MB for ten million neighbours.
    seen: HashMap<u64, u64>,
}

impl Failed {
    pub fn new(max_item_bytes: u64) -> Failed {
        let limit = max_item_bytes
            .saturating_mul(ROW_GROWTH)
            .saturating_add(ROW_FRAME);
        Failed {
            splitter: LineSplitter::new(limit),
            seen: HashMap::new(),
        }
    }

    pub fn next_item(&mut self) -> Option<Result<Item, Rejected>> {
        loop {
            let line = match self.splitter.next_line()? {
                Ok(line) if line.bytes.trim_ascii().is_empty() => continue,
                Ok(line) => line,
                Err(rejected) => return Some(Err(rejected)),
            };
            let item = read_row(&line.bytes).and_then(|item| self.first_time(item));
            return Some(item.map_err(|reason| Rejected::new(line.number, reason, &line.bytes)));
        }
    }

    fn first_time(&mut self, item: Item) -> Result<Item, RejectReason> {
        let index = item.index;
        let entry = self.seen.entry(index / 64).or_default();
        let bit = 1 << (index % 64);
        if *entry & bit != 0 {
            return Err(RejectReason::RepeatedIndex { index });
        }
        *entry |= bit;
        Ok(item)
    }
}

fn read_row(bytes: &[u8]) -> Result<Item, RejectReason> {
    let bad = |cause: String| RejectReason::NotFailedItem { cause };
    let row: Read<'_> =
        serde_json::from_str(as_text(bytes)?).map_err(|error| bad(cause_in_line(&error)))?;
    let data = match (row.data, row.data_base64) {
        (Some(text), None) => Bytes::from(text.into_owned()),
        (None, Some(base64)) => STANDARD
            .decode(base64.as_bytes())
            .map_err(|error| bad(format!("data_base64: {error}")))?
            .into(),
        (None, None) => return Err(bad("neither `data` nor `data_base64`".to_owned())),
        (Some(_), Some(_)) => return Err(bad("both `data` and `data_base64`".to_owned())),
    };
    let index = row.index;
    if index > MAX_INDEX {
        return Err(bad(format!("index {index} is above {MAX_INDEX}")));
    }
    let key = match row.key {
        Some(key) if key != index.to_string() => Key::Text(key.into()),
        _ => Key::Index,
    };
    Ok(Item { index, key, data })
}
