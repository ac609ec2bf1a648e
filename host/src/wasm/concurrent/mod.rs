//! Slots of the async world: many of them share one instance, which runs a call of each at once.
//!
//! Invariant: a slot's call ends by its own answer, its own deadline, or its instance's end, whichever is
//! first; an instance that a call has left in any other way than by an answer takes no further one, and is gone
//! as soon as those in flight have ended.

mod instance;
mod item;
mod seats;

use self::instance::{Answer, Instance, Request};
use self::item::owned;
use self::seats::Permit;
use crate::item::Item;
use crate::slot::{CallInfo, CallReport};
use crate::wasm::answer::late_reason;
use crate::wasm::call::Call;
use crate::wasm::component::AsyncExports;
use crate::wasm::engine::Place;
use crate::wasm::key::idempotency_key;
use crate::wasm::meter::{Timer, late, timer};
use crate::wasm::plugin::Work;
use batchgate_policy::outcome::CallEnd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The instances of one job, by which its slots find each other.
pub(super) struct Instances {
    work: Arc<Work>,
    exports: AsyncExports,
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    instances: Vec<Arc<Instance>>,
    /// How many were made so far; the next one's number in logs.
    made: usize,
}

impl Instances {
    pub(super) fn new(work: Arc<Work>, exports: AsyncExports) -> Arc<Self> {
        Arc::new(Self {
            work,
            exports,
            live: Mutex::default(),
        })
    }

    /// A seat on an instance that has one free, on a new one otherwise. The error is a line.
    async fn seat(&self) -> Result<Seat, String> {
        let component = &self.work.component;
        let place = Place::take(component.settings)
            .map_err(|problem| format!("component {}: {problem}", component.path.display()))?;
        let seat = self.take_or_make(place);
        seat.instance.started().await?;
        Ok(seat)
    }

    fn take_or_make(&self, place: Place) -> Seat {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.instances
            .retain(|instance| !instance.seats.is_retired());
        let free = live
            .instances
            .iter()
            .find_map(|instance| Some((Arc::clone(instance), instance.seats.take()?)));
        let (instance, permit) = free.unwrap_or_else(|| {
            let number = live.made;
            live.made += 1;
            let (instance, first) =
                Instance::make(Arc::clone(&self.work), self.exports.clone(), number);
            live.instances.push(Arc::clone(&instance));
            (instance, first)
        });
        Seat {
            instance,
            _permit: permit,
            _place: place,
        }
    }
}

/// The right to have one call at a time in flight on an instance.
struct Seat {
    instance: Arc<Instance>,
    _permit: Permit,
    /// For the stack of a call that waits without awaiting.
    _place: Place,
}

/// A slot of the async world.
pub(super) struct SharedSlot {
    instances: Arc<Instances>,
    seat: Seat,
    timer: Timer,
}

impl SharedSlot {
    /// Takes a seat for a slot. The error is a line.
    pub(super) async fn start(instances: &Arc<Instances>) -> Result<Self, String> {
        Ok(Self {
            seat: instances.seat().await?,
            instances: Arc::clone(instances),
            timer: timer(),
        })
    }

    pub(super) async fn call(&mut self, items: &[Item], info: CallInfo) -> CallReport {
        let work = Arc::clone(&self.instances.work);
        let key = if self.instances.exports.asks_call {
            idempotency_key(&work.label, &work.key_salt, items)
        } else {
            String::new()
        };
        loop {
            // Another slot's call may have been the instance's end since our last one.
            if self.seat.instance.seats.is_retired() {
                match self.instances.seat().await {
                    Ok(seat) => self.seat = seat,
                    Err(reason) => return CallReport::cannot_start(&reason),
                }
            }
            let call = Call::start(info.clone(), key.clone(), Arc::clone(&work.services));
            if let Some((end, at)) = self.run(items, &call).await {
                let counted = work.shared.sandbox.count_http_bytes;
                return call.report(end, at, counted, self.is_dead());
            }
        }
    }

    /// How the call ended, and when; none if the instance ended before it took the call.
    async fn run(&mut self, items: &[Item], call: &Arc<Call>) -> Option<(CallEnd, Instant)> {
        let instance = &self.seat.instance;
        let limit = self.instances.work.shared.sandbox.call_timeout;
        // Dropped without an answer, here or because the run stops, it retires the instance: the guest is
        // still at work for a call that nobody waits for.
        let flight = instance.seats.begin();
        let (reply, answer) = oneshot::channel();
        let request = Request {
            items: owned(items),
            call: Arc::clone(call),
            reply,
        };
        if !instance.send(request) {
            return None;
        }
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = late(call, limit, &mut self.timer) => {
                return Some((CallEnd::TimedOut(late_reason(limit)), Instant::now()));
            }
        };
        match answer {
            Ok(Answer::Ended { end, at }) => {
                flight.answered();
                Some((end, at))
            }
            Ok(Answer::NotBegun) => None,
            // The task that runs it was ended, and said nothing.
            Err(_) => Some((
                CallEnd::Trapped("the instance ended without an answer".to_owned()),
                Instant::now(),
            )),
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.seat.instance.seats.is_retired()
    }
}
