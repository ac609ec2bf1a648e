//! Says which day it is for the provider who counts our calls.
//!
//! Invariant: days follow each other without gap or overlap. A day starts at the first moment at
//! which the provider's clock shows its date and the reset time, or later: where that time is
//! skipped in spring, at the jump; where it comes twice in autumn, the first time. So the
//! day of a clock change has 23 or 25 hours.

use batchgate_policy::quota::DayId;
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};

const EPOCH: Date = Date::constant(1970, 1, 1);

/// The provider's days, from `day_time_zone` and `day_resets_at`.
#[derive(Debug, Clone)]
pub struct Calendar {
    zone: TimeZone,
    resets_at: Time,
}

/// One of the provider's days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderDay {
    /// The date on which it starts.
    pub date: Date,
    /// Its first moment.
    pub starts: Timestamp,
    /// The first moment of the next.
    pub ends: Timestamp,
}

/// A calendar that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CalendarError {
    /// No such zone.
    #[error(
        "day_time_zone = {0:?}: there is no such time zone; use \"local\", \"UTC\" or an IANA name such as \"America/Los_Angeles\""
    )]
    Zone(String),
    /// The clock is at the end of time.
    #[error("the system clock shows {0}, for which there is no calendar; set it right")]
    Clock(Timestamp),
}

impl Calendar {
    /// `day_time_zone` is "local", "UTC" or an IANA name; `resets_at` is when the provider's day starts.
    pub fn new(day_time_zone: &str, resets_at: Time) -> Result<Self, CalendarError> {
        let zone = match day_time_zone {
            // As the C library has it: UTC where the system says nothing.
            "local" => TimeZone::system(),
            name => TimeZone::get(name).map_err(|_| CalendarError::Zone(name.to_owned()))?,
        };
        Ok(Self { zone, resets_at })
    }

    /// Whether "local" was asked for and the system does not say where it is.
    pub fn zone_is_unknown(&self) -> bool {
        self.zone.is_unknown()
    }

    /// The day that `now` is on.
    pub fn day_at(&self, now: Timestamp) -> Result<ProviderDay, CalendarError> {
        self.find(now)
            .map_err(|_: jiff::Error| CalendarError::Clock(now))
    }

    fn find(&self, now: Timestamp) -> Result<ProviderDay, jiff::Error> {
        // A clock set back over midnight shows the old date on the new day, hence tomorrow.
        let mut date = self.zone.to_datetime(now).date().tomorrow()?;
        let mut starts = self.start_of(date)?;
        let mut ends = starts;
        while starts > now {
            ends = starts;
            date = date.yesterday()?;
            starts = self.start_of(date)?;
        }
        if ends <= now {
            ends = self.start_of(date.tomorrow()?)?;
        }
        Ok(ProviderDay { date, starts, ends })
    }

    fn start_of(&self, date: Date) -> Result<Timestamp, jiff::Error> {
        let start = self
            .zone
            .to_ambiguous_timestamp(date.to_datetime(self.resets_at));
        let skipped = matches!(start.offset(), AmbiguousOffset::Gap { .. });
        let earlier = start.earlier()?;
        let jump = skipped
            .then(|| self.zone.following(earlier).next())
            .flatten();
        Ok(jump.map_or(earlier, |jump| jump.timestamp()))
    }
}

/// A date's number. Every date has one: they span less than 8 million days.
pub(super) fn day_id(date: Date) -> DayId {
    let days = date.duration_since(EPOCH).as_hours() / 24;
    DayId(i32::try_from(days).expect("dates span less than 8 million days"))
}

