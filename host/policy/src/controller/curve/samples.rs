//! What was measured at each place, as means of log latency.
//!
//! Invariant: at most [`MOST_PLACES`] places, each with at least one sample and a finite mean.

use std::collections::BTreeMap;

/// Where a call was made: so many in flight, so many items in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) workers: u32,
    pub(super) items: u32,
}

/// The samples of a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    /// Samples, at most [`MOST_SAMPLES`].
    pub(super) n: f64,
    /// Mean of the log of seconds.
    pub(super) mean: f64,
    /// The number of the sample that was the last one here.
    last: u64,
}

/// A sample against the mean of the others at its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Residual {
    /// In units of the noise.
    pub(super) value: f64,
    /// Samples that it is compared with.
    pub(super) n: f64,
}

#[derive(Debug)]
pub(super) struct Samples {
    places: BTreeMap<Place, Stat>,
    /// Sum of squared residuals, and how many; for the noise.
    squares: f64,
    residuals: f64,
    /// Samples so far.
    total: u64,
}

/// Before anything is known, noise is taken for this, at the weight of so many samples.
const NOISE_PRIOR: f64 = 0.3;
const NOISE_PRIOR_WEIGHT: f64 = 1.5;
/// A server that answers to the microsecond still does not repeat itself exactly.
const LEAST_NOISE: f64 = 0.02;
/// Residuals that the noise is measured from; then they count half.
const NOISE_MEMORY: f64 = 600.0;
/// A straggler weighs no more than a sample so many sigmas out.
const CLAMP: f64 = 3.0;
const FEW: f64 = 3.0;
/// A place's mean follows slow drift: beyond so many samples it is a moving one.
const MOST_SAMPLES: f64 = 1500.0;
/// Places kept; the thinnest of those not measured lately goes first.
pub(super) const MOST_PLACES: usize = 24;
/// Places that are never dropped for being thin.
const RECENT_PLACES: usize = 8;
/// Rounds after which samples of higher levels count half.
const HALVED_AFTER: f64 = 300.0;
/// Fewest samples that contradict others, and by how much they must: an ln, and standard errors besides.
const FEWEST_TO_CONTRADICT: f64 = 8.0;
const CONTRADICTION: f64 = 0.3;
const CONTRADICTION_ERRORS: f64 = 4.0;
/// No call's time grows with more than this power of its items.
const STEEPEST_SIZE: f64 = 1.6;

impl Samples {
    pub(super) fn new() -> Self {
        Self {
            places: BTreeMap::new(),
            squares: NOISE_PRIOR * NOISE_PRIOR * NOISE_PRIOR_WEIGHT,
            residuals: NOISE_PRIOR_WEIGHT,
            total: 0,
        }
    }

