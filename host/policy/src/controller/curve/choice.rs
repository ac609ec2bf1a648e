//! Where to go next: what a level is worth going to, what it costs to find out, and how big
//! the next batches should be.
//!
//! Invariant: no level is raised to where a call is expected to take longer than the target latency.

use super::Curve;
use super::belief::Gain;
use super::look::{self, Look};
use super::samples::Place;
use crate::controller::change::{Change, Reason};
use crate::controller::levels::Dimension;

/// A gain in throughput counts only above this share of the relative step in workers: calls
/// that buy less are given back.
const LEAST_RETURN: f64 = 0.15;
/// A move pays off over so many rounds: as many as there have been, within these.
const HORIZON: (f64, f64) = (5.0, 600.0);
/// Rounds that a trial may last: under much noise one teaches nothing.
const TRIAL_ROUNDS: [f64; 3] = [1.0, 4.0, 16.0];
/// Rounds that a move costs besides what is lost there: calls that are still running, and a
/// setting to get used to.
const MOVE_COST: f64 = 0.1;
/// What a move must bring at least, as a ln: levels that are worth the same are not gone
/// through in turn.
const NOT_WORTH_IT: f64 = 0.005;

/// Steps up in which the workers that are left would be gone through, each by the same factor:
/// where every octave may hold the knee alike, each step is as likely to pass it.
const STEPS: f64 = 5.0;
/// The factor's bounds.
const SHYEST: f64 = 1.2;
const BOLDEST: f64 = 2.5;
/// How probable it must be that a move pays, at the start of an epoch. It may be less probable
/// the more samples there were: after so many of them, nothing more is learned here.
const CONFIDENCE: f64 = 0.86;
const PATIENCE: f64 = 200.0;
/// The same for small steps up, and for steps down.
const PATIENCE_SMALL: f64 = 120.0;
const PATIENCE_DOWN: f64 = 10.0;
/// Nothing is raised that is less probable to pay than this.
const AGAINST_THE_ODDS: f64 = 0.4;
/// How probable it must be that fewer pay, to say so before the epoch's slow calls are back.
const SURE: f64 = 0.8;
/// A step up to try what is not expected to pay is no bigger than this; a step down no lower.
const TRIAL_UP: f64 = 1.1;
const TRIAL_DOWN: f64 = 0.7;
/// Distance of the levels weighed against each other.
const CANDIDATES: f64 = 1.06;

/// More workers are looked at after so many rounds, in case the server can take them now; later
/// if that costs more than this share of the work.
pub(super) const LOOK_AFTER: f64 = 26.0;
const LOOK_SHARE: f64 = 0.015;
/// A look goes as far as it takes to tell in so many rounds.
const LOOK_ROUNDS: f64 = 1.0;

/// Where fewer workers were never tried, this share of them is, after so many rounds without a rise and for so many
/// rounds.
const BELOW: f64 = 0.6;
const BELOW_AFTER: f64 = 8.0;
const BELOW_ROUNDS: f64 = 2.0;
/// Where they were, some are tried again, up to this share, if it is this probable that they pay; each time for twice as
/// many rounds after twice as many, doubled so many times.
const BELOW_MOST: f64 = 0.85;
const BELOW_ODDS: f64 = 0.1;
const MOST_LOOKS_BELOW: u32 = 3;
/// With so many workers, fewer are tried at once after the first round and after a slowdown: these are as likely to be
/// too many as too few, and a round at fewer costs less than it may save.
const MANY: u32 = 8;
/// The calls of the first round saw the server fill up: they count for this share.
const FILLING: f64 = 0.1;

/// Gain in throughput, as a share of the relative step in size, for which batches grow.
const LEAST_SIZE_RETURN: f64 = 0.03;
/// Gain, as a ln, for which they are halved.
const SMALLER_RETURN: f64 = 0.1;
/// Standard deviations of noise that are kept clear of a timeout.
const NOISE_MARGIN: f64 = 2.0;
/// What was measured at both of two levels counts for more than the curves if it differs by so many standard errors
/// and this ln.
const MEASURED_ERRORS: f64 = 3.0;
const MEASURED_APART: f64 = 0.1;

/// A level that is worth going to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) workers: u32,
    /// Expected ln of the ratio of throughput, less what more workers must bring.
    pub(super) worth: f64,
    /// The ratio of throughput that is expected.
    ratio: f64,
    /// Rounds that it takes to find out.
    rounds: f64,
    /// What it is expected to bring over the horizon, less its cost; in rounds.
    value: f64,
}

