//! The `curve` controller: from every sample it learns which curve of latency over load, and
//! over batch size, the server follows, and goes where those curves expect the most.
//!
//! Invariant: a level moves only for one of the reasons in [`Reason`], for a failed batch or
//! for an override; how a decision is reached is told in docs/tuner.md.

mod belief;
mod choice;
mod family;
mod latency;
mod look;
mod samples;
mod shift;
mod sizes;

use super::change::{Change, CutReason, Reason, Rebaseline};
use super::config::Config;
use super::levels::{Bounds, Dimension, Levels};
use super::overrides::Override;
use super::{Controller, Observation};
use crate::setting::Setting;
use belief::Belief;
use look::{Look, Verdict};
use samples::{Place, Samples, haste};
use shift::Shift;
use sizes::Sizes;

/// A controller by curve.
#[derive(Debug)]
pub struct Curve {
    config: Config,
    levels: Levels,
    samples: Samples,
    belief: Belief,
    /// Most workers that the belief's curves are laid out for.
    believed_workers: u32,
    shift: Shift,
    sizes: Sizes,
    epoch: Epoch,
    look: Option<Look>,
    /// The next look of a walk: from, to, and log seconds of a call so far.
    walk: Option<(u32, u32, f64)>,
    /// The epoch of the last look, and the workers that its calls saw on average.
    looked: Option<(u64, u32)>,
    /// Rounds since the start or the last shift: a round is as many samples as workers.
    rounds: f64,
    /// Rounds that the next epoch is to last at least.
    trial_rounds: f64,
    /// Rounds since more workers were last tried.
    rounds_since_rise: f64,
    /// What is measured here may be the work of too many workers: fewer are to be tried at once.
    in_doubt: bool,
    /// Whether workers and batches were lowered for the target latency, and that it cannot be met was said.
    lowered_for_latency: (bool, bool),
    said_unreachable: bool,
    /// Rounds after which fewer may be tried once more, and how many times they were.
    below_at: f64,
    looks_below: u32,
    /// The last rise was one after a look, and whether such a one had to be taken back.
    rose_by_look: bool,
    false_look: bool,
    /// Batches dispatched before this epoch are too old to say that the present size is wrong.
    size_cut_epoch: u64,
}

/// What happened in this epoch.
#[derive(Debug, Default)]
struct Epoch {
    samples: u32,
    /// Samples since the last decision, and how many of them while the run was held back.
    undecided: u32,
    held_back: u32,
    /// Samples at which to decide next.
    decide_at: u32,
    /// It began by raising workers.
    rose: bool,
}

/// Seconds that a sample can last; a clock's answer outside them is moved to the nearer end.
const SHORTEST_SECONDS: f64 = 1e-9;
const LONGEST_SECONDS: f64 = 1e9;

/// Noise at which one sample an epoch would do; the samples wanted grow with its square, up to
/// so many rounds.
const QUIET: f64 = 0.25;
const MOST_ROUNDS_FOR_NOISE: f64 = 4.0;
/// Without a change, the next decision waits for a quarter more samples: between half a round
/// and so many rounds or samples.
const MOST_ROUNDS_BETWEEN: u32 = 2;
const MOST_SAMPLES_BETWEEN: u32 = 40;
const FEWEST_SAMPLES_BETWEEN: u32 = 3;

/// What is left of the workers when a batch fails that cannot be smaller.
const WORKERS_LEFT: f64 = 0.7;

impl Controller for Curve {
    fn setting(&self) -> Setting {
        self.levels.setting()
    }

    fn bounds(&self) -> Bounds {
        self.levels.bounds()
    }

    fn single(&self) -> bool {
        self.levels.single()
    }

