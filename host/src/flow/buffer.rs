//! Items that were read and not yet cut into a batch.
//!
//! Invariant: it holds at most [`MAX_BYTES`] and about [`MIN_ITEMS`] or two batches of items,
//! whichever is more, so that memory does not grow with the input.

use crate::item::Item;
use std::collections::VecDeque;

/// Bytes of data from which on nothing more is read.
pub const MAX_BYTES: u64 = 64 << 20;

/// Items that are kept ready however small the batches are: half of them last for the few
/// milliseconds in which a busy machine does not let the reader run.
pub const MIN_ITEMS: usize = 32_768;

/// The buffer between the reader and the dispatch.
#[derive(Debug, Default)]
pub struct Buffer {
    items: VecDeque<Item>,
    bytes: u64,
    ended: bool,
}

impl Buffer {
    /// Adds what was read.
    pub fn push(&mut self, items: Vec<Item>) {
        self.bytes += items.iter().map(size).sum::<u64>();
        self.items.extend(items);
    }

    /// The input was read to its end.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the input was read to its end.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing is there and nothing will come.
    pub fn exhausted(&self) -> bool {
        self.ended && self.items.is_empty()
    }

    /// What is there, in order.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter()
    }

    /// Whether nothing is there now.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the reader should read on, with batches of `batch_size` items.
    pub fn has_room(&self, batch_size: u32) -> bool {
        self.items.len() < most(batch_size) && self.bytes < MAX_BYTES
    }

    /// Whether a reader that stopped for want of room should read on: not at every item that leaves, as waking it
    /// costs more than reading a few; and always before a batch would wait for it.
    pub fn is_low(&self, batch_size: u32, max_bytes: Option<u64>) -> bool {
        let low = self.items.len() <= most(batch_size) / 2 && self.bytes <= MAX_BYTES / 2;
        self.has_room(batch_size) && (low || !self.has_batch(batch_size, max_bytes))
    }

    /// Whether a batch that is cut now would be no smaller for want of input.
    pub fn has_batch(&self, batch_size: u32, max_bytes: Option<u64>) -> bool {
        let full = self.items.len() >= batch_size as usize || self.bytes >= MAX_BYTES;
        // One byte more than fits means that the cut is where the bytes say.
        let bytes_full = max_bytes.is_some_and(|most| self.bytes > most);
        !self.items.is_empty() && (full || bytes_full || self.ended)
    }

    /// Batches that are there, about.
    pub fn batches(&self, batch_size: u32) -> u32 {
        let batches = self.items.len() / (batch_size as usize).max(1);
        u32::try_from(batches).unwrap_or(u32::MAX)
    }

    /// Cuts a batch: at most `batch_size` items, and before their data exceeds `max_bytes`; at least one.
    pub fn cut(&mut self, batch_size: u32, max_bytes: Option<u64>) -> Vec<Item> {
        let most = (batch_size as usize).clamp(1, self.items.len().max(1));
        let mut count = most.min(self.items.len());
        let mut bytes = 0;
        for (position, item) in self.items.iter().take(count).enumerate() {
            let next = bytes + size(item);
            if position > 0 && max_bytes.is_some_and(|most| next > most) {
                count = position;
                break;
            }
            bytes = next;
        }
        self.bytes -= bytes;
        self.items.drain(..count).collect()
    }
}

/// Items from which on nothing more is read.
fn most(batch_size: u32) -> usize {
    MIN_ITEMS.max((batch_size as usize).saturating_mul(2))
}

fn size(item: &Item) -> u64 {
    item.data.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Key;

    fn items(sizes: &[usize]) -> Vec<Item> {
        let item = |(index, &size): (usize, &usize)| Item {
            index: index as u64,
            key: Key::Index,
            data: vec![b'x'; size].into(),
        };
        sizes.iter().enumerate().map(item).collect()
    }

    fn cut_sizes(sizes: &[usize], batch_size: u32, max_bytes: Option<u64>) -> Vec<usize> {
        let mut buffer = Buffer::default();
        buffer.push(items(sizes));
        let mut cuts = Vec::new();
        while !buffer.is_empty() {
            cuts.push(buffer.cut(batch_size, max_bytes).len());
        }
        assert_eq!(buffer.bytes, 0);
        cuts
    }

    #[test]
    fn cuts_at_the_batch_size_and_before_the_bytes() {
        assert_eq!(cut_sizes(&[1; 7], 3, None), [3, 3, 1]);
        assert_eq!(cut_sizes(&[4, 4, 4, 4], 10, Some(8)), [2, 2]);
        assert_eq!(cut_sizes(&[4, 4, 1], 10, Some(7)), [1, 2]);
        assert_eq!(
            cut_sizes(&[9, 1, 9], 10, Some(5)),
            [1, 1, 1],
            "a large item goes alone"
        );
        assert_eq!(cut_sizes(&[1, 1], 0, None), [1, 1], "never an empty batch");
    }

    #[test]
    fn waits_for_a_full_batch_unless_the_input_ends_or_memory_is_full() {
        let mut buffer = Buffer::default();
        assert!(!buffer.has_batch(1, None) && buffer.has_room(1));
        buffer.push(items(&[5, 5]));
        assert!(buffer.has_batch(2, None) && !buffer.has_batch(3, None));
        assert!(buffer.has_batch(3, Some(9)) && !buffer.has_batch(3, Some(10)));
        buffer.end();
        assert!(buffer.has_batch(3, None) && !buffer.exhausted());
        buffer.cut(3, None);
        assert!(!buffer.has_batch(1, None) && buffer.exhausted());
    }

    #[test]
    fn room_follows_the_batch_size_and_ends_at_the_bytes() {
        let mut buffer = Buffer::default();
        buffer.push(items(&[0; MIN_ITEMS]));
        assert!(!buffer.has_room(50) && buffer.has_room(MIN_ITEMS as u32));
        let mut buffer = Buffer::default();
        buffer.push(items(&[MAX_BYTES as usize]));
        assert!(!buffer.has_room(50) && buffer.has_batch(50, None));
    }

    #[test]
    fn a_reader_is_woken_at_half_and_before_a_batch_lacks_items() {
        let mut buffer = Buffer::default();
        buffer.push(items(&[0; MIN_ITEMS]));
        buffer.cut(MIN_ITEMS as u32 / 2 - 1, None);
        assert!(buffer.has_room(50) && !buffer.is_low(50, None));
        buffer.cut(1, None);
        assert!(buffer.is_low(50, None));
        // Three large items fill it; without one of them there is no batch of three.
        let mut buffer = Buffer::default();
        buffer.push(items(&[MAX_BYTES as usize / 3 + 1; 3]));
        assert!(buffer.has_batch(4, None) && !buffer.is_low(4, None));
        buffer.cut(1, None);
        assert!(!buffer.has_batch(4, None) && buffer.is_low(4, None));
        assert!(!buffer.is_low(2, None), "there is a batch of two");
    }
}
