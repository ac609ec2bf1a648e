use super::*;

#[test]
fn a_held_level_stays_whatever_is_observed_until_it_is_cleared() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.apply(&[("hold_workers", "5")]), "hold workers 3->5");
    assert_eq!(rig.epoch(), 1);
    assert_eq!(
        rig.apply(&[("hold_workers", "5")]),
        "",
        "held there already"
    );
    // The other dimension goes on.
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe batch_size 8->12", "probe batch_size 12->16"]
    );
    assert!(rig.window(2.0).starts_with("revert batch_size 16->12"));
    // Neither congestion nor failures move it.
    assert_eq!(
        rig.window(9.0),
        "rebaseline: latency 9.00x history at held workers"
    );
    for batch_size in [6, 3, 1] {
        assert!(rig.size_fault(rig.epoch()).ends_with("(batch failed)"));
        assert_eq!(rig.levels(), (5, batch_size));
    }
    assert_eq!(rig.size_fault(rig.epoch()), "", "nothing left to cut");
    assert_eq!(
        rig.apply(&[("hold_workers", CLEARED)]),
        "release workers at 5"
    );
    assert_eq!(rig.apply(&[("hold_workers", CLEARED)]), "");
    assert!(
        rig.size_fault(rig.epoch())
            .starts_with("decrease workers 5->3")
    );
}

#[test]
fn a_held_batch_size_leaves_the_workers_to_be_tuned() {
    let mut rig = Rig::new(&both());
    assert_eq!(
        rig.apply(&[("hold_batch_size", "8")]),
        "hold batch_size at 8"
    );
    assert_eq!(rig.epoch(), 0, "it was there already");
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe workers 3->4", "probe workers 4->5"]
    );
    assert_eq!(
        rig.size_fault(2),
        "decrease workers 5->3 (batch failed at held batch_size)"
    );
    assert_eq!(rig.levels(), (3, 8));
}

#[test]
fn a_hold_at_a_probed_level_ends_the_probe() {
    for rows in [[("hold_workers", "4")], [("hold_workers", "99")]] {
        let mut rig = Rig::new(&Config {
            max_workers: Some(4),
            ..workers_only()
        });
        assert_eq!(rig.window(1.0), "probe workers 3->4");
        rig.apply(&rows);
        assert_eq!(rig.window(9.0), "", "held, so not taken back");
        assert_eq!(rig.levels().0, 4);
        rig.apply(&[("hold_workers", CLEARED)]);
        assert!(
            rig.window(9.0).starts_with("step back workers 4->3"),
            "not while it was held"
        );
    }
}

#[test]
fn a_hold_of_one_level_leaves_a_probe_of_the_other() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    rig.apply(&[("hold_batch_size", "8")]);
    assert!(rig.window(9.0).starts_with("revert workers 4->3"));
}

#[test]
fn a_hold_stays_inside_the_bounds_and_comes_back_with_them() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.apply(&[("hold_workers", "99")]), "hold workers 3->16");
    assert_eq!(
        rig.apply(&[("max_workers", "6")]),
        "max_workers 16->6; clamp workers 16->6"
    );
    assert_eq!(
        rig.apply(&[("max_workers", "9")]),
        "max_workers 6->9; hold workers 6->9"
    );
    assert_eq!(
        rig.apply(&[("max_workers", CLEARED)]),
        "max_workers 9->16; hold workers 9->16"
    );
}

#[test]
fn a_force_does_not_move_a_held_level() {
    let mut rig = Rig::new(&both());
    let said = "ignored force_workers=9: hold_workers keeps the level until it is cleared";
    assert_eq!(
        rig.apply(&[("force_workers", "9"), ("hold_workers", "4")]),
        format!("{said}; hold workers 3->4")
    );
    assert_eq!(rig.apply(&[("force_workers", "9")]), said);
    assert_eq!(rig.levels().0, 4);
    assert_eq!(
        rig.apply(&[("force_workers", "9"), ("hold_workers", CLEARED)]),
        "force workers 4->9; release workers at 9"
    );
}
