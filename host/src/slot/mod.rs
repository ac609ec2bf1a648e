//! A slot is a place for one call in flight. This module says what the flow needs of
//! whatever runs the calls, and keeps the idle slots.
//!
//! The flow knows these traits alone: a component ([`crate::wasm`]), a native function or
//! a fake in a test stand behind them.

mod native;
mod pool;

pub use native::{Native, NativeCall, NativeSlot};
pub use pool::Pool;

use crate::item::Item;
use batchgate_policy::outcome::CallEnd;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a call can know of itself (`call-info` in the WIT).
#[derive(Debug, Clone)]
pub struct CallInfo {
    /// The job's label.
    pub label: Arc<str>,
    /// The run's id.
    pub run_id: Arc<str>,
    /// Counts an attempt's calls, from 1.
    pub call_number: u32,
    /// The setting that the batch was dispatched under.
    pub workers: u32,
    /// See `workers`.
    pub batch_size: u32,
}

/// How a call went, as the slot saw it.
#[derive(Debug)]
pub struct CallReport {
    /// How it ended.
    pub end: CallEnd,
    /// A breach was learned during the call, other than by its answer: reported by the guest
    /// or seen on the wire.
    pub breached: bool,
    /// Wall-clock time of the call, without waits on our own limiter.
    pub elapsed: Duration,
    /// Bytes that the call sent and received, if the host counted them.
    pub bytes: Option<u64>,
    /// A request of the call was sent and not answered in full, as far as the host saw.
    pub unanswered: bool,
    /// The slot cannot serve another call and must be dropped.
    pub dead: bool,
}

impl CallReport {
    /// No instance could be made: nothing was sent, so the batch is sent again after a pause.
    pub(crate) fn cannot_start(reason: &str) -> Self {
        Self {
            end: CallEnd::Failed {
                message: format!("cannot make an instance: {reason}"),
                retryable: true,
            },
            breached: false,
            elapsed: Duration::ZERO,
            bytes: None,
            unanswered: false,
            dead: true,
        }
    }
}

/// What a call may ask of its job while it runs. Implemented by the job's limiter.
pub trait CallServices: Send + Sync + 'static {
    /// The server refused a call that started at `call_started` for our rate. Starts or
    /// extends the shared cooldown and returns its length.
    fn report_breach(&self, call_started: Instant, retry_after: Option<Duration>) -> Duration;
    /// Counts bytes against the bytes-per-minute cap.
    fn record_bytes(&self, bytes: u64);
    /// Whether a cooldown is running.
    fn is_backing_off(&self) -> bool;
    /// Waits for permission to start one HTTP request (`scope = "http"`); at once otherwise.
    fn http_request(&self) -> impl Future<Output = ()> + Send;
}

/// A slot: runs one call at a time, many in its life.
pub trait Slot: Send + 'static {
    /// Runs one call over `items`, to its end or to one of its limits. Never fails: whatever
    /// happens is an end.
    fn call(&mut self, items: &[Item], info: CallInfo) -> impl Future<Output = CallReport> + Send;
    /// The guest's own description of a batch, if it has a describer and that answered in time.
    fn describe(&mut self, items: &[Item]) -> impl Future<Output = Option<String>> + Send;
    /// Whether the slot must be dropped rather than used again, after a description that went wrong.
    fn is_dead(&self) -> bool;
}

/// What makes slots: a loaded plugin.
pub trait Plugin: Send + Sync + 'static {
    /// Its slots.
    type Slot: Slot;
    /// Makes a slot with a fresh instance. The number counts the slots of a run, from 0, and names
    /// it in logs. An error is a line that says what failed.
    fn start_slot(&self, number: usize) -> impl Future<Output = Result<Self::Slot, String>> + Send;
}
