//! How big a batch may be: between the biggest that went through and the smallest that failed.
//!
//! Invariant: what failed is above what went through.

/// A doubling is the boldest step up.
const GROWTH: u32 = 2;
/// The limit is known well enough when the failed size is so little above, as a share.
const CLOSE: u32 = 25;
/// Where less than half of the size is left to win, the next size is tried only while no more
/// than one call in so many has failed.
const CALLS_A_FAULT: u64 = 100;
/// A failed size is tried again after so many samples, doubled at each further failure: a
/// failure costs its items at worst.
const RETRY_AFTER: u64 = 1000;
const MOST_DOUBLINGS: u32 = 6;

#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Biggest batch that went through.
    passed: u32,
    failed: Option<Failed>,
    failures: u32,
    /// Batches that failed.
    faults: u64,
    /// Samples so far.
    samples: u64,
}

#[derive(Debug, Clone, Copy)]
struct Failed {
    items: u32,
    forgotten_at: u64,
}

impl Sizes {
    /// A former run found this size to be the best: bigger ones are left alone for a while.
    pub(super) fn learned(size: u32) -> Self {
        Self {
            failed: Some(Failed {
                items: size.saturating_add(1),
                forgotten_at: RETRY_AFTER,
            }),
            ..Self::default()
        }
    }

    /// A batch of so many items went through.
    pub(super) fn passed(&mut self, items: u32) {
        self.samples += 1;
        self.passed = self.passed.max(items);
        self.failed
            .take_if(|failed| items >= failed.items || failed.forgotten_at <= self.samples);
    }

    /// A batch of so many items failed for its size.
    pub(super) fn failed(&mut self, items: u32) {
        self.faults = self.faults.saturating_add(1);
        if self.failed.is_none_or(|failed| items < failed.items) {
            let after = RETRY_AFTER << self.failures.min(MOST_DOUBLINGS);
            self.failures = self.failures.saturating_add(1);
            self.failed = Some(Failed {
                items,
                forgotten_at: self.samples.saturating_add(after),
            });
        }
        if self.passed >= items {
            self.passed = items / 2;
        }
    }

    /// The size to fall back to from one that failed.
    pub(super) fn below(&self, size: u32) -> u32 {
        if (size / 2..size).contains(&self.passed) {
            self.passed
        } else {
            size / 2
        }
    }

    /// The next bigger size to use, or the present one.
    pub(super) fn next(&self, size: u32, highest: u32) -> u32 {
        let doubled = size.saturating_mul(GROWTH).min(highest);
        let Some(failed) = self.failed else {
            return doubled;
        };
        let room = failed.items.saturating_sub(size);
        let spared = room <= size / 2 && self.faults.saturating_mul(CALLS_A_FAULT) > self.samples;
        if spared || room <= 1 + size / CLOSE {
            return size;
        }
        doubled.min(size + room / 2)
    }
}
