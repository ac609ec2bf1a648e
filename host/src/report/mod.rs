//! What people and scripts get to see: log, progress, summary, failures.

pub mod failures;
pub mod log;
pub mod progress;
pub mod summary;
