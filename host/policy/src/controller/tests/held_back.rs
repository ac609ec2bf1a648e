use super::*;

#[test]
fn a_held_back_run_tries_no_workers_but_bigger_batches() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.held_window(1.0, 2), "probe batch_size 8->12");
    assert_eq!(rig.held_window(1.0, 2), "probe batch_size 12->16");
    assert_eq!(
        rig.held_window(1.3, 1),
        "revert batch_size 16->12 (throughput 0.77x best)",
        "a bigger batch is still judged, by latency alone"
    );
    // As many in flight as workers is not held back.
    assert_eq!(rig.held_window(1.0, 3), "probe workers 3->4");
}

#[test]
fn one_held_back_attempt_makes_the_window_one() {
    let mut rig = Rig::new(&workers_only());
    rig.observe(Observation {
        in_flight: Some(2),
        ..rig.sample(1.0)
    });
    for _ in 0..4 {
        assert_eq!(rig.observe(rig.sample(1.0)), "");
    }
    assert_eq!(
        rig.window(1.0),
        "probe workers 3->4",
        "and the next one is free again"
    );
}

#[test]
fn a_held_back_run_is_not_judged_by_its_workers() {
    // A worker probe is given up where it stands, whatever latency says.
    let mut rig = Rig::new(&workers_only());
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    assert_eq!(rig.held_window(9.0, 1), "");
    assert_eq!(rig.levels().0, 4);
    // No cut, no step back, no new baseline while held back.
    assert_eq!(rig.held_window(90.0, 1), "");
    assert_eq!(rig.held_window(900.0, 1), "");
    // What was measured then is not held against the workers later ...
    assert_eq!(rig.window(1.2), "probe workers 4->5");
    assert_eq!(
        rig.window(1.8),
        "revert workers 5->4 (throughput 0.83x best)"
    );
    // ... and the worker that was never judged can still be stepped back.
    assert!(rig.window(1.4).starts_with("step back workers 4->3"));
}

#[test]
fn a_cut_is_judged_by_the_first_window_that_is_not_held_back() {
    let mut rig = Rig::new(&Config {
        workers: 10,
        max_workers: Some(10),
        ..workers_only()
    });
    rig.windows(&[1.0, 2.0]);
    assert_eq!(rig.held_window(2.0, 1), "");
    assert!(
        rig.window(2.0)
            .starts_with("rebaseline: latency did not fall")
    );
}
