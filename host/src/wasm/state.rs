//! What the host keeps for one instance, and what the instance may ask of it.

use super::bindings;
use super::call::Call;
use super::guest_log::GuestOutput;
use super::http::{Client, Hooks, Resolver};
use super::limits::Limits;
use super::sandbox::SandboxConfig;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use wasmtime::component::{GuestTaskId, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_config::WasiConfigVariables;
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// The state of one instance's store.
pub(super) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    http: WasiHttpCtx,
    hooks: Hooks,
    pub(super) config: Arc<WasiConfigVariables>,
    /// Looks up names for sockets, if the guest may have any.
    pub(super) resolver: Option<Arc<dyn Resolver>>,
    deadline_ms: u64,
    count_http_bytes: bool,
    /// Whom the guest's tasks work for, in the async world. A task's number is used again once it is gone, so
    /// there are no more of them than tasks at a time.
    callers: HashMap<GuestTaskId, Caller>,
    /// Guest time that was spent for no call: by start functions.
    start_ns: u64,
    pub(super) limits: Limits,
    stdout: GuestOutput,
    stderr: GuestOutput,
}

/// A call of the async world.
struct Caller {
    call: Arc<Call>,
    /// Guest time.
    spent_ns: u64,
}

/// What the instances of one job share.
pub(super) struct Shared {
    pub(super) sandbox: Arc<SandboxConfig>,
    pub(super) client: Arc<Client>,
    pub(super) config: Arc<WasiConfigVariables>,
    /// The values of `env`, by name.
    pub(super) env: Vec<(String, String)>,
}

/// Makes a store for one instance, its limits set. The call is what the guest's start functions run in.
pub(super) fn store(
    engine: &Engine,
    shared: &Shared,
    stdout: GuestOutput,
    stderr: GuestOutput,
    call: Arc<Call>,
) -> Result<Store<State>, String> {
    let sandbox = &shared.sandbox;
    let wasi = wasi(shared, &stdout, &stderr)?;
    let mut http = WasiHttpCtx::new();
    http.set_field_size_limit(sandbox.max_header_bytes);
    let mut table = ResourceTable::new();
    let calls = sandbox.calls_per_instance.max(1) as usize;
    let resources = sandbox.max_resources.saturating_mul(calls);
    table.set_max_capacity(resources);
    let requests = MAX_REQUESTS
        .saturating_mul(calls)
        .min(Semaphore::MAX_PERMITS);
    let turns = Arc::new(Semaphore::new(requests));
    let state = State {
        wasi,
        table,
        http,
        hooks: Hooks {
            client: Arc::clone(&shared.client),
            call,
            turns,
        },
        config: Arc::clone(&shared.config),
        resolver: sandbox.sockets.then(|| Arc::clone(&sandbox.resolver)),
        deadline_ms: u64::try_from(sandbox.call_timeout.as_millis()).unwrap_or(u64::MAX),
        count_http_bytes: sandbox.count_http_bytes,
        callers: HashMap::new(),
        start_ns: 0,
        limits: Limits::new(sandbox),
        stdout,
        stderr,
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limits);
    store.set_max_component_handles(resources);
    store.set_hostcall_fuel(MAX_ANSWER_BYTES);
    if let Some(tasks) = store.concurrent_resource_table() {
        // Of the async world: its tasks, streams and futures, which take a few entries each.
        tasks.set_max_capacity(resources.saturating_mul(4));
    }
    Ok(store)
}

/// HTTP requests that one call may have under way; more wait for their turn.
const MAX_REQUESTS: usize = 64;

/// Most that a guest may hand to the host at once, an answer included: what does not fit ends the call.
pub(super) const MAX_ANSWER_BYTES: usize = 16 << 20;

