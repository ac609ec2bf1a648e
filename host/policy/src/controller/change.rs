//! What a controller did, as a value; its words are made here and nowhere else.

use std::fmt;

use super::levels::Dimension;

/// One thing that a controller did, or refused to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A level was raised to see whether that pays.
    Probe {
        /// What was raised.
        dimension: Dimension,
        /// Level before.
        from: u32,
        /// Level now.
        to: u32,
    },
    /// A probe did not pay and was taken back.
    Revert {
        /// What was probed.
        dimension: Dimension,
        /// The probed level.
        from: u32,
        /// Level now.
        to: u32,
        /// Throughput as a share of the best one measured at another setting.
        of_best: f64,
    },
    /// A level was cut.
    Decrease {
        /// What was cut.
        dimension: Dimension,
        /// Level before.
        from: u32,
        /// Level now.
        to: u32,
        /// Why.
        reason: CutReason,
    },
    /// The last worker turned out not to pay once more was measured.
    StepBack {
        /// Workers before.
        from: u32,
        /// Workers now.
        to: u32,
        /// Throughput as a multiple of that with one worker fewer.
        of_one_fewer: f64,
    },
    /// A level was moved to where more is expected, or is to be learned.
    Move {
        /// What was moved.
        dimension: Dimension,
        /// Level before.
        from: u32,
        /// Level now.
        to: u32,
        /// Why.
        reason: Reason,
    },
    /// What had been measured no longer describes the server and was forgotten.
    Rebaseline(Rebaseline),
    /// The target latency cannot be met: a call takes longer even at the lowest levels.
    Unreachable {
        /// Seconds that a call is expected to take there.
        seconds: f64,
        /// What it may take.
        target: f64,
    },
    /// What a former run had learned was wrong; tuning starts over from the configured start.
    Forget {
        /// Workers before and now.
        workers: (u32, u32),
        /// Batch size before and now.
        batch_size: (u32, u32),
        /// Why.
        why: Contradiction,
    },
    /// An override moved a maximum.
    Maximum {
        /// Whose maximum.
        dimension: Dimension,
        /// Maximum before.
        from: u32,
        /// Maximum now.
        to: u32,
    },
    /// An override moved a minimum.
    Minimum {
        /// Whose minimum.
        dimension: Dimension,
        /// Minimum before.
        from: u32,
        /// Minimum now.
        to: u32,
    },
    /// A level was outside the bounds that an override set.
    Clamp {
        /// What was moved.
        dimension: Dimension,
        /// Level before.
        from: u32,
        /// Level now.
        to: u32,
    },
    /// An override moved a level once.
    Force {
        /// What was moved.
        dimension: Dimension,
        /// Level before.
        from: u32,
        /// Level now.
        to: u32,
    },
    /// An override keeps a level until it is cleared.
    Hold {
        /// What is kept.
        dimension: Dimension,
        /// Level before.
        from: u32,
        /// Level now; the same if it was there already.
        to: u32,
    },
    /// A level that was held is tuned again.
    Release {
        /// What is tuned again.
        dimension: Dimension,
        /// Level now.
        at: u32,
    },
    /// Worker overrides on a run declared unfit for concurrent calls.
    IgnoredWorkers {
        /// Their keys.
        keys: Vec<&'static str>,
    },
    /// An override whose value does not fit.
    Ignored {
        /// Its key.
        key: &'static str,
        /// Its value, shortened.
        value: String,
        /// Why it does not fit.
        reason: Unfit,
    },
}

/// Why a level was moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Throughput there is expected to be this multiple of the present one.
    Expected(f64),
    /// It may be better, and finding out costs less than that is worth.
    Trial,
    /// The server may be able to take more than it could when that was last tried.
    Look,
    /// Fewer were never tried.
    Below,
    /// No more calls are needed there to see.
    Sent,
    /// It can.
    More,
    /// The run is held back below its workers, so more of them show nothing.
    HeldBack,
    /// It still cannot.
    NoMore,
    /// A call is expected to take so long, in seconds, at the present setting.
    TooSlow {
        /// What it takes.
        seconds: f64,
        /// What it may take.
        target: f64,
    },
}

/// Why a level was cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CutReason {
    /// Latency rose to this multiple of the setting's history.
    Latency(f64),
    /// The server could not take a batch of this size.
    BatchFailed,
    /// A batch failed that could not be made smaller.
    BatchFailedAtFloor,
    /// A batch failed while an override held its size.
    BatchFailedWhileHeld,
}

