//! The ends of a job's items as runs of neighbours, so that ten million items that were written
//! take one entry.
//!
//! Invariant: no two runs overlap, and no two neighbours could be one. An item in no run has no end: it was
//! not dispatched.

use std::collections::BTreeMap;
use std::ops::Range;

/// What became of the items of a run of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All were written.
    Written,
    /// All were skipped.
    Skipped,
    /// So many were written, the others skipped; which is not known.
    Mixed {
        /// At least one, and not all.
        written: u64,
    },
    /// Failed for good.
    Failed,
    /// Failed, and to be sent again if a run's input names them.
    FailedBefore,
    /// Sent, with no answer.
    Unknown,
}

impl State {
    /// The state of `items` items of which a call wrote `written`.
    pub fn done(written: u64, items: u64) -> State {
        match written {
            0 if items > 0 => State::Skipped,
            written if written >= items => State::Written,
            written => State::Mixed { written },
        }
    }

    /// Two neighbours as one, if they can be.
    fn join(self, next: State) -> Option<State> {
        match (self, next) {
            (State::Mixed { written: a }, State::Mixed { written: b }) => {
                Some(State::Mixed { written: a + b })
            }
            (a, b) => (a == b).then_some(a),
        }
    }
}

/// A run of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of its first item.
    pub first: u64,
    /// The index behind its last item.
    pub end: u64,
    /// What became of them.
    pub state: State,
}

/// How many items came to each end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Written.
    pub written: u64,
    /// Skipped.
    pub skipped: u64,
    /// Failed for good.
    pub failed: u64,
    /// Sent, with no answer.
    pub unknown: u64,
}

/// All items that have an end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// By the first index: the index behind the last one, and the state.
    runs: BTreeMap<u64, (u64, State)>,
}

impl Ranges {
    /// The state of an item, if it has an end.
    pub fn get(&self, index: u64) -> Option<State> {
        let (_, &(end, state)) = self.runs.range(..=index).next_back()?;
        (index < end).then_some(state)
    }

    /// All runs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        let run = |(&first, &(end, state))| Run { first, end, state };
        self.runs.iter().map(run)
    }

    /// The run that starts at an index.
    pub fn starting_at(&self, first: u64) -> Option<Run> {
        let &(end, state) = self.runs.get(&first)?;
        Some(Run { first, end, state })
    }

    /// How many items came to each end.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for run in self.iter() {
            totals.add(run.state, run.end - run.first);
        }
        totals
    }

    /// Adds a run behind all others, as [`Ranges::iter`] gave it; false if it cannot have.
    pub fn push(&mut self, run: Run) -> bool {
        let length = run.end.saturating_sub(run.first);
        let whole = match run.state {
            State::Mixed { written } => (1..length).contains(&written),
            _ => length > 0,
        };
        let apart = match self.runs.last_key_value() {
            Some((_, &(end, state))) => {
                run.first > end || (run.first == end && state.join(run.state).is_none())
            }
            None => true,
        };
        let fits = whole && apart;
        if fits {
            self.runs.insert(run.first, (run.end, run.state));
        }
        fits
    }

    /// Gives items a state, whatever they had, or none. `touched` hears of every index at which a run now starts,
    /// ends to start, or changed. What is left of a mixed run that is cut has its written items at the front.
    pub fn set(&mut self, items: Range<u64>, state: Option<State>, mut touched: impl FnMut(u64)) {
        if items.is_empty() {
            return;
        }
        self.clear(&items, &mut touched);
        if let Some(state) = state {
            let Range { start, end } = items;
            let run = Run {
                first: start,
                end,
                state,
            };
            self.put(run, &mut touched);
        }
    }

    /// All items of one state get another; `touched` as for [`Ranges::set`].
    pub fn replace(&mut self, old: State, new: State, mut touched: impl FnMut(u64)) {
        let found: Vec<Run> = self.iter().filter(|run| run.state == old).collect();
        for Run { first, end, .. } in found {
            self.set(first..end, Some(new), &mut touched);
        }
    }

    /// The runs that have some of these items.
    pub fn overlapping(&self, items: &Range<u64>) -> impl Iterator<Item = Run> + use<'_> {
        let before = self.runs.range(..items.start).next_back();
        let from = match before {
            Some((&first, &(end, _))) if end > items.start => first,
            _ => items.start,
        };
        let run = |(&first, &(end, state))| Run { first, end, state };
        self.runs.range(from..items.end.max(from)).map(run)
    }

    fn clear(&mut self, items: &Range<u64>, touched: &mut impl FnMut(u64)) {
        let hit: Vec<Run> = self.overlapping(items).collect();
        for Run { first, end, state } in hit {
            self.runs.remove(&first);
            touched(first);
            let mut written = match state {
                State::Mixed { written } => written,
                _ => 0,
            };
            // What sticks out on either side stays.
            for part in [first..items.start, items.end..end] {
                if part.is_empty() {
                    continue;
                }
                let length = part.end - part.start;
                let left = match state {
                    State::Mixed { .. } => {
                        let some = written.min(length);
                        written -= some;
                        State::done(some, length)
                    }
                    state => state,
                };
                self.runs.insert(part.start, (part.end, left));
                touched(part.start);
            }
        }
    }

    /// Adds a run where there is none, and joins it with its neighbours.
    fn put(&mut self, run: Run, touched: &mut impl FnMut(u64)) {
        let Run {
            mut first,
            mut end,
            mut state,
        } = run;
        if let Some((&before, &(its_end, its_state))) = self.runs.range(..first).next_back()
            && its_end == first
            && let Some(joined) = its_state.join(state)
        {
            (first, state) = (before, joined);
        }
        if let Some(&(its_end, its_state)) = self.runs.get(&end)
            && let Some(joined) = state.join(its_state)
        {
            self.runs.remove(&end);
            touched(end);
            (end, state) = (its_end, joined);
        }
        self.runs.insert(first, (end, state));
        touched(first);
    }
}

