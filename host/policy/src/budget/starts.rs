//! Starts per minute: how many calls started in the last 60 seconds, and whether one more may.
//!
//! Invariant: in no 60 seconds do more calls start than the cap allows, however late the clock
//! is looked at.

use std::time::Duration;

/// Starts are counted together that fall into the same second.
const BUCKET: Duration = Duration::from_secs(1);
/// What the cap is for.
const WINDOW: Duration = Duration::from_secs(60);
/// The second that is running, and those that a start in it must look back to.
const BUCKETS: usize = (WINDOW.as_secs() / BUCKET.as_secs()) as usize + 1;

/// The starts of the last minute.
#[derive(Debug, Clone)]
pub(super) struct Starts {
    max: Option<u32>,
    buckets: [u32; BUCKETS],
    /// Number of the second that is running, since the origin.
    second: u64,
}

impl Starts {
    pub(super) fn new(max: Option<u32>) -> Self {
        Self {
            max: max.map(|max| max.max(1)),
            buckets: [0; BUCKETS],
            second: 0,
        }
    }

    /// How many may start now; `None` if there is no cap.
    pub(super) fn left(&mut self, now: Duration) -> Option<u32> {
        let max = self.max?;
        Some(max.saturating_sub(self.count(now)))
    }

    /// When one more may start, if not now.
    pub(super) fn held_until(&mut self, now: Duration) -> Option<Duration> {
        let mut over = self.count(now).checked_sub(self.max?)?;
        // The oldest leave first, each a whole window after the end of its second.
        let seconds = self.second.saturating_sub(BUCKETS as u64 - 1)..=self.second;
        let enough = |second: &u64| match over.checked_sub(self.buckets[place(*second)]) {
            Some(rest) => {
                over = rest;
                false
            }
            None => true,
        };
        let last = seconds.into_iter().find(enough)?;
        Some(Duration::from_secs(
            (last + BUCKETS as u64) * BUCKET.as_secs(),
        ))
    }

    /// One started.
    pub(super) fn book(&mut self, now: Duration) {
        self.rotate(now);
        let bucket = &mut self.buckets[place(self.second)];
        *bucket = bucket.saturating_add(1);
    }

    /// Starts in the last minute.
    pub(super) fn count(&mut self, now: Duration) -> u32 {
        self.rotate(now);
        let add = |sum: u32, bucket: &u32| sum.saturating_add(*bucket);
        self.buckets.iter().fold(0, add)
    }

    fn rotate(&mut self, now: Duration) {
        let second = now.as_secs() / BUCKET.as_secs();
        let gone = second.saturating_sub(self.second).min(BUCKETS as u64);
        for later in 1..=gone {
            self.buckets[place(self.second + later)] = 0;
        }
        self.second = self.second.max(second);
    }
}

fn place(second: u64) -> usize {
    // Below BUCKETS, so it fits.
    (second % BUCKETS as u64) as usize
}
