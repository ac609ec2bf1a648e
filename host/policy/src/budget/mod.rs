//! The budget: calls in flight that many jobs share, scaled by the machine's load.
//!
//! Invariant: no call starts while there are as many in flight as slots, and every start has exactly
//! one end. Nothing that runs is taken back: a surplus drains.
//!
//! Time is a [`Duration`] since an origin of the caller's and does not run backwards: an earlier
//! moment than one seen before is taken for that one.

mod consumer;
mod load;
mod scale;
mod share;
mod starts;
#[cfg(test)]
mod tests;

pub use load::{EachSignal, Judged, Signal, Verdict};
pub use scale::{Levels, Retuned};
pub use share::{Demand, shares};

use crate::controller::Override;
use consumer::Consumer;
use load::Load;
use scale::Scale;
use starts::Starts;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// For so long a verdict on the current window is used again, as nearly nothing changes in it.
const JUDGE_EVERY: Duration = Duration::from_millis(100);

/// What a budget is made from.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it starts, and its bounds.
    pub levels: Levels,
    /// Most starts a minute, of all consumers together, at least 1.
    pub max_tasks_per_minute: Option<u32>,
    /// A step of scaling changes the level by this part of it, above 0.
    pub step: f64,
    /// The window that decides whether a call may start.
    pub current: Duration,
    /// The window that decides about scaling.
    pub history: Duration,
    /// The share of the time that each signal may be overloaded for.
    pub limits: EachSignal<f64>,
}

/// What a consumer brings to the budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Its weight beside the others, above 0.
    pub weight: f64,
    /// Slots it gets whatever the others want.
    pub guarantee: u32,
    /// The most slots it gets.
    pub limit: Option<u32>,
    /// Most starts a minute of its own, at least 1.
    pub max_tasks_per_minute: Option<u32>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 1.0,
            guarantee: 0,
            limit: None,
            max_tasks_per_minute: None,
        }
    }
}

/// Names a consumer; the caller sees to it that no two have the same.
pub type ConsumerId = u64;

/// Why no call starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The consumer has its share in flight, or others are before it.
    Share,
    /// The machine is overloaded, and `min` calls are in flight.
    Overloaded,
    /// Too many started in the last minute.
    Rate {
        /// When to ask again.
        until: Duration,
        /// The cap is the consumer's own.
        own: bool,
    },
    /// What the caller asked besides said no.
    Further,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "budget share",
            Self::Overloaded => "budget, the machine is overloaded",
            Self::Rate { own: false, .. } => "budget's max_tasks_per_minute",
            Self::Rate { own: true, .. } => "share's max_tasks_per_minute",
            Self::Further => "no slot asked for",
        })
    }
}

/// Guarantees that cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyGuaranteed {
    /// All guarantees together.
    pub guaranteed: u64,
    /// The most slots that there can be.
    pub max: u32,
}

/// How a consumer stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Who.
    pub id: ConsumerId,
    /// What it brought.
    pub share: Share,
    /// Its calls in flight.
    pub in_flight: u32,
    /// Calls it could start.
    pub ready: u32,
    /// Slots it may use.
    pub slots: u32,
}

/// The budget.
#[derive(Debug)]
pub struct Budget {
    scale: Scale,
    load: Load,
    windows: (Duration, Duration),
    starts: Starts,
    consumers: BTreeMap<ConsumerId, Consumer>,
    in_use: u32,
    /// Starts so far, of anyone.
    served: u64,
    /// Says whether the gate is open, and until when it does.
    judged: (Verdict, Duration),
    /// The slots that the shares were made for; `None` after a change that may change them.
    shared: Option<u32>,
    latest: Duration,
}

impl Budget {
    /// A budget without consumers, of an idle machine of which nothing is known.
    pub fn new(config: &Config) -> Self {
        let keep = config.current.max(config.history);
        let load = Load::new(config.limits, keep);
        Self {
            scale: Scale::new(config.levels, config.step),
            judged: (load.judge(Duration::ZERO, config.current), Duration::ZERO),
            load,
            windows: (config.current, config.history),
            starts: Starts::new(config.max_tasks_per_minute),
            consumers: BTreeMap::new(),
            in_use: 0,
            served: 0,
            shared: None,
            latest: Duration::ZERO,
        }
    }

    /// Forgets what was measured, and starts from the levels configured: the system was stopped.
    /// Calls in flight stay in flight, and consumers stay.
    pub fn restart(&mut self, config: &Config) {
        let fresh = Self::new(config);
        self.scale = fresh.scale;
        self.load = fresh.load;
        self.judged = fresh.judged;
        self.shared = None;
    }

