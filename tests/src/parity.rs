//! The controller `history` against recorded runs of its reference, decision for decision.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use batchgate::config::Tuning;
use batchgate::replay::{State, events, step};
use batchgate_policy::controller;
use flate2::read::GzDecoder;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("parity")
        .join(name)
}

/// The traces in a folder, without what follows their names.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let mut traces: Vec<PathBuf> = files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    traces.sort();
    traces
}

fn unpacked(trace: &Path, kind: &str) -> BufReader<impl Read> {
    let path = trace.with_extension(format!("{kind}.jsonl.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    BufReader::new(GzDecoder::new(file))
}

fn expected(trace: &Path) -> Vec<State> {
    let lines = unpacked(trace, "states").lines();
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

/// Every state after every line of a trace.
fn replayed(trace: &Path) -> Vec<State> {
    let config = Tuning::load(trace).unwrap().controller_config();
    let mut controller = controller::by_name("history", &config).unwrap();
    events(unpacked(trace, "trace"))
        .map(|event| step(&mut *controller, &event.unwrap().1))
        .collect()
}

fn assert_same(trace: &Path, ours: &[State], expected: &[State]) {
    for (line, (our, expected)) in (1..).zip(ours.iter().zip(expected)) {
        assert_eq!(our, expected, "{}, line {line}", trace.display());
    }
    assert_eq!(ours.len(), expected.len(), "{}", trace.display());
}

#[test]
fn recorded_runs_of_the_reference_are_matched_line_by_line() {
    let traces = traces(&folder("traces"));
    assert!(traces.len() >= 30, "{} traces", traces.len());
    let mut seen = BTreeSet::new();
    for trace in traces {
        let ours = replayed(&trace);
        assert_same(&trace, &ours, &expected(&trace));
        for change in ours.iter().flat_map(|state| &state.changes) {
            let words: Vec<&str> = change.split(' ').take(2).collect();
            seen.insert(words.join(" "));
        }
    }
    // Traces in which nothing happens would prove nothing.
    for kind in [
        "probe workers",
        "probe batch_size",
        "revert workers",
        "revert batch_size",
        "decrease workers",
        "decrease batch_size",
        "step back",
        "rebaseline: latency",
        "force workers",
        "force batch_size",
        "ignored max_workers:",
    ] {
        assert!(seen.contains(kind), "no {kind:?} in any trace");
    }
}

#[test]
fn differences_from_the_reference_are_those_that_are_meant() {
    let traces = traces(&folder("differences"));
    assert!(traces.len() >= 10, "{} traces", traces.len());
    for trace in traces {
        let expected = expected(&trace);
        assert_same(&trace, &replayed(&trace), &expected);
        let reference = unpacked(&trace, "reference").lines();
        let same = reference.zip(&expected).all(|(line, state)| {
            serde_json::from_str::<State>(&line.unwrap()).ok().as_ref() == Some(state)
        });
        assert!(!same, "{}: the reference does the same", trace.display());
    }
}
