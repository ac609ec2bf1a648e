//! One instance of a component, which runs one call at a time.
//!
//! Invariant: a slot whose instance ended in any other way than by an answer is dead, and runs
//! nothing again.

use super::answer::{answered, late_reason, trap_reason};
use super::bindings::types::Item as GuestItem;
use super::bindings::{describer, processor};
use super::call::Call;
use super::component::SyncExports;
use super::engine::Place;
use super::guest_log::GuestOutput;
use super::key::idempotency_key;
use super::meter::{Late, Meter, Timer, run, timer};
use super::plugin::Work;
use super::size::size;
use super::state::{State, store};
use super::text::cut;
use crate::item::{Item, Key};
use crate::slot::{CallInfo, CallReport, Slot};
use batchgate_policy::outcome::CallEnd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wasmtime::Store;

/// Wall clock and compute of a description.
const DESCRIBE: Duration = Duration::from_secs(1);
/// Length of a description; the rest is cut.
const MAX_DESCRIPTION: usize = 64 << 10;
/// Calls between two looks at how many resources of the host a guest has left open.
const LOOK_AT_RESOURCES: u64 = 32;

/// One instance, which runs one call at a time.
pub struct OwnSlot {
    work: Arc<Work>,
    store: Store<State>,
    processor: processor::Guest,
    describer: Option<describer::Guest>,
    asks_call: bool,
    meter: Arc<Meter>,
    timer: Timer,
    calls: u64,
    /// Memory before the first call.
    fresh_memory: u64,
    state: SlotState,
    /// The indexes of items without a key, as text. Kept for its space.
    index_text: String,
    _place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Ready,
    /// In guest code. Found so before a call, the one before was abandoned midway.
    Running,
    Dead,
}

impl OwnSlot {
    /// Makes the slot of this number with a fresh instance. The error is a line.
    pub(super) async fn start(
        work: &Arc<Work>,
        exports: &SyncExports,
        number: usize,
    ) -> Result<Self, String> {
        let component = &work.component;
        let sandbox = &component.sandbox;
        let named = |problem: String| format!("component {}: {problem}", component.path.display());
        let SyncExports {
            pre,
            processor,
            describer,
            asks_call,
        } = exports.clone();
        let place = Place::take(component.settings).map_err(named)?;
        let stdout = GuestOutput::new(Arc::clone(&work.log), number);
        let stderr = GuestOutput::new(Arc::clone(&work.log), number);
        let call = Call::start(work.no_call(), String::new(), Arc::clone(&work.services));
        let mut store = store(
            &component.engine,
            &work.shared,
            stdout,
            stderr,
            Arc::clone(&call),
        )
        .map_err(named)?;
        let meter = Meter::new(sandbox.cpu_timeout);
        meter.install(&mut store);

        let mut timer = timer();
        let started = run(
            &meter,
            &call,
            sandbox.call_timeout,
            &mut timer,
            pin!(pre.instantiate_async(&mut store)),
        )
        .await;
        store.data().end_lines();
        let instance = match started.result {
            Ok(Ok(instance)) => instance,
            Ok(Err(error)) => {
                let refused = store.data().limits.refused();
                let reason = trap_reason(&error, meter.exceeded(), refused, sandbox, &work.secrets);
                return Err(named(format!("cannot be started: {reason}")));
            }
            Err(Late) => {
                return Err(named(format!(
                    "cannot be started: {}",
                    late_reason(sandbox.call_timeout)
                )));
            }
        };
        let unfit = |error: wasmtime::Error| named(super::world::one_line(&error));
        let processor = processor.load(&mut store, &instance).map_err(unfit)?;
        let describer = describer
            .map(|describer| describer.load(&mut store, &instance))
            .transpose()
            .map_err(unfit)?;
        let fresh_memory = store.data().limits.used();
        Ok(Self {
            work: Arc::clone(work),
            store,
            processor,
            describer,
            asks_call,
            meter,
            timer,
            calls: 0,
            fresh_memory,
            state: SlotState::Ready,
            index_text: String::new(),
            _place: place,
        })
    }

