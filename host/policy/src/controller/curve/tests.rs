//! The `curve` controller on servers whose best setting the test knows.

use super::look::{Look, Verdict};
use super::samples::{MOST_PLACES, Place, Samples};
use super::*;

/// Seconds of a call, by workers and items.
type Server = fn(f64, f64) -> f64;

/// A server in rounds: all calls in flight end, then as many begin at the setting of then.
struct Rig {
    controller: Curve,
    /// Before noise.
    server: Server,
    noise: f64,
    /// Batches of more items fail.
    limit: u32,
    samples: u64,
    said: Vec<String>,
    faults: u32,
    highest: Setting,
    lowest: Setting,
}

impl Rig {
    fn new(config: &Config, noise: f64, server: Server) -> Self {
        let controller = Curve::new(config);
        let start = controller.setting();
        Self {
            controller,
            server,
            noise,
            limit: u32::MAX,
            samples: 0,
            said: Vec::new(),
            faults: 0,
            highest: start,
            lowest: start,
        }
    }

    fn rounds(&mut self, rounds: u32) -> (u32, u32) {
        self.highest = self.controller.setting();
        self.lowest = self.highest;
        for _ in 0..rounds {
            let setting = self.controller.setting();
            for _ in 0..setting.workers {
                let observation = self.next(setting);
                self.observe(&observation);
            }
        }
        let setting = self.controller.setting();
        (setting.workers, setting.batch_size)
    }

    fn next(&mut self, setting: Setting) -> Observation {
        self.samples += 1;
        // Evenly spread, in an order without a pattern; logistic, as wide as a normal.
        let share = (self.samples as f64 * 0.618_033_988_75)
            .fract()
            .clamp(0.001, 0.999);
        let normal = (share / (1.0 - share)).ln() / 1.814;
        let seconds = (self.server)(f64::from(setting.workers), f64::from(setting.batch_size));
        let failed = setting.batch_size > self.limit;
        self.faults += u32::from(failed);
        Observation {
            setting,
            n_items: setting.batch_size,
            elapsed: seconds * (self.noise * normal).exp(),
            ok: !failed,
            size_fault: failed,
            in_flight: None,
        }
    }

    fn observe(&mut self, observation: &Observation) -> Vec<String> {
        let changes = self.controller.observe(observation);
        let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
        self.said.extend(words.iter().cloned());
        let now = self.controller.setting();
        if now.workers > self.highest.workers {
            self.highest = now;
        }
        if now.workers < self.lowest.workers {
            self.lowest = now;
        }
        words
    }

    fn said(&self, what: &str) -> usize {
        self.said
            .iter()
            .filter(|words| words.contains(what))
            .count()
    }
}

fn hinge(workers: f64, items: f64, knee: f64, slope: f64) -> f64 {
    0.1 * items * (1.0 + slope * (workers - knee).max(0.0))
}

/// 3 of `max_workers` workers, batches of 10 that cannot grow.
fn workers_only(max_workers: u32) -> Config {
    Config {
        workers: 3,
        max_workers: Some(max_workers),
        batch_size: 10,
        ..Config::default()
    }
}

/// 4 workers, batches of 5 of 200.
fn batches_only() -> Config {
    Config {
        workers: 4,
        max_workers: Some(4),
        min_workers: 4,
        batch_size: 5,
        max_batch_size: Some(200),
        ..Config::default()
    }
}

#[test]
fn the_best_workers_are_found_on_each_kind_of_curve() {
    let cases: [(&str, Server, u32, std::ops::RangeInclusive<u32>); 7] = [
        (
            "a knee near the start",
            |w, n| hinge(w, n, 6.0, 0.4),
            16,
            5..=7,
        ),
        (
            "a knee at the start",
            |w, n| hinge(w, n, 3.0, 0.4),
            16,
            2..=4,
        ),
        (
            "a knee far away",
            |w, n| hinge(w, n, 40.0, 0.1),
            128,
            36..=46,
        ),
        ("a cliff", |w, n| hinge(w, n, 30.0, 1.0), 200, 26..=31),
        (
            "a cliff between two curves",
            |w, n| hinge(w, n, 178.0, 0.6),
            812,
            160..=178,
        ),
        ("a plateau", |w, n| 0.1 * n * (w / 8.0).max(1.0), 64, 7..=10),
        (
            "no knee at all",
            |w, n| 0.1 * n * (1.0 + w / 8.0),
            32,
            26..=32,
        ),
    ];
    for (name, server, max_workers, expected) in cases {
        for noise in [0.0, 0.3] {
            let mut rig = Rig::new(&workers_only(max_workers), noise, server);
            let (workers, _) = rig.rounds(150);
            assert!(
                expected.contains(&workers),
                "{name}, noise {noise}: {workers} workers, {:?}",
                rig.said
            );
        }
    }
}

