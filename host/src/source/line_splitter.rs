//! Cuts a stream of bytes into lines without copying them again.
//!
//! It does no I/O: blocks are fed, lines come out, the same ones wherever the blocks were cut. A line
//! is a slice of a block it shares; only one that crosses blocks is put together. Of a line longer than
//! the limit, nothing beyond the limit and one block is ever held.

use super::rejects::{RejectReason, Rejected};
use bytes::Bytes;

/// Cuts a stream of bytes into lines.
pub struct LineSplitter {
    /// The most bytes a line may have, without its end.
    limit: u64,
    /// Whole lines not yet given, from `at` on.
    block: Bytes,
    at: usize,
    /// The beginning of a line whose end has not been fed.
    partial: Vec<u8>,
    /// The rest of a rejected line is passed over.
    skipping: bool,
    /// The number of the next line, from 1.
    line: u64,
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub number: u64,
    pub bytes: Bytes,
}

impl LineSplitter {
    pub fn new(limit: u64) -> LineSplitter {
        LineSplitter {
            limit,
            block: Bytes::new(),
            at: 0,
            partial: Vec::new(),
            skipping: false,
            line: 1,
        }
    }

    /// Lines that are past.
    pub fn lines(&self) -> u64 {
        self.line - 1
    }

    /// Takes more bytes. All lines of the former ones must have been taken.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        debug_assert!(self.at == self.block.len(), "lines are left");
        if self.skipping {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                return;
            };
            bytes = &bytes[end + 1..];
            self.skipping = false;
            self.line += 1;
        }
        let whole = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        if whole > 0 {
            let mut block = std::mem::take(&mut self.partial);
            block.reserve_exact(whole);
            block.extend_from_slice(&bytes[..whole]);
            self.block = Bytes::from(block);
            self.at = 0;
        }
        self.partial.extend_from_slice(&bytes[whole..]);
    }

    /// There are no more bytes: what is left is a line that lacks its end.
    pub fn end(&mut self) {
        if !self.partial.is_empty() {
            self.block = Bytes::from(std::mem::take(&mut self.partial));
            self.at = 0;
        }
    }

    /// The next line, or why it is none; `None`: more bytes are needed.
    pub fn next_line(&mut self) -> Option<Result<Line, Rejected>> {
        if self.at == self.block.len() {
            return self.reject_endless().map(Err);
        }
        let rest = &self.block[self.at..];
        let (length, next) = match memchr::memchr(b'\n', rest) {
            Some(end) => (end, end + 1),
            None => (rest.len(), rest.len()),
        };
        let carriage_return = usize::from(length > 0 && rest[length - 1] == b'\r' && next > length);
        let start = self.at;
        let end = start + length - carriage_return;
        let number = self.line;
        self.at += next;
        self.line += 1;
        let length = (end - start) as u64;
        Some(if length > self.limit {
            Err(self.too_long(number, &self.block[start..end]))
        } else {
            let bytes = self.block.slice(start..end);
            Ok(Line { number, bytes })
        })
    }

    /// Gives up a line that is too long already, whatever follows.
    fn reject_endless(&mut self) -> Option<Rejected> {
        // One byte more is allowed for: it may be the carriage return of the line's end.
        if self.partial.len() as u64 <= self.limit.saturating_add(1) {
            return None;
        }
        let partial = std::mem::take(&mut self.partial);
        self.skipping = true;
        Some(self.too_long(self.line, &partial))
    }

    fn too_long(&self, number: u64, bytes: &[u8]) -> Rejected {
        let limit = self.limit;
        // How much more of it was fed must not show.
        let length = usize::try_from(limit).map_or(bytes.len(), |limit| bytes.len().min(limit));
        let reason = RejectReason::TooLong { limit };
        Rejected::new(number, reason, &bytes[..length])
    }
}
