use proptest::prelude::*;

use super::*;
use crate::controller::{CLEARED, NAMES, by_name};

const DAY: f64 = 86_400.0;

/// 12 calls in flight of 40 items, of 2 s each, learned with a maximum of 32.
fn learned() -> Learned {
    Learned {
        workers: 12,
        batch_size: 40,
        max_workers: 32,
        max_batch_size: 100,
        in_flight: 12.0,
        items: 40.0,
        seconds: 2.0,
        spread: 0.1,
        calls: 200,
        share: 0.9,
    }
}

/// 3 of 32 workers, batches of 10 of 100.
fn config() -> Config {
    Config {
        workers: 3,
        max_workers: Some(32),
        batch_size: 10,
        max_batch_size: Some(100),
        ..Config::default()
    }
}

#[test]
fn a_setting_is_started_from_if_it_is_recent_and_within_the_bounds() {
    let ok = |workers, batch_size, learned| Ok((workers, batch_size, learned));
    type Case = (
        &'static str,
        Learned,
        f64,
        Config,
        Result<(u32, u32, bool), Unusable>,
    );
    let cases: Vec<Case> = vec![
        ("as learned", learned(), 3600.0, config(), ok(12, 40, true)),
        ("new", learned(), 0.0, config(), ok(12, 40, true)),
        (
            "a week old",
            learned(),
            8.0 * DAY,
            config(),
            ok(12, 40, true),
        ),
        (
            "too old",
            learned(),
            8.0 * DAY + 1.0,
            config(),
            Err(Unusable::TooOld(8.0 * DAY + 1.0)),
        ),
        (
            "another clock",
            learned(),
            -3600.0,
            config(),
            ok(12, 40, true),
        ),
        (
            "the future",
            learned(),
            -3601.0,
            config(),
            Err(Unusable::Future),
        ),
        (
            "no age",
            learned(),
            f64::NAN,
            config(),
            Err(Unusable::Senseless),
        ),
        (
            "lower maxima",
            learned(),
            0.0,
            Config {
                max_workers: Some(8),
                max_batch_size: Some(20),
                ..config()
            },
            ok(8, 20, false),
        ),
        (
            "higher minima",
            learned(),
            0.0,
            Config {
                min_workers: 20,
                min_batch_size: 50,
                ..config()
            },
            ok(20, 50, true),
        ),
        (
            "maxima that are the start",
            learned(),
            0.0,
            Config {
                max_workers: None,
                max_batch_size: None,
                ..config()
            },
            ok(3, 10, false),
        ),
        (
            "unfit for concurrent calls",
            learned(),
            0.0,
            Config {
                workers: 1,
                max_workers: None,
                ..config()
            },
            ok(1, 40, false),
        ),
        (
            "learned at the maximum",
            Learned {
                max_workers: 12,
                ..learned()
            },
            0.0,
            config(),
            ok(12, 40, false),
        ),
    ];
    for (name, learned, age, config, expected) in cases {
        let start = learned.start(age, &config);
        let levels = start.map(|start| (start.workers, start.batch_size, start.workers_learned));
        assert_eq!(levels, expected, "{name}");
    }
    for senseless in [
        Learned {
            workers: 0,
            ..learned()
        },
        Learned {
            batch_size: 0,
            ..learned()
        },
        Learned {
            in_flight: 0.0,
            ..learned()
        },
        Learned {
            items: f64::NAN,
            ..learned()
        },
        Learned {
            seconds: f64::INFINITY,
            ..learned()
        },
        Learned {
            spread: -1.0,
            ..learned()
        },
        Learned {
            spread: f64::NAN,
            ..learned()
        },
    ] {
        let start = senseless.start(0.0, &config());
        assert_eq!(start, Err(Unusable::Senseless), "{senseless:?}");
    }
}

#[test]
fn a_start_changes_no_bound_and_no_step() {
    // Both follow from the start where they are not given.
    let plain = Config {
        max_workers: None,
        max_batch_size: None,
        batch_size: 80,
        workers: 20,
        ..config()
    };
    let start = learned().start(0.0, &plain).expect("usable");
    assert_eq!((start.workers, start.batch_size), (12, 40));
    assert_eq!(
        (start.max_workers, start.max_batch_size, start.step()),
        (Some(20), Some(80), 20)
    );
}