    /// Runs a call in the guest: how it ended, and when.
    async fn process(&mut self, items: &[GuestItem<'_>], call: &Call) -> (CallEnd, Instant) {
        let sandbox = &self.work.component.sandbox;
        let limit = sandbox.call_timeout;
        let ran = {
            let activity = pin!(self.processor.call_process_batch(&mut self.store, items));
            run(&self.meter, call, limit, &mut self.timer, activity).await
        };
        let end = match ran.result {
            Ok(Ok(answer)) => answered(answer, sandbox, &self.work.secrets),
            Ok(Err(error)) => {
                let refused = self.store.data().limits.refused();
                let exceeded = self.meter.exceeded();
                CallEnd::Trapped(trap_reason(
                    &error,
                    exceeded,
                    refused,
                    sandbox,
                    &self.work.secrets,
                ))
            }
            Err(Late) => CallEnd::TimedOut(late_reason(limit)),
        };
        (end, ran.at)
    }

    /// Whether the instance has served its time, or holds more than it should between calls.
    fn is_worn(&mut self) -> bool {
        let resources = if self.calls.is_multiple_of(LOOK_AT_RESOURCES) {
            self.store.data_mut().resources()
        } else {
            0
        };
        let sandbox = &self.work.component.sandbox;
        let most_calls = sandbox.max_calls_per_instance.unwrap_or(u64::MAX);
        // An instance that starts out so large would be replaced forever and be no smaller for it.
        let most_memory = sandbox.recycle_above().max(self.fresh_memory);
        let memory = self.store.data().limits.used();
        let worn = self.calls >= most_calls
            || memory > most_memory
            || resources > sandbox.max_resources / 2;
        if worn {
            tracing::debug!(
                label = %self.work.label,
                "an instance is replaced after {} calls: it holds {} of memory (max_instance_memory: {})",
                self.calls,
                size(memory),
                size(sandbox.recycle_above())
            );
        }
        worn
    }
}

impl Slot for OwnSlot {
    async fn call(&mut self, items: &[Item], info: CallInfo) -> CallReport {
        let key = if self.asks_call {
            idempotency_key(&self.work.label, &self.work.key_salt, items)
        } else {
            String::new()
        };
        let call = Call::start(info, key, Arc::clone(&self.work.services));
        if self.state != SlotState::Ready {
            // A flow that keeps a dead slot has a fault of its own; the call has not reached the guest.
            let end = CallEnd::Abandoned("the slot's instance had ended before".to_owned());
            return call.report(end, call.started(), false, true);
        }
        self.state = SlotState::Running;
        self.calls += 1;
        self.store.data_mut().begin(Arc::clone(&call));
        let mut index_text = std::mem::take(&mut self.index_text);
        let (end, at) = self
            .process(&guest_items(items, &mut index_text), &call)
            .await;
        self.index_text = index_text;
        self.store.data().end_lines();
        let dead = matches!(end, CallEnd::Trapped(_) | CallEnd::TimedOut(_)) || self.is_worn();
        self.state = if dead {
            SlotState::Dead
        } else {
            SlotState::Ready
        };
        let counted = self.work.shared.sandbox.count_http_bytes;
        call.report(end, at, counted, dead)
    }

    async fn describe(&mut self, items: &[Item]) -> Option<String> {
        let describer = self.describer.clone()?;
        if self.state != SlotState::Ready {
            return None;
        }
        self.state = SlotState::Running;
        let call = Call::start(
            self.work.no_call(),
            String::new(),
            Arc::clone(&self.work.services),
        );
        self.store.data_mut().begin(Arc::clone(&call));
        let mut index_text = std::mem::take(&mut self.index_text);
        let items = guest_items(items, &mut index_text);
        let described = {
            let activity = pin!(describer.call_describe_batch(&mut self.store, &items));
            run(&self.meter, &call, DESCRIBE, &mut self.timer, activity).await
        };
        drop(items);
        self.index_text = index_text;
        self.store.data().end_lines();
        match described.result {
            Ok(Ok(text)) => {
                self.state = SlotState::Ready;
                Some(cut(self.work.secrets.strike(text), MAX_DESCRIPTION, 0))
            }
            Ok(Err(_)) | Err(Late) => {
                self.state = SlotState::Dead;
                None
            }
        }
    }

    fn is_dead(&self) -> bool {
        self.state != SlotState::Ready
    }
}

/// The items as the guest gets them, borrowed. `index_text` holds the keys of those without one.
fn guest_items<'a>(items: &'a [Item], index_text: &'a mut String) -> Vec<GuestItem<'a>> {
    index_text.clear();
    let mut digits = itoa::Buffer::new();
    for item in items {
        if item.key == Key::Index {
            index_text.push_str(digits.format(item.index));
        }
    }
    let mut rest = index_text.as_str();
    items
        .iter()
        .map(|item| {
            let key = match &item.key {
                Key::Text(text) => text,
                Key::Index => {
                    let (key, after) = rest.split_at(decimal_digits(item.index));
                    rest = after;
                    key
                }
            };
            GuestItem {
                index: item.index,
                key,
                data: &item.data,
            }
        })
        .collect()
}

fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
