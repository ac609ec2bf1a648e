//! Notices that the server is no longer the one that was measured: two cumulative sums of
//! residuals at the present place, one for slower and one for faster.
//!
//! Invariant: a sum is never negative, and both start at 0 at each place.

use super::samples::{Place, Residual};

/// Residuals count for what they exceed this by, in units of the noise: slower drift is followed
/// by the means instead.
const ALLOWANCE: f64 = 0.5;
/// The sum that is no accident: steady noise reaches it once in some 140,000 samples.
const ALARM: f64 = 5.0;
/// Ln of a change that matters.
const LEAST_CHANGE: f64 = 0.22;
/// Fewest samples of a place, also as a multiple of its workers, that can be contradicted.
const FEWEST: f64 = 16.0;
const FEWEST_ROUNDS: f64 = 2.0;
/// One sample counts for no more than this.
const CLAMP: f64 = 2.0;

#[derive(Debug, Default)]
pub(super) struct Shift {
    slower: Sum,
    faster: Sum,
    place: Option<Place>,
}

/// A cumulative sum, and the samples since it was last 0.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    excess: f64,
    n: f64,
    mean: f64,
}

/// The samples that gave the alarm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alarm {
    pub(super) n: f64,
    pub(super) mean: f64,
}

impl Sum {
    fn add(&mut self, excess: f64, ln_seconds: f64) {
        self.excess += excess;
        if self.excess <= 0.0 {
            *self = Self::default();
            return;
        }
        self.n += 1.0;
        self.mean += (ln_seconds - self.mean) / self.n;
    }

    fn alarm(&self, limit: f64) -> Option<Alarm> {
        (self.excess > limit).then_some(Alarm {
            n: self.n,
            mean: self.mean,
        })
    }
}

impl Shift {
    /// Takes in a sample of the present place. `haste`: how much too fast, in units of the
    /// noise, the samples that it is compared with may be.
    pub(super) fn add(
        &mut self,
        place: Place,
        residual: Residual,
        haste: f64,
        noise: f64,
        ln_seconds: f64,
    ) -> Option<Alarm> {
        if self.place != Some(place) {
            *self = Self {
                place: Some(place),
                ..Self::default()
            };
        }
        let rounds = FEWEST_ROUNDS * f64::from(place.workers);
        if residual.n < FEWEST.max(rounds) {
            return None;
        }
        let value = residual.value.clamp(-CLAMP, CLAMP);
        let allowance = ALLOWANCE.min(LEAST_CHANGE / 2.0 / noise);
        let limit = ALARM / allowance;
        let allowance = allowance + 1.0 / residual.n.sqrt();
        self.slower.add(value - allowance - haste, ln_seconds);
        self.faster.add(-value - allowance, ln_seconds);
        let alarm = self.slower.alarm(limit).or(self.faster.alarm(limit));
        if alarm.is_some() {
            *self = Self::default();
        }
        alarm
    }
}
