//! Where this controller does better than the library it was modelled on, on purpose.

use super::*;

#[test]
fn a_lowered_maximum_or_raised_minimum_moves_the_level_at_once() {
    let mut rig = Rig::new(&both());
    assert_eq!(
        rig.apply(&[("max_workers", "2")]),
        "max_workers 16->2; clamp workers 3->2"
    );
    assert_eq!(
        rig.apply(&[("min_batch_size", "9")]),
        "min_batch_size 1->9; clamp batch_size 8->9"
    );
    assert_eq!((rig.levels(), rig.epoch()), ((2, 9), 2));
}

#[test]
fn a_revert_does_not_land_below_a_raised_minimum() {
    let mut rig = Rig::new(&batches_only());
    assert_eq!(rig.window(1.0), "probe batch_size 8->12");
    assert_eq!(
        rig.apply(&[("min_batch_size", "10")]),
        "min_batch_size 1->10"
    );
    assert_eq!(
        rig.window(9.0),
        "revert batch_size 12->10 (throughput 0.11x best)"
    );

    let mut rig = Rig::new(&workers_only());
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    assert_eq!(rig.apply(&[("min_workers", "4")]), "min_workers 1->4");
    assert_eq!(rig.window(9.0), "", "there is nowhere to go back to");
    assert_eq!(rig.window(9.0), "", "but no further either");
    assert_eq!((rig.levels().0, rig.epoch()), (4, 1));
}

#[test]
fn a_value_that_is_no_count_and_a_minimum_above_its_maximum_are_ignored() {
    let mut rig = Rig::new(&both());
    assert_eq!(
        rig.apply(&[("max_workers", "lots"), ("min_batch_size", "65")]),
        "ignored max_workers=lots: not a whole number of at least 1; \
         ignored min_batch_size=65: above max_batch_size=64"
    );
    assert_eq!((rig.levels(), rig.epoch()), ((3, 8), 0));
}

#[test]
fn clearing_a_bound_brings_back_the_configured_one() {
    let mut rig = Rig::new(&both());
    rig.apply(&[("max_workers", "20"), ("max_batch_size", "8")]);
    assert_eq!(rig.apply(&[("max_workers", CLEARED)]), "max_workers 20->16");
    assert_eq!(
        rig.apply(&[("max_batch_size", CLEARED)]),
        "max_batch_size 8->64"
    );
}

#[test]
fn a_force_acts_once_for_each_row() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.apply(&[("force_workers", "6")]), "force workers 3->6");
    assert_eq!(rig.window(1.0), "probe workers 6->7");
    assert_eq!(
        rig.apply(&[("max_batch_size", "32")]),
        "max_batch_size 64->32",
        "another key"
    );
    assert_eq!(rig.levels().0, 7);
    assert_eq!(
        rig.apply(&[("force_workers", "6")]),
        "force workers 7->6",
        "the same again"
    );
}

#[test]
fn no_time_and_no_items_do_no_harm() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.window(0.0), "probe workers 3->4");
    let empty = Observation {
        n_items: 0,
        ..rig.sample(1.0)
    };
    for _ in 0..20 {
        assert_eq!(rig.observe(empty), "");
    }
}
