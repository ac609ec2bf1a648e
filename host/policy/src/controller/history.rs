//! The `history` controller: it probes one level at a time and keeps what measured better than
//! anything measured before, judged against a history of latencies for every setting.
//!
//! Invariant: at most one probe is open, and every window since it began was measured at it.

use super::change::{Change, CutReason, Rebaseline};
use super::config::Config;
use super::levels::{Bounds, Dimension, Each, Levels};
use super::measured::{Measured, Place};
use super::overrides::Override;
use super::window::{Evidence, Window};
use super::{Controller, Observation};
use crate::setting::Setting;

/// A controller by history.
#[derive(Debug)]
pub struct History {
    config: Config,
    levels: Levels,
    window: Window,
    measured: Measured,
    probe: Option<Probe>,
    ceilings: Each<Option<Ceiling>>,
    /// Per-item latency before workers were cut: the next window must be clearly below it for
    /// the cut to have been right.
    cut_ref: Option<f64>,
    /// Batches dispatched before this epoch are too old to say that the present size is wrong.
    size_cut_epoch: u64,
    /// Which dimension is probed next.
    next: Dimension,
    /// Batch size at the end of the last good window.
    good_batch_size: u32,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    dimension: Dimension,
    before: u32,
}

/// A level that did not work, for some windows.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    level: u32,
    windows_left: u32,
}

impl Controller for History {
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
        let epoch = observation.setting.epoch;
        let change = if !observation.ok {
            if observation.size_fault && epoch >= self.size_cut_epoch {
                self.cut_for_size()
            } else {
                None
            }
        } else if epoch == self.levels.epoch() {
            self.window.add(observation);
            let workers = self.setting().workers;
            if self.window.is_full(workers, &self.config) {
                self.evaluate()
            } else {
                None
            }
        } else {
            None
        };
        Vec::from_iter(change)
    }

    fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        let epoch = self.levels.epoch();
        let changes = self.levels.apply(rows);
        if self.levels.epoch() != epoch {
            self.restart();
        }
        // A hold at the probed level keeps it, so there is nothing left to judge.
        self.probe
            .take_if(|probe| self.levels[probe.dimension].held.is_some());
        changes
    }

    fn restart_at(&mut self, workers: u32, batch_size: u32) {
        self.levels.jump(workers, batch_size);
        self.restart();
        self.measured.forget();
        self.ceilings = Each::default();
        self.cut_ref = None;
        self.next = Dimension::Workers;
        self.good_batch_size = self.levels.setting().batch_size;
        // What is still in flight was sent at the other size.
        self.size_cut_epoch = self.levels.epoch();
    }
}

impl History {
    /// A controller at its starting levels.
    pub fn new(config: &Config) -> Self {
        let levels = Levels::new(config);
        Self {
            config: config.clone(),
            good_batch_size: levels.setting().batch_size,
            levels,
            window: Window::new(),
            measured: Measured::default(),
            probe: None,
            ceilings: Each::default(),
            cut_ref: None,
            size_cut_epoch: 0,
            next: Dimension::Workers,
        }
    }

    /// Decides on a full window.
    fn evaluate(&mut self) -> Option<Change> {
        let evidence = self.window.close(&self.config);
        self.measured.next_window();
        let setting = self.setting();
        let place = Place {
            workers: (!evidence.held_back).then_some(setting.workers),
            batch_size: setting.batch_size,
        };
        let own = self.measured.per_item(place);
        // A window that was held back says nothing about workers: their probe is given up
        // where it stands (a later step back can still undo it), a cut stays to be judged.
        let probe = self
            .probe
            .take()
            .filter(|probe| !evidence.held_back || probe.dimension == Dimension::BatchSize);
        let cut_ref = if evidence.held_back {
            None
        } else {
            self.cut_ref.take()
        };

        if let Some(cut_ref) = cut_ref
            && evidence.per_item >= self.config.congestion_ratio.sqrt() * cut_ref
        {
            return Some(self.rebaseline(place, evidence.per_item, Rebaseline::NotLoadDriven));
        }
        if let Some(probe) = probe {
            let best = self.measured.best_other(place);
            self.measured.record(place, evidence.per_item, &self.config);
            if let Some(of_best) = self.short_of(probe.dimension, place, best) {
                return self.revert(probe, of_best);
            }
        } else {
            if let Some(own) = own
                && !evidence.held_back
                && evidence.per_item > self.config.congestion_ratio * own
            {
                return Some(self.cut_for_latency(place, evidence.per_item, own));
            }
            self.measured.record(place, evidence.per_item, &self.config);
            if let Some(change) = self.step_back(place) {
                return Some(change);
            }
        }

        self.good_batch_size = setting.batch_size;
        self.age_ceilings();
        if own.is_none_or(|own| evidence.per_item <= self.config.good_ratio * own) {
            return self.increase(&evidence);
        }
        None
    }

    /// Throughput here as a share of the best, if that is too little to keep a probe.
    fn short_of(&self, dimension: Dimension, place: Place, best: Option<f64>) -> Option<f64> {
        let min_ratio = match dimension {
            Dimension::Workers => self.config.worker_probe_min_ratio,
            Dimension::BatchSize => self.config.batch_probe_min_ratio,
        };
        let best = best?;
        let throughput = self.measured.throughput(place)?;
        (throughput < min_ratio * best).then_some(throughput / best)
    }

    fn revert(&mut self, probe: Probe, of_best: f64) -> Option<Change> {
        let dimension = probe.dimension;
        let probed = self.levels[dimension].now;
        // Should a raised minimum keep the level here, the ceiling still stops growth.
        let moved = self.move_to(dimension, probe.before, Some(probed.saturating_sub(1)));
        moved.map(|(from, to)| Change::Revert {
            dimension,
            from,
            to,
            of_best,
        })
    }

