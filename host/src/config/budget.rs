//! `[budget]`: the calls in flight that jobs share, and when the machine counts as overloaded.

use super::error::Problem;
use super::filled::Filled;
use super::kind::Optional;
use super::number::{COUNT, LATENCY, Number, REPEATS, SHARE, TIMER};
use super::size::Size;
use super::table::table;

table! {
    /// The calls in flight that jobs share, scaled by the machine's load. Only in a host file,
    /// or in a job that runs alone; without this table there is no budget.
    Budget = "budget";
    /// Calls in flight that are allowed even while the machine is overloaded.
    min: u32 = 1, COUNT;
    /// Calls in flight at the start; not given, it is moved between `min` and `max`.
    desired: u32 = 10, COUNT;
    /// Most calls in flight.
    max: u32 = 100, COUNT;
    /// Most calls started in a minute, by all jobs together.
    max_tasks_per_minute: Option<u32> = None, Optional(COUNT);
    /// Seconds between two steps of scaling.
    scale_seconds: f64 = 10.0, TIMER;
    /// A step changes `desired` by this part of it, rounded up.
    scale_step: f64 = 0.05, STEP;
    /// Seconds of load that decide whether a call may start.
    current_seconds: f64 = 5.0, TIMER;
    /// Seconds of load that decide about scaling.
    history_seconds: f64 = 30.0, TIMER;
    /// Memory for the host and its components; none: 0.8 of the cgroup's limit if there is
    /// one, else 0.25 of the machine's memory.
    memory: Option<u64> = None, Optional(Size::range(1 << 20, 1 << 50));
    /// The part of `memory` above which a sample counts as overloaded.
    memory_threshold: f64 = 0.9, SHARE;
    /// The part of the cgroup's or machine's memory above which a sample counts as overloaded.
    system_memory_threshold: f64 = 0.97, SHARE;
    /// The part of the allowed processor time above which a sample counts as overloaded.
    cpu_threshold: f64 = 0.95, SHARE;
    /// Seconds by which a timer must be late for a sample to count as overloaded.
    lag_threshold: f64 = 0.05, LATENCY;
    /// New refusals by servers, since the last sample, that do not yet count as overloaded.
    breach_threshold: u32 = 1, REPEATS;
    /// The part of the time that memory may be overloaded.
    memory_limit: f64 = 0.2, SHARE;
    /// The part of the time that the processors may be overloaded.
    cpu_limit: f64 = 0.4, SHARE;
    /// The part of the time that timers may be late.
    lag_limit: f64 = 0.6, SHARE;
    /// The part of the time that refusals may be too many.
    breach_limit: f64 = 0.3, SHARE;
}

/// A step that makes progress and never more than doubles.
const STEP: Number = Number::between("a number", 0.001, 1.0);

impl Budget {
    pub(super) fn check(&mut self, filled: &Filled, problems: &mut Vec<Problem>) {
        let (min, max) = (self.min, self.max);
        if min > max {
            let message = format!("min = {min} is above max = {max}; lower min or raise max");
            problems.push(filled.problem("budget", &["min", "max"], message));
            return;
        }
        if !filled.given("budget", "desired") {
            self.desired = self.desired.clamp(min, max);
        }
        let desired = self.desired;
        if !(min..=max).contains(&desired) {
            let message =
                format!("{desired} is outside min = {min} and max = {max}; move it between");
            problems.push(filled.problem("budget", &["desired"], message));
        }
    }
}