#[test]
fn a_steady_server_is_left_alone_but_for_a_look_now_and_then() {
    let mut rig = Rig::new(&workers_only(16), 0.3, |w, n| hinge(w, n, 6.0, 0.4));
    rig.rounds(500);
    rig.said.clear();
    rig.rounds(1000);
    assert_eq!(rig.said("rebaseline"), 0, "{:?}", rig.said);
    assert!((5..=8).contains(&rig.highest.workers), "{:?}", rig.highest);
    assert!(rig.lowest.workers >= 4, "{:?}", rig.lowest);
    // A look and the way back, every 16 rounds at most.
    assert!((20..=150).contains(&rig.said.len()), "{:?}", rig.said);
}

#[test]
fn a_run_at_its_maximum_is_not_cut_without_a_reason() {
    let config = Config {
        workers: 6,
        max_workers: Some(6),
        ..workers_only(6)
    };
    for noise in [0.1, 0.5] {
        let mut rig = Rig::new(&config, noise, |_, n| 0.1 * n);
        rig.rounds(1000);
        assert_eq!(rig.said, Vec::<String>::new(), "noise {noise}");
    }
}

#[test]
fn a_server_that_can_take_fewer_or_more_is_followed() {
    let start = Config {
        workers: 8,
        ..workers_only(32)
    };
    let mut rig = Rig::new(&start, 0.3, |w, n| hinge(w, n, 12.0, 0.4));
    let (workers, _) = rig.rounds(200);
    assert!((10..=13).contains(&workers), "{workers}");
    rig.server = |w, n| hinge(w, n, 5.0, 0.4);
    let (workers, _) = rig.rounds(100);
    assert!((4..=6).contains(&workers), "{workers}: {:?}", rig.said);
    assert!(rig.said("rebaseline: latency") > 0, "{:?}", rig.said);
    rig.server = |w, n| hinge(w, n, 16.0, 0.4);
    let (workers, _) = rig.rounds(150);
    assert!((14..=18).contains(&workers), "{workers}: {:?}", rig.said);
}

#[test]
fn a_server_that_is_slower_whatever_the_load_is_not_answered_with_fewer_workers() {
    let start = Config {
        workers: 8,
        ..workers_only(16)
    };
    let mut rig = Rig::new(&start, 0.3, |w, n| hinge(w, n, 8.0, 0.4));
    rig.rounds(200);
    rig.server = |w, n| 3.0 * hinge(w, n, 8.0, 0.4);
    let (workers, _) = rig.rounds(100);
    assert!((7..=9).contains(&workers), "{workers}: {:?}", rig.said);
    assert!(rig.lowest.workers >= 4, "{:?}", rig.said);
    assert!(rig.said("rebaseline: latency") > 0, "{:?}", rig.said);
}

#[test]
fn stragglers_are_not_taken_for_load() {
    let mut rig = Rig::new(&workers_only(16), 0.2, |w, n| hinge(w, n, 6.0, 0.4));
    for round in 0..300 {
        let setting = rig.controller.setting();
        for call in 0..setting.workers {
            let mut observation = rig.next(setting);
            if (round * 7 + call) % 50 == 0 {
                observation.elapsed *= 20.0;
            }
            rig.observe(&observation);
        }
    }
    let workers = rig.controller.setting().workers;
    assert!((5..=7).contains(&workers), "{workers}: {:?}", rig.said);
}