impl Target {
    pub(super) fn reason(&self) -> Reason {
        if self.worth > 0.0 {
            Reason::Expected(self.ratio)
        } else {
            Reason::Trial
        }
    }
}

impl Gain {
    /// Whether this, which was measured, is clearly something else than the curves say: they stand on a grid, and a
    /// cliff between two of its points follows none of them.
    fn contradicts(self, believed: Gain) -> bool {
        let error = (self.variance + believed.variance).sqrt();
        (self.mean - believed.mean).abs() > MEASURED_ERRORS * error + MEASURED_APART
    }
}

impl Curve {
    pub(super) fn choose_workers(&mut self, changes: &mut Vec<Change>) {
        let workers = self.levels.setting().workers;
        let highest = self.levels[Dimension::Workers].highest();
        self.in_doubt &= !self.doubt_is_over(workers);
        if self.in_doubt
            && workers >= MANY
            && let Some(to) = self.look_below(workers)
        {
            if self.levels.epoch() == 0 {
                self.samples.discount(self.here(), FILLING);
            }
            self.move_workers(to, Reason::Below, changes);
            return;
        }
        let best = [self.best_fewer(), self.best_more()];
        let best = best.into_iter().flatten();
        if let Some(target) = best.max_by(|a, b| a.value.total_cmp(&b.value)) {
            if target.worth <= 0.0 {
                self.trial_rounds = target.rounds;
            }
            self.move_workers(target.workers, target.reason(), changes);
        } else if self.rounds_since_rise >= BELOW_AFTER
            && (workers < highest || workers >= MANY)
            && let Some(to) = self.look_below(workers)
        {
            let times = f64::from(1_u32 << self.looks_below);
            self.trial_rounds = BELOW_ROUNDS * times;
            self.below_at = self.rounds + LOOK_AFTER * times;
            self.looks_below = (self.looks_below + 1).min(MOST_LOOKS_BELOW);
            let reason = match self.tried_below(workers) {
                true => Reason::Trial,
                false => Reason::Below,
            };
            self.move_workers(to, reason, changes);
        } else if workers < highest
            && let Some(to) = self.look_ahead(workers, highest)
        {
            self.look_at(workers, to, None, changes);
        }
    }

    /// The best of the levels below, down to half.
    pub(super) fn best_fewer(&mut self) -> Option<Target> {
        let workers = self.levels.setting().workers;
        let lowest = self.levels[Dimension::Workers].lowest().max(workers / 2);
        let trial = TRIAL_DOWN * f64::from(workers);
        let mut best = None;
        let mut to = lowest;
        while to < workers {
            let target = self.target(to);
            if (target.worth > 0.0 || f64::from(to) >= trial) && self.is_ripe(to, PATIENCE_DOWN) {
                take_better(&mut best, target);
            }
            to = self.next_below(to, workers);
        }
        best
    }

    /// The next level to weigh below the present one: of those at a distance, and those that were measured.
    fn next_below(&self, to: u32, workers: u32) -> u32 {
        let measured = self.samples.places().map(|(place, _)| place.workers);
        let measured = measured.filter(|level| (to + 1..workers).contains(level));
        measured.fold(next_candidate(to), u32::min)
    }

    pub(super) fn sure_of_fewer(&mut self, target: &Target) -> bool {
        let workers = self.levels.setting().workers;
        let least = least_gain(workers, target.workers);
        self.confidence(target.workers, least) >= SURE
    }

    /// The best of the levels above, as far as it is sure enough.
    fn best_more(&mut self) -> Option<Target> {
        let workers = self.levels.setting().workers;
        let highest = self.levels[Dimension::Workers].highest();
        let highest = highest.min(next_step(workers, highest));
        let trial = trial_above(workers);
        let mut best = None;
        let mut to = workers;
        while to < highest {
            to = next_candidate(to).min(highest);
            if self.too_slow(to, self.levels.setting().batch_size) {
                break;
            }
            let target = self.target(to);
            let patience = if to <= trial {
                PATIENCE_SMALL
            } else {
                PATIENCE
            };
            if (to <= trial || target.worth > 0.0) && self.is_ripe(to, patience) {
                take_better(&mut best, target);
            }
        }
        best
    }

