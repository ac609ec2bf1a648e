use super::*;

#[test]
fn probes_alternate_between_the_dimensions_workers_first() {
    let mut rig = Rig::new(&both());
    // Per-item latency does not depend on the level, so every probe pays.
    assert_eq!(
        rig.windows(&[1.0; 4]),
        [
            "probe workers 3->4",
            "probe batch_size 8->12",
            "probe workers 4->5",
            "probe batch_size 12->16",
        ]
    );
    assert_eq!((rig.levels(), rig.epoch()), ((5, 16), 4));
}

#[test]
fn growth_stops_at_the_maximum() {
    let mut rig = Rig::new(&Config {
        max_workers: Some(4),
        max_batch_size: Some(11),
        ..both()
    });
    assert_eq!(
        rig.windows(&[1.0, 1.0, 1.0, 1.0]),
        ["probe workers 3->4", "probe batch_size 8->11", "", ""]
    );
}

#[test]
fn a_dimension_that_cannot_grow_leaves_its_turn_to_the_other() {
    let mut rig = Rig::new(&workers_only());
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe workers 3->4", "probe workers 4->5"]
    );
}

#[test]
fn batch_growth_stops_short_of_the_timeout() {
    // 8 items at 1 s each; 12 are expected to take 12 s.
    for (limit, decision) in [(17.1, ""), (17.2, "probe batch_size 8->12")] {
        let config = Config {
            max_batch_seconds: Some(limit),
            ..batches_only()
        };
        assert_eq!(Rig::new(&config).window(1.0), decision, "limit {limit}");
    }
    // Exactly at the limit is allowed: 0.5 x 24 s.
    let mut rig = Rig::new(&Config {
        max_batch_seconds: Some(24.0),
        batch_seconds_headroom: 0.5,
        ..batches_only()
    });
    assert_eq!(rig.window(1.0), "probe batch_size 8->12");
    // The longest call of the window counts, not the median.
    let mut rig = Rig::new(&Config {
        max_batch_seconds: Some(17.2),
        ..batches_only()
    });
    rig.observe(rig.sample(1.01));
    for _ in 0..4 {
        assert_eq!(rig.observe(rig.sample(1.0)), "");
    }
}

#[test]
fn the_timeout_does_not_hold_workers_back() {
    let mut rig = Rig::new(&Config {
        max_batch_seconds: Some(1.0),
        ..both()
    });
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe workers 3->4", "probe workers 4->5"]
    );
}

#[test]
fn a_worker_probe_that_does_not_pay_is_taken_back_and_its_level_closed_for_a_while() {
    let mut rig = Rig::new(&Config {
        ceiling_ttl_epochs: 3,
        ..workers_only()
    });
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    // 4 / 1.28 against 3 / 1: 1.04 of it.
    assert_eq!(
        rig.window(1.28),
        "revert workers 4->3 (throughput 1.04x best)"
    );
    // The ceiling stays for two windows; at the end of the third it is gone.
    assert_eq!(rig.windows(&[1.0; 3]), ["", "", "probe workers 3->4"]);
}

#[test]
fn a_worker_probe_is_kept_from_its_ratio_on() {
    let mut rig = Rig::new(&Config {
        worker_probe_min_ratio: 1.0,
        ..workers_only()
    });
    rig.window(0.75);
    assert_eq!(rig.window(1.0), "probe workers 4->5");
}

#[test]
fn a_batch_probe_is_judged_by_its_own_ratio() {
    for (per_item, decision) in [
        (1.17, "probe batch_size 12->16"),
        (1.18, "revert batch_size 12->8 (throughput 0.85x best)"),
    ] {
        let mut rig = Rig::new(&batches_only());
        assert_eq!(rig.window(1.0), "probe batch_size 8->12");
        assert_eq!(rig.window(per_item), decision);
    }
}

#[test]
fn a_probe_must_beat_the_best_setting_not_the_last_one() {
    let config = Config {
        batch_probe_min_ratio: 0.9,
        ..batches_only()
    };
    let mut rig = Rig::new(&config);
    // 8 items at 1.0, 12 at 1.05 (0.95 of the best), 16 at 1.12 (0.94 of the last, 0.89 of the best).
    assert_eq!(
        rig.windows(&[1.0, 1.05, 1.12]),
        [
            "probe batch_size 8->12",
            "probe batch_size 12->16",
            "revert batch_size 16->12 (throughput 0.89x best)",
        ]
    );
}

#[test]
fn a_probed_setting_is_judged_by_all_that_is_remembered_of_it() {
    // The second visit's window alone (1.3) would not pay; pooled with the first (1.0) it does.
    let mut rig = Rig::new(&Config {
        ceiling_ttl_epochs: 1,
        ..workers_only()
    });
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe workers 3->4", "probe workers 4->5"]
    );
    assert_eq!(
        rig.window(2.0),
        "revert workers 5->4 (throughput 0.62x best)"
    );
    assert_eq!(rig.apply(&[("force_workers", "3")]), "force workers 4->3");
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    assert_eq!(
        rig.window(1.3),
        "",
        "1.15 pooled: kept, but not good enough to go on"
    );
    assert_eq!(rig.levels().0, 4);
}

#[test]
fn a_single_slow_setting_has_nothing_to_be_compared_with() {
    let mut rig = Rig::new(&Config {
        history_ttl_windows: 0,
        ..workers_only()
    });
    rig.window(1.0);
    // With a time to live of 0 windows only the setting just measured is remembered, but
    // judging comes before forgetting.
    assert!(rig.window(9.0).starts_with("revert workers 4->3"));
    assert_eq!(rig.window(1.0), "");
}

#[test]
fn a_worker_let_in_by_one_noisy_window_is_stepped_back() {
    let mut rig = Rig::new(&workers_only());
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    assert_eq!(rig.window(1.2), "probe workers 4->5");
    assert_eq!(
        rig.window(1.8),
        "revert workers 5->4 (throughput 0.83x best)"
    );
    // 4 workers pool (1.2, 1.4) to 1.3: 3.08 against 3.
    assert_eq!(
        rig.window(1.4),
        "step back workers 4->3 (pooled throughput 1.03x one fewer)"
    );
    assert_eq!(rig.window(1.0), "", "and closed there");
}

#[test]
fn there_is_no_step_back_below_the_minimum() {
    let mut rig = Rig::new(&workers_only());
    rig.windows(&[1.0, 1.2, 1.8]);
    assert_eq!(rig.apply(&[("min_workers", "4")]), "min_workers 1->4");
    assert_eq!(rig.window(1.4), "");
    assert_eq!(rig.levels().0, 4);
}

#[test]
fn growth_waits_while_latency_is_above_the_good_ratio() {
    for (per_item, decision) in [(1.2, "probe workers 3->4"), (1.21, "")] {
        let mut rig = Rig::new(&Config {
            ceiling_ttl_epochs: 1,
            ..workers_only()
        });
        // A reverted probe leaves a setting with history.
        rig.windows(&[1.0, 2.0]);
        assert_eq!(rig.window(per_item), decision, "{per_item} against 1.0");
    }
}

#[test]
fn a_step_back_may_go_to_the_minimum_and_needs_more_than_one_window() {
    let mut rig = Rig::new(&Config {
        min_workers: 3,
        min_batch_size: 10,
        ..workers_only()
    });
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    rig.apply(&[("force_workers", "3")]);
    rig.apply(&[("force_workers", "4"), ("max_workers", "4")]);
    assert_eq!(rig.window(1.4), "", "measured once");
    assert!(rig.window(1.4).starts_with("step back workers 4->3"));
}