#[test]
fn batches_grow_as_long_as_that_pays() {
    let cases: [(&str, Server, std::ops::RangeInclusive<u32>); 3] = [
        ("much overhead", |_, n| 0.2 + 0.01 * n, 200..=200),
        ("none at all", |_, n| 0.1 * n, 5..=20),
        ("slower by the item", |_, n| 0.01 * n.powf(1.6), 1..=10),
    ];
    for (name, server, expected) in cases {
        let mut rig = Rig::new(&batches_only(), 0.1, server);
        let (_, size) = rig.rounds(100);
        assert!(expected.contains(&size), "{name}: {size}, {:?}", rig.said);
    }
}

#[test]
fn batches_grow_to_the_size_that_fails_and_try_it_ever_less_often() {
    let mut rig = Rig::new(&batches_only(), 0.1, |_, n| 0.2 + 0.01 * n);
    rig.limit = 60;
    let (_, size) = rig.rounds(60);
    assert!((56..=60).contains(&size), "{size}: {:?}", rig.said);
    assert!(
        rig.said("decrease batch_size 80->40 (batch failed)") > 0,
        "{:?}",
        rig.said
    );
    assert_eq!(rig.said("batch failed"), 1, "{:?}", rig.said);
    rig.said.clear();
    rig.rounds(150);
    assert!(
        rig.said("batch failed") <= 2,
        "a ceiling lasts: {:?}",
        rig.said
    );
    rig.rounds(4000);
    let (early, faults) = (rig.said("batch failed"), rig.faults);
    assert!(early > 0, "a ceiling ages");
    rig.said.clear();
    rig.rounds(4000);
    assert!(rig.said("batch failed") <= early, "{early}: {:?}", rig.said);
    // The server takes more now, and that is found out in time.
    rig.limit = 100;
    let (_, size) = rig.rounds(40_000);
    assert!((90..=100).contains(&size), "{size}, {faults} faults");
}

#[test]
fn only_the_present_size_can_be_cut() {
    let mut rig = Rig::new(&batches_only(), 0.0, |_, n| 0.2 + 0.01 * n);
    rig.rounds(4);
    let setting = rig.controller.setting();
    let fault = Observation {
        ok: false,
        size_fault: true,
        ..rig.next(setting)
    };
    let words = rig.observe(&fault);
    assert!(words[0].starts_with("decrease batch_size"), "{words:?}");
    let now = rig.controller.setting();
    assert_eq!(
        rig.observe(&fault),
        Vec::<String>::new(),
        "an older, bigger batch"
    );
    assert_eq!(rig.controller.setting(), now);
    // A failure that says nothing about the size, such as a breach.
    let breach = Observation {
        size_fault: false,
        ..fault
    };
    assert_eq!(rig.observe(&breach), Vec::<String>::new());
}

#[test]
fn a_batch_that_cannot_be_smaller_takes_workers_down() {
    let mut rig = Rig::new(&workers_only(16), 0.0, |_, n| n);
    let setting = rig.controller.setting();
    let fault = Observation {
        ok: false,
        size_fault: true,
        ..rig.next(Setting {
            batch_size: 1,
            ..setting
        })
    };
    rig.controller = Curve::new(&Config {
        batch_size: 1,
        ..workers_only(16)
    });
    let words = rig.observe(&fault);
    assert_eq!(
        words,
        ["decrease workers 3->2 (batch failed at min batch_size)"]
    );
}

#[test]
fn batches_stop_short_of_the_timeout() {
    let config = Config {
        max_batch_seconds: Some(2.0),
        ..batches_only()
    };
    // 1.4 s, the headroom, are 120 items.
    let mut rig = Rig::new(&config, 0.0, |_, n| 0.2 + 0.01 * n);
    let (_, size) = rig.rounds(200);
    assert!((90..=120).contains(&size), "{size}: {:?}", rig.said);
}

