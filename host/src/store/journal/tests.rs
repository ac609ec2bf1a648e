#![allow(clippy::unwrap_used)]

use super::*;
use crate::source::{Format, Input, SourceConfig};
use batchgate_policy::attempt::{Attempt, OnBreach, OnTrap, Rules};
use batchgate_policy::outcome::{CallEnd, CallResult, ItemFailure};
use std::fs;
use std::ops::{ControlFlow, Range};

const RULES: Rules = Rules {
    bisect: false,
    bisect_min_size: 1,
    max_batch_retries: 0,
    max_item_attempts: 1,
    on_breach: OnBreach::Fail,
    max_breach_resends: 0,
    on_trap: OnTrap::Fail,
};

/// A folder with an input, a component and perhaps a journal.
struct Place {
    folder: tempfile::TempDir,
    source: SourceConfig,
    label: &'static str,
    unknown: OnUnknown,
    accept_changes: bool,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("input.csv"), "id\n1\n").unwrap();
        fs::write(path("component"), "wasm").unwrap();
        let source = SourceConfig {
            input: Input::Path(path("input.csv")),
            format: Format::Auto,
            delimiter: b',',
            key: Some("id".into()),
            max_item_bytes: 1000,
        };
        Place {
            folder,
            source,
            label: "a",
            unknown: OnUnknown::Resend,
            accept_changes: false,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn try_open(&self) -> Result<Journal, JournalError> {
        let path = self.path("journal");
        let options = Options {
            path: &path,
            label: "orders",
            unknown: self.unknown,
            accept_changes: self.accept_changes,
        };
        Journal::open(&options, |known| {
            Subject::take(self.label, &self.source, &self.path("component"), known)
        })
    }

    fn open(&self) -> Journal {
        let journal = self.try_open().unwrap();
        journal.begin("run");
        journal
    }

    fn refused(&self) -> String {
        self.try_open().err().unwrap().to_string()
    }

    fn sql(&self, sql: &str) {
        let connection = Connection::open(self.path("journal")).unwrap();
        connection.execute_batch(sql).unwrap();
    }

    fn listed(&self, state: StateName) -> Vec<(u64, Option<String>)> {
        let mut items = Vec::new();
        let look = look(&self.path("journal")).unwrap().unwrap();
        look.items(state, |item| {
            items.push((item.index, item.key));
            ControlFlow::Continue(())
        })
        .unwrap();
        items
    }
}

fn some(indexes: Range<u64>) -> Vec<Item> {
    let item = |index| Item {
        index,
        key: Key::Text(format!("k{index}").into()),
        data: "x".into(),
    };
    indexes.map(item).collect()
}

fn indexes(items: &[Item]) -> Vec<u64> {
    items.iter().map(|item| item.index).collect()
}

fn account(items: &[Item], end: CallEnd) -> Account {
    let mut attempt = Attempt::new(items.len() as u32, RULES);
    let result = CallResult {
        end,
        breached: false,
        backing_off: false,
        unanswered: false,
    };
    let first = items[0].index;
    attempt.mark(result, |index| Some((index - first) as u32), 0.0);
    attempt.finish()
}

/// Sends a batch, whose call ends so.
async fn send(journal: &Journal, items: Range<u64>, end: CallEnd) -> Account {
    let items = some(items);
    let mut dispatched = journal.dispatch(&items);
    dispatched.recorded().await.unwrap();
    let mut account = account(&items, end);
    journal.end(dispatched.id(), &items, &mut account);
    account
}

fn item_fails(index: u64) -> CallEnd {
    CallEnd::Partial(vec![ItemFailure {
        index,
        message: "bad".into(),
        retryable: false,
    }])
}

fn earlier(journal: &Journal) -> [u64; 4] {
    let Earlier {
        written,
        skipped,
        failed,
        unknown,
    } = journal.earlier();
    [written, skipped, failed, unknown]
}

