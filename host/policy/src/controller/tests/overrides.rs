use super::*;

type Rows<'a> = &'a [(&'a str, &'a str)];

/// Applies rows to 3 of 2..16 workers and 8 of 4..64 items.
fn bounded() -> Rig {
    Rig::new(&Config {
        min_workers: 2,
        min_batch_size: 4,
        ..both()
    })
}

#[test]
fn what_rows_do() {
    // Rows, what is said, workers and batch size, epochs.
    let cases: &[(Rows<'_>, &str, (u32, u32), u64)] = &[
        (&[], "", (3, 8), 0),
        (&[("max_workers", "20")], "max_workers 16->20", (3, 8), 0),
        (&[("min_workers", "3")], "min_workers 2->3", (3, 8), 0),
        (&[("force_workers", "5")], "force workers 3->5", (5, 8), 1),
        (
            &[("force_workers", " 5\n")],
            "force workers 3->5",
            (5, 8),
            1,
        ),
        (
            &[("max_batch_size", "9")],
            "max_batch_size 64->9",
            (3, 8),
            0,
        ),
        (&[("min_batch_size", "5")], "min_batch_size 4->5", (3, 8), 0),
        (
            &[("force_batch_size", "60")],
            "force batch_size 8->60",
            (3, 60),
            1,
        ),
        // What is so already is not said.
        (&[("max_workers", "16")], "", (3, 8), 0),
        (&[("min_workers", "2")], "", (3, 8), 0),
        (&[("force_workers", "3")], "", (3, 8), 0),
        (
            &[("max_workers", CLEARED), ("force_workers", CLEARED)],
            "",
            (3, 8),
            0,
        ),
        // A force stays inside the bounds.
        (
            &[("force_workers", "99")],
            "force workers 3->16",
            (16, 8),
            1,
        ),
        (&[("force_workers", "1")], "force workers 3->2", (2, 8), 1),
        // In the order of the dimensions and of maximum, minimum, force; not of the rows.
        (
            &[
                ("force_batch_size", "12"),
                ("force_workers", "30"),
                ("min_workers", "3"),
                ("max_workers", "30"),
            ],
            "max_workers 16->30; min_workers 2->3; force workers 3->30; force batch_size 8->12",
            (30, 12),
            2,
        ),
        // A level outside new bounds moves at once, before a force.
        (
            &[("max_workers", "2")],
            "max_workers 16->2; clamp workers 3->2",
            (2, 8),
            1,
        ),
        (
            &[("min_workers", "7")],
            "min_workers 2->7; clamp workers 3->7",
            (7, 8),
            1,
        ),
        (
            &[("min_batch_size", "9"), ("force_batch_size", "20")],
            "min_batch_size 4->9; clamp batch_size 8->9; force batch_size 9->20",
            (3, 20),
            2,
        ),
        // Values that are none.
        (
            &[("max_workers", "many")],
            "ignored max_workers=many: not a whole number of at least 1",
            (3, 8),
            0,
        ),
        (
            &[("force_workers", "0")],
            "ignored force_workers=0: not a whole number of at least 1",
            (3, 8),
            0,
        ),
        (
            &[("force_workers", "-4")],
            "ignored force_workers=-4: not a whole number of at least 1",
            (3, 8),
            0,
        ),
        (
            &[("hold_workers", "2.5")],
            "ignored hold_workers=2.5: not a whole number of at least 1",
            (3, 8),
            0,
        ),
        (
            &[("min_batch_size", "")],
            "ignored min_batch_size=: not a whole number of at least 1",
            (3, 8),
            0,
        ),
        (
            &[("max_workers", "4294967296")],
            "ignored max_workers=4294967296: more than 4294967295",
            (3, 8),
            0,
        ),
        // A bound beyond the other one is refused ...
        (
            &[("max_workers", "1")],
            "ignored max_workers=1: below min_workers=2",
            (3, 8),
            0,
        ),
        (
            &[("min_workers", "17")],
            "ignored min_workers=17: above max_workers=16",
            (3, 8),
            0,
        ),
        (
            &[("min_workers", "16")],
            "min_workers 2->16; clamp workers 3->16",
            (16, 8),
            1,
        ),
        // ... unless both move to where they fit.
        (
            &[("max_workers", "30"), ("min_workers", "20")],
            "max_workers 16->30; min_workers 2->20; clamp workers 3->20",
            (20, 8),
            1,
        ),
        (
            &[("max_workers", "1"), ("min_workers", "1")],
            "max_workers 16->1; min_workers 2->1; clamp workers 3->1",
            (1, 8),
            1,
        ),
        // When they do not fit together, the maximum goes first.
        (
            &[("max_workers", "5"), ("min_workers", "6")],
            "max_workers 16->5; ignored min_workers=6: above max_workers=5",
            (3, 8),
            0,
        ),
        (
            &[("max_workers", "2"), ("min_workers", "6")],
            "max_workers 16->2; ignored min_workers=6: above max_workers=2; clamp workers 3->2",
            (2, 8),
            1,
        ),
        (
            &[("min_workers", "3"), ("max_workers", "1")],
            "ignored max_workers=1: below min_workers=2; min_workers 2->3",
            (3, 8),
            0,
        ),
        // The last row of a key that fits is the one that counts.
        (
            &[
                ("max_workers", "9"),
                ("max_workers", "7"),
                ("max_workers", "x"),
            ],
            "ignored max_workers=x: not a whole number of at least 1; max_workers 16->7",
            (3, 8),
            0,
        ),
        (
            &[("force_workers", "5"), ("force_workers", CLEARED)],
            "",
            (3, 8),
            0,
        ),
        // Keys of others.
        (
            &[("pause", "true"), ("max_wrokers", "x"), ("budget_max", "3")],
            "",
            (3, 8),
            0,
        ),
    ];
    for (rows, said, levels, epochs) in cases {
        let mut rig = bounded();
        assert_eq!(rig.apply(rows), *said, "{rows:?}");
        assert_eq!((rig.levels(), rig.epoch()), (*levels, *epochs), "{rows:?}");
    }
}

#[test]
fn a_long_value_is_shortened_and_cannot_break_the_line() {
    let mut rig = bounded();
    let value = format!("\u{1b}[2J\n{}", "é".repeat(1000));
    let said = rig.apply(&[("max_workers", &value)]);
    assert!(
        said.starts_with(r"ignored max_workers=\u{1b}[2J\n"),
        "{said}"
    );
    assert!(said.contains("é…: not a whole number"), "{said}");
    assert!(said.chars().count() < 120 && !said.contains('\n'), "{said}");
}

#[test]
fn live_bounds_stay_until_they_are_cleared() {
    let mut rig = bounded();
    assert_eq!(rig.apply(&[("max_workers", "4")]), "max_workers 16->4");
    assert_eq!(
        rig.apply(&[("min_workers", "4")]),
        "min_workers 2->4; clamp workers 3->4"
    );
    assert_eq!(
        rig.apply(&[("force_batch_size", "9")]),
        "force batch_size 8->9"
    );
    assert_eq!(
        rig.windows(&[1.0, 1.0]),
        ["probe batch_size 9->13", "probe batch_size 13->17"]
    );
    assert_eq!(rig.apply(&[("max_workers", CLEARED)]), "max_workers 4->16");
    assert_eq!(rig.apply(&[("min_workers", CLEARED)]), "min_workers 4->2");
    assert_eq!(rig.window(1.0), "probe workers 4->5");
}

#[test]
fn a_bound_that_is_cleared_is_out_of_the_way_of_the_other() {
    let mut rig = bounded();
    rig.apply(&[("min_workers", "10")]);
    assert_eq!(
        rig.apply(&[("min_workers", CLEARED), ("max_workers", "5")]),
        "max_workers 16->5; min_workers 10->2; clamp workers 10->5"
    );
}

#[test]
fn a_cleared_bound_gives_way_to_the_other_ones_override() {
    let mut rig = bounded();
    rig.apply(&[("max_workers", "30"), ("min_workers", "20")]);
    assert_eq!(
        rig.apply(&[("max_workers", CLEARED)]),
        "max_workers 30->20",
        "16 is below 20"
    );
    assert_eq!(
        rig.apply(&[("min_workers", "18")]),
        "max_workers 20->18; min_workers 20->18; clamp workers 20->18"
    );
    assert_eq!(
        rig.apply(&[("min_workers", CLEARED)]),
        "max_workers 18->16; min_workers 18->2; clamp workers 18->16"
    );

    let mut rig = bounded();
    rig.apply(&[("max_workers", "1"), ("min_workers", "1")]);
    assert_eq!(rig.apply(&[("min_workers", CLEARED)]), "", "2 is above 1");
    assert_eq!(
        rig.apply(&[("max_workers", CLEARED)]),
        "max_workers 1->16; min_workers 1->2; clamp workers 1->2"
    );
}

#[test]
fn bounds_show_live_overrides() {
    let mut rig = bounded();
    rig.apply(&[
        ("max_workers", "5"),
        ("min_batch_size", "6"),
        ("hold_workers", "4"),
    ]);
    let bounds = Bounds {
        min_workers: 2,
        max_workers: 5,
        min_batch_size: 6,
        max_batch_size: 64,
    };
    assert_eq!(rig.controller.bounds(), bounds);
}

#[test]
fn a_run_declared_single_ignores_worker_keys() {
    let all = [
        ("hold_workers", "4"),
        ("force_workers", "4"),
        ("min_workers", "x"),
        ("max_workers", "4"),
        ("force_batch_size", "9"),
    ];
    let words = "run declared not thread-safe (max_workers=1)";
    let cases: &[(Rows<'_>, String)] = &[
        (&all[3..4], format!("ignored max_workers: {words}")),
        (
            &all,
            format!(
                "ignored max_workers, min_workers, force_workers, hold_workers: {words}; force batch_size 8->9"
            ),
        ),
        (&[("max_workers", CLEARED)], String::new()),
        (
            &[("max_workers", "4"), ("max_workers", CLEARED)],
            String::new(),
        ),
        (
            &[("max_workers", "1")],
            format!("ignored max_workers: {words}"),
        ),
        (&all[4..], "force batch_size 8->9".to_owned()),
    ];
    for max_workers in [None, Some(1)] {
        for (rows, said) in cases {
            let mut rig = Rig::new(&Config {
                max_workers,
                ..batches_only()
            });
            assert_eq!(rig.apply(rows), *said);
            assert_eq!(rig.levels().0, 1);
        }
        let mut rig = Rig::new(&Config {
            max_workers,
            ..batches_only()
        });
        assert!(rig.apply(&all[3..4]).starts_with("ignored"));
        assert!(
            rig.apply(&all[3..4]).starts_with("ignored"),
            "said at every application"
        );
    }
}

#[test]
fn an_override_that_moves_a_level_ends_a_probe() {
    let mut rig = Rig::new(&both());
    assert_eq!(rig.window(1.0), "probe workers 3->4");
    rig.apply(&[("force_batch_size", "9")]);
    assert_eq!(
        rig.window(9.0),
        "probe batch_size 9->13",
        "nothing is judged"
    );
}

#[test]
fn an_override_that_moves_no_level_leaves_probe_and_samples() {
    let mut rig = Rig::new(&both());
    rig.window(1.0);
    for _ in 0..4 {
        rig.observe(rig.sample(9.0));
    }
    rig.apply(&[("max_workers", "9"), ("force_workers", "4")]);
    assert!(
        rig.observe(rig.sample(9.0))
            .starts_with("revert workers 4->3")
    );
}
