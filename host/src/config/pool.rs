//! `[pool]`: how batches are sent, and what happens when they fail.

use std::path::PathBuf;

use batchgate_policy::attempt::OnTrap;

use super::kind::{FilePath, Optional, Own, Switch, Word, words};
use super::number::{COUNT, REPEATS};
use super::size::GUEST_SIZE;
use super::table::table;

table! {
    /// How batches are sent, and what happens when they fail.
    Pool = "pool";
    /// Items in a batch: with `--fixed` throughout, otherwise where the tuner starts.
    batch_size: u32 = 50, COUNT;
    /// Calls in flight: with `--fixed` throughout, otherwise where the tuner starts.
    workers: u32 = 1, COUNT;
    /// A batch is cut before its data exceeds this; a single larger item goes alone.
    max_batch_bytes: Option<u64> = None, Optional(GUEST_SIZE);
    /// So many failed attempts in a row stop the run.
    max_consecutive_failures: u32 = 8, COUNT;
    /// So many failed items stop the run: a count, or a share of the items such as `"1%"`.
    max_failed_items: Option<FailedItems> = None, Optional(FAILED_ITEMS);
    /// Splits a failed batch in halves and sends them again, down to the bad items.
    bisect_on_failure: bool = false, Switch;
    /// A part of at most so many items is not split further.
    bisect_min_size: u32 = 1, COUNT;
    /// How often a batch with a retryable failure is sent again, after a growing wait.
    max_batch_retries: u32 = 2, REPEATS;
    /// How often an item is sent in all when a partial answer calls it retryable.
    max_item_attempts: u32 = 3, COUNT;
    /// When a component traps or exceeds a limit: `abort` stops the run in order, `fail`
    /// takes it as a failed batch.
    on_trap: OnTrap = OnTrap::Abort, Word::<OnTrap>::of();
    /// Where failed attempts are appended, as CSV with the columns `batch,error,timestamp`.
    failures_csv: Option<PathBuf> = None, Optional(FilePath), one_job;
    /// Where failed items are written, a JSON line an item, ready to be run again with
    /// `format = "failed"`.
    failed_items: Option<PathBuf> = None, Optional(FilePath), one_job;
    /// What stands for a batch in `failures_csv`; none: the component's own words if it
    /// exports `describer`, else the keys.
    describe: Option<Describe> = None, Optional(Word::<Describe>::of());
}

words! { OnTrap { Abort = "abort", Fail = "fail", } }

/// What stands for a batch in the failures file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Describe {
    /// The items' keys.
    Key,
    /// The items' positions.
    Index,
    /// The items' data.
    Data,
    /// What the component's `describer` says.
    Component,
}

words! { Describe { Key = "key", Index = "index", Data = "data", Component = "component", } }

/// How many failed items a run bears.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FailedItems {
    /// Items, at least 1.
    Count(u64),
    /// A fraction of the items, above 0 and at most 1.
    Share(f64),
}

const FAILED_ITEMS: Own<FailedItems> = Own {
    expects: "a whole number of at least 1, or a share above 0 % and up to 100 % such as \"1%\"",
    placeholder: "N|P%",
    parse: |raw| {
        if let Some(count) = raw.integer() {
            return u64::try_from(count)
                .ok()
                .filter(|n| *n >= 1)
                .map(FailedItems::Count);
        }
        let text = raw.text()?;
        if let Ok(count) = text.parse::<u64>() {
            return Some(count).filter(|n| *n >= 1).map(FailedItems::Count);
        }
        let percent: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
        (percent > 0.0 && percent <= 100.0).then_some(FailedItems::Share(percent / 100.0))
    },
    show: |limit| match limit {
        FailedItems::Count(count) => count.to_string(),
        FailedItems::Share(share) => format!("\"{}%\"", share * 100.0),
    },
};
