use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const RULES: Rules = Rules {
    bisect: false,
    bisect_min_size: 1,
    max_batch_retries: 2,
    max_item_attempts: 3,
    on_breach: OnBreach::Resend,
    max_breach_resends: 8,
    on_trap: OnTrap::Abort,
};

const BISECT: Rules = Rules {
    bisect: true,
    ..RULES
};

fn failed(retryable: bool) -> CallEnd {
    CallEnd::Failed {
        message: "no".into(),
        retryable,
    }
}

fn limited() -> CallEnd {
    CallEnd::RateLimited {
        message: "429".into(),
        retry_after: None,
    }
}

fn plain(end: CallEnd) -> CallResult {
    CallResult {
        end,
        breached: false,
        backing_off: false,
        unanswered: false,
    }
}

fn partial(list: &[(u64, bool)]) -> CallEnd {
    let entry = |&(index, retryable)| ItemFailure {
        index,
        message: format!("item {index}"),
        retryable,
    };
    CallEnd::Partial(list.iter().map(entry).collect())
}

/// Items are numbered from 100, so that an index is not a position.
fn position_of(len: u32) -> impl Fn(u64) -> Option<u32> {
    move |index| {
        (100..100 + u64::from(len))
            .contains(&index)
            .then(|| (index - 100) as u32)
    }
}