#[test]
fn no_setting_is_chosen_beyond_the_target_latency() {
    // 1 s up to 8 calls, then 0.05 s more for each: throughput grows up to 32.
    let server: Server = |w, n| 0.1 * n * (1.0 + 0.05 * (w - 8.0).max(0.0));
    let mut rig = Rig::new(&workers_only(32), 0.0, server);
    assert!(rig.rounds(200).0 > 20, "without a target: {:?}", rig.said);
    let config = Config {
        target_latency: Some(1.2),
        min_batch_size: 10,
        ..workers_only(32)
    };
    let mut rig = Rig::new(&config, 0.0, server);
    let (workers, _) = rig.rounds(200);
    assert!((8..=13).contains(&workers), "{workers}: {:?}", rig.said);
    // A server that gets slower: fewer calls help, down to what it can do.
    rig.server = |w, n| 0.1 * n * (1.0 + 0.05 * (w - 2.0).max(0.0));
    let (workers, _) = rig.rounds(100);
    assert!((2..=7).contains(&workers), "{workers}: {:?}", rig.said);
    assert!(rig.said("target_latency 1.2 s") > 0, "{:?}", rig.said);
    // Where that does not help, smaller batches do.
    let config = Config {
        target_latency: Some(1.2),
        max_batch_size: Some(100),
        batch_size: 40,
        ..workers_only(3)
    };
    let mut rig = Rig::new(&config, 0.0, |_, n| 0.1 * n);
    let (_, size) = rig.rounds(100);
    assert!((6..=12).contains(&size), "{size}: {:?}", rig.said);
}

#[test]
fn a_run_that_is_held_back_does_not_ask_for_more_workers() {
    let mut rig = Rig::new(&workers_only(64), 0.0, |_, n| n);
    for _ in 0..500 {
        let setting = rig.controller.setting();
        let observation = Observation {
            in_flight: Some(2),
            ..rig.next(setting)
        };
        rig.observe(&observation);
    }
    assert_eq!(rig.controller.setting().workers, 3, "{:?}", rig.said);
    rig.rounds(30);
    assert!(rig.controller.setting().workers > 8, "{:?}", rig.said);
    // Nor if it was on its way up when that began.
    let mut rig = Rig::new(&workers_only(64), 0.1, |_, n| n);
    rig.rounds(4);
    let workers = rig.controller.setting().workers;
    assert!((8..40).contains(&workers), "{workers}");
    for _ in 0..3000 {
        let setting = rig.controller.setting();
        let observation = Observation {
            in_flight: Some(workers - 1),
            ..rig.next(setting)
        };
        rig.observe(&observation);
    }
    assert_eq!(rig.controller.setting().workers, workers, "{:?}", rig.said);
}

#[test]
fn a_single_run_tunes_its_batches_alone() {
    let config = Config {
        workers: 1,
        max_workers: None,
        ..batches_only()
    };
    let mut rig = Rig::new(&config, 0.1, |_, n| 0.2 + 0.01 * n);
    assert_eq!(rig.rounds(200), (1, 200), "{:?}", rig.said);
    assert!(rig.controller.single());
    assert!(!Curve::new(&workers_only(2)).single());
}

#[test]
fn both_levels_are_tuned_together() {
    let config = Config {
        workers: 1,
        max_workers: Some(32),
        batch_size: 10,
        max_batch_size: Some(150),
        ..Config::default()
    };
    let mut rig = Rig::new(&config, 0.2, |w, n| {
        (0.5 + 0.01 * n) * (1.0 + 0.3 * (w - 10.0).max(0.0))
    });
    let (workers, size) = rig.rounds(100);
    assert_eq!(size, 150, "{:?}", rig.said);
    assert!((8..=12).contains(&workers), "{workers}: {:?}", rig.said);
}

#[test]
fn a_raised_maximum_is_used() {
    let mut rig = Rig::new(&workers_only(4), 0.0, |w, n| hinge(w, n, 20.0, 0.4));
    assert_eq!(rig.rounds(30).0, 4);
    let row = Override {
        key: "max_workers".to_owned(),
        value: "40".to_owned(),
    };
    rig.controller.apply(&[row]);
    let (workers, _) = rig.rounds(100);
    assert!((18..=22).contains(&workers), "{workers}: {:?}", rig.said);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut rig = Rig::new(&workers_only(16), 0.1, |w, n| hinge(w, n, 6.0, 0.4));
    for n_items in 1..5000 {
        let setting = rig.controller.setting();
        let observation = Observation {
            n_items: 1 + n_items % 700,
            ..rig.next(setting)
        };
        rig.observe(&observation);
    }
    assert!(rig.controller.samples.places().count() <= MOST_PLACES);
}

