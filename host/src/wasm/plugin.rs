//! A loaded component at work for one job, with what all its slots share.

use super::call::Services;
use super::component::{Component, Exports, SyncExports};
use super::concurrent::{Instances, SharedSlot};
use super::guest_log::JobLog;
use super::http::Client;
use super::slot::OwnSlot;
use super::state::Shared;
use super::text::Secrets;
use crate::item::Item;
use crate::slot::{CallInfo, CallReport, CallServices, Plugin, Slot};
use std::sync::Arc;

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
pub struct WasmPlugin(PluginKind);

enum PluginKind {
    /// Of the sync world.
    Own {
        work: Arc<Work>,
        exports: SyncExports,
    },
    /// Of the async world.
    Shared(Arc<Instances>),
}

/// A slot: an instance of its own, or a seat on one that it shares.
pub struct WasmSlot(SlotKind);

enum SlotKind {
    Own(Box<OwnSlot>),
    Shared(SharedSlot),
}

/// What a plugin's slots share.
pub(super) struct Work {
    pub(super) component: Arc<Component>,
    pub(super) label: Arc<str>,
    pub(super) run_id: Arc<str>,
    pub(super) key_salt: String,
    pub(super) services: Arc<dyn Services>,
    pub(super) shared: Shared,
    pub(super) log: Arc<JobLog>,
    pub(super) secrets: Secrets,
}

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
            client: Client::new(Arc::clone(&job.label), &component.client, &sandbox),
            config: Arc::new(values.collect()),
            env: component.env.clone(),
            sandbox: Arc::clone(&sandbox),
        };
        let log = JobLog::new(Arc::clone(&job.label), secrets.clone(), &sandbox);
        let exports = component.exports.clone();
        let work = Arc::new(Work {
            component,
            label: job.label,
            run_id: job.run_id,
            key_salt: job.key_salt,
            services: job.services,
            shared,
            log,
            secrets,
        });
        Self(match exports {
            Exports::Sync(exports) => PluginKind::Own { work, exports },
            Exports::Async(exports) => PluginKind::Shared(Instances::new(work, exports)),
        })
    }
}

impl Plugin for WasmPlugin {
    type Slot = WasmSlot;

    async fn start_slot(&self, number: usize) -> Result<WasmSlot, String> {
        Ok(WasmSlot(match &self.0 {
            PluginKind::Own { work, exports } => {
                SlotKind::Own(Box::new(OwnSlot::start(work, exports, number).await?))
            }
            PluginKind::Shared(instances) => SlotKind::Shared(SharedSlot::start(instances).await?),
        }))
    }
}

impl Slot for WasmSlot {
    async fn call(&mut self, items: &[Item], info: CallInfo) -> CallReport {
        match &mut self.0 {
            SlotKind::Own(slot) => slot.call(items, info).await,
            SlotKind::Shared(slot) => slot.call(items, info).await,
        }
    }

    async fn describe(&mut self, items: &[Item]) -> Option<String> {
        match &mut self.0 {
            SlotKind::Own(slot) => slot.describe(items).await,
            // Its world has no describer.
            SlotKind::Shared(_) => None,
        }
    }

    fn is_dead(&self) -> bool {
        match &self.0 {
            SlotKind::Own(slot) => slot.is_dead(),
            SlotKind::Shared(slot) => slot.is_dead(),
        }
    }
}

impl Work {
    /// What `call-info` says while there is no call.
    pub(super) fn no_call(&self) -> CallInfo {
        CallInfo {
            label: Arc::clone(&self.label),
            run_id: Arc::clone(&self.run_id),
            call_number: 0,
            workers: 0,
            batch_size: 0,
        }
    }
}
