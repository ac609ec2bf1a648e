//! What a guest's answer, or the lack of one, means to the flow.

use super::bindings::types::BatchError;
use super::limits::Refused;
use super::sandbox::SandboxConfig;
use super::size::{seconds, size};
use super::state::MAX_ANSWER_BYTES;
use super::text::{Secrets, cut};
use batchgate_policy::outcome::{CallEnd, ItemFailure};
use std::time::Duration;
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi_http::FieldMapError;

/// Turns a guest's answer into a call's end.
pub(super) fn answered(
    answer: Result<u64, BatchError>,
    sandbox: &SandboxConfig,
    secrets: &Secrets,
) -> CallEnd {
    let shown = |text| cut(secrets.strike(text), sandbox.max_error_bytes, 0);
    match answer {
        Ok(written) => CallEnd::Written(written),
        Err(BatchError::Failed(failure)) => CallEnd::Failed {
            message: shown(failure.message),
            retryable: failure.retryable,
        },
        Err(BatchError::Fatal(message)) => CallEnd::Fatal(shown(message)),
        Err(BatchError::TooLarge(message)) => CallEnd::TooLarge(shown(message)),
        Err(BatchError::RateLimited(limit)) => CallEnd::RateLimited {
            message: shown(limit.message),
            retry_after: limit.retry_after_ms.map(Duration::from_millis),
        },
        Err(BatchError::Partial(failures)) if failures.len() > sandbox.max_partial_items => {
            CallEnd::Trapped(format!(
                "the plugin's partial answer has {} entries, more than {} (max_partial_items)",
                failures.len(),
                sandbox.max_partial_items
            ))
        }
        Err(BatchError::Partial(failures)) => CallEnd::Partial(
            failures
                .into_iter()
                .map(|failure| ItemFailure {
                    index: failure.index,
                    message: shown(failure.message),
                    retryable: failure.retryable,
                })
                .collect(),
        ),
    }
}

/// Why a guest ended without an answer. Names the limit and its value where it exceeded one.
pub(super) fn trap_reason(
    error: &wasmtime::Error,
    cpu_exceeded: bool,
    refused: Option<Refused>,
    sandbox: &SandboxConfig,
    secrets: &Secrets,
) -> String {
    if cpu_exceeded {
        return format!("cpu_timeout of {} exceeded", seconds(sandbox.cpu_timeout));
    }
    let cause = error.root_cause().to_string();
    if let Some(Trap::StackOverflow) = error.downcast_ref() {
        return format!(
            "stack limit of {} exceeded (max_stack)",
            size(sandbox.max_stack as u64)
        );
    }
    // wasmtime gives this one no public type, nor some below.
    if cause.contains("fuel allocated for hostcalls") {
        return format!(
            "answer limit of {} exceeded: the plugin hands over too much at once",
            size(MAX_ANSWER_BYTES as u64)
        );
    }
    if cause.contains("table count too high") {
        return format!(
            "limit of {} tables exceeded (max_tables)",
            sandbox.max_tables
        );
    }
    for what in ["instance", "memory"] {
        if cause.contains(&format!("{what} count too high")) {
            let limit = sandbox.max_instances;
            return format!("limit of {limit} core instances or memories exceeded (max_instances)");
        }
    }
    let full = matches!(error.downcast_ref(), Some(ResourceTableError::Full))
        || cause.contains("handle limit exceeded");
    if full {
        return format!(
            "limit of {} open handles exceeded (max_resources)",
            sandbox.max_resources
        );
    }
    if let Some(FieldMapError::TooManyFields | FieldMapError::TotalSizeTooBig) =
        error.downcast_ref()
    {
        let limit = size(sandbox.max_header_bytes as u64);
        return format!("limit of {limit} of header fields exceeded (max_header_bytes)");
    }
    if cause.starts_with("requested len") {
        let limit = size(sandbox.max_random_bytes);
        return format!("limit of {limit} of randomness at once exceeded (max_random_bytes)");
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return format!(
            "the plugin exited with code {} instead of answering",
            exit.0
        );
    }
    let cause = cut(secrets.strike(cause), sandbox.max_error_bytes, 0);
    match refused {
        Some(refused) => format!("{refused}: {cause}"),
        None => cause,
    }
}

/// What is said of a call that did not end in time.
pub(super) fn late_reason(limit: Duration) -> String {
    format!("call_timeout of {} exceeded", seconds(limit))
}
