//! The job's rate limiter, shared by all its calls.

use std::time::Duration;

#[cfg(target_family = "wasm")]
use crate::bindings::processor::batchgate::batch::limiter as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::limiter as host;

/// Says that the server refused us for our rate, with the time it asked for, if any.
/// Starts the shared cooldown and returns its length. Returning
/// [`BatchError::rate_limited`](crate::BatchError::rate_limited) says the same; a call
/// counts once.
pub fn report_breach(retry_after: Option<Duration>) -> Duration {
    Duration::from_millis(host::report_breach(
        retry_after.map(crate::error::whole_millis),
    ))
}

/// Counts bytes against the job's bytes-per-minute cap. Not needed for HTTP, whose bytes
/// the host counts itself unless the job says otherwise.
pub fn record_bytes(bytes: u64) {
    host::record_bytes(bytes);
}

/// Whether a cooldown is running.
pub fn is_backing_off() -> bool {
    host::is_backing_off()
}