#[tokio::test]
async fn a_killed_run_is_resumed_with_what_has_no_end() {
    let mut place = Place::new();
    let journal = place.open();
    assert_eq!(indexes(&journal.admit(some(0..3), true)), [0, 1, 2]);
    send(&journal, 0..10, CallEnd::Written(10)).await;
    send(&journal, 10..20, CallEnd::Written(4)).await;
    send(&journal, 20..30, item_fails(25)).await;
    send(&journal, 30..32, CallEnd::TimedOut("late".into())).await;
    let in_flight = some(40..42);
    journal.dispatch(&in_flight).recorded().await.unwrap();
    journal.flush().await.unwrap();
    assert_eq!(place.listed(StateName::InFlight).len(), 2);
    assert_eq!(place.listed(StateName::Unknown).len(), 2);
    // As if it were killed: no end of the run, no end of the call.
    drop(journal);
    let unknown = [30, 31, 40, 41].map(|index| (index, Some(format!("k{index}"))));
    let until = Instant::now() + Duration::from_secs(20);
    while place.listed(StateName::Unknown) != unknown {
        assert!(Instant::now() < until, "the lock is not freed");
    }
    assert_eq!(place.listed(StateName::Failed), [(25, Some("k25".into()))]);
    assert_eq!(
        place.listed(StateName::Skipped).len(),
        10,
        "written or skipped"
    );
    let totals = look(&place.path("journal")).unwrap().unwrap().totals();
    assert_eq!((totals.written, totals.skipped), (23, 6));

    // Held, they stay; what was never sent is taken up.
    place.unknown = OnUnknown::Hold;
    let held = place.open();
    assert_eq!(
        indexes(&held.admit(some(0..43), true)),
        (32..40).chain([42]).collect::<Vec<_>>()
    );
    assert_eq!(earlier(&held), [23, 6, 1, 4]);
    held.close(String::new()).unwrap();
    // Sent again, they leave what former runs left.
    place.unknown = OnUnknown::Resend;
    let resumed = place.open();
    let admitted = resumed.admit(some(0..41), true);
    assert_eq!(indexes(&admitted), (30..41).collect::<Vec<_>>());
    assert_eq!(earlier(&resumed), [23, 6, 1, 1]);
    send(&resumed, 30..31, CallEnd::Written(1)).await;
    // An item that goes back unsent is what it was.
    let account = send(
        &resumed,
        31..33,
        CallEnd::Failed {
            message: "x".into(),
            retryable: true,
        },
    )
    .await;
    assert_eq!(account.counts.failed, 2, "no retries are left");
    let items = some(39..41);
    let dispatched = resumed.dispatch(&items);
    let mut account = Attempt::new(2, RULES).finish();
    resumed.end(dispatched.id(), &items, &mut account);
    assert_eq!(
        (account.counts.unknown, account.counts.not_dispatched),
        (1, 1)
    );
    assert_eq!(resumed.admit(some(41..43), false).len(), 1, "only counted");
    assert_eq!(resumed.give_back(some(38..41).iter()), 1);
    assert_eq!(earlier(&resumed), [23, 6, 1, 2]);
    resumed.close(String::new()).unwrap();
    let unknown = [40, 41].map(|index| (index, Some(format!("k{index}"))));
    assert_eq!(place.listed(StateName::Unknown), unknown);
    let side_files = fs::read_dir(place.folder.path()).unwrap();
    assert_eq!(side_files.count(), 3, "SQLite's side files are gone");
}

#[tokio::test]
async fn a_loss_of_power_makes_unknown_all_that_may_have_been_sent() {
    let place = Place::new();
    let journal = place.open();
    send(&journal, 0..10, CallEnd::Written(10)).await;
    journal.flush().await.unwrap();
    drop(journal);
    // The machine was started again, and the last commits were never on the disk.
    place.sql("UPDATE journal_runs SET boot = 'before'");
    let journal = place.open();
    let far = some(500_000..500_002);
    assert_eq!(journal.admit(some(0..12), true).len(), 2);
    assert_eq!(indexes(&journal.admit(far, true)), [500_000, 500_001]);
    journal.close(String::new()).unwrap();
    assert_eq!(
        place.listed(StateName::Unknown),
        [(10, Some("k10".into())), (11, Some("k11".into()))],
        "not what is beyond the horizon"
    );
    // It stays so, however many runs follow.
    let held = Place {
        unknown: OnUnknown::Hold,
        ..place
    };
    let journal = held.open();
    assert_eq!(journal.admit(some(0..13), true).len(), 0);
    assert_eq!(earlier(&journal), [10, 0, 0, 3]);
}

