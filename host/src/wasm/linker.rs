//! What a component may import, by its world.

use super::bindings;
use super::files::{only_files, only_files_async};
use super::http::{bound, bound_async};
use super::lookups::{in_turn, in_turn_async};
use super::state::State;
use super::world::World;
use wasmtime::component::{Accessor, HasSelf, Linker, Resource};
use wasmtime::{Engine, StoreContextMut};
use wasmtime_wasi_config::WasiConfig;
use wasmtime_wasi_http::p2::bindings::http::outgoing_handler::Host as _;
use wasmtime_wasi_http::p2::bindings::http::types as p2;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_http::p3::bindings::http::client::HostWithStore as _;
use wasmtime_wasi_http::p3::bindings::http::types as p3;
use wasmtime_wasi_http::{RequestOptions, WasiHttp, WasiHttpView as _};

/// Everything that a component of a world may import.
pub(super) fn linker(engine: &Engine, world: World) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    bound(&mut linker)?;
    only_files(&mut linker)?;
    in_turn(&mut linker)?;
    wasmtime_wasi_config::add_to_linker(&mut linker, |state: &mut State| {
        WasiConfig::from(&*state.config)
    })?;
    bindings::types::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    bindings::limiter::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    bindings::call::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    if world.is_async() {
        wasmtime_wasi::p3::add_to_linker(&mut linker)?;
        wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
        bound_async(&mut linker)?;
        only_files_async(&mut linker)?;
        in_turn_async(&mut linker)?;
        told_apart(&mut linker)?;
    }
    Ok(linker)
}

/// Replaces what belongs to a call by functions that first find out which of the instance's calls asks: the one
/// whose task is at the root of the guest's stack. A task that a call has left behind goes on working for it.
fn told_apart(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);

    let mut limiter = linker.instance("batchgate:batch/limiter@0.1.0")?;
    limiter.func_wrap(
        "report-breach",
        |mut store: StoreContextMut<'_, State>, (retry_after_ms,): (Option<u64>,)| {
            let state = caller(&mut store)?;
            Ok((bindings::limiter::Host::report_breach(
                state,
                retry_after_ms,
            )?,))
        },
    )?;
    limiter.func_wrap(
        "record-bytes",
        |mut store: StoreContextMut<'_, State>, (bytes,): (u64,)| {
            bindings::limiter::Host::record_bytes(caller(&mut store)?, bytes)
        },
    )?;

    let mut call = linker.instance("batchgate:batch/call@0.1.0")?;
    call.func_wrap("info", |mut store: StoreContextMut<'_, State>, (): ()| {
        Ok((bindings::call::Host::info(caller(&mut store)?)?,))
    })?;

    let mut handler = linker.instance("wasi:http/outgoing-handler@0.2.12")?;
    handler.func_wrap(
        "handle",
        |mut store: StoreContextMut<'_, State>,
         (request, options): (
            Resource<HostOutgoingRequest>,
            Option<Resource<RequestOptions>>,
        )| {
            let sent = caller(&mut store)?.http().handle(request, options);
            let sent: Result<Resource<HostFutureIncomingResponse>, p2::ErrorCode> = match sent {
                Ok(response) => Ok(response),
                Err(error) => Err(error.downcast()?),
            };
            Ok((sent,))
        },
    )?;

    let mut client = linker.instance("wasi:http/client@0.3.0")?;
    client.func_wrap_concurrent(
        "send",
        |accessor: &Accessor<State>, (request,): (Resource<p3::Request>,)| {
            Box::pin(async move {
                // Up to the first wait the guest's stack is that of the request.
                accessor.with(|mut access| {
                    caller(&mut wasmtime::AsContextMut::as_context_mut(&mut access)).map(drop)
                })?;
                let accessor = accessor.with_getter::<WasiHttp>(State::http);
                let sent = match WasiHttp::send(&accessor, request).await {
                    Ok(response) => Ok(response),
                    Err(error) => Err(error.downcast()?),
                };
                Ok((sent,))
            })
        },
    )?;

    linker.allow_shadowing(false);
    Ok(())
}

/// The state, at the service of the call that asks.
fn caller<'a>(store: &'a mut StoreContextMut<'_, State>) -> wasmtime::Result<&'a mut State> {
    let task = store.async_call_stack()?.last();
    let state = store.data_mut();
    state.serve_task(task);
    Ok(state)
}
