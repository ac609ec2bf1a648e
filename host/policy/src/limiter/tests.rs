#![allow(clippy::unwrap_used)]

use super::*;
use crate::quota::{Day, DayId};
use proptest::prelude::*;

const US: Duration = Duration::from_micros(1);
const NS: Duration = Duration::from_nanos(1);
const S: Duration = Duration::from_secs(1);
const ZERO: Duration = Duration::ZERO;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn config() -> LimiterConfig {
    LimiterConfig {
        max_per_sec: None,
        max_bytes_per_min: None,
        max_per_day: None,
        durable_day: false,
        breach_base_cooldown: 60 * S,
        breach_max_doublings: 4,
        breach_quiet_window: 300 * S,
    }
}

/// With the day's quota leased.
fn limiter(config: &LimiterConfig) -> Limiter {
    let mut limiter = Limiter::new(config).unwrap();
    let quota = limiter.quota();
    quota.set_day(Day {
        id: DayId(0),
        ends: 86_400 * S,
    });
    let wanted = quota.wanted().unwrap();
    let mut ledger = crate::quota::Ledger {
        day: DayId(0),
        count: 0,
    };
    let granted = ledger.lease(wanted, quota.cap()).unwrap();
    quota.grant(wanted, granted);
    limiter
}

fn per_sec(rate: f64) -> Limiter {
    limiter(&LimiterConfig {
        max_per_sec: Some(rate),
        ..config()
    })
}

fn denied(reason: Reason, until: Duration) -> Result<(), Denial> {
    Err(Denial {
        reason,
        until: Some(until),
    })
}

/// The moments of the first `n` starts of someone who asks again exactly when told.
fn eager(limiter: &mut Limiter, n: usize) -> Vec<Duration> {
    let mut now = Duration::ZERO;
    (0..n)
        .map(|_| {
            while let Err(denial) = limiter.try_start(now) {
                now = denial.until.expect("a time to ask again");
            }
            now
        })
        .collect()
}

#[test]
fn starts_that_are_spread_come_evenly_and_keep_the_cap() {
    let mut limiter = limiter(&LimiterConfig {
        max_per_sec: Some(40.0),
        ..config()
    });
    limiter.spread();
    let mut now = Duration::from_secs(5);
    let mut starts = Vec::new();
    while starts.len() < 400 {
        match limiter.try_start(now) {
            Ok(()) => starts.push(now),
            Err(denial) => {
                let until = denial.until.expect("a moment");
                assert!(until > now);
                // A timer that is late by up to a few milliseconds.
                now = until + Duration::from_millis(starts.len() as u64 % 5);
            }
        }
    }
    for few in starts.windows(4) {
        assert!(
            few[3] - few[0] >= Duration::from_millis(20),
            "a burst: {few:?}"
        );
    }
    for window in starts.windows(41) {
        assert!(
            window[40] - window[0] >= Duration::from_secs(1),
            "more than 40 a second"
        );
    }
    let length = (starts[399] - starts[0]).as_secs_f64();
    assert!(length < 10.3, "late timers cost nothing: {length}");
}

#[test]
fn the_pace_of_each_kind_of_rate() {
    let ms = |list: &[u64]| {
        list.iter()
            .map(|&n| Duration::from_millis(n))
            .collect::<Vec<_>>()
    };
    for (rate, starts) in [
        (0.5, ms(&[0, 2000, 4000])),
        (0.001, ms(&[0, 1_000_000, 2_000_000])),
        (1.0, ms(&[0, 1000, 2000])),
        (3.0, ms(&[0, 0, 0, 1000, 1000, 1000, 2000])),
        (2.5, ms(&[0, 400, 800, 1200])),
    ] {
        assert_eq!(eager(&mut per_sec(rate), starts.len()), starts, "{rate}");
    }
    // From 100 on a fraction is cut.
    let starts = eager(&mut per_sec(250.9), 501);
    assert_eq!((starts[249], starts[250], starts[500]), (ZERO, S, 2 * S));
    // A third of a second is rounded up, never down.
    assert!(eager(&mut per_sec(1.0 / 3.0), 2)[1] >= 3 * S);
}

