//! What `curve` decides on a number of servers, sample by sample, and what it believes meanwhile, kept in
//! `decisions.txt`: a change of it that was not meant to change decisions is noticed.
//!
//! Whether the decisions are good ones is for the other tests, and for `batchgate simulate`.

use std::fmt::Write;

use super::super::overrides::CLEARED;
use super::*;

/// Seconds of a call, by calls in flight, items, and calls sent so far.
type Server = fn(f64, f64, u64) -> f64;

/// A run: calls end in the order of their time, and each that ends is followed by others at the setting of then.
struct Run {
    name: &'static str,
    config: Config,
    server: Server,
    noise: f64,
    /// Batches of more items fail for their size.
    limit: fn(u64) -> u32,
    /// What else happens to a call, by its number.
    mishap: fn(u64, &mut Observation),
    /// Overrides, by the number of samples before them.
    overrides: &'static [(u64, &'static str, &'static str)],
    calls: u64,
}

/// Calls after which the belief is written down.
const EVERY: u64 = 100;

fn run(name: &'static str, config: Config, noise: f64, calls: u64, server: Server) -> Run {
    Run {
        name,
        config,
        server,
        noise,
        limit: |_| u32::MAX,
        mishap: |_, _| {},
        overrides: &[],
        calls,
    }
}

fn workers(from: u32, max: u32) -> Config {
    Config {
        workers: from,
        max_workers: Some(max),
        batch_size: 10,
        ..Config::default()
    }
}

fn batches(from: u32, max: u32) -> Config {
    Config {
        batch_size: from,
        max_batch_size: Some(max),
        ..workers(4, 4)
    }
}

fn both() -> Config {
    Config {
        max_batch_size: Some(150),
        ..workers(1, 32)
    }
}

fn hinge(active: f64, knee: f64, slope: f64) -> f64 {
    1.0 + slope * (active - knee).max(0.0)
}

fn runs() -> Vec<Run> {
    vec![
        run("a knee at 6", workers(3, 16), 0.3, 700, |w, _, _| {
            hinge(w, 6.0, 0.4)
        }),
        run(
            "the same, learned",
            Config {
                workers_learned: true,
                ..workers(6, 16)
            },
            0.3,
            500,
            |w, _, _| hinge(w, 6.0, 0.4),
        ),
        run("a knee at 40", workers(2, 128), 0.5, 3000, |w, _, _| {
            hinge(w, 40.0, 0.1)
        }),
        run(
            "a plateau from 10 on",
            workers(3, 64),
            0.1,
            600,
            |w, _, _| (w / 10.0).max(1.0),
        ),
        run("ever flatter", workers(2, 32), 0.3, 600, |w, _, _| {
            1.0 + w / 8.0
        }),
        run("a cliff at 30", workers(3, 200), 0.2, 2000, |w, _, _| {
            hinge(w, 30.0, 1.0)
        }),
        run("loud", workers(3, 32), 1.0, 800, |w, _, _| {
            hinge(w, 6.0, 0.4)
        }),
        run("no bend, no noise", workers(5, 20), 0.0, 300, |_, _, _| 0.5),
        run(
            "a start beyond the knee",
            workers(10, 30),
            0.1,
            400,
            |w, _, _| hinge(w, 4.0, 0.5),
        ),
        run("fewer, then more", workers(8, 32), 0.3, 3000, |w, _, n| {
            hinge(
                w,
                if n < 1000 {
                    12.0
                } else if n < 2000 {
                    5.0
                } else {
                    16.0
                },
                0.4,
            )
        }),
        run("much more", workers(3, 64), 0.2, 3000, |w, _, n| {
            hinge(w, if n < 500 { 4.0 } else { 40.0 }, 0.4)
        }),
        run(
            "more, up to the maximum",
            workers(3, 24),
            0.2,
            2500,
            |w, _, n| {
                if n < 500 { hinge(w, 4.0, 0.4) } else { 1.0 }
            },
        ),
        run(
            "slower, then faster",
            workers(8, 16),
            0.3,
            1500,
            |w, _, n| hinge(w, 8.0, 0.4) * if (500..1000).contains(&n) { 3.0 } else { 1.0 },
        ),
        Run {
            limit: |n| if n < 3000 { 60 } else { 100 },
            ..run("a limit of size", batches(5, 200), 0.1, 8000, |_, n, _| {
                0.2 + 0.01 * n
            })
        },
        run(
            "slower by the item",
            batches(80, 200),
            0.1,
            200,
            |_, n, _| 0.01 * n.powf(1.6),
        ),
        run(
            "hardly any overhead",
            batches(10, 200),
            0.1,
            200,
            |_, n, _| 0.02 + 0.01 * n,
        ),
        run("both", both(), 0.2, 1200, |w, n, _| {
            (0.5 + 0.01 * n) * hinge(w, 10.0, 0.3)
        }),
        run(
            "a timeout",
            Config {
                max_batch_seconds: Some(2.0),
                ..batches(5, 200)
            },
            0.1,
            300,
            |_, n, _| 0.2 + 0.01 * n,
        ),
        run(
            "a target",
            Config {
                target_latency: Some(1.2),
                max_batch_size: Some(40),
                ..workers(3, 32)
            },
            0.1,
            1200,
            |w, n, k| 0.1 * n * hinge(w, if k < 600 { 8.0 } else { 2.0 }, 0.05),
        ),
        Run {
            mishap: |n, o| o.in_flight = (n % 700 < 400).then_some(2),
            ..run("held back", both(), 0.1, 1500, |w, n, _| {
                (0.5 + 0.01 * n) * hinge(w, 10.0, 0.3)
            })
        },
        Run {
            mishap: |n, o| match n % 50 {
                7 => o.elapsed *= 20.0,
                13 => o.ok = false,
                19 => o.elapsed = f64::NAN,
                23 => o.elapsed = -1.0,
                29 => o.n_items = 0,
                31 => o.elapsed = 0.0,
                37 => o.n_items = 1,
                _ => {}
            },
            ..run("mishaps", workers(3, 16), 0.2, 1000, |w, _, _| {
                hinge(w, 6.0, 0.4)
            })
        },
        Run {
            limit: |n| if n % 40 < 3 { 0 } else { u32::MAX },
            ..run(
                "any size fails",
                Config {
                    batch_size: 4,
                    ..workers(9, 16)
                },
                0.2,
                400,
                |w, _, _| hinge(w, 6.0, 0.4),
            )
        },
        Run {
            overrides: &[
                (150, "max_workers", "40"),
                (700, "hold_workers", "12"),
                (900, "hold_workers", CLEARED),
                (1300, "force_workers", "30"),
                (1500, "min_workers", "25"),
                (1600, "hold_batch_size", "20"),
            ],
            limit: |n| if n > 1650 { 15 } else { u32::MAX },
            ..run(
                "overrides",
                Config {
                    max_batch_size: Some(30),
                    ..workers(4, 5)
                },
                0.1,
                1800,
                |w, _, _| hinge(w, 20.0, 0.4),
            )
        },
        Run {
            overrides: &[(700, "max_batch_size", "100")],
            ..run(
                "a single call",
                Config {
                    max_workers: None,
                    ..batches(5, 40)
                },
                0.3,
                900,
                |w, n, _| w * (0.2 + 0.01 * n),
            )
        },
    ]
}

