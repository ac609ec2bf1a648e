//! Counts the starts of a day against a cap, in blocks that are made durable before the first
//! start of the block leaves.
//!
//! Invariant: the starts that leave on a day are at most what its [`Ledger`]s have counted for that
//! day, which is never more than the cap. A process that dies wastes at most one block.
//!
//! A [`Quota`] is what one process holds; the [`Ledger`] is the count that outlives it (or,
//! where nothing does, stands beside it in memory).

use std::fmt;
use std::time::Duration;

/// A block is this part of the cap, at least 1.
const BLOCKS_A_DAY: u64 = 100;
/// The block where a count is kept that nothing caps.
const UNCAPPED_BLOCK: u64 = 1_000;

/// A calendar day by its number, so that days can be compared: 0 is 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DayId(pub i32);

/// The provider's day that is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// Which.
    pub id: DayId,
    /// When it ends.
    pub ends: Duration,
}

/// Whether a start may be taken from the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It may.
    Free,
    /// The day's quota is spent.
    Spent {
        /// When the day ends.
        until: Duration,
    },
    /// Nothing is leased at the moment: see [`Quota::wanted`].
    Unleased,
}

/// A lease to ask the ledger for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The day it is for.
    pub day: DayId,
    /// How many starts, at least 1.
    pub starts: u64,
}

/// What one process holds of the day's quota.
#[derive(Debug, Clone)]
pub struct Quota {
    cap: Option<u64>,
    block: u64,
    day: Option<Day>,
    /// Leased and not taken yet.
    left: u64,
    /// What the ledger has counted, as of the last lease.
    counted: u64,
    /// The ledger has no more for this day.
    exhausted: bool,
}

impl Quota {
    /// `durable`: the ledger outlives the process, so that what is leased and not used by it when it
    /// dies is lost. Otherwise one lease takes the whole day.
    pub fn new(cap: Option<u64>, durable: bool) -> Self {
        let block = match (cap, durable) {
            (None, true) => UNCAPPED_BLOCK,
            (Some(cap), true) => (cap / BLOCKS_A_DAY).max(1),
            (cap, false) => cap.unwrap_or(u64::MAX),
        };
        Self {
            cap,
            block,
            day: None,
            left: 0,
            counted: 0,
            exhausted: false,
        }
    }

    /// Says which day it is; to be said before each start. On another day the lease of the
    /// former is void.
    pub fn set_day(&mut self, day: Day) {
        if self.day.is_none_or(|known| known.id != day.id) {
            self.left = 0;
            self.counted = 0;
            self.exhausted = false;
        }
        self.day = Some(day);
    }

    /// What the ledger has counted on `day` before the first lease, for the statistics.
    pub fn resume(&mut self, day: Day, counted: u64) {
        self.set_day(day);
        self.counted = counted;
    }

    /// Whether a start may be taken now.
    pub fn hold(&self) -> Hold {
        match self.day {
            Some(_) if self.left > 0 => Hold::Free,
            Some(day) if self.exhausted => Hold::Spent { until: day.ends },
            _ => Hold::Unleased,
        }
    }

    /// Takes one start, if [`Quota::hold`] says that it is free.
    pub fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The lease to ask for now, if any: as soon as half a block is used, so that it comes
    /// before the rest is, and never more than a block is held.
    pub fn wanted(&self) -> Option<Wanted> {
        let day = self.day?.id;
        let low = !self.exhausted && self.left <= self.block / 2;
        low.then(|| Wanted {
            day,
            starts: self.block - self.left,
        })
    }

    /// The answer to [`Quota::wanted`]. One for a day that is over is dropped.
    pub fn grant(&mut self, wanted: Wanted, granted: Granted) {
        if self.day.is_none_or(|day| day.id != wanted.day) {
            return;
        }
        self.left = self.left.saturating_add(granted.starts);
        self.counted = granted.counted;
        self.exhausted =
            granted.starts < wanted.starts || self.cap.is_some_and(|cap| granted.counted >= cap);
    }

    /// Takes out what is leased and not used, to be given back with [`Ledger::give_back`].
    pub fn take_unused(&mut self) -> Option<(DayId, u64)> {
        let day = self.day?.id;
        let unused = std::mem::take(&mut self.left);
        // With what is given back there may be more again.
        self.exhausted = false;
        self.counted = self.counted.saturating_sub(unused);
        (unused > 0).then_some((day, unused))
    }

    /// Starts on this day, as far as the last lease told.
    pub fn daily_count(&self) -> u64 {
        self.counted.saturating_sub(self.left)
    }

    /// The cap; None if starts are counted but not capped.
    pub fn cap(&self) -> Option<u64> {
        self.cap
    }
}

/// The count of a day: what was leased on it, by all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ledger {
    /// The day that is counted.
    pub day: DayId,
    /// How many starts were leased on it.
    pub count: u64,
}

/// What a ledger gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// How many starts; fewer than wanted means that there are no more on that day.
    pub starts: u64,
    /// The ledger's count with them.
    pub counted: u64,
    /// Nothing was given because the ledger counts tomorrow.
    pub tomorrow: bool,
}

/// A ledger is for a day that lies further ahead than a clock or a time zone explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayAhead {
    /// How many days ahead of today.
    pub days: u32,
}

impl fmt::Display for DayAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it counts a day that is {} days ahead of today",
            self.days
        )
    }
}

impl std::error::Error for DayAhead {}

impl Ledger {
    /// Counts a lease of at most `wanted`, so that the day's count stays within `cap`. What it
    /// returns is void until the changed ledger is durable.
    ///
    /// A ledger that counts tomorrow (another process passed midnight first, or the clock was set
    /// back) gives nothing more today: today's count is no longer known. Without a cap that
    /// does no harm, and it counts on.
    pub fn lease(&mut self, wanted: Wanted, cap: Option<u64>) -> Result<Granted, DayAhead> {
        if self.day < wanted.day {
            *self = Ledger {
                day: wanted.day,
                count: 0,
            };
        }
        let starts = match cap {
            None => wanted.starts,
            Some(cap) => match self.day.0.abs_diff(wanted.day.0) {
                0 => wanted.starts.min(cap.saturating_sub(self.count)),
                1 => {
                    return Ok(Granted {
                        starts: 0,
                        counted: 0,
                        tomorrow: true,
                    });
                }
                days => return Err(DayAhead { days }),
            },
        };
        self.count = self.count.saturating_add(starts);
        Ok(Granted {
            starts,
            counted: self.count,
            tomorrow: false,
        })
    }

    /// Counts back what was leased on `day` and not used.
    pub fn give_back(&mut self, day: DayId, unused: u64) {
        if self.day == day {
            self.count = self.count.saturating_sub(unused);
        }
    }
}

#[cfg(test)]
mod tests;
