//! Text lines: an item is a line, whatever its bytes. An empty line is no item and is passed over.

use super::line_splitter::LineSplitter;
use super::rejects::Rejected;
use crate::item::{Item, Key};

pub struct Lines {
    pub splitter: LineSplitter,
}

impl Lines {
    pub fn next_item(&mut self, index: u64) -> Option<Result<Item, Rejected>> {
        loop {
            return Some(match self.splitter.next_line()? {
                Ok(line) if line.bytes.is_empty() => continue,
                Ok(line) => Ok(Item {
                    index,
                    key: Key::Index,
                    data: line.bytes,
                }),
                Err(rejected) => Err(rejected),
            });
        }
    }
}