impl Totals {
    /// Counts `items` items of a state.
    pub fn add(&mut self, state: State, items: u64) {
        match state {
            State::Written => self.written += items,
            State::Skipped => self.skipped += items,
            State::Mixed { written } => {
                self.written += written;
                self.skipped += items - written;
            }
            State::Failed | State::FailedBefore => self.failed += items,
            State::Unknown => self.unknown += items,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// All but mixed runs, whose parts are only known in sum.
    const PLAIN: [Option<State>; 6] = [
        None,
        Some(State::Written),
        Some(State::Skipped),
        Some(State::Failed),
        Some(State::FailedBefore),
        Some(State::Unknown),
    ];

    proptest! {
        #[test]
        fn it_is_an_array_of_states(edits in proptest::collection::vec((0u64..60, 0u64..20, 0usize..6), 1..60)) {
            let mut ranges = Ranges::default();
            let mut stored: BTreeMap<u64, Run> = BTreeMap::new();
            let mut array = [None; 80];
            for (first, length, state) in edits {
                let (state, items) = (PLAIN[state], first..first + length);
                array[first as usize..items.end as usize].fill(state);
                let mut dirty = BTreeSet::new();
                ranges.set(items, state, |first| {
                    dirty.insert(first);
                });
                // What a database would do that is told of touched indexes alone.
                for first in dirty {
                    match ranges.starting_at(first) {
                        Some(run) => stored.insert(first, run),
                        None => stored.remove(&first),
                    };
                }
                prop_assert!(ranges.iter().eq(stored.values().copied()));
            }
            for (index, state) in array.iter().enumerate() {
                prop_assert_eq!(ranges.get(index as u64), *state);
            }
            let runs: Vec<Run> = ranges.iter().collect();
            for pair in runs.windows(2) {
                let apart = pair[0].end < pair[1].first;
                let unlike = pair[0].end == pair[1].first && pair[0].state != pair[1].state;
                prop_assert!(apart || unlike, "{:?}", pair);
            }
            let failed = array.iter().filter(|s| matches!(s, Some(State::Failed | State::FailedBefore)));
            prop_assert_eq!(ranges.totals().failed, failed.count() as u64);
            let mut again = Ranges::default();
            prop_assert!(runs.iter().all(|run| again.push(*run)));
            prop_assert_eq!(again, ranges);
        }

        #[test]
        fn written_and_skipped_add_up_in_any_order(order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(),
                                                   written in proptest::collection::vec(0u64..=5, 40)) {
            let mut ranges = Ranges::default();
            for call in order {
                let items = call * 5..call * 5 + 5;
                ranges.set(items, Some(State::done(written[call as usize], 5)), |_| ());
            }
            let totals = ranges.totals();
            prop_assert_eq!(totals.written, written.iter().sum::<u64>());
            prop_assert_eq!(totals.written + totals.skipped, 200);
        }
    }

    #[test]
    fn many_written_items_are_one_run() {
        let mut ranges = Ranges::default();
        // 16 workers: neighbours end in another order than they started.
        for group in 0..1000u64 {
            for call in (0..16).rev() {
                let first = (group * 16 + call) * 50;
                ranges.set(first..first + 50, Some(State::Written), |_| ());
            }
        }
        assert_eq!(ranges.iter().count(), 1);
        assert_eq!(ranges.totals().written, 800_000);
    }

    #[test]
    fn a_cut_mixed_run_keeps_its_sums_and_what_does_not_fit_is_refused() {
        let mut ranges = Ranges::default();
        ranges.set(0..10, Some(State::done(6, 10)), |_| ());
        ranges.set(4..5, Some(State::Unknown), |_| ());
        let Totals {
            written, skipped, ..
        } = ranges.totals();
        assert_eq!((written, skipped, ranges.totals().unknown), (6, 3, 1));
        let run = |first, end, state| Run { first, end, state };
        let mut ranges = Ranges::default();
        assert!(ranges.push(run(5, 9, State::Written)));
        for (first, end, state) in [
            (8, 12, State::Written),
            (12, 12, State::Written),
            (13, 12, State::Failed),
            (20, 25, State::Mixed { written: 5 }),
            (9, 12, State::Written),
        ] {
            assert!(!ranges.push(run(first, end, state)), "{first}..{end}");
        }
    }

    #[test]
    fn a_state_is_replaced_by_another() {
        let mut ranges = Ranges::default();
        ranges.set(0..5, Some(State::Failed), |_| ());
        ranges.set(5..9, Some(State::FailedBefore), |_| ());
        ranges.replace(State::Failed, State::FailedBefore, |_| ());
        assert_eq!(ranges.iter().count(), 1);
        assert_eq!(ranges.totals().failed, 9);
    }
}
