use super::*;

#[test]
fn a_failure_that_is_no_size_fault_changes_nothing_and_is_no_sample() {
    let mut rig = Rig::new(&workers_only());
    for _ in 0..20 {
        let failed = Observation {
            ok: false,
            ..rig.sample(1.0)
        };
        assert_eq!(rig.observe(failed), "");
    }
    assert_eq!(rig.window(1.0), "probe workers 3->4");
}

#[test]
fn a_success_of_another_epoch_is_no_sample() {
    let mut rig = Rig::new(&workers_only());
    rig.window(1.0);
    for epoch in [0, 2] {
        let mut other = rig.sample(1.0);
        other.setting.epoch = epoch;
        for _ in 0..20 {
            assert_eq!(rig.observe(other), "");
        }
    }
    assert_eq!(rig.window(1.0), "probe workers 4->5");
}

#[test]
fn a_change_of_level_starts_a_new_window() {
    let mut rig = Rig::new(&both());
    for _ in 0..4 {
        rig.observe(rig.sample(1.0));
    }
    rig.size_fault(0);
    assert_eq!(rig.window(1.0), "probe workers 3->4");
}

#[test]
fn at_most_so_many_windows_of_a_setting_are_remembered() {
    let mut rig = Rig::new(&Config {
        baseline_epochs: 3,
        workers: 3,
        max_workers: Some(3),
        min_workers: 3,
        ..workers_only()
    });
    // History ends as (1.4, 1.4, 1.0): were the first two remembered, 1.9 would be too much.
    rig.windows(&[1.0, 1.0, 1.4, 1.4, 1.0]);
    assert_eq!(rig.window(1.9), "");
}

#[test]
fn senseless_durations_and_empty_batches_are_no_evidence_and_do_no_harm() {
    for (elapsed, n_items) in [
        (f64::NAN, 10),
        (f64::INFINITY, 10),
        (f64::NEG_INFINITY, 10),
        (-1.0, 10),
        (1.0, 0),
    ] {
        let mut rig = Rig::new(&workers_only());
        let senseless = Observation {
            elapsed,
            n_items,
            ..rig.sample(1.0)
        };
        for _ in 0..100 {
            assert_eq!(rig.observe(senseless), "", "{elapsed} s, {n_items} items");
        }
        assert_eq!(rig.window(1.0), "probe workers 3->4");
    }
    // A call too quick for the clock, or longer than any run, is a sample nevertheless.
    for elapsed in [0.0, f64::MIN_POSITIVE, f64::MAX] {
        let mut rig = Rig::new(&workers_only());
        let extreme = Observation {
            elapsed,
            n_items: u32::MAX,
            ..rig.sample(1.0)
        };
        assert_eq!(rig.window_of(|_| extreme), "probe workers 3->4");
    }
}

#[test]
fn the_largest_levels_do_not_overflow() {
    let mut rig = Rig::new(&Config {
        workers: 2,
        max_workers: Some(u32::MAX),
        batch_size: u32::MAX - 1,
        max_batch_size: Some(u32::MAX),
        batch_step: Some(u32::MAX),
        ..Config::default()
    });
    assert_eq!(rig.window(1.0), "probe workers 2->3");
    assert_eq!(rig.window(1.0), "probe batch_size 4294967294->4294967295");
    rig.apply(&[("force_workers", "4294967295")]);
    assert_eq!(
        rig.size_fault(3),
        "decrease batch_size 4294967295->2147483647 (batch failed)"
    );
    assert_eq!(rig.levels(), (u32::MAX, u32::MAX / 2));
}

#[test]
fn a_setting_not_measured_lately_is_no_measure_for_a_probe() {
    for (ttl, decision) in [
        (4, "revert workers 6->5 (throughput 0.67x best)"),
        (3, "probe workers 6->7"),
    ] {
        let mut rig = Rig::new(&Config {
            history_ttl_windows: ttl,
            ceiling_ttl_epochs: 1,
            max_workers: Some(9),
            ..workers_only()
        });
        // 9 / 1 in window 1, and never again.
        rig.apply(&[("force_workers", "9")]);
        rig.window(1.0);
        // 2, 3 and 4 at 5 workers with room for no more; then 5 / 1.2 and, in window 6, 6 / 1.
        rig.apply(&[("max_workers", "5")]);
        assert_eq!(rig.windows(&[1.2, 1.2, 1.2]), ["", "", ""]);
        rig.apply(&[("max_workers", "9")]);
        assert_eq!(rig.window(1.2), "probe workers 5->6");
        assert_eq!(rig.window(1.0), decision, "time to live {ttl}");
    }
}
