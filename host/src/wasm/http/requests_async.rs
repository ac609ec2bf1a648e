//! The same bounds for the requests of WASI 0.3.

use super::requests::{MAX_AUTHORITY, MAX_METHOD, MAX_PATH, Set};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p3::Request;
use wasmtime_wasi_http::p3::bindings::http::types::{HostRequest as _, Method};

/// Replaces the functions that set such a text by ones that refuse it beyond its limit.
pub(in crate::wasm) fn bound_async<T: WasiHttpView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance("wasi:http/types@0.3.0")?;
    types.func_wrap(
        "[method]request.set-method",
        |mut store: StoreContextMut<'_, T>,
         (request, method): (Resource<Request>, Method)|
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
        "[method]request.set-authority",
        |mut store: StoreContextMut<'_, T>,
         (request, text): (Resource<Request>, Option<String>)|
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
        "[method]request.set-path-with-query",
        |mut store: StoreContextMut<'_, T>,
         (request, text): (Resource<Request>, Option<String>)|
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