/// The date of a number that [`day_id`] gave; of any other, the nearest.
pub(super) fn date(id: DayId) -> Date {
    let days = id.0.clamp(day_id(Date::MIN).0, day_id(Date::MAX).0);
    EPOCH.saturating_add(Span::new().days(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(zone: &str, resets_at: &str) -> Calendar {
        let resets_at = resets_at.parse().expect("a time");
        Calendar::new(zone, resets_at).expect("a calendar")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    #[test]
    fn days_start_when_the_providers_clock_says_so() {
        // zone, reset, now; the day's date, its hours, its end.
        let cases = [
            (
                "UTC",
                "00:00",
                "2026-03-08T23:59:59.999Z",
                "2026-03-08",
                24.0,
                "2026-03-09T00:00Z",
            ),
            (
                "UTC",
                "00:00",
                "2026-03-09T00:00:00Z",
                "2026-03-09",
                24.0,
                "2026-03-10T00:00Z",
            ),
            (
                "UTC",
                "17:30",
                "2026-03-09T17:29:59Z",
                "2026-03-08",
                24.0,
                "2026-03-09T17:30Z",
            ),
            (
                "UTC",
                "17:30",
                "2026-03-09T17:30:00Z",
                "2026-03-09",
                24.0,
                "2026-03-10T17:30Z",
            ),
            (
                "Asia/Tokyo",
                "00:00",
                "2026-03-08T15:00:00Z",
                "2026-03-09",
                24.0,
                "2026-03-09T15:00Z",
            ),
            // Clocks forward on 8 March 2026, back on 1 November.
            (
                "America/Los_Angeles",
                "00:00",
                "2026-03-08T08:00Z",
                "2026-03-08",
                23.0,
                "2026-03-09T07:00Z",
            ),
            (
                "America/Los_Angeles",
                "00:00",
                "2026-03-09T06:59:59Z",
                "2026-03-08",
                23.0,
                "2026-03-09T07:00Z",
            ),
            (
                "America/Los_Angeles",
                "00:00",
                "2026-11-01T07:00Z",
                "2026-11-01",
                25.0,
                "2026-11-02T08:00Z",
            ),
            (
                "America/Los_Angeles",
                "00:00",
                "2026-11-02T07:59:59Z",
                "2026-11-01",
                25.0,
                "2026-11-02T08:00Z",
            ),
            // 02:30 does not exist: the day starts at 03:00, which is 10:00 UTC.
            (
                "America/Los_Angeles",
                "02:30",
                "2026-03-08T09:59:59Z",
                "2026-03-07",
                23.5,
                "2026-03-08T10:00Z",
            ),
            (
                "America/Los_Angeles",
                "02:30",
                "2026-03-08T10:00:00Z",
                "2026-03-08",
                23.5,
                "2026-03-09T09:30Z",
            ),
            // 01:30 comes twice: the day starts the first time, and the second does not end it.
            (
                "America/Los_Angeles",
                "01:30",
                "2026-11-01T08:30:00Z",
                "2026-11-01",
                25.0,
                "2026-11-02T09:30Z",
            ),
            (
                "America/Los_Angeles",
                "01:30",
                "2026-11-01T09:10:00Z",
                "2026-11-01",
                25.0,
                "2026-11-02T09:30Z",
            ),
            // Midnight itself is skipped, or passed twice.
            (
                "America/Havana",
                "00:00",
                "2026-03-08T05:00:00Z",
                "2026-03-08",
                23.0,
                "2026-03-09T04:00Z",
            ),
            (
                "America/St_Johns",
                "00:00",
                "2010-11-07T02:31:00Z",
                "2010-11-07",
                25.0,
                "2010-11-08T03:30Z",
            ),
            // Samoa had no 30 December 2011.
            (
                "Pacific/Apia",
                "00:00",
                "2011-12-30T09:59:59Z",
                "2011-12-29",
                24.0,
                "2011-12-30T10:00Z",
            ),
            (
                "Pacific/Apia",
                "00:00",
                "2011-12-30T10:00:00Z",
                "2011-12-31",
                24.0,
                "2011-12-31T10:00Z",
            ),
        ];
        for (zone, resets_at, now, date, hours, ends) in cases {
            let day = calendar(zone, resets_at).day_at(at(now)).expect("a day");
            let got = (
                day.date.to_string(),
                day.starts.duration_until(day.ends).as_secs_f64() / 3600.0,
                day.ends,
            );
            assert_eq!(
                got,
                (date.to_owned(), hours, at(ends)),
                "{zone} {resets_at} {now}"
            );
            assert!(day.starts <= at(now), "{zone} {resets_at} {now}");
        }
    }

    #[test]
    fn days_follow_each_other_all_year() {
        for (zone, resets_at) in [
            ("America/Los_Angeles", "00:00"),
            ("America/Los_Angeles", "02:15"),
            ("America/Los_Angeles", "01:15"),
            ("Australia/Lord_Howe", "01:45"),
            ("Africa/Casablanca", "02:30"),
            ("Asia/Kathmandu", "23:59"),
        ] {
            let calendar = calendar(zone, resets_at);
            let mut day = calendar.day_at(at("2026-01-01T12:00:00Z")).expect("a day");
            for _ in 0..366 {
                let next = calendar.day_at(day.ends).expect("a day");
                let last = day.ends - jiff::SignedDuration::from_nanos(1);
                assert_eq!(calendar.day_at(last).expect("a day"), day);
                assert_eq!(next.starts, day.ends);
                assert_eq!(
                    day_id(next.date).0,
                    day_id(day.date).0 + 1,
                    "{zone} {day:?}"
                );
                day = next;
            }
        }
    }

    #[test]
    fn what_has_no_calendar_is_named() {
        for zone in ["", "Mars/Olympus", "Local", "UTC+3", "../etc/passwd"] {
            let error = Calendar::new(zone, Time::midnight())
                .expect_err(zone)
                .to_string();
            assert!(
                error.contains("day_time_zone") && error.contains(zone),
                "{error}"
            );
        }
        let calendar = calendar("local", "23:59");
        for clock in [Timestamp::MIN, Timestamp::MAX] {
            let error = calendar.day_at(clock).expect_err("no day").to_string();
            assert!(error.contains("system clock"), "{error}");
        }
    }

    #[test]
    fn dates_have_numbers() {
        for (text, id) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2026-03-08", 20_520),
        ] {
            let parsed: Date = text.parse().expect("a date");
            assert_eq!((day_id(parsed), date(DayId(id))), (DayId(id), parsed));
        }
        assert_eq!(date(DayId(i32::MAX)), Date::MAX);
    }
}