#[test]
fn caps_that_cannot_be_kept_are_refused() {
    for rate in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let config = LimiterConfig {
            max_per_sec: Some(rate),
            ..config()
        };
        let error = Limiter::new(&config).expect_err("a bad rate");
        assert!(matches!(error, BadCap::PerSec(_)), "{rate}: {error}");
    }
    for (bytes, day, error) in [
        (Some(0), None, BadCap::BytesPerMin),
        (None, Some(0), BadCap::PerDay),
    ] {
        let config = LimiterConfig {
            max_bytes_per_min: bytes,
            max_per_day: day,
            ..config()
        };
        assert_eq!(Limiter::new(&config).unwrap_err(), error);
    }
    // The extremes of what is allowed work.
    for rate in [f64::MIN_POSITIVE, f64::MAX, 1e-9, 1e18, 99.999_999] {
        assert_eq!(per_sec(rate).try_start(S), Ok(()), "{rate}");
    }
    assert_eq!(per_sec(f64::MIN_POSITIVE).rate.in_last_second(S), 0);
}

#[test]
fn memory_stays_bounded() {
    for rate in [None, Some(1e6), Some(1e4)] {
        let mut limiter = limiter(&LimiterConfig {
            max_per_sec: rate,
            ..config()
        });
        for i in 0..2_000_000_u32 {
            let now = i * (40 * US);
            let _ = limiter.try_start(now);
            limiter.record_bytes(now, u64::MAX / 4);
        }
        let (starts, bytes) = (limiter.rate.groups(), limiter.bytes.groups());
        assert!(starts <= 10_001, "{rate:?}: {starts}");
        assert!(bytes <= 6_001, "{bytes}");
        assert_eq!(limiter.stats(80 * S).bytes_per_min_now, u64::MAX);
        assert_eq!(limiter.bytes.below(80 * S, 1), Some(140 * S - 40 * US));
    }
    // A million a second really are a million.
    let mut fast = per_sec(1e6);
    let allowed = (0..1_500_000).filter(|i| fast.try_start(*i * NS).is_ok());
    assert_eq!(allowed.count(), 1_000_000);
}

#[test]
fn bytes_hold_until_enough_have_left_the_minute() {
    let mut limiter = limiter(&LimiterConfig {
        max_bytes_per_min: Some(100),
        ..config()
    });
    limiter.record_bytes(ZERO, 60);
    limiter.record_bytes(10 * S, 39);
    assert_eq!(limiter.try_start(10 * S), Ok(()));
    limiter.record_bytes(20 * S, 1);
    assert_eq!(limiter.try_start(20 * S), denied(Reason::Bytes, 60 * S));
    // One answer larger than the whole cap.
    limiter.record_bytes(30 * S, 5_000);
    assert_eq!(limiter.try_start(30 * S), denied(Reason::Bytes, 90 * S));
    assert_eq!(limiter.stats(30 * S).bytes_per_min_now, 5_100);
    assert_eq!(limiter.stats(75 * S).bytes_per_min_now, 5_001);
    assert_eq!(limiter.try_start(90 * S), Ok(()));
}

