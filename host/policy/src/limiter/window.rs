//! Sums amounts over a sliding span of time.
//!
//! Invariant: an amount counts from when it was added until `span` later, and at most `grain`
//! longer; never shorter. Memory is bounded by `span / grain`, whatever is added.

use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Window {
    span: Duration,
    grain: Duration,
    groups: VecDeque<Group>,
    /// Of all groups. Wide enough for any number of groups of any amounts.
    sum: u128,
}

/// Amounts that leave together.
#[derive(Debug, Clone)]
struct Group {
    first: Duration,
    last: Duration,
    amount: u64,
}

impl Window {
    /// With a `grain` of zero only amounts of the same moment are put together.
    pub(super) fn new(span: Duration, grain: Duration) -> Self {
        Self {
            span,
            grain,
            groups: VecDeque::new(),
            sum: 0,
        }
    }

    pub(super) fn add(&mut self, now: Duration, amount: u64) {
        self.sweep(now);
        if let Some(group) = self.groups.back_mut()
            && now <= group.first.saturating_add(self.grain)
        {
            let before = group.amount;
            group.amount = before.saturating_add(amount);
            group.last = now;
            self.sum += u128::from(group.amount - before);
        } else {
            self.groups.push_back(Group {
                first: now,
                last: now,
                amount,
            });
            self.sum += u128::from(amount);
        }
    }

    pub(super) fn sum(&mut self, now: Duration) -> u128 {
        self.sweep(now);
        self.sum
    }

    /// The first moment at which the sum is below `cap` if nothing is added; None if it is
    /// now. `cap` is at least 1.
    pub(super) fn below(&mut self, now: Duration, cap: u64) -> Option<Duration> {
        let mut sum = self.sum(now);
        if sum < u128::from(cap) {
            return None;
        }
        for group in &self.groups {
            sum -= u128::from(group.amount);
            if sum < u128::from(cap) {
                return Some(group.last.saturating_add(self.span));
            }
        }
        Some(Duration::MAX)
    }

    fn sweep(&mut self, now: Duration) {
        while let Some(group) = self.groups.front()
            && group.last.saturating_add(self.span) <= now
        {
            self.sum -= u128::from(group.amount);
            self.groups.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }
}
