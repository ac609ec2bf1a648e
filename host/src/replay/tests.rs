use batchgate_policy::controller::{Config, by_name};
use batchgate_policy::outcome::UsageOutcome;

use super::*;
use crate::store::LoggedCall;

fn config() -> Config {
    Config {
        workers: 3,
        max_workers: Some(8),
        batch_size: 10,
        ..Config::default()
    }
}

/// The states after each line, or the error that ended the trace.
fn states(trace: &str) -> Result<Vec<State>, TraceError> {
    let mut controller = by_name("history", &config()).expect("a controller");
    events(trace.as_bytes())
        .map(|event| event.map(|(_, event)| step(&mut *controller, &event)))
        .collect()
}

const SAMPLE: &str = r#"{"epoch":0,"workers":3,"batch_size":10,"n_items":10,"elapsed":1.5,"ok":true,"size_fault":false}"#;

#[test]
fn each_line_gives_the_state_after_it() {
    let lines = [
        SAMPLE,
        SAMPLE,
        "",
        SAMPLE,
        SAMPLE,
        SAMPLE,
        r#"{"overrides": {"max_workers": "2", "force_batch_size": "4", "pause": "true"}}"#,
        r#"{"overrides": {"max_workers": "__cleared__"}}"#,
        r#"{"epoch":2,"workers":2,"batch_size":10,"n_items":10,"elapsed":1,"ok":false,"size_fault":true}"#,
    ];
    let states = states(&lines.join("\n")).expect("a trace");
    assert_eq!(states.len(), 8, "an empty line is none");
    let shown: Vec<String> = states[3..]
        .iter()
        .map(|state| serde_json::to_string(state).expect("JSON"))
        .collect();
    assert_eq!(
        shown,
        [
            r#"{"changes":[],"epoch":0,"workers":3,"batch_size":10}"#,
            r#"{"changes":["probe workers 3->4"],"epoch":1,"workers":4,"batch_size":10}"#,
            r#"{"changes":["max_workers 8->2","clamp workers 4->2","force batch_size 10->4"],"epoch":3,"workers":2,"batch_size":4}"#,
            r#"{"changes":["max_workers 2->8"],"epoch":3,"workers":2,"batch_size":4}"#,
            r#"{"changes":["decrease batch_size 4->2 (batch failed)"],"epoch":4,"workers":2,"batch_size":2}"#,
        ]
        .map(str::to_owned)
    );
}