/// Runs an attempt in which `answer` answers each call; returns the account, the calls' positions and
/// the outcomes.
fn run(
    len: u32,
    rules: Rules,
    mut answer: impl FnMut(&NextCall<'_>) -> CallResult,
) -> (Account, Vec<Vec<u32>>, Vec<Marked>) {
    let mut attempt = Attempt::new(len, rules);
    let (mut calls, mut marks) = (Vec::new(), Vec::new());
    while let Some(call) = attempt.next() {
        calls.push(call.positions.iter().collect());
        let result = answer(&call);
        let marked = attempt.mark(result, position_of(len), 0.0);
        let stop = marked.stop.is_some();
        marks.push(marked);
        if stop {
            break;
        }
        assert!(calls.len() < 10_000, "an attempt that does not end");
    }
    let account = attempt.finish();
    assert_eq!(account.counts.total(), u64::from(len), "adds up");
    let mut seen = vec![0; len as usize];
    let mut written = 0;
    for end in &account.ends {
        end.positions.iter().for_each(|p| seen[p as usize] += 1);
        if let Fate::Done { written: some } = end.fate {
            written += u64::from(some);
        }
    }
    assert_eq!(written, account.counts.written);
    assert!(
        seen.iter().all(|&n| n == 1),
        "each item in one end: {seen:?}"
    );
    (account, calls, marks)
}

/// One answer to the first call, success to all others.
fn first_then_ok(first: CallResult) -> impl FnMut(&NextCall<'_>) -> CallResult {
    let mut first = Some(first);
    move |call| {
        first
            .take()
            .unwrap_or_else(|| plain(CallEnd::Written(call.positions.len().into())))
    }
}

#[test]
fn ok_counts_written_skipped_and_clamps() {
    for (said, written, skipped, clamped) in [
        (4, 4, 0, false),
        (0, 0, 4, false),
        (3, 3, 1, false),
        (9, 4, 0, true),
    ] {
        let (account, _, marks) = run(4, RULES, |_| plain(CallEnd::Written(said)));
        assert_eq!(
            (account.counts.written, account.counts.skipped),
            (written, skipped)
        );
        assert!(account.succeeded && account.sample && !account.size_fault);
        assert_eq!(account.breaker, BreakerEffect::Reset);
        assert_eq!(marks[0].outcome, UsageOutcome::Ok);
        assert_eq!(marks[0].note.is_some(), clamped);
        assert!(account.errors.is_empty());
    }
}

#[test]
fn a_retryable_failure_sends_the_whole_batch_again_after_a_doubling_pause() {
    let mut pauses = Vec::new();
    let (account, calls, marks) = run(4, RULES, |call| {
        pauses.push(call.pause);
        plain(failed(true))
    });
    let second = Duration::from_secs(1);
    assert_eq!(pauses, [Duration::ZERO, second, 2 * second]);
    assert_eq!(calls, [[0, 1, 2, 3]; 3].map(Vec::from));
    assert_eq!(account.counts.failed, 4);
    assert!(account.size_fault, "then as not retryable");
    assert_eq!(account.breaker, BreakerEffect::Count);
    assert_eq!(account.errors, ["no"]);
    assert_eq!(marks[0].outcome, UsageOutcome::Fail);
}

#[test]
fn a_batch_recovered_by_a_resend_is_no_evidence_and_no_sample() {
    let (account, calls, _) = run(4, BISECT, first_then_ok(plain(failed(true))));
    assert_eq!(calls.len(), 2);
    assert!(account.succeeded && !account.sample && !account.size_fault);
    assert_eq!(account.breaker, BreakerEffect::Reset);
    assert!(account.errors.is_empty());
}

#[test]
fn jitter_lengthens_a_pause_by_at_most_a_quarter() {
    let mut attempt = Attempt::new(1, RULES);
    attempt.mark(plain(failed(true)), position_of(1), 1.0);
    let pause = attempt.next().map(|call| call.pause);
    assert_eq!(pause, Some(Duration::from_millis(1250)));
}

#[test]
fn bisection_takes_the_first_half_first() {
    let (account, calls, _) = run(5, BISECT, first_then_ok(plain(failed(false))));
    assert_eq!(calls, [vec![0, 1, 2, 3, 4], vec![0, 1], vec![2, 3, 4]]);
    assert!(account.succeeded && account.size_fault && !account.sample);
    assert_eq!(account.counts.written, 5);
    assert!(account.errors.is_empty());
}

#[test]
fn an_isolated_item_is_no_evidence_about_size() {
    let (account, ..) = run(8, BISECT, |call| match call.positions.contains(5) {
        true => plain(failed(false)),
        false => plain(CallEnd::Written(call.positions.len().into())),
    });
    assert_eq!((account.counts.written, account.counts.failed), (7, 1));
    assert!(!account.size_fault && account.succeeded);
    assert_eq!(account.errors, ["no"]);
}

#[test]
fn nothing_at_or_below_the_least_size_is_halved() {
    let rules = Rules {
        bisect_min_size: 3,
        ..BISECT
    };
    let (account, calls, _) = run(8, rules, |_| plain(failed(false)));
    let sizes: Vec<_> = calls.iter().map(Vec::len).collect();
    assert_eq!(sizes, [8, 4, 2, 2, 4, 2, 2]);
    assert_eq!(account.errors.len(), 4);
    assert!(
        !account.size_fault,
        "parts of the least size failed by themselves"
    );
}

#[test]
fn halves_do_not_get_back_the_resends_that_the_whole_used_up() {
    let (_, calls, _) = run(2, BISECT, |_| plain(failed(true)));
    let sizes: Vec<_> = calls.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 2, 2, 1, 1]);
}

#[test]
fn a_failure_in_a_cooldown_is_a_failure_but_no_evidence() {
    let result = || CallResult {
        backing_off: true,
        ..plain(failed(false))
    };
    let (account, calls, marks) = run(4, RULES, |_| result());
    assert_eq!(calls.len(), 1);
    assert!(!account.size_fault);
    assert_eq!(account.breaker, BreakerEffect::Count);
    assert_eq!(marks[0].outcome, UsageOutcome::Breach);
    let (account, ..) = run(4, BISECT, first_then_ok(result()));
    assert!(!account.size_fault && account.succeeded);
}

