//! Controllers: they turn what was observed of finished attempts into the setting for the
//! next ones.
//!
//! Invariant of every controller: its levels are never outside its bounds, and its epoch
//! rises by exactly one with each change of a level.

mod change;
mod config;
mod curve;
mod fixed;
mod history;
mod levels;
mod measured;
mod memory;
mod overrides;
mod window;

use std::fmt;

pub use change::{Change, Contradiction, CutReason, Reason, Rebaseline, Unfit};
pub use config::Config;
pub use curve::Curve;
pub use fixed::Fixed;
pub use history::History;
pub use levels::{Bounds, Dimension};
pub use memory::{Learned, Lesson, Remembering, Unusable};
pub use overrides::{CLEARED, Override};

use crate::setting::Setting;

/// What tunes a run: told of every attempt that ended, asked for the setting of the next.
pub trait Controller: Send + fmt::Debug {
    /// The levels to dispatch at from now on.
    fn setting(&self) -> Setting;

    /// What the levels may be, live overrides included. A held level does not narrow it.
    fn bounds(&self) -> Bounds;

    /// Whether the run was declared unfit for concurrent calls (at most 1 worker). No
    /// override can change that.
    fn single(&self) -> bool;

    /// Takes in one ended attempt. Allocates nothing unless something changed or memory for
    /// samples grows.
    fn observe(&mut self, observation: &Observation) -> Vec<Change>;

    /// Takes in the rows written to the control store since the last time, oldest first.
    fn apply(&mut self, rows: &[Override]) -> Vec<Change>;

    /// Forgets what was measured and goes to these levels, as far as bounds and holds allow, in one epoch. A
    /// controller that does not tune stays where it is.
    fn restart_at(&mut self, _workers: u32, _batch_size: u32) {}

    /// What a later run may start from; none without a memory.
    fn lesson(&self) -> Option<Lesson> {
        None
    }
}

/// What came of one attempt, as evidence for tuning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The setting that the attempt was dispatched under.
    pub setting: Setting,
    /// Items in the attempt's first call.
    pub n_items: u32,
    /// Duration of the attempt's first call, in seconds, without any wait.
    pub elapsed: f64,
    /// Whether the attempt counts as a latency sample.
    pub ok: bool,
    /// Whether its failure is evidence that the batch was too big.
    pub size_fault: bool,
    /// Calls really in flight while the budget or the limiter held the run below its workers;
    /// `None` when nothing held it back.
    pub in_flight: Option<u32>,
}

impl Observation {
    /// Whether the run was kept below the workers that its setting asked for.
    pub fn held_back(&self) -> bool {
        self.in_flight.is_some_and(|n| n < self.setting.workers)
    }
}

/// The controller that tunes a run which names none.
pub const DEFAULT: &str = "curve";

/// Every controller's name, for messages and completion.
pub const NAMES: &[&str] = &["curve", "history"];

/// Builds the controller of that name at its starting levels.
pub fn by_name(name: &str, config: &Config) -> Result<Box<dyn Controller>, UnknownController> {
    match name {
        "history" => Ok(Box::new(History::new(config))),
        "curve" => Ok(Box::new(Curve::new(config))),
        _ => Err(UnknownController {
            name: name.to_owned(),
        }),
    }
}

/// There is no controller of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownController {
    /// The name that was asked for.
    pub name: String,
}

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no controller is called {:?}; use one of: {}",
            self.name,
            NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownController {}

#[cfg(test)]
mod tests;