#[test]
fn a_line_may_say_how_many_were_in_flight() {
    let held_back = SAMPLE.replace('}', r#","in_flight":2}"#);
    let free = SAMPLE.replace('}', r#","in_flight":null}"#);
    let last = |line: &str| {
        let states = states(&[line; 5].join("\n")).expect("a trace");
        states.last().map(|state| state.workers)
    };
    assert_eq!((last(&held_back), last(&free)), (Some(3), Some(4)));
}

#[test]
fn what_is_no_event_is_named_with_its_line_and_ends_the_trace() {
    let cases = [
        ("nonsense", "line 2: is no JSON: expected ident at column 2"),
        ("[1]", "line 2: is no object"),
        ("[0,3,10,10,1.5,true,false]", "line 2: is no object"),
        (
            &SAMPLE.replace("1.5", "-1.5"),
            "line 2: elapsed is -1.5: it is at least 0",
        ),
        (
            &SAMPLE.replace("\"workers\":3", "\"workers\":0"),
            "line 2: workers and batch_size are at least 1",
        ),
        ("{}", "line 2: missing field `epoch`"),
        (
            r#"{"overrides": 3}"#,
            "line 2: invalid type: integer `3`, expected a map",
        ),
        (r#"{"overrides": {"max_workers": 3}}"#, "expected a string"),
        (r#"{"overrides": {}, "epoch": 1}"#, "unknown field `epoch`"),
        (&SAMPLE.replace("1.5", "1e999"), "number out of range"),
        (&SAMPLE.replace("1.5", "\"1\""), "expected f64"),
        (
            &SAMPLE.replace("\"n_items\":10", "\"n_items\":-1"),
            "expected u32",
        ),
        (&SAMPLE.replace("\"ok\":true,", ""), "missing field `ok`"),
        (
            &SAMPLE.replace('}', ",\"batch\":1}"),
            "unknown field `batch`",
        ),
    ];
    for (line, words) in cases {
        let trace = [SAMPLE, line, SAMPLE].join("\n");
        let mut all = events(trace.as_bytes());
        assert!(all.next().is_some_and(|first| first.is_ok()));
        let error = all
            .next()
            .expect("a second line")
            .expect_err(line)
            .to_string();
        assert!(error.contains(words), "{line}: {error}");
        assert!(
            error.starts_with("line 2: ") && error.contains(r#"{"epoch", "#),
            "{error}"
        );
        assert!(all.next().is_none(), "nothing after an error");
    }
    let error = events(&b"\xff\n"[..])
        .next()
        .expect("a line")
        .expect_err("no text");
    assert!(
        error.to_string().starts_with("line 1: cannot be read"),
        "{error}"
    );
}

fn call(workers: u32, batch_size: u32, elapsed_seconds: f64) -> LoggedCall {
    LoggedCall {
        id: 1,
        workers,
        batch_size,
        n_items: batch_size,
        elapsed_seconds,
        outcome: UsageOutcome::Ok,
    }
}

/// Replays calls, and says what changed after which of them.
fn replayed(config: &Config, calls: &[LoggedCall]) -> (Vec<(usize, String)>, Tally) {
    let mut replay = Replay::new(by_name("history", config).expect("a controller"));
    let mut changes = Vec::new();
    for (number, call) in (1..).zip(calls) {
        let state = replay.take(call);
        changes.extend(state.changes.into_iter().map(|change| (number, change)));
    }
    (changes, replay.tally())
}

fn said(changes: &[(usize, String)]) -> Vec<(usize, &str)> {
    changes
        .iter()
        .map(|(number, change)| (*number, change.as_str()))
        .collect()
}

#[test]
fn a_log_that_goes_where_the_controller_would_is_followed_call_by_call() {
    // 5 calls at 3 workers; 3 more that were still in flight; 5 at 4 workers that do not pay.
    let calls = [vec![call(3, 10, 1.0); 8], vec![call(4, 10, 2.0); 5]].concat();
    let (changes, tally) = replayed(&config(), &calls);
    assert_eq!(
        said(&changes),
        [
            (5, "probe workers 3->4"),
            (13, "revert workers 4->3 (throughput 0.67x best)"),
        ]
    );
    let expected = Tally {
        calls: 13,
        asked_for: 10,
        out_of_bounds: 0,
        followed: 0,
    };
    assert_eq!(tally, expected);
}

#[test]
fn where_a_log_goes_on_elsewhere_the_controller_is_taken_there() {
    // A job with fixed settings: after the probe, more calls at 3 than can have been in flight.
    let (changes, tally) = replayed(&config(), &vec![call(3, 10, 1.0); 15]);
    assert_eq!(
        said(&changes),
        [
            (5, "probe workers 3->4"),
            (10, "force workers 4->3"),
            (14, "probe workers 3->4"),
        ]
    );
    let expected = Tally {
        calls: 15,
        asked_for: 10,
        out_of_bounds: 0,
        followed: 1,
    };
    assert_eq!(tally, expected);
}

#[test]
fn calls_out_of_bounds_are_counted_and_passed_over() {
    let (changes, tally) = replayed(&config(), &vec![call(9, 10, 1.0); 50]);
    assert!(changes.is_empty(), "{changes:?}");
    let expected = Tally {
        calls: 50,
        asked_for: 0,
        out_of_bounds: 50,
        followed: 0,
    };
    assert_eq!(tally, expected);
}

#[test]
fn a_failed_call_of_a_whole_batch_is_evidence_about_its_size() {
    let failed = |n_items, outcome| LoggedCall {
        n_items,
        outcome,
        ..call(3, 10, 1.0)
    };
    for (n_items, outcome, expected) in [
        (
            10,
            UsageOutcome::Fail,
            vec![(1, "decrease batch_size 10->5 (batch failed)")],
        ),
        (5, UsageOutcome::Fail, vec![]),
        (10, UsageOutcome::Breach, vec![]),
    ] {
        let (changes, _) = replayed(&config(), &[failed(n_items, outcome)]);
        assert_eq!(said(&changes), expected);
    }
}

#[test]
fn without_a_configuration_the_log_says_where_to_start() {
    let start = Replay::config(&call(1, 7, 1.0));
    let (changes, _) = replayed(&start, &[call(1, 7, 1.0); 5]);
    assert_eq!(
        said(&changes),
        [(5, "probe workers 1->2")],
        "one worker is no declaration here"
    );
}
