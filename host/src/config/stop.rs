//! `[stop]`: how a run ends when it is told to.

use super::number::SECONDS;
use super::table::table;

table! {
    /// How a run ends when it is told to.
    Stop = "stop";
    /// Seconds that calls in flight have to end at a stop; 0 abandons them at once.
    grace: f64 = 30.0, SECONDS;
}