#[test]
fn a_look_weighs_two_claims_and_ends() {
    // From 10 to 12 at a noise of 0.3; if nothing changed, a call takes 1.5 times as long.
    let look = || Look::new(10, 12, false, 0.0, 1.5_f64.ln(), 0.3);
    assert!((4.0..=5.0).contains(&look().calls), "{:?}", look());
    let after = |ln_seconds: f64| {
        let mut look = look();
        let mut ended = 0;
        loop {
            ended += 1;
            look.ended();
            look.add(ln_seconds, 0.3);
            if let Some(verdict) = look.verdict(0.3) {
                return (ended, verdict);
            }
        }
    };
    assert_eq!(after(1.5_f64.ln()), (2, Verdict::Unchanged));
    assert_eq!(after(3.0), (1, Verdict::Unchanged), "far beyond a cliff");
    assert_eq!(after(-0.1), (4, Verdict::Changed));
    // None of its calls is back, while others end.
    let mut silent = look();
    let waited = (0..).take_while(|_| {
        silent.ended();
        silent.verdict(0.3).is_none()
    });
    assert!((30..60).contains(&waited.count()));
    assert!(silent.mean() > 1.0, "a call has taken that many rounds");
    // The noisier, the more calls, up to some rounds.
    let noisy = Look::new(10, 12, false, 0.0, 1.5_f64.ln(), 3.0);
    assert_eq!(noisy.calls, 48.0);
}

#[test]
fn a_look_is_given_up_while_the_run_is_held_back() {
    let mut rig = Rig::new(&workers_only(16), 0.1, |w, n| hinge(w, n, 6.0, 0.4));
    let mut samples = 0;
    while rig.said("in case the server can take more now") == 0 {
        let setting = rig.controller.setting();
        let observation = rig.next(setting);
        rig.observe(&observation);
        samples += 1;
        assert!(samples < 2000, "{:?}", rig.said);
    }
    let setting = rig.controller.setting();
    let observation = Observation {
        in_flight: Some(2),
        ..rig.next(setting)
    };
    let words = rig.observe(&observation);
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].ends_with("(the run is held back)"), "{words:?}");
    assert!(rig.controller.setting().workers < setting.workers);
}

#[test]
fn a_start_far_beyond_the_knee_is_doubted() {
    let config = Config {
        workers: 10,
        ..workers_only(30)
    };
    let mut rig = Rig::new(&config, 0.1, |w, n| hinge(w, n, 4.0, 0.5));
    let (workers, _) = rig.rounds(60);
    assert!((3..=5).contains(&workers), "{workers}: {:?}", rig.said);
}

/// So many samples of so many seconds at these workers, without noise.
fn sampled(samples: &mut Samples, workers: u32, seconds: f64, n: u32) -> Place {
    let place = Place { workers, items: 10 };
    for _ in 0..n {
        samples.add(place, seconds.ln(), true);
    }
    place
}

#[test]
fn what_a_slower_place_below_contradicts_is_forgotten() {
    let table = [
        ("four times as slow", 4.0, 20, true),
        ("a little slower", 1.2, 20, false),
        ("faster", 0.5, 20, false),
        ("few samples", 4.0, 7, false),
    ];
    for (name, seconds, n, forgotten) in table {
        let mut samples = Samples::new();
        let above = sampled(&mut samples, 40, 1.0, 40);
        let below = sampled(&mut samples, 10, 1.0, 40);
        let here = sampled(&mut samples, 30, seconds, n);
        samples.forget_contradicted(here);
        assert_eq!(samples.mean(above).is_none(), forgotten, "{name}");
        assert!(samples.mean(below).is_some(), "{name}: fewer may be faster");
        assert!(samples.mean(here).is_some(), "{name}");
    }
}