    /// Standard deviation of the log of latency at one place.
    pub(super) fn noise(&self) -> f64 {
        (self.squares / self.residuals).sqrt().max(LEAST_NOISE)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (&Place, &Stat)> {
        self.places.iter()
    }

    /// Samples that a place's still count for, seen from another one. What lies above may have
    /// changed without a sign: it counts half after so many rounds; what lies below would show.
    pub(super) fn weight(&self, place: Place, stat: &Stat, here: Place) -> f64 {
        if place.workers <= here.workers {
            return stat.n;
        }
        let rounds = (self.total - stat.last) as f64 / f64::from(here.workers);
        stat.n * (-rounds / HALVED_AFTER).exp2()
    }

    pub(super) fn mean(&self, place: Place) -> Option<f64> {
        self.places.get(&place).map(|stat| stat.mean)
    }

    /// Adds a sample, and says how far it is from the others of its place, if there are any.
    pub(super) fn add(&mut self, place: Place, ln_seconds: f64, steady: bool) -> Option<Residual> {
        self.total += 1;
        let noise = self.noise();
        let Some(stat) = self.places.get_mut(&place) else {
            self.make_room();
            self.insert(place, 1.0, ln_seconds);
            return None;
        };
        // The mean it is compared with is itself uncertain.
        let unit = noise * (1.0 + 1.0 / stat.n).sqrt();
        let value = (ln_seconds - stat.mean) / unit;
        let residual = Residual { value, n: stat.n };
        let clamped = value.clamp(-CLAMP, CLAMP);
        // Of the first few, any may be the straggler.
        let moved = if stat.n < FEW { value } else { clamped };
        stat.n = (stat.n + 1.0).min(MOST_SAMPLES);
        stat.mean += moved * unit / stat.n;
        stat.last = self.total;
        if steady {
            self.squares += (clamped * noise).powi(2);
            self.residuals += 1.0;
        }
        if self.residuals > NOISE_MEMORY {
            self.squares /= 2.0;
            self.residuals /= 2.0;
        }
        Some(residual)
    }

    /// Forgets what was measured between two levels, except so many samples at one place there.
    pub(super) fn renew(&mut self, from: u32, to: u32, place: Place, n: f64, mean: f64) {
        self.places
            .retain(|place, _| place.workers <= from || place.workers > to);
        self.insert(place, n.max(1.0), mean);
    }

    /// No server is slower with fewer calls: where a level above was much faster than this place is now, it was
    /// another server then, and its samples are forgotten.
    pub(super) fn forget_contradicted(&mut self, here: Place) {
        let Some(now) = self.places.get(&here).copied() else {
            return;
        };
        if now.n < FEWEST_TO_CONTRADICT {
            return;
        }
        let noise = self.noise();
        self.places.retain(|place, stat| {
            let slower = now.mean - stat.mean;
            if place.workers <= here.workers || slower <= CONTRADICTION {
                return true;
            }
            // More items take longer too, but not by more than this.
            let bigger = (f64::from(here.items) / f64::from(place.items)).ln();
            let allowed = CONTRADICTION + STEEPEST_SIZE * bigger.max(0.0);
            let error = noise * (1.0 / now.n + 1.0 / stat.n).sqrt();
            slower <= allowed + CONTRADICTION_ERRORS * error
        });
    }

    /// How many times as long a call takes at one place as at another, as an ln, and the standard error of that;
    /// none where a round was not measured at both, or too long ago.
    pub(super) fn slower(&self, from: Place, to: Place) -> Option<(f64, f64)> {
        let weight = |place: Place| {
            let stat = self.places.get(&place)?;
            let n = self.weight(place, stat, from);
            (n >= f64::from(place.workers).max(FEWEST_TO_CONTRADICT)).then_some((stat.mean, n))
        };
        // Seldom there, so first.
        let (to, n_to) = weight(to)?;
        let (from, n_from) = weight(from)?;
        let error = self.noise() * (1.0 / n_from + 1.0 / n_to).sqrt();
        Some((to - from, error))
    }

    /// Lets what was measured at a place count for a share only.
    pub(super) fn discount(&mut self, place: Place, share: f64) {
        if let Some(stat) = self.places.get_mut(&place) {
            stat.n = (stat.n * share).max(1.0);
        }
        self.squares = NOISE_PRIOR * NOISE_PRIOR * NOISE_PRIOR_WEIGHT;
        self.residuals = NOISE_PRIOR_WEIGHT;
    }

    /// Forgets every place but one, of which so much is known.
    pub(super) fn start_over(&mut self, place: Place, n: f64, mean: f64) {
        self.places.clear();
        self.insert(place, n.max(1.0), mean);
    }

    fn insert(&mut self, place: Place, n: f64, mean: f64) {
        let stat = Stat {
            n,
            mean,
            last: self.total,
        };
        self.places.insert(place, stat);
    }

    fn make_room(&mut self) {
        if self.places.len() < MOST_PLACES {
            return;
        }
        let mut lasts: Vec<u64> = self.places.values().map(|stat| stat.last).collect();
        lasts.sort_unstable();
        let recent = lasts[lasts.len() - RECENT_PLACES];
        let old = self.places.iter().filter(|(_, stat)| stat.last < recent);
        let thinnest = old.min_by(|a, b| a.1.n.total_cmp(&b.1.n));
        if let Some(place) = thinnest.map(|(place, _)| *place) {
            self.places.remove(&place);
        }
    }
}

/// How much too low a mean log latency of `n` samples is while `in_flight` calls are still
/// running: those that have ended are the faster ones. From the theory of renewals, it is the
/// variance over the time waited, in units of a call.
pub(super) fn haste(noise: f64, in_flight: f64, n: f64) -> f64 {
    noise * noise * in_flight / (n + 0.45 * in_flight)
}
