//! Decides how long all calls wait after the server refused one for our rate.
//!
//! Invariant: the end of a running cooldown only ever moves later.

use std::time::Duration;

/// No cooldown is longer, whatever a server or a plugin asks for: no provider counts over more
/// than a month, and an endless one would be a way to stop a job for good.
pub const MAX_COOLDOWN: Duration = Duration::from_secs(31 * 24 * 3600);

#[derive(Debug, Clone)]
pub(super) struct Cooldown {
    base: Duration,
    max_doublings: u32,
    quiet_window: Duration,
    /// None before the first breach.
    last: Option<Last>,
    breaches: u64,
}

/// The cooldown begun last, running or over.
#[derive(Debug, Clone)]
struct Last {
    until: Duration,
    doublings: u32,
}

impl Cooldown {
    pub(super) fn new(base: Duration, max_doublings: u32, quiet_window: Duration) -> Self {
        Self {
            base,
            max_doublings,
            quiet_window,
            last: None,
            breaches: 0,
        }
    }

    /// Returns how long nothing starts from now on.
    ///
    /// Nothing is let go during a cooldown, so a call that started before the end of the last one
    /// was let go before it began, and says nothing about our pace since. It does not double;
    /// it may still ask for longer, and if that cooldown is over, it starts another of the same
    /// length.
    pub(super) fn breach(
        &mut self,
        now: Duration,
        call_started: Duration,
        retry_after: Option<Duration>,
    ) -> Duration {
        self.breaches += 1;
        let asked = now.saturating_add(retry_after.unwrap_or_default().min(MAX_COOLDOWN));
        let (until, doublings) = match self.last.take().filter(|last| !self.is_quiet(last, now)) {
            None => (self.end(now, 0), 0),
            Some(last) if now < last.until => (last.until, last.doublings),
            Some(last) if call_started < last.until => {
                (self.end(now, last.doublings), last.doublings)
            }
            Some(last) => {
                let doublings = last.doublings.saturating_add(1).min(self.max_doublings);
                (self.end(now, doublings), doublings)
            }
        };
        let until = until.max(asked);
        self.last = Some(Last { until, doublings });
        until - now
    }

    /// A call whose breach is counted already turns out to ask for longer.
    pub(super) fn lengthen(&mut self, now: Duration, retry_after: Duration) {
        let asked = now.saturating_add(retry_after.min(MAX_COOLDOWN));
        if let Some(last) = &mut self.last {
            last.until = last.until.max(asked);
        }
    }

    pub(super) fn held_until(&self, now: Duration) -> Option<Duration> {
        let until = self.last.as_ref()?.until;
        (now < until).then_some(until)
    }

    pub(super) fn breaches(&self) -> u64 {
        self.breaches
    }

    /// When a cooldown ends that begins now.
    fn end(&self, now: Duration, doublings: u32) -> Duration {
        let length = self.base.saturating_mul(2_u32.saturating_pow(doublings));
        now.saturating_add(length.min(MAX_COOLDOWN))
    }

    /// Counted from the end of the cooldown, since that we kept quiet during it proves nothing;
    /// otherwise no cooldown longer than the window could ever be followed by a longer one.
    fn is_quiet(&self, last: &Last, now: Duration) -> bool {
        now.saturating_sub(last.until) > self.quiet_window
    }
}
