//! `[control]`: live control of the running job.

use std::path::PathBuf;

use super::kind::{FilePath, Optional};
use super::number::TIMER;
use super::table::table;

table! {
    /// Live control of the running job.
    Control = "control";
    /// The database that `batchgate control` writes to and the job obeys.
    db: Option<PathBuf> = None, Optional(FilePath);
    /// The job looks there at most every so many seconds.
    poll_seconds: f64 = 5.0, TIMER;
}
