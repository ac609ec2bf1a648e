//! Overrides: what an operator wrote to the control store while the run goes on, applied to
//! the levels.
//!
//! Invariant: whatever the rows say, every level ends inside its bounds; a row that does not
//! fit changes nothing and is answered with a line that says why.

use std::num::IntErrorKind;

use super::change::{Change, Unfit};
use super::levels::{Dimension, Level, Levels};

/// The value that clears a key.
pub const CLEARED: &str = "__cleared__";

/// Characters of a value that does not fit which are repeated to the operator.
const SHOWN_CHARS: usize = 40;

/// One row of the control store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// What to change. Keys that are none of a controller's do nothing here.
    pub key: String,
    /// What to change it to, or [`CLEARED`].
    pub value: String,
}

/// The keys of one dimension.
struct Keys {
    maximum: &'static str,
    minimum: &'static str,
    force: &'static str,
    hold: &'static str,
}

const WORKER_KEYS: Keys = Keys {
    maximum: "max_workers",
    minimum: "min_workers",
    force: "force_workers",
    hold: "hold_workers",
};

const BATCH_KEYS: Keys = Keys {
    maximum: "max_batch_size",
    minimum: "min_batch_size",
    force: "force_batch_size",
    hold: "hold_batch_size",
};

/// What the rows ask of one key.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Nothing,
    Cleared,
    Value(u32),
}

impl Asked {
    fn value(self) -> Option<u32> {
        match self {
            Self::Value(value) => Some(value),
            Self::Nothing | Self::Cleared => None,
        }
    }
}

impl Levels {
    /// Applies rows, oldest first, and says what they changed.
    pub(super) fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        let mut changes = Vec::new();
        if rows.is_empty() {
            return changes;
        }
        if self.single() {
            let keys = named(rows, &WORKER_KEYS);
            if !keys.is_empty() {
                changes.push(Change::IgnoredWorkers { keys });
            }
        } else {
            self.apply_to(Dimension::Workers, &WORKER_KEYS, rows, &mut changes);
        }
        self.apply_to(Dimension::BatchSize, &BATCH_KEYS, rows, &mut changes);
        changes
    }

    fn apply_to(
        &mut self,
        dimension: Dimension,
        keys: &Keys,
        rows: &[Override],
        changes: &mut Vec<Change>,
    ) {
        self.move_bounds(dimension, keys, rows, changes);
        let level = &self[dimension];
        if let Some((from, to)) = self.set(dimension, level.now) {
            changes.push(Change::Clamp {
                dimension,
                from,
                to,
            });
        }
        let force = asked(rows, keys.force, changes).value();
        let hold = asked(rows, keys.hold, changes);
        let will_hold = match hold {
            Asked::Nothing => self[dimension].held,
            Asked::Cleared => None,
            Asked::Value(value) => Some(value),
        };
        if let Some(value) = force {
            if will_hold.is_some() {
                // A jump that the hold takes back at once would cost an epoch for nothing.
                ignore(changes, keys.force, value, Unfit::Held(keys.hold));
            } else if let Some((from, to)) = self.set(dimension, value) {
                changes.push(Change::Force {
                    dimension,
                    from,
                    to,
                });
            }
        }
        self.hold(dimension, will_hold, changes);
    }

    /// Moves the bounds. A maximum and a minimum that only fit together are taken together;
    /// a bound that would cross the other one is refused.
    fn move_bounds(
        &mut self,
        dimension: Dimension,
        keys: &Keys,
        rows: &[Override],
        changes: &mut Vec<Change>,
    ) {
        let mut ignored_minimum = Vec::new();
        let maximum = asked(rows, keys.maximum, changes);
        let minimum = asked(rows, keys.minimum, &mut ignored_minimum);
        let level = self.level_mut(dimension);
        let (old_maximum, old_floor) = (level.maximum, level.floor);
        if maximum == Asked::Cleared {
            level.live_maximum = None;
        }
        if minimum == Asked::Cleared {
            level.live_floor = None;
        }
        resolve(level);

        let fit_together =
            maximum.value().unwrap_or(level.maximum) >= minimum.value().unwrap_or(level.floor);
        if let Some(value) = maximum.value() {
            if fit_together || value >= level.floor {
                level.live_maximum = Some(value);
            } else {
                let reason = Unfit::BelowMinimum(keys.minimum, level.floor);
                ignore(changes, keys.maximum, value, reason);
            }
        }
        if let Some(value) = minimum.value() {
            let maximum = level.live_maximum.unwrap_or(level.maximum);
            if value <= maximum {
                level.live_floor = Some(value);
            } else {
                let reason = Unfit::AboveMaximum(keys.maximum, maximum);
                ignore(&mut ignored_minimum, keys.minimum, value, reason);
            }
        }
        resolve(level);

        if level.maximum != old_maximum {
            changes.push(Change::Maximum {
                dimension,
                from: old_maximum,
                to: level.maximum,
            });
        }
        changes.append(&mut ignored_minimum);
        if level.floor != old_floor {
            changes.push(Change::Minimum {
                dimension,
                from: old_floor,
                to: level.floor,
            });
        }
    }

    /// Keeps the level asked for, or lets go of it.
    fn hold(&mut self, dimension: Dimension, wanted: Option<u32>, changes: &mut Vec<Change>) {
        let level = self.level_mut(dimension);
        let before = std::mem::replace(&mut level.held, wanted);
        let at = level.now;
        match wanted {
            Some(value) => match self.set(dimension, value) {
                Some((from, to)) => changes.push(Change::Hold {
                    dimension,
                    from,
                    to,
                }),
                None if before != wanted => changes.push(Change::Hold {
                    dimension,
                    from: at,
                    to: at,
                }),
                None => {}
            },
            None if before.is_some() => changes.push(Change::Release { dimension, at }),
            None => {}
        }
    }
}

