//! The server's rate limit: a sliding window of one second.
//!
//! Invariant: no window of one second holds more accepted requests than allowed. Refused requests do not
//! count.

use std::collections::VecDeque;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(1);

/// When the requests of the last second were accepted, since an origin of the caller's.
#[derive(Debug, Default)]
pub struct Window(VecDeque<Duration>);

impl Window {
    /// Accepts a request at `now`, or refuses it.
    pub fn accept(&mut self, now: Duration, max_per_sec: u32) -> bool {
        while self
            .0
            .front()
            .is_some_and(|first| now.saturating_sub(*first) >= WINDOW)
        {
            self.0.pop_front();
        }
        let room = self.0.len() < max_per_sec as usize;
        if room {
            self.0.push_back(now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_accepted_when_one_has_left_the_window() {
        let mut window = Window::default();
        for (ms, accepted) in [
            (0, true),
            (400, true),
            (500, false),
            (999, false),
            (1000, true),
            (1001, false),
            (1399, false),
            (1400, true),
            (9000, true),
            (9000, true),
            (9000, false),
        ] {
            assert_eq!(
                window.accept(Duration::from_millis(ms), 2),
                accepted,
                "at {ms} ms"
            );
        }
        assert!(
            window.accept(Duration::from_millis(9001), 3),
            "a higher limit holds at once"
        );
    }
}
