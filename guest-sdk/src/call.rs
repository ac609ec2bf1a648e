//! What a call can know of itself.

#[cfg(target_family = "wasm")]
use crate::bindings::processor::batchgate::batch::call as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::call as host;

pub use crate::bindings::processor::batchgate::batch::call::CallInfo;

/// The job's label, this call's number within its attempt, its deadline and so on.
pub fn info() -> CallInfo {
    host::info()
}
