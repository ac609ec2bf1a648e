//! What the host knows of one call while it runs, shared with the HTTP requests that it starts.
//!
//! Invariant: whatever outlives the call (a request that the guest forgot) goes on counting for
//! the call that started it, never for the next one of its slot.

use crate::slot::{CallInfo, CallReport, CallServices};
use batchgate_policy::outcome::CallEnd;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// One call.
pub(super) struct Call {
    info: CallInfo,
    idempotency_key: String,
    started: Instant,
    services: Arc<dyn Services>,
    /// Bytes sent and received.
    bytes: AtomicU64,
    /// See [`Call::unanswered`].
    unanswered: AtomicBool,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    /// When the cooldown that this call's breach started will end.
    cooldown_until: Option<Instant>,
    /// Waits on our own limiter that have ended.
    waited: Duration,
    /// Requests that wait on it now, and since when there are any.
    waiting: usize,
    waiting_since: Option<Instant>,
}

impl Call {
    /// A call that starts now.
    pub(super) fn start(
        info: CallInfo,
        idempotency_key: String,
        services: Arc<dyn Services>,
    ) -> Arc<Self> {
        Arc::new(Self {
            info,
            idempotency_key,
            started: Instant::now(),
            services,
            bytes: AtomicU64::new(0),
            unanswered: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    pub(super) fn info(&self) -> &CallInfo {
        &self.info
    }

    pub(super) fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Wall-clock time from the start until `now`, without waits on our own limiter.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.duration_since(self.started)
            .saturating_sub(self.waited(now))
    }

    /// The server refused the call for our rate: starts the shared cooldown and returns its
    /// length. The first report counts; the others learn what is left of that cooldown.
    pub(super) fn report_breach(&self, retry_after: Option<Duration>) -> Duration {
        let mut state = self.state();
        let now = Instant::now();
        match state.cooldown_until {
            Some(until) => until.duration_since(now),
            None => {
                let cooldown = self.services.report_breach(self.started, retry_after);
                // A cooldown that the clock cannot count will not be seen to end.
                state.cooldown_until = Some(now.checked_add(cooldown).unwrap_or(now));
                cooldown
            }
        }
    }

    /// Whether a breach was learned during the call.
    pub(super) fn is_breached(&self) -> bool {
        self.state().cooldown_until.is_some()
    }

    /// A request was sent and not answered in full: what it asked for may have been done.
    pub(super) fn unanswered(&self) {
        self.unanswered.store(true, Relaxed);
    }

    /// How it went, if it ended `at` that moment; `counted`: the host counts the bytes.
    pub(super) fn report(
        &self,
        end: CallEnd,
        at: Instant,
        counted: bool,
        dead: bool,
    ) -> CallReport {
        CallReport {
            end,
            breached: self.is_breached(),
            elapsed: self.elapsed(at),
            bytes: counted.then(|| self.bytes()),
            unanswered: self.unanswered.load(Relaxed),
            dead,
        }
    }

    pub(super) fn is_backing_off(&self) -> bool {
        self.services.is_backing_off()
    }

    /// Counts bytes that went over the wire.
    pub(super) fn count_bytes(&self, bytes: u64) {
        if bytes > 0 {
            self.bytes.fetch_add(bytes, Relaxed);
            self.services.record_bytes(bytes);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Waits for permission to start an HTTP request; that time is on nobody's clock.
    pub(super) async fn permission(&self) {
        let _wait = self.wait();
        self.services.http_request().await;
    }

    /// Takes the time until the guard drops off the call's clocks.
    pub(super) fn wait(&self) -> Wait<'_> {
        let mut state = self.state();
        state.waiting += 1;
        if state.waiting == 1 {
            state.waiting_since = Some(Instant::now());
        }
        Wait(self)
    }

    /// Time that was waited on our own limiter until `now`.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        let state = self.state();
        let present = state
            .waiting_since
            .map_or(Duration::ZERO, |since| now.duration_since(since));
        state.waited + present
    }

    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait on our own limiter.
pub(super) struct Wait<'a>(&'a Call);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting -= 1;
        if state.waiting == 0
            && let Some(since) = state.waiting_since.take()
        {
            state.waited += since.elapsed();
        }
    }
}

/// [`CallServices`], whatever they are.
pub(super) trait Services: Send + Sync {
    fn report_breach(&self, call_started: Instant, retry_after: Option<Duration>) -> Duration;
    fn record_bytes(&self, bytes: u64);
    fn is_backing_off(&self) -> bool;
    fn http_request(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<S: CallServices> Services for S {
    fn report_breach(&self, call_started: Instant, retry_after: Option<Duration>) -> Duration {
        CallServices::report_breach(self, call_started, retry_after)
    }

    fn record_bytes(&self, bytes: u64) {
        CallServices::record_bytes(self, bytes);
    }

    fn is_backing_off(&self) -> bool {
        CallServices::is_backing_off(self)
    }

    fn http_request(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(CallServices::http_request(self))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Services that count what they are asked.
    #[derive(Default)]
    pub(in crate::wasm) struct Counting {
        pub breaches: AtomicU64,
        pub bytes: AtomicU64,
        pub requests: AtomicU64,
        /// How long a request waits for its permission.
        pub permission: Duration,
    }

    impl CallServices for Counting {
        fn report_breach(&self, _: Instant, retry_after: Option<Duration>) -> Duration {
            self.breaches.fetch_add(1, Relaxed);
            retry_after.unwrap_or(Duration::from_secs(60))
        }

        fn record_bytes(&self, bytes: u64) {
            self.bytes.fetch_add(bytes, Relaxed);
        }

        fn is_backing_off(&self) -> bool {
            self.breaches.load(Relaxed) > 0
        }

        async fn http_request(&self) {
            tokio::time::sleep(self.permission).await;
            self.requests.fetch_add(1, Relaxed);
        }
    }

    impl Call {
        pub(in crate::wasm) fn test() -> Arc<Self> {
            Self::test_with(Arc::new(Counting::default()))
        }

        pub(in crate::wasm) fn test_with(services: Arc<dyn Services>) -> Arc<Self> {
            Self::start(info(), String::new(), services)
        }
    }

    pub(in crate::wasm) fn info() -> CallInfo {
        CallInfo {
            label: "test".into(),
            run_id: "run".into(),
            call_number: 1,
            workers: 2,
            batch_size: 3,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_breach_a_call() {
        let services = Arc::new(Counting::default());
        let call = Call::test_with(services.clone());
        assert!(!call.is_breached());
        assert_eq!(call.report_breach(None), Duration::from_secs(60));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(
            call.report_breach(Some(Duration::from_secs(900))),
            Duration::from_secs(40)
        );
        assert!(call.is_breached());
        assert_eq!(services.breaches.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_that_overlap_count_once() {
        let call = Call::test();
        let (first, second) = (call.wait(), call.wait());
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(first);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(
            call.waited(Instant::now()),
            Duration::from_secs(10),
            "a wait that runs counts"
        );
        drop(second);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(call.elapsed(Instant::now()), Duration::from_secs(2));
    }
}
