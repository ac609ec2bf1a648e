//! The run's account of items: what was read, and what became of it.
//!
//! Invariant: items taken = written + skipped + failed + unknown + not dispatched + those in
//! attempts that have not ended.

use crate::attempt::Counts;

/// Counts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Items cut into batches so far.
    pub taken: u64,
    /// What became of those whose attempts have ended.
    pub ended: Counts,
    /// Calls made.
    pub calls: u64,
    /// Breaches of the server's rate limit.
    pub breaches: u64,
    /// Calls that trapped.
    pub traps: u64,
}

impl Tally {
    /// A batch was cut.
    pub fn take(&mut self, items: u64) {
        self.taken += items;
    }

    /// An attempt ended.
    pub fn end(&mut self, counts: &Counts) {
        self.ended.written += counts.written;
        self.ended.skipped += counts.skipped;
        self.ended.failed += counts.failed;
        self.ended.unknown += counts.unknown;
        self.ended.not_dispatched += counts.not_dispatched;
    }

    /// Items that came to an end that will not change in this run.
    pub fn done(&self) -> u64 {
        self.ended.total() - self.ended.not_dispatched
    }

    /// Items in attempts that have not ended.
    pub fn in_flight(&self) -> u64 {
        self.taken - self.ended.total()
    }

    /// The account at the end of a run in which `read` items were read.
    pub fn close(&self, read: u64) -> Counts {
        Counts {
            not_dispatched: self.ended.not_dispatched + (read - self.taken),
            ..self.ended
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_at_every_moment() {
        let mut tally = Tally::default();
        tally.take(10);
        tally.take(5);
        let counts = Counts {
            written: 4,
            skipped: 1,
            failed: 2,
            unknown: 1,
            not_dispatched: 2,
        };
        tally.end(&counts);
        assert_eq!((tally.done(), tally.in_flight()), (8, 5));
        tally.end(&Counts {
            written: 5,
            ..Counts::default()
        });
        let closed = tally.close(40);
        assert_eq!(closed.total(), 40);
        assert_eq!((closed.written, closed.not_dispatched), (9, 27));
    }
}