#[test]
fn cooldowns_double_reset_and_honour_the_server() {
    // now, when the call started, retry-after; the wait from now.
    type Breach = (u64, u64, Option<u64>, u64);
    let cases: &[(&str, &[Breach])] = &[
        (
            "each doubles up to 960 s",
            &[
                (0, 0, None, 60),
                (60, 60, None, 120),
                (180, 180, None, 240),
                (420, 420, None, 480),
                (900, 900, None, 960),
                (1860, 1860, None, 960),
            ],
        ),
        (
            "calls in flight when it began do not double it or extend it",
            &[(10, 0, None, 60), (11, 5, None, 59), (12, 10, None, 58)],
        ),
        (
            "nor does one whose own clock says that it started during it",
            &[
                (10, 0, None, 60),
                (12, 11, None, 58),
                (70, 69, None, 60),
                (130, 130, None, 120),
            ],
        ),
        (
            "but one that asks for longer gets it",
            &[
                (10, 0, None, 60),
                (20, 5, Some(90), 90),
                (21, 6, Some(3), 89),
            ],
        ),
        (
            "one from before a cooldown that is over starts another as long",
            &[
                (0, 0, None, 60),
                (60, 60, None, 120),
                (200, 59, None, 120),
                (321, 320, None, 240),
            ],
        ),
        (
            "the longer of the two is honoured",
            &[
                (0, 0, Some(10), 60),
                (60, 60, Some(500), 500),
                (560, 560, Some(500), 500),
                (1060, 1060, None, 480),
            ],
        ),
        (
            "quiet for 300 s after the cooldown: the first again",
            &[
                (0, 0, None, 60),
                (60, 60, None, 120),
                (480, 470, None, 240),
                (1021, 1020, None, 60),
            ],
        ),
        (
            "no cooldown is longer than the longest",
            &[(0, 0, Some(u64::MAX), MAX_COOLDOWN.as_secs())],
        ),
    ];
    for (what, breaches) in cases {
        let mut limiter = limiter(&config());
        for &(now, started, retry_after, wait) in *breaches {
            let (now, started) = (secs(now), secs(started));
            let got = limiter.breach(now, started, retry_after.map(secs));
            assert_eq!(got, secs(wait), "{what}, at {now:?}");
            let until = now + secs(wait);
            assert_eq!(limiter.try_start(now), denied(Reason::Cooldown, until));
            assert_eq!(limiter.try_pass(now), denied(Reason::Cooldown, until));
            assert!(limiter.is_backing_off(until - NS) && !limiter.is_backing_off(until));
        }
        assert_eq!(limiter.breaches(), breaches.len() as u64);
    }
}

#[test]
fn a_told_breach_can_lengthen_its_cooldown_only() {
    let mut limiter = limiter(&config());
    limiter.lengthen_cooldown(ZERO, 500 * S);
    assert!(!limiter.is_backing_off(ZERO), "there is none to lengthen");
    limiter.breach(S, ZERO, None);
    for (retry_after, until) in [(10, 61), (100, 101), (50, 101)] {
        limiter.lengthen_cooldown(S, secs(retry_after));
        assert_eq!(limiter.backing_off_until(S), Some(secs(until)));
    }
    assert_eq!(limiter.breaches(), 1);
    assert_eq!(
        limiter.breach(101 * S, 101 * S, None),
        120 * S,
        "one doubling"
    );
}

#[test]
fn absurd_settings_of_the_cooldown_do_not_overflow() {
    let mut limiter = limiter(&LimiterConfig {
        breach_base_cooldown: Duration::MAX,
        breach_max_doublings: u32::MAX,
        breach_quiet_window: Duration::MAX,
        ..config()
    });
    for _ in 0..40 {
        assert_eq!(limiter.breach(S, 2 * S, Some(Duration::MAX)), MAX_COOLDOWN);
    }
    for _ in 0..40 {
        let now = limiter.latest + MAX_COOLDOWN;
        assert_eq!(limiter.breach(now, now, None), MAX_COOLDOWN);
    }
    assert_eq!(limiter.breach(Duration::MAX, S, None), Duration::ZERO);
    assert!(!limiter.is_backing_off(Duration::MAX));
    limiter.record_bytes(Duration::MAX, 1);
}

