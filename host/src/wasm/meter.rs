//! Holds guest code to its two clocks: `cpu_timeout` for its own compute, and a wall-clock
//! deadline for everything, from which waits on our own limiter are taken out.
//!
//! Guest code runs exactly while the future of a call is being polled: it leaves the poll to
//! wait for the host, and at every epoch tick. So the time inside polls is the guest's own
//! compute, and what it waits for is not in it. On a busy machine a poll also holds time in which
//! the thread did not run; where a guest computes long enough for that to matter, the thread's own
//! clock is asked, which is exact and slow.

use super::call::Call;
use super::engine::TICK;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use wasmtime::{Store, StoreContextMut, UpdateDeadline};

/// The guest time of one instance's present call. Shared with the epoch callback of its store; only
/// the thread that polls the call touches it.
#[derive(Debug)]
pub(super) struct Meter {
    origin: Instant,
    limit_ns: u64,
    /// Guest time of the call until the present poll.
    spent_ns: AtomicU64,
    /// When the present poll began, by the clock that measures it.
    entered_ns: AtomicU64,
    /// Whether that is the thread's.
    exact: AtomicBool,
    /// The poll was ended by a tick, so the next one is measured exactly.
    ticked: AtomicBool,
    exceeded: AtomicBool,
}

/// Most that a poll is charged by the wall clock. A guest gives way within a tick or two of its
/// own time; what goes beyond is the machine's.
const MOST_BY_WALL: Duration = Duration::from_millis(2 * TICK.as_millis() as u64);

impl Meter {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            limit_ns: nanoseconds(limit),
            spent_ns: AtomicU64::new(0),
            entered_ns: AtomicU64::new(0),
            exact: AtomicBool::new(false),
            ticked: AtomicBool::new(false),
            exceeded: AtomicBool::new(false),
        })
    }

    /// Has the store's guest give way at every tick, and end once it has spent its time.
    pub(super) fn install<T>(self: &Arc<Self>, store: &mut Store<T>) {
        self.install_for(store, |_, spent, limit| Ok(spent >= limit));
    }

    /// The same where `exceeds` decides, given the guest time of all polls and the limit, in nanoseconds.
    pub(super) fn install_for<T>(
        self: &Arc<Self>,
        store: &mut Store<T>,
        mut exceeds: impl FnMut(StoreContextMut<'_, T>, u64, u64) -> wasmtime::Result<bool>
        + Send
        + Sync
        + 'static,
    ) {
        let meter = Arc::clone(self);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |store| {
            let present = meter.present(Instant::now());
            if exceeds(store, meter.spent(present), meter.limit_ns)? {
                meter.exceeded.store(true, Relaxed);
                return Ok(UpdateDeadline::Interrupt);
            }
            // Ticks that went by while the guest waited say nothing of it.
            if present < nanoseconds(TICK) && !meter.exact.load(Relaxed) {
                return Ok(UpdateDeadline::Continue(1));
            }
            meter.ticked.store(true, Relaxed);
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
        self.ticked.store(false, Relaxed);
        self.exceeded.store(false, Relaxed);
    }

    fn enter(&self, now: Instant) {
        let exact = self.ticked.swap(false, Relaxed);
        self.exact.store(exact, Relaxed);
        self.entered_ns.store(self.clock(now), Relaxed);
    }

    fn leave(&self, now: Instant) {
        self.spent_ns.store(self.spent(self.present(now)), Relaxed);
    }

    /// Guest time in the present poll.
    fn present(&self, now: Instant) -> u64 {
        let present = self
            .clock(now)
            .saturating_sub(self.entered_ns.load(Relaxed));
        if self.exact.load(Relaxed) {
            present
        } else {
            present.min(nanoseconds(MOST_BY_WALL))
        }
    }

    /// Guest time in all polls.
    fn spent(&self, present: u64) -> u64 {
        self.spent_ns.load(Relaxed).saturating_add(present)
    }

    /// What the clock says that measures the present poll.
    fn clock(&self, now: Instant) -> u64 {
        if self.exact.load(Relaxed) {
            thread_time_ns()
        } else {
            nanoseconds(now.duration_since(self.origin))
        }
    }
}

#[cfg(unix)]
fn thread_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(rest.unwrap_or(0))
}

