//! Hands `[sandbox]`, `[config]` and what `[rate_limit]` says of HTTP to the sandbox.

use crate::config;
use crate::wasm::{ConfigValue, Dir, SandboxConfig, own_program};
use std::path::PathBuf;
use std::time::Duration;

/// What the sandbox allows a job's component.
pub fn sandbox_config(job: &config::Job, cache_dir: Option<PathBuf>) -> SandboxConfig {
    let seconds = Duration::from_secs_f64;
    let (sandbox, rate_limit) = (&job.sandbox, &job.rate_limit);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    SandboxConfig {
        memory: sandbox.memory,
        call_timeout: seconds(sandbox.call_timeout),
        cpu_timeout: seconds(sandbox.cpu_timeout),
        max_stack: size(sandbox.max_stack),
        max_table_elements: sandbox.max_table_elements as usize,
        max_tables: sandbox.max_tables as usize,
        max_instances: sandbox.max_instances as usize,
        max_resources: sandbox.max_resources as usize,
        max_component_bytes: sandbox.max_component_bytes,
        max_compile_memory: sandbox.max_compile_memory,
        max_compile_time: seconds(sandbox.max_compile_time),
        max_error_bytes: size(sandbox.max_error_bytes),
        max_partial_items: sandbox.max_partial_items as usize,
        max_log_line: size(sandbox.max_log_line),
        max_log_lines_per_sec: sandbox.max_log_lines_per_sec,
        max_header_bytes: size(sandbox.max_header_bytes),
        max_random_bytes: sandbox.max_random_bytes,
        max_calls_per_instance: sandbox.max_calls_per_instance,
        max_instance_memory: sandbox.max_instance_memory,
        calls_per_instance: sandbox.calls_per_instance,
        allow_hosts: sandbox
            .allow_hosts
            .iter()
            .map(|entry| entry.text.clone())
            .collect(),
        ca_file: sandbox.ca_file.clone(),
        connect_timeout: seconds(sandbox.connect_timeout),
        idle_timeout: seconds(sandbox.idle_timeout),
        max_connections_per_host: sandbox.max_connections_per_host as usize,
        watch_http: rate_limit.watch_http,
        count_http_bytes: rate_limit.count_http_bytes,
        dirs: sandbox
            .dirs
            .iter()
            .map(|dir| Dir {
                host: dir.host.clone(),
                guest: dir.guest.clone(),
                writable: dir.writable,
            })
            .collect(),
        env: sandbox.env.iter().map(|entry| entry.text.clone()).collect(),
        sockets: sandbox.sockets,
        config: job
            .config
            .values()
            .iter()
            .map(|(key, value)| ConfigValue {
                key: key.clone(),
                value: value.reveal().to_owned(),
                secret: value.is_secret(),
            })
            .collect(),
        cache_dir,
        compiler: own_program(),
        ..SandboxConfig::default()
    }
}