#[test]
fn a_denial_names_what_holds_longest() {
    let mut limiter = limiter(&LimiterConfig {
        max_per_sec: Some(0.01),
        max_bytes_per_min: Some(1),
        max_per_day: Some(2),
        ..config()
    });
    assert_eq!(limiter.try_start(ZERO), Ok(()));
    assert_eq!(limiter.try_start(ZERO), denied(Reason::Rate, 100 * S));
    limiter.breach(10 * S, ZERO, None);
    assert_eq!(limiter.try_start(10 * S), denied(Reason::Rate, 100 * S));
    limiter.record_bytes(50 * S, 1);
    assert_eq!(limiter.try_start(50 * S), denied(Reason::Bytes, 110 * S));
    assert_eq!(limiter.try_pass(50 * S), denied(Reason::Cooldown, 70 * S));
    // Equal: the cooldown is the server's word.
    limiter.breach(55 * S, ZERO, Some(55 * S));
    assert_eq!(limiter.try_start(60 * S), denied(Reason::Cooldown, 110 * S));
    assert_eq!(limiter.try_start(110 * S), Ok(()));
    assert_eq!(limiter.try_start(300 * S), denied(Reason::Day, 86_400 * S));
    assert_eq!(limiter.try_pass(300 * S), denied(Reason::Day, 86_400 * S));
    assert_eq!(
        limiter.stats(110 * S),
        Stats {
            // An earlier moment counts as the latest seen.
            req_per_sec_now: 0,
            bytes_per_min_now: 0,
            daily_count: 2,
            total_requests_this_process: 2,
            backing_off: false,
            backoff_remaining_s: 0.0,
        }
    );
}

#[test]
fn nothing_starts_without_a_lease() {
    let mut limiter = Limiter::new(&config()).unwrap();
    let unleased = Err(Denial {
        reason: Reason::Lease,
        until: None,
    });
    assert_eq!(limiter.try_start(S), unleased);
    limiter.breach(S, S, None);
    assert_eq!(limiter.try_start(S), denied(Reason::Cooldown, 61 * S));
    let stats = limiter.stats(2 * S);
    assert!(stats.backing_off);
    assert_eq!(stats.backoff_remaining_s, 59.0);
    assert_eq!(stats.total_requests_this_process, 0);
}

#[derive(Debug, Clone)]
enum Event {
    Start,
    Bytes(u64),
    Breach { age: u64, retry_after: Option<u64> },
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    // Gaps in microseconds: many at once, some close together, some long.
    let gap = prop_oneof![4 => Just(0), 4 => 0_u64..400_000, 1 => 0_u64..90_000_000];
    let event = prop_oneof![
        12 => Just(Event::Start),
        3 => (0_u64..60).prop_map(Event::Bytes),
        1 => (0_u64..200, prop::option::of(0_u64..100))
            .prop_map(|(age, retry_after)| Event::Breach { age, retry_after }),
    ];
    prop::collection::vec((gap, event), 1..300)
}

