use super::*;

#[test]
fn latency_that_rises_at_the_same_setting_cuts_workers() {
    let mut rig = Rig::new(&Config {
        workers: 10,
        max_workers: Some(10),
        ..workers_only()
    });
    assert_eq!(rig.window(1.0), "");
    let cut = rig.window(1.52);
    assert_eq!(
        cut,
        "decrease workers 10->7 (latency 1.52x this setting's history)"
    );
    assert_eq!(rig.levels(), (7, 10));
    // Latency fell, so the cut was right; its ceiling keeps workers there.
    assert_eq!(
        rig.windows(&[0.5, 0.5]),
        ["probe workers 7->8", "probe workers 8->9"]
    );
    assert_eq!(rig.windows(&[0.5, 0.5]), ["", ""], "closed at 9");
}

#[test]
fn latency_at_exactly_the_ratio_is_no_congestion() {
    let mut rig = Rig::new(&Config {
        workers: 10,
        max_workers: Some(10),
        ..workers_only()
    });
    assert_eq!(rig.windows(&[1.0, 1.5]), ["", ""]);
}

#[test]
fn a_cut_goes_one_down_at_least_and_never_below_the_minimum() {
    for (workers, factor, minimum, to) in [
        (10, 0.99, 1, 9),
        (10, 0.05, 1, 1),
        (10, 0.05, 4, 4),
        (2, 0.7, 1, 1),
        (10, f64::NAN, 2, 2),
    ] {
        let mut rig = Rig::new(&Config {
            workers,
            min_workers: minimum,
            max_workers: Some(workers),
            worker_decrease: factor,
            ..workers_only()
        });
        rig.windows(&[1.0, 2.0]);
        assert_eq!(
            rig.levels().0,
            to,
            "{workers} x {factor}, minimum {minimum}"
        );
    }
}

#[test]
fn latency_that_does_not_fall_after_a_cut_is_a_new_baseline() {
    for (after, decision) in [
        (1.22, "probe workers 7->8"),
        (
            1.23,
            "rebaseline: latency did not fall after cutting workers, not load-driven",
        ),
    ] {
        let mut rig = Rig::new(&Config {
            workers: 10,
            max_workers: Some(10),
            ..workers_only()
        });
        rig.windows(&[1.0, 2.0]);
        assert_eq!(rig.window(after), decision, "sqrt(1.5) = 1.2247");
    }
}

#[test]
fn a_new_baseline_is_judged_once_and_forgets_what_was_better() {
    let mut rig = Rig::new(&Config {
        workers: 10,
        max_workers: Some(10),
        ..workers_only()
    });
    rig.windows(&[1.0, 3.0]);
    assert!(rig.window(3.0).starts_with("rebaseline"));
    assert_eq!(rig.epoch(), 1, "a new baseline moves no level");
    // The old best at 10 workers would condemn this probe.
    assert_eq!(
        rig.windows(&[3.0, 3.0]),
        ["probe workers 7->8", "probe workers 8->9"]
    );
}

#[test]
fn at_the_minimum_rising_latency_is_a_new_baseline() {
    let config = Config {
        workers: 3,
        min_workers: 3,
        max_workers: Some(3),
        ..workers_only()
    };
    let mut rig = Rig::new(&config);
    assert_eq!(
        rig.windows(&[1.0, 2.0, 2.0]),
        ["", "rebaseline: latency 2.00x history at min workers", ""]
    );
    assert_eq!(rig.epoch(), 0);
}

#[test]
fn the_reference_of_a_cut_survives_a_new_epoch() {
    let mut rig = Rig::new(&Config {
        workers: 10,
        max_workers: Some(10),
        ..workers_only()
    });
    rig.windows(&[1.0, 2.0]);
    rig.apply(&[("force_workers", "6")]);
    assert!(
        rig.window(2.0)
            .starts_with("rebaseline: latency did not fall")
    );
}

#[test]
fn a_cut_is_judged_by_the_root_of_the_ratio_against_the_latency_before() {
    for (after, rebaselined) in [(1.0, true), (0.99, false)] {
        let mut rig = Rig::new(&Config {
            workers: 10,
            max_workers: Some(10),
            congestion_ratio: 4.0,
            ..workers_only()
        });
        assert_eq!(rig.window(0.5), "");
        let cut = rig.window(2.1);
        assert_eq!(
            cut,
            "decrease workers 10->7 (latency 4.20x this setting's history)"
        );
        let said = rig.window(after);
        assert_eq!(said.starts_with("rebaseline"), rebaselined, "{said}");
    }
}

#[test]
fn a_new_baseline_is_what_the_next_window_is_compared_with() {
    let mut rig = Rig::new(&Config {
        min_workers: 3,
        max_workers: Some(3),
        ..workers_only()
    });
    rig.windows(&[1.0, 2.0]);
    assert_eq!(
        rig.window(3.2),
        "rebaseline: latency 1.60x history at min workers"
    );
}
