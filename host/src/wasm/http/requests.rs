//! Bounds what the texts of a guest's requests take of the host's memory while they are not sent.
//!
//! Header fields have their own limit and handles theirs; a method, a host and a path would
//! have none, and each may be as long as a guest can hand over.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;

/// The longest method that means something to a server is much shorter.
pub(super) const MAX_METHOD: usize = 32;
/// A name of 253 bytes, a port, and room.
pub(super) const MAX_AUTHORITY: usize = 300;
/// Servers refuse longer ones.
pub(super) const MAX_PATH: usize = 8 << 10;

/// The version that wasmtime implements; guests built for another 0.2 get the same.
const TYPES: &str = "wasi:http/types@0.2.12";

pub(super) type Set = wasmtime::Result<(Result<(), ()>,)>;

/// Replaces the functions that set such a text by ones that refuse it beyond its limit.
pub(in crate::wasm) fn bound<T: WasiHttpView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, T>,
         (request, method): (Resource<HostOutgoingRequest>, Method)|
         -> Set {
            let long = matches!(&method, Method::Other(name) if name.len() > MAX_METHOD);
            Ok((if long {
                Err(())
            } else {
                store.data_mut().http().set_method(request, method)?
            },))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, T>,
         (request, text): (Resource<HostOutgoingRequest>, Option<String>)|
         -> Set {
            let long = text.as_ref().is_some_and(|text| text.len() > MAX_AUTHORITY);
            Ok((if long {
                Err(())
            } else {
                store.data_mut().http().set_authority(request, text)?
            },))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: StoreContextMut<'_, T>,
         (request, text): (Resource<HostOutgoingRequest>, Option<String>)|
         -> Set {
            let long = text.as_ref().is_some_and(|text| text.len() > MAX_PATH);
            Ok((if long {
                Err(())
            } else {
                store.data_mut().http().set_path_with_query(request, text)?
            },))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
