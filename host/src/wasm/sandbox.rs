//! What one job's component may use and reach, as plain values.
//!
//! Everything is denied or bounded unless a field says otherwise. Sizes are in bytes.

use super::http::{Resolver, SystemResolver};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the sandbox allows one job's component. The keys of `[sandbox]` in a job file.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Most memory of one instance: its linear memories and tables together.
    pub memory: u64,
    /// Wall clock for one call, blocked or not, without waits on our own limiter.
    pub call_timeout: Duration,
    /// The guest's own compute in one call.
    pub cpu_timeout: Duration,
    /// Stack of a call.
    pub max_stack: usize,
    /// Elements of one table.
    pub max_table_elements: usize,
    /// Tables of one instance.
    pub max_tables: usize,
    /// Core instances that make up one instance.
    pub max_instances: usize,
    /// Handles that an instance may hold at a time, for each call that it may run. With
    /// `max_header_bytes` it bounds what one instance takes of the host's memory beside its own.
    pub max_resources: usize,
    /// Size of the component file.
    pub max_component_bytes: u64,
    /// Memory that compiling the component may take, where it has a process of its own.
    pub max_compile_memory: u64,
    /// Wall clock for compiling the component, where it has a process of its own.
    pub max_compile_time: Duration,
    /// Length of one returned error text; the rest is cut.
    pub max_error_bytes: usize,
    /// Entries of a partial answer. A longer one ends the call as a trap, for cutting it would
    /// count failed items as written.
    pub max_partial_items: usize,
    /// Length of one log line; the rest is cut.
    pub max_log_line: usize,
    /// Log lines a second, all slots of the job together; the surplus is counted and said once.
    pub max_log_lines_per_sec: u32,
    /// Header fields of one HTTP request or response, together.
    pub max_header_bytes: usize,
    /// Random bytes that one request for them may ask.
    pub max_random_bytes: u64,
    /// Replaces an instance after so many calls.
    pub max_calls_per_instance: Option<u64>,
    /// Replaces an instance whose memory exceeds this after a call. None means half of `memory`,
    /// so that a guest that leaks is replaced before it fails.
    pub max_instance_memory: Option<u64>,
    /// Calls in flight on one instance of the async world.
    pub calls_per_instance: u32,
    /// Where HTTP requests may go; see [`super::http::AllowList`] for the forms.
    pub allow_hosts: Vec<String>,
    /// Trusts these root certificates (PEM) beside the public ones.
    pub ca_file: Option<PathBuf>,
    /// Time to reach a server, its TLS handshake included.
    pub connect_timeout: Duration,
    /// Time after which an unused connection is closed.
    pub idle_timeout: Duration,
    /// Requests, and so connections, to one host at a time, by all slots together.
    pub max_connections_per_host: usize,
    /// A 429, or a 503 with Retry-After, seen on the wire starts the shared cooldown.
    pub watch_http: bool,
    /// The host counts the bytes of HTTP traffic itself.
    pub count_http_bytes: bool,
    /// Folders of the host that the guest sees.
    pub dirs: Vec<Dir>,
    /// Environment variables of the host that the guest sees, by name.
    pub env: Vec<String>,
    /// Whether `wasi:sockets` reaches anything: the addresses and networks in `allow_hosts`.
    pub sockets: bool,
    /// The values read through `wasi:config`.
    pub config: Vec<ConfigValue>,
    /// Where compiled code is kept; none means to compile every time.
    pub cache_dir: Option<PathBuf>,
    /// The program that compiles components in a process of its own, by its command `compile`; none
    /// compiles in this one.
    pub compiler: Option<PathBuf>,
    /// Looks up host names. Replaced in tests alone.
    pub resolver: Arc<dyn Resolver>,
}

/// A folder of the host that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dir {
    /// The folder.
    pub host: PathBuf,
    /// Its absolute path for the guest.
    pub guest: String,
    /// Whether the guest may write there.
    pub writable: bool,
}

/// One value of `[config]`.
#[derive(Clone)]
pub struct ConfigValue {
    /// Its key.
    pub key: String,
    /// What the guest reads.
    pub value: String,
    /// Taken from the host's environment: never shown. The host also strikes it out of whatever text the
    /// guest hands back.
    pub secret: bool,
}

impl std::fmt::Debug for ConfigValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = if self.secret { "(secret)" } else { &self.value };
        write!(f, "{} = {value:?}", self.key)
    }
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            call_timeout: Duration::from_secs(120),
            cpu_timeout: Duration::from_secs(10),
            max_stack: 1 << 20,
            max_table_elements: 100_000,
            max_tables: 100,
            max_instances: 100,
            max_resources: 1000,
            max_component_bytes: 128 << 20,
            max_compile_memory: 2 << 30,
            max_compile_time: Duration::from_secs(120),
            max_error_bytes: 16 << 10,
            max_partial_items: 100_000,
            max_log_line: 8 << 10,
            max_log_lines_per_sec: 100,
            max_header_bytes: 16 << 10,
            max_random_bytes: 1 << 20,
            max_calls_per_instance: None,
            max_instance_memory: None,
            calls_per_instance: 1,
            allow_hosts: Vec::new(),
            ca_file: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            max_connections_per_host: 10_000,
            watch_http: true,
            count_http_bytes: true,
            dirs: Vec::new(),
            env: Vec::new(),
            sockets: false,
            config: Vec::new(),
            cache_dir: None,
            compiler: None,
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}

impl SandboxConfig {
    /// The memory beyond which an instance is replaced between calls.
    pub(super) fn recycle_above(&self) -> u64 {
        self.max_instance_memory.unwrap_or(self.memory / 2)
    }
}