proptest! {
    /// Against what a list of all events says.
    #[test]
    fn keeps_every_cap_and_says_exactly_when(
        rate in prop::option::of(prop_oneof![
            Just(1.0), Just(3.0), Just(20.0), Just(0.3), Just(2.5), Just(7.1), Just(20_000.0), Just(150.5)
        ]),
        cap in prop::option::of(1_u64..200),
        base in 0_u64..20,
        events in events(),
    ) {
        let mut limiter = limiter(&LimiterConfig {
            max_per_sec: rate,
            max_bytes_per_min: cap,
            breach_base_cooldown: secs(base),
            ..config()
        });
        let (mut now, mut starts, mut bytes) = (Duration::ZERO, Vec::new(), Vec::new());
        let mut cooling = Duration::ZERO;
        for (gap, event) in events {
            now += Duration::from_micros(gap);
            match event {
                Event::Bytes(n) => {
                    limiter.record_bytes(now, n);
                    bytes.push((now, n));
                }
                Event::Breach { age, retry_after } => {
                    let retry_after = retry_after.map(secs);
                    let wait = limiter.breach(now, now.saturating_sub(secs(age)), retry_after);
                    prop_assert!(now + wait >= cooling, "a cooldown only moves later");
                    prop_assert!(wait >= retry_after.unwrap_or_default());
                    // A breach cools down for the base at least, or a cooldown was running.
                    prop_assert!(now < cooling || wait >= secs(base));
                    cooling = now + wait;
                }
                Event::Start => match limiter.try_start(now) {
                    Ok(()) => {
                        prop_assert!(now >= cooling);
                        starts.push(now);
                        let recent = |span: Duration| move |at: &Duration| *at + span > now;
                        match rate {
                            Some(rate) if rate.fract() == 0.0 || rate > 100.0 => {
                                let n = starts.iter().copied().filter(|at| recent(S)(at)).count();
                                prop_assert!(n <= rate as usize, "{n} starts in a second");
                            }
                            Some(rate) => {
                                for (back, earlier) in starts.iter().rev().enumerate() {
                                    let least = back as f64 / rate;
                                    prop_assert!((now - *earlier).as_secs_f64() >= least - 1e-6);
                                }
                            }
                            None => {}
                        }
                        if let Some(cap) = cap {
                            let sum: u64 = bytes.iter().filter(|(at, _)| *at + 60 * S > now).map(|(_, n)| n).sum();
                            prop_assert!(sum < cap);
                        }
                    }
                    Err(denial) => {
                        let until = denial.until.expect("a time to ask again");
                        prop_assert!(until > now);
                        for early in [until - NS, now + (until - now) / 2] {
                            prop_assert!(limiter.clone().try_start(early).is_err());
                        }
                        prop_assert_eq!(limiter.clone().try_start(until), Ok(()));
                        // It is not held for nothing: just before, the list says so too.
                        let before = until - NS;
                        match denial.reason {
                            Reason::Cooldown => prop_assert_eq!(until, cooling),
                            Reason::Rate if rate == Some(20_000.0) => {}
                            Reason::Rate => {
                                let rate = rate.expect("a rate");
                                let last = *starts.last().expect("an earlier start");
                                if rate.fract() == 0.0 || rate > 100.0 {
                                    let n = starts.iter().filter(|at| **at + S > before).count();
                                    prop_assert!(n >= rate as usize);
                                } else {
                                    prop_assert!((until - last).as_secs_f64() <= 1.0 / rate + 1e-6);
                                }
                            }
                            Reason::Bytes => {
                                let span = 60 * S + BYTES_GRAIN;
                                let sum: u64 = bytes.iter().filter(|(at, _)| *at + span > before).map(|(_, n)| n).sum();
                                prop_assert!(sum >= cap.expect("a cap"));
                            }
                            Reason::Day | Reason::Lease => prop_assert!(false, "{denial:?}"),
                        }
                    }
                },
            }
        }
    }
}

#[test]
fn a_cap_that_cannot_be_kept_is_named() {
    let words = [
        (
            BadCap::PerSec(-1.0),
            "max_per_sec = -1: must be a number above 0",
        ),
        (
            BadCap::BytesPerMin,
            "max_bytes_per_min = 0: must be at least 1",
        ),
        (BadCap::PerDay, "max_per_day = 0: must be at least 1"),
    ];
    for (bad, says) in words {
        let text = bad.to_string();
        assert!(text.starts_with(says), "{text}");
        assert!(text.ends_with("; leave it out for no cap"), "{text}");
    }
}

#[test]
fn no_cooldown_is_longer_than_31_days() {
    assert_eq!(MAX_COOLDOWN.as_secs(), 2_678_400);
}

#[test]
fn the_starts_of_the_last_second_are_counted() {
    let mut limiter = per_sec(100.0);
    eager(&mut limiter, 10);
    let stats = limiter.stats(S / 2);
    assert_eq!(
        (stats.req_per_sec_now, stats.total_requests_this_process),
        (10, 10)
    );
    assert_eq!(limiter.stats(3 * S).req_per_sec_now, 0);
}
