//! `[adaptive]`: what the tuner may do, and how it judges.

use std::path::PathBuf;

use batchgate_policy::controller;

use super::error::Problem;
use super::filled::Filled;
use super::kind::{FilePath, Kind, Optional};
use super::number::{COUNT, DECREASE, LATENCY, RATIO, REPEATS};
use super::raw::Raw;
use super::table::table;

table! {
    /// What the tuner may do, and how it judges. `batch_step` and the keys from `congestion_ratio` to
    /// `history_ttl_windows` belong to the controller `history`; their defaults suit nearly
    /// every job. Given to another, they are not read, and a line says so.
    Adaptive = "adaptive";
    /// The controller, by name; none: the default one.
    controller: Option<String> = None, Optional(ControllerName);
    /// Most calls in flight; none: `workers`. 1, given or by default, declares the component
    /// unfit for concurrent calls: one call at a time, and no live override raises it.
    max_workers: Option<u32> = None, Optional(COUNT);
    /// Fewest calls in flight.
    min_workers: u32 = 1, COUNT;
    /// Most items in a batch; none: `batch_size`.
    max_batch_size: Option<u32> = None, Optional(COUNT);
    /// Fewest items in a batch.
    min_batch_size: u32 = 1, COUNT;
    /// By how much a batch grows at a time; none or 0: a quarter of `batch_size`, at least 1.
    batch_step: Option<u32> = None, Optional(REPEATS);
    /// The server's request timeout, in seconds: a batch does not grow to where it would come near.
    max_batch_seconds: Option<f64> = None, Optional(LATENCY);
    /// The part of `max_batch_seconds` up to which a batch may grow.
    batch_seconds_headroom: f64 = 0.7, RATIO;
    /// Latency so many times that of the same setting before is congestion.
    congestion_ratio: f64 = 1.5, RATIO;
    /// Latency at most so many times that of the same setting before allows growth.
    good_ratio: f64 = 1.2, RATIO;
    /// Throughput a further worker must reach, as a ratio to the best known.
    worker_probe_min_ratio: f64 = 1.05, RATIO;
    /// Throughput a larger batch must reach, as a ratio to the best known.
    batch_probe_min_ratio: f64 = 0.85, RATIO;
    /// What a cut leaves of the workers.
    worker_decrease: f64 = 0.7, DECREASE;
    /// What a cut leaves of the batch size.
    batch_decrease: f64 = 0.5, DECREASE;
    /// Fewest batches a judgment rests on.
    min_window: u32 = 5, COUNT;
    /// Most batches a judgment waits for, unless more workers are in flight.
    max_window: u32 = 60, COUNT;
    /// Standard error of the log of the latency at which a judgment is made.
    target_log_se: f64 = 0.08, RATIO;
    /// Judgments of a setting that are remembered.
    baseline_epochs: u32 = 5, COUNT;
    /// Changes of setting for which a level found too high is not tried again.
    ceiling_ttl_epochs: u32 = 10, COUNT;
    /// Judgments after which a setting not tried meanwhile is forgotten.
    history_ttl_windows: u32 = 20, COUNT;
    /// A call latency, in seconds, beyond which no setting is chosen. Of the controller `curve`.
    target_latency: Option<f64> = None, Optional(LATENCY);
    /// A database that remembers the setting this job settles on; its next run, of the same `label` and
    /// `allow_hosts`, starts there. Several jobs may share it. Not read with `--fixed`.
    tuner_memory: Option<PathBuf> = None, Optional(FilePath);
}

/// The controller that cannot keep a target latency.
const HISTORY: &str = "history";

struct ControllerName;

impl Kind for ControllerName {
    type Value = String;

    fn parse(&self, raw: &Raw) -> Result<String, String> {
        let known = raw.text().filter(|name| controller::NAMES.contains(name));
        known
            .map(str::to_owned)
            .ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        let names: Vec<String> = controller::NAMES
            .iter()
            .map(|name| format!("{name:?}"))
            .collect();
        names.join(" or ")
    }

    fn show(&self, name: &String) -> String {
        format!("{name:?}")
    }

    fn placeholder(&self) -> &'static str {
        "NAME"
    }
}

/// What only that controller reads.
const OF_HISTORY: [&str; 13] = [
    "batch_step",
    "congestion_ratio",
    "good_ratio",
    "worker_probe_min_ratio",
    "batch_probe_min_ratio",
    "worker_decrease",
    "batch_decrease",
    "min_window",
    "max_window",
    "target_log_se",
    "baseline_epochs",
    "ceiling_ttl_epochs",
    "history_ttl_windows",
];

impl Adaptive {
    /// Keys that were given and that the controller does not read; for a warning, as the same file may be meant for
    /// either controller.
    pub fn unread(&self, filled: &Filled) -> Vec<&'static str> {
        let controller = self.controller.as_deref().unwrap_or(controller::DEFAULT);
        if controller == HISTORY {
            return Vec::new();
        }
        let given = |key: &&str| filled.given("adaptive", key);
        OF_HISTORY.into_iter().filter(given).collect()
    }

    /// A start outside the bounds is clamped into them; bounds that contradict each other
    /// leave nothing to clamp into.
    pub(super) fn check(&self, filled: &Filled, problems: &mut Vec<Problem>) {
        let bounds = [
            (
                "min_workers",
                self.min_workers,
                "max_workers",
                self.max_workers,
            ),
            (
                "min_batch_size",
                self.min_batch_size,
                "max_batch_size",
                self.max_batch_size,
            ),
            (
                "min_window",
                self.min_window,
                "max_window",
                Some(self.max_window),
            ),
        ];
        let controller = self.controller.as_deref().unwrap_or(controller::DEFAULT);
        if self.target_latency.is_some() && controller == HISTORY {
            let message = format!(
                "the controller {HISTORY:?} knows no target; use controller = \"curve\" or remove it"
            );
            problems.push(filled.problem("adaptive", &["target_latency"], message));
        }
        for (min_key, min, max_key, max) in bounds {
            if let Some(max) = max.filter(|max| min > *max) {
                let message =
                    format!("{min} is above {max_key} = {max}; lower it or raise {max_key}");
                problems.push(filled.problem("adaptive", &[min_key, max_key], message));
            }
        }
    }
}
