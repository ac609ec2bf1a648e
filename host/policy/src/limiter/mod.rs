//! Says when a call may start: the caps a second, a minute and a day, and the cooldown that
//! all calls share after a breach.
//!
//! Invariant: a denial names the first moment at which the same question is answered with yes,
//! provided that nothing else happens in between; at any earlier moment the answer is no.
//!
//! Time is a [`Duration`] since an origin of the caller's and does not run backwards: an
//! earlier `now` counts as the latest one seen.

mod cooldown;
mod rate;
#[cfg(test)]
mod tests;
mod turns;
mod window;

pub use cooldown::MAX_COOLDOWN;

pub use turns::{SharerId, Turns};

use crate::quota::{Hold, Quota};
use cooldown::Cooldown;
use rate::Rate;
use std::fmt;
use std::time::Duration;
use window::Window;

/// Over which the bytes are counted.
const BYTES_SPAN: Duration = Duration::from_secs(60);
/// Bytes recorded this close together leave the window together, with the last of them. Bounds
/// the window at about 6,000 entries, and delays a start by at most this much.
const BYTES_GRAIN: Duration = Duration::from_millis(10);

/// The caps and the cooldown, as configured. `None` is no cap.
#[derive(Debug, Clone, PartialEq)]
pub struct LimiterConfig {
    /// Starts a second, above 0. A whole number bounds the starts in any window of one second;
    /// see [`Limiter::try_start`] for fractions.
    pub max_per_sec: Option<f64>,
    /// Bytes in the last 60 s at which no more calls start, at least 1.
    pub max_bytes_per_min: Option<u64>,
    /// Starts a day, at least 1.
    pub max_per_day: Option<u64>,
    /// The day's count outlives the process, so that it is leased in blocks (see [`Quota`]).
    pub durable_day: bool,
    /// The cooldown after a first breach.
    pub breach_base_cooldown: Duration,
    /// How many times further breaches double it, at most.
    pub breach_max_doublings: u32,
    /// Without a breach for longer than this, counted from the end of the last cooldown, the
    /// next one is a first breach again.
    pub breach_quiet_window: Duration,
}

/// A cap that cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BadCap {
    /// `max_per_sec` is zero, negative or not a finite number.
    PerSec(f64),
    /// `max_bytes_per_min` is zero.
    BytesPerMin,
    /// `max_per_day` is zero.
    PerDay,
}

impl fmt::Display for BadCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadCap::PerSec(rate) => write!(
                f,
                "max_per_sec = {rate}: must be a number above 0; leave it out for no cap"
            ),
            BadCap::BytesPerMin => {
                f.write_str("max_bytes_per_min = 0: must be at least 1; leave it out for no cap")
            }
            BadCap::PerDay => {
                f.write_str("max_per_day = 0: must be at least 1; leave it out for no cap")
            }
        }
    }
}

impl std::error::Error for BadCap {}

/// What holds a start back. Where several do, the one that holds longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The server refused us for our rate: nothing starts until the cooldown ends.
    Cooldown,
    /// `max_per_sec`.
    Rate,
    /// `max_bytes_per_min`.
    Bytes,
    /// `max_per_day`: the day's quota is spent.
    Day,
    /// Nothing of the day's quota is leased at the moment.
    Lease,
}

/// A start was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// What holds it back.
    pub reason: Reason,
    /// When to ask again. None for [`Reason::Lease`] alone: when the lease has come.
    pub until: Option<Duration>,
}

/// What the limiter counted, under the names of the six statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    /// Starts in the last second.
    pub req_per_sec_now: u64,
    /// Bytes recorded in the last 60 s.
    pub bytes_per_min_now: u64,
    /// Starts on this day; with a durable count those of other processes too, as of the last
    /// lease.
    pub daily_count: u64,
    /// Starts since the limiter was made.
    pub total_requests_this_process: u64,
    /// A cooldown is running.
    pub backing_off: bool,
    /// Seconds until it ends, 0 if none is running.
    pub backoff_remaining_s: f64,
}

/// The limiter of one job, or of several that share one.
#[derive(Debug, Clone)]
pub struct Limiter {
    cooldown: Cooldown,
    rate: Rate,
    bytes: Window,
    max_bytes: Option<u64>,
    quota: Quota,
    started: u64,
    latest: Duration,
}

impl Limiter {
    /// A limiter that has counted nothing yet. It starts nothing before its quota knows the
    /// day.
    pub fn new(config: &LimiterConfig) -> Result<Self, BadCap> {
        if config.max_bytes_per_min == Some(0) {
            return Err(BadCap::BytesPerMin);
        }
        if config.max_per_day == Some(0) {
            return Err(BadCap::PerDay);
        }
        Ok(Self {
            cooldown: Cooldown::new(
                config.breach_base_cooldown,
                config.breach_max_doublings,
                config.breach_quiet_window,
            ),
            rate: Rate::new(config.max_per_sec)?,
            bytes: Window::new(BYTES_SPAN, BYTES_GRAIN),
            max_bytes: config.max_bytes_per_min,
            quota: Quota::new(config.max_per_day, config.durable_day),
            started: 0,
            latest: Duration::ZERO,
        })
    }

