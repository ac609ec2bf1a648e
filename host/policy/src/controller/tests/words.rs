use super::*;

#[test]
fn every_change_has_its_words() {
    use Dimension::{BatchSize, Workers};
    let moved = |from, to, reason| Change::Move {
        dimension: Workers,
        from,
        to,
        reason,
    };
    let cases = [
        (
            moved(3, 5, Reason::Expected(1.454)),
            "raise workers 3->5 (expecting 1.45x the throughput)",
        ),
        (
            moved(9, 6, Reason::Expected(1.2)),
            "lower workers 9->6 (expecting 1.20x the throughput)",
        ),
        (
            moved(6, 5, Reason::Trial),
            "try workers 6->5 (may be better)",
        ),
        (
            moved(6, 7, Reason::Look),
            "try workers 6->7 (in case the server can take more now)",
        ),
        (
            moved(7, 6, Reason::Sent),
            "lower workers 7->6 (back until those calls have ended)",
        ),
        (
            moved(6, 7, Reason::More),
            "raise workers 6->7 (the server can take more than before)",
        ),
        (
            moved(7, 6, Reason::NoMore),
            "lower workers 7->6 (the server can take no more than before)",
        ),
        (
            moved(7, 6, Reason::HeldBack),
            "lower workers 7->6 (the run is held back)",
        ),
        (
            moved(5, 3, Reason::Below),
            "try workers 5->3 (fewer were never tried)",
        ),
        (
            moved(
                6,
                5,
                Reason::TooSlow {
                    seconds: 2.5,
                    target: 2.0,
                },
            ),
            "lower workers 6->5 (a call takes 2.500 s, target_latency 2 s)",
        ),
        (
            Change::Rebaseline(Rebaseline::Shift(0.5)),
            "rebaseline: latency 0.50x what it was here before",
        ),
        (
            Change::Unreachable {
                seconds: 0.4567,
                target: 1e-300,
            },
            "target_latency 1.00e-300 s cannot be met: a call takes 0.457 s even at the fewest workers and items; kept near that",
        ),
        (
            Change::Decrease {
                dimension: BatchSize,
                from: 9,
                to: 4,
                reason: CutReason::BatchFailedWhileHeld,
            },
            "decrease batch_size 9->4 (batch failed at held batch_size)",
        ),
        (
            Change::Rebaseline(Rebaseline::WhileHeld(2.0)),
            "rebaseline: latency 2.00x history at held workers",
        ),
        (
            Change::Revert {
                dimension: Workers,
                from: 4,
                to: 3,
                of_best: 0.125,
            },
            "revert workers 4->3 (throughput 0.12x best)",
        ),
        (
            Change::Hold {
                dimension: Workers,
                from: 4,
                to: 4,
            },
            "hold workers at 4",
        ),
        (
            Change::Hold {
                dimension: Workers,
                from: 4,
                to: 3,
            },
            "hold workers 4->3",
        ),
        (
            Change::Release {
                dimension: BatchSize,
                at: 4,
            },
            "release batch_size at 4",
        ),
        (
            Change::Maximum {
                dimension: BatchSize,
                from: 4,
                to: 5,
            },
            "max_batch_size 4->5",
        ),
        (
            Change::Ignored {
                key: "max_workers",
                value: "a\nb".to_owned(),
                reason: Unfit::NotACount,
            },
            "ignored max_workers=a\\nb: not a whole number of at least 1",
        ),
    ];
    for (change, words) in cases {
        assert_eq!(change.to_string(), words);
    }
}

#[test]
fn each_of_several_changes_knows_the_levels_it_left() {
    use Dimension::{BatchSize, Workers};
    let step = |dimension, from, to| Change::Move {
        dimension,
        from,
        to,
        reason: Reason::Trial,
    };
    let changes = [
        Change::Rebaseline(Rebaseline::Shift(2.0)),
        step(Workers, 2, 3),
        step(BatchSize, 10, 20),
        Change::Clamp {
            dimension: Workers,
            from: 3,
            to: 7,
        },
    ];
    let after = Change::levels_after(&changes, (7, 20));
    assert_eq!(after, [(2, 10), (3, 10), (3, 20), (7, 20)]);
    let forgets = Change::Forget {
        workers: (9, 2),
        batch_size: (50, 10),
        why: Contradiction::Slower(3.0),
    };
    let changes = [step(Workers, 8, 9), forgets];
    assert_eq!(Change::levels_after(&changes, (2, 10)), [(9, 50), (2, 10)]);
    assert!(Change::levels_after(&[], (1, 1)).is_empty());
}

#[test]
fn changes_know_whether_they_are_overrides() {
    let mut rig = Rig::new(&both());
    let tuned = (0..5).flat_map(|_| rig.controller.observe(&rig.sample(1.0)));
    assert!(
        tuned
            .collect::<Vec<_>>()
            .iter()
            .all(|change| !change.is_override())
    );
    let rows = [
        ("max_workers", "9"),
        ("min_workers", "9"),
        ("force_workers", "9"),
        ("hold_batch_size", "9"),
        ("max_batch_size", "x"),
    ];
    let changes = rig.controller.apply(&rows_of(&rows));
    assert!(
        changes.len() >= 5 && changes.iter().all(Change::is_override),
        "{changes:?}"
    );
}
