//! Random scenarios: what no controller can have been fitted to.
//!
//! Invariant: a generator seed fixes its scenarios, one by one: a longer list begins with the
//! shorter one.

use batchgate_policy::controller::Config;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::scenario::{Job, Scenario};
use super::server::{Server, Shape};

/// Scenarios drawn for one generator seed.
pub fn random_scenarios(seed: u64, count: u32) -> Vec<Scenario> {
    (0..count).map(|number| draw(seed, number)).collect()
}

fn draw(seed: u64, number: u32) -> Scenario {
    // Apart from each other, whatever the two numbers.
    let apart = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let rng = &mut Pcg64::seed_from_u64(seed ^ apart);
    let shape = match rng.random_range(0..4) {
        0 => Shape::Concave,
        1 => Shape::Plateau,
        _ => Shape::Knee,
    };
    let knee = between(rng, 2.0, 200.0).round();
    let limited = rng.random_bool(0.4);
    let straggling = rng.random_bool(0.3);
    let grows = rng.random_bool(0.5);
    let workers = between(rng, 1.0, 8.0).round() as u32;
    let max_workers = (knee * between(rng, 1.2, 5.0)).ceil().max(8.0) as u32;
    let batch_size = between(rng, 5.0, 50.0).round() as u32;
    let max_batch_size = match grows {
        true => (f64::from(batch_size) * between(rng, 2.0, 20.0)).round() as u32,
        false => batch_size,
    };
    let server = Server {
        shape,
        knee,
        slope: between(rng, 0.03, 1.0),
        overhead: between(rng, 0.02, 1.0),
        per_item: between(rng, 0.002, 0.05),
        sigma: between(rng, 0.05, 1.0),
        straggler_p: if straggling {
            between(rng, 0.005, 0.05)
        } else {
            0.0
        },
        straggler_x: if straggling {
            between(rng, 3.0, 20.0)
        } else {
            1.0
        },
        max_batch: (limited && grows).then(|| {
            (f64::from(batch_size)
                + f64::from(max_batch_size - batch_size) * rng.random_range(0.1..0.9))
            .round() as u32
        }),
        reject_seconds: 0.05,
    };
    let best = server.best(max_workers, max_batch_size);
    let largest = max_batch_size.min(server.max_batch.unwrap_or(max_batch_size));
    // So many times the fewest workers of the best setting complete a batch.
    let rounds = between(rng, 100.0, 800.0);
    let items = (f64::from(best.fewest_workers) * rounds * f64::from(largest)).clamp(2000.0, 2e7);
    let seconds = items / best.rate;
    let mut changes = Vec::new();
    if rng.random_bool(0.3) {
        let by = match rng.random_bool(0.5) {
            true => between(rng, 0.3, 0.6),
            false => between(rng, 1.7, 3.0),
        };
        let mut after = server.clone();
        if rng.random_bool(0.5) {
            after.knee = (after.knee * by).max(1.0).round();
        } else {
            after.overhead *= by;
            after.per_item *= by;
        }
        changes.push((seconds * rng.random_range(0.3..0.7), after));
    }
    let kind = if changes.is_empty() { "" } else { "-changes" };
    Scenario {
        name: format!("random-{seed}-{number}{kind}"),
        server,
        changes,
        job: Job {
            items: items as u32,
            config: Config {
                workers: workers.min(max_workers),
                max_workers: Some(max_workers),
                batch_size,
                max_batch_size: Some(max_batch_size),
                ..Config::default()
            },
        },
    }
}

/// A number whose logarithm is uniform.
fn between(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    rng.random_range(low.ln()..high.ln()).exp()
}
