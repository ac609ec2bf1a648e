//! A setting that a run learned, and whether another one may start from it.
//!
//! Invariant: a start made of it is within the bounds that the configuration gives.

use std::fmt;

use crate::controller::Config;

/// Seconds after which a setting is too old to start from: a week, for jobs that run once a week, and a day more
/// for those of them that are late.
const MOST_AGE: f64 = 8.0 * 86_400.0;

/// Seconds by which clocks may differ: what is from further in the future has no age.
const CLOCKS_APART: f64 = 3600.0;

/// A setting, and what was measured there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learned {
    /// Calls in flight.
    pub workers: u32,
    /// Items in a batch.
    pub batch_size: u32,
    /// The most workers that the run could have had.
    pub max_workers: u32,
    /// The most items in a batch that it could have had.
    pub max_batch_size: u32,
    /// Calls really in flight, on average.
    pub in_flight: f64,
    /// Items in a call, on average.
    pub items: f64,
    /// Seconds that a call took, as a geometric mean.
    pub seconds: f64,
    /// Standard deviation of the log of the seconds.
    pub spread: f64,
    /// Calls that this is known from.
    pub calls: u32,
    /// Share of the run's last rounds that were spent there or next to it.
    pub share: f64,
}

/// Why a setting is not started from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unusable {
    /// It is so many seconds old.
    TooOld(f64),
    /// It is from the future.
    Future,
    /// It is no setting at all.
    Senseless,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooOld(age) => write!(
                f,
                "what was learned {:.0} days ago is too old (more than {:.0} days)",
                age / 86_400.0,
                MOST_AGE / 86_400.0
            ),
            Self::Future => f.write_str("what was learned is from the future; see to the clock"),
            Self::Senseless => f.write_str("what was learned makes no sense"),
        }
    }
}

impl Learned {
    /// The configuration of a run that starts from this, `age` seconds after it was learned.
    pub fn start(&self, age: f64, config: &Config) -> Result<Config, Unusable> {
        if !self.makes_sense() || !age.is_finite() {
            return Err(Unusable::Senseless);
        }
        if age > MOST_AGE {
            return Err(Unusable::TooOld(age));
        }
        if age < -CLOCKS_APART {
            return Err(Unusable::Future);
        }
        let max_workers = config.max_workers.unwrap_or(config.workers);
        let max_batch_size = config.max_batch_size.unwrap_or(config.batch_size);
        Ok(Config {
            // Both follow from the start where they are not given, and must not follow from this one.
            max_workers: Some(max_workers),
            max_batch_size: Some(max_batch_size),
            batch_step: Some(config.step()),
            workers: self.workers.max(config.min_workers).min(max_workers),
            batch_size: self
                .batch_size
                .max(config.min_batch_size)
                .min(max_batch_size),
            // At its maximum, a run cannot know whether more would pay.
            workers_learned: self.workers < self.max_workers && self.workers <= max_workers,
            batch_size_learned: self.batch_size < self.max_batch_size
                && self.batch_size <= max_batch_size,
            ..config.clone()
        })
    }

    fn makes_sense(&self) -> bool {
        let above_0 = [self.in_flight, self.items, self.seconds];
        self.workers > 0
            && self.batch_size > 0
            && above_0
                .iter()
                .all(|value| value.is_finite() && *value > 0.0)
            && self.spread.is_finite()
            && self.spread >= 0.0
    }
}