    /// Whether it is sure enough that a level is worth more, after so many samples here.
    fn is_ripe(&mut self, to: u32, patience: f64) -> bool {
        let workers = self.levels.setting().workers;
        let waited = f64::from(self.epoch.samples) / patience;
        let least = least_gain(workers, to);
        let floor = if to > workers { AGAINST_THE_ODDS } else { 0.0 };
        let wanted = (CONFIDENCE * (1.0 - waited)).max(floor);
        self.confidence(to, least) >= wanted
    }

    fn target(&mut self, to: u32) -> Target {
        let workers = self.levels.setting().workers;
        let (believed, loss) = self.belief.outlook(workers, to);
        let measured = self.measured(to);
        let gain = measured.filter(|gain| gain.contradicts(believed));
        let gain = gain.unwrap_or(believed);
        let worth = gain.mean - least_gain(workers, to);
        let noise = self.samples.noise();
        let horizon = self.rounds.clamp(HORIZON.0, HORIZON.1);
        let (mut value, mut rounds) = (f64::NEG_INFINITY, 1.0);
        for of in TRIAL_ROUNDS {
            // What the samples of so many rounds will teach: by how much they may move the
            // expectation.
            let error = noise * noise / (of * f64::from(to));
            let lesson = gain.variance / (gain.variance + error).sqrt();
            let brings = horizon * (expected_best(worth, lesson) - NOT_WORTH_IT) - of * loss;
            if brings > value {
                (value, rounds) = (brings, of);
            }
        }
        Target {
            workers: to,
            worth,
            ratio: gain.mean.exp(),
            rounds,
            value: value - MOVE_COST,
        }
    }

    /// What going there brings, as it was measured at both levels.
    fn measured(&self, to: u32) -> Option<Gain> {
        let here = self.here();
        let there = Place {
            workers: to,
            ..here
        };
        let (slower, error) = self.samples.slower(here, there)?;
        Some(Gain {
            mean: (f64::from(to) / f64::from(here.workers)).ln() - slower,
            variance: error * error,
        })
    }

    /// How probable it is that going there brings more than this ln.
    fn confidence(&mut self, to: u32, least: f64) -> f64 {
        let workers = self.levels.setting().workers;
        if let Some(measured) = self.measured(to)
            && measured.contradicts(self.belief.gain(workers, to))
        {
            let sure = measured.mean - MEASURED_ERRORS * measured.variance.sqrt();
            return f64::from(sure > least);
        }
        self.belief.confidence(workers, to, least)
    }

    /// Fewer workers, where it is not known that they get less done: the start may have been too many already, and
    /// what was measured on the way up may have misled.
    fn look_below(&mut self, workers: u32) -> Option<u32> {
        let lowest = self.levels[Dimension::Workers].lowest();
        let to = ((f64::from(workers) * BELOW) as u32).max(lowest);
        if to >= workers {
            return None;
        }
        if !self.tried_below(workers) {
            return Some(to);
        }
        if self.rounds < self.below_at {
            return None;
        }
        let most = (f64::from(workers) * BELOW_MOST) as u32;
        let mut to = to;
        while to <= most {
            if self.confidence(to, least_gain(workers, to)) >= BELOW_ODDS {
                return Some(to);
            }
            to = next_candidate(to);
        }
        None
    }

    fn tried_below(&self, workers: u32) -> bool {
        let mut places = self.samples.places();
        places.any(|(place, _)| place.workers < workers)
    }

    /// Whether what was measured at a higher level says that there is nothing to be had from fewer.
    fn doubt_is_over(&mut self, workers: u32) -> bool {
        let above = self.samples.places().map(|(place, _)| place.workers);
        let above = above.filter(|above| *above > workers).min();
        above
            .is_some_and(|above| self.belief.gain(workers, above).mean > least_gain(workers, above))
    }

    /// A step up to see whether the server can take more than it could, when it is time: the
    /// smallest at which that can be told.
    fn look_ahead(&mut self, workers: u32, highest: u32) -> Option<u32> {
        if self.rounds_since_rise < LOOK_AFTER {
            return None;
        }
        let size = self.levels.setting().batch_size;
        let noise = self.samples.noise();
        let most = workers.saturating_mul(2).min(highest);
        let mut to = workers + 1;
        let mut calls = look::calls(self.apart(workers, to), noise);
        while to < most && calls > (LOOK_ROUNDS * f64::from(to)).max(look::FEWEST) {
            to = next_candidate(to).min(most);
            calls = look::calls(self.apart(workers, to), noise);
        }
        let share = (calls / f64::from(to)).min(1.0);
        let wait = share * self.belief.loss(workers, to) / LOOK_SHARE;
        let due = self.rounds_since_rise >= wait;
        (due && !self.too_slow(to, size)).then_some(to)
    }

