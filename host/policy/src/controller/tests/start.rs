use super::*;

#[test]
fn every_name_builds_its_controller_and_no_other_name_does() {
    assert!(NAMES.contains(&DEFAULT));
    for name in NAMES {
        let controller = by_name(name, &workers_only()).expect("a name");
        assert_eq!(controller.setting().workers, 3);
        assert!(!controller.single());
    }
    let error = by_name("histroy", &workers_only())
        .expect_err("no name")
        .to_string();
    assert_eq!(
        error,
        r#"no controller is called "histroy"; use one of: curve, history"#
    );
}

#[test]
fn the_start_is_clamped_into_the_bounds() {
    // (start, minimum, maximum) of both dimensions -> (level, minimum, maximum), declared single
    let cases = [
        ((4, 1, Some(8)), (4, 1, 8), false),
        ((4, 6, Some(8)), (6, 6, 8), false),
        ((9, 1, Some(8)), (8, 1, 8), false),
        ((4, 1, None), (4, 1, 4), false),
        ((4, 6, None), (6, 6, 6), false),
        ((0, 0, Some(8)), (1, 1, 8), false),
        ((4, 9, Some(8)), (8, 8, 8), false),
        ((4, 1, Some(1)), (1, 1, 1), true),
        ((1, 1, Some(2)), (1, 1, 2), false),
        ((1, 1, None), (1, 1, 1), true),
        ((4, 1, Some(0)), (1, 1, 1), true),
    ];
    for ((start, minimum, maximum), (level, low, high), single) in cases {
        let controller = History::new(&Config {
            workers: start,
            min_workers: minimum,
            max_workers: maximum,
            batch_size: start,
            min_batch_size: minimum,
            max_batch_size: maximum,
            ..Config::default()
        });
        let setting = controller.setting();
        assert_eq!(
            setting,
            Setting {
                epoch: 0,
                workers: level,
                batch_size: level
            }
        );
        let bounds = Bounds {
            min_workers: low,
            max_workers: high,
            min_batch_size: low,
            max_batch_size: high,
        };
        assert_eq!(
            controller.bounds(),
            bounds,
            "start {start} in {minimum}..{maximum:?}"
        );
        assert_eq!(
            controller.single(),
            single,
            "start {start}, maximum {maximum:?}"
        );
    }
}

#[test]
fn one_worker_by_declaration_wins_over_a_higher_minimum() {
    let controller = History::new(&Config {
        workers: 1,
        min_workers: 3,
        ..Config::default()
    });
    assert_eq!(controller.setting().workers, 1);
    assert!(controller.single());
}

#[test]
fn the_batch_step_is_a_quarter_of_the_configured_size_unless_given() {
    for (batch_size, batch_step, step) in [
        (50, None, 12),
        (50, Some(0), 12),
        (3, None, 1),
        (0, None, 1),
        (50, Some(7), 7),
    ] {
        let config = Config {
            batch_size,
            batch_step,
            ..Config::default()
        };
        assert_eq!(config.step(), step);
    }
}