#[test]
fn a_learned_batch_size_is_left_alone_for_a_while() {
    let batches = Config {
        min_workers: 12,
        ..config()
    };
    let sizes = |learned: &Learned| {
        let start = learned.start(0.0, &batches).expect("usable");
        let mut controller = by_name("curve", &start).expect("known");
        [900, 300].map(|calls| {
            for _ in 0..calls {
                let setting = controller.setting();
                controller.observe(&Observation {
                    elapsed: 4.0 + 0.01 * f64::from(setting.batch_size),
                    ..call(&*controller, 1.0)
                });
            }
            controller.setting().batch_size
        })
    };
    assert_eq!(sizes(&learned()), [40, 100]);
    // It was the biggest that there could have been.
    let at_the_maximum = Learned {
        max_batch_size: 40,
        ..learned()
    };
    assert_eq!(sizes(&at_the_maximum)[0], 100);
}

#[test]
fn what_is_not_used_is_said_in_words() {
    let words = [
        Unusable::TooOld(12.2 * DAY),
        Unusable::Future,
        Unusable::Senseless,
    ]
    .map(|why| why.to_string());
    assert_eq!(
        words,
        [
            "what was learned 12 days ago is too old (more than 8 days)",
            "what was learned is from the future; see to the clock",
            "what was learned makes no sense",
        ]
    );
}

fn remembering(name: &str, learned: &Learned) -> Remembering {
    let config = config();
    let start = learned.start(0.0, &config).expect("usable");
    let inner = by_name(name, &start).expect("known");
    Remembering::new(inner, &config, Some(learned))
}

/// A call at the present setting that takes so many times as long as was remembered.
fn call(controller: &dyn Controller, times: f64) -> Observation {
    let setting = controller.setting();
    Observation {
        setting,
        n_items: setting.batch_size,
        elapsed: 2.0 * times,
        ok: true,
        size_fault: false,
        in_flight: None,
    }
}

fn failed(controller: &dyn Controller) -> Observation {
    Observation {
        ok: false,
        ..call(controller, 1.0)
    }
}

/// Tells it of the calls until it forgets or so many were told; then how many, and its words.
fn told(
    controller: &mut Remembering,
    most: u32,
    next: impl Fn(&dyn Controller, u32) -> Observation,
) -> (u32, Option<String>) {
    for n in 1..=most {
        let observation = next(controller, n);
        let before = controller.setting();
        for change in controller.observe(&observation) {
            if matches!(change, Change::Forget { .. }) {
                let now = controller.setting();
                assert_eq!(now.epoch, before.epoch + u64::from(change.moved_a_level()));
                return (n, Some(change.to_string()));
            }
        }
    }
    (most, None)
}

#[test]
fn calls_that_take_twice_as_long_contradict() {
    for name in NAMES {
        let mut right = remembering(name, &learned());
        assert_eq!(told(&mut right, 40, |c, _| call(c, 1.9)), (40, None));
        assert!(!right.lesson().expect("it has a memory").contradicted);

        let mut wrong = remembering(name, &learned());
        let (n, words) = told(&mut wrong, 40, |c, _| call(c, 3.1));
        assert_eq!(n, 12, "{name}: a round tells");
        assert_eq!(
            words.as_deref(),
            Some(
                "forget what was remembered, workers 12->3, batch_size 40->10 (latency 3.10x that)"
            )
        );
        assert!(wrong.lesson().expect("it has a memory").contradicted);
        assert_eq!(
            (wrong.setting().workers, wrong.setting().batch_size),
            (3, 10)
        );
        // Once.
        assert_eq!(told(&mut wrong, 100, |c, _| call(c, 9.0)).1, None);
    }
}

#[test]
fn stragglers_do_not_contradict_but_a_slow_second_round_does() {
    let mut right = remembering("history", &learned());
    let (_, words) = told(&mut right, 40, |c, n| {
        call(c, if n % 5 < 2 { 20.0 } else { 1.0 })
    });
    assert_eq!(words, None);
    // The first round was sent while fewer calls were in flight.
    let mut wrong = remembering("curve", &learned());
    let (n, words) = told(&mut wrong, 40, |c, n| {
        call(c, if n <= 12 { 1.0 } else { 3.0 })
    });
    assert!(
        words.is_some_and(|words| words.contains("latency 3.00x that")),
        "{wrong:?}"
    );
    assert_eq!(n, 24);
    // A third one is the controller's own.
    let mut changed = remembering("curve", &learned());
    let (_, words) = told(&mut changed, 60, |c, n| {
        call(c, if n <= 24 { 1.0 } else { 3.0 })
    });
    assert_eq!(words, None);
}

