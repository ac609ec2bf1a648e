//! Load: samples of each signal, and what share of a window they were overloaded for.
//!
//! Invariant: what is not known is never taken for an answer. A signal without an interval
//! between two samples, or whose last sample is old, is unknown, not idle.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A sample that is this many intervals old says nothing about now.
const STALE_AFTER: u32 = 3;

/// Changes between overloaded and not that are kept of a signal: more than twelve hours of a
/// signal that changes with every sample, in about 1.5 MB.
pub(super) const MAX_RUNS: usize = 1 << 16;

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Processor time, as a part of what is allowed.
    Cpu,
    /// Memory, as a part of what is allowed.
    Memory,
    /// How late the runtime's timers are.
    Lag,
    /// Refusals by servers for our rate.
    Breaches,
}

impl Signal {
    /// Every signal, in the order in which they are told.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Lag, Self::Breaches];

    /// The time between two samples.
    pub const fn interval(self) -> Duration {
        match self {
            Self::Lag => Duration::from_millis(500),
            Self::Cpu | Self::Memory | Self::Breaches => Duration::from_secs(1),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Lag => "runtime lag",
            Self::Breaches => "breaches",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One value for each signal.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EachSignal<T> {
    /// Of the processors.
    pub cpu: T,
    /// Of memory.
    pub memory: T,
    /// Of the runtime's timers.
    pub lag: T,
    /// Of refusals.
    pub breaches: T,
}

impl<T> EachSignal<T> {
    fn of(&self, signal: Signal) -> &T {
        match signal {
            Signal::Cpu => &self.cpu,
            Signal::Memory => &self.memory,
            Signal::Lag => &self.lag,
            Signal::Breaches => &self.breaches,
        }
    }

    fn of_mut(&mut self, signal: Signal) -> &mut T {
        match signal {
            Signal::Cpu => &mut self.cpu,
            Signal::Memory => &mut self.memory,
            Signal::Lag => &mut self.lag,
            Signal::Breaches => &mut self.breaches,
        }
    }
}

/// The samples of all signals.
#[derive(Debug)]
pub(super) struct Load {
    each: EachSignal<Samples>,
    limits: EachSignal<f64>,
    /// Older samples are in no window.
    keep: Duration,
}

/// The samples of one signal, as runs of intervals that ended the same way.
#[derive(Debug, Default)]
struct Samples {
    /// Oldest first, none empty.
    runs: VecDeque<Run>,
    /// When the last sample was taken; `None` if there is none, or taking it failed.
    last: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    from: Duration,
    to: Duration,
    overloaded: bool,
}

impl Load {
    pub(super) fn new(limits: EachSignal<f64>, keep: Duration) -> Self {
        Self {
            each: EachSignal::default(),
            limits,
            keep,
        }
    }

    /// A sample was taken.
    pub(super) fn record(&mut self, signal: Signal, now: Duration, overloaded: bool) {
        let keep_from = now.saturating_sub(self.keep);
        self.each.of_mut(signal).record(now, overloaded, keep_from);
    }

    /// No sample can be taken. The next one ends no interval.
    pub(super) fn fail(&mut self, signal: Signal) {
        self.each.of_mut(signal).last = None;
    }

    #[cfg(test)]
    pub(super) fn runs(&self, signal: Signal) -> usize {
        self.each.of(signal).runs.len()
    }

    pub(super) fn judge(&self, now: Duration, window: Duration) -> Verdict {
        Verdict(Signal::ALL.map(|signal| Judged {
            signal,
            ratio: self.each.of(signal).ratio(signal, now, window),
            limit: *self.limits.of(signal),
        }))
    }
}

impl Samples {
    fn record(&mut self, now: Duration, overloaded: bool, keep_from: Duration) {
        let now = self.last.map_or(now, |last| last.max(now));
        if let Some(from) = self.last.replace(now).filter(|from| *from < now) {
            match self.runs.back_mut() {
                Some(run) if run.overloaded == overloaded && run.to == from => run.to = now,
                _ => self.runs.push_back(Run {
                    from,
                    to: now,
                    overloaded,
                }),
            }
        }
        while self.runs.front().is_some_and(|run| run.to < keep_from) || self.runs.len() > MAX_RUNS
        {
            self.runs.pop_front();
        }
    }

    /// The share of the window's intervals that ended overloaded. An interval that began before
    /// the window counts with the part inside it.
    fn ratio(&self, signal: Signal, now: Duration, window: Duration) -> Option<f64> {
        let age = now.saturating_sub(self.last?);
        if age > signal.interval() * STALE_AFTER {
            return None;
        }
        let start = now.saturating_sub(window);
        let (mut all, mut overloaded) = (0.0, 0.0);
        for run in self.runs.iter().rev().take_while(|run| run.to > start) {
            let seconds = (run.to - run.from.max(start)).as_secs_f64();
            all += seconds;
            if run.overloaded {
                overloaded += seconds;
            }
        }
        if all > 0.0 {
            return Some(overloaded / all);
        }
        // A window shorter than the time between two samples holds the latest of them.
        self.runs
            .back()
            .map(|run| f64::from(u8::from(run.overloaded)))
    }
}

/// What the samples of a window say of one signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The signal.
    pub signal: Signal,
    /// Its share of overloaded time, from 0 to 1; `None` if that is not known.
    pub ratio: Option<f64>,
    /// A larger share means that the machine is overloaded.
    pub limit: f64,
}

impl Judged {
    /// Whether this signal alone says that the machine is overloaded.
    pub fn overloaded(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio > self.limit)
    }
}

/// What the samples of a window say. Its text is for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict([Judged; 4]);

impl Verdict {
    /// What they say of each signal.
    pub fn signals(&self) -> &[Judged; 4] {
        &self.0
    }

    /// Any signal is overloaded.
    pub fn overloaded(&self) -> bool {
        self.0.iter().any(Judged::overloaded)
    }

    /// Every signal is known.
    pub fn known(&self) -> bool {
        self.0.iter().all(|judged| judged.ratio.is_some())
    }

    /// Whether the two say the same, be it with other figures.
    pub fn agrees(&self, other: &Self) -> bool {
        let kind = |judged: &Judged| (judged.ratio.is_some(), judged.overloaded());
        self.0.iter().map(kind).eq(other.0.iter().map(kind))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from(match self.overloaded() {
            true => "overloaded: ",
            false => "not overloaded",
        });
        let mut comma = "";
        for judged in self.0.iter().filter(|judged| judged.overloaded()) {
            // Rounded up, so that it is never shown as its limit.
            let percent = (judged.ratio.unwrap_or(0.0) * 100.0 - 1e-6).ceil();
            let (signal, limit) = (judged.signal, judged.limit * 100.0);
            text += &format!("{comma}{signal} {percent:.0}% of the time (limit {limit:.0}%)");
            comma = ", ";
        }
        let mut unknown = "; unknown: ";
        for judged in self.0.iter().filter(|judged| judged.ratio.is_none()) {
            text += &format!("{unknown}{}", judged.signal);
            unknown = ", ";
        }
        f.write_str(&text)
    }
}
