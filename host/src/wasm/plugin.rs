//! A loaded component at work for one job: it makes the slots, and a slot runs the calls.

use super::answer::{answered, late_reason, trap_reason};
use super::bindings::types::Item as GuestItem;
use super::bindings::{describer, processor};
use super::call::{Call, Services};
use super::component::{Component, Exports};
use super::engine::Place;
use super::guest_log::{GuestOutput, JobLog};
use super::http::Client;
use super::meter::{Late, Meter, Timer, run, timer};
use super::state::{Shared, State, store};
use super::text::{Secrets, cut};
use crate::item::{Item, Key};
use crate::slot::{CallInfo, CallReport, CallServices, Plugin, Slot};
use batchgate_policy::outcome::CallEnd;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Store;

/// What a component works for.
pub struct Job<S> {
    /// Prefix of log lines.
    pub label: Arc<str>,
    /// The run's id.
    pub run_id: Arc<str>,
    /// Sets this job's idempotency keys apart from those of another that sends the same items. The
    /// same when the run is resumed.
    pub key_salt: String,
    /// What a call may ask of the job.
    pub services: Arc<S>,
}

/// A loaded component at work for one job.
pub struct WasmPlugin {
    inner: Arc<Inner>,
}

struct Inner {
    component: Arc<Component>,
    label: Arc<str>,
    run_id: Arc<str>,
    key_salt: String,
    services: Arc<dyn Services>,
    shared: Shared,
    log: Arc<JobLog>,
    secrets: Secrets,
}

/// Wall clock and compute of a description.
const DESCRIBE: Duration = Duration::from_secs(1);
/// Length of a description; the rest is cut.
const MAX_DESCRIPTION: usize = 64 << 10;
/// Calls between two looks at how many resources of the host a guest has left open.
const LOOK_AT_RESOURCES: u64 = 32;

impl WasmPlugin {
    /// Puts a component to work for a job.
    pub fn new<S: CallServices>(component: Arc<Component>, job: Job<S>) -> Self {
        let sandbox = Arc::clone(&component.sandbox);
        let secrets = Secrets::new(&sandbox.config);
        let values = sandbox
            .config
            .iter()
            .map(|value| (value.key.clone(), value.value.clone()));
        let shared = Shared {
            allow: Arc::clone(&component.allow),
            client: Client::new(Arc::clone(&job.label), &component.client, &sandbox),
            config: Arc::new(values.collect()),
            env: component.env.clone(),
            sandbox: Arc::clone(&sandbox),
        };
        let log = JobLog::new(Arc::clone(&job.label), secrets.clone(), &sandbox);
        Self {
            inner: Arc::new(Inner {
                component,
                label: job.label,
                run_id: job.run_id,
                key_salt: job.key_salt,
                services: job.services,
                shared,
                log,
                secrets,
            }),
        }
    }
}

impl Plugin for WasmPlugin {
    type Slot = WasmSlot;

    async fn start_slot(&self, number: usize) -> Result<WasmSlot, String> {
        Inner::start(&self.inner, number).await
    }
}

