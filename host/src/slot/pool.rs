//! Keeps the idle slots of a run, so that they are made on demand and reused.
//!
//! Invariant: at most as many slots exist as calls were ever in flight at once, since an
//! idle slot is always taken before a new one is made.

use super::Plugin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The slots of one run.
pub struct Pool<P: Plugin> {
    plugin: P,
    idle: Mutex<Vec<P::Slot>>,
    made: AtomicUsize,
}

impl<P: Plugin> Pool<P> {
    /// A pool with no slots yet.
    pub fn new(plugin: P) -> Self {
        Self {
            plugin,
            idle: Mutex::new(Vec::new()),
            made: AtomicUsize::new(0),
        }
    }

    /// The slot used last (its memory is the warmest), or a new one.
    pub async fn take(&self) -> Result<P::Slot, String> {
        let idle = self.lock().pop();
        match idle {
            Some(slot) => Ok(slot),
            None => {
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                self.plugin.start_slot(number).await
            }
        }
    }

    /// Gives a slot back that can serve another call.
    pub fn put(&self, slot: P::Slot) {
        self.lock().push(slot);
    }

    /// How many slots were made so far, replaced ones included.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<P::Slot>> {
        // A panic while the lock is held cannot leave a Vec of slots half changed.
        self.idle.lock().unwrap_or_else(|e| e.into_inner())
    }
}
