//! What the sandbox holds: its limits, the network, and what it lets out of a guest.

mod cache;
mod calls;
mod concurrent;
mod given;
mod hostile;
mod http;
mod leak;
mod loading;
mod measure;
mod network;
mod program;
mod server;

use crate::support::{guest, target};
use batchgate::item::{Item, Key};
use batchgate::slot::{CallInfo, CallReport, CallServices, Plugin, Slot};
use batchgate::wasm::{Component, ConfigValue, Job, SandboxConfig, WasmPlugin};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::Instant;

/// A job's services that count.
#[derive(Default)]
struct Services {
    breaches: AtomicUsize,
    retry_after_ms: AtomicU64,
    bytes: AtomicU64,
    requests: AtomicUsize,
    /// How long each request waits for its permission.
    wait_ms: u64,
}

impl CallServices for Services {
    fn report_breach(&self, _: Instant, retry_after: Option<Duration>) -> Duration {
        self.breaches.fetch_add(1, SeqCst);
        let cooldown = retry_after.unwrap_or(Duration::from_secs(60));
        self.retry_after_ms
            .store(u64::try_from(cooldown.as_millis()).unwrap(), SeqCst);
        cooldown
    }

    fn record_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, SeqCst);
    }

    fn is_backing_off(&self) -> bool {
        self.breaches.load(SeqCst) > 0
    }

    async fn http_request(&self) {
        if self.wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.wait_ms)).await;
        }
        self.requests.fetch_add(1, SeqCst);
    }
}

/// Loads a component. Its code is kept from test to test.
fn load(path: &Path, sandbox: &SandboxConfig) -> Arc<Component> {
    let kept = target().join("sandbox-cache");
    let sandbox = &SandboxConfig {
        cache_dir: sandbox.cache_dir.clone().or(Some(kept)),
        ..sandbox.clone()
    };
    Arc::new(Component::load(path, sandbox).unwrap_or_else(|error| panic!("{error}")))
}

fn plugin_with(component: Arc<Component>, services: Arc<Services>) -> WasmPlugin {
    let job = Job {
        label: "orders".into(),
        run_id: "run-1".into(),
        key_salt: String::new(),
        services,
    };
    WasmPlugin::new(component, job)
}

/// The guest of this name at work.
fn plugin(name: &str, sandbox: &SandboxConfig) -> WasmPlugin {
    plugin_with(load(&guest(name), sandbox), Arc::default())
}

/// One slot of the guest of this name.
async fn slot(name: &str, sandbox: &SandboxConfig) -> impl Slot + use<> {
    plugin(name, sandbox)
        .start_slot(0)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

fn info(call_number: u32) -> CallInfo {
    CallInfo {
        label: "orders".into(),
        run_id: "run-1".into(),
        call_number,
        workers: 3,
        batch_size: 7,
    }
}

/// Items with these data.
fn items(data: &[&str]) -> Vec<Item> {
    let item = |(index, data): (usize, &&str)| Item {
        index: index as u64,
        key: Key::Index,
        data: data.as_bytes().to_vec().into(),
    };
    data.iter().enumerate().map(item).collect()
}

/// A call that does what the `scripted` guest is told.
async fn call(slot: &mut impl Slot, script: &str) -> CallReport {
    slot.call(&items(&[script]), info(1)).await
}

fn config(key: &str, value: &str, secret: bool) -> ConfigValue {
    ConfigValue {
        key: key.to_owned(),
        value: value.to_owned(),
        secret,
    }
}

/// A runtime like the host's.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
