use super::*;

#[test]
fn a_size_fault_halves_the_batch_and_closes_what_is_above_the_last_good_size() {
    let mut rig = Rig::new(&batches_only());
    rig.windows(&[1.0, 1.0]);
    assert_eq!(rig.levels(), (1, 16), "12 was good, 16 is probed");
    assert_eq!(
        rig.size_fault(rig.epoch()),
        "decrease batch_size 16->8 (batch failed)"
    );
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe batch_size 8->12", ""],
        "closed above 12"
    );
}

#[test]
fn a_size_fault_at_the_last_good_size_closes_that_size() {
    let mut rig = Rig::new(&batches_only());
    assert_eq!(rig.size_fault(0), "decrease batch_size 8->4 (batch failed)");
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe batch_size 4->7", ""],
        "closed at 8 - 1"
    );
}

#[test]
fn only_batches_dispatched_since_the_last_size_cut_count() {
    let mut rig = Rig::new(&batches_only());
    rig.windows(&[1.0, 1.0]);
    assert_eq!(rig.epoch(), 2);
    // Dispatched before the probe, but after the last cut: it counts.
    assert_eq!(
        rig.size_fault(1),
        "decrease batch_size 16->8 (batch failed)"
    );
    assert_eq!(
        (rig.size_fault(2), rig.size_fault(0)),
        (String::new(), String::new())
    );
    assert_eq!(rig.size_fault(3), "decrease batch_size 8->4 (batch failed)");
}

#[test]
fn a_size_fault_at_the_smallest_batch_cuts_workers_then_nothing() {
    let mut rig = Rig::new(&Config {
        batch_size: 1,
        workers: 2,
        ..workers_only()
    });
    assert_eq!(
        rig.size_fault(0),
        "decrease workers 2->1 (batch failed at min batch_size)"
    );
    assert_eq!(rig.size_fault(1), "");
    assert_eq!((rig.levels(), rig.epoch()), ((1, 1), 1));
}

#[test]
fn a_size_cut_during_a_probe_ends_the_probe() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    assert_eq!(rig.size_fault(1), "decrease batch_size 8->4 (batch failed)");
    // As a probe this would be reverted.
    assert_eq!(rig.window(9.0), "probe batch_size 4->7");
    assert_eq!(rig.levels().0, 4);
}

#[test]
fn a_cut_that_cannot_be_made_closes_nothing() {
    let mut rig = Rig::new(&Config {
        batch_size: 1,
        workers: 1,
        ..workers_only()
    });
    assert_eq!(rig.size_fault(0), "");
    assert_eq!(rig.window(1.0), "probe workers 1->2");
}
