//! The clock on the wall, behind a trait so that a test can walk through a year.

use jiff::Timestamp;

/// Says what time it is for people and providers. Waits are measured on tokio's clock instead.
pub trait WallClock: Send + Sync + 'static {
    /// The time now. May jump, in either direction.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> Timestamp {
        // A system clock outside the years that have dates is taken to show the nearest, for
        // which there is no calendar either; asking `Timestamp::now` would panic.
        Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::MAX)
    }
}
