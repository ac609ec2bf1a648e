//! What goes on while a budget runs: its sensors are read, it is scaled, and its control store is followed.
//!
//! Invariant: each task lives until its owner ends it, whatever jobs come and go.

use super::scaled::Shared;
use super::sensors::Sensors;
use crate::aside::aside_with;
use crate::store::ControlReader;
use batchgate_policy::budget::Signal;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// After a start it takes so long until every sensor that works has been heard of.
const HEARD_BY: Duration = Duration::from_secs(5);

/// How late the runtime's timers are.
pub(super) async fn measure_lag(shared: Arc<Shared>) {
    let interval = Signal::Lag.interval();
    loop {
        let due = Instant::now() + interval;
        tokio::time::sleep_until(due).await;
        let late = due.elapsed() > shared.config.lag_threshold;
        shared.change(|state, now| state.record_sample(now, Signal::Lag, late));
    }
}

/// On the runtime's threads for blocking work, with which a paused clock waits; what guests do there delays a
/// measurement, and one that is missing holds the budget where it is.
pub(super) async fn measure_machine(shared: Arc<Shared>, mut sensors: Sensors) {
    let mut ticks = every(Signal::Cpu.interval());
    loop {
        ticks.tick().await;
        let now = shared.now();
        let measured = tokio::task::spawn_blocking(move || {
            let sample = sensors.sample(now);
            (sensors, sample)
        });
        let sample;
        (sensors, sample) = match measured.await {
            Ok(measured) => measured,
            Err(error) => {
                tracing::error!("budget: the sensors ended ({error}); it does not grow any more");
                return;
            }
        };
        shared.take(sample);
    }
}

/// Whether more refusals came in than are allowed.
pub(super) async fn count_breaches(shared: Arc<Shared>) {
    let mut ticks = every(Signal::Breaches.interval());
    let mut last = shared.breaches.load(Ordering::Relaxed);
    loop {
        ticks.tick().await;
        let all = shared.breaches.load(Ordering::Relaxed);
        let new = all - std::mem::replace(&mut last, all);
        let many = new > u64::from(shared.config.breach_threshold);
        shared.change(|state, now| state.record_sample(now, Signal::Breaches, many));
    }
}

pub(super) async fn scale(shared: Arc<Shared>) {
    let period = shared.config.scale_every;
    let mut ticks = every(period);
    // The first is at once, when nothing is known.
    ticks.tick().await;
    let heard_by = shared.now() + HEARD_BY;
    loop {
        ticks.tick().await;
        shared.change(|state, now| {
            state.policy.tick(now);
            if now >= heard_by {
                state.say_unknown(now);
            }
        });
    }
}

/// Looks for new rows of the control store.
pub(super) async fn follow(shared: Arc<Shared>, reader: ControlReader, period: Duration) {
    let reader = Arc::new(Mutex::new(reader));
    loop {
        tokio::time::sleep(period).await;
        let rows = aside_with("batchgate-control", &reader, |reader| {
            reader.poll_or_warn(None)
        });
        // No thread for it now: the next time.
        shared.retune(&rows.await.unwrap_or_default());
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    // What was missed says nothing, and a burst would count it twice.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
