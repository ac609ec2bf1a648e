//! A controller that starts from what a former run learned, doubts it, and knows at its end what is worth
//! remembering.
//!
//! Invariant: what is remembered decides where a run starts and nothing else: its bounds are the configured ones,
//! and where it is contradicted the run goes on as if there had been no memory.

mod learned;
mod recall;
mod settled;

pub use learned::{Learned, Unusable};

use super::change::{Change, Contradiction};
use super::config::Config;
use super::levels::{Bounds, Dimension};
use super::overrides::Override;
use super::{Controller, Observation};
use crate::setting::Setting;
use recall::{Recall, Verdict};
use settled::Settled;

/// What a run with a memory has to say at its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Lesson {
    /// The setting that it settled on, if it did.
    pub learned: Option<Learned>,
    /// What it started from turned out to be wrong.
    pub contradicted: bool,
}

/// Another controller, with a memory.
#[derive(Debug)]
pub struct Remembering {
    inner: Box<dyn Controller>,
    /// Where the run starts over if what was remembered is wrong.
    configured: (u32, u32),
    /// The bounds without overrides.
    bounds: Bounds,
    /// What is left to be confirmed.
    recall: Option<Recall>,
    contradicted: bool,
    settled: Settled,
    /// Overrides that keep a level.
    held_workers: bool,
    held_batch_size: bool,
}

impl Remembering {
    /// A controller that was made with `start`, which is `config` or what [`Learned::start`] made of it; then with
    /// what that was made from.
    pub fn new(inner: Box<dyn Controller>, config: &Config, learned: Option<&Learned>) -> Self {
        let bounds = inner.bounds();
        let workers = inner.setting().workers;
        Self {
            configured: (config.workers, config.batch_size),
            bounds,
            recall: learned.map(|learned| Recall::new(learned, workers)),
            contradicted: false,
            settled: Settled::default(),
            held_workers: false,
            held_batch_size: false,
            inner,
        }
    }

    /// Whether the levels are where tuning alone would have them.
    fn is_free(&self) -> bool {
        !self.held_workers && !self.held_batch_size && self.inner.bounds() == self.bounds
    }

    fn drop_memory(&mut self, why: Contradiction) -> Change {
        self.contradicted = true;
        self.settled = Settled::default();
        let from = self.inner.setting();
        self.inner.restart_at(self.configured.0, self.configured.1);
        let to = self.inner.setting();
        Change::Forget {
            workers: (from.workers, to.workers),
            batch_size: (from.batch_size, to.batch_size),
            why,
        }
    }
}

impl Controller for Remembering {
    fn setting(&self) -> Setting {
        self.inner.setting()
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn single(&self) -> bool {
        self.inner.single()
    }

    fn observe(&mut self, observation: &Observation) -> Vec<Change> {
        if let Some(recall) = &mut self.recall
            && let Some(verdict) = recall.judge(observation)
        {
            self.recall = None;
            if let Verdict::Contradicted(why) = verdict {
                return vec![self.drop_memory(why)];
            }
        }
        if self.is_free() {
            self.settled.add(observation);
        }
        self.inner.observe(observation)
    }

    fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        let changes = self.inner.apply(rows);
        for change in &changes {
            match change {
                Change::Hold { dimension, .. } => *self.held(*dimension) = true,
                Change::Release { dimension, .. } => *self.held(*dimension) = false,
                Change::Ignored { .. } | Change::IgnoredWorkers { .. } => continue,
                _ => {}
            }
            // What was measured so far led somewhere else.
            self.settled = Settled::default();
            self.recall = None;
        }
        changes
    }

    fn restart_at(&mut self, workers: u32, batch_size: u32) {
        self.settled = Settled::default();
        self.recall = None;
        self.inner.restart_at(workers, batch_size);
    }

    fn lesson(&self) -> Option<Lesson> {
        Some(Lesson {
            learned: self.settled.learned(self.bounds),
            contradicted: self.contradicted,
        })
    }
}

impl Remembering {
    fn held(&mut self, dimension: Dimension) -> &mut bool {
        match dimension {
            Dimension::Workers => &mut self.held_workers,
            Dimension::BatchSize => &mut self.held_batch_size,
        }
    }
}

#[cfg(test)]
mod tests;
