//! Waiting, for plugins that await.

use std::time::Duration;

/// Waits. The other calls of the instance go on meanwhile, where `std::thread::sleep` would hold them up.
///
/// Natively, in tests, it returns at once.
pub async fn sleep(duration: Duration) {
    #[cfg(target_family = "wasm")]
    crate::bindings::clock::wasi::clocks::monotonic_clock::wait_for(
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
    )
    .await;
    #[cfg(not(target_family = "wasm"))]
    let _ = duration;
}
