//! A look at more workers: can the server take more than it could? No more calls are sent there
//! than it takes to tell, and two claims are weighed: that nothing changed, and that a call
//! there is as fast as it is with fewer.
//!
//! Invariant: a look ends, after [`MOST_ROUNDS`] at the latest.

use super::samples::haste;

/// How much more probable one claim must have become than the other, as a ln: that more can be
/// taken, and that nothing changed.
const CHANGED: f64 = 4.0;
const UNCHANGED: f64 = 1.7;
/// Longer than so many rounds is not worth it: a call that is not back by then is slow enough.
const MOST_ROUNDS: f64 = 4.0;
/// One sample counts for no more than so many sigmas.
const CLAMP: f64 = 2.5;
/// Fewest calls to tell by.
pub(super) const FEWEST: f64 = 5.0;
/// Share of its calls, or rounds of them, that must have ended to say that more can be taken: the first
/// to end are the fastest.
const MOST_ENDED: f64 = 0.75;
const ROUNDS_ENDED: f64 = 1.5;
/// Slower by this ln is slow enough to be told from a server that can take more.
const APART: f64 = 0.3;
const MOST_APART: f64 = 0.6;

#[derive(Debug)]
pub(super) struct Look {
    /// Workers to come back to, and those looked at.
    pub(super) from: u32,
    pub(super) to: u32,
    /// It is for sure that the server changed; how much it can take is looked for.
    pub(super) walk: bool,
    /// The epoch its calls are dispatched in.
    pub(super) epoch: u64,
    /// Calls that it takes.
    pub(super) calls: f64,
    /// Log seconds of a call if nothing changed, and if the server can take more.
    unchanged: f64,
    pub(super) changed: f64,
    /// Calls that ended since it began, its own and others.
    ended: f64,
    pub(super) n: f64,
    mean: f64,
    /// Sum of the log seconds, not clamped.
    sum: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    Changed,
    Unchanged,
}

/// Ln by which a call is slower there if nothing changed, given what is believed.
pub(super) fn apart(from: u32, to: u32, believed: Option<f64>) -> f64 {
    let more = (f64::from(to) / f64::from(from)).ln();
    match believed {
        Some(believed) => believed.clamp(0.0, more.max(MOST_APART)),
        None => more.max(APART),
    }
}

/// Calls that it takes to tell, on average.
pub(super) fn calls(apart: f64, noise: f64) -> f64 {
    (2.0 * CHANGED * (noise / apart.max(1e-6)).powi(2)).max(FEWEST)
}

impl Look {
    pub(super) fn new(from: u32, to: u32, walk: bool, here: f64, apart: f64, noise: f64) -> Self {
        let extra = f64::from(to - from);
        let calls = calls(apart, noise)
            .max(extra)
            .min(MOST_ROUNDS * f64::from(to));
        Self {
            from,
            to,
            walk,
            epoch: 0,
            calls,
            unchanged: here + apart,
            changed: here,
            ended: 0.0,
            n: 0.0,
            mean: 0.0,
            sum: 0.0,
        }
    }

    /// Workers that its calls saw on average: the first of them fewer than the last.
    pub(super) fn level(&self) -> u32 {
        let extra = f64::from(self.to - self.from);
        self.to - (extra * extra / (2.0 * self.calls.max(extra))) as u32
    }

    /// A call ended; says whether all of its own have been sent.
    pub(super) fn ended(&mut self) -> bool {
        self.ended += 1.0;
        f64::from(self.to - self.from) + self.ended >= self.calls
    }

    /// It took too long.
    pub(super) fn is_over(&self) -> bool {
        self.ended >= self.calls + MOST_ROUNDS * f64::from(self.from)
    }

    /// Takes in one of its own calls.
    pub(super) fn add(&mut self, ln_seconds: f64, noise: f64) {
        let low = self.changed - CLAMP * noise;
        let high = self.unchanged + CLAMP * noise;
        self.n += 1.0;
        self.sum += ln_seconds;
        self.mean += (ln_seconds.clamp(low, high) - self.mean) / self.n;
    }

    /// Mean log seconds of its calls: those that are not back have taken so many rounds at least.
    pub(super) fn mean(&self) -> f64 {
        let waiting = (self.calls - self.n).max(0.0);
        let rounds = 1.0 + self.ended / f64::from(self.from);
        let least = (self.changed + rounds.ln()).max(self.sum / self.n.max(1.0));
        (self.sum + waiting * least) / (self.n + waiting).max(1.0)
    }

    pub(super) fn verdict(&self, noise: f64) -> Option<Verdict> {
        if self.n > 0.0 {
            let waiting = (self.calls - self.n).clamp(0.0, f64::from(self.to));
            let mean = self.mean + haste(noise, waiting, self.n);
            let apart = self.unchanged - self.changed;
            let middle = 0.5 * (self.unchanged + self.changed);
            let log = self.n * apart * (middle - mean) / (noise * noise);
            let ended =
                self.n >= MOST_ENDED * self.calls || self.n >= ROUNDS_ENDED * f64::from(self.to);
            if log > CHANGED && ended {
                return Some(Verdict::Changed);
            }
            if log < -UNCHANGED {
                return Some(Verdict::Unchanged);
            }
            if self.n >= self.calls {
                return Some(if log > 0.5 * CHANGED {
                    Verdict::Changed
                } else {
                    Verdict::Unchanged
                });
            }
        }
        self.is_over().then_some(Verdict::Unchanged)
    }
}