    fn observe(&mut self, observation: &Observation) -> Vec<Change> {
        let mut changes = Vec::new();
        if !observation.ok {
            if observation.size_fault {
                changes.extend(self.cut_for_size(observation));
            }
            return changes;
        }
        let elapsed = observation.elapsed;
        if observation.n_items == 0 || !elapsed.is_finite() || elapsed < 0.0 {
            return changes;
        }
        let ln_seconds = elapsed.clamp(SHORTEST_SECONDS, LONGEST_SECONDS).ln();
        let now = self.levels.setting();
        let held_back = observation.held_back();
        let in_flight = observation.in_flight.filter(|_| held_back);
        let (sent_at, steady) = match self.looked {
            Some((epoch, level)) if epoch == observation.setting.epoch => (level, false),
            _ => (observation.setting.workers, true),
        };
        let place = Place {
            workers: in_flight.unwrap_or(sent_at).max(1),
            items: observation.n_items,
        };
        self.sizes.passed(observation.n_items);
        let residual = self.samples.add(place, ln_seconds, steady);
        self.rounds += 1.0 / f64::from(now.workers);
        self.rounds_since_rise += 1.0 / f64::from(now.workers);
        if held_back {
            self.give_up_look(&mut changes);
            if !changes.is_empty() {
                return changes;
            }
        }
        if let Some((from, to, here)) = self.walk.take() {
            self.look_at(from, to, Some(here), &mut changes);
            return changes;
        }
        if self.look.is_some() {
            self.look_on(observation.setting.epoch, ln_seconds, &mut changes);
            return changes;
        }
        if observation.setting.epoch != now.epoch {
            // It counts for the place it was dispatched at. But of an epoch's calls the
            // slowest end last, so it says nothing about a change of the server.
            return changes;
        }
        self.epoch.samples = self.epoch.samples.saturating_add(1);
        self.epoch.undecided += 1;
        self.epoch.held_back += u32::from(held_back);
        let workers = f64::from(place.workers);

        if let Some(residual) = residual
            && self.epoch.samples > now.workers
        {
            let before = self.samples.mean(place).unwrap_or(ln_seconds);
            let noise = self.samples.noise();
            let early = haste(noise, workers, residual.n) / noise;
            if let Some(alarm) = self.shift.add(place, residual, early, noise, ln_seconds) {
                let ratio = (alarm.mean - before).exp();
                self.start_over(place, alarm.n, alarm.mean, ratio, &mut changes);
                return changes;
            }
        }
        if self.epoch.samples >= self.epoch.decide_at {
            self.decide(&mut changes);
        } else if self.epoch.rose && self.epoch.samples.is_power_of_two() {
            self.fall_back(&mut changes);
        }
        changes
    }

    fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        let epoch = self.levels.epoch();
        let changes = self.levels.apply(rows);
        if !changes.is_empty() {
            // Where it was to come back to may not be allowed any more.
            self.look = None;
            self.walk = None;
        }
        let most = self.bounds().max_workers;
        if most > self.believed_workers {
            self.believed_workers = most;
            self.belief = Belief::new(self.levels.setting().workers, most, false);
        }
        if self.levels.epoch() != epoch {
            self.start_epoch(false);
        }
        changes
    }

    fn restart_at(&mut self, workers: u32, batch_size: u32) {
        let mut levels = self.levels.clone();
        levels.jump(workers, batch_size);
        let config = Config {
            workers_learned: false,
            batch_size_learned: false,
            ..self.config.clone()
        };
        *self = Self::over(config, levels, self.believed_workers);
        // What is still in flight was sent at the other size.
        self.size_cut_epoch = self.levels.epoch();
    }
}

impl Curve {
    /// A controller at its starting levels.
    pub fn new(config: &Config) -> Self {
        let levels = Levels::new(config);
        let most = levels.bounds().max_workers;
        Self::over(config.clone(), levels, most)
    }

    /// One that has measured nothing, at these levels.
    fn over(config: Config, levels: Levels, believed_workers: u32) -> Self {
        let start = levels.setting().workers;
        let mut new = Self {
            belief: Belief::new(start, believed_workers, config.workers_learned),
            believed_workers,
            levels,
            samples: Samples::new(),
            shift: Shift::default(),
            sizes: match config.batch_size_learned {
                true => Sizes::learned(config.batch_size),
                false => Sizes::default(),
            },
            epoch: Epoch::default(),
            look: None,
            looked: None,
            walk: None,
            rounds: 0.0,
            trial_rounds: 1.0,
            rounds_since_rise: 0.0,
            in_doubt: !config.workers_learned,
            lowered_for_latency: (false, false),
            said_unreachable: false,
            below_at: choice::LOOK_AFTER,
            looks_below: 0,
            rose_by_look: false,
            false_look: false,
            size_cut_epoch: 0,
            config,
        };
        new.start_epoch(false);
        new
    }