    /// A consumer joins.
    pub fn join(&mut self, id: ConsumerId, share: Share) -> Result<(), TooManyGuaranteed> {
        let held = self
            .consumers
            .values()
            .map(|c| u64::from(c.share.guarantee));
        let guaranteed = held.sum::<u64>() + u64::from(share.guarantee);
        let max = self.scale.levels().max;
        if guaranteed > u64::from(max) {
            return Err(TooManyGuaranteed { guaranteed, max });
        }
        let consumer = Consumer {
            share,
            starts: Starts::new(share.max_tasks_per_minute),
            in_flight: 0,
            ready: 0,
            slots: 0,
            shared_for: (0, true),
            served: 0,
            waiting: false,
        };
        self.consumers.insert(id, consumer);
        self.shared = None;
        Ok(())
    }

    /// A consumer leaves. What it has in flight goes on counting until it ends.
    pub fn leave(&mut self, id: ConsumerId) {
        self.consumers.remove(&id);
        self.shared = None;
    }

    /// A consumer could start so many calls, beside those in flight.
    pub fn demand(&mut self, id: ConsumerId, ready: u32) {
        if let Some(consumer) = self.consumers.get_mut(&id)
            && consumer.ready != ready
        {
            consumer.ready = ready;
            self.note_change(id);
        }
    }

    /// Starts a call: capacity, then rate, then whatever `further` asks besides, then it is
    /// booked. A start that is refused books nothing.
    pub fn try_start(
        &mut self,
        now: Duration,
        id: ConsumerId,
        ready: u32,
        further: impl FnOnce() -> bool,
    ) -> Result<(), Refusal> {
        let now = self.advance(now);
        self.demand(id, ready);
        self.note_change(id);
        let refusal = match self.allowed(now, id) {
            Err(refusal) => Some(refusal),
            Ok(()) if further() => None,
            Ok(()) => Some(Refusal::Further),
        };
        let Some(consumer) = self.consumers.get_mut(&id) else {
            return Err(Refusal::Share);
        };
        if let Some(refusal) = refusal {
            consumer.waiting = refusal != Refusal::Further;
            // Others may have the slots of one that could not use them now.
            if matches!(refusal, Refusal::Further | Refusal::Rate { own: true, .. }) {
                self.demand(id, 0);
            }
            return Err(refusal);
        }
        self.served += 1;
        consumer.starts.book(now);
        consumer.in_flight += 1;
        // A call more in flight is one fewer that is ready: the demand is the same.
        consumer.ready = consumer.ready.saturating_sub(1);
        consumer.served = self.served;
        self.starts.book(now);
        self.in_use += 1;
        self.note_change(id);
        Ok(())
    }

