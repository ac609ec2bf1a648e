//! A native function in place of a component: for embedders, for tests and to measure what the
//! sandbox costs.

use super::{CallInfo, CallReport, Plugin, Slot};
use crate::item::Item;
use batchgate_policy::outcome::CallEnd;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// What a native function returns: how the call ended, in the end.
pub type NativeCall<'a> = Pin<Box<dyn Future<Output = CallEnd> + Send + 'a>>;

/// A plugin that is a function of this program. It has no sandbox: no limits, no replacement.
pub struct Native<F>(Arc<F>);

impl<F> Native<F>
where
    F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
{
    /// A plugin that calls `function` for each batch.
    pub fn new(function: F) -> Self {
        Self(Arc::new(function))
    }
}

impl<F> Plugin for Native<F>
where
    F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
{
    type Slot = NativeSlot<F>;

    async fn start_slot(&self, _number: usize) -> Result<Self::Slot, String> {
        Ok(NativeSlot(self.0.clone()))
    }
}

/// A slot that calls a native function.
pub struct NativeSlot<F>(Arc<F>);

impl<F> Slot for NativeSlot<F>
where
    F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
{
    async fn call(&mut self, items: &[Item], info: CallInfo) -> CallReport {
        let started = Instant::now();
        let end = (self.0)(items, info).await;
        CallReport {
            unanswered: false,
            dead: matches!(end, CallEnd::Trapped(_) | CallEnd::TimedOut(_)),
            end,
            breached: false,
            elapsed: started.elapsed(),
            bytes: None,
        }
    }

    async fn describe(&mut self, _items: &[Item]) -> Option<String> {
        None
    }

    fn is_dead(&self) -> bool {
        false
    }
}