    fn here(&self) -> Place {
        let setting = self.levels.setting();
        Place {
            workers: setting.workers,
            items: setting.batch_size,
        }
    }

    /// A new epoch waits for a sample of every worker, and for more under noise.
    fn start_epoch(&mut self, rose: bool) {
        let here = self.here();
        let round = f64::from(here.workers);
        let for_noise = (self.samples.noise() / QUIET).powi(2);
        let wanted = (round * self.trial_rounds).max(for_noise.min(MOST_ROUNDS_FOR_NOISE * round));
        self.trial_rounds = 1.0;
        self.look = None;
        self.walk = None;
        self.epoch = Epoch {
            decide_at: wanted.ceil() as u32,
            rose,
            ..Epoch::default()
        };
    }

    /// What was measured describes another server: only the samples that say so are kept, and
    /// of what was believed, either the load curve or the speed.
    fn start_over(
        &mut self,
        place: Place,
        n: f64,
        mean: f64,
        ratio: f64,
        changes: &mut Vec<Change>,
    ) {
        self.belief.shifted();
        self.samples.start_over(place, n, mean);
        self.rounds = 0.0;
        self.rounds_since_rise = 0.0;
        self.in_doubt = ratio > 1.0;
        self.below_at = choice::LOOK_AFTER;
        self.looks_below = 0;
        self.false_look = false;
        changes.push(Change::Rebaseline(Rebaseline::Shift(ratio)));
        self.decide(changes);
    }

    /// A call ended during a look.
    fn look_on(&mut self, epoch: u64, ln_seconds: f64, changes: &mut Vec<Change>) {
        let Some(mut look) = self.look.take() else {
            return;
        };
        let noise = self.samples.noise();
        let all_sent = look.ended();
        if epoch == look.epoch {
            look.add(ln_seconds, noise);
        }
        let away = self.levels.setting().workers != look.from;
        match look.verdict(noise) {
            Some(Verdict::Changed) => self.go_on(&look, changes),
            Some(Verdict::Unchanged) => {
                if look.walk {
                    let place = self.looked_at(&look);
                    self.samples
                        .renew(look.from, look.to, place, look.n, look.mean());
                }
                self.move_workers(look.from, Reason::NoMore, changes);
                self.start_epoch(false);
            }
            None => {
                if all_sent && away {
                    self.move_workers(look.from, Reason::Sent, changes);
                    self.start_epoch(false);
                }
                self.look = Some(look);
            }
        }
    }

    /// While the run is held back, more workers show nothing.
    fn give_up_look(&mut self, changes: &mut Vec<Change>) {
        self.walk = None;
        if let Some(look) = self.look.take()
            && self.levels.setting().workers == look.to
        {
            self.move_workers(look.from, Reason::HeldBack, changes);
            self.start_epoch(false);
        }
    }

    fn looked_at(&self, look: &Look) -> Place {
        Place {
            workers: look.level(),
            ..self.here()
        }
    }

    /// The server can take more: what was known of more is void as far as the next look goes, which
    /// is twice as far.
    fn go_on(&mut self, look: &Look, changes: &mut Vec<Change>) {
        let place = self.looked_at(look);
        // Its calls saw fewer in flight on average than the level it went to; after one that misled, no more than
        // that is believed.
        let reached = match self.false_look {
            false => look.to,
            true => look.level().max(look.from + 1),
        };
        let step = (look.to - look.from).saturating_mul(1 + u32::from(look.walk));
        let highest = self.levels[Dimension::Workers].highest();
        let to = reached.saturating_add(step).min(highest);
        self.samples
            .renew(look.from, to, place, look.n, look.mean());
        self.move_workers(reached, Reason::More, changes);
        self.start_epoch(true);
        self.update_belief();
        if to > reached && !self.too_slow(to, place.items) {
            self.walk = Some((reached, to, look.changed));
        }
    }

