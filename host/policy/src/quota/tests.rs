#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

fn day(id: i32) -> Day {
    Day {
        id: DayId(id),
        ends: DAY * u32::try_from(id + 1).unwrap(),
    }
}

fn empty(id: i32) -> Ledger {
    Ledger {
        day: DayId(id),
        count: 0,
    }
}

/// What a host does before a start; whether it may start.
fn start(quota: &mut Quota, ledger: &mut Ledger) -> bool {
    if quota.hold() == Hold::Unleased {
        lease(quota, ledger);
    }
    let free = quota.hold() == Hold::Free;
    if free {
        quota.take();
    }
    free
}

fn lease(quota: &mut Quota, ledger: &mut Ledger) {
    if let Some(wanted) = quota.wanted() {
        let granted = ledger.lease(wanted, quota.cap()).unwrap();
        quota.grant(wanted, granted);
    }
}

#[test]
fn blocks_are_a_hundredth_of_the_cap_and_at_least_one() {
    for (cap, durable, block) in [
        (Some(1), true, 1),
        (Some(199), true, 1),
        (Some(200), true, 2),
        (Some(1_000_000), true, 10_000),
        (None, true, UNCAPPED_BLOCK),
        (Some(500), false, 500),
        (None, false, u64::MAX),
    ] {
        let mut quota = Quota::new(cap, durable);
        assert_eq!(quota.wanted(), None, "no lease before the day is known");
        quota.set_day(day(3));
        let wanted = quota.wanted().unwrap();
        assert_eq!((wanted.day, wanted.starts), (DayId(3), block), "{cap:?}");
    }
}

#[test]
fn the_next_lease_is_asked_for_at_half_a_block() {
    let (mut quota, mut ledger) = (Quota::new(Some(1_000), true), empty(0));
    quota.set_day(day(0));
    lease(&mut quota, &mut ledger);
    for left in (0..10).rev() {
        quota.take();
        let asked = quota.wanted().map(|wanted| wanted.starts);
        assert_eq!(asked, (left <= 5).then_some(10 - left), "{left} left");
    }
    assert_eq!(quota.hold(), Hold::Unleased);
}

#[test]
fn a_day_is_spent_until_it_ends_and_the_next_is_fresh() {
    let (mut quota, mut ledger) = (Quota::new(Some(5), true), empty(0));
    quota.set_day(day(0));
    assert_eq!((0..9).filter(|_| start(&mut quota, &mut ledger)).count(), 5);
    assert_eq!(quota.hold(), Hold::Spent { until: DAY });
    assert_eq!((quota.wanted(), quota.daily_count()), (None, 5));
    // The end of a day may be corrected; that does not make a new day of it.
    quota.set_day(Day {
        id: DayId(0),
        ends: DAY * 3,
    });
    assert_eq!(quota.hold(), Hold::Spent { until: DAY * 3 });
    quota.set_day(day(1));
    assert_eq!(quota.daily_count(), 0);
    assert_eq!((0..9).filter(|_| start(&mut quota, &mut ledger)).count(), 5);
    assert_eq!((ledger.day, ledger.count), (DayId(1), 5));
}

#[test]
fn a_lease_for_a_day_that_is_over_is_dropped() {
    let (mut quota, mut ledger) = (Quota::new(Some(500), true), empty(0));
    quota.set_day(day(0));
    let wanted = quota.wanted().unwrap();
    let granted = ledger.lease(wanted, Some(500)).unwrap();
    quota.set_day(day(1));
    quota.grant(wanted, granted);
    assert_eq!(quota.hold(), Hold::Unleased);
}

#[test]
fn what_is_not_used_can_be_given_back_on_its_day_alone() {
    let (mut quota, mut ledger) = (Quota::new(Some(1_000), true), empty(7));
    quota.set_day(day(7));
    for _ in 0..3 {
        assert!(start(&mut quota, &mut ledger));
    }
    let (on, unused) = quota.take_unused().unwrap();
    assert_eq!((on, unused, quota.daily_count()), (DayId(7), 7, 3));
    assert_eq!(quota.take_unused(), None);
    ledger.give_back(DayId(6), 2);
    assert_eq!(ledger.count, 10);
    ledger.give_back(on, unused);
    assert_eq!(ledger.count, 3);
    ledger.give_back(on, 99);
    assert_eq!(ledger.count, 0);
}

