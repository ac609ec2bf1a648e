//! One instance of the async world: a task of its own owns it, and runs the calls that are sent to it.
//!
//! Invariant: each request is answered once, at the latest when the instance ends; a trap answers all that are
//! in flight.

use super::item::OwnedItem;
use super::seats::{Permit, Seats};
use crate::wasm::answer::{answered, late_reason, trap_reason};
use crate::wasm::bindings::types::BatchError;
use crate::wasm::call::Call;
use crate::wasm::component::AsyncExports;
use crate::wasm::engine::Place;
use crate::wasm::guest_log::GuestOutput;
use crate::wasm::limits::Refused;
use crate::wasm::meter::{Late, Meter, metered, run, timer};
use crate::wasm::plugin::Work;
use crate::wasm::size::size;
use crate::wasm::state::{State, store};
use batchgate_policy::outcome::CallEnd;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wasmtime::Store;
use wasmtime::component::{Accessor, AccessorTask, TypedFunc, TypedFuncCallConcurrent};

type Params = (Vec<OwnedItem>,);
type Return = (Result<u64, BatchError>,);

/// Calls between two looks at how many resources of the host a guest has left open.
const LOOK_AT_RESOURCES: u64 = 256;

/// An instance as its slots know it.
pub(super) struct Instance {
    pub(super) seats: Arc<Seats>,
    requests: mpsc::UnboundedSender<Request>,
    started: watch::Receiver<Option<Result<(), String>>>,
    task: AbortHandle,
}

/// A call for an instance to run. No more of them wait than there are seats.
pub(super) struct Request {
    pub(super) items: Vec<OwnedItem>,
    pub(super) call: Arc<Call>,
    pub(super) reply: oneshot::Sender<Answer>,
}

pub(super) enum Answer {
    /// The call ended so, then.
    Ended { end: CallEnd, at: Instant },
    /// The instance ended first; the guest has not seen the call.
    NotBegun,
}

impl Instance {
    /// Makes an instance, with its first seat. It starts on its own.
    pub(super) fn make(
        work: Arc<Work>,
        exports: AsyncExports,
        number: usize,
    ) -> (Arc<Self>, Permit) {
        let (seats, first) = Seats::new(work.shared.sandbox.calls_per_instance);
        let (requests, received) = mpsc::unbounded_channel();
        let (say_started, started) = watch::channel(None);
        let task = tokio::spawn(live(
            work,
            exports,
            number,
            Arc::clone(&seats),
            received,
            say_started,
        ));
        let instance = Self {
            seats,
            requests,
            started,
            task: task.abort_handle(),
        };
        (Arc::new(instance), first)
    }

    /// Returns once it has started, or could not. The error is a line.
    pub(super) async fn started(&self) -> Result<(), String> {
        let mut started = self.started.clone();
        match started.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err("an instance ended before it had started".to_owned()),
        }
    }

    /// Hands a call over; false if the instance is no more.
    pub(super) fn send(&self, request: Request) -> bool {
        self.requests.send(request).is_ok()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Nobody is left to answer to.
        self.task.abort();
    }
}

/// Retires the instance however its task ends.
struct Retire(Arc<Seats>);

impl Drop for Retire {
    fn drop(&mut self) {
        self.0.retire();
    }
}

/// The calls that the guest has begun, by number, and who waits for each.
#[derive(Default)]
struct Begun(Mutex<HashMap<u64, oneshot::Sender<Answer>>>);

impl Begun {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, number: u64, end: CallEnd) {
        if let Some(reply) = self.lock().remove(&number) {
            // Who has left has left the seat, too.
            let _ = reply.send(Answer::Ended {
                end,
                at: Instant::now(),
            });
        }
    }
}