#[tokio::test]
async fn the_horizon_is_on_the_disk_before_what_is_below_it_is_sent() {
    let place = Place::new();
    let journal = place.open();
    let horizon = || -> u64 {
        let connection = Connection::open(place.path("journal")).unwrap();
        let sql = "SELECT horizon FROM journal_runs";
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap() as u64
    };
    let mut moves = std::collections::BTreeSet::new();
    for batch in 0..300 {
        send(&journal, batch * 50..batch * 50 + 50, CallEnd::Written(50)).await;
        assert!(horizon() >= batch * 50 + 50, "batch {batch}");
        moves.insert(horizon());
    }
    assert!(
        moves.len() < 30,
        "{} forced commits for 300 batches",
        moves.len()
    );
}

#[tokio::test]
async fn a_change_is_refused_with_its_name_unless_it_is_accepted() {
    let mut place = Place::new();
    // Before anything was sent, nothing is bound.
    drop(place.open());
    let free = |place: &Place| {
        let until = Instant::now() + Duration::from_secs(20);
        while matches!(place.try_open(), Err(JournalError::InUse { .. })) {
            assert!(Instant::now() < until);
        }
    };
    free(&place);
    fs::write(place.path("input.csv"), "id\n2\n").unwrap();
    let journal = place.open();
    send(&journal, 0..1, CallEnd::Written(1)).await;
    journal.close(String::new()).unwrap();
    place.open().close(String::new()).unwrap();

    type Change = fn(&mut Place);
    let cases: [(&str, Change, Change); 5] = [
        (
            "the input",
            |place| fs::write(place.path("input.csv"), "id\n3\n").unwrap(),
            |place| fs::write(place.path("input.csv"), "id\n2\n").unwrap(),
        ),
        (
            "the component",
            |place| fs::write(place.path("component"), "other").unwrap(),
            |place| fs::write(place.path("component"), "wasm").unwrap(),
        ),
        (
            "the key setting (was \"id\", is none)",
            |place| place.source.key = None,
            |place| place.source.key = Some("id".into()),
        ),
        (
            "how the input is cut",
            |place| place.source.max_item_bytes = 7,
            |place| place.source.max_item_bytes = 1000,
        ),
        (
            "the label",
            |place| place.label = "b",
            |place| place.label = "a",
        ),
    ];
    for (name, change, back) in cases {
        change(&mut place);
        let refused = place.refused();
        assert!(
            refused.contains(name) && refused.contains("--accept-changes"),
            "{refused}"
        );
        assert_eq!(refused.lines().count(), 1);
        back(&mut place);
        // The same content is the same, whenever it was written.
        place.open().close(String::new()).unwrap();
    }
    place.label = "b";
    place.accept_changes = true;
    let journal = place.open();
    assert_eq!(indexes(&journal.admit(some(0..2), true)), [1]);
    journal.close(String::new()).unwrap();
    place.accept_changes = false;
    place.open();
}

#[tokio::test]
async fn failed_items_are_sent_again_by_a_run_over_them_alone() {
    let mut place = Place::new();
    let journal = place.open();
    for index in [3, 5] {
        send(&journal, index..index + 1, item_fails(index)).await;
    }
    send(&journal, 0..2, CallEnd::Written(2)).await;
    journal.close(String::new()).unwrap();
    let main = place.source.clone();
    let again = SourceConfig {
        input: Input::Path(place.path("failed.jsonl")),
        format: Format::Failed,
        ..main.clone()
    };
    fs::write(place.path("failed.jsonl"), "rows").unwrap();
    let read = || [some(0..1), some(3..4), some(5..6)].concat();
    place.source = again;
    let journal = place.open();
    assert_eq!(indexes(&journal.admit(read(), true)), [3, 5]);
    assert_eq!(earlier(&journal), [2, 0, 0, 0]);
    send(&journal, 3..4, item_fails(3)).await;
    journal.close(String::new()).unwrap();
    // Resumed, what failed in this round stays.
    let journal = place.open();
    assert_eq!(indexes(&journal.admit(read(), true)), [5]);
    assert!(journal.has_failed_again(3) && !journal.has_failed_again(5) && journal.has_failed(5));
    journal.close(String::new()).unwrap();
    // Another list is another round.
    fs::write(place.path("failed.jsonl"), "other").unwrap();
    let journal = place.open();
    assert_eq!(indexes(&journal.admit(read(), true)), [3, 5]);
    journal.close(String::new()).unwrap();
    // And the job itself goes on as ever.
    place.source = main;
    let journal = place.open();
    assert_eq!(indexes(&journal.admit(some(0..7), true)), [2, 4, 6]);
    journal.close(String::new()).unwrap();
}

