//! The sweep: the controller alone, in rounds, across noise levels and thresholds. It is the
//! evidence behind the defaults, and comparable with the reference library's own sweep: the
//! same noise levels, thresholds, rounds and numbers of seeds, from a different generator.

use std::ops::Range;

use batchgate_policy::controller::{Config, Controller, Observation};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::figures::median;
use super::server::{Server, Shape};

/// All four tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// Seeds of the first three tables.
    pub seeds: u64,
    /// A knee at 6 workers, by noise and worker threshold.
    pub knee: Vec<Knee>,
    /// A server that does not change, by noise and congestion threshold.
    pub false_cuts: Vec<FalseCuts>,
    /// A flat top and a curve without a knee, by noise and worker threshold.
    pub flat_top: Vec<FlatTop>,
    /// How soon the knee is reached, by noise.
    pub convergence: Vec<Convergence>,
}

/// Where the controller is in the last half of the rounds, with the knee at 6 workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Knee {
    /// Spread of the log of latency.
    pub sigma: f64,
    /// The threshold.
    pub worker_probe_min_ratio: f64,
    /// Share of rounds at the knee.
    pub at_6: f64,
    /// Share of rounds at 8 workers or more.
    pub at_least_8: f64,
    /// Mean throughput, as a share of that at the knee.
    pub relative_throughput: f64,
}

/// Cuts of workers on a server that gave no reason for one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FalseCuts {
    /// Spread of the log of latency.
    pub sigma: f64,
    /// The threshold.
    pub congestion_ratio: f64,
    /// Cuts in 100 rounds.
    pub per_100_rounds: f64,
}

/// What growth costs where it brings nothing, and brings where it brings little.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlatTop {
    /// Spread of the log of latency.
    pub sigma: f64,
    /// The threshold.
    pub worker_probe_min_ratio: f64,
    /// Mean workers in the last half of the rounds, with throughput flat from 4 workers on.
    pub plateau_workers: f64,
    /// Mean throughput on a curve without a knee, as a share of that at 16 workers.
    pub concave_throughput: f64,
}

/// Batches done before 6 workers are first reached from 3, and before they are no longer left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Convergence {
    /// Spread of the log of latency.
    pub sigma: f64,
    /// Over the seeds that reached it.
    pub median: f64,
    /// Of the slowest seed that reached it.
    pub most: f64,
    /// Seeds that never reached it.
    pub never: u64,
    /// Batches done before the first 20 rounds in a row within one of 6; over all seeds.
    pub stays_median: f64,
    /// Of the slowest seed; all of its batches if it never stayed.
    pub stays_most: f64,
}

const NOISE: [f64; 4] = [0.1, 0.3, 0.5, 0.8];
const KNEE_AT: u32 = 6;
const LONG_ROUNDS: usize = 2000;
const TAIL: Range<usize> = 1000..LONG_ROUNDS;
const STILL_ROUNDS: usize = 1200;
const CONVERGENCE_ROUNDS: usize = 3000;
const STAYS_ROUNDS: usize = 20;
const SEEDS: u64 = 5;
const CONVERGENCE_SEEDS: u64 = 20;
const KNEE_RATIOS: [f64; 4] = [0.95, 1.0, 1.05, 1.1];
const FLAT_TOP_NOISE: [f64; 3] = [0.1, 0.3, 0.5];
const FLAT_TOP_RATIOS: [f64; 3] = [1.0, 1.05, 1.1];
const CUT_RATIOS: [f64; 3] = [1.3, 1.5, 2.0];
const MAX_WORKERS: u32 = 16;

impl Sweep {
    /// Runs that `sweep` tells of.
    pub fn runs(seeds: Option<u64>) -> u64 {
        let noise = NOISE.len() as u64;
        let cells = noise * (KNEE_RATIOS.len() + CUT_RATIOS.len()) as u64
            + 2 * (FLAT_TOP_NOISE.len() * FLAT_TOP_RATIOS.len()) as u64;
        cells * seeds.unwrap_or(SEEDS) + noise * seeds.unwrap_or(CONVERGENCE_SEEDS)
    }
}

