//! What people and scripts get to see: log, progress, summary, failures.

pub mod failed_items;
pub mod failures;
pub mod log;
pub mod progress;
pub mod summary;