    /// Latency rose with nothing changed: fewer workers, or a new baseline if there can be no
    /// fewer.
    fn cut_for_latency(&mut self, place: Place, per_item: f64, own: f64) -> Change {
        let ratio = per_item / own;
        let cut = self.decrease(Dimension::Workers, CutReason::Latency(ratio), None);
        if let Some(change) = cut {
            self.cut_ref = Some(own);
            return change;
        }
        let why = if self.levels[Dimension::Workers].held.is_some() {
            Rebaseline::WhileHeld(ratio)
        } else {
            Rebaseline::AtFloor(ratio)
        };
        self.rebaseline(place, per_item, why)
    }

    /// The server is another one now: what was measured before does not count.
    fn rebaseline(&mut self, place: Place, per_item: f64, why: Rebaseline) -> Change {
        self.measured.forget();
        self.measured.record(place, per_item, &self.config);
        Change::Rebaseline(why)
    }

    /// Undoes a worker that one noisy window let through.
    fn step_back(&mut self, place: Place) -> Option<Change> {
        let workers = place.workers?;
        let fewer = workers.checked_sub(1)?;
        if self.measured.count(place) < 2 || fewer < self.levels[Dimension::Workers].lowest() {
            return None;
        }
        let one_fewer = self.measured.throughput(Place {
            workers: Some(fewer),
            ..place
        });
        let of_one_fewer = self.short_of(Dimension::Workers, place, one_fewer)?;
        let (from, to) = self.move_to(Dimension::Workers, fewer, Some(fewer))?;
        Some(Change::StepBack {
            from,
            to,
            of_one_fewer,
        })
    }

    /// Opens a probe in the dimension whose turn it is, or in the other one.
    fn increase(&mut self, evidence: &Evidence) -> Option<Change> {
        for dimension in [self.next, self.next.other()] {
            if dimension == Dimension::Workers && evidence.held_back {
                continue;
            }
            let level = &self.levels[dimension];
            let before = level.now;
            let step = match dimension {
                Dimension::Workers => 1,
                Dimension::BatchSize => self.config.step(),
            };
            let ceiling = self.ceilings[dimension].map_or(u32::MAX, |ceiling| ceiling.level);
            let to = before
                .saturating_add(step)
                .min(level.highest())
                .min(ceiling);
            if to <= before
                || dimension == Dimension::BatchSize && self.would_time_out(evidence, before, to)
            {
                continue;
            }
            let (from, to) = self.move_to(dimension, to, None)?;
            self.probe = Some(Probe { dimension, before });
            self.next = dimension.other();
            return Some(Change::Probe {
                dimension,
                from,
                to,
            });
        }
        None
    }

    fn would_time_out(&self, evidence: &Evidence, from: u32, to: u32) -> bool {
        self.config.max_batch_seconds.is_some_and(|limit| {
            let expected = evidence.worst * f64::from(to) / f64::from(from);
            expected > self.config.batch_seconds_headroom * limit
        })
    }

    /// A batch failed because of its size: smaller batches, or fewer workers if they cannot be
    /// smaller.
    fn cut_for_size(&mut self) -> Option<Change> {
        let batch = &self.levels[Dimension::BatchSize];
        let change = if batch.now > batch.lowest() {
            let good = Some(self.good_batch_size);
            self.decrease(Dimension::BatchSize, CutReason::BatchFailed, good)
        } else {
            let reason = if batch.held.is_some() {
                CutReason::BatchFailedWhileHeld
            } else {
                CutReason::BatchFailedAtFloor
            };
            self.decrease(Dimension::Workers, reason, None)
        };
        self.size_cut_epoch = self.levels.epoch();
        change
    }

    fn decrease(
        &mut self,
        dimension: Dimension,
        reason: CutReason,
        ceiling: Option<u32>,
    ) -> Option<Change> {
        let now = self.levels[dimension].now;
        let factor = match dimension {
            Dimension::Workers => self.config.worker_decrease,
            Dimension::BatchSize => self.config.batch_decrease,
        };
        let below = now.saturating_sub(1);
        let to = ((f64::from(now) * factor) as u32).min(below);
        let ceiling = ceiling.filter(|ceiling| *ceiling < now).unwrap_or(below);
        // Checked first, so that a cut which cannot be made leaves no ceiling behind.
        if now <= self.levels[dimension].lowest() {
            return None;
        }
        let (from, to) = self.move_to(dimension, to, Some(ceiling))?;
        Some(Change::Decrease {
            dimension,
            from,
            to,
            reason,
        })
    }

    /// Every move by tuning goes through here. Says from where to where, if it moved.
    fn move_to(
        &mut self,
        dimension: Dimension,
        to: u32,
        ceiling: Option<u32>,
    ) -> Option<(u32, u32)> {
        if let Some(level) = ceiling {
            self.ceilings[dimension] = Some(Ceiling {
                level,
                windows_left: self.config.ceiling_ttl_epochs,
            });
        }
        let moved = self.levels.tune(dimension, to)?;
        self.restart();
        Some(moved)
    }

    /// What a new epoch starts with: no samples and no probe.
    fn restart(&mut self) {
        self.window.clear();
        self.probe = None;
    }

    fn age_ceilings(&mut self) {
        for dimension in [Dimension::Workers, Dimension::BatchSize] {
            if let Some(ceiling) = &mut self.ceilings[dimension] {
                ceiling.windows_left = ceiling.windows_left.saturating_sub(1);
                if ceiling.windows_left == 0 {
                    self.ceilings[dimension] = None;
                }
            }
        }
    }
}