/// Runs all four sweeps; `ran` is told of each run. `seeds` is for a closer look than the reference takes.
pub fn sweep(
    mut controller: impl FnMut(&Config) -> Box<dyn Controller>,
    seeds: Option<u64>,
    ran: &mut dyn FnMut(),
) -> Sweep {
    let mut rounds = |config: &Config, server: &Server, sigma, rounds, seed| {
        ran();
        workers_by_round(&mut *controller(config), server, sigma, rounds, seed)
    };
    let few = seeds.unwrap_or(SEEDS);
    Sweep {
        seeds: few,
        knee: sweep_knee(&mut rounds, few),
        false_cuts: sweep_false_cuts(&mut rounds, few),
        flat_top: sweep_flat_top(&mut rounds, few),
        convergence: sweep_convergence(&mut rounds, seeds.unwrap_or(CONVERGENCE_SEEDS)),
    }
}

/// Gives the workers of each round: configuration, server, sigma, rounds, seed.
type Rounds<'a> = dyn FnMut(&Config, &Server, f64, usize, u64) -> Vec<u32> + 'a;

fn sweep_knee(rounds: &mut Rounds<'_>, seeds: u64) -> Vec<Knee> {
    let knee = server(Shape::Knee, f64::from(KNEE_AT), 0.4);
    let mut table = Vec::new();
    for sigma in NOISE {
        for ratio in KNEE_RATIOS {
            let config = Config {
                worker_probe_min_ratio: ratio,
                ..base()
            };
            let tail = tail(rounds, &config, &knee, sigma, seeds);
            let share = |of: fn(u32) -> bool| {
                tail.iter().filter(|workers| of(**workers)).count() as f64 / tail.len() as f64
            };
            table.push(Knee {
                sigma,
                worker_probe_min_ratio: ratio,
                at_6: share(|workers| workers == KNEE_AT),
                at_least_8: share(|workers| workers >= 8),
                relative_throughput: mean_throughput(&tail, &knee) / f64::from(KNEE_AT),
            });
        }
    }
    table
}

fn sweep_false_cuts(rounds: &mut Rounds<'_>, seeds: u64) -> Vec<FalseCuts> {
    let still = server(Shape::Plateau, f64::from(MAX_WORKERS), 0.0);
    let mut table = Vec::new();
    for sigma in NOISE {
        for ratio in CUT_RATIOS {
            let config = Config {
                workers: KNEE_AT,
                max_workers: Some(KNEE_AT),
                congestion_ratio: ratio,
                ..base()
            };
            let (mut cuts, mut all) = (0, 0);
            for seed in 0..seeds {
                let seen = rounds(&config, &still, sigma, STILL_ROUNDS, seed);
                cuts += seen.windows(2).filter(|pair| pair[1] < pair[0]).count();
                all += seen.len();
            }
            table.push(FalseCuts {
                sigma,
                congestion_ratio: ratio,
                per_100_rounds: cuts as f64 / all as f64 * 100.0,
            });
        }
    }
    table
}

fn sweep_flat_top(rounds: &mut Rounds<'_>, seeds: u64) -> Vec<FlatTop> {
    let plateau = server(Shape::Plateau, 4.0, 0.0);
    let concave = server(Shape::Concave, 8.0, 0.0);
    let most = mean_throughput(&[MAX_WORKERS], &concave);
    let mut table = Vec::new();
    for sigma in FLAT_TOP_NOISE {
        for ratio in FLAT_TOP_RATIOS {
            let config = Config {
                workers: 2,
                worker_probe_min_ratio: ratio,
                ..base()
            };
            let flat = tail(rounds, &config, &plateau, sigma, seeds);
            let bowed = tail(rounds, &config, &concave, sigma, seeds);
            let total: f64 = flat.iter().map(|workers| f64::from(*workers)).sum();
            table.push(FlatTop {
                sigma,
                worker_probe_min_ratio: ratio,
                plateau_workers: total / flat.len() as f64,
                concave_throughput: mean_throughput(&bowed, &concave) / most,
            });
        }
    }
    table
}