#[test]
fn too_large_splits_without_bisection_down_to_one_item() {
    let (account, calls, _) = run(4, RULES, |call| match call.positions.len() {
        1 => plain(CallEnd::Written(1)),
        _ => plain(CallEnd::TooLarge("413".into())),
    });
    assert_eq!(calls.len(), 7);
    assert!(account.size_fault && account.succeeded);
    assert_eq!(account.breaker, BreakerEffect::Reset);

    let rules = Rules {
        bisect_min_size: 4,
        ..BISECT
    };
    let (account, calls, _) = run(4, rules, |_| plain(CallEnd::TooLarge("413".into())));
    assert_eq!(calls.len(), 7, "the least size is for bisection alone");
    assert_eq!(account.counts.failed, 4);
    assert_eq!(account.breaker, BreakerEffect::Neither);
    assert!(account.size_fault, "certain, whatever became of the parts");

    let (account, ..) = run(1, RULES, |_| plain(CallEnd::TooLarge("413".into())));
    assert!(!account.size_fault && account.counts.failed == 1);
}

#[test]
fn a_refusal_for_our_rate_sends_the_batch_again() {
    let reported = CallResult {
        breached: true,
        ..plain(failed(false))
    };
    for refusal in [plain(limited()), reported] {
        let (account, calls, marks) = run(4, RULES, first_then_ok(refusal.clone()));
        assert_eq!(calls.len(), 2);
        assert_eq!(marks[0].outcome, UsageOutcome::Breach);
        assert!(account.succeeded && !account.sample && !account.size_fault);

        let rules = Rules {
            max_breach_resends: 3,
            ..BISECT
        };
        let (account, calls, _) = run(4, rules, |_| refusal.clone());
        assert_eq!(calls.len(), 4, "no bisection against a server that refuses");
        assert_eq!(account.counts.failed, 4);
        assert_eq!(account.breaker, BreakerEffect::Count);
        assert!(!account.size_fault);

        let rules = Rules {
            on_breach: OnBreach::Fail,
            ..BISECT
        };
        let (account, calls, _) = run(4, rules, first_then_ok(refusal));
        assert_eq!(calls.len(), 3, "the seed's way: bisected");
        assert!(account.succeeded && !account.size_fault);
    }
}

#[test]
fn partial_writes_all_others_and_sends_the_retryable_again_together() {
    let mut pauses = Vec::new();
    let (account, calls, marks) = run(6, RULES, |call| {
        pauses.push(call.pause);
        match call.number {
            1 => plain(partial(&[(104, true), (101, false), (100, true)])),
            2 => plain(partial(&[(104, true)])),
            _ => plain(partial(&[(104, true)])),
        }
    });
    assert_eq!(calls, [vec![0, 1, 2, 3, 4, 5], vec![0, 4], vec![4]]);
    assert_eq!(
        pauses[1..],
        [Duration::from_secs(1), Duration::from_secs(2)]
    );
    assert_eq!((account.counts.written, account.counts.failed), (4, 2));
    assert_eq!(account.errors, ["item 101", "item 104"]);
    assert!(account.sample && account.succeeded && !account.size_fault);
    let outcomes: Vec<_> = marks.iter().map(|m| m.outcome).collect();
    assert_eq!(
        outcomes,
        [UsageOutcome::Ok, UsageOutcome::Ok, UsageOutcome::Fail]
    );
    let failed = account
        .ends
        .iter()
        .find(|e| e.positions == Positions::Run(4..5));
    assert_eq!(failed.map(|e| e.calls), Some(3));
    let fault = Fault {
        class: Class::Partial,
        message: "item 104".into(),
    };
    assert_eq!(failed.map(|e| &e.fate), Some(&Fate::Failed(fault)));
}

#[test]
fn what_had_no_answer_stays_unknown_when_its_parts_are_refused() {
    // A call that timed out is halved; the run stops after its first half was refused.
    let mut attempt = Attempt::new(4, BISECT);
    for end in [CallEnd::TimedOut("late".into()), failed(true)] {
        assert!(attempt.next().is_some());
        attempt.mark(plain(end), |_| None, 0.0);
    }
    let account = attempt.finish();
    assert_eq!(account.counts.unknown, 4, "{:?}", account.ends);
}

#[test]
fn partial_with_nothing_written_counts_as_failed() {
    let (account, ..) = run(2, RULES, |_| plain(partial(&[(100, false), (101, false)])));
    assert!(account.sample && !account.succeeded);
    assert_eq!(account.breaker, BreakerEffect::Count);
    let (account, ..) = run(2, RULES, |_| plain(partial(&[])));
    assert_eq!(account.counts.written, 2, "an empty list: all written");
}

