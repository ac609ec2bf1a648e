//! Traces: JSON lines of observations and overrides, and the state after each.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use batchgate_policy::controller::{Change, Controller, Observation, Override};
use batchgate_policy::setting::Setting;
use serde::{Deserialize, Serialize};

/// One line of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An attempt ended.
    Observation(Observation),
    /// Rows were written to the control store.
    Overrides(Vec<Override>),
}

/// Where the controller stands after one line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// What it changed, in words.
    pub changes: Vec<String>,
    /// Workers and batch size after each of these; no part of a trace.
    #[serde(skip)]
    pub levels_after: Vec<(u32, u32)>,
    /// The epoch now.
    pub epoch: u64,
    /// Workers now.
    pub workers: u32,
    /// Batch size now.
    pub batch_size: u32,
}

/// As far as a trace tells.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let told = |state: &Self| (state.epoch, state.workers, state.batch_size);
        self.changes == other.changes && told(self) == told(other)
    }
}

impl Eq for State {}

/// A trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input failed.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// Counted from 1.
        line: u64,
        /// What went wrong.
        source: io::Error,
    },
    /// The line is no event.
    #[error("line {line}: {reason}; a line is {EXPECTED}")]
    NoEvent {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

const EXPECTED: &str = r#"{"epoch", "workers", "batch_size", "n_items", "elapsed", "ok", "size_fault"} (and optionally "in_flight") or {"overrides": {"KEY": "VALUE"}}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObservationLine {
    epoch: u64,
    workers: u32,
    batch_size: u32,
    n_items: u32,
    elapsed: f64,
    ok: bool,
    size_fault: bool,
    in_flight: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverridesLine {
    overrides: BTreeMap<String, String>,
}

/// Lets a controller take in one event.
pub fn step(controller: &mut dyn Controller, event: &Event) -> State {
    let changes = match event {
        Event::Observation(observation) => controller.observe(observation),
        Event::Overrides(rows) => controller.apply(rows),
    };
    state(controller, &changes)
}

pub(super) fn state(controller: &dyn Controller, changes: &[Change]) -> State {
    let setting = controller.setting();
    State {
        changes: changes.iter().map(ToString::to_string).collect(),
        levels_after: Change::levels_after(changes, (setting.workers, setting.batch_size)),
        epoch: setting.epoch,
        workers: setting.workers,
        batch_size: setting.batch_size,
    }
}

/// The events of a trace with their line numbers. Empty lines are passed over; the first line
/// that is no event ends it.
pub fn events(trace: impl BufRead) -> impl Iterator<Item = Result<(u64, Event), TraceError>> {
    let mut failed = false;
    (1..)
        .zip(trace.lines())
        .map_while(move |(line, text)| {
            if failed {
                return None;
            }
            let event = match text {
                Err(source) => Err(TraceError::Read { line, source }),
                Ok(text) if text.trim().is_empty() => return Some(None),
                Ok(text) => parse(&text)
                    .map(|event| (line, event))
                    .map_err(|reason| TraceError::NoEvent { line, reason }),
            };
            failed = event.is_err();
            Some(Some(event))
        })
        .flatten()
}

fn parse(line: &str) -> Result<Event, String> {
    let value: serde_json::Value = serde_json::from_str(line).map_err(|error| {
        // Its line is always the first; ours is named by the caller.
        let words = error.to_string().replace("at line 1 column", "at column");
        format!("is no JSON: {words}")
    })?;
    if !value.is_object() {
        return Err("is no object".to_owned());
    }
    if value.get("overrides").is_some() {
        let line: OverridesLine =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        let rows = line.overrides.into_iter();
        return Ok(Event::Overrides(
            rows.map(|(key, value)| Override { key, value }).collect(),
        ));
    }
    let line: ObservationLine = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if line.workers == 0 || line.batch_size == 0 {
        return Err("workers and batch_size are at least 1".to_owned());
    }
    if line.elapsed < 0.0 {
        return Err(format!("elapsed is {}: it is at least 0", line.elapsed));
    }
    Ok(Event::Observation(Observation {
        setting: Setting {
            epoch: line.epoch,
            workers: line.workers,
            batch_size: line.batch_size,
        },
        n_items: line.n_items,
        elapsed: line.elapsed,
        ok: line.ok,
        size_fault: line.size_fault,
        in_flight: line.in_flight,
    }))
}
