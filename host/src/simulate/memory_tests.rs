//! What a memory of the last run is worth: each open scenario, and then again with other seeds.
#![allow(clippy::print_stdout)]

use std::path::Path;

use batchgate_policy::controller::{
    Bounds, Change, Config, Controller, Observation, Override, Remembering, by_name,
};
use batchgate_policy::setting::Setting;

use super::*;

const SEEDS: u64 = 20;
/// Near the best setting: this share of its workers and of its batch size at least.
const NEAR: f64 = 0.85;

/// Counts the calls until the setting is near the best.
#[derive(Debug)]
struct Counting {
    inner: Remembering,
    near: Setting,
    calls: u64,
    until: Option<u64>,
}

impl Controller for Counting {
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
        let now = self.setting();
        if now.workers >= self.near.workers && now.batch_size >= self.near.batch_size {
            self.until.get_or_insert(self.calls);
        }
        self.calls += 1;
        self.inner.observe(observation)
    }
    fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        self.inner.apply(rows)
    }
}

/// A run's efficiency and its calls until near the best.
type Ran = (f64, f64);

fn simulated(scenario: &Scenario, inner: Remembering, seed: u64) -> (Ran, Remembering) {
    let (server, job) = (&scenario.server, &scenario.job);
    let best = server.best(job.max_workers(), job.max_batch_size());
    let largest = server
        .max_batch
        .unwrap_or(u32::MAX)
        .min(job.max_batch_size());
    let near = |level: u32| (NEAR * f64::from(level)).round() as u32;
    let mut counting = Counting {
        inner,
        near: Setting {
            epoch: 0,
            workers: near(best.fewest_workers),
            batch_size: near(largest),
        },
        calls: 0,
        until: None,
    };
    let figures = run(scenario, &mut counting, seed).expect("an end");
    let until = counting.until.unwrap_or(counting.calls) as f64;
    ((figures.efficiency, until), counting.inner)
}

/// The same seeds of the second run without and with what the first one learned.
fn second_runs(scenario: &Scenario, name: &str) -> Vec<(Ran, Ran)> {
    let config = &scenario.job.config;
    let new = |start: &Config| by_name(name, start).expect("known");
    // The second run meets the server as the first one left it.
    let server = scenario.changes.last().map(|(_, server)| server.clone());
    let later = Scenario {
        server: server.unwrap_or_else(|| scenario.server.clone()),
        changes: Vec::new(),
        ..scenario.clone()
    };
    (0..SEEDS)
        .map(|seed| {
            let (_, first) = simulated(scenario, Remembering::new(new(config), config, None), seed);
            let learned = first.lesson().and_then(|lesson| lesson.learned);
            let start = learned.and_then(|learned| learned.start(3600.0, config).ok());
            let start = start.unwrap_or_else(|| config.clone());
            let warm = Remembering::new(new(&start), config, learned.as_ref());
            let cold = Remembering::new(new(config), config, None);
            let seed = seed + 1000;
            (
                simulated(&later, cold, seed).0,
                simulated(&later, warm, seed).0,
            )
        })
        .collect()
}

#[test]
fn a_memory_starts_the_next_run_near_its_best() {
    let open = include_bytes!("../../../scenarios/open.json");
    let scenarios = Scenario::parse(Path::new("open.json"), open).expect("the open scenarios");
    println!(
        "| Scenario | Calls until near the best: without | With | Efficiency (worst seed): without | With |"
    );
    println!("|---|---|---|---|---|");
    for scenario in &scenarios {
        let runs = second_runs(scenario, "curve");
        let column = |value: fn(&(Ran, Ran)) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            (values[values.len() / 2], values[0])
        };
        let cold_calls = column(|(cold, _)| cold.1).0;
        let warm_calls = column(|(_, warm)| warm.1).0;
        let (cold, cold_worst) = column(|(cold, _)| cold.0);
        let (warm, warm_worst) = column(|(_, warm)| warm.0);
        println!(
            "| {} | {cold_calls:.0} | {warm_calls:.0} | {:.0} % ({:.0}) | {:.0} % ({:.0}) |",
            scenario.name,
            100.0 * cold,
            100.0 * cold_worst,
            100.0 * warm,
            100.0 * warm_worst
        );
        assert!(warm_calls <= cold_calls, "{}", scenario.name);
        assert!(warm > cold - 0.02, "{}: {warm} after {cold}", scenario.name);
    }
}