#[test]
fn noise_asks_for_more_calls() {
    for (spread, calls) in [(0.0, 12), (0.7, 12), (1.0, 21), (9.0, 60)] {
        let learned = Learned {
            spread,
            ..learned()
        };
        let mut wrong = remembering("history", &learned);
        // Too slow to tell them apart: the same setting throughout.
        let (n, words) = told(&mut wrong, 100, |c, _| call(c, 3.0));
        assert!(words.is_some(), "{spread}");
        assert_eq!(n, calls, "{spread}");
    }
}

#[test]
fn first_calls_that_mostly_fail_contradict() {
    let mut wrong = remembering("history", &learned());
    let (n, words) = told(&mut wrong, 40, |c, _| failed(c));
    assert_eq!(n, 7);
    assert_eq!(
        words.as_deref(),
        Some(
            "forget what was remembered, workers 12->3, batch_size 40->10 (7 of the first 12 calls failed)"
        )
    );
    let mut right = remembering("history", &learned());
    let (_, words) = told(&mut right, 80, |c, n| match n % 2 {
        0 => failed(c),
        _ => call(c, 1.0),
    });
    assert_eq!(words, None, "half of them");
}

#[test]
fn a_size_that_is_too_big_now_is_cut_by_its_own_rule_first() {
    for name in NAMES {
        let mut controller = remembering(name, &learned());
        let fault = Observation {
            size_fault: true,
            ..failed(&controller)
        };
        let changes = controller.observe(&fault);
        let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), 1, "{name}");
        assert!(
            words[0].starts_with("decrease batch_size 40->"),
            "{words:?}"
        );
        assert_eq!(controller.setting().workers, 12);
    }
}

#[test]
fn calls_that_cannot_be_compared_say_nothing() {
    // Beside more others than remembered, bigger, smaller, without items.
    let table: [(&str, Option<u32>, u32, f64, bool); 6] = [
        ("as many as remembered", Some(6), 40, 3.0, true),
        ("more in flight than remembered", None, 40, 3.0, false),
        ("twice the items, twice the time", Some(6), 80, 2.1, false),
        ("twice the items, five times it", Some(6), 80, 5.0, true),
        ("few items, the same time", Some(6), 1, 1.0, false),
        ("no items", Some(6), 0, 9.0, false),
    ];
    for (name, in_flight, n_items, times, contradicts) in table {
        let learned = Learned {
            in_flight: 6.0,
            ..learned()
        };
        let mut controller = remembering("history", &learned);
        let (_, words) = told(&mut controller, 100, |c, _| Observation {
            in_flight,
            n_items,
            ..call(c, times)
        });
        assert_eq!(words.is_some(), contradicts, "{name}");
    }
}

