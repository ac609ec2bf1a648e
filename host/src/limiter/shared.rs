//! What the clones of a limiter share: the policy's state behind one short lock, the clocks, and
//! where the day's count is kept.
//!
//! Invariant: the policy is told the day before each question, and what it is asked and what it
//! answers is one step under the lock.

use super::calendar::{Calendar, CalendarError, ProviderDay, day_id};
use super::clock::WallClock;
use super::lessor::{self, Ask, Lessee};
use super::queue::Queue;
use super::state_file::StateFile;
use super::wait::{Wait, Why};
use super::{QuotaError, Reason};
use batchgate_policy::limiter::{self as policy, Denial};
use batchgate_policy::quota::{Day, DayId, Granted, Ledger, Wanted};
use jiff::Timestamp;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Stands for a moment that no clock reaches.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often the wall clock is looked at, at least, while starts are counted by day only for
/// the statistics. Where they are capped or kept, it is looked at before each start.
const LOOK_AT_WALL: Duration = Duration::from_secs(1);

pub(super) struct Shared {
    /// Where the policy's time begins.
    origin: Instant,
    pub(super) clock: Arc<dyn WallClock>,
    calendar: Calendar,
    pub(super) counts_http: bool,
    /// A day's count that is wrong would be one that lets too much through, or is kept.
    day_matters: bool,
    /// The queue of calls, and apart from it that of HTTP requests: a call that waits for its turn
    /// must not hold up the requests of those in flight.
    pub(super) calls: Queue,
    pub(super) requests: Queue,
    pub(super) state: Mutex<State>,
    /// Counts what may end a wait early: breaches, leases, failures. Only raised under `state`'s lock.
    pub(super) changes: watch::Sender<u64>,
    pub(super) count: Count,
}

/// Where the day's count is kept.
pub(super) enum Count {
    InMemory,
    InFile(mpsc::Sender<Ask>),
}

pub(super) struct State {
    pub(super) policy: policy::Limiter,
    today: ProviderDay,
    look_at_wall: Duration,
    /// The count, where it is not in a file.
    ledger: Option<Ledger>,
    /// A lease is on its way.
    pub(super) leasing: bool,
    failure: Option<Arc<QuotaError>>,
    /// The last moment told, and when that is on the wall, so that it is told the same each time.
    told: (Duration, Timestamp),
}

impl Shared {
    /// Starts the thread too that keeps the count in `file`.
    pub(super) fn start(
        mut policy: policy::Limiter,
        calendar: Calendar,
        today: ProviderDay,
        clock: Arc<dyn WallClock>,
        counts_http: bool,
        file: Option<StateFile>,
    ) -> io::Result<Arc<Self>> {
        let (asks, asked) = mpsc::channel();
        let shared = Arc::new(Self {
            origin: Instant::now(),
            clock,
            calendar,
            counts_http,
            day_matters: policy.quota().cap().is_some() || file.is_some(),
            calls: Queue::default(),
            requests: Queue::default(),
            state: Mutex::new(State {
                policy,
                today,
                look_at_wall: Duration::ZERO,
                ledger: None,
                leasing: false,
                failure: None,
                told: (Duration::ZERO, Timestamp::UNIX_EPOCH),
            }),
            changes: watch::Sender::new(0),
            count: match file {
                None => Count::InMemory,
                Some(_) => Count::InFile(asks),
            },
        });
        if let Some(file) = file {
            lessor::start(file, asked, Arc::downgrade(&shared))?;
        }
        Ok(shared)
    }

    /// Books a start, or says what to wait for.
    pub(super) fn try_start(&self, books: bool) -> Result<(), Wait> {
        let mut state = self.state();
        let now = self.now();
        if let Err(failure) = self.look_at_calendar(&mut state, now) {
            self.fail(&mut state, failure);
        }
        if state.failure.is_none() {
            self.lease(&mut state);
        }
        if let Some(failure) = &state.failure {
            return Err(self.failed(failure.clone()));
        }
        let answer = match books {
            true => state.policy.try_start(now),
            false => state.policy.try_pass(now),
        };
        match answer {
            Ok(()) => {
                self.lease(&mut state);
                Ok(())
            }
            Err(denial) => Err(self.wait(&mut state, now, denial)),
        }
    }

