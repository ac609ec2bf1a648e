//! Scaling: how many slots are desired, between the bounds, and what moves them.
//!
//! Invariant: 1 <= min <= desired <= max.

use super::load::Verdict;
use crate::controller::{CLEARED, Override};
use std::fmt;

/// Calls in flight, as a part of `desired`, from which on more are worth having.
const IN_USE_TO_GROW: f64 = 0.9;

/// What a product of floats may be off by.
const ROUNDING: f64 = 1e-9;

/// The bounds of the budget and the level between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Slots that are there even while the machine is overloaded.
    pub min: u32,
    /// Slots that there are.
    pub desired: u32,
    /// The most slots.
    pub max: u32,
}

/// The level, and how it moves.
#[derive(Debug)]
pub(super) struct Scale {
    levels: Levels,
    configured: Levels,
    /// The bounds asked for, until they are cleared.
    live_min: Option<u32>,
    live_max: Option<u32>,
    /// A step changes the level by this part of it.
    step: f64,
}

impl Scale {
    pub(super) fn new(levels: Levels, step: f64) -> Self {
        let min = levels.min.max(1);
        let max = levels.max.max(min);
        let levels = Levels {
            min,
            desired: levels.desired.clamp(min, max),
            max,
        };
        Self {
            levels,
            configured: levels,
            live_min: None,
            live_max: None,
            step,
        }
    }

    pub(super) fn levels(&self) -> Levels {
        self.levels
    }

    /// The time for a step has come. While starts are refused for their rate, growth would be
    /// for nothing.
    pub(super) fn tick(&mut self, history: &Verdict, in_use: u32, rate_refuses: bool) {
        let Levels { min, desired, max } = self.levels;
        let level = f64::from(desired);
        // A float that no u32 can hold becomes the nearest one.
        let step = ((level * self.step - ROUNDING).ceil() as u32).max(1);
        let full = ((level * IN_USE_TO_GROW + ROUNDING).floor() as u32).max(1);
        if history.overloaded() {
            self.levels.desired = desired.saturating_sub(step).max(min);
        } else if history.known() && in_use >= full && !rate_refuses {
            self.levels.desired = desired.saturating_add(step).min(max);
        }
    }

    /// Applies rows of the control store, oldest first.
    pub(super) fn apply(&mut self, rows: &[Override]) -> Vec<Retuned> {
        let mut said = Vec::new();
        let (mut bounds, mut desired) = (false, None);
        for row in rows {
            let cleared = row.value == CLEARED;
            let target = match row.key.as_str() {
                "budget_min" => Some(&mut self.live_min),
                "budget_max" => Some(&mut self.live_max),
                "budget_desired" => None,
                _ => continue,
            };
            let value = row.value.trim().parse().ok().filter(|value| *value >= 1);
            if value.is_none() && !cleared {
                said.push(Retuned::NotACount {
                    key: row.key.clone(),
                    value: row.value.clone(),
                });
            } else if let Some(bound) = target {
                *bound = value;
                bounds = true;
            } else {
                // Cleared, scaling goes on from where it is.
                desired = value;
            }
        }
        let before = self.levels;
        let min = self.live_min.unwrap_or(self.configured.min);
        let max = self.live_max.unwrap_or(self.configured.max);
        if min <= max {
            self.levels.min = min;
            self.levels.max = max;
        } else if bounds {
            said.push(Retuned::Refused { min, max });
        }
        let Levels { min, max, .. } = self.levels;
        self.levels.desired = desired.unwrap_or(before.desired).clamp(min, max);
        if let Some(asked) = desired.filter(|asked| *asked != self.levels.desired) {
            said.push(Retuned::Moved {
                asked,
                levels: self.levels,
            });
        }
        if self.levels != before {
            said.push(Retuned::Levels {
                from: before,
                to: self.levels,
            });
        }
        said
    }
}

/// What rows of the control store did to the budget. Its text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retuned {
    /// They moved it.
    Levels {
        /// The levels before.
        from: Levels,
        /// The levels now.
        to: Levels,
    },
    /// They ask for bounds that contradict each other; the former ones stay.
    Refused {
        /// The lower bound asked for.
        min: u32,
        /// The upper bound asked for.
        max: u32,
    },
    /// The level asked for is outside the bounds, and was moved to the nearer one.
    Moved {
        /// The level asked for.
        asked: u32,
        /// The levels now.
        levels: Levels,
    },
    /// One is no number.
    NotACount {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "desired {} of {}..{}", self.desired, self.min, self.max)
    }
}

impl fmt::Display for Retuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levels { from, to } => write!(f, "{from} -> {to}"),
            Self::Refused { min, max } => write!(
                f,
                "refused: budget_min={min} is above budget_max={max}; the former bounds stay until one of them is changed"
            ),
            Self::Moved { asked, levels } => {
                let Levels { min, max, desired } = levels;
                write!(
                    f,
                    "budget_desired={asked} is outside {min}..{max}: taken as {desired}"
                )
            }
            Self::NotACount { key, value } => {
                write!(f, "ignored {key}={value}: not a whole number of at least 1")
            }
        }
    }
}