/// An instance from its start to its end.
async fn live(
    work: Arc<Work>,
    exports: AsyncExports,
    number: usize,
    seats: Arc<Seats>,
    mut requests: mpsc::UnboundedReceiver<Request>,
    say_started: watch::Sender<Option<Result<(), String>>>,
) {
    let retire = Retire(Arc::clone(&seats));
    let mut instance = match start(&work, &exports, number).await {
        Ok(instance) => instance,
        Err(problem) => {
            seats.retire();
            say_started.send_replace(Some(Err(problem)));
            return;
        }
    };
    say_started.send_replace(Some(Ok(())));

    let serving = Serving {
        work: Arc::clone(&work),
        seats: Arc::clone(&seats),
        begun: Arc::default(),
        fresh_memory: instance.store.data().limits.used(),
    };
    let meter = Arc::clone(&instance.meter);
    let trap = {
        let serving = pin!(serving.serve(&mut instance, &mut requests));
        tokio::select! {
            biased;
            served = metered(&meter, serving) => served.err(),
            // Outside of the store, which a guest may hold on to.
            () = seats.over() => None,
        }
    };
    drop(retire);
    instance.store.data().end_lines();
    if let Some(error) = trap {
        let refused = instance.store.data().limits.refused();
        serving.fail(&error, meter.exceeded(), refused);
    }
    // What is sent from now on is refused; what was before has not begun.
    requests.close();
    while let Ok(request) = requests.try_recv() {
        let _ = request.reply.send(Answer::NotBegun);
    }
}

struct Started {
    store: Store<State>,
    process: TypedFunc<Params, Return>,
    meter: Arc<Meter>,
    _place: Place,
}

async fn start(work: &Work, exports: &AsyncExports, number: usize) -> Result<Started, String> {
    let component = &work.component;
    let sandbox = &component.sandbox;
    let named = |problem: String| format!("component {}: {problem}", component.path.display());
    let place = Place::take(component.settings).map_err(named)?;
    let output = || GuestOutput::new(Arc::clone(&work.log), number);
    let call = Call::start(work.no_call(), String::new(), Arc::clone(&work.services));
    let mut store = store(
        &component.engine,
        &work.shared,
        output(),
        output(),
        Arc::clone(&call),
    )
    .map_err(named)?;
    let meter = Meter::new(sandbox.cpu_timeout);
    charge_calls(&meter, &mut store);

    let mut timer = timer();
    let limit = sandbox.call_timeout;
    let started = {
        let instantiate = pin!(exports.pre.instantiate_async(&mut store));
        run(&meter, &call, limit, &mut timer, instantiate).await
    };
    store.data().end_lines();
    let unstarted = |reason: String| named(format!("cannot be started: {reason}"));
    let instance = match started.result {
        Ok(Ok(instance)) => instance,
        Ok(Err(error)) => {
            let refused = store.data().limits.refused();
            let exceeded = meter.exceeded();
            return Err(unstarted(trap_reason(
                &error,
                exceeded,
                refused,
                sandbox,
                &work.secrets,
            )));
        }
        Err(Late) => return Err(unstarted(late_reason(limit))),
    };
    let process = instance
        .get_typed_func(&mut store, exports.process)
        .map_err(|error| named(crate::wasm::world::one_line(&error)))?;
    Ok(Started {
        store,
        process,
        meter,
        _place: place,
    })
}

/// Has the guest give way at every tick, and charges its time since the last one to the call that it works for,
/// until one has spent its own.
fn charge_calls(meter: &Arc<Meter>, store: &mut Store<State>) {
    let mut charged = 0;
    meter.install_for(store, move |mut store, spent, limit| {
        let new = spent - std::mem::replace(&mut charged, spent);
        let caller = store.async_call_stack()?.last();
        Ok(store.data_mut().charge(caller, new) >= limit)
    });
}

/// What the calls of one instance share.
struct Serving {
    work: Arc<Work>,
    seats: Arc<Seats>,
    begun: Arc<Begun>,
    /// Memory before the first call.
    fresh_memory: u64,
}