fn sweep_convergence(rounds: &mut Rounds<'_>, seeds: u64) -> Vec<Convergence> {
    let knee = server(Shape::Knee, f64::from(KNEE_AT), 0.4);
    let mut table = Vec::new();
    for sigma in NOISE {
        let (mut taken, mut never, mut stays) = (Vec::new(), 0, Vec::new());
        for seed in 0..seeds {
            let seen = rounds(&base(), &knee, sigma, CONVERGENCE_ROUNDS, seed);
            // A round completes as many batches as there are workers.
            match seen.iter().position(|workers| *workers == KNEE_AT) {
                Some(first) => taken.push(seen[..first].iter().map(|w| f64::from(*w)).sum()),
                None => never += 1,
            }
            stays.push(batches_before_it_stays(&seen));
        }
        table.push(Convergence {
            sigma,
            never,
            most: taken.iter().copied().fold(0.0, f64::max),
            median: median(taken),
            stays_most: stays.iter().copied().fold(0.0, f64::max),
            stays_median: median(stays),
        });
    }
    table
}

/// Batches done before the workers are within one of the knee for so many rounds in a row.
fn batches_before_it_stays(seen: &[u32]) -> f64 {
    let near = |workers: &u32| workers.abs_diff(KNEE_AT) <= 1;
    let first = seen
        .windows(STAYS_ROUNDS)
        .position(|rounds| rounds.iter().all(near));
    let before = &seen[..first.unwrap_or(seen.len())];
    before.iter().map(|workers| f64::from(*workers)).sum()
}

fn base() -> Config {
    Config {
        batch_size: 10,
        workers: 3,
        max_workers: Some(MAX_WORKERS),
        ..Config::default()
    }
}

/// The workers in the last half of the rounds, of all seeds.
fn tail(
    rounds: &mut Rounds<'_>,
    config: &Config,
    server: &Server,
    sigma: f64,
    seeds: u64,
) -> Vec<u32> {
    let mut tail = Vec::new();
    for seed in 0..seeds {
        tail.extend_from_slice(&rounds(config, server, sigma, LONG_ROUNDS, seed)[TAIL]);
    }
    tail
}

/// A server whose batches take a second an item before load and noise.
fn server(shape: Shape, knee: f64, slope: f64) -> Server {
    Server {
        shape,
        knee,
        slope,
        overhead: 0.0,
        per_item: 1.0,
        sigma: 0.0,
        straggler_p: 0.0,
        straggler_x: 1.0,
        max_batch: None,
        reject_seconds: 0.0,
    }
}

/// In each round all workers complete a batch at the setting that the round began with.
fn workers_by_round(
    controller: &mut dyn Controller,
    server: &Server,
    sigma: f64,
    rounds: usize,
    seed: u64,
) -> Vec<u32> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut seen = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let setting = controller.setting();
        seen.push(setting.workers);
        let seconds = server.seconds(setting.batch_size, f64::from(setting.workers));
        for _ in 0..setting.workers {
            let normal: f64 = rng.sample(StandardNormal);
            controller.observe(&Observation {
                setting,
                n_items: setting.batch_size,
                elapsed: seconds * (sigma * normal).exp(),
                ok: true,
                size_fault: false,
                in_flight: None,
            });
        }
    }
    seen
}

fn mean_throughput(workers: &[u32], server: &Server) -> f64 {
    let throughput = |workers: &u32| f64::from(*workers) / server.penalty(f64::from(*workers));
    workers.iter().map(throughput).sum::<f64>() / workers.len() as f64
}