#[test]
fn a_ledger_from_the_future_gives_nothing() {
    let wanted = Wanted {
        day: DayId(10),
        starts: 4,
    };
    let mut tomorrow = Ledger {
        day: DayId(11),
        count: 2,
    };
    let granted = tomorrow.lease(wanted, Some(100)).unwrap();
    assert_eq!(granted.starts, 0);
    assert_eq!((tomorrow.day, tomorrow.count), (DayId(11), 2));
    for (ahead, days) in [(12, 2), (i32::MAX, i32::MAX.unsigned_abs() - 10)] {
        let error = empty(ahead).lease(wanted, Some(100)).unwrap_err();
        assert_eq!(error, DayAhead { days });
    }
    // Without a cap it counts on.
    let granted = tomorrow.lease(wanted, None).unwrap();
    assert_eq!((granted.starts, granted.counted), (4, 6));
    assert_eq!(empty(i32::MAX).lease(wanted, None).unwrap().starts, 4);
    // A count above the cap, as a lowered cap leaves it, gives nothing either.
    let mut over = Ledger {
        day: DayId(10),
        count: u64::MAX,
    };
    assert_eq!(over.lease(wanted, Some(100)).unwrap().starts, 0);
}

proptest! {
    /// Several processes share a ledger, die at any moment and pass midnight.
    #[test]
    fn never_more_than_the_cap_and_a_crash_wastes_at_most_a_block(
        cap in 1_u64..2_000,
        steps in prop::collection::vec((0_usize..3, 0_u8..100), 1..600),
    ) {
        let block = (cap / 100).max(1);
        let mut today = 0;
        let mut ledger = empty(0);
        let fresh = || Quota::new(Some(cap), true);
        let mut hosts = [fresh(), fresh(), fresh()];
        let (mut sent, mut wasted) = (0, 0);
        for (who, what) in steps {
            match what {
                0 => {
                    today += 1;
                    (sent, wasted) = (0, 0);
                }
                1..5 => {
                    let died = std::mem::replace(&mut hosts[who], fresh());
                    let unused = if died.day.is_some_and(|d| d.id == DayId(today)) { died.left } else { 0 };
                    prop_assert!(unused <= block);
                    wasted += unused;
                }
                5..10 => {
                    if let Some((on, unused)) = hosts[who].take_unused() {
                        ledger.give_back(on, unused);
                    }
                }
                10..30 => {
                    hosts[who].set_day(day(today));
                    lease(&mut hosts[who], &mut ledger);
                }
                _ => {
                    hosts[who].set_day(day(today));
                    for _ in 0..what {
                        sent += u64::from(start(&mut hosts[who], &mut ledger));
                    }
                }
            }
            prop_assert!(sent <= cap);
        }
        // What is neither sent nor wasted nor held can still be sent.
        let held: u64 = hosts.iter().filter(|h| h.day.is_some_and(|d| d.id == DayId(today))).map(|h| h.left).sum();
        let mut last = fresh();
        last.set_day(day(today));
        let mut more = 0;
        while start(&mut last, &mut ledger) {
            more += 1;
        }
        prop_assert_eq!(sent + wasted + held + more, cap);
    }
}

#[test]
fn what_was_counted_before_the_first_lease_is_known() {
    let mut quota = Quota::new(Some(100), true);
    quota.resume(day(3), 42);
    assert_eq!((quota.daily_count(), quota.hold()), (42, Hold::Unleased));
    assert_eq!(quota.wanted().unwrap().day, DayId(3));
}

#[test]
fn a_ledger_that_counts_tomorrow_leaves_nothing_of_today() {
    let mut quota = Quota::new(Some(10), true);
    quota.set_day(day(3));
    lease(&mut quota, &mut empty(4));
    let until = day(3).ends;
    assert_eq!(quota.hold(), Hold::Spent { until });
    assert_eq!(quota.wanted(), None);
}

#[test]
fn a_day_that_lies_ahead_is_named() {
    let text = DayAhead { days: 12 }.to_string();
    assert!(text.contains("12 days ahead of today"), "{text}");
}