#[tokio::test]
async fn a_journal_that_cannot_be_trusted_is_refused() {
    let place = Place::new();
    let journal = place.open();
    send(&journal, 0..5, CallEnd::Written(5)).await;
    assert!(place.refused().contains("another run uses this journal"));
    journal.close(String::new()).unwrap();
    let whole = fs::read(place.path("journal")).unwrap();
    for (damage, word) in [
        ("UPDATE journal_ranges SET last = -1", "damaged"),
        ("UPDATE journal_ranges SET state = 9", "damaged"),
        ("INSERT INTO journal_ranges VALUES (3, 9, 0, 7)", "damaged"),
        (
            "INSERT INTO journal_calls VALUES (1, '5-2', NULL)",
            "damaged",
        ),
        (
            "INSERT INTO journal_calls VALUES (1, '1-2', '[\"a\"]')",
            "damaged",
        ),
        (
            "UPDATE journal_meta SET value = '{' WHERE name = 'subject'",
            "damaged",
        ),
        (
            "UPDATE journal_meta SET value = '9' WHERE name = 'version'",
            "another version",
        ),
        (
            "DROP TABLE journal_ranges; CREATE TABLE journal_ranges (a)",
            "another program",
        ),
    ] {
        place.sql(damage);
        let refused = place.refused();
        assert!(refused.contains(word), "{damage}: {refused}");
        fs::write(place.path("journal"), &whole).unwrap();
    }
    fs::write(place.path("journal"), "no database ".repeat(100)).unwrap();
    assert!(place.refused().contains("not an SQLite database"));
    fs::write(place.path("journal"), &whole[..whole.len() / 2]).unwrap();
    assert!(place.refused().contains("damaged"), "{}", place.refused());
    fs::remove_file(place.path("journal")).unwrap();
    fs::create_dir(place.path("journal")).unwrap();
    assert!(place.refused().contains("it is a folder"));
    // Looking creates nothing.
    assert!(look(&place.path("none")).unwrap().is_none());
    assert!(!place.path("none").exists());
}

#[tokio::test]
async fn what_cannot_be_recorded_may_not_be_sent_and_ends_are_kept() {
    let place = Place::new();
    let journal = place.open();
    let items = some(5..7);
    let mut dispatched = journal.dispatch(&items);
    dispatched.recorded().await.unwrap();
    let holder = Connection::open(place.path("journal")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failed = journal.dispatch(&some(7..9)).recorded().await.unwrap_err();
    assert!(
        failed.to_string().contains("locked by another process"),
        "{failed}"
    );
    let mut account = account(&items, CallEnd::Written(2));
    journal.end(dispatched.id(), &items, &mut account);
    holder.execute_batch("ROLLBACK").unwrap();
    drop(holder);
    journal.flush().await.unwrap();
    assert!(
        journal.dispatch(&some(7..9)).recorded().await.is_err(),
        "it stays failed"
    );
    journal.close(String::new()).unwrap();
    assert_eq!(place.listed(StateName::Written).len(), 2);
    assert_eq!(place.listed(StateName::Unknown).len(), 0);

    for damage in [
        (|path| fs::remove_file(path).unwrap()) as fn(&Path),
        |path| fs::write(path, "").unwrap(),
    ] {
        let place = Place::new();
        let journal = place.open();
        send(&journal, 0..1, CallEnd::Written(1)).await;
        damage(&place.path("journal"));
        let failed = journal.dispatch(&some(7..9)).recorded().await.unwrap_err();
        assert!(
            failed
                .to_string()
                .contains("deleted, replaced or truncated"),
            "{failed}"
        );
        assert!(journal.flush().await.is_err() && journal.close(String::new()).is_err());
    }
}

#[tokio::test]
async fn ten_million_items_need_little_space() {
    let place = Place::new();
    let journal = place.open();
    // Each 1,000th item fails, in calls of 1,000, and workers overtake each other.
    for call in 0..10_000u64 {
        let first = (call ^ 7) * 1000;
        send(&journal, first..first + 1000, item_fails(first + 500)).await;
    }
    journal.close(String::new()).unwrap();
    let size = fs::metadata(place.path("journal")).unwrap().len();
    assert!(size < 64 << 20, "{size} bytes");
    let totals = look(&place.path("journal")).unwrap().unwrap().totals();
    assert_eq!((totals.written, totals.failed), (9_990_000, 10_000));
}
