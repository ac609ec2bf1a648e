//! How big a batch may be: between the biggest that went through and the smallest that failed.
//!
//! Invariant: what failed is above what went through.

/// A doubling is the boldest step up.
const GROWTH: u32 = 2;
/// The limit is known well enough when the failed size is so little above, as a share.
const CLOSE: u32 = 25;
/// Where less than half of the size is left to win, the next size is tried only while no more
/// than one call in so many has failed. No size is tried again before so many calls for each that failed the last time.
const CALLS_A_FAULT: u64 = 100;
/// The smallest size that failed is tried again after so many samples, in case the limit was raised; after twice as
/// many when it fails again, so many times.
const RETRY_AFTER: u64 = 250;
const MOST_DOUBLINGS: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Biggest batch that went through.
    passed: u32,
    failed: Option<Failed>,
    /// Batches that failed.
    faults: u64,
    /// Samples so far.
    samples: u64,
}

/// The smallest size that failed.
#[derive(Debug, Clone, Copy)]
struct Failed {
    items: u32,
    /// When it was last tried, and how many calls failed of that.
    tried_at: u64,
    faults: u64,
    /// How many times it was tried again.
    retries: u32,
}

impl Failed {
    fn is_due(&self, samples: u64) -> bool {
        let wait = RETRY_AFTER << self.retries.min(MOST_DOUBLINGS);
        let wait = wait.max(self.faults.saturating_mul(CALLS_A_FAULT));
        samples >= self.tried_at.saturating_add(wait)
    }
}

impl Sizes {
    /// A former run found this size to be the best: bigger ones are left alone for a while.
    pub(super) fn learned(size: u32) -> Self {
        Self {
            failed: Some(Failed {
                items: size.saturating_add(1),
                tried_at: 0,
                faults: 0,
                retries: MOST_DOUBLINGS,
            }),
            ..Self::default()
        }
    }

    /// A batch of so many items went through.
    pub(super) fn passed(&mut self, items: u32) {
        self.samples += 1;
        self.passed = self.passed.max(items);
        self.failed.take_if(|failed| items >= failed.items);
    }

    /// A batch of so many items failed for its size.
    pub(super) fn failed(&mut self, items: u32) {
        self.faults = self.faults.saturating_add(1);
        let samples = self.samples;
        match &mut self.failed {
            Some(failed) if items >= failed.items => {
                if failed.is_due(samples) {
                    failed.retries = failed.retries.saturating_add(1);
                    failed.tried_at = samples;
                    failed.faults = 0;
                }
                failed.faults = failed.faults.saturating_add(1);
            }
            _ => {
                self.failed = Some(Failed {
                    items,
                    tried_at: samples,
                    faults: 1,
                    retries: 0,
                });
            }
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
        if failed.is_due(self.samples) {
            return doubled.min(failed.items);
        }
        let room = failed.items.saturating_sub(size);
        let spared = room <= size / 2 && self.faults.saturating_mul(CALLS_A_FAULT) > self.samples;
        if spared || room <= 1 + size / CLOSE {
            return size;
        }
        doubled.min(size + room / 2)
    }
}
