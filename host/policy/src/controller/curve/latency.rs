//! What the target latency allows, and what goes down where calls take longer.
//!
//! Invariant: what is lowered was beyond the target, and no level is raised to within 5 % of it.

use super::Curve;
use crate::controller::change::{Change, Reason};
use crate::controller::levels::Dimension;

/// Share of the target latency up to which levels are raised, and that is aimed at when it was exceeded: what is
/// raised is not lowered again for a trifle.
const BELOW_TARGET: f64 = 0.95;
/// Where the target cannot be met, so many times what a call takes at the floors is.
const ABOVE_FLOOR: f64 = 1.1;

impl Curve {
    /// Whether a call is expected to take so long that the target latency is not kept with some margin. What a bigger
    /// batch takes than any that was measured is not known: as if all of a call's time were that of its items.
    pub(super) fn too_slow(&mut self, workers: u32, size: u32) -> bool {
        let Some(limit) = self.allowed_seconds() else {
            return false;
        };
        let now = self.levels.setting().batch_size;
        let mut seconds = self.mean_seconds(workers, size);
        if size > now {
            let bigger = f64::from(size) / f64::from(now);
            seconds = seconds.max(self.mean_seconds(workers, now) * bigger);
        }
        seconds > BELOW_TARGET * limit
    }

    /// Seconds that a call is expected to take on average; that of a log-normal noise.
    pub(super) fn mean_seconds(&mut self, workers: u32, size: u32) -> f64 {
        let noise = self.samples.noise();
        (self.belief.ln_seconds(workers, size) + noise * noise / 2.0).exp()
    }

    /// Where calls take longer than the target latency: fewer workers or smaller batches, whichever keeps more of the
    /// throughput. Says whether they do.
    pub(super) fn keep_latency(&mut self, changes: &mut Vec<Change>) -> bool {
        let setting = self.levels.setting();
        let (workers, size) = (setting.workers, setting.batch_size);
        let Some(limit) = self.latency_limit(changes) else {
            return false;
        };
        let seconds = self.mean_seconds(workers, size);
        if seconds <= limit {
            return false;
        }
        let target = self.config.target_latency.unwrap_or(limit);
        let reason = Reason::TooSlow { seconds, target };
        let aim = BELOW_TARGET * limit;
        let fewest = self.levels[Dimension::Workers].lowest();
        let smallest = self.levels[Dimension::BatchSize].lowest();
        let fewer = self.highest_within(workers, fewest, aim, |level| (level, size));
        let smaller = self.highest_within(size, smallest, aim, |level| (workers, level));
        let (dimension, to, lowest) = match (fewer, smaller) {
            (Some(fewer), Some(smaller)) => {
                let kept_by_fewer = self.throughput(fewer, size);
                if kept_by_fewer >= self.throughput(workers, smaller) {
                    (Dimension::Workers, fewer, workers / 2)
                } else {
                    (Dimension::BatchSize, smaller, size / 2)
                }
            }
            (Some(fewer), None) => (Dimension::Workers, fewer, workers / 2),
            (None, Some(smaller)) => (Dimension::BatchSize, smaller, size / 2),
            // Both have to go down: first the one whose half helps more.
            (None, None) => {
                let (few, small) = ((workers / 2).max(fewest), (size / 2).max(smallest));
                if self.mean_seconds(few, size) <= self.mean_seconds(workers, small) {
                    (Dimension::Workers, few, few)
                } else {
                    (Dimension::BatchSize, small, small)
                }
            }
        };
        self.move_level(dimension, to.max(lowest), reason, changes);
        match dimension {
            Dimension::Workers => self.lowered_for_latency.0 = true,
            Dimension::BatchSize => self.lowered_for_latency.1 = true,
        }
        true
    }

    /// Seconds that a call may be expected to take. Where the target cannot be met at all, a little more than a call
    /// takes at the floors: to go lower costs throughput and helps nothing. Said once.
    fn latency_limit(&mut self, changes: &mut Vec<Change>) -> Option<f64> {
        let limit = self.allowed_seconds()?;
        let target = self.config.target_latency?;
        if limit > target && !self.said_unreachable {
            self.said_unreachable = true;
            let seconds = limit / ABOVE_FLOOR;
            changes.push(Change::Unreachable { seconds, target });
        }
        Some(limit)
    }

    fn allowed_seconds(&mut self) -> Option<f64> {
        let target = self.config.target_latency?;
        let setting = self.levels.setting();
        let fewest = self.levels[Dimension::Workers].lowest();
        let smallest = self.levels[Dimension::BatchSize].lowest();
        // What the floors bring is known once it was seen what going there brings.
        let seen = (self.lowered_for_latency.0 || setting.workers == fewest)
            && (self.lowered_for_latency.1 || setting.batch_size == smallest);
        if !seen {
            return Some(target);
        }
        let floor = self.mean_seconds(fewest, smallest);
        Some(if floor > target {
            ABOVE_FLOOR * floor
        } else {
            target
        })
    }

    /// The highest level below the present one at which a call is expected to take no longer than that.
    fn highest_within(
        &mut self,
        now: u32,
        lowest: u32,
        seconds: f64,
        at: impl Fn(u32) -> (u32, u32),
    ) -> Option<u32> {
        let mut level = now;
        while level > lowest {
            level -= (level / 16).max(1).min(level - lowest);
            let (workers, size) = at(level);
            if self.mean_seconds(workers, size) <= seconds {
                return Some(level);
            }
        }
        None
    }

    /// Items a second, up to a factor that is the same everywhere.
    fn throughput(&mut self, workers: u32, size: u32) -> f64 {
        f64::from(workers) * f64::from(size) / self.mean_seconds(workers, size)
    }
}
