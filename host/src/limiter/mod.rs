//! Lets calls start in the order of asking, each as soon as the rate caps and the shared
//! cooldown allow it.
//!
//! Invariant: nobody polls. Only the one whose turn it is asks, and then waits exactly until the
//! moment that it was told, or until something changed. Nothing starts that the day's quota
//! does not cover on the disk.
//!
//! The arithmetic is [`batchgate_policy::limiter`]'s; here are the clocks, the queue and the
//! state file.

mod calendar;
mod clock;
mod lessor;
mod queue;
mod shared;
mod state_file;
#[cfg(test)]
mod tests;
mod turn;
mod wait;

pub use batchgate_policy::limiter::{Reason, Stats};
pub use calendar::{Calendar, CalendarError};
pub use clock::{SystemClock, WallClock};
pub use state_file::StateFileError;
pub use turn::Turn;
pub use wait::Wait;

use crate::retry_after::LONGEST;
use crate::slot::CallServices;
use batchgate_policy::limiter::{self as policy, BadCap, SharerId};
use batchgate_policy::quota::{Day, DayAhead};
use calendar::day_id;
use lessor::Ask;
use shared::{Count, Shared};
use state_file::StateFile;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// `[rate_limit]`, as far as it makes a limiter. `None` is no cap.
#[derive(Debug, Clone)]
pub struct Config {
    /// Starts a second, above 0.
    pub max_per_sec: Option<f64>,
    /// Bytes in the last 60 s at which no more calls start, at least 1.
    pub max_bytes_per_min: Option<u64>,
    /// Starts a day, at least 1.
    pub max_per_day: Option<u64>,
    /// The provider's days.
    pub calendar: Calendar,
    /// Where the day's count is kept.
    pub state_file: Option<PathBuf>,
    /// The cooldown after a first breach.
    pub breach_base_cooldown: Duration,
    /// How many times further breaches double it, at most.
    pub breach_max_doublings: u32,
    /// After how long without a breach the next is a first one again.
    pub breach_quiet_window: Duration,
    /// The caps count HTTP requests instead of calls (`scope = "http"`).
    pub counts_http: bool,
}

/// The day's quota cannot be counted, so nothing may start.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The state file does not work.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    /// There is no calendar.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// The clock was set back by days.
    #[error("the system clock was set back while calls were counted: {0}. Start the run again")]
    ClockSetBack(#[from] DayAhead),
    /// The thread that keeps the count has died.
    #[error("the thread that keeps the day's count ended; please report it")]
    Thread,
}

/// A limiter that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LimiterError {
    /// A cap makes no sense.
    #[error(transparent)]
    Cap(#[from] BadCap),
    /// The day's quota cannot be counted.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The system gives us no thread.
    #[error("the thread that keeps the day's count cannot be started: {0}")]
    Thread(std::io::Error),
}

/// The limiter of a job, or of several that share one. Clones are the same limiter, and the same
/// one of those that share it.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
    sharer: Arc<Sharer>,
}

/// One of those that share a limiter.
struct Sharer {
    id: SharerId,
    shared: Arc<Shared>,
}

impl Sharer {
    fn join(shared: &Arc<Shared>, weight: f64) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        shared.calls.join(id, weight);
        shared.requests.join(id, weight);
        let shared = shared.clone();
        Arc::new(Self { id, shared })
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        self.shared.calls.leave(self.id);
        self.shared.requests.leave(self.id);
    }
}

impl Limiter {
    /// Fails if the configuration makes no sense or the state file cannot be used.
    pub fn new(config: Config) -> Result<Self, LimiterError> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// One that several jobs share: it spreads the starts of a second, so that they come by weight.
    pub fn shared(config: Config) -> Result<Self, LimiterError> {
        let limiter = Self::new(config)?;
        limiter.shared.state().policy.spread();
        Ok(limiter)
    }

    /// With another clock for the calendar.
    pub fn with_clock(config: Config, clock: Arc<dyn WallClock>) -> Result<Self, LimiterError> {
        let mut policy = policy::Limiter::new(&policy::LimiterConfig {
            max_per_sec: config.max_per_sec,
            max_bytes_per_min: config.max_bytes_per_min,
            max_per_day: config.max_per_day,
            durable_day: config.state_file.is_some(),
            breach_base_cooldown: config.breach_base_cooldown,
            breach_max_doublings: config.breach_max_doublings,
            breach_quiet_window: config.breach_quiet_window,
        })?;
        let today = config
            .calendar
            .day_at(clock.now())
            .map_err(QuotaError::from)?;
        let days_matter = config.max_per_day.is_some() || config.state_file.is_some();
        if days_matter && config.calendar.zone_is_unknown() {
            tracing::warn!(
                "the system does not say its time zone: days are counted in UTC; set day_time_zone"
            );
        }
        let file = config.state_file.map(StateFile::new);
        if let Some(file) = &file {
            let day = day_id(today.date);
            let count = file.check(day).map_err(QuotaError::from)?;
            policy.quota().resume(
                Day {
                    id: day,
                    ends: Duration::ZERO,
                },
                count.unwrap_or(0),
            );
        }
        let shared = Shared::start(
            policy,
            config.calendar,
            today,
            clock,
            config.counts_http,
            file,
        )
        .map_err(LimiterError::Thread)?;
        let sharer = Sharer::join(&shared, 1.0);
        Ok(Self { shared, sharer })
    }