    /// A call of this consumer ended, however it ended. If nothing else of it is ready, its slot is for
    /// others; if it has more, it is for it to say how much.
    pub fn end(&mut self, id: ConsumerId) {
        self.in_use = self.in_use.saturating_sub(1);
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.in_flight = consumer.in_flight.saturating_sub(1);
            if consumer.in_flight == 0 || consumer.ready == 0 {
                self.shared = None;
            }
        }
    }

    /// A sample was taken.
    pub fn record(&mut self, now: Duration, signal: Signal, overloaded: bool) {
        let now = self.advance(now);
        self.load.record(signal, now, overloaded);
        self.judge(now);
    }

    /// A sample could not be taken.
    pub fn fail(&mut self, now: Duration, signal: Signal) {
        let now = self.advance(now);
        self.load.fail(signal);
        self.judge(now);
    }

    /// The time for a step of scaling has come.
    pub fn tick(&mut self, now: Duration) {
        let now = self.advance(now);
        let history = self.history(now);
        let rate_refuses = self.starts.held_until(now).is_some();
        self.scale.tick(&history, self.in_use, rate_refuses);
    }

    /// Applies rows of the control store, oldest first.
    pub fn apply(&mut self, rows: &[Override]) -> Vec<Retuned> {
        self.scale.apply(rows)
    }

    /// Who was refused and may start a call now. Each is told once.
    pub fn woken(&mut self, now: Duration) -> Vec<ConsumerId> {
        let now = self.advance(now);
        let free = self.may_start(now);
        if free == 0 {
            return Vec::new();
        }
        let mut next: Vec<_> = self
            .consumers
            .iter()
            .filter(|(_, consumer)| consumer.below_share())
            .map(|(id, consumer)| (*id, consumer.claim()))
            .collect();
        next.sort_by(|(a_id, a), (b_id, b)| a.order(b).then(a_id.cmp(b_id)));
        next.truncate(free as usize);
        next.retain(|(id, _)| {
            let consumer = self.consumers.get_mut(id);
            consumer.is_some_and(|consumer| std::mem::take(&mut consumer.waiting))
        });
        next.into_iter().map(|(id, _)| id).collect()
    }

    /// Slots there are now: `min` while the machine is overloaded.
    pub fn slots(&mut self, now: Duration) -> u32 {
        let now = self.advance(now);
        if now >= self.judged.1 + JUDGE_EVERY {
            self.judge(now);
        }
        let levels = self.scale.levels();
        match self.judged.0.overloaded() {
            true => levels.min,
            false => levels.desired,
        }
    }

    /// What the current window says.
    pub fn current(&mut self, now: Duration) -> Verdict {
        let now = self.advance(now);
        self.load.judge(now, self.windows.0)
    }

    /// What the historical window says.
    pub fn history(&mut self, now: Duration) -> Verdict {
        let now = self.advance(now);
        self.load.judge(now, self.windows.1)
    }

    /// The level and its bounds.
    pub fn levels(&self) -> Levels {
        self.scale.levels()
    }

    /// Calls in flight, of all consumers.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Calls started in the last minute.
    pub fn started_last_minute(&mut self, now: Duration) -> u32 {
        let now = self.advance(now);
        self.starts.count(now)
    }

    /// How each consumer stands.
    pub fn standings(&mut self, now: Duration) -> Vec<Standing> {
        let now = self.advance(now);
        self.share_out(now);
        let standing = |(id, consumer): (&ConsumerId, &Consumer)| Standing {
            id: *id,
            share: consumer.share,
            in_flight: consumer.in_flight,
            ready: consumer.ready,
            slots: consumer.slots,
        };
        self.consumers.iter().map(standing).collect()
    }

    /// The time passes only forwards.
    fn advance(&mut self, now: Duration) -> Duration {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn judge(&mut self, now: Duration) {
        self.judged = (self.load.judge(now, self.windows.0), now);
    }

    fn allowed(&mut self, now: Duration, id: ConsumerId) -> Result<(), Refusal> {
        let free = self.free(now);
        let full = match self.judged.0.overloaded() {
            true => Refusal::Overloaded,
            false => Refusal::Share,
        };
        let me = self.consumers.get(&id).ok_or(Refusal::Share)?;
        if free == 0 || me.in_flight >= me.slots {
            return Err(full);
        }
        let claim = me.claim();
        let before = self.consumers.iter().filter(|(other, consumer)| {
            consumer.below_share() && consumer.claim().order(&claim).then(other.cmp(&&id)).is_lt()
        });
        let before = before.count();
        // A rate that leaves fewer starts than there are slots is shared in the same order.
        if before >= self.may_start(now).max(1) as usize {
            return Err(full);
        }
        if let Some(until) = self.starts.held_until(now) {
            return Err(Refusal::Rate { until, own: false });
        }
        let me = self.consumers.get_mut(&id).ok_or(Refusal::Share)?;
        match me.starts.held_until(now) {
            Some(until) => Err(Refusal::Rate { until, own: true }),
            None => Ok(()),
        }
    }

    /// Slots that nobody uses, with the shares up to date.
    fn free(&mut self, now: Duration) -> u32 {
        let slots = self.share_out(now);
        slots.saturating_sub(self.in_use)
    }

    /// Calls that may start now.
    fn may_start(&mut self, now: Duration) -> u32 {
        let free = self.free(now);
        self.starts.left(now).map_or(free, |left| left.min(free))
    }

    /// The shares are made anew if they were made for something else.
    fn note_change(&mut self, id: ConsumerId) {
        if let Some(consumer) = self.consumers.get(&id)
            && consumer.shared_for != consumer.want()
        {
            self.shared = None;
        }
    }

    /// Brings the shares up to date; returns the slots that there are.
    fn share_out(&mut self, now: Duration) -> u32 {
        let slots = self.slots(now);
        if self.shared == Some(slots) {
            return slots;
        }
        self.shared = Some(slots);
        let demand = |consumer: &mut Consumer| {
            consumer.shared_for = consumer.want();
            let (cap, idle) = consumer.shared_for;
            Demand {
                weight: consumer.share.weight,
                guarantee: consumer.share.guarantee,
                cap,
                idle,
                served: consumer.served,
            }
        };
        let demands: Vec<_> = self.consumers.values_mut().map(demand).collect();
        let shares = shares(slots, &demands);
        for (consumer, share) in self.consumers.values_mut().zip(shares) {
            consumer.slots = share;
        }
        slots
    }
}
