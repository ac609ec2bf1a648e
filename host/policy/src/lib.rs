//! The pure decisions of Batchgate: nothing in this crate does I/O, reads a clock or
//! draws a random number. Every method takes what it needs, the time included, and
//! returns what was decided as a value.
//!
//! Invariant: the same calls in the same order give the same answers.
#![deny(missing_docs)]

pub mod attempt;
pub mod bisect;
pub mod breaker;
pub mod budget;
pub mod controller;
pub mod limiter;
pub mod outcome;
pub mod quota;
pub mod ranges;
pub mod setting;
pub mod tally;