    /// The same limiter for another job, which gets its turns by its weight (above 0) beside the
    /// others.
    pub fn for_another(&self, weight: f64) -> Self {
        Self {
            shared: self.shared.clone(),
            sharer: Sharer::join(&self.shared, weight),
        }
    }

    /// Waits for the turn to start a call. Dropping the future gives up the place in the queue.
    ///
    /// Whoever has a turn holds up all others: nobody may wait for anything but the limiter
    /// with it.
    pub async fn turn(&self) -> Turn<'_> {
        Turn::of_calls(&self.shared, self.sharer.id).await
    }

    /// The turn to start a call, if nobody else has it or waits for it.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        Turn::of_calls_now(&self.shared, self.sharer.id)
    }

    /// Waits for the turn and then until a call may start, and books it.
    pub async fn start(&self) -> Result<(), Arc<QuotaError>> {
        self.turn().await.start().await
    }

    /// A call whose breach was reported before turns out to ask for a longer cooldown.
    pub fn lengthen_cooldown(&self, retry_after: Option<Duration>) {
        if let Some(retry_after) = honoured(retry_after) {
            let mut state = self.shared.state();
            let now = self.shared.now();
            state.policy.lengthen_cooldown(now, retry_after);
            self.shared.changed();
        }
    }

    /// When the running cooldown ends.
    pub fn backing_off_until(&self) -> Option<Instant> {
        let until = self
            .shared
            .state()
            .policy
            .backing_off_until(self.shared.now());
        until.map(|until| self.shared.instant(until))
    }

    /// What holds up everything at the moment, a cooldown or a spent day, and until when, in words.
    pub fn cooldown_note(&self) -> Option<String> {
        let mut state = self.shared.state();
        let now = self.shared.now();
        // Without a calendar nothing starts any more, which is said elsewhere.
        let _ = self.shared.look_at_calendar(&mut state, now);
        let denial = state.policy.try_pass(now).err()?;
        Some(self.shared.wait(&mut state, now, denial).to_string())
    }

    /// How many breaches there were.
    pub fn breaches(&self) -> u64 {
        self.shared.state().policy.breaches()
    }

    /// The six statistics.
    pub fn stats(&self) -> Stats {
        let mut state = self.shared.state();
        let now = self.shared.now();
        // Without a calendar the count is yesterday's, which the next start says.
        let _ = self.shared.look_at_calendar(&mut state, now);
        state.policy.stats(now)
    }

    /// Gives back what is leased of the day's quota and was not used, at the end of a run. It may
    /// wait for another host's lock; what is not given back counts as used.
    pub async fn close(&self) -> Result<(), QuotaError> {
        let Count::InFile(asks) = &self.shared.count else {
            return Ok(());
        };
        let (done, closed) = oneshot::channel();
        asks.send(Ask::GiveBack(done))
            .map_err(|_| QuotaError::Thread)?;
        closed.await.map_err(|_| QuotaError::Thread)?
    }
}

/// A wait that a plugin names and no provider can mean is not waited.
fn honoured(retry_after: Option<Duration>) -> Option<Duration> {
    retry_after.filter(|wait| {
        let honoured = *wait <= LONGEST;
        if !honoured {
            tracing::warn!(
                "a plugin's wait of {} s is ignored: it is more than 31 days",
                wait.as_secs()
            );
        }
        honoured
    })
}

impl CallServices for Limiter {
    fn report_breach(&self, call_started: Instant, retry_after: Option<Duration>) -> Duration {
        let mut state = self.shared.state();
        let now = self.shared.now();
        let call_started = self.shared.since_origin(call_started);
        let wait = state
            .policy
            .breach(now, call_started, honoured(retry_after));
        self.shared.changed();
        wait
    }

    fn record_bytes(&self, bytes: u64) {
        let mut state = self.shared.state();
        let now = self.shared.now();
        state.policy.record_bytes(now, bytes);
    }

    fn is_backing_off(&self) -> bool {
        self.shared.state().policy.is_backing_off(self.shared.now())
    }

    /// If the day's quota cannot be counted, this never returns: a request that is not counted must
    /// not leave. The next call that asks to start learns of it, and the run stops.
    async fn http_request(&self) {
        if !self.shared.counts_http {
            return;
        }
        let started = Turn::of_requests(&self.shared, self.sharer.id)
            .await
            .start()
            .await;
        if started.is_err() {
            std::future::pending().await
        }
    }
}