#[test]
fn an_override_of_a_level_ends_the_doubt() {
    let row = |key: &str, value: &str| Override {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let mut controller = remembering("history", &learned());
    controller.apply(&[row("force_workers", "20")]);
    assert_eq!(
        told(&mut controller, 100, |c, _| call(c, 9.0)).1,
        None,
        "the user's level is not to be given up"
    );
    // What does not fit or is no key of the tuner's changes nothing.
    let mut controller = remembering("history", &learned());
    controller.apply(&[row("pause", "true"), row("max_workers", "many")]);
    assert!(told(&mut controller, 100, |c, _| call(c, 9.0)).1.is_some());
}

fn bounds(max_workers: u32) -> Bounds {
    Bounds {
        min_workers: 1,
        max_workers,
        min_batch_size: 1,
        max_batch_size: 100,
    }
}

/// What a run has learned after so many rounds at the setting of each.
fn after(rounds: &[(u32, u32, u32)]) -> Option<Learned> {
    let mut settled = Settled::default();
    for &(count, workers, batch_size) in rounds {
        for _ in 0..count * workers {
            settled.add(&Observation {
                setting: Setting {
                    epoch: 0,
                    workers,
                    batch_size,
                },
                n_items: batch_size,
                elapsed: 0.5,
                ok: true,
                size_fault: false,
                in_flight: None,
            });
        }
    }
    settled.learned(bounds(32))
}

#[test]
fn a_run_has_settled_where_it_spent_most_of_its_last_rounds() {
    type Case = (&'static str, &'static [(u32, u32, u32)], Option<(u32, u32)>);
    let table: [Case; 15] = [
        ("nothing", &[], None),
        ("too few rounds", &[(5, 8, 10)], None),
        ("enough", &[(8, 8, 10)], Some((8, 10))),
        ("too few calls", &[(12, 1, 10)], None),
        ("one worker", &[(30, 1, 10)], Some((1, 10))),
        (
            "a climb",
            &[(4, 3, 10), (4, 5, 10), (4, 8, 10), (4, 12, 10)],
            None,
        ),
        (
            "a climb and a stay",
            &[(8, 3, 10), (16, 6, 10)],
            Some((6, 10)),
        ),
        (
            "a wobble",
            &[(5, 6, 10), (5, 7, 10), (5, 6, 10), (5, 7, 10), (5, 6, 10)],
            Some((6, 10)),
        ),
        (
            "small steps among many workers",
            &[(6, 40, 10), (6, 38, 10), (6, 43, 10), (6, 40, 10)],
            Some((40, 10)),
        ),
        (
            "big steps among many workers",
            &[(6, 40, 10), (6, 20, 10), (6, 55, 10), (6, 40, 10)],
            None,
        ),
        (
            "small steps of the size",
            &[(6, 8, 100), (6, 8, 95), (6, 8, 108), (6, 8, 100)],
            Some((8, 100)),
        ),
        (
            "big steps of the size",
            &[(6, 8, 100), (6, 8, 50), (6, 8, 150), (6, 8, 100)],
            None,
        ),
        (
            "looks now and then",
            &[(26, 8, 10), (1, 11, 10), (26, 8, 10), (1, 11, 10)],
            Some((8, 10)),
        ),
        ("long ago", &[(500, 4, 10), (30, 16, 10)], Some((16, 10))),
        (
            "two sizes in turn",
            &[(8, 8, 10), (8, 8, 40), (8, 8, 10), (8, 8, 40)],
            None,
        ),
    ];
    for (name, rounds, expected) in table {
        let setting = after(rounds).map(|learned| (learned.workers, learned.batch_size));
        assert_eq!(setting, expected, "{name}");
    }
}

#[test]
fn what_was_measured_is_learned_with_the_setting() {
    let mut settled = Settled::default();
    for n in 0..400 {
        let seconds: f64 = if n % 2 == 0 { 1.0 } else { 4.0 };
        settled.add(&Observation {
            setting: Setting {
                epoch: 3,
                workers: 8,
                batch_size: 50,
            },
            n_items: if n % 2 == 0 { 50 } else { 30 },
            elapsed: seconds,
            ok: n % 10 > 0,
            size_fault: false,
            in_flight: Some(if n % 2 == 0 { 4 } else { 20 }),
        });
    }
    let learned = settled.learned(bounds(64)).expect("settled");
    let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.1;
    assert_eq!(
        (learned.workers, learned.batch_size, learned.max_workers),
        (8, 50, 64)
    );
    assert!(near(learned.seconds, 2.1), "{learned:?}");
    assert!(near(learned.spread, 2.0_f64.ln()), "{learned:?}");
    assert!(near(learned.items, 39.0), "{learned:?}");
    assert!(near(learned.in_flight, 6.2), "{learned:?}");
    // 20 rounds of 8.
    assert!((120..=165).contains(&learned.calls), "{learned:?}");
    assert_eq!(learned.share, 1.0);
}

#[test]
fn calls_that_say_nothing_of_time_are_not_learned_from() {
    let at = |workers: u32, n_items: u32, elapsed: f64, ok: bool| Observation {
        setting: Setting {
            epoch: 0,
            workers,
            batch_size: 10,
        },
        n_items,
        elapsed,
        ok,
        size_fault: false,
        in_flight: None,
    };
    let mut settled = Settled::default();
    (0..200).for_each(|_| settled.add(&at(8, 10, 0.5, true)));
    let before = settled.learned(bounds(32));
    for _ in 0..1000 {
        settled.add(&at(16, 10, 0.5, false));
        settled.add(&at(16, 0, 0.5, true));
        for elapsed in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            settled.add(&at(16, 10, elapsed, true));
        }
    }
    assert!(before.is_some());
    assert_eq!(settled.learned(bounds(32)), before);
    // However many settings there were, the last ones count.
    (1..500).for_each(|workers| settled.add(&at(workers, 10, 0.5, true)));
    (0..400).for_each(|_| settled.add(&at(8, 10, 2.0, true)));
    let learned = settled.learned(bounds(32)).expect("settled");
    assert!(learned.workers == 8 && learned.seconds > 1.5, "{learned:?}");
}

