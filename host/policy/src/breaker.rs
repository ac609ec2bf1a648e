//! When failures are systematic enough to stop the run.

/// What an attempt says to the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerEffect {
    /// Something of the attempt was ok.
    Reset,
    /// The attempt failed in a way that counts.
    Count,
    /// Neither: a refusal for our rate, say.
    Neither,
}

/// How many failed items are too many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FailureLimit {
    /// This many failed items stop the run.
    Count(u64),
    /// This share, from 0 to 1, of the items that are done stops the run. Judged from
    /// [`SHARE_FROM`] items on: the share of a handful says nothing.
    Share(f64),
}

/// The fewest items done over which a share of failures is judged.
pub const SHARE_FROM: u64 = 100;

/// Why the breaker stops the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// This many attempts in a row failed.
    Consecutive(u32),
    /// This many items failed.
    FailedItems(u64),
}

/// Counts failed attempts in a row and failed items against their limits.
#[derive(Debug, Clone)]
pub struct Breaker {
    max_consecutive: u32,
    limit: Option<FailureLimit>,
    consecutive: u32,
}

impl Breaker {
    /// `max_consecutive`: failed attempts in a row that stop the run, at least 1.
    pub fn new(max_consecutive: u32, limit: Option<FailureLimit>) -> Self {
        Self {
            max_consecutive: max_consecutive.max(1),
            limit,
            consecutive: 0,
        }
    }

    /// Takes an attempt's effect, and the items that failed and that are done so far.
    pub fn record(&mut self, effect: BreakerEffect, failed: u64, done: u64) -> Option<Trip> {
        match effect {
            BreakerEffect::Reset => self.consecutive = 0,
            BreakerEffect::Count => self.consecutive = self.consecutive.saturating_add(1),
            BreakerEffect::Neither => {}
        }
        if effect == BreakerEffect::Count && self.consecutive >= self.max_consecutive {
            return Some(Trip::Consecutive(self.consecutive));
        }
        let exceeded = match self.limit {
            None => false,
            Some(FailureLimit::Count(limit)) => failed >= limit.max(1),
            Some(FailureLimit::Share(limit)) => {
                done >= SHARE_FROM && failed as f64 >= limit * done as f64
            }
        };
        exceeded.then_some(Trip::FailedItems(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::BreakerEffect::{Count, Neither, Reset};
    use super::*;

    #[test]
    fn trips_on_failures_in_a_row_that_nothing_resets() {
        let mut breaker = Breaker::new(3, None);
        let effects = [Count, Count, Reset, Count, Neither, Count, Count];
        let trips: Vec<_> = effects.map(|e| breaker.record(e, 9, 9)).into();
        assert_eq!(trips[..6], [None; 6]);
        assert_eq!(trips[6], Some(Trip::Consecutive(3)));
    }

    #[test]
    fn trips_on_too_many_failed_items() {
        let mut counted = Breaker::new(8, Some(FailureLimit::Count(5)));
        assert_eq!(counted.record(Reset, 4, 10), None);
        assert_eq!(counted.record(Reset, 5, 10), Some(Trip::FailedItems(5)));

        let mut share = Breaker::new(8, Some(FailureLimit::Share(0.01)));
        assert_eq!(share.record(Reset, 99, 99), None, "too few to judge");
        assert_eq!(share.record(Reset, 1, 101), None);
        assert_eq!(share.record(Neither, 2, 200), Some(Trip::FailedItems(2)));
        assert_eq!(share.record(Reset, 0, 500), None);
    }

    #[test]
    fn a_limit_of_zero_failed_attempts_is_one() {
        assert_eq!(
            Breaker::new(0, None).record(Count, 0, 0),
            Some(Trip::Consecutive(1))
        );
    }
}
