//! A loaded component at work for one job, with what all its slots share.

use super::call::Services;
use super::component::Component;
use super::guest_log::JobLog;
use super::http::Client;
use super::slot::WasmSlot;
use super::state::Shared;
use super::text::Secrets;
use crate::slot::{CallInfo, CallServices, Plugin};
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
pub struct WasmPlugin {
    work: Arc<Work>,
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
        Self {
            work: Arc::new(Work {
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
        WasmSlot::start(&self.work, number).await
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
