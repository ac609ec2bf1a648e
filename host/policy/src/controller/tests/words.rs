use super::*;

#[test]
fn every_change_has_its_words() {
    use Dimension::{BatchSize, Workers};
    let cases: [(Change, &str); 8] = [
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
