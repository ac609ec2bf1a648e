//! Where a controller would have gone on the calls of a usage log.
//!
//! A log only has calls at the settings that the job really had. So the controller is asked
//! with those at the setting it wants; where the log goes on at another one, it is taken there
//! (as an operator would force it) and asked again. What a log does not tell is guessed: a
//! failed call of a whole batch counts as evidence about its size, and every call as an attempt.

use batchgate_policy::controller::{Config, Controller, Observation, Override};
use batchgate_policy::outcome::UsageOutcome;

use super::trace::{State, state};
use crate::store::LoggedCall;

/// A controller, and how far it came in a log.
#[derive(Debug)]
pub struct Replay {
    controller: Box<dyn Controller>,
    /// The latest calls in a row at one setting that is not the controller's: the setting, and
    /// how many.
    elsewhere: (u32, u32),
    elsewhere_calls: u64,
    tally: Tally,
}

/// How the calls of a log were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Calls in the log.
    pub calls: u64,
    /// Calls at the setting that the controller asked for.
    pub asked_for: u64,
    /// Calls at a setting that the controller may not have.
    pub out_of_bounds: u64,
    /// Times that the log went on elsewhere and the controller was taken there.
    pub followed: u64,
}

impl Replay {
    /// A replay by a controller at its start.
    pub fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            elsewhere: (0, 0),
            elsewhere_calls: 0,
            tally: Tally::default(),
        }
    }

    /// How to start a controller that was not configured: where the log starts, free to grow.
    pub fn config(first: &LoggedCall) -> Config {
        Config {
            workers: first.workers,
            batch_size: first.batch_size,
            max_workers: Some(u32::MAX),
            max_batch_size: Some(u32::MAX),
            ..Config::default()
        }
    }

    /// Takes the log's next call: where the controller stands after it.
    pub fn take(&mut self, call: &LoggedCall) -> State {
        self.tally.calls += 1;
        let mut changes = Vec::new();
        let place = (call.workers, call.batch_size);
        if self.levels() != place {
            if self.elsewhere != place {
                self.elsewhere = place;
                self.elsewhere_calls = 0;
            }
            self.elsewhere_calls += 1;
            let bounds = self.controller.bounds();
            let within = (bounds.min_workers..=bounds.max_workers).contains(&place.0)
                && (bounds.min_batch_size..=bounds.max_batch_size).contains(&place.1);
            // Calls that were in flight when the setting changed still end at the old one.
            let workers = u64::from(call.workers.max(self.levels().0));
            if !within {
                self.tally.out_of_bounds += 1;
            } else if self.elsewhere_calls > workers {
                self.tally.followed += 1;
                changes = self.controller.apply(&[
                    force("force_workers", place.0),
                    force("force_batch_size", place.1),
                ]);
            }
        }
        if self.levels() == place {
            self.elsewhere_calls = 0;
            self.tally.asked_for += 1;
            let failed = call.outcome == UsageOutcome::Fail;
            changes.append(&mut self.controller.observe(&Observation {
                setting: self.controller.setting(),
                n_items: call.n_items,
                elapsed: call.elapsed_seconds,
                ok: call.outcome == UsageOutcome::Ok,
                size_fault: failed && call.n_items > 1 && call.n_items >= call.batch_size,
                in_flight: None,
            }));
        }
        state(&*self.controller, &changes)
    }

    /// How the calls so far were used.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn levels(&self) -> (u32, u32) {
        let setting = self.controller.setting();
        (setting.workers, setting.batch_size)
    }
}

fn force(key: &str, level: u32) -> Override {
    Override {
        key: key.to_owned(),
        value: level.to_string(),
    }
}