#[test]
fn partial_entries_that_do_not_fit_are_ignored_and_said() {
    let (account, _, marks) = run(3, RULES, |_| {
        plain(partial(&[
            (7, false),
            (102, false),
            (102, true),
            (103, true),
        ]))
    });
    assert_eq!((account.counts.written, account.counts.failed), (2, 1));
    let note = Some(Note::PartialIgnored {
        foreign: 2,
        repeated: 1,
    });
    assert_eq!(marks[0].note, note);
}

#[test]
fn fatal_stops_before_bisection_has_tried_the_rest() {
    let (account, calls, marks) = run(4, BISECT, |call| match call.number {
        1 => plain(failed(false)),
        _ => plain(CallEnd::Fatal("401".into())),
    });
    assert_eq!(calls.len(), 2);
    assert_eq!(marks[1].stop, Some(StopCause::Fatal));
    assert_eq!(
        (account.counts.failed, account.counts.not_dispatched),
        (2, 2)
    );
    assert_eq!(account.errors, ["401"]);
    let (account, ..) = run(4, RULES, |_| plain(CallEnd::Fatal("401".into())));
    assert_eq!(account.breaker, BreakerEffect::Neither);
    assert!(!account.size_fault && !account.sample);
}

#[test]
fn a_trap_leaves_the_items_unknown_and_stops_or_fails() {
    let trap = || plain(CallEnd::Trapped("unreachable".into()));
    let (account, _, marks) = run(4, BISECT, |_| trap());
    assert_eq!(marks[0].stop, Some(StopCause::Trap));
    assert_eq!(account.counts.unknown, 4);
    assert_eq!(account.breaker, BreakerEffect::Count);
    assert!(!account.size_fault);

    let rules = Rules {
        on_trap: OnTrap::Fail,
        ..BISECT
    };
    let (account, calls, marks) = run(4, rules, first_then_ok(trap()));
    assert_eq!((calls.len(), marks[0].stop), (3, None));
    assert!(account.counts.written == 4 && !account.size_fault);
}

#[test]
fn a_timeout_leaves_the_items_unknown_and_is_evidence() {
    let late = || plain(CallEnd::TimedOut("call_timeout 1 s".into()));
    let (account, ..) = run(4, RULES, |_| late());
    assert_eq!(account.counts.unknown, 4);
    assert!(account.size_fault);
    assert_eq!(account.breaker, BreakerEffect::Count);
    let (account, ..) = run(4, BISECT, first_then_ok(late()));
    assert!(account.size_fault && account.counts.written == 4);
}

#[test]
fn what_waits_to_be_sent_again_at_a_stop_was_not_dispatched() {
    for refusal in [failed(true), limited()] {
        let mut attempt = Attempt::new(3, RULES);
        attempt.mark(plain(refusal), position_of(3), 0.0);
        let account = attempt.finish();
        assert_eq!(account.counts.not_dispatched, 3);
        assert!(account.errors.is_empty() && account.breaker == BreakerEffect::Neither);
    }
    let account = Attempt::new(3, RULES).finish();
    assert!(account.uncalled && account.counts.not_dispatched == 3);
    let mut attempt = Attempt::new(3, RULES);
    attempt.mark(
        plain(CallEnd::Abandoned("stop".into())),
        position_of(3),
        0.0,
    );
    assert_eq!(attempt.finish().counts.unknown, 3);
}

#[test]
fn evidence_is_about_the_whole_batch_alone() {
    // One item that fails by itself, without bisection: the batch cannot get smaller, and that is said.
    let (account, ..) = run(1, RULES, |_| plain(failed(false)));
    assert!(account.size_fault);
    // The whole failed outside a cooldown; that a half failed inside one takes nothing back.
    let (account, ..) = run(4, BISECT, |call| match call.number {
        1 => plain(failed(false)),
        2 => CallResult {
            backing_off: true,
            ..plain(failed(false))
        },
        _ => plain(CallEnd::Written(call.positions.len().into())),
    });
    assert!(account.size_fault && account.succeeded);
    // What a partial answer left is not the whole batch.
    let (account, ..) = run(4, RULES, |call| match call.number {
        1 => plain(failed(true)),
        2 => plain(partial(&[(101, true)])),
        _ => plain(failed(false)),
    });
    assert!(!account.size_fault && account.counts.failed == 1);
}