/// Why what had been measured was forgotten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rebaseline {
    /// Fewer workers did not bring latency down.
    NotLoadDriven,
    /// Latency rose to this multiple of history, and workers cannot go lower.
    AtFloor(f64),
    /// Latency rose to this multiple of history while an override held the workers.
    WhileHeld(f64),
    /// Latency at a setting became this multiple of what it was there before.
    Shift(f64),
}

/// What contradicts a remembered setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contradiction {
    /// The first calls took so many times as long as remembered.
    Slower(f64),
    /// So many of the first calls failed.
    Failed {
        /// How many.
        failed: u32,
        /// Of how many that it is judged by.
        of: u32,
    },
}

/// Why an override's value does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is not a whole number of at least 1.
    NotACount,
    /// It is more than a level can be.
    TooLarge,
    /// A maximum below the minimum of that key and value.
    BelowMinimum(&'static str, u32),
    /// A minimum above the maximum of that key and value.
    AboveMaximum(&'static str, u32),
    /// The level is held by that key.
    Held(&'static str),
    /// The run does not tune.
    Fixed,
}

impl Change {
    /// The workers and the batch size after each of some changes that were made at once, from those after the last.
    pub fn levels_after(changes: &[Self], last: (u32, u32)) -> Vec<(u32, u32)> {
        let mut levels = last;
        let mut after: Vec<_> = changes
            .iter()
            .rev()
            .map(|change| {
                let now = levels;
                levels = change.levels_before(now);
                now
            })
            .collect();
        after.reverse();
        after
    }

    fn levels_before(&self, after: (u32, u32)) -> (u32, u32) {
        match self {
            Self::Probe {
                dimension, from, ..
            }
            | Self::Revert {
                dimension, from, ..
            }
            | Self::Decrease {
                dimension, from, ..
            }
            | Self::Move {
                dimension, from, ..
            }
            | Self::Clamp {
                dimension, from, ..
            }
            | Self::Force {
                dimension, from, ..
            }
            | Self::Hold {
                dimension, from, ..
            } => match dimension {
                Dimension::Workers => (*from, after.1),
                Dimension::BatchSize => (after.0, *from),
            },
            Self::StepBack { from, .. } => (*from, after.1),
            Self::Forget {
                workers,
                batch_size,
                ..
            } => (workers.0, batch_size.0),
            Self::Rebaseline(_)
            | Self::Unreachable { .. }
            | Self::Maximum { .. }
            | Self::Minimum { .. }
            | Self::Release { .. }
            | Self::IgnoredWorkers { .. }
            | Self::Ignored { .. } => after,
        }
    }

    /// Whether an override caused it, rather than tuning.
    pub fn is_override(&self) -> bool {
        match self {
            Self::Probe { .. }
            | Self::Revert { .. }
            | Self::Decrease { .. }
            | Self::StepBack { .. }
            | Self::Move { .. }
            | Self::Rebaseline(_)
            | Self::Unreachable { .. }
            | Self::Forget { .. } => false,
            Self::Maximum { .. }
            | Self::Minimum { .. }
            | Self::Clamp { .. }
            | Self::Force { .. }
            | Self::Hold { .. }
            | Self::Release { .. }
            | Self::IgnoredWorkers { .. }
            | Self::Ignored { .. } => true,
        }
    }

    /// Whether it moved a level, and so started an epoch.
    pub fn moved_a_level(&self) -> bool {
        match self {
            Self::Probe { .. }
            | Self::Revert { .. }
            | Self::Decrease { .. }
            | Self::StepBack { .. }
            | Self::Move { .. }
            | Self::Clamp { .. }
            | Self::Force { .. } => true,
            Self::Hold { from, to, .. } => from != to,
            Self::Forget {
                workers,
                batch_size,
                ..
            } => workers.0 != workers.1 || batch_size.0 != batch_size.1,
            Self::Rebaseline(_)
            | Self::Unreachable { .. }
            | Self::Maximum { .. }
            | Self::Minimum { .. }
            | Self::Release { .. }
            | Self::IgnoredWorkers { .. }
            | Self::Ignored { .. } => false,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe {
                dimension,
                from,
                to,
            } => write!(f, "probe {dimension} {from}->{to}"),
            Self::Revert {
                dimension,
                from,
                to,
                of_best,
            } => write!(
                f,
                "revert {dimension} {from}->{to} (throughput {of_best:.2}x best)"
            ),
            Self::Decrease {
                dimension,
                from,
                to,
                reason,
            } => write!(f, "decrease {dimension} {from}->{to} ({reason})"),
            Self::StepBack {
                from,
                to,
                of_one_fewer,
            } => write!(
                f,
                "step back workers {from}->{to} (pooled throughput {of_one_fewer:.2}x one fewer)"
            ),
            Self::Move {
                dimension,
                from,
                to,
                reason,
            } => {
                let verb = match (reason, to > from) {
                    (Reason::Trial | Reason::Look | Reason::Below, _) => "try",
                    (_, true) => "raise",
                    (_, false) => "lower",
                };
                write!(f, "{verb} {dimension} {from}->{to} ({reason})")
            }
            Self::Rebaseline(why) => write!(f, "rebaseline: {why}"),
            Self::Unreachable { seconds, target } => write!(
                f,
                "target_latency {} s cannot be met: a call takes {:.3} s even at the fewest workers and items; kept near that",
                Figure(*target),
                Figure(*seconds)
            ),
            Self::Forget {
                workers,
                batch_size,
                why,
            } => write!(
                f,
                "forget what was remembered, workers {}->{}, batch_size {}->{} ({why})",
                workers.0, workers.1, batch_size.0, batch_size.1
            ),
            Self::Maximum {
                dimension,
                from,
                to,
            } => write!(f, "max_{dimension} {from}->{to}"),
            Self::Minimum {
                dimension,
                from,
                to,
            } => write!(f, "min_{dimension} {from}->{to}"),
            Self::Clamp {
                dimension,
                from,
                to,
            } => write!(f, "clamp {dimension} {from}->{to}"),
            Self::Force {
                dimension,
                from,
                to,
            } => write!(f, "force {dimension} {from}->{to}"),
            Self::Hold {
                dimension,
                from,
                to,
            } if from == to => write!(f, "hold {dimension} at {to}"),
            Self::Hold {
                dimension,
                from,
                to,
            } => write!(f, "hold {dimension} {from}->{to}"),
            Self::Release { dimension, at } => write!(f, "release {dimension} at {at}"),
            Self::IgnoredWorkers { keys } => write!(
                f,
                "ignored {}: run declared not thread-safe (max_workers=1)",
                keys.join(", ")
            ),
            Self::Ignored { key, value, reason } => {
                write!(f, "ignored {key}={}: {reason}", value.escape_debug())
            }
        }
    }
}

/// Seconds, in no more digits than can be read: at most three after the point, or exactly as many as asked for.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        if !(0.001..1e7).contains(&seconds) {
            return write!(f, "{seconds:.2e}");
        }
        match f.precision() {
            Some(digits) => write!(f, "{seconds:.digits$}"),
            None => write!(f, "{}", (seconds * 1000.0).round() / 1000.0),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(ratio) => write!(f, "expecting {ratio:.2}x the throughput"),
            Self::Trial => f.write_str("may be better"),
            Self::Look => f.write_str("in case the server can take more now"),
            Self::Below => f.write_str("fewer were never tried"),
            Self::Sent => f.write_str("back until those calls have ended"),
            Self::More => f.write_str("the server can take more than before"),
            Self::HeldBack => f.write_str("the run is held back"),
            Self::NoMore => f.write_str("the server can take no more than before"),
            Self::TooSlow { seconds, target } => {
                let (seconds, target) = (Figure(*seconds), Figure(*target));
                write!(f, "a call takes {seconds:.3} s, target_latency {target} s")
            }
        }
    }
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency(ratio) => write!(f, "latency {ratio:.2}x this setting's history"),
            Self::BatchFailed => f.write_str("batch failed"),
            Self::BatchFailedAtFloor => f.write_str("batch failed at min batch_size"),
            Self::BatchFailedWhileHeld => f.write_str("batch failed at held batch_size"),
        }
    }
}

impl fmt::Display for Rebaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoadDriven => {
                f.write_str("latency did not fall after cutting workers, not load-driven")
            }
            Self::AtFloor(ratio) => write!(f, "latency {ratio:.2}x history at min workers"),
            Self::WhileHeld(ratio) => write!(f, "latency {ratio:.2}x history at held workers"),
            Self::Shift(ratio) => write!(f, "latency {ratio:.2}x what it was here before"),
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slower(ratio) => write!(f, "latency {ratio:.2}x that"),
            Self::Failed { failed, of } => write!(f, "{failed} of the first {of} calls failed"),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACount => f.write_str("not a whole number of at least 1"),
            Self::TooLarge => write!(f, "more than {}", u32::MAX),
            Self::BelowMinimum(key, value) => write!(f, "below {key}={value}"),
            Self::AboveMaximum(key, value) => write!(f, "above {key}={value}"),
            Self::Held(key) => write!(f, "{key} keeps the level until it is cleared"),
            Self::Fixed => f.write_str("the setting is fixed (--fixed)"),
        }
    }
}
