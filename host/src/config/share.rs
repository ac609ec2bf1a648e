//! `[share]`: what a job brings to a budget that it shares with others.

use super::error::Problem;
use super::filled::Filled;
use super::kind::Optional;
use super::number::{COUNT, RATIO, REPEATS};
use super::table::table;

table! {
    /// What a job brings to a budget that it shares with other jobs.
    Share = "share";
    /// Its weight beside the others: a job of weight 3 gets three times the slots of one of 1.
    weight: f64 = 1.0, RATIO;
    /// Slots it gets whatever the others want.
    guarantee: u32 = 0, REPEATS;
    /// Most slots it gets, however many are free.
    limit: Option<u32> = None, Optional(COUNT);
    /// Most calls it starts in a minute, beside the budget's own cap.
    max_tasks_per_minute: Option<u32> = None, Optional(COUNT);
}

impl Share {
    pub(super) fn check(&self, filled: &Filled, problems: &mut Vec<Problem>) {
        if let Some(limit) = self.limit.filter(|limit| self.guarantee > *limit) {
            let guarantee = self.guarantee;
            let message = format!("{guarantee} is above limit = {limit}; lower it or raise limit");
            problems.push(filled.problem("share", &["guarantee", "limit"], message));
        }
    }
}