#[test]
fn two_levels_are_compared_where_a_round_was_measured_at_both() {
    let mut samples = Samples::new();
    let many = sampled(&mut samples, 40, 2.0, 39);
    let few = sampled(&mut samples, 10, 1.0, 10);
    assert!(samples.slower(few, many).is_none());
    sampled(&mut samples, 40, 2.0, 1);
    let (slower, error) = samples.slower(few, many).expect("measured");
    assert!(
        (slower - 2.0_f64.ln()).abs() < 1e-9 && error < 0.2,
        "{slower} {error}"
    );
    let (back, _) = samples.slower(many, few).expect("measured");
    assert!((slower + back).abs() < 1e-9);
    // What lies above counts less after many rounds here.
    sampled(&mut samples, 10, 1.0, 3001);
    assert!(samples.slower(few, many).is_none());
    assert!(samples.slower(many, few).is_some());
}

#[test]
fn more_items_explain_only_so_much_of_a_slower_place_below() {
    let table = [
        ("slower than any size explains", 4.0, true),
        ("by its items", 1.9, false),
    ];
    for (name, seconds, forgotten) in table {
        let mut samples = Samples::new();
        let above = Place {
            workers: 40,
            items: 7,
        };
        for _ in 0..40 {
            samples.add(above, 0.0, true);
        }
        let here = sampled(&mut samples, 30, seconds, 40);
        samples.forget_contradicted(here);
        assert_eq!(samples.mean(above).is_none(), forgotten, "{name}");
    }
}

#[test]
fn a_start_above_the_knee_is_left_after_a_round() {
    // Workers to start with, the knee, the slope.
    let table = [
        (50, 40.0, 0.4),
        (100, 80.0, 0.2),
        (188, 150.0, 0.2),
        (30, 20.0, 0.4),
        (80, 40.0, 0.4),
        (12, 8.0, 1.0),
    ];
    for (workers, knee, slope) in table {
        for noise in [0.0, 0.2] {
            let config = Config {
                workers,
                ..workers_only(500)
            };
            let mut rig = Rig::new(&config, noise, |w, n| 0.1 * n * w);
            let tried = format!("try workers {workers}->{}", workers * 6 / 10);
            rig.rounds(1);
            assert_eq!(rig.said.len(), 1, "{:?}", rig.said);
            assert!(rig.said[0].starts_with(&tried), "{:?}", rig.said);
            let mut curve = Run::new(&config, noise, knee, slope);
            curve.rounds(30);
            let now = f64::from(curve.rig.controller.setting().workers);
            assert!(
                (0.8 * knee..=1.15 * knee).contains(&now),
                "{workers} {knee} {noise}: {now} {:?}",
                curve.rig.said
            );
        }
    }
}

/// A rig of a knee that the test chooses.
struct Run {
    rig: Rig,
    knee: f64,
    slope: f64,
}

impl Run {
    fn new(config: &Config, noise: f64, knee: f64, slope: f64) -> Self {
        Self {
            rig: Rig::new(config, noise, |_, _| 1.0),
            knee,
            slope,
        }
    }

    fn rounds(&mut self, rounds: u32) {
        for _ in 0..rounds {
            let setting = self.rig.controller.setting();
            let (w, n) = (f64::from(setting.workers), f64::from(setting.batch_size));
            for _ in 0..setting.workers {
                let mut observation = self.rig.next(setting);
                observation.elapsed *= hinge(w, n, self.knee, self.slope);
                self.rig.observe(&observation);
            }
        }
    }
}

#[test]
fn a_start_that_is_not_too_many_loses_one_round() {
    for learned in [false, true] {
        let config = Config {
            workers: 20,
            workers_learned: learned,
            ..workers_only(64)
        };
        let mut rig = Rig::new(&config, 0.1, |_, n| n);
        rig.rounds(8);
        let tried = rig.said("fewer were never tried");
        assert_eq!(tried, usize::from(!learned), "{:?}", rig.said);
        assert!(rig.highest.workers > 20, "{:?}", rig.said);
        assert!(rig.lowest.workers >= 12, "{:?}", rig.said);
    }
}

