//! What a journal knows, and which of it is not in the database yet.
//!
//! Invariant: `ranges` is the whole truth about ends; writing all that is pending brings the
//! database to it, whatever failed before.

use crate::item::{Item, Key};
use batchgate_policy::ranges::{Ranges, Run, State};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

/// What is told to the journal, in the order of its happening.
#[derive(Debug)]
pub(super) enum Entry {
    /// A run begins.
    Begin(Begun),
    /// A batch is about to be sent.
    Dispatch(u64, Call),
    /// An attempt came to its end.
    End(u64, Vec<Ending>),
    /// Items are found to be unknown without having been sent by this run.
    Unknown(Vec<Ending>),
    /// The run ended, at a time and with a summary.
    Ended(f64, String),
}

/// A run that begins.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub run_id: String,
    /// Seconds since 1970.
    pub started: f64,
    /// Names this start of the machine.
    pub boot: String,
    /// What the journal is about from now on.
    pub meta: Vec<(&'static str, String)>,
    /// What failed is to be sent again.
    pub new_round: bool,
}

/// The items of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    runs: Vec<Range<u64>>,
    /// Empty where the indexes are the keys.
    keys: Vec<Box<str>>,
}

/// Neighbours that came to the same end.
#[derive(Debug)]
pub(super) struct Ending {
    pub items: Range<u64>,
    pub state: State,
    /// An entry an item, for those that failed or are unknown.
    pub details: Vec<Detail>,
}

/// What is known of an item that failed or is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Detail {
    /// `None` where the index is the key.
    pub key: Option<Box<str>>,
    pub reason: Box<str>,
    pub outcome: Cow<'static, str>,
    /// Calls that contained the item, as far as they are known.
    pub attempts: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub ranges: Ranges,
    pub begun: Option<Begun>,
    pub meta: BTreeMap<&'static str, String>,
    /// Calls to add and to remove.
    pub calls: BTreeMap<u64, Option<Call>>,
    /// Indexes at which `ranges` changed.
    pub dirty: BTreeSet<u64>,
    /// Rows to add and to remove.
    pub details: BTreeMap<u64, Option<Detail>>,
    pub ended: Option<(f64, String)>,
    /// The run's new horizon, if it has to move.
    pub horizon: Option<u64>,
}

impl Pending {
    /// Takes an entry.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Begin(mut begun) => {
                self.meta.extend(begun.meta.drain(..));
                if begun.new_round {
                    let dirty = &mut self.dirty;
                    self.ranges
                        .replace(State::Failed, State::FailedBefore, |first| {
                            dirty.insert(first);
                        });
                }
                self.begun = Some(begun);
            }
            Entry::Dispatch(id, call) => {
                self.calls.insert(id, Some(call));
            }
            Entry::End(id, endings) => {
                self.calls.insert(id, None);
                endings.into_iter().for_each(|ending| self.end(ending));
            }
            Entry::Unknown(endings) => endings.into_iter().for_each(|ending| self.end(ending)),
            Entry::Ended(at, summary) => self.ended = Some((at, summary)),
        }
    }

    /// Takes the end of some neighbours.
    pub fn end(&mut self, ending: Ending) {
        let Ending {
            items,
            state,
            details,
        } = ending;
        for run in self.ranges.overlapping(&items) {
            let Run { first, end, state } = run;
            if matches!(state, State::Failed | State::FailedBefore | State::Unknown) {
                let had = first.max(items.start)..end.min(items.end);
                self.details.extend(had.map(|item| (item, None)));
            }
        }
        let rows = items.clone().zip(details.into_iter().map(Some));
        self.details.extend(rows);
        let dirty = &mut self.dirty;
        self.ranges.set(items, Some(state), |first| {
            dirty.insert(first);
        });
    }

    /// The calls that wait to be sent will not be.
    pub fn forget_dispatches(&mut self) {
        self.calls.retain(|_, call| call.is_none());
    }

    /// The index behind the last item of the calls that wait to be sent.
    pub fn highest(&self) -> Option<u64> {
        self.calls
            .values()
            .flatten()
            .flat_map(|call| &call.runs)
            .map(|run| run.end)
            .max()
    }

    /// Items of the calls that wait to be sent.
    pub fn dispatched(&self) -> u64 {
        self.calls.values().flatten().map(Call::len).sum()
    }

    /// All is in the database.
    pub fn saved(&mut self) {
        let ranges = std::mem::take(&mut self.ranges);
        *self = Pending {
            ranges,
            ..Pending::default()
        };
    }

    /// Whether all is in the database.
    pub fn is_saved(&self) -> bool {
        self.begun.is_none()
            && self.meta.is_empty()
            && self.calls.is_empty()
            && self.dirty.is_empty()
            && self.details.is_empty()
            && self.ended.is_none()
    }
}

impl Call {
    /// The items of a batch.
    pub fn of(items: &[Item]) -> Call {
        let named = items.iter().any(|item| item.key != Key::Index);
        let keys = match named {
            true => items.iter().map(|item| item.key().into()).collect(),
            false => Vec::new(),
        };
        Call {
            runs: runs_of(items.iter().map(|item| item.index)),
            keys,
        }
    }

    /// The items, each with its key if the keys are not the indexes.
    pub fn into_items(self) -> impl Iterator<Item = (u64, Option<Box<str>>)> {
        let mut keys = self.keys.into_iter();
        self.runs
            .into_iter()
            .flatten()
            .map(move |index| (index, keys.next()))
    }

    /// How many items.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// `0-49,60`, in the order of the batch.
    pub fn items(&self) -> String {
        let mut text = String::new();
        for run in &self.runs {
            let separator = if text.is_empty() { "" } else { "," };
            // Writing to a text cannot fail.
            let _ = match run.end - run.start {
                1 => write!(text, "{separator}{}", run.start),
                _ => write!(text, "{separator}{}-{}", run.start, run.end - 1),
            };
        }
        text
    }

    /// A JSON array.
    pub fn keys(&self) -> Option<String> {
        let array = || serde_json::to_string(&self.keys).expect("an array of texts is JSON");
        (!self.keys.is_empty()).then(array)
    }

    /// What [`Call::items`] and [`Call::keys`] gave; `None` if it cannot have been them.
    pub fn parse(items: &str, keys: Option<&str>) -> Option<Call> {
        let run = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            // What is larger is no index of ours, and no length that fits a batch.
            let fits = first <= last && last <= i64::MAX as u64 && last - first <= u32::MAX.into();
            fits.then(|| first..last + 1)
        };
        let runs: Vec<Range<u64>> = items.split(',').map(run).collect::<Option<_>>()?;
        let keys: Vec<Box<str>> = match keys {
            Some(keys) => serde_json::from_str(keys).ok()?,
            None => Vec::new(),
        };
        let call = Call { runs, keys };
        (call.keys.is_empty() || call.keys.len() as u64 == call.len()).then_some(call)
    }
}

/// Indexes as runs of neighbours, in the order given.
pub(super) fn runs_of(indexes: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some(run) if run.end == index => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}