    /// Books a start at `now`, or says why not and when to ask again.
    ///
    /// - A whole rate r: at most r starts in any window of one second (from a moment up to, not
    ///   including, the moment one second later).
    /// - A fraction below 100: starts are at least 1/r seconds apart, so that n starts never
    ///   take less than (n - 1)/r seconds. 0.5 is one start every 2 s.
    /// - A fraction above 100: the whole number below it. Less than 1 % is lost, where pacing
    ///   would lose more to timers of one millisecond.
    pub fn try_start(&mut self, now: Duration) -> Result<(), Denial> {
        let now = self.advance(now);
        let holds = [
            (Reason::Rate, self.rate.held_until(now)),
            (Reason::Bytes, self.bytes_held_until(now)),
            (Reason::Day, self.day_held_until()),
            (Reason::Cooldown, self.cooldown.held_until(now)),
        ];
        longest(holds)?;
        if self.quota.hold() == Hold::Unleased {
            return Err(Denial {
                reason: Reason::Lease,
                until: None,
            });
        }
        self.rate.book(now);
        self.quota.take();
        self.started += 1;
        Ok(())
    }

    /// What would hold back everything: a cooldown or a spent day. Books nothing. It is what a
    /// call is asked where the caps count its requests instead of the call.
    pub fn try_pass(&mut self, now: Duration) -> Result<(), Denial> {
        let now = self.advance(now);
        longest([
            (Reason::Day, self.day_held_until()),
            (Reason::Cooldown, self.cooldown.held_until(now)),
        ])
    }

    /// The server refused a call, which had started at `call_started`, for our rate, and
    /// perhaps said how long to leave it alone. Returns how long nothing starts from now on.
    /// Telling each call's breach only once is the caller's business.
    pub fn breach(
        &mut self,
        now: Duration,
        call_started: Duration,
        retry_after: Option<Duration>,
    ) -> Duration {
        let now = self.advance(now);
        self.cooldown.breach(now, call_started, retry_after)
    }

    /// A call whose breach was told before turns out to ask for longer: it lengthens the
    /// cooldown, and is no further breach.
    pub fn lengthen_cooldown(&mut self, now: Duration, retry_after: Duration) {
        let now = self.advance(now);
        self.cooldown.lengthen(now, retry_after);
    }

    /// Counts bytes that went over the wire.
    pub fn record_bytes(&mut self, now: Duration, bytes: u64) {
        let now = self.advance(now);
        self.bytes.add(now, bytes);
    }

    /// Spreads the starts of a second evenly, for several that share this limiter: where starts come all
    /// at once, those who queue for them would have none of them by their weights.
    pub fn spread(&mut self) {
        self.rate.spread();
    }

    /// Whether a cooldown is running.
    pub fn is_backing_off(&self, now: Duration) -> bool {
        self.backing_off_until(now).is_some()
    }

    /// When the running cooldown ends.
    pub fn backing_off_until(&self, now: Duration) -> Option<Duration> {
        self.cooldown.held_until(now.max(self.latest))
    }

    /// How many breaches there were, those that came during a cooldown included.
    pub fn breaches(&self) -> u64 {
        self.cooldown.breaches()
    }

    /// The day's quota: its owner tells it the day before each start, and brings the leases.
    pub fn quota(&mut self) -> &mut Quota {
        &mut self.quota
    }

    /// The six statistics.
    pub fn stats(&mut self, now: Duration) -> Stats {
        let now = self.advance(now);
        let backoff = self.cooldown.held_until(now);
        Stats {
            req_per_sec_now: self.rate.in_last_second(now),
            bytes_per_min_now: u64::try_from(self.bytes.sum(now)).unwrap_or(u64::MAX),
            daily_count: self.quota.daily_count(),
            total_requests_this_process: self.started,
            backing_off: backoff.is_some(),
            backoff_remaining_s: backoff.map_or(0.0, |until| (until - now).as_secs_f64()),
        }
    }

    fn advance(&mut self, now: Duration) -> Duration {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn bytes_held_until(&mut self, now: Duration) -> Option<Duration> {
        self.bytes.below(now, self.max_bytes?)
    }

    fn day_held_until(&self) -> Option<Duration> {
        match self.quota.hold() {
            Hold::Spent { until } => Some(until),
            Hold::Free | Hold::Unleased => None,
        }
    }
}

/// All that holds must have ended before a start succeeds, so the one that ends last counts
/// (of equal ones, the last listed).
fn longest<const N: usize>(holds: [(Reason, Option<Duration>); N]) -> Result<(), Denial> {
    let last = holds
        .into_iter()
        .filter_map(|(reason, until)| Some((reason, until?)))
        .max_by_key(|&(_, until)| until);
    match last {
        None => Ok(()),
        Some((reason, until)) => Err(Denial {
            reason,
            until: Some(until),
        }),
    }
}
