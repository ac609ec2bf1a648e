//! Rows of the usage log on their way to the writer.
//!
//! Invariant: adding a row never waits for the disk, and there are never more rows in memory than
//! the capacity; a surplus is dropped and counted.

use super::usage::UsageRow;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The rows that wait for the writer.
#[derive(Debug)]
pub(super) struct UsageBuffer {
    state: Mutex<State>,
    closed: Condvar,
    /// In rows.
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    rows: Vec<UsageRow>,
    /// Rows that the writer took and has not written yet.
    taken: usize,
    dropped: u64,
    closed: bool,
}

impl UsageBuffer {
    pub(super) fn new(capacity: usize) -> UsageBuffer {
        UsageBuffer {
            state: Mutex::default(),
            closed: Condvar::new(),
            capacity,
        }
    }

    pub(super) fn add(&self, row: UsageRow) {
        let mut state = self.lock();
        if state.closed || state.rows.len() + state.taken >= self.capacity {
            state.dropped += 1;
        } else {
            state.rows.push(row);
        }
    }

    /// No rows are taken in any more, and the writer is woken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.closed.notify_all();
    }

    /// Waits for `pause`, at most until the buffer is closed. True if it is closed.
    pub(super) fn wait(&self, pause: Duration) -> bool {
        let waited = self
            .closed
            .wait_timeout_while(self.lock(), pause, |state| !state.closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    /// Hands the rows to the writer and puts `empty` in their place, so that its memory is used
    /// again. They count against the capacity until [`written`](UsageBuffer::written).
    pub(super) fn take(&self, empty: Vec<UsageRow>) -> Vec<UsageRow> {
        let mut state = self.lock();
        state.taken += state.rows.len();
        mem::replace(&mut state.rows, empty)
    }

    /// The writer has written all that it took.
    pub(super) fn written(&self) {
        self.lock().taken = 0;
    }

    /// Rows that were dropped, ever.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Rows that are not written, the writer's among them.
    pub(super) fn unwritten(&self) -> u64 {
        let state = self.lock();
        (state.rows.len() + state.taken) as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
