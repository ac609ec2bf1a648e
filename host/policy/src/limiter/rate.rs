//! Keeps the starts a second: whole rates by counting a window, fractions by pacing.

use super::BadCap;
use super::window::Window;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Fractions from here on are cut to the whole number.
const PACED_BELOW: f64 = 100.0;
/// Up to this many starts a second each is kept on its own, in 40 bytes. Above it, and where
/// nothing is capped and the window only serves the statistics, starts are grouped.
const EXACT_UP_TO: u64 = 10_000;
/// Of rates above [`EXACT_UP_TO`]: costs at most 0.01 % of the rate.
const FAST_GRAIN: Duration = Duration::from_micros(100);
/// Of the statistics where nothing is capped.
const UNCAPPED_GRAIN: Duration = Duration::from_millis(10);

/// Starts that are spread over their second may be early by so much, to make up for late ones.
const EARLY: Duration = Duration::from_millis(25);

#[derive(Debug, Clone)]
pub(super) struct Rate {
    rule: Rule,
    starts: Window,
    spread: Option<Spread>,
}

/// Spreads the starts of a whole rate evenly. All at once, they would go to whoever happens to ask.
#[derive(Debug, Clone)]
struct Spread {
    interval: Duration,
    /// When the next start is due.
    next: Duration,
}

#[derive(Debug, Clone)]
enum Rule {
    None,
    PerSecond(u64),
    Paced { interval: Duration, next: Duration },
}

impl Rate {
    pub(super) fn new(max_per_sec: Option<f64>) -> Result<Self, BadCap> {
        let rule = match max_per_sec {
            None => Rule::None,
            Some(rate) if !rate.is_finite() || rate <= 0.0 => return Err(BadCap::PerSec(rate)),
            // The cast saturates, at 1.8e19 a second.
            Some(rate) if rate.fract() == 0.0 || rate >= PACED_BELOW => {
                Rule::PerSecond(rate as u64)
            }
            Some(rate) => Rule::Paced {
                interval: interval(rate),
                next: Duration::ZERO,
            },
        };
        let grain = match rule {
            Rule::None => UNCAPPED_GRAIN,
            Rule::PerSecond(rate) if rate > EXACT_UP_TO => FAST_GRAIN,
            Rule::PerSecond(_) | Rule::Paced { .. } => Duration::ZERO,
        };
        Ok(Self {
            rule,
            starts: Window::new(SECOND, grain),
            spread: None,
        })
    }

    /// Spreads starts evenly from now on.
    pub(super) fn spread(&mut self) {
        if let Rule::PerSecond(rate) = self.rule {
            self.spread = Some(Spread {
                interval: interval(rate as f64),
                next: Duration::ZERO,
            });
        }
    }

    pub(super) fn held_until(&mut self, now: Duration) -> Option<Duration> {
        match self.rule {
            Rule::None => None,
            Rule::PerSecond(rate) => {
                let spread = self.spread.as_ref();
                let due = spread.map(|spread| spread.next.saturating_sub(EARLY));
                let due = due.filter(|due| *due > now);
                self.starts.below(now, rate).max(due)
            }
            Rule::Paced { next, .. } => (now < next).then_some(next),
        }
    }

    pub(super) fn book(&mut self, now: Duration) {
        self.starts.add(now, 1);
        if let Some(spread) = &mut self.spread {
            // Time in which nothing started is not made up for.
            let from = spread.next.max(now.saturating_sub(EARLY));
            spread.next = from.saturating_add(spread.interval);
        }
        if let Rule::Paced { interval, next } = &mut self.rule {
            *next = now.saturating_add(*interval);
        }
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.starts.groups()
    }

    pub(super) fn in_last_second(&mut self, now: Duration) -> u64 {
        u64::try_from(self.starts.sum(now)).unwrap_or(u64::MAX)
    }
}

/// 1/rate, rounded up to the nanosecond so that it is never too short.
fn interval(rate: f64) -> Duration {
    let nanos = (1e9 / rate).ceil();
    // Saturates after 584 years.
    Duration::from_nanos(nanos as u64)
}