    /// Tells the quota which day it is.
    pub(super) fn look_at_calendar(
        &self,
        state: &mut State,
        now: Duration,
    ) -> Result<(), CalendarError> {
        if !self.day_matters && now < state.look_at_wall {
            return Ok(());
        }
        let wall = self.clock.now();
        if wall < state.today.starts || state.today.ends <= wall {
            state.today = self.calendar.day_at(wall)?;
        }
        let today = state.today;
        let left = unsigned(wall.duration_until(today.ends));
        state.look_at_wall = now + left.min(LOOK_AT_WALL);
        state.policy.quota().set_day(Day {
            id: day_id(today.date),
            ends: now + left,
        });
        Ok(())
    }

    /// Sees to it that the quota has, or gets, the lease that it wants.
    pub(super) fn lease(&self, state: &mut State) {
        let quota = state.policy.quota();
        let cap = quota.cap();
        match &self.count {
            Count::InMemory => {
                while let Some(wanted) = quota.wanted() {
                    let ledger = state.ledger.get_or_insert(Ledger {
                        day: wanted.day,
                        count: 0,
                    });
                    match ledger.lease(wanted, cap) {
                        Ok(granted) => quota.grant(wanted, granted),
                        Err(ahead) => return self.fail(state, ahead),
                    }
                }
            }
            Count::InFile(asks) => {
                if !state.leasing
                    && let Some(wanted) = quota.wanted()
                {
                    match asks.send(Ask::Lease(wanted, cap)) {
                        Ok(()) => state.leasing = true,
                        Err(_) => self.fail(state, QuotaError::Thread),
                    }
                }
            }
        }
    }

    /// The first failure stands: nothing starts after it.
    fn fail(&self, state: &mut State, failure: impl Into<QuotaError>) {
        state.failure.get_or_insert(Arc::new(failure.into()));
        self.changed();
    }

    fn failed(&self, failure: Arc<QuotaError>) -> Wait {
        Wait {
            why: Why::Failed(failure),
            change: *self.changes.borrow(),
        }
    }

    pub(super) fn wait(&self, state: &mut State, now: Duration, denial: Denial) -> Wait {
        let why = match denial.until {
            None => Why::Unleased,
            Some(until) => {
                let left = until.saturating_sub(now);
                let told = self.clock.now();
                if state.told.0 != until {
                    let wall = told.saturating_add(left).unwrap_or(Timestamp::MAX);
                    state.told = (until, wall);
                }
                let wall = match denial.reason {
                    Reason::Day => state.today.ends,
                    _ => state.told.1,
                };
                Why::Held {
                    reason: denial.reason,
                    until: self.instant(until),
                    left,
                    wall,
                    told,
                }
            }
        };
        Wait {
            why,
            change: *self.changes.borrow(),
        }
    }

    /// Wakes those who wait. Called under the state's lock, so that none misses it between asking
    /// and waiting.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn now(&self) -> Duration {
        self.since_origin(Instant::now())
    }

    pub(super) fn since_origin(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.origin)
    }

    pub(super) fn instant(&self, moment: Duration) -> Instant {
        self.origin
            .checked_add(moment)
            .unwrap_or_else(|| Instant::now() + FAR)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held leaves counts that are as good as before.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Lessee for Shared {
    fn leased(&self, wanted: Wanted, lease: Result<Granted, QuotaError>) {
        let mut state = self.state();
        state.leasing = false;
        match lease {
            Ok(granted) => state.policy.quota().grant(wanted, granted),
            Err(failure) => self.fail(&mut state, failure),
        }
        self.changed();
    }

    fn take_unused(&self) -> Option<(DayId, u64)> {
        self.state().policy.quota().take_unused()
    }
}

/// A time that is over is none.
pub(super) fn unsigned(time: jiff::SignedDuration) -> Duration {
    Duration::try_from(time).unwrap_or(Duration::ZERO)
}