#[cfg(not(unix))]
fn thread_time_ns() -> u64 {
    static ORIGIN: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    nanoseconds(ORIGIN.elapsed())
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

/// What a guest came to, and when.
pub(super) struct Ran<T> {
    pub(super) result: Result<T, Late>,
    pub(super) at: Instant,
}

/// Runs `activity` to its end, or until it has taken longer than `limit` since the call's start.
/// The instance of one that is late cannot be used again.
pub(super) async fn run<F: Future>(
    meter: &Meter,
    call: &Call,
    limit: Duration,
    timer: &mut Timer,
    mut activity: Pin<&mut F>,
) -> Ran<F::Output> {
    meter.start();
    // The clock is read twice for a call that never waits: it costs a tenth of a small one.
    let mut now = Some(call.started());
    std::future::poll_fn(move |cx| {
        meter.enter(now.take().unwrap_or_else(Instant::now));
        let polled = activity.as_mut().poll(cx);
        let at = Instant::now();
        meter.leave(at);
        let result = match polled {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => match poll_deadline(call, limit, timer, cx) {
                Poll::Ready(late) => Err(late),
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(Ran { result, at })
    })
    .await
}

/// Runs `activity` on the meter that was started with its instance, without a deadline.
pub(super) async fn metered<F: Future>(meter: &Meter, mut activity: Pin<&mut F>) -> F::Output {
    std::future::poll_fn(move |cx| {
        meter.enter(Instant::now());
        let polled = activity.as_mut().poll(cx);
        meter.leave(Instant::now());
        polled
    })
    .await
}

/// Returns once the call has taken longer than `limit` since its start.
pub(super) async fn late(call: &Call, limit: Duration, timer: &mut Timer) {
    std::future::poll_fn(|cx| poll_deadline(call, limit, timer, cx).map(|Late| ())).await;
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
    use std::pin::pin;

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
            run(&meter, &call, limit, &mut timer, pin!(activity))
                .await
                .result
                .is_ok()
        );

        let call = Call::test();
        let never = pin!(std::future::pending::<()>());
        let late = run(&meter, &call, limit, &mut timer, never);
        assert!(late.await.result.is_err());
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
            run(&meter, &call, Duration::MAX, &mut timer(), pin!(activity))
                .await
                .result
                .is_ok()
        );
    }

    #[test]
    fn a_poll_is_charged_no_more_than_the_guest_can_have_used() {
        let meter = Meter::new(Duration::from_secs(1));
        meter.start();
        let start = meter.origin;
        meter.enter(start);
        meter.leave(start + Duration::from_micros(300));
        assert_eq!(meter.spent(0), 300_000);
        meter.enter(start);
        meter.leave(start + Duration::from_secs(5));
        assert_eq!(
            meter.spent(0),
            300_000 + nanoseconds(MOST_BY_WALL),
            "the thread did not run"
        );
        // After a tick the thread's own clock counts, and all that it says.
        meter.ticked.store(true, Relaxed);
        let outer = thread_time_ns();
        meter.enter(start);
        let inner = thread_time_ns();
        while thread_time_ns() - inner < 5 * nanoseconds(MOST_BY_WALL) {
            std::hint::spin_loop();
        }
        let inner = thread_time_ns() - inner;
        meter.leave(start);
        let outer = thread_time_ns() - outer;
        let exact = meter.spent(0) - 300_000 - nanoseconds(MOST_BY_WALL);
        assert!((inner..=outer).contains(&exact), "{inner} {exact} {outer}");
        meter.start();
        assert_eq!(meter.spent(0), 0, "each call has its own time");
    }
}