#[test]
fn nothing_that_was_learned_outlives_a_restart() {
    let config = Config {
        workers: 1,
        max_workers: Some(1),
        batch_size: 20,
        max_batch_size: Some(500),
        batch_size_learned: true,
        ..Config::default()
    };
    // Nearly all of a call's time is that of the call.
    let server = |_, items: f64| 1.0 + items / 1000.0;
    let mut rig = Rig::new(&config, 0.05, server);
    let (_, kept) = rig.rounds(200);
    assert_eq!(kept, 20, "bigger batches are left alone: {:?}", rig.said);
    let mut rig = Rig::new(&config, 0.05, server);
    rig.rounds(5);
    rig.controller.restart_at(1, 10);
    assert_eq!(rig.controller.setting().batch_size, 10);
    let (_, grown) = rig.rounds(200);
    assert!(grown > 100, "{grown}: {:?}", rig.said);
}

#[test]
fn a_knee_that_falls_far_below_is_followed_at_once() {
    let config = Config {
        workers: 40,
        ..workers_only(100)
    };
    let mut run = Run::new(&config, 0.2, 40.0, 0.4);
    run.rounds(60);
    run.knee = 25.0;
    run.rounds(12);
    let workers = run.rig.controller.setting().workers;
    assert!(
        (18..=28).contains(&workers),
        "{workers}: {:?}",
        run.rig.said
    );
}

#[test]
fn calls_that_buy_nothing_are_given_back_from_the_maximum_too() {
    // Workers to start with, which are all there may be, and those that reach the plateau.
    for (workers, plateau) in [(8, 4.0), (20, 4.0), (15, 10.0), (100, 10.0)] {
        let config = Config {
            workers,
            ..workers_only(workers)
        };
        let mut run = Run::new(&config, 0.3, plateau, 1.0 / plateau);
        run.rounds(400);
        let now = f64::from(run.rig.controller.setting().workers);
        assert!(
            (0.9 * plateau..=1.3 * plateau).contains(&now),
            "{workers} {plateau}: {now} {:?}",
            run.rig.said
        );
    }
}

#[test]
fn after_a_look_that_misled_no_more_is_believed_than_its_calls_saw() {
    let mut curve = Curve::new(&workers_only(64));
    // What moves workers, up or down, and whether looks are believed less after it.
    let table = [
        (true, Reason::Expected(1.2), false),
        (false, Reason::Expected(1.2), false),
        (true, Reason::More, false),
        (true, Reason::Look, false),
        (false, Reason::Sent, false),
        (true, Reason::Expected(1.1), false),
        (false, Reason::Expected(1.1), false),
        (true, Reason::More, false),
        (false, Reason::Expected(1.3), true),
        (true, Reason::Expected(1.3), true),
    ];
    for (row, (rises, reason, misled)) in table.into_iter().enumerate() {
        curve.judge_look(rises, reason);
        assert_eq!(curve.false_look, misled, "row {row}");
    }
    // Seven more calls were sent, and saw four more on average.
    let mut look = Look::new(30, 37, false, 0.0, 0.4, 0.1);
    look.add(0.0, 0.1);
    let level = look.level();
    assert!((31..37).contains(&level), "{level}");
    curve.go_on(&look, &mut Vec::new());
    assert_eq!(curve.setting().workers, level);
    curve.false_look = false;
    curve.go_on(&look, &mut Vec::new());
    assert_eq!(curve.setting().workers, 37);
}

#[test]
fn the_smallest_size_that_failed_is_tried_again_in_time() {
    let passes = |sizes: &mut Sizes, items: u32, times: u32| {
        for _ in 0..times {
            sizes.passed(items);
        }
    };
    let mut sizes = Sizes::default();
    passes(&mut sizes, 20, 10);
    // A half-way search: what fails on the way makes nobody wait longer.
    for items in [40, 30, 25, 21] {
        sizes.failed(items);
        passes(&mut sizes, 20, 1);
    }
    assert_eq!(sizes.next(20, 100), 20);
    passes(&mut sizes, 20, 248);
    assert_eq!(sizes.next(20, 100), 20, "not yet");
    passes(&mut sizes, 20, 1);
    assert_eq!(sizes.next(20, 100), 21, "no more than what failed");
    // Refused by three calls: after twice as long, and 100 calls for each.
    for _ in 0..3 {
        sizes.failed(21);
    }
    passes(&mut sizes, 20, 499);
    assert_eq!(sizes.next(20, 100), 20);
    passes(&mut sizes, 20, 1);
    assert_eq!(sizes.next(20, 100), 21);
    for _ in 0..30 {
        sizes.failed(21);
    }
    passes(&mut sizes, 20, 2999);
    assert_eq!(sizes.next(20, 100), 20);
    passes(&mut sizes, 20, 1);
    assert_eq!(sizes.next(20, 100), 21);
    // It goes through: the way up is free.
    passes(&mut sizes, 21, 1);
    assert_eq!(sizes.next(21, 100), 42);
    // However many refusals, never more than four times as long.
    for _ in 0..9 {
        sizes.failed(42);
        passes(&mut sizes, 21, 1000);
        assert_eq!(sizes.next(40, 100), 42);
    }
}

