//! A consumer of the budget: what it brought, what it has and wants, and whose turn it is.
//!
//! Invariant: it has a claim to a slot only while it has fewer in flight than its share.

use super::Share;
use super::starts::Starts;
use std::cmp::Ordering;

#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) share: Share,
    pub(super) starts: Starts,
    pub(super) in_flight: u32,
    pub(super) ready: u32,
    pub(super) slots: u32,
    /// What it wanted when the shares were made.
    pub(super) shared_for: (u32, bool),
    pub(super) served: u64,
    /// It was refused, and wants to be told when it may start a call, also after the next of its calls
    /// has taken the place of one that ended.
    pub(super) waiting: bool,
}

impl Consumer {
    /// The most slots it can use, and whether it has nothing in flight.
    pub(super) fn want(&self) -> (u32, bool) {
        let demand = self.in_flight.saturating_add(self.ready);
        let cap = self.share.limit.map_or(demand, |limit| demand.min(limit));
        (cap, self.in_flight == 0)
    }

    /// A slot that is free might be for it. A share is never more than what is in flight and ready.
    pub(super) fn below_share(&self) -> bool {
        self.in_flight < self.slots
    }

    pub(super) fn claim(&self) -> Claim {
        let level = f64::from(self.in_flight) + 1.0;
        let rank = if self.in_flight < self.share.guarantee.min(self.slots) {
            Rank::Guaranteed
        } else if self.in_flight == 0 {
            Rank::Idle
        } else {
            Rank::Other
        };
        Claim {
            rank,
            level: match rank {
                Rank::Idle => 0.0,
                Rank::Guaranteed | Rank::Other => level / self.share.weight,
            },
            served: self.served,
        }
    }
}

/// Which of several consumers below their shares is served first, while not all can be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    rank: Rank,
    level: f64,
    served: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Guaranteed,
    Idle,
    Other,
}

impl Claim {
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.rank
            .cmp(&other.rank)
            .then(self.level.total_cmp(&other.level))
            .then(self.served.cmp(&other.served))
    }
}