fn decisions(run: &Run) -> String {
    let mut text = format!("== {}\n", run.name);
    let mut curve = Curve::new(&run.config);
    let mut in_flight: Vec<(f64, u64, Observation)> = Vec::new();
    let (mut now, mut sent) = (0.0, 0);
    for ended in 1..=run.calls {
        while in_flight.len() < curve.setting().workers as usize {
            sent += 1;
            let active = in_flight.len() as f64 + 1.0;
            let observation = call(run, curve.setting(), active, sent);
            let lasts = observation.elapsed;
            let lasts = if lasts.is_finite() {
                lasts.max(0.0)
            } else {
                1.0
            };
            in_flight.push((now + lasts, sent, observation));
        }
        let first = (0..in_flight.len())
            .min_by(|a, b| in_flight[*a].0.total_cmp(&in_flight[*b].0))
            .unwrap_or(0);
        let (at, _, observation) = in_flight.swap_remove(first);
        now = at;
        let rows: Vec<Override> = run
            .overrides
            .iter()
            .filter(|(at, ..)| *at == ended)
            .map(|(_, key, value)| Override {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect();
        let mut changes = curve.apply(&rows);
        changes.extend(curve.observe(&observation));
        for change in changes {
            let _ = writeln!(text, "{ended:6} {change}");
        }
        if ended % EVERY == 0 {
            let _ = writeln!(text, "{ended:6}   {}", belief(&mut curve));
        }
    }
    text
}

fn call(run: &Run, setting: Setting, active: f64, number: u64) -> Observation {
    // Evenly spread, in an order without a pattern; logistic, as wide as a normal.
    let share = (number as f64 * 0.618_033_988_75)
        .fract()
        .clamp(0.001, 0.999);
    let normal = (share / (1.0 - share)).ln() / 1.814;
    let failed = setting.batch_size > (run.limit)(number);
    let seconds = (run.server)(active, f64::from(setting.batch_size), number);
    let mut observation = Observation {
        setting,
        n_items: setting.batch_size,
        elapsed: seconds * (run.noise * normal).exp(),
        ok: !failed,
        size_fault: failed,
        in_flight: None,
    };
    (run.mishap)(number, &mut observation);
    observation
}

/// Workers and batch size, the noise, a call's seconds, and what twice or half of the workers would bring.
fn belief(curve: &mut Curve) -> String {
    curve.update_belief();
    let here = curve.here();
    let (half, twice) = ((here.workers / 2).max(1), here.workers * 2);
    let seconds = curve.belief.ln_seconds(here.workers, here.items).exp();
    let [fewer, more] = [half, twice].map(|to| curve.belief.gain(here.workers, to).mean.exp());
    let bigger = curve.belief.size_gain(here.items, here.items * 2).exp();
    format!(
        "{} x {}, noise {:.3}, a call takes {seconds:.3} s, half of the workers {fewer:.2}x, twice {more:.2}x, \
         twice the items {bigger:.2}x",
        here.workers,
        here.items,
        curve.samples.noise()
    )
}

#[test]
fn decisions_are_those_on_record() {
    let now: String = runs().iter().map(decisions).collect();
    let recorded = include_str!("decisions.txt");
    if now != recorded {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/controller/curve/decisions.new"
        );
        let written = std::fs::write(path, &now);
        let differs = now.lines().zip(recorded.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or(0);
        panic!(
            "from line {} on: {:?} instead of {:?}; all of them are in {path} ({written:?}). If that is meant, move \
             it to decisions.txt.",
            line + 1,
            now.lines().nth(line),
            recorded.lines().nth(line)
        );
    }
}