#[test]
fn a_limit_that_is_raised_later_is_found() {
    for (before, after) in [(20, 200), (20, 100), (50, 200)] {
        let mut rig = Rig::new(&batches_only(), 0.2, |_, n| 0.5 + 0.005 * n);
        rig.limit = before;
        rig.rounds(1000);
        assert!(rig.faults <= 60, "{before}: {} faults", rig.faults);
        rig.limit = after;
        let (_, size) = rig.rounds(400);
        assert!(
            (after * 4 / 5..=after).contains(&size),
            "{before} {after}: {size}"
        );
    }
}

#[test]
fn the_target_latency_is_kept_by_what_costs_least() {
    // Above 4 calls they only queue: fewer workers cost nothing, smaller batches all.
    let queue: Server = |w, n| (0.2 + 0.001 * n) * (w / 4.0).max(1.0);
    let both = Config {
        target_latency: Some(0.3),
        max_batch_size: Some(60),
        batch_size: 60,
        workers: 12,
        ..workers_only(32)
    };
    let mut rig = Rig::new(&both, 0.0, queue);
    rig.rounds(40);
    let setting = rig.controller.setting();
    assert!(setting.batch_size >= 50, "{setting:?}: {:?}", rig.said);
    assert!(
        (3..=5).contains(&setting.workers),
        "{setting:?}: {:?}",
        rig.said
    );
    // A cap just below what the best takes costs about as much, not half.
    let config = Config {
        target_latency: Some(1.0),
        max_batch_size: Some(100),
        batch_size: 40,
        ..workers_only(3)
    };
    let mut rig = Rig::new(&config, 0.0, |_, n| 0.2 + 0.02 * n);
    rig.rounds(60);
    rig.server = |_, n| 1.05 * (0.2 + 0.02 * n);
    let before = rig.controller.setting().batch_size;
    for _ in 0..200 {
        rig.rounds(1);
        let now = rig.controller.setting().batch_size;
        assert!(5 * now >= 4 * before, "{before} {now}: {:?}", rig.said);
    }
}

#[test]
fn a_target_that_cannot_be_met_is_said_once_and_sinks_nothing_in_vain() {
    // A call takes at least 0.5 s, and no longer with 4 at once.
    let config = Config {
        target_latency: Some(0.1),
        max_batch_size: Some(60),
        batch_size: 40,
        workers: 8,
        ..workers_only(32)
    };
    let mut rig = Rig::new(&config, 0.1, |w, n| {
        (0.5 + 0.0005 * n) * (1.0 + 0.4 * (w - 4.0).max(0.0))
    });
    rig.rounds(300);
    assert_eq!(rig.said("cannot be met"), 1, "{:?}", rig.said);
    let setting = rig.controller.setting();
    assert!(
        (2..=5).contains(&setting.workers),
        "{setting:?}: {:?}",
        rig.said
    );
    assert!(setting.batch_size >= 10, "{setting:?}: {:?}", rig.said);
    // One that can be is not.
    let config = Config {
        target_latency: Some(0.6),
        ..config
    };
    let mut rig = Rig::new(&config, 0.1, |_, n| 0.2 + 0.01 * n);
    rig.rounds(300);
    assert_eq!(rig.said("cannot be met"), 0, "{:?}", rig.said);
}
