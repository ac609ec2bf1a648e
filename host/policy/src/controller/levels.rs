//! The two levels that a controller moves, with their bounds and the epoch.
//!
//! Invariant: floor <= level <= maximum in both dimensions, and the epoch rises by exactly
//! one with each change of a level.

use std::fmt;
use std::ops::{Index, IndexMut};

use super::config::Config;
use crate::setting::Setting;

/// What can be tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Calls in flight.
    Workers,
    /// Items in a batch.
    BatchSize,
}

impl Dimension {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Workers => Self::BatchSize,
            Self::BatchSize => Self::Workers,
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workers => "workers",
            Self::BatchSize => "batch_size",
        })
    }
}

/// What the levels may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest workers.
    pub min_workers: u32,
    /// Most workers.
    pub max_workers: u32,
    /// Fewest items in a batch.
    pub min_batch_size: u32,
    /// Most items in a batch.
    pub max_batch_size: u32,
}

/// One value for each dimension.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Each<T> {
    workers: T,
    batch_size: T,
}

impl<T> Index<Dimension> for Each<T> {
    type Output = T;
    fn index(&self, dimension: Dimension) -> &T {
        match dimension {
            Dimension::Workers => &self.workers,
            Dimension::BatchSize => &self.batch_size,
        }
    }
}

impl<T> IndexMut<Dimension> for Each<T> {
    fn index_mut(&mut self, dimension: Dimension) -> &mut T {
        match dimension {
            Dimension::Workers => &mut self.workers,
            Dimension::BatchSize => &mut self.batch_size,
        }
    }
}

/// One level, and what bounds it.
#[derive(Debug, Clone)]
pub(super) struct Level {
    pub(super) now: u32,
    pub(super) floor: u32,
    pub(super) maximum: u32,
    pub(super) configured_floor: u32,
    pub(super) configured_maximum: u32,
    /// The bounds that overrides set, until they are cleared.
    pub(super) live_floor: Option<u32>,
    pub(super) live_maximum: Option<u32>,
    /// The level asked to be kept; it may lie outside the bounds, `now` may not.
    pub(super) held: Option<u32>,
}

impl Level {
    fn new(start: u32, floor: u32, maximum: Option<u32>) -> Self {
        let floor = floor.max(1);
        // Not given, the maximum is the start, which the floor may have raised.
        let maximum = maximum.unwrap_or(start.max(floor)).max(1);
        let floor = floor.min(maximum);
        Self {
            now: start.clamp(floor, maximum),
            floor,
            maximum,
            configured_floor: floor,
            configured_maximum: maximum,
            live_floor: None,
            live_maximum: None,
            held: None,
        }
    }

    pub(super) fn clamp(&self, level: u32) -> u32 {
        level.clamp(self.floor, self.maximum)
    }

    /// The lowest level that tuning may go to.
    pub(super) fn lowest(&self) -> u32 {
        if self.held.is_some() {
            self.now
        } else {
            self.floor
        }
    }

    /// The highest level that tuning may go to.
    pub(super) fn highest(&self) -> u32 {
        if self.held.is_some() {
            self.now
        } else {
            self.maximum
        }
    }
}

/// Both levels and the epoch.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    epoch: u64,
    single: bool,
    each: Each<Level>,
}

impl Levels {
    pub(super) fn new(config: &Config) -> Self {
        // Unfit for concurrent calls wins over whatever else is configured.
        let single = config.max_workers.unwrap_or(config.workers) <= 1;
        let max_workers = if single { Some(1) } else { config.max_workers };
        Self {
            epoch: 0,
            single,
            each: Each {
                workers: Level::new(config.workers, config.min_workers, max_workers),
                batch_size: Level::new(
                    config.batch_size,
                    config.min_batch_size,
                    config.max_batch_size,
                ),
            },
        }
    }

    pub(super) fn setting(&self) -> Setting {
        Setting {
            epoch: self.epoch,
            workers: self.each.workers.now,
            batch_size: self.each.batch_size.now,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            min_workers: self.each.workers.floor,
            max_workers: self.each.workers.maximum,
            min_batch_size: self.each.batch_size.floor,
            max_batch_size: self.each.batch_size.maximum,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn single(&self) -> bool {
        self.single
    }

    /// Moves a level, as far as tuning may move it. Says from where to where, if it moved.
    pub(super) fn tune(&mut self, dimension: Dimension, to: u32) -> Option<(u32, u32)> {
        let level = &self[dimension];
        let to = to.clamp(level.lowest(), level.highest());
        self.set(dimension, to)
    }

    /// Moves a level within its bounds. Says from where to where, if it moved.
    pub(super) fn set(&mut self, dimension: Dimension, to: u32) -> Option<(u32, u32)> {
        let level = &mut self.each[dimension];
        let from = level.now;
        level.now = level.clamp(to);
        let to = level.now;
        if from == to {
            return None;
        }
        self.epoch += 1;
        Some((from, to))
    }

    /// Moves both levels as one change, as far as tuning may move them. Says whether one moved.
    pub(super) fn jump(&mut self, workers: u32, batch_size: u32) -> bool {
        let epoch = self.epoch;
        self.tune(Dimension::Workers, workers);
        self.tune(Dimension::BatchSize, batch_size);
        let moved = self.epoch != epoch;
        self.epoch = epoch + u64::from(moved);
        moved
    }

    /// For overrides, which move bounds and holds; they end with a level inside its bounds.
    pub(super) fn level_mut(&mut self, dimension: Dimension) -> &mut Level {
        &mut self.each[dimension]
    }
}

impl Index<Dimension> for Levels {
    type Output = Level;
    fn index(&self, dimension: Dimension) -> &Level {
        &self.each[dimension]
    }
}