#[test]
fn what_a_partial_answer_left_waits_for_another_call_even_in_a_bisected_half() {
    let mut attempt = Attempt::new(4, BISECT);
    attempt.mark(plain(failed(false)), position_of(4), 0.0);
    attempt.mark(plain(partial(&[(101, true)])), position_of(4), 0.0);
    let counts = attempt.finish().counts;
    assert_eq!(
        (counts.written, counts.not_dispatched, counts.failed),
        (1, 3, 0)
    );
}

#[test]
fn parts_that_are_not_tried_yet_when_the_run_stops_were_not_dispatched() {
    for whole in [failed(false), CallEnd::TooLarge("413".into())] {
        let mut attempt = Attempt::new(8, BISECT);
        attempt.mark(plain(whole.clone()), position_of(8), 0.0);
        attempt.mark(plain(CallEnd::Written(4)), position_of(8), 0.0);
        attempt.mark(plain(whole), position_of(8), 0.0);
        attempt.mark(plain(CallEnd::Written(2)), position_of(8), 0.0);
        let account = attempt.finish();
        let counts = account.counts;
        assert_eq!((counts.written, counts.not_dispatched), (6, 2));
        assert_eq!(account.errors, [""; 0]);
    }
}

#[test]
fn what_was_sent_and_not_answered_is_unknown_until_it_is_answered() {
    let lost = || CallResult {
        unanswered: true,
        ..plain(failed(true))
    };
    let after = |results: &[CallResult]| {
        let mut attempt = Attempt::new(4, BISECT);
        for result in results {
            attempt.mark(result.clone(), position_of(4), 0.0);
        }
        let counts = attempt.finish().counts;
        (counts.written, counts.unknown, counts.not_dispatched)
    };
    assert_eq!(after(&[lost()]), (0, 4, 0));
    assert_eq!(after(&[lost(), plain(limited())]), (0, 4, 0));
    assert_eq!(after(&[lost(), plain(failed(false))]), (0, 4, 0));
    assert_eq!(after(&[lost(), plain(CallEnd::Written(4))]), (4, 0, 0));
    assert_eq!(after(&[plain(failed(true))]), (0, 0, 4));
    let lost_in_part = CallResult {
        unanswered: true,
        ..plain(partial(&[(101, true)]))
    };
    assert_eq!(after(&[lost_in_part]), (3, 1, 0));
    // An answer of the guest that ends the item counts: it knows what the host does not.
    let never = || CallResult {
        unanswered: true,
        ..plain(failed(false))
    };
    let mut attempt = Attempt::new(1, BISECT);
    attempt.mark(never(), position_of(1), 0.0);
    assert_eq!(attempt.finish().counts.failed, 1);
}

#[test]
fn partial_with_nothing_written_in_a_cooldown_is_a_breach() {
    let list = || partial(&[(100, false)]);
    for (breached, backing_off, outcome) in [
        (false, false, UsageOutcome::Fail),
        (true, false, UsageOutcome::Breach),
        (false, true, UsageOutcome::Breach),
    ] {
        let result = CallResult {
            end: list(),
            breached,
            backing_off,
            unanswered: false,
        };
        let (_, _, marks) = run(1, RULES, |_| result.clone());
        assert_eq!(marks[0].outcome, outcome);
    }
}

#[test]
fn traps_are_bisected_only_if_both_say_so() {
    let trap = || plain(CallEnd::Trapped("unreachable".into()));
    let (account, calls, _) = run(4, BISECT, |_| trap());
    assert_eq!((calls.len(), account.errors.len()), (1, 1));
    let rules = Rules {
        on_trap: OnTrap::Fail,
        ..RULES
    };
    let (account, calls, _) = run(4, rules, |_| trap());
    assert_eq!((calls.len(), account.errors.len()), (1, 1));
}