impl Serving {
    /// Takes calls and runs them side by side. Ends with the first trap, or when no slot is left.
    async fn serve(
        &self,
        instance: &mut Started,
        requests: &mut mpsc::UnboundedReceiver<Request>,
    ) -> wasmtime::Result<()> {
        let process = instance.process;
        let most_calls = self.work.shared.sandbox.max_calls_per_instance;
        let serve = async |accessor: &Accessor<State>| -> wasmtime::Result<()> {
            let mut taken = 0;
            while let Some(request) = requests.recv().await {
                if self.seats.is_retired() {
                    let _ = request.reply.send(Answer::NotBegun);
                    continue;
                }
                taken += 1;
                self.begin(accessor, process, request, taken)?;
                if most_calls.is_some_and(|most| taken >= most) {
                    self.seats.retire();
                }
            }
            Ok(())
        };
        instance.store.run_concurrent(serve).await?
    }

    fn begin(
        &self,
        accessor: &Accessor<State>,
        process: TypedFunc<Params, Return>,
        request: Request,
        number: u64,
    ) -> wasmtime::Result<()> {
        let Request { items, call, reply } = request;
        self.begun.lock().insert(number, reply);
        let called = accessor.with(|mut store| {
            let called = process.start_call_concurrent(&mut store, (items,))?;
            store.data_mut().begin_task(called.task(), call);
            wasmtime::error::Ok(called)
        })?;
        accessor.spawn(Ending {
            process,
            called,
            number,
            begun: Arc::clone(&self.begun),
            work: Arc::clone(&self.work),
            seats: Arc::clone(&self.seats),
            fresh_memory: self.fresh_memory,
        })?;
        Ok(())
    }

    /// Ends all calls in flight with the trap that ended their instance.
    fn fail(&self, error: &wasmtime::Error, cpu_exceeded: bool, refused: Option<Refused>) {
        let work = &self.work;
        let sandbox = &work.shared.sandbox;
        let mut reason = trap_reason(error, cpu_exceeded, refused, sandbox, &work.secrets);
        let begun = std::mem::take(&mut *self.begun.lock());
        let waited_for = begun.values().filter(|reply| !reply.is_closed()).count();
        if waited_for > 1 {
            reason =
                format!("{reason} (this ended all {waited_for} calls in flight on one instance)");
        }
        let at = Instant::now();
        for reply in begun.into_values() {
            let end = CallEnd::Trapped(reason.clone());
            let _ = reply.send(Answer::Ended { end, at });
        }
    }
}

/// The end of a call to come.
struct Ending {
    process: TypedFunc<Params, Return>,
    called: TypedFuncCallConcurrent<State, Params, Return>,
    number: u64,
    begun: Arc<Begun>,
    work: Arc<Work>,
    seats: Arc<Seats>,
    fresh_memory: u64,
}

impl AccessorTask<State> for Ending {
    async fn run(self, accessor: &Accessor<State>) -> wasmtime::Result<()> {
        let (answer,) = self
            .process
            .finish_call_concurrent(accessor, self.called)
            .await?;
        let sandbox = &self.work.shared.sandbox;
        let look = self.number.is_multiple_of(LOOK_AT_RESOURCES);
        let (memory, resources) = accessor.with(|mut store| {
            let state = store.data_mut();
            // Another call's line may not have ended.
            if self.seats.in_flight() <= 1 {
                state.end_lines();
            }
            (
                state.limits.used(),
                if look { state.resources() } else { 0 },
            )
        });
        // Before the answer, so that the slot knows.
        let most_memory = sandbox.recycle_above().max(self.fresh_memory);
        let most_resources = sandbox
            .max_resources
            .saturating_mul(sandbox.calls_per_instance as usize);
        if memory > most_memory || resources > most_resources / 2 {
            tracing::debug!(
                label = %self.work.label,
                "an instance is replaced after {} calls: it holds {} of memory (max_instance_memory: {})",
                self.number,
                size(memory),
                size(sandbox.recycle_above())
            );
            self.seats.retire();
        }
        self.begun
            .answer(self.number, answered(answer, sandbox, &self.work.secrets));
        Ok(())
    }
}
