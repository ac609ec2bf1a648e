//! How much of an input has been read, for a progress display on another thread.

use super::decompress::BoxRead;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of an input has been read. Clones show the same reading.
#[derive(Debug, Clone)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Progress {
    pub(super) fn new(total: Option<u64>) -> Progress {
        Progress {
            read: Arc::default(),
            total,
        }
    }

    /// Bytes read so far, before unpacking.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the whole input, before unpacking; a pipe's are not known.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The same reader, counted here.
    pub(super) fn count(&self, reader: BoxRead) -> BoxRead {
        let read = Arc::clone(&self.read);
        let total = self.total;
        Box::new(Counted {
            reader,
            read,
            total,
        })
    }
}

struct Counted {
    reader: BoxRead,
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(into)?;
        let read = count as u64 + self.read.fetch_add(count as u64, Ordering::Relaxed);
        // A file that ends before it should was cut short: what is missing must not pass for read.
        if count == 0
            && !into.is_empty()
            && let Some(total) = self.total.filter(|&total| read < total)
        {
            return Err(io::Error::other(format!(
                "the file was cut short while it was read: it ends at {read} of its {total} bytes"
            )));
        }
        Ok(count)
    }
}