#[test]
fn notes_are_made_for_what_does_not_fit_alone_and_name_it() {
    let note = |list: &[(u64, bool)]| {
        let end = partial(list);
        let (_, _, mut marks) = run(3, RULES, |_| plain(end.clone()));
        marks.remove(0).note
    };
    assert_eq!(note(&[(100, false)]), None);
    let ignored = |foreign, repeated| Some(Note::PartialIgnored { foreign, repeated });
    assert_eq!(note(&[(7, false), (8, false)]), ignored(2, 0));
    assert_eq!(note(&[(100, false), (100, false)]), ignored(0, 1));
    let text = Note::WrittenClamped { said: 9, had: 4 }.to_string();
    assert!(text.contains('9') && text.contains('4'), "{text}");
    let text = ignored(2, 1).map(|n| n.to_string()).unwrap_or_default();
    assert!(text.contains('2') && text.contains("1 repeat"), "{text}");
}

proptest! {
    #[test]
    fn bisection_isolates_exactly_the_bad_items(len in 1u32..200, bad in proptest::collection::btree_set(0u32..200, 0..6)) {
        let bad: BTreeSet<u32> = bad.into_iter().filter(|&b| b < len).collect();
        let (account, calls, _) = run(len, BISECT, |call| {
            match call.positions.iter().any(|p| bad.contains(&p)) {
                true => plain(failed(false)),
                false => plain(CallEnd::Written(call.positions.len().into())),
            }
        });
        let failed: BTreeSet<u32> = account
            .ends
            .iter()
            .filter(|end| !matches!(end.fate, Fate::Done { .. }))
            .flat_map(|end| end.positions.iter().collect::<Vec<_>>())
            .collect();
        prop_assert_eq!(&failed, &bad);
        prop_assert_eq!(account.counts.written, u64::from(len) - bad.len() as u64);
        if bad.len() == 1 {
            let log2 = f64::from(len).log2().ceil() as usize;
            prop_assert!(calls.len() <= 2 * log2 + 1, "{} calls for {len} items", calls.len());
        }
    }

    #[test]
    fn any_answers_add_up(
        len in 1u32..40,
        bisect: bool, abort: bool, resend: bool, min_size in 1u32..5,
        answers in proptest::collection::vec((0u8..9, 0u64..50, any::<bool>(), any::<bool>()), 1..400),
    ) {
        let rules = Rules {
            bisect,
            bisect_min_size: min_size,
            on_trap: if abort { OnTrap::Abort } else { OnTrap::Fail },
            on_breach: if resend { OnBreach::Resend } else { OnBreach::Fail },
            ..RULES
        };
        let mut answers = answers.into_iter().cycle();
        // `run` checks the account itself.
        let (account, calls, _) = run(len, rules, |_| {
            let (kind, n, breached, backing_off) = answers.next().expect("endless");
            let end = match kind {
                0 | 1 => CallEnd::Written(n),
                2 => failed(true),
                3 => failed(false),
                4 => CallEnd::TooLarge("413".into()),
                5 => limited(),
                6 => partial(&[(100 + n, breached), (101 + n / 2, backing_off), (103, true)]),
                7 => CallEnd::Trapped("trap".into()),
                _ => CallEnd::TimedOut("late".into()),
            };
            CallResult { end, breached, backing_off, unanswered: n % 3 == 0 }
        });
        prop_assert!(!account.uncalled && !calls.is_empty());
        prop_assert!(!(account.sample && account.size_fault));
    }
}

#[test]
fn the_words_of_the_classes_are_those_of_the_files() {
    let words = [
        (Class::Failed, "failed"),
        (Class::Partial, "partial"),
        (Class::TooLarge, "too-large"),
        (Class::RateLimited, "rate-limited"),
        (Class::Fatal, "fatal"),
        (Class::Trap, "trap"),
        (Class::Timeout, "timeout"),
        (Class::Abandoned, "abandoned"),
    ];
    for (class, word) in words {
        assert_eq!(class.as_str(), word);
    }
}
