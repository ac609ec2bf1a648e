//! How a run is told to stop, and how far its stop has come.
//!
//! Invariant: the first reason stands; a stop only moves on, from running to stopping to
//! abandoning.

use crate::report::summary::Stopped;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// Tells a run to stop. Cheap to clone; works from any thread.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    reason: Mutex<Option<Stopped>>,
    stopping: CancellationToken,
    hurried: CancellationToken,
    abandoning: CancellationToken,
}

impl Stop {
    /// Nothing new starts and every wait ends; calls in flight go on, for the job's grace if somebody
    /// waits for the end. Returns whether this was the first word of it.
    pub fn stop(&self, reason: Stopped) -> bool {
        let mut held = self.lock();
        let first = held.is_none();
        if first {
            *held = Some(reason);
        }
        drop(held);
        self.inner.stopping.cancel();
        if matches!(reason, Stopped::Interrupted(_) | Stopped::Drained) {
            self.inner.hurried.cancel();
        }
        first
    }

    /// Calls in flight are abandoned as well.
    pub fn abandon(&self) {
        self.inner.abandoning.cancel();
    }

    /// Why the run stops, if it does.
    pub fn reason(&self) -> Option<Stopped> {
        *self.lock()
    }

    /// Whether the run stops.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.is_cancelled()
    }

    /// Ends when the run stops.
    pub async fn stopping(&self) {
        self.inner.stopping.cancelled().await;
    }

    /// Ends when somebody waits for the end of the run, so that calls in flight have a grace and no more. Without it
    /// they end by themselves, since each has its own time limit.
    pub async fn hurried(&self) {
        self.inner.hurried.cancelled().await;
    }

    /// Ends when calls in flight are to be abandoned.
    pub async fn abandoning(&self) {
        self.inner.abandoning.cancelled().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Stopped>> {
        // Assigning the reason cannot panic half-way.
        self.inner.reason.lock().unwrap_or_else(|e| e.into_inner())
    }
}
