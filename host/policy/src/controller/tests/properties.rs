use proptest::prelude::*;

use super::*;

fn configs() -> impl Strategy<Value = Config> {
    let bound = prop_oneof![Just(None), (1..40u32).prop_map(Some)];
    let counts = (0..40u32, 0..12u32, bound.clone(), 0..60u32, 0..20u32, bound);
    let limits = (
        prop_oneof![Just(None), (0.01..20.0f64).prop_map(Some)],
        prop_oneof![Just(None), (0.01..20.0f64).prop_map(Some)],
    );
    let windows = (0..8u32, 0..20u32, 0..6u32, 0..6u32, 0..8u32);
    let ratios = (
        0.0..2.0f64,
        0.0..2.0f64,
        0.5..1.5f64,
        0.5..1.5f64,
        0.0..1.0f64,
        0.0..1.0f64,
    );
    (counts, windows, ratios, limits).prop_map(|(counts, windows, ratios, limits)| Config {
        max_batch_seconds: limits.0,
        target_latency: limits.1,
        workers: counts.0,
        min_workers: counts.1,
        max_workers: counts.2,
        batch_size: counts.3,
        min_batch_size: counts.4,
        max_batch_size: counts.5,
        min_window: windows.0,
        max_window: windows.1,
        baseline_epochs: windows.2,
        ceiling_ttl_epochs: windows.3,
        history_ttl_windows: windows.4,
        congestion_ratio: ratios.0,
        good_ratio: ratios.1,
        worker_probe_min_ratio: ratios.2,
        batch_probe_min_ratio: ratios.3,
        worker_decrease: ratios.4,
        batch_decrease: ratios.5,
        ..Config::default()
    })
}

#[derive(Debug, Clone)]
enum Step {
    /// Attempts at the present setting: how many, seconds an item, calls in flight.
    Samples(u32, f64, Option<u32>),
    /// A size fault dispatched so many epochs ago.
    SizeFault(u64),
    Apply(Vec<Override>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let seconds = prop_oneof![
        8 => 0.1..10.0f64,
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), Just(f64::MAX)],
    ];
    let in_flight = prop_oneof![3 => Just(None), 1 => (0..10u32).prop_map(Some)];
    let key = prop::sample::select(vec![
        "max_workers",
        "min_workers",
        "force_workers",
        "hold_workers",
        "max_batch_size",
        "min_batch_size",
        "force_batch_size",
        "hold_batch_size",
        "pause",
    ]);
    let value = prop_oneof![
        6 => (0..50u32).prop_map(|n| n.to_string()),
        2 => Just(CLEARED.to_owned()),
        1 => any::<String>(),
        1 => any::<u64>().prop_map(|n| n.to_string()),
    ];
    let row = (key, value).prop_map(|(key, value)| Override {
        key: key.to_owned(),
        value,
    });
    let step = prop_oneof![
        6 => (1..30u32, seconds, in_flight).prop_map(|(n, s, f)| Step::Samples(n, s, f)),
        1 => (0..3u64).prop_map(Step::SizeFault),
        2 => prop::collection::vec(row, 1..5).prop_map(Step::Apply),
    ];
    prop::collection::vec(step, 1..60)
}

/// What must hold after every call of a controller.
fn check(
    controller: &dyn Controller,
    before: Setting,
    changes: &[Change],
) -> Result<(), TestCaseError> {
    let (now, bounds) = (controller.setting(), controller.bounds());
    prop_assert!(
        1 <= bounds.min_workers && 1 <= bounds.min_batch_size,
        "{bounds:?}"
    );
    prop_assert!(
        (bounds.min_workers..=bounds.max_workers).contains(&now.workers),
        "{now:?} {bounds:?}"
    );
    prop_assert!(
        (bounds.min_batch_size..=bounds.max_batch_size).contains(&now.batch_size),
        "{now:?} {bounds:?}"
    );
    let moves = changes
        .iter()
        .filter(|change| change.moved_a_level())
        .count() as u64;
    prop_assert_eq!(now.epoch, before.epoch + moves, "{:?}", changes);
    let moved = (now.workers, now.batch_size) != (before.workers, before.batch_size);
    prop_assert!(!moved || moves > 0, "a level moved and nothing was said");
    prop_assert!(!controller.single() || now.workers == 1);
    Ok(())
}

fn controllers(config: &Config) -> Vec<Box<dyn Controller>> {
    let all = NAMES.iter().map(|name| by_name(name, config));
    all.collect::<Result<_, _>>()
        .expect("every name has a controller")
}

proptest! {
    #[test]
    fn levels_stay_inside_bounds_and_every_move_is_one_epoch(config in configs(), steps in steps()) {
        for mut controller in controllers(&config) {
            for step in &steps {
                match step {
                    Step::Samples(count, seconds, in_flight) => {
                        for _ in 0..*count {
                            let before = controller.setting();
                            let changes = controller.observe(&Observation {
                                setting: before,
                                n_items: before.batch_size,
                                elapsed: seconds * f64::from(before.batch_size),
                                ok: true,
                                size_fault: false,
                                in_flight: *in_flight,
                            });
                            // One of each level, and that a shift was noticed.
                            prop_assert!(changes.len() <= 3);
                            check(&*controller, before, &changes)?;
                        }
                    }
                    Step::SizeFault(age) => {
                        let before = controller.setting();
                        let changes = controller.observe(&Observation {
                            setting: Setting { epoch: before.epoch.saturating_sub(*age), ..before },
                            n_items: before.batch_size,
                            elapsed: 1.0,
                            ok: false,
                            size_fault: true,
                            in_flight: None,
                        });
                        check(&*controller, before, &changes)?;
                    }
                    Step::Apply(rows) => {
                        let before = controller.setting();
                        let changes = controller.apply(rows);
                        check(&*controller, before, &changes)?;
                    }
                }
            }
        }
    }

    #[test]
    fn a_held_level_does_not_move(config in configs(), steps in steps(), level in 1..40u32) {
        for mut controller in controllers(&config) {
            controller.apply(&[Override { key: "hold_batch_size".to_owned(), value: level.to_string() }]);
            let held = controller.setting().batch_size;
            for step in &steps {
                let Step::Samples(count, seconds, in_flight) = step else { continue };
                for number in 0..*count {
                    let setting = controller.setting();
                    let ok = number % 5 > 0;
                    controller.observe(&Observation {
                        setting, n_items: 1, elapsed: *seconds, ok, size_fault: !ok, in_flight: *in_flight,
                    });
                    prop_assert_eq!(controller.setting().batch_size, held);
                }
            }
        }
    }
}
