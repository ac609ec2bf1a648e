//! What someone is told who may not start yet.

use super::QuotaError;
use batchgate_policy::limiter::Reason;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A start was refused: why, and until when. Its text says both to people.
#[derive(Debug, Clone)]
pub struct Wait {
    pub(super) why: Why,
    /// The number of the last change that this answer knows of.
    pub(super) change: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Why {
    /// Ask again at `until`.
    Held {
        reason: Reason,
        until: Instant,
        left: Duration,
        /// `until` on the wall, and the wall's clock when it was told.
        wall: Timestamp,
        told: Timestamp,
    },
    /// Ask again when the lease has come.
    Unleased,
    /// There is no use in asking again.
    Failed(Arc<QuotaError>),
}

impl Wait {
    /// What holds the start back; None where nothing but a failure does.
    pub fn reason(&self) -> Option<Reason> {
        match &self.why {
            Why::Held { reason, .. } => Some(*reason),
            Why::Unleased => Some(Reason::Lease),
            Why::Failed(_) => None,
        }
    }

    /// When to ask again; None if only a change can help.
    pub fn until(&self) -> Option<Instant> {
        match &self.why {
            Why::Held { until, .. } => Some(*until),
            Why::Unleased | Why::Failed(_) => None,
        }
    }

    /// Why no start will ever be allowed: the day's quota cannot be counted.
    pub fn failure(&self) -> Option<&QuotaError> {
        match &self.why {
            Why::Failed(failure) => Some(failure),
            Why::Held { .. } | Why::Unleased => None,
        }
    }

    /// Whether to park the run for it: a day that is spent, or a cooldown that lasts longer.
    pub fn is_long(&self, max_cooldown: Duration) -> bool {
        match &self.why {
            Why::Held { reason, left, .. } => match reason {
                Reason::Day => true,
                Reason::Cooldown => *left > max_cooldown,
                Reason::Rate | Reason::Bytes | Reason::Lease => false,
            },
            Why::Unleased | Why::Failed(_) => false,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, wall, told) = match &self.why {
            Why::Held {
                reason, wall, told, ..
            } => (*reason, *wall, *told),
            Why::Unleased => (Reason::Lease, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH),
            Why::Failed(failure) => return write!(f, "{failure}"),
        };
        let what = match reason {
            Reason::Cooldown => "cooldown",
            Reason::Rate => "max_per_sec reached",
            Reason::Bytes => "max_bytes_per_min reached",
            Reason::Day => "max_per_day reached",
            Reason::Lease => return f.write_str("waiting for the state file"),
        };
        write!(f, "{what} until {}", moment(wall, told))
    }
}

/// A moment for people, in their own time zone; with the date where it is not today's.
fn moment(wall: Timestamp, now: Timestamp) -> String {
    let zone = TimeZone::system();
    let wall = zone.to_datetime(wall);
    if wall.date() == zone.to_datetime(now).date() {
        wall.strftime("%H:%M:%S").to_string()
    } else {
        wall.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }
}
