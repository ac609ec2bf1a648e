//! One simulated run: a controller decides, a server answers, time is virtual.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use batchgate_policy::controller::{Controller, Observation};
use batchgate_policy::setting::Setting;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

use super::figures::Figures;
use super::scenario::Scenario;
use super::server::{Best, Server};

/// The controller got nothing done any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "scenario {scenario:?}, seed {seed}: {done} of {items} items were done after {calls} calls, and the simulation was given up"
)]
pub struct Unfinished {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Items done.
    pub done: u64,
    /// Items of the job.
    pub items: u64,
    /// Batches sent.
    pub calls: u64,
}

/// A batch that the server is working on.
struct InFlight {
    ends: f64,
    /// Breaks ties in the order of dispatch.
    number: u64,
    seconds: f64,
    setting: Setting,
    n_items: u32,
    rejected: bool,
}

/// Runs a scenario's job to its end.
pub fn run(
    scenario: &Scenario,
    controller: &mut dyn Controller,
    seed: u64,
) -> Result<Figures, Unfinished> {
    let items = u64::from(scenario.job.items);
    // Every item in a batch of its own, and as many rejections again.
    let most_calls = 2 * items + 1_000_000;
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut phases = Phases::new(scenario);
    let mut in_flight: BinaryHeap<Reverse<InFlight>> = BinaryHeap::new();
    let (mut now, mut to_do, mut done) = (0.0, items, 0);
    let (mut calls, mut rejected, mut overdrive) = (0, 0, 0.0);
    loop {
        let setting = controller.setting();
        while to_do > 0 && in_flight.len() < setting.workers as usize {
            phases.advance(now);
            // Batches are cut from the end of what is to do; items are all alike.
            let n_items = u64::from(setting.batch_size).min(to_do) as u32;
            to_do -= u64::from(n_items);
            let active = (in_flight.len() + 1) as f64;
            let too_big = phases.server.rejects(n_items);
            let seconds = if too_big {
                phases.server.reject_seconds
            } else {
                phases.server.seconds(n_items, active) * noise(phases.server, &mut rng)
            };
            overdrive += active / f64::from(phases.best.fewest_workers);
            calls += 1;
            in_flight.push(Reverse(InFlight {
                ends: now + seconds,
                number: calls,
                seconds,
                setting,
                n_items,
                rejected: too_big,
            }));
        }
        let Some(Reverse(ended)) = in_flight.pop() else {
            break;
        };
        now = ended.ends;
        if ended.rejected {
            rejected += 1;
            to_do += u64::from(ended.n_items);
        } else {
            done += u64::from(ended.n_items);
        }
        if calls > most_calls {
            return Err(Unfinished {
                scenario: scenario.name.clone(),
                seed,
                done,
                items,
                calls,
            });
        }
        controller.observe(&Observation {
            setting: ended.setting,
            n_items: ended.n_items,
            elapsed: ended.seconds,
            ok: !ended.rejected,
            size_fault: ended.rejected,
            in_flight: None,
        });
    }
    phases.advance(now);
    Ok(Figures {
        efficiency: done as f64 / phases.best_items(now),
        overdrive: overdrive / calls as f64,
        calls,
        rejected,
    })
}

/// The noise's factor for one batch.
fn noise(server: &Server, rng: &mut impl Rng) -> f64 {
    // Always drawn, so that a change of the server does not shift the draws that follow.
    let normal: f64 = rng.sample(StandardNormal);
    let straggler = rng.random_bool(server.straggler_p);
    let factor = (server.sigma * normal).exp();
    if straggler {
        factor * server.straggler_x
    } else {
        factor
    }
}

/// The server of the moment, and what the best fixed setting would have done so far.
struct Phases<'a> {
    scenario: &'a Scenario,
    server: &'a Server,
    best: Best,
    /// Changes that are over.
    passed: usize,
    began: f64,
    /// Items that the best setting of each phase did before this one.
    items: f64,
}

impl<'a> Phases<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            server: &scenario.server,
            best: best(scenario, &scenario.server),
            passed: 0,
            began: 0.0,
            items: 0.0,
        }
    }

    fn advance(&mut self, now: f64) {
        while let Some((at, server)) = self.scenario.changes.get(self.passed)
            && *at <= now
        {
            self.items += (at - self.began) * self.best.rate;
            self.began = *at;
            self.server = server;
            self.best = best(self.scenario, server);
            self.passed += 1;
        }
    }

    fn best_items(&self, now: f64) -> f64 {
        self.items + (now - self.began) * self.best.rate
    }
}

fn best(scenario: &Scenario, server: &Server) -> Best {
    server.best(scenario.job.max_workers(), scenario.job.max_batch_size())
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.ends.total_cmp(&other.ends);
        by_time.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InFlight {}