#[test]
fn levels_that_an_override_decides_are_not_learned() {
    let row = |key: &str, value: &str| Override {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let learned_with = |rows: &[Override], clear: &[Override]| {
        let config = Config {
            workers: 8,
            ..workers_fixed_at(8)
        };
        let inner = by_name("history", &config).expect("known");
        let mut controller = Remembering::new(inner, &config, None);
        controller.apply(rows);
        told(&mut controller, 200, |c, _| call(c, 1.0));
        let during = controller.lesson().and_then(|lesson| lesson.learned);
        controller.apply(clear);
        assert_eq!(controller.lesson().and_then(|l| l.learned), None);
        told(&mut controller, 200, |c, _| call(c, 1.0));
        let after = controller.lesson().and_then(|lesson| lesson.learned);
        (during.is_some(), after.is_some())
    };
    for key in ["hold_workers", "hold_batch_size"] {
        let cleared = learned_with(&[row(key, "8")], &[row(key, CLEARED)]);
        assert_eq!(cleared, (false, true), "{key}");
    }
    let bounded = learned_with(&[row("max_workers", "5")], &[row("max_workers", CLEARED)]);
    assert_eq!(bounded, (false, true));
}

/// Nothing to tune.
fn workers_fixed_at(workers: u32) -> Config {
    Config {
        workers,
        max_workers: Some(workers),
        min_workers: 1,
        batch_size: 10,
        max_batch_size: Some(10),
        ..Config::default()
    }
}

#[test]
fn a_learned_start_is_stayed_at_and_left_where_more_pays() {
    let knee = |workers: u32, knee: f64| 1.0 + 0.4 * (f64::from(workers) - knee).max(0.0);
    let start = Config {
        workers: 12,
        max_workers: Some(64),
        batch_size: 10,
        workers_learned: true,
        ..Config::default()
    };
    let run = |config: &Config, at: f64| {
        let mut controller = by_name("curve", config).expect("known");
        let mut highest = 0;
        for n in 0..1200 {
            let setting = controller.setting();
            highest = highest.max(setting.workers);
            let noise = 1.0 + 0.1 * (f64::from(n * 7 % 13) / 6.0 - 1.0);
            controller.observe(&Observation {
                elapsed: knee(setting.workers, at) * noise,
                ..call(&*controller, 1.0)
            });
        }
        (controller.setting().workers, highest)
    };
    let (workers, highest) = run(&start, 12.0);
    assert!(
        (11..=13).contains(&workers) && highest <= 14,
        "{workers}, {highest}"
    );
    let plain = Config {
        workers_learned: false,
        ..start.clone()
    };
    let (_, highest) = run(&plain, 12.0);
    assert!(highest > 14, "without the memory it climbs: {highest}");
    // Where the server can take more by now, that is found.
    let (workers, _) = run(&start, 24.0);
    assert!(workers >= 20, "{workers}");
}

proptest! {
    #[test]
    fn a_start_is_within_the_bounds_or_there_is_none(
        levels in (0..100u32, 0..100u32, any::<u32>()),
        measured in (any::<f64>(), any::<f64>(), any::<f64>(), any::<f64>()),
        age in any::<f64>(),
        bounds in (1..40u32, 1..40u32, 0..40u32, 1..40u32, 1..40u32, 0..40u32),
    ) {
        let learned = Learned {
            workers: levels.0,
            batch_size: levels.1,
            max_workers: levels.2,
            in_flight: measured.0,
            items: measured.1,
            seconds: measured.2,
            spread: measured.3,
            ..learned()
        };
        let config = Config {
            workers: bounds.0,
            min_workers: bounds.1,
            max_workers: Some(bounds.1 + bounds.2),
            batch_size: bounds.3,
            min_batch_size: bounds.4,
            max_batch_size: Some(bounds.4 + bounds.5),
            ..Config::default()
        };
        if let Ok(start) = learned.start(age, &config) {
            prop_assert!((bounds.1..=bounds.1 + bounds.2).contains(&start.workers));
            prop_assert!((bounds.4..=bounds.4 + bounds.5).contains(&start.batch_size));
            for name in NAMES {
                let inner = by_name(name, &start).expect("known");
                let bounds = by_name(name, &config).expect("known").bounds();
                let mut controller = Remembering::new(inner, &config, Some(&learned));
                prop_assert_eq!(controller.bounds(), bounds);
                for n in 0..200u32 {
                    let setting = controller.setting();
                    let changes = controller.observe(&Observation {
                        setting,
                        n_items: n % 50,
                        elapsed: f64::from(n % 7) * 1e3_f64.powi(n as i32 % 5),
                        ok: n % 3 > 0,
                        size_fault: n % 9 == 0,
                        in_flight: None,
                    });
                    let moves = changes.iter().filter(|change| change.moved_a_level()).count();
                    prop_assert_eq!(controller.setting().epoch, setting.epoch + moves as u64);
                }
            }
        }
    }
}
