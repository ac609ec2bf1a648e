//! Holds guest code to its two clocks: `cpu_timeout` for its own compute, and a wall-clock
//! deadline for everything, from which waits on our own limiter are taken out.
//!
//! Guest code runs exactly while the future of a call is being polled: it leaves the poll to
//! wait for the host, and at every epoch tick. So the time inside polls is the guest's own
//! compute, and what it waits for is not in it.

use super::call::Call;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant as Wall};
use tokio::time::{Instant, Sleep, sleep_until};
use wasmtime::{Store, UpdateDeadline};

/// The guest time of one instance's present call. Shared with the epoch callback of its store; only
/// the thread that polls the call touches it.
#[derive(Debug)]
pub(super) struct Meter {
    origin: Wall,
    limit_ns: u64,
    /// Guest time of the call until the present poll.
    spent_ns: AtomicU64,
    /// When the present poll began, since the origin.
    entered_ns: AtomicU64,
    exceeded: AtomicBool,
}

impl Meter {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            origin: Wall::now(),
            limit_ns: nanoseconds(limit),
            spent_ns: AtomicU64::new(0),
            entered_ns: AtomicU64::new(0),
            exceeded: AtomicBool::new(false),
        })
    }

    /// Has the store's guest give way at every tick, and end once it has spent its time.
    pub(super) fn install<T>(self: &Arc<Self>, store: &mut Store<T>) {
        let meter = Arc::clone(self);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            if meter.is_spent() {
                meter.exceeded.store(true, Relaxed);
                return Ok(UpdateDeadline::Interrupt);
            }
            Ok(UpdateDeadline::YieldCustom(
                1,
                Box::pin(tokio::task::yield_now()),
            ))
        });
    }

    /// Whether the call was ended for its guest time.
    pub(super) fn exceeded(&self) -> bool {
        self.exceeded.load(Relaxed)
    }

    fn start(&self) {
        self.spent_ns.store(0, Relaxed);
        self.exceeded.store(false, Relaxed);
    }

    fn enter(&self) {
        self.entered_ns.store(self.now_ns(), Relaxed);
    }

    fn leave(&self) {
        self.spent_ns.store(self.spent_now_ns(), Relaxed);
    }

    fn is_spent(&self) -> bool {
        self.spent_now_ns() >= self.limit_ns
    }

    fn spent_now_ns(&self) -> u64 {
        let present = self.now_ns().saturating_sub(self.entered_ns.load(Relaxed));
        self.spent_ns.load(Relaxed).saturating_add(present)
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.origin.elapsed())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The call had not ended by its deadline.
#[derive(Debug)]
pub(super) struct Late;

/// The timer of one slot, kept from call to call. It is armed only when a call has to wait.
pub(super) type Timer = Pin<Box<Sleep>>;

/// A timer that is not armed yet.
pub(super) fn timer() -> Timer {
    Box::pin(sleep_until(Instant::now()))
}

/// Runs `activity` to its end, or until it has taken longer than `limit` since the call's start.
/// One that is late is dropped, and its instance cannot be used again.
pub(super) async fn run<F: Future>(
    meter: &Meter,
    call: &Call,
    limit: Duration,
    timer: &mut Timer,
    activity: F,
) -> Result<F::Output, Late> {
    meter.start();
    let mut activity = pin!(activity);
    std::future::poll_fn(move |cx| {
        meter.enter();
        let polled = activity.as_mut().poll(cx);
        meter.leave();
        match polled {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => poll_deadline(call, limit, timer, cx).map(Err),
        }
    })
    .await
}

/// Ready once the call is late. While it waits on our own limiter its deadline moves along.
fn poll_deadline(
    call: &Call,
    limit: Duration,
    timer: &mut Timer,
    cx: &mut Context<'_>,
) -> Poll<Late> {
    loop {
        let now = Instant::now();
        // A limit beyond what the clock can count is no limit.
        let Some(deadline) = call
            .started()
            .checked_add(limit.saturating_add(call.waited(now)))
        else {
            return Poll::Pending;
        };
        if deadline <= now {
            return Poll::Ready(Late);
        }
        // One that is armed for earlier, by a former call or before a wait, only costs a turn.
        if timer.is_elapsed() || timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_does_not_count_waits_on_our_limiter() {
        let call = Call::test();
        let meter = Meter::new(Duration::from_secs(1));
        let mut timer = timer();
        let limit = Duration::from_secs(10);
        let activity = async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            let wait = call.wait();
            tokio::time::sleep(Duration::from_secs(100)).await;
            drop(wait);
            tokio::time::sleep(Duration::from_secs(3)).await;
        };
        assert!(
            run(&meter, &call, limit, &mut timer, activity)
                .await
                .is_ok()
        );

        let call = Call::test();
        let late = run(
            &meter,
            &call,
            limit,
            &mut timer,
            std::future::pending::<()>(),
        );
        assert!(late.await.is_err());
        assert_eq!(
            call.started().elapsed(),
            limit,
            "the timer serves call after call"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_beyond_the_clock_is_none() {
        let call = Call::test();
        let meter = Meter::new(Duration::from_secs(1));
        let activity = tokio::time::sleep(Duration::from_secs(1000));
        assert!(
            run(&meter, &call, Duration::MAX, &mut timer(), activity)
                .await
                .is_ok()
        );
    }
}
