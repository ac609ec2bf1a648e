//! Replays: what a controller would have done, given what was observed before.
//!
//! Invariant: a replay reads no clock and draws no random number; the same lines give the same
//! states.

mod trace;
mod usage;

pub use trace::{Event, State, TraceError, events, step};
pub use usage::{Replay, Tally};

#[cfg(test)]
mod tests;