fn wasi(shared: &Shared, stdout: &GuestOutput, stderr: &GuestOutput) -> Result<WasiCtx, String> {
    let sandbox = &shared.sandbox;
    let mut wasi = WasiCtx::builder();
    wasi.stdout(stdout.clone())
        .stderr(stderr.clone())
        .max_random_size(sandbox.max_random_bytes)
        .envs(&shared.env);
    for dir in &sandbox.dirs {
        let permissions = if dir.writable {
            FsPerms::ReadWrite
        } else {
            FsPerms::ReadOnly
        };
        wasi.preopened_dir(&dir.host, &dir.guest, permissions)
            .map_err(|error| format!("dirs: {}: {}", dir.host.display(), error.root_cause()))?;
    }
    if sandbox.sockets {
        let client = Arc::clone(&shared.client);
        wasi.allow_tcp(true).allow_udp(true);
        wasi.socket_addr_check(move |address, purpose| {
            let allowed = match purpose {
                // Nothing may be listened on; a socket that connects binds to any address and port.
                SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => {
                    address.ip().is_unspecified() && address.port() == 0
                }
                _ => client.allows_socket(address),
            };
            Box::pin(std::future::ready(allowed))
        });
    }
    Ok(wasi.build())
}

impl State {
    /// Has the instance work for another call from now on.
    pub(super) fn begin(&mut self, call: Arc<Call>) {
        self.limits.forget();
        self.hooks.call = call;
    }

    /// Has a task of the guest work for a call from now on.
    pub(super) fn begin_task(&mut self, task: GuestTaskId, call: Arc<Call>) {
        self.limits.forget();
        self.callers.insert(task, Caller { call, spent_ns: 0 });
    }

    /// Has the host work for the call of a task until the next one asks something of it.
    pub(super) fn serve_task(&mut self, task: Option<GuestTaskId>) {
        if let Some(caller) = task.and_then(|task| self.callers.get(&task)) {
            self.hooks.call = Arc::clone(&caller.call);
        }
    }

    /// Charges guest time, in nanoseconds, to the call of a task, and returns what that call has spent.
    pub(super) fn charge(&mut self, task: Option<GuestTaskId>, spent_ns: u64) -> u64 {
        match task.and_then(|task| self.callers.get_mut(&task)) {
            Some(caller) => {
                caller.spent_ns = caller.spent_ns.saturating_add(spent_ns);
                caller.spent_ns
            }
            None => {
                self.start_ns = self.start_ns.saturating_add(spent_ns);
                self.start_ns
            }
        }
    }

    /// Writes what the guest has left unfinished in its log.
    pub(super) fn end_lines(&self) {
        self.stdout.end_line();
        self.stderr.end_line();
    }

    /// What the guest holds.
    pub(super) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    /// How many resources of the host the guest holds.
    pub(super) fn resources(&mut self) -> usize {
        self.table.iter_mut().count()
    }
}

impl bindings::types::Host for State {}

impl bindings::limiter::Host for State {
    fn report_breach(&mut self, retry_after_ms: Option<u64>) -> wasmtime::Result<u64> {
        let cooldown = self
            .hooks
            .call
            .report_breach(retry_after_ms.map(Duration::from_millis));
        Ok(u64::try_from(cooldown.as_millis()).unwrap_or(u64::MAX))
    }

    fn record_bytes(&mut self, bytes: u64) -> wasmtime::Result<()> {
        if self.count_http_bytes {
            self.hooks.client.say_bytes_ignored();
        } else {
            self.hooks.call.count_bytes(bytes);
        }
        Ok(())
    }

    fn is_backing_off(&mut self) -> wasmtime::Result<bool> {
        Ok(self.hooks.call.is_backing_off())
    }
}

impl bindings::call::Host for State {
    fn info(&mut self) -> wasmtime::Result<bindings::call::CallInfo> {
        let call = &self.hooks.call;
        let info = call.info();
        Ok(bindings::call::CallInfo {
            label: info.label.to_string(),
            run_id: info.run_id.to_string(),
            call_number: info.call_number,
            workers: info.workers,
            batch_size: info.batch_size,
            deadline_ms: self.deadline_ms,
            idempotency_key: call.idempotency_key().to_owned(),
        })
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            ctx: &mut self.http,
            table: &mut self.table,
            hooks: &mut self.hooks,
        }
    }
}