    fn apart(&mut self, from: u32, to: u32) -> f64 {
        let size = self.levels.setting().batch_size;
        let believed = self.belief.ln_seconds(to, size) - self.belief.ln_seconds(from, size);
        look::apart(from, to, Some(believed))
    }

    /// Goes there to see whether the server can take more than it could.
    pub(super) fn look_at(
        &mut self,
        from: u32,
        to: u32,
        walk: Option<f64>,
        changes: &mut Vec<Change>,
    ) {
        let setting = self.levels.setting();
        let size = setting.batch_size;
        let noise = self.samples.noise();
        let (here, apart) = match walk {
            None => (self.belief.ln_seconds(from, size), self.apart(from, to)),
            Some(here) => (here, look::apart(from, to, None)),
        };
        let mut look = Look::new(from, to, walk.is_some(), here, apart, noise);
        self.move_workers(to, Reason::Look, changes);
        self.start_epoch(true);
        look.epoch = self.levels.epoch();
        self.looked = Some((look.epoch, look.level()));
        self.look = Some(look);
    }

    /// Bigger batches, as long as they are expected to bring something.
    pub(super) fn choose_size(&mut self, changes: &mut Vec<Change>) {
        let setting = self.levels.setting();
        let size = setting.batch_size;
        let mut to = self
            .sizes
            .next(size, self.levels[Dimension::BatchSize].highest());
        while to > size && self.times_out(setting.workers, to) {
            to = size + (to - size) / 2;
        }
        let step = (f64::from(to) / f64::from(size)).ln();
        let gain = self.belief.size_gain(size, to);
        if to > size && gain >= LEAST_SIZE_RETURN * step {
            let reason = Reason::Expected(gain.exp());
            self.move_level(Dimension::BatchSize, to, reason, changes);
            return;
        }
        let half = (size / 2).max(1);
        let gain = self.belief.size_gain(size, half);
        if half < size && gain > SMALLER_RETURN {
            let reason = Reason::Expected(gain.exp());
            self.move_level(Dimension::BatchSize, half, reason, changes);
        }
    }

    fn times_out(&mut self, workers: u32, size: u32) -> bool {
        let margin = NOISE_MARGIN * self.samples.noise();
        let ln_seconds = self.belief.ln_seconds(workers, size) + margin;
        let limit = self.config.max_batch_seconds;
        let limit = limit.map(|limit| self.config.batch_seconds_headroom * limit);
        limit.is_some_and(|limit| ln_seconds.exp() > limit) || self.too_slow(workers, size)
    }
}

/// What more workers must bring, as an ln; negative for fewer.
fn least_gain(from: u32, to: u32) -> f64 {
    LEAST_RETURN * (f64::from(to) / f64::from(from)).ln()
}

fn next_step(workers: u32, highest: u32) -> u32 {
    let left = f64::from(highest) / f64::from(workers);
    let factor = left.max(1.0).powf(1.0 / STEPS).clamp(SHYEST, BOLDEST);
    let to = (f64::from(workers) * factor).round() as u32;
    to.max(workers.saturating_add(1))
}

fn trial_above(workers: u32) -> u32 {
    let step = (f64::from(workers) * TRIAL_UP).round() as u32;
    step.max(workers.saturating_add(1))
}

fn next_candidate(level: u32) -> u32 {
    let step = (f64::from(level) * CANDIDATES).round() as u32;
    step.max(level.saturating_add(1))
}

fn take_better(best: &mut Option<Target>, target: Target) {
    if target.value > best.map_or(0.0, |best| best.value) {
        *best = Some(target);
    }
}

/// The expectation of the better of 0 and a normal value.
fn expected_best(mean: f64, deviation: f64) -> f64 {
    if deviation < 1e-9 {
        return mean.max(0.0);
    }
    let z = mean / deviation;
    let density =
        (-0.5 * z * z).exp() * std::f64::consts::FRAC_1_SQRT_2 * std::f64::consts::FRAC_2_SQRT_PI
            / 2.0;
    // A logistic curve that is within 0.0002 of the normal distribution.
    let distribution = 1.0 / (1.0 + (-1.5976 * z - 0.070_566 * z * z * z).exp());
    deviation * density + mean * distribution
}
