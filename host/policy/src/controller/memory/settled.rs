//! Which setting a run has settled on: where it was for most of its last rounds.
//!
//! Invariant: at most [`MOST_STAYS`] settings, each with a call, and all sums finite.

use super::learned::Learned;
use crate::controller::{Bounds, Observation};

/// Rounds and calls after which a stay counts by 1 / e, whichever is more: what a run did before does not matter. A
/// round is as many calls as workers.
const MEMORY_ROUNDS: f64 = 20.0;
const MEMORY_CALLS: f64 = 100.0;
/// Rounds and calls, of those that count, that a setting must have had.
const FEWEST_ROUNDS: f64 = 6.0;
const FEWEST_CALLS: f64 = 16.0;
/// Share of all rounds that it and those next to it must have had.
const LEAST_SHARE: f64 = 0.6;
/// Settings are next to each other if both levels are within this share, or one worker.
const NEXT_TO: f64 = 0.1;
const MOST_STAYS: usize = 16;
/// Seconds that a call can last; see the windows of the controllers.
const SHORTEST_SECONDS: f64 = 1e-9;
const LONGEST_SECONDS: f64 = 1e9;

#[derive(Debug, Default)]
pub(super) struct Settled {
    stays: Vec<Stay>,
}

/// The calls at a setting; sums that fade.
#[derive(Debug, Clone, Copy)]
struct Stay {
    workers: u32,
    batch_size: u32,
    rounds: f64,
    calls: f64,
    in_flight: f64,
    items: f64,
    /// Of the log of seconds, and of its square.
    ln_seconds: f64,
    squares: f64,
}

impl Settled {
    pub(super) fn add(&mut self, observation: &Observation) {
        let seconds = observation.elapsed;
        if !observation.ok || observation.n_items == 0 || !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        let (workers, batch_size) = (observation.setting.workers, observation.setting.batch_size);
        let round = 1.0 / f64::from(workers.max(1));
        let left = (-1.0 / (MEMORY_ROUNDS / round).max(MEMORY_CALLS)).exp();
        self.stays.iter_mut().for_each(|stay| stay.fade(left));
        let ln = seconds.clamp(SHORTEST_SECONDS, LONGEST_SECONDS).ln();
        let stay = self.stay(workers, batch_size);
        stay.rounds += round;
        stay.calls += 1.0;
        stay.in_flight += f64::from(observation.in_flight.unwrap_or(workers).min(workers));
        stay.items += f64::from(observation.n_items);
        stay.ln_seconds += ln;
        stay.squares += ln * ln;
    }

    fn stay(&mut self, workers: u32, batch_size: u32) -> &mut Stay {
        let at = |stay: &Stay| (stay.workers, stay.batch_size) == (workers, batch_size);
        let place = self.stays.iter().position(at).unwrap_or_else(|| {
            if self.stays.len() == MOST_STAYS {
                let shortest = (0..MOST_STAYS)
                    .min_by(|a, b| self.stays[*a].rounds.total_cmp(&self.stays[*b].rounds));
                self.stays.swap_remove(shortest.unwrap_or(0));
            }
            self.stays.push(Stay::new(workers, batch_size));
            self.stays.len() - 1
        });
        &mut self.stays[place]
    }

    /// What there is to remember; none if no setting was kept for long enough.
    pub(super) fn learned(&self, bounds: Bounds) -> Option<Learned> {
        let longest = self
            .stays
            .iter()
            .max_by(|a, b| a.rounds.total_cmp(&b.rounds))?;
        let sum = |next: bool| -> f64 {
            let counted = self
                .stays
                .iter()
                .filter(|stay| !next || stay.is_next_to(longest));
            counted.map(|stay| stay.rounds).sum()
        };
        let share = sum(true) / sum(false);
        if longest.rounds < FEWEST_ROUNDS || longest.calls < FEWEST_CALLS || share < LEAST_SHARE {
            return None;
        }
        let mean = longest.ln_seconds / longest.calls;
        Some(Learned {
            workers: longest.workers,
            batch_size: longest.batch_size,
            max_workers: bounds.max_workers,
            max_batch_size: bounds.max_batch_size,
            in_flight: longest.in_flight / longest.calls,
            items: longest.items / longest.calls,
            seconds: mean.exp(),
            spread: (longest.squares / longest.calls - mean * mean)
                .max(0.0)
                .sqrt(),
            calls: longest.calls.round() as u32,
            share,
        })
    }
}

impl Stay {
    fn new(workers: u32, batch_size: u32) -> Self {
        Self {
            workers,
            batch_size,
            rounds: 0.0,
            calls: 0.0,
            in_flight: 0.0,
            items: 0.0,
            ln_seconds: 0.0,
            squares: 0.0,
        }
    }

    fn fade(&mut self, left: f64) {
        self.rounds *= left;
        self.calls *= left;
        self.in_flight *= left;
        self.items *= left;
        self.ln_seconds *= left;
        self.squares *= left;
    }

    fn is_next_to(&self, other: &Self) -> bool {
        let apart = |a: u32, b: u32| f64::from(a.abs_diff(b));
        let workers = (NEXT_TO * f64::from(other.workers)).max(1.0);
        let batch_size = NEXT_TO * f64::from(other.batch_size);
        apart(self.workers, other.workers) <= workers
            && apart(self.batch_size, other.batch_size) <= batch_size
    }
}
