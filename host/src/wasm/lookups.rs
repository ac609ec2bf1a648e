//! Looks up names for sockets in the same turns as for the job's HTTP requests.
//!
//! A look-up that nobody answers holds a thread of the system's until it is given up. By itself a guest would start as
//! many as it likes, on the threads that other jobs' file work needs.

use super::http::Resolver;
use super::state::State;
use std::net::IpAddr;
use std::sync::Arc;
use std::vec;
use tokio::task::JoinHandle;
use wasmtime::StoreContextMut;
use wasmtime::component::{Accessor, Linker, Resource, ResourceType};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode as Code, IpAddress as Address, Network,
};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::p3::bindings::sockets::ip_name_lookup::ErrorCode as AsyncCode;
use wasmtime_wasi::p3::bindings::sockets::types::IpAddress as AsyncAddress;

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
enum NoAnswer {
    Denied,
    Invalid,
    Unknown,
}

/// The addresses of a name, or of the address that it is.
async fn look_up(
    resolver: Option<Arc<dyn Resolver>>,
    name: String,
) -> Result<Vec<IpAddr>, NoAnswer> {
    let resolver = resolver.ok_or(NoAnswer::Denied)?;
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    match url::Host::parse(&name) {
        // Names outside ASCII in the form that name servers know.
        Ok(url::Host::Domain(name)) => {
            let found = resolver.resolve(&name).await;
            let found = found.map_err(|_| NoAnswer::Unknown)?;
            Ok(found.into_iter().map(|ip| ip.to_canonical()).collect())
        }
        Ok(url::Host::Ipv4(address)) => Ok(vec![address.into()]),
        Ok(url::Host::Ipv6(address)) => Ok(vec![address.into()]),
        Err(_) => Err(NoAnswer::Invalid),
    }
}

/// A look-up of WASI 0.2: under way until it is asked for, then what is left of its answer.
enum LookUp {
    UnderWay(JoinHandle<Result<Vec<IpAddr>, NoAnswer>>),
    Done(Result<vec::IntoIter<IpAddr>, NoAnswer>),
}

impl LookUp {
    /// Waits for its end, and keeps it.
    async fn end(&mut self) {
        if let Self::UnderWay(task) = self {
            let found = task.await.unwrap_or(Err(NoAnswer::Unknown));
            *self = Self::Done(found.map(Vec::into_iter));
        }
    }

    fn next(&mut self) -> Result<Option<Address>, Code> {
        match self {
            Self::UnderWay(_) => Err(Code::WouldBlock),
            Self::Done(Ok(left)) => Ok(left.next().map(Address::from)),
            Self::Done(Err(why)) => Err(match why {
                NoAnswer::Denied => Code::PermanentResolverFailure,
                NoAnswer::Invalid => Code::InvalidArgument,
                NoAnswer::Unknown => Code::NameUnresolvable,
            }),
        }
    }
}

#[async_trait]
impl Pollable for LookUp {
    async fn ready(&mut self) {
        self.end().await;
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        if let Self::UnderWay(task) = self {
            task.abort();
        }
    }
}

/// Replaces look-ups of WASI 0.2.
pub(super) fn in_turn(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut lookups = linker.instance("wasi:sockets/ip-name-lookup@0.2.12")?;
    lookups.resource(
        "resolve-address-stream",
        ResourceType::host::<LookUp>(),
        |mut store, rep| {
            let state: &mut State = store.data_mut();
            state.table().delete(Resource::<LookUp>::new_own(rep))?;
            Ok(())
        },
    )?;
    lookups.func_wrap(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, State>, (network, name): (Resource<Network>, String)| {
            let state = store.data_mut();
            // Holding one is what allows to ask.
            state.table().get(&network)?;
            let task = tokio::spawn(look_up(state.resolver.clone(), name));
            Ok((Ok::<_, Code>(state.table().push(LookUp::UnderWay(task))?),))
        },
    )?;
    lookups.func_wrap_async(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, State>, (lookup,): (Resource<LookUp>,)| {
            Box::new(async move {
                let lookup = store.data_mut().table().get_mut(&lookup)?;
                if matches!(lookup, LookUp::UnderWay(task) if task.is_finished()) {
                    lookup.end().await;
                }
                Ok((lookup.next(),))
            })
        },
    )?;
    lookups.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, State>, (lookup,): (Resource<LookUp>,)| {
            let pollable: Resource<DynPollable> = subscribe(store.data_mut().table(), lookup)?;
            Ok((pollable,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Replaces look-ups of WASI 0.3.
pub(super) fn in_turn_async(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut lookups = linker.instance("wasi:sockets/ip-name-lookup@0.3.0")?;
    lookups.func_wrap_concurrent(
        "resolve-addresses",
        |accessor: &Accessor<State>, (name,): (String,)| {
            Box::pin(async move {
                let resolver = accessor.with(|mut access| access.get().resolver.clone());
                let found: Result<Vec<AsyncAddress>, _> = match look_up(resolver, name).await {
                    Ok(found) => Ok(found.into_iter().map(AsyncAddress::from).collect()),
                    Err(NoAnswer::Denied) => Err(AsyncCode::AccessDenied),
                    Err(NoAnswer::Invalid) => Err(AsyncCode::InvalidArgument),
                    Err(NoAnswer::Unknown) => Err(AsyncCode::NameUnresolvable),
                };
                Ok((found,))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