impl Inner {
    async fn start(this: &Arc<Self>, number: usize) -> Result<WasmSlot, String> {
        let component = &this.component;
        let sandbox = &component.sandbox;
        let named = |problem: String| format!("component {}: {problem}", component.path.display());
        let Exports::Sync {
            pre,
            processor,
            describer,
            asks_call,
        } = component.exports.clone()
        else {
            return Err(named(
                "is of the async world, which this host does not run yet".to_owned(),
            ));
        };
        let place = Place::take(component.bytes).map_err(named)?;
        let stdout = GuestOutput::new(Arc::clone(&this.log), number);
        let stderr = GuestOutput::new(Arc::clone(&this.log), number);
        let call = Call::start(this.no_call(), String::new(), Arc::clone(&this.services));
        let mut store = store(
            &component.engine,
            &this.shared,
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
            pre.instantiate_async(&mut store),
        )
        .await;
        let instance = match started {
            Ok(Ok(instance)) => instance,
            Ok(Err(error)) => {
                store.data().end_lines();
                let refused = store.data().limits.refused();
                let reason = trap_reason(&error, meter.exceeded(), refused, sandbox, &this.secrets);
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
        Ok(WasmSlot {
            plugin: Arc::clone(this),
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

    /// What `call-info` says while there is no call.
    fn no_call(&self) -> CallInfo {
        CallInfo {
            label: Arc::clone(&self.label),
            run_id: Arc::clone(&self.run_id),
            call_number: 0,
            workers: 0,
            batch_size: 0,
        }
    }

    /// The same for the same items, whenever and wherever they are sent.
    fn idempotency_key(&self, items: &[Item]) -> String {
        let mut sum = Sha256::new();
        let mut add = |bytes: &[u8]| {
            // With its length, so that no two lists of texts are the same bytes.
            sum.update((bytes.len() as u64).to_le_bytes());
            sum.update(bytes);
        };
        add(self.label.as_bytes());
        add(self.key_salt.as_bytes());
        for item in items {
            add(&item.index.to_le_bytes());
            add(item.key().as_bytes());
            add(&item.data);
        }
        let mut key = String::with_capacity(32);
        for byte in &sum.finalize()[..16] {
            let _ = write!(key, "{byte:02x}");
        }
        key
    }
}

/// One instance, which runs one call at a time.
pub struct WasmSlot {
    plugin: Arc<Inner>,
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

impl WasmSlot {
    /// Runs `activity` in the guest. The slot is dead unless it comes to its end.
    async fn process(&mut self, items: &[GuestItem<'_>], call: &Call) -> CallEnd {
        let sandbox = &self.plugin.component.sandbox;
        let limit = sandbox.call_timeout;
        let activity = self.processor.call_process_batch(&mut self.store, items);
        let ran = run(&self.meter, call, limit, &mut self.timer, activity).await;
        match ran {
            Ok(Ok(answer)) => answered(answer, sandbox, &self.plugin.secrets),
            Ok(Err(error)) => {
                let refused = self.store.data().limits.refused();
                let exceeded = self.meter.exceeded();
                CallEnd::Trapped(trap_reason(
                    &error,
                    exceeded,
                    refused,
                    sandbox,
                    &self.plugin.secrets,
                ))
            }
            Err(Late) => CallEnd::TimedOut(late_reason(limit)),
        }
    }

    /// Whether the instance has served its time, or holds more than it should between calls.
    fn is_worn(&mut self) -> bool {
        let sandbox = &self.plugin.component.sandbox;
        if sandbox
            .max_calls_per_instance
            .is_some_and(|most| self.calls >= most)
        {
            return true;
        }
        // An instance that starts out so large would be replaced forever and be no smaller for it.
        let used = self.store.data().limits.used();
        if used > sandbox.recycle_above().max(self.fresh_memory) {
            return true;
        }
        self.calls.is_multiple_of(LOOK_AT_RESOURCES)
            && self.store.data_mut().resources() > sandbox.max_resources / 2
    }
}

impl Slot for WasmSlot {
    async fn call(&mut self, items: &[Item], info: CallInfo) -> CallReport {
        let key = if self.asks_call {
            self.plugin.idempotency_key(items)
        } else {
            String::new()
        };
        let call = Call::start(info, key, Arc::clone(&self.plugin.services));
        if self.state != SlotState::Ready {
            // A flow that keeps a dead slot has a fault of its own; the call has not reached the guest.
            return report(
                &call,
                CallEnd::Abandoned("the slot's instance had ended before".to_owned()),
                false,
                true,
            );
        }
        self.state = SlotState::Running;
        self.calls += 1;
        self.store.data_mut().begin(Arc::clone(&call));
        let mut index_text = std::mem::take(&mut self.index_text);
        let end = self
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
        report(
            &call,
            end,
            self.plugin.shared.sandbox.count_http_bytes,
            dead,
        )
    }

    async fn describe(&mut self, items: &[Item]) -> Option<String> {
        let describer = self.describer.clone()?;
        if self.state != SlotState::Ready {
            return None;
        }
        self.state = SlotState::Running;
        let call = Call::start(
            self.plugin.no_call(),
            String::new(),
            Arc::clone(&self.plugin.services),
        );
        self.store.data_mut().begin(Arc::clone(&call));
        let mut index_text = std::mem::take(&mut self.index_text);
        let items = guest_items(items, &mut index_text);
        let activity = describer.call_describe_batch(&mut self.store, &items);
        let described = run(&self.meter, &call, DESCRIBE, &mut self.timer, activity).await;
        drop(items);
        self.index_text = index_text;
        self.store.data().end_lines();
        match described {
            Ok(Ok(text)) => {
                self.state = SlotState::Ready;
                Some(cut(self.plugin.secrets.strike(text), MAX_DESCRIPTION, 0))
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

fn report(call: &Call, end: CallEnd, counted: bool, dead: bool) -> CallReport {
    CallReport {
        end,
        breached: call.is_breached(),
        elapsed: call.elapsed(),
        bytes: counted.then(|| call.bytes()),
        dead,
    }
}

/// The items as the guest gets them, borrowed. `index_text` holds the keys of those without one.
fn guest_items<'a>(items: &'a [Item], index_text: &'a mut String) -> Vec<GuestItem<'a>> {
    index_text.clear();
    for item in items {
        if item.key == Key::Index {
            let _ = write!(index_text, "{}", item.index);
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
