//! Whether the first calls of a run contradict what it started from.
//!
//! Invariant: it comes to a verdict.

use super::learned::Learned;
use crate::controller::Observation;
use crate::controller::change::Contradiction;

/// Calls that take so many times as long as remembered are those of another server.
const SLOWER: f64 = 2.0;
/// Fewest calls to tell by; a round of them at least.
const FEWEST: u32 = 5;
/// With so many calls, times the square of the noise, their median is [`SLOWER`] by accident once in 150 runs:
/// (2.5 * 1.2533 / ln 2)^2.
const FOR_NOISE: f64 = 20.4;
/// More are not waited for, but for a round.
const MOST: u32 = 60;
/// After so many times as many calls that say nothing, nothing is said against it.
const PATIENCE: u32 = 4;
/// Calls in flight, beyond those remembered, at which a call may be slower for that.
const MORE: f64 = 1.1;

#[derive(Debug)]
pub(super) struct Recall {
    learned: Learned,
    /// Calls to tell by.
    wanted: u32,
    /// Seconds of the calls, as multiples of those expected.
    ratios: Vec<f64>,
    failed: u32,
    seen: u32,
    /// The first calls of a run are sent while fewer are in flight, and are faster for it: what they do not
    /// contradict, the next may.
    ramp: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    Confirmed,
    Contradicted(Contradiction),
}

impl Recall {
    pub(super) fn new(learned: &Learned, workers: u32) -> Self {
        let for_noise = (FOR_NOISE * learned.spread * learned.spread).ceil() as u32;
        Self {
            learned: *learned,
            wanted: for_noise.clamp(FEWEST, MOST).max(workers),
            ratios: Vec::new(),
            failed: 0,
            seen: 0,
            ramp: true,
        }
    }

    /// Takes in a call; says something once.
    pub(super) fn judge(&mut self, observation: &Observation) -> Option<Verdict> {
        self.seen = self.seen.saturating_add(1);
        if !observation.ok {
            self.failed += 1;
            let (failed, of) = (self.failed, self.wanted);
            return (2 * u64::from(failed) > u64::from(of))
                .then_some(Verdict::Contradicted(Contradiction::Failed { failed, of }));
        }
        if let Some(ratio) = self.ratio(observation) {
            self.ratios.push(ratio);
        }
        if self.ratios.len() as u64 + u64::from(self.failed) >= u64::from(self.wanted) {
            let median = self.median();
            if median > SLOWER {
                return Some(Verdict::Contradicted(Contradiction::Slower(median)));
            }
            if !std::mem::take(&mut self.ramp) {
                return Some(Verdict::Confirmed);
            }
            self.ratios.clear();
            self.failed = 0;
        }
        (self.seen >= self.wanted.saturating_mul(PATIENCE)).then_some(Verdict::Confirmed)
    }

    /// Seconds against those expected: no more than remembered for fewer items, in proportion for more. None from
    /// a call that says nothing, such as one beside more others than remembered.
    fn ratio(&self, observation: &Observation) -> Option<f64> {
        let workers = observation.setting.workers;
        let in_flight = observation.in_flight.map_or(workers, |n| n.min(workers));
        if f64::from(in_flight) > (MORE * self.learned.in_flight).ceil() {
            return None;
        }
        let items = f64::from(observation.n_items) / self.learned.items;
        let ratio = observation.elapsed / (self.learned.seconds * items.max(1.0));
        (observation.n_items > 0 && ratio.is_finite()).then_some(ratio)
    }

    fn median(&mut self) -> f64 {
        self.ratios.sort_unstable_by(f64::total_cmp);
        self.ratios
            .get(self.ratios.len() / 2)
            .copied()
            .unwrap_or(1.0)
    }
}