/// Works out the bounds from what is configured and what overrides set. A configured bound
/// that comes back gives way to the other bound's override.
fn resolve(level: &mut Level) {
    level.maximum = level
        .live_maximum
        .unwrap_or(level.configured_maximum.max(level.live_floor.unwrap_or(0)));
    level.floor = level
        .live_floor
        .unwrap_or(level.configured_floor.min(level.maximum));
}

/// The keys that the rows give a value to, in the order in which they would be applied.
fn named(rows: &[Override], keys: &Keys) -> Vec<&'static str> {
    [keys.maximum, keys.minimum, keys.force, keys.hold]
        .into_iter()
        .filter(|key| {
            let last = rows.iter().rev().find(|row| row.key == *key);
            last.is_some_and(|row| row.value != CLEARED)
        })
        .collect()
}

/// The last of a key's rows that fits; those that do not are answered.
fn asked(rows: &[Override], key: &'static str, changes: &mut Vec<Change>) -> Asked {
    let mut asked = Asked::Nothing;
    for row in rows.iter().filter(|row| row.key == key) {
        if row.value == CLEARED {
            asked = Asked::Cleared;
            continue;
        }
        match row.value.trim().parse::<u32>() {
            Ok(value) if value >= 1 => asked = Asked::Value(value),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
                ignore(changes, key, &row.value, Unfit::TooLarge);
            }
            Ok(_) | Err(_) => ignore(changes, key, &row.value, Unfit::NotACount),
        }
    }
    asked
}

/// The answer of a controller that takes no overrides: each that was written is named.
pub(super) fn ignored(rows: &[Override], reason: Unfit) -> Vec<Change> {
    let mut changes = Vec::new();
    for keys in [&WORKER_KEYS, &BATCH_KEYS] {
        for key in named(rows, keys) {
            let last = rows.iter().rev().find(|row| row.key == key);
            let value = last.map_or("", |row| row.value.as_str());
            ignore(&mut changes, key, value, reason);
        }
    }
    changes
}

fn ignore(changes: &mut Vec<Change>, key: &'static str, value: impl ToString, reason: Unfit) {
    let mut value = value.to_string();
    if let Some((end, _)) = value.char_indices().nth(SHOWN_CHARS) {
        value.truncate(end);
        value.push('…');
    }
    changes.push(Change::Ignored { key, value, reason });
}
