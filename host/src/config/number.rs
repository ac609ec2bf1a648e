//! Counts, durations and ratios.
//!
//! Invariant: no number that is infinite or not a number is accepted, and every one that is
//! lies inside the range that is stated.

use std::marker::PhantomData;

use super::kind::Kind;
use super::raw::Raw;

/// A whole number.
pub struct Whole<T> {
    min: u64,
    max: u64,
    value: PhantomData<T>,
}

impl<T> Whole<T> {
    pub const fn range(min: u64, max: u64) -> Self {
        Self {
            min,
            max,
            value: PhantomData,
        }
    }
}

/// A count of at least 1.
pub const COUNT: Whole<u32> = Whole::range(1, u32::MAX as u64);
/// How often something may be repeated; 0 is never.
pub const REPEATS: Whole<u32> = Whole::range(0, u32::MAX as u64);

impl<T: TryFrom<i128> + Copy + Into<u64>> Kind for Whole<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        let inside = |n: &i128| (i128::from(self.min)..=i128::from(self.max)).contains(n);
        let value = raw
            .integer()
            .filter(inside)
            .and_then(|n| T::try_from(n).ok());
        value.ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }

    fn show(&self, value: &T) -> String {
        let value: u64 = (*value).into();
        value.to_string()
    }

    fn placeholder(&self) -> &'static str {
        "N"
    }
}

/// A number that need not be whole. Bounds are included unless they are said to be open.
pub struct Number {
    of: &'static str,
    low: f64,
    high: f64,
    open: bool,
}

impl Number {
    /// From `low` to `high`, both allowed.
    pub const fn between(of: &'static str, low: f64, high: f64) -> Self {
        Self {
            of,
            low,
            high,
            open: false,
        }
    }

    /// Above `low` and below `high`, neither allowed.
    pub const fn inside(of: &'static str, low: f64, high: f64) -> Self {
        Self {
            of,
            low,
            high,
            open: true,
        }
    }
}

/// Seconds. The longest wait anyone means, and far from where a duration overflows.
const YEAR: f64 = 31_536_000.0;
/// A duration of which 0 makes sense.
pub const SECONDS: Number = Number::between("a number of seconds", 0.0, YEAR);
/// A duration that drives a timer: at least a millisecond, or it would spin.
pub const TIMER: Number = Number::between("a number of seconds", 0.001, YEAR);
/// A latency, which may be any duration above 0.
pub const LATENCY: Number = Number::inside("a number of seconds", 0.0, YEAR);
/// A factor or threshold.
pub const RATIO: Number = Number::inside("a number", 0.0, 1000.0);
/// A factor that makes smaller.
pub const DECREASE: Number = Number::inside("a number", 0.0, 1.0);
/// A share of a whole.
pub const SHARE: Number = Number::between("a number", 0.0, 1.0);

impl Kind for Number {
    type Value = f64;

    fn parse(&self, raw: &Raw) -> Result<f64, String> {
        let inside = |n: &f64| match self.open {
            true => *n > self.low && *n < self.high,
            false => (self.low..=self.high).contains(n),
        };
        raw.number()
            .filter(inside)
            .ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        match self.open {
            true => format!("{} above {} and below {}", self.of, self.low, self.high),
            false => format!("{} from {} to {}", self.of, self.low, self.high),
        }
    }

    fn show(&self, value: &f64) -> String {
        value.to_string()
    }

    fn placeholder(&self) -> &'static str {
        "NUMBER"
    }
}