    /// Decides on both levels.
    fn decide(&mut self, changes: &mut Vec<Change>) {
        let epoch = self.levels.epoch();
        let here = self.here();
        self.update_belief();
        if !self.keep_latency(changes) {
            if 2 * self.epoch.held_back <= self.epoch.undecided {
                self.choose_workers(changes);
            }
            if self.look.is_some() {
                return;
            }
            self.choose_size(changes);
        }
        if self.levels.epoch() != epoch {
            self.start_epoch(self.levels.setting().workers > here.workers);
            return;
        }
        self.epoch.undecided = 0;
        self.epoch.held_back = 0;
        let round = here.workers;
        let fewest = (round / 2).max(FEWEST_SAMPLES_BETWEEN);
        let most = (round.saturating_mul(MOST_ROUNDS_BETWEEN)).max(MOST_SAMPLES_BETWEEN);
        let between = (self.epoch.samples / 4).clamp(fewest, most);
        self.epoch.decide_at = self.epoch.samples.saturating_add(between);
    }

    /// The first calls of an epoch to end are its fastest: if even they say that there are
    /// too many workers, nothing is gained by waiting for the others.
    fn fall_back(&mut self, changes: &mut Vec<Change>) {
        self.update_belief();
        let lower = self.best_fewer().filter(|target| target.worth > 0.0);
        let lower = lower.filter(|target| self.sure_of_fewer(target));
        if let Some(target) = lower {
            self.move_workers(target.workers, target.reason(), changes);
            self.start_epoch(false);
        }
    }

    fn update_belief(&mut self) {
        let here = self.here();
        let visit = f64::from(self.epoch.samples);
        self.samples.forget_contradicted(here);
        self.belief.update(&self.samples, here, visit);
    }

    fn move_workers(&mut self, to: u32, reason: Reason, changes: &mut Vec<Change>) {
        self.move_level(Dimension::Workers, to, reason, changes);
    }

    fn move_level(
        &mut self,
        dimension: Dimension,
        to: u32,
        reason: Reason,
        changes: &mut Vec<Change>,
    ) {
        if let Some((from, to)) = self.levels.tune(dimension, to) {
            if dimension == Dimension::Workers && to > from {
                self.rounds_since_rise = 0.0;
            }
            if dimension == Dimension::Workers {
                self.judge_look(to > from, reason);
            }
            changes.push(Change::Move {
                dimension,
                from,
                to,
                reason,
            });
        }
    }

    /// Notices that a rise after a look is taken back.
    fn judge_look(&mut self, rises: bool, reason: Reason) {
        match reason {
            Reason::Look | Reason::Sent | Reason::NoMore | Reason::HeldBack => {}
            Reason::More => self.rose_by_look = true,
            _ => {
                self.false_look |= self.rose_by_look && !rises;
                self.rose_by_look = false;
            }
        }
    }

    /// A batch failed because of its size: smaller batches, or fewer workers if they cannot be
    /// smaller.
    fn cut_for_size(&mut self, observation: &Observation) -> Option<Change> {
        let size = self.levels.setting().batch_size;
        self.sizes.failed(observation.n_items.max(1));
        if observation.setting.epoch < self.size_cut_epoch || observation.n_items > size {
            return None;
        }
        let batch = &self.levels[Dimension::BatchSize];
        let (dimension, to, reason) = if size > batch.lowest() {
            let to = self.sizes.below(size);
            (Dimension::BatchSize, to, CutReason::BatchFailed)
        } else {
            let reason = match batch.held {
                Some(_) => CutReason::BatchFailedWhileHeld,
                None => CutReason::BatchFailedAtFloor,
            };
            let workers = self.levels.setting().workers;
            let to = (f64::from(workers) * WORKERS_LEFT) as u32;
            (
                Dimension::Workers,
                to.min(workers.saturating_sub(1)),
                reason,
            )
        };
        let moved = self.levels.tune(dimension, to);
        self.size_cut_epoch = self.levels.epoch();
        let (from, to) = moved?;
        self.start_epoch(false);
        Some(Change::Decrease {
            dimension,
            from,
            to,
            reason,
        })
    }
}

#[cfg(test)]
mod decisions;
#[cfg(test)]
mod tests;
