use super::*;
use crate::controller::CLEARED;
use proptest::prelude::*;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

const LIMITS: EachSignal<f64> = EachSignal {
    cpu: 0.4,
    memory: 0.2,
    lag: 0.6,
    breaches: 0.3,
};

fn config(min: u32, desired: u32, max: u32) -> Config {
    Config {
        levels: Levels { min, desired, max },
        max_tasks_per_minute: None,
        step: 0.05,
        current: secs(5.0),
        history: secs(30.0),
        limits: LIMITS,
    }
}

fn weight(weight: f64) -> Share {
    Share {
        weight,
        ..Share::default()
    }
}

/// Records a sample of every signal at each half second of this span.
fn sample(budget: &mut Budget, from: u64, to: u64, cpu_overloaded: bool) {
    for half in from * 2..=to * 2 {
        let now = Duration::from_millis(half * 500);
        for signal in Signal::ALL {
            budget.record(now, signal, cpu_overloaded && signal == Signal::Cpu);
        }
    }
}

fn start(budget: &mut Budget, now: f64, id: ConsumerId, ready: u32) -> Result<(), Refusal> {
    budget.try_start(secs(now), id, ready, || true)
}

/// Starts all that this consumer may; says how many.
fn fill(budget: &mut Budget, now: f64, id: ConsumerId, workers: u32) -> u32 {
    let mut started = 0;
    loop {
        let ready = workers.saturating_sub(in_flight(budget, id));
        if start(budget, now, id, ready).is_err() {
            break;
        }
        started += 1;
    }
    started
}

fn standing(budget: &mut Budget, id: ConsumerId) -> Standing {
    let latest = budget.latest;
    let all = budget.standings(latest);
    *all.iter()
        .find(|standing| standing.id == id)
        .expect("joined")
}

fn in_flight(budget: &mut Budget, id: ConsumerId) -> u32 {
    standing(budget, id).in_flight
}

mod load {
    use super::*;

    fn ratio(load: &Load, signal: Signal, now: f64, window: f64) -> Option<f64> {
        let verdict = load.judge(secs(now), secs(window));
        let judged = verdict.signals().iter().find(|j| j.signal == signal);
        judged.expect("every signal is judged").ratio
    }

    fn cpu(samples: &[(f64, bool)]) -> Load {
        let mut load = Load::new(LIMITS, secs(30.0));
        for (at, overloaded) in samples {
            load.record(Signal::Cpu, secs(*at), *overloaded);
        }
        load
    }

    #[test]
    fn the_ratio_is_that_of_the_intervals_whose_later_sample_is_overloaded() {
        let one_by_one: Vec<_> = (0..=10).map(|n| (f64::from(n), n % 3 == 0)).collect();
        for (samples, now, window, expected) in [
            (vec![], 0.0, 5.0, None),
            (vec![(1.0, true)], 1.0, 5.0, None),
            (vec![(1.0, true), (2.0, false)], 2.0, 5.0, Some(0.0)),
            (vec![(1.0, false), (2.0, true)], 2.0, 5.0, Some(1.0)),
            (
                vec![(1.0, false), (4.0, true), (5.0, false)],
                5.0,
                5.0,
                Some(0.75),
            ),
            // Only the part inside the window: 2 s of the first interval.
            (
                vec![(1.0, false), (4.0, true), (5.0, false)],
                5.0,
                3.0,
                Some(2.0 / 3.0),
            ),
            // Counted from now, not from the last sample.
            (
                vec![(1.0, false), (4.0, true), (5.0, false)],
                6.5,
                3.0,
                Some(0.5 / 1.5),
            ),
            (one_by_one.clone(), 10.0, 5.0, Some(2.0 / 5.0)),
            // Later samples at 3, 6 and 9.
            (one_by_one, 10.0, 30.0, Some(0.3)),
            // No interval lies in so short a window: the latest sample counts.
            (vec![(1.0, false), (2.0, true)], 2.5, 0.1, Some(1.0)),
            (vec![(1.0, true), (2.0, false)], 2.5, 0.1, Some(0.0)),
            // A second sample at one moment ends no interval.
            (
                vec![(1.0, false), (2.0, true), (2.0, false)],
                2.5,
                0.1,
                Some(1.0),
            ),
            // Stale.
            (vec![(1.0, false), (2.0, true)], 5.0, 30.0, Some(1.0)),
            (vec![(1.0, false), (2.0, true)], 5.1, 30.0, None),
            // A clock that goes back adds nothing.
            (
                vec![(2.0, false), (1.0, true), (3.0, true)],
                3.0,
                5.0,
                Some(1.0),
            ),
        ] {
            let load = cpu(&samples);
            let found = ratio(&load, Signal::Cpu, now, window);
            let close = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
                (found, expected) => found == expected,
            };
            assert!(
                close,
                "{samples:?} at {now} in {window}: {found:?}, not {expected:?}"
            );
        }
    }

    #[test]
    fn a_sensor_that_failed_is_unknown_until_it_has_an_interval_again() {
        let mut load = cpu(&[(1.0, true), (2.0, true)]);
        load.fail(Signal::Cpu);
        assert_eq!(ratio(&load, Signal::Cpu, 2.0, 5.0), None);
        load.record(Signal::Cpu, secs(3.0), false);
        load.record(Signal::Cpu, secs(4.0), false);
        // The second of the failure is no interval.
        assert_eq!(ratio(&load, Signal::Cpu, 4.0, 5.0), Some(0.5));
        assert_eq!(ratio(&load, Signal::Memory, 4.0, 5.0), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut load = cpu(&[]);
        for n in 0..1000 {
            load.record(Signal::Cpu, secs(0.7 * f64::from(n)), n % 2 == 0);
        }
        assert!(load.runs(Signal::Cpu) <= 44, "{}", load.runs(Signal::Cpu));
        // What does not change is kept as one, but for a gap.
        let mut steady = Load::new(LIMITS, secs(1e8));
        for n in 0..1000 {
            steady.record(Signal::Cpu, secs(f64::from(n)), false);
            if n == 500 {
                steady.fail(Signal::Cpu);
            }
        }
        assert_eq!(steady.runs(Signal::Cpu), 2);
        let mut long = Load::new(LIMITS, secs(1e8));
        for n in 0..100_000 {
            long.record(Signal::Cpu, secs(f64::from(n)), n % 2 == 0);
        }
        assert_eq!(long.runs(Signal::Cpu), super::super::load::MAX_RUNS);
    }

    #[test]
    fn a_verdict_reads_as_a_sentence() {
        let mut load = Load::new(LIMITS, secs(30.0));
        let text = |load: &Load| load.judge(secs(50.0), secs(50.0)).to_string();
        assert_eq!(
            text(&load),
            "not overloaded; unknown: cpu, memory, runtime lag, breaches"
        );
        for signal in Signal::ALL {
            load.record(signal, secs(0.0), false);
            load.record(signal, secs(42.0), signal == Signal::Lag);
            load.record(signal, secs(50.0), false);
        }
        assert_eq!(
            text(&load),
            "overloaded: runtime lag 84% of the time (limit 60%)"
        );
        load.fail(Signal::Breaches);
        load.record(Signal::Cpu, secs(50.0), false);
        assert_eq!(
            text(&load),
            "overloaded: runtime lag 84% of the time (limit 60%); unknown: breaches"
        );
        let mut both = cpu(&[(0.0, false), (29.0, true), (50.0, false)]);
        both.record(Signal::Memory, secs(0.0), false);
        both.record(Signal::Memory, secs(50.0), true);
        both.record(Signal::Lag, secs(0.0), false);
        both.record(Signal::Lag, secs(50.0), false);
        both.record(Signal::Breaches, secs(0.0), false);
        both.record(Signal::Breaches, secs(50.0), false);
        let verdict = both.judge(secs(50.0), secs(50.0));
        let words =
            "overloaded: cpu 58% of the time (limit 40%), memory 100% of the time (limit 20%)";
        assert_eq!(verdict.to_string(), words);
        assert!(verdict.known() && verdict.overloaded());
        // Other figures, the same verdict.
        assert!(verdict.agrees(&both.judge(secs(51.0), secs(50.0))));
        assert!(!verdict.agrees(&both.judge(secs(60.0), secs(50.0))));
    }

    #[test]
    fn a_ratio_at_its_limit_is_not_overloaded() {
        let at = |overloaded: f64| {
            let load = cpu(&[(0.0, false), (overloaded, true), (10.0, false)]);
            load.judge(secs(10.0), secs(10.0)).overloaded()
        };
        assert!(!at(4.0) && at(4.1));
    }

    #[test]
    fn intervals_are_those_of_the_table() {
        let millis = Signal::ALL.map(|signal| signal.interval().as_millis());
        assert_eq!(millis, [1000, 1000, 500, 1000]);
    }
}

mod scaling {
    use super::*;

    fn ticks(from: u32, to: u32, overloaded: bool) -> u32 {
        let mut budget = Budget::new(&config(1, from, 100));
        budget.join(1, Share::default()).expect("joins");
        let mut now = 0;
        let mut ticks = 0;
        while budget.levels().desired != to {
            sample(&mut budget, now, now + 10, overloaded);
            now += 10;
            if !overloaded {
                fill(&mut budget, now as f64, 1, 1000);
            }
            budget.tick(Duration::from_secs(now));
            ticks += 1;
            assert!(ticks < 1000, "{from} to {to} never ends");
        }
        ticks
    }

    #[test]
    fn takes_as_many_ticks_as_the_rules_say() {
        assert_eq!(ticks(10, 100, false), 37);
        assert_eq!(ticks(100, 1, true), 44);
    }

    #[test]
    fn grows_only_while_it_is_used_known_idle_and_not_refused_by_the_rate() {
        // In use, samples, starts a minute; the desired level after a tick.
        for (in_use, overloaded, cap, expected) in [
            (10, Some(false), None, 11),
            (9, Some(false), None, 11),
            (8, Some(false), None, 10),
            (10, None, None, 10),
            (10, Some(true), None, 9),
            (0, Some(true), None, 9),
            (10, Some(false), Some(10), 10),
            (10, Some(false), Some(11), 11),
            (10, Some(true), Some(10), 9),
        ] {
            let mut budget = Budget::new(&Config {
                max_tasks_per_minute: cap,
                ..config(1, 10, 100)
            });
            budget.join(1, Share::default()).expect("joins");
            assert_eq!(fill(&mut budget, 0.0, 1, in_use), in_use);
            if let Some(overloaded) = overloaded {
                sample(&mut budget, 0, 10, overloaded);
            }
            budget.tick(secs(10.0));
            let desired = budget.levels().desired;
            let case = (in_use, overloaded, cap);
            assert_eq!(desired, expected, "{case:?}");
        }
    }

    #[test]
    fn one_unknown_signal_holds_growth_but_not_shrinking() {
        for (bad, expected) in [(false, 10), (true, 9)] {
            let mut budget = Budget::new(&config(1, 10, 100));
            budget.join(1, Share::default()).expect("joins");
            fill(&mut budget, 0.0, 1, 10);
            sample(&mut budget, 0, 10, bad);
            budget.fail(secs(10.0), Signal::Memory);
            budget.tick(secs(10.0));
            assert_eq!(budget.levels().desired, expected);
        }
    }

    #[test]
    fn levels_are_put_in_order_and_stay_between_their_bounds() {
        for (given, expected) in [
            ((0, 0, 0), (1, 1, 1)),
            ((5, 1, 9), (5, 5, 9)),
            ((5, 99, 9), (5, 9, 9)),
            ((5, 7, 3), (5, 5, 5)),
        ] {
            let (min, desired, max) = given;
            let levels = Budget::new(&config(min, desired, max)).levels();
            assert_eq!((levels.min, levels.desired, levels.max), expected);
        }
        let mut budget = Budget::new(&config(4, 5, 5));
        budget.join(1, Share::default()).expect("joins");
        fill(&mut budget, 0.0, 1, 5);
        sample(&mut budget, 0, 10, false);
        budget.tick(secs(10.0));
        assert_eq!(budget.levels().desired, 5);
        sample(&mut budget, 10, 60, true);
        for _ in 0..5 {
            budget.tick(secs(60.0));
        }
        assert_eq!(budget.levels().desired, 4);
    }

    #[test]
    fn the_largest_levels_do_not_overflow() {
        let mut budget = Budget::new(&Config {
            step: 1.0,
            ..config(1, u32::MAX - 1, u32::MAX)
        });
        sample(&mut budget, 0, 10, false);
        budget.in_use = u32::MAX;
        budget.tick(secs(10.0));
        assert_eq!(budget.levels().desired, u32::MAX);
        sample(&mut budget, 10, 60, true);
        budget.tick(secs(60.0));
        assert_eq!(budget.levels().desired, 1);
    }

    fn row(key: &str, value: &str) -> Override {
        Override {
            key: key.into(),
            value: value.into(),
        }
    }

    fn said(budget: &mut Budget, rows: &[(&str, &str)]) -> Vec<String> {
        let rows: Vec<_> = rows.iter().map(|(key, value)| row(key, value)).collect();
        budget.apply(&rows).iter().map(Retuned::to_string).collect()
    }

    #[test]
    fn is_retuned_while_it_runs() {
        let mut budget = Budget::new(&config(2, 10, 100));
        let steps: [(&[(&str, &str)], &str); 11] = [
            (&[("workers", "3"), ("pause", "true")], ""),
            (
                &[("budget_max", "8")],
                "desired 10 of 2..100 -> desired 8 of 2..8",
            ),
            (
                &[("budget_min", "9")],
                "refused: budget_min=9 is above budget_max=8; the former bounds stay until one of them is changed",
            ),
            // What was asked for is in force as soon as it makes sense.
            (
                &[("budget_max", "12")],
                "desired 8 of 2..8 -> desired 9 of 9..12",
            ),
            (
                &[("budget_min", CLEARED)],
                "desired 9 of 9..12 -> desired 9 of 2..12",
            ),
            (
                &[("budget_desired", "50")],
                "budget_desired=50 is outside 2..12: taken as 12|desired 9 of 2..12 -> desired 12 of 2..12",
            ),
            (
                &[("budget_desired", " 5 ")],
                "desired 12 of 2..12 -> desired 5 of 2..12",
            ),
            (&[("budget_desired", CLEARED)], ""),
            (
                &[("budget_max", "many"), ("budget_min", "0")],
                "ignored budget_max=many: not a whole number of at least 1|\
                 ignored budget_min=0: not a whole number of at least 1",
            ),
            (
                &[("budget_max", "200"), ("budget_min", "150")],
                "desired 5 of 2..12 -> desired 150 of 150..200",
            ),
            (
                &[
                    ("budget_max", CLEARED),
                    ("budget_min", CLEARED),
                    ("budget_desired", "7"),
                ],
                "desired 150 of 150..200 -> desired 7 of 2..100",
            ),
        ];
        for (rows, expected) in steps {
            assert_eq!(said(&mut budget, rows).join("|"), expected, "{rows:?}");
        }
    }

    #[test]
    fn a_restart_forgets_samples_and_levels_but_no_call() {
        let mut budget = Budget::new(&config(1, 10, 100));
        budget.join(1, Share::default()).expect("joins");
        fill(&mut budget, 0.0, 1, 4);
        sample(&mut budget, 0, 10, true);
        budget.tick(secs(10.0));
        assert_eq!((budget.levels().desired, budget.slots(secs(10.0))), (9, 1));
        budget.restart(&config(1, 10, 100));
        assert_eq!(
            (budget.levels().desired, budget.slots(secs(10.0))),
            (10, 10)
        );
        assert_eq!((budget.in_use(), in_flight(&mut budget, 1)), (4, 4));
    }
}

mod starts_per_minute {
    use super::*;

    #[test]
    fn a_start_counts_for_sixty_seconds_however_late_the_clock_is_looked_at() {
        let mut starts = Starts::new(Some(3));
        for at in [0.2, 0.9, 30.0] {
            assert_eq!(starts.held_until(secs(at)), None);
            starts.book(secs(at));
        }
        assert_eq!(
            (starts.count(secs(31.0)), starts.left(secs(31.0))),
            (3, Some(0))
        );
        assert_eq!(starts.held_until(secs(31.0)), Some(secs(61.0)));
        assert_eq!(starts.held_until(secs(60.95)), Some(secs(61.0)));
        // Two leave at once.
        assert_eq!(
            (starts.held_until(secs(61.0)), starts.left(secs(61.0))),
            (None, Some(2))
        );
        starts.book(secs(61.0));
        starts.book(secs(61.0));
        assert_eq!(starts.held_until(secs(61.0)), Some(secs(91.0)));
        // A very late look.
        assert_eq!(starts.count(secs(1e6)), 0);
        // A clock that goes back.
        starts.book(secs(1e6));
        assert_eq!(starts.count(secs(5.0)), 1);
    }

    #[test]
    fn no_cap_holds_nothing_and_still_counts() {
        let mut starts = Starts::new(None);
        starts.book(secs(1.0));
        assert_eq!(
            (starts.held_until(secs(1.0)), starts.left(secs(1.0))),
            (None, None)
        );
        assert_eq!(starts.count(secs(1.0)), 1);
    }

    #[test]
    fn a_refused_start_books_nothing() {
        let mut budget = Budget::new(&Config {
            max_tasks_per_minute: Some(1),
            ..config(1, 10, 100)
        });
        budget.join(1, Share::default()).expect("joins");
        assert_eq!(
            budget.try_start(secs(0.0), 1, 5, || false),
            Err(Refusal::Further)
        );
        assert_eq!(
            (budget.started_last_minute(secs(0.0)), budget.in_use()),
            (0, 0)
        );
        assert_eq!(start(&mut budget, 0.0, 1, 5), Ok(()));
        for _ in 0..3 {
            let until = secs(61.0);
            let refused = start(&mut budget, 1.0, 1, 4);
            assert_eq!(refused, Err(Refusal::Rate { until, own: false }));
        }
        assert_eq!(
            (budget.started_last_minute(secs(1.0)), budget.in_use()),
            (1, 1)
        );
        // There is no use in waking it before.
        assert_eq!(budget.woken(secs(2.0)), []);
        assert_eq!(budget.woken(secs(61.0)), [1]);
    }

    #[test]
    fn a_consumer_may_have_its_own_cap_and_leaves_its_slots_to_others_meanwhile() {
        let mut budget = Budget::new(&config(1, 4, 100));
        let own = Share {
            max_tasks_per_minute: Some(2),
            ..Share::default()
        };
        budget.join(1, own).expect("joins");
        budget.join(2, Share::default()).expect("joins");
        budget.demand(1, 9);
        assert_eq!(fill(&mut budget, 0.0, 2, 9), 2);
        assert_eq!(fill(&mut budget, 0.0, 1, 9), 2);
        budget.end(1);
        budget.end(1);
        let until = secs(61.0);
        assert_eq!(
            start(&mut budget, 1.0, 1, 9),
            Err(Refusal::Rate { until, own: true })
        );
        assert_eq!(budget.woken(secs(1.0)), [2]);
        assert_eq!(fill(&mut budget, 1.0, 2, 9), 2);
        assert_eq!(budget.in_use(), 4);
    }

    proptest! {
        #[test]
        fn never_more_than_the_cap_in_any_minute(
            max in 1u32..8,
            steps in prop::collection::vec(0u64..30_000, 1..120),
        ) {
            let mut starts = Starts::new(Some(max));
            let mut now = Duration::ZERO;
            let mut booked: Vec<Duration> = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                match starts.held_until(now) {
                    None => {
                        starts.book(now);
                        booked.push(now);
                        let since = now.saturating_sub(secs(60.0));
                        let last = booked.iter().filter(|at| **at > since).count();
                        prop_assert!(last <= max as usize);
                    }
                    Some(until) => {
                        prop_assert!(until > now);
                        // Waiting exactly as told succeeds, any less fails.
                        let before = until - Duration::from_nanos(1);
                        prop_assert!(starts.clone().held_until(before).is_some());
                        prop_assert!(starts.clone().held_until(until).is_none());
                    }
                }
            }
        }
    }
}

mod fair_shares {
    use super::*;

    fn demand(weight: f64, guarantee: u32, cap: u32) -> Demand {
        Demand {
            weight,
            guarantee,
            cap,
            idle: false,
            served: 0,
        }
    }

    #[test]
    fn by_weight_guarantee_and_demand() {
        let d = demand;
        for (slots, demands, expected) in [
            (16, vec![], vec![]),
            (16, vec![d(1.0, 0, 40)], vec![16]),
            (16, vec![d(1.0, 0, 40), d(1.0, 0, 40)], vec![8, 8]),
            (16, vec![d(3.0, 0, 40), d(1.0, 0, 40)], vec![12, 4]),
            // What one cannot use, the others get.
            (16, vec![d(3.0, 0, 2), d(1.0, 0, 40)], vec![2, 14]),
            (16, vec![d(3.0, 0, 2), d(1.0, 0, 5)], vec![2, 5]),
            (
                16,
                vec![d(1.0, 0, 9), d(1.0, 0, 9), d(1.0, 0, 9)],
                vec![6, 5, 5],
            ),
            // A guarantee, kept under three that want all.
            (
                8,
                vec![d(0.01, 2, 9), d(9.0, 0, 9), d(9.0, 0, 9), d(9.0, 0, 9)],
                vec![2, 2, 2, 2],
            ),
            // It is part of the share, not on top of it.
            (8, vec![d(1.0, 2, 9), d(1.0, 0, 9)], vec![4, 4]),
            // Nobody is kept a slot that it cannot use.
            (8, vec![d(1.0, 5, 1), d(1.0, 0, 9)], vec![1, 7]),
            // Guarantees beyond the slots: by weight.
            (4, vec![d(3.0, 6, 9), d(1.0, 6, 9)], vec![3, 1]),
            (0, vec![d(1.0, 1, 9), d(1.0, 0, 9)], vec![0, 0]),
        ] {
            assert_eq!(shares(slots, &demands), expected, "{slots} for {demands:?}");
        }
    }

    #[test]
    fn those_with_nothing_in_flight_come_first_and_go_round() {
        let idle = |weight, guarantee, served| Demand {
            idle: true,
            served,
            ..demand(weight, guarantee, 9)
        };
        let useless = Demand {
            cap: 0,
            ..idle(1.0, 0, 0)
        };
        for (slots, demands, expected) in [
            // Whatever the weight.
            (4, vec![demand(100.0, 0, 9), idle(0.01, 0, 7)], vec![3, 1]),
            // Fewer slots than consumers: the least recently served.
            (
                1,
                vec![idle(1.0, 0, 3), idle(1.0, 0, 2), idle(1.0, 0, 4)],
                vec![0, 1, 0],
            ),
            (
                2,
                vec![idle(1.0, 0, 3), idle(9.0, 0, 2), idle(1.0, 0, 1)],
                vec![0, 1, 1],
            ),
            // Guarantees first, but one slot goes round.
            (
                3,
                vec![idle(1.0, 2, 9), idle(1.0, 0, 1), idle(1.0, 0, 2)],
                vec![2, 1, 0],
            ),
            (
                2,
                vec![idle(1.0, 2, 9), idle(1.0, 0, 1), idle(1.0, 0, 2)],
                vec![1, 1, 0],
            ),
            (1, vec![idle(1.0, 2, 9), idle(1.0, 0, 1)], vec![0, 1]),
            (1, vec![idle(1.0, 2, 0), idle(1.0, 0, 1)], vec![1, 0]),
            // For nobody else is one left.
            (4, vec![demand(1.0, 4, 9), demand(1.0, 0, 9)], vec![4, 0]),
            (4, vec![demand(1.0, 3, 9), idle(1.0, 1, 0)], vec![3, 1]),
            (
                4,
                vec![demand(1.0, 4, 9), useless, demand(1.0, 0, 9)],
                vec![4, 0, 0],
            ),
            (0, vec![idle(1.0, 0, 1)], vec![0]),
        ] {
            assert_eq!(shares(slots, &demands), expected, "{slots} for {demands:?}");
        }
    }

    fn any_demand() -> impl Strategy<Value = Demand> {
        (0.01f64..100.0, 0u32..6, 0u32..40, any::<bool>(), 0u64..9).prop_map(
            |(weight, guarantee, cap, idle, served)| Demand {
                weight,
                guarantee,
                cap,
                idle,
                served,
            },
        )
    }

    /// The rule by its words: one slot at a time, guarantees first, one of them left for the forgotten.
    fn one_at_a_time(slots: u32, demands: &[Demand]) -> Vec<u32> {
        let kept = |d: &Demand| d.guarantee.min(d.cap);
        let forgotten = |d: &Demand| d.idle && d.cap > 0 && d.guarantee == 0;
        let wanted: u32 = demands.iter().map(|d| d.cap).sum();
        let left = u32::from(slots > 0 && wanted > slots && demands.iter().any(forgotten));
        let mut shares = vec![0; demands.len()];
        let mut given = 0;
        let mut give = |slots: u32, most: &dyn Fn(&Demand) -> u32| {
            while given < slots {
                let open = (0..demands.len()).filter(|&who| shares[who] < most(&demands[who]));
                let next = open.min_by(|&a, &b| {
                    let claim = |who: usize| {
                        let busy = shares[who] > 0 || !demands[who].idle;
                        let level = f64::from(shares[who] + 1) / demands[who].weight;
                        (busy, if busy { level } else { 0.0 }, demands[who].served)
                    };
                    claim(a).partial_cmp(&claim(b)).expect("no NaN")
                });
                let Some(next) = next else { break };
                shares[next] += 1;
                given += 1;
            }
        };
        give(slots - left, &kept);
        give(slots, &|d| d.cap);
        shares
    }

    /// One at a time it would be minutes.
    #[allow(clippy::disallowed_types, clippy::disallowed_methods)]
    fn at_once<R>(share: impl FnOnce() -> R) -> R {
        let started = std::time::Instant::now();
        let shared = share();
        assert!(started.elapsed() < Duration::from_secs(5));
        shared
    }

    fn huge_demand() -> impl Strategy<Value = Demand> {
        let size = || prop_oneof![0u32..50, any::<u32>(), u32::MAX - 2..=u32::MAX];
        let weight = prop_oneof![Just(1.0), 0.01f64..100.0, Just(1e-300), Just(1e300)];
        (weight, size(), size(), any::<bool>(), 0u64..9).prop_map(
            |(weight, guarantee, cap, idle, served)| Demand {
                weight,
                guarantee,
                cap,
                idle,
                served,
            },
        )
    }

    #[test]
    fn the_largest_demands_share_the_most_slots() {
        let all = Demand {
            cap: u32::MAX,
            ..demand(1.0, 0, 0)
        };
        let half = u32::MAX / 2;
        assert_eq!(shares(u32::MAX, &[all, all]), [half + 1, half]);
        let heavy = Demand { weight: 3.0, ..all };
        assert_eq!(shares(u32::MAX - 3, &[heavy, all])[1], u32::MAX / 4);
        assert_eq!(shares(u32::MAX, &[all]), [u32::MAX]);
        // In a budget as well, and its sums do not overflow.
        let mut budget = Budget::new(&config(1, u32::MAX, u32::MAX));
        for id in 0..2 {
            budget.join(id, Share::default()).expect("joined");
            budget.demand(id, u32::MAX);
        }
        assert_eq!(start(&mut budget, 0.0, 0, u32::MAX), Ok(()));
        assert_eq!(start(&mut budget, 0.0, 1, u32::MAX), Ok(()));
        assert_eq!(standing(&mut budget, 0).slots, half + 1);
    }

    proptest! {
        #[test]
        fn many_slots_are_given_as_if_one_at_a_time(
            slots in 0u32..3000,
            demands in prop::collection::vec(
                (any_demand(), 0u32..1500, 0u32..300),
                1..6,
            ),
        ) {
            let demands: Vec<_> = demands
                .into_iter()
                .map(|(d, cap, guarantee)| Demand { cap, guarantee, ..d })
                .collect();
            prop_assert_eq!(shares(slots, &demands), one_at_a_time(slots, &demands));
        }

        #[test]
        fn huge_numbers_are_shared_at_once(
            slots in prop_oneof![any::<u32>(), u32::MAX - 2..=u32::MAX],
            demands in prop::collection::vec(huge_demand(), 0..12),
        ) {
            let shares = at_once(|| shares(slots, &demands));
            let wanted: u64 = demands.iter().map(|d| u64::from(d.cap)).sum();
            let sum: u64 = shares.iter().map(|share| u64::from(*share)).sum();
            prop_assert_eq!(sum, wanted.min(u64::from(slots)));
            let kept = |d: &Demand| u64::from(d.guarantee.min(d.cap));
            let guaranteed: u64 = demands.iter().map(kept).sum();
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(*share <= demand.cap);
                prop_assert!(guaranteed >= u64::from(slots) || u64::from(*share) >= kept(demand));
            }
        }

        #[test]
        fn all_slots_are_used_and_no_more(
            slots in 0u32..80,
            demands in prop::collection::vec(any_demand(), 0..12),
        ) {
            let shares = shares(slots, &demands);
            let wanted: u32 = demands.iter().map(|d| d.cap).sum();
            prop_assert_eq!(shares.iter().sum::<u32>(), slots.min(wanted));
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(share <= &demand.cap);
            }
        }

        #[test]
        fn guarantees_are_kept_where_one_slot_is_left(
            slots in 0u32..80,
            demands in prop::collection::vec(any_demand(), 0..12),
        ) {
            let kept = |d: &Demand| d.guarantee.min(d.cap);
            prop_assume!(demands.iter().map(kept).sum::<u32>() < slots);
            for (share, demand) in shares(slots, &demands).iter().zip(&demands) {
                prop_assert!(*share >= kept(demand));
            }
        }

        #[test]
        fn nobody_has_more_for_its_weight_than_one_slot_beyond_anyone_who_wants_more(
            slots in 1u32..80,
            demands in prop::collection::vec(any_demand(), 1..12),
        ) {
            let demands: Vec<_> = demands
                .into_iter()
                .map(|d| Demand { guarantee: 0, idle: false, ..d })
                .collect();
            let shares = shares(slots, &demands);
            for (a, rich) in shares.iter().zip(&demands).filter(|(a, _)| **a > 0) {
                for (b, poor) in shares.iter().zip(&demands).filter(|(b, d)| **b < d.cap) {
                    let (had, wanted) = (f64::from(*a) / rich.weight, f64::from(b + 1) / poor.weight);
                    prop_assert!(had <= wanted + 1e-9, "{had} > {wanted}");
                }
            }
        }
    }
}

mod gate {
    use super::*;

    #[test]
    fn min_is_held_while_overloaded_and_never_more() {
        let mut budget = Budget::new(&config(3, 10, 100));
        budget.join(1, Share::default()).expect("joins");
        assert_eq!(fill(&mut budget, 0.0, 1, 20), 10);
        sample(&mut budget, 0, 5, true);
        assert_eq!(budget.slots(secs(5.0)), 3);
        // Nothing that runs is taken back.
        assert_eq!(budget.in_use(), 10);
        for left in (3..10).rev() {
            budget.end(1);
            assert_eq!(
                start(&mut budget, 5.0, 1, 20),
                Err(Refusal::Overloaded),
                "{left}"
            );
        }
        budget.end(1);
        assert_eq!(fill(&mut budget, 5.0, 1, 20), 1);
        assert_eq!(budget.in_use(), 3);
        assert_eq!(budget.woken(secs(5.0)), []);
        // The load has passed.
        sample(&mut budget, 6, 11, false);
        assert_eq!(budget.woken(secs(11.0)), [1]);
        assert_eq!(fill(&mut budget, 11.0, 1, 20), 7);
    }

    #[test]
    fn one_bad_first_sample_and_a_dead_sensor_leave_it_open() {
        let mut budget = Budget::new(&config(1, 10, 100));
        for signal in Signal::ALL {
            budget.record(secs(1.0), signal, true);
        }
        assert_eq!(budget.slots(secs(1.0)), 10);
        budget.record(secs(2.0), Signal::Cpu, true);
        assert_eq!(budget.slots(secs(2.0)), 1);
        assert!(budget.current(secs(2.0)).overloaded() && budget.history(secs(2.0)).overloaded());
        // No further sample: unknown, which holds nothing back.
        assert_eq!(budget.slots(secs(5.2)), 10);
        budget.record(secs(6.0), Signal::Cpu, true);
        assert_eq!(budget.slots(secs(6.0)), 1);
        budget.fail(secs(6.0), Signal::Cpu);
        assert_eq!(budget.slots(secs(6.0)), 10);
    }
}

mod starting {
    use super::*;

    #[test]
    fn a_late_joiner_gets_its_share_as_the_surplus_drains() {
        let mut budget = Budget::new(&config(1, 16, 16));
        budget.join(1, Share::default()).expect("joins");
        assert_eq!(fill(&mut budget, 0.0, 1, 40), 16);
        budget.join(2, Share::default()).expect("joins");
        assert_eq!(start(&mut budget, 0.0, 2, 40), Err(Refusal::Share));
        for n in 1..=8 {
            budget.end(1);
            assert_eq!(start(&mut budget, 0.0, 1, 40), Err(Refusal::Share));
            assert_eq!(budget.woken(secs(0.0)), [2]);
            assert_eq!(fill(&mut budget, 0.0, 2, 40), 1, "slot {n}");
        }
        budget.end(1);
        assert_eq!(start(&mut budget, 0.0, 2, 40), Err(Refusal::Share));
        assert_eq!(fill(&mut budget, 0.0, 1, 40), 1);
        // It leaves while its calls run; they count until they end.
        budget.leave(2);
        assert_eq!(start(&mut budget, 0.0, 1, 40), Err(Refusal::Share));
        assert_eq!(
            start(&mut budget, 0.0, 2, 40),
            Err(Refusal::Share),
            "it has left"
        );
        for _ in 0..8 {
            budget.end(2);
        }
        assert_eq!((fill(&mut budget, 0.0, 1, 40), budget.in_use()), (8, 16));
    }

    #[test]
    fn whoever_was_refused_is_told_even_if_its_calls_took_the_place_of_others_since() {
        let mut budget = Budget::new(&config(1, 4, 4));
        budget.join(1, Share::default()).expect("joins");
        budget.join(2, Share::default()).expect("joins");
        budget.demand(2, 2);
        assert_eq!(fill(&mut budget, 0.0, 1, 9), 2);
        assert_eq!(fill(&mut budget, 0.0, 2, 2), 2);
        budget.end(1);
        assert_eq!(start(&mut budget, 0.0, 1, 8), Ok(()));
        assert_eq!(budget.woken(secs(0.0)), []);
        // It could start nothing for a while, and then again.
        budget.demand(1, 0);
        budget.end(2);
        budget.demand(2, 0);
        assert_eq!(budget.woken(secs(0.0)), []);
        budget.demand(1, 7);
        assert_eq!(budget.woken(secs(0.0)), [1]);
        assert_eq!(budget.woken(secs(0.0)), [], "once");
    }

    #[test]
    fn one_with_nothing_in_flight_is_served_next_whatever_its_weight() {
        let mut budget = Budget::new(&config(1, 4, 4));
        budget.join(1, weight(100.0)).expect("joins");
        assert_eq!(fill(&mut budget, 0.0, 1, 40), 4);
        budget.join(2, weight(0.01)).expect("joins");
        assert_eq!(start(&mut budget, 0.0, 2, 40), Err(Refusal::Share));
        budget.end(1);
        assert_eq!(start(&mut budget, 0.0, 1, 40), Err(Refusal::Share));
        assert_eq!(budget.woken(secs(0.0)), [2]);
        assert_eq!(fill(&mut budget, 0.0, 2, 40), 1);
        budget.end(2);
        assert_eq!(start(&mut budget, 0.0, 1, 40), Err(Refusal::Share));
        assert_eq!(start(&mut budget, 0.0, 2, 40), Ok(()));
    }

    #[test]
    fn a_slot_that_its_consumer_has_no_use_for_goes_to_others_at_once() {
        let mut budget = Budget::new(&config(1, 4, 4));
        budget.join(1, Share::default()).expect("joins");
        budget.join(2, Share::default()).expect("joins");
        budget.demand(2, 9);
        assert_eq!(fill(&mut budget, 0.0, 1, 2), 2);
        assert_eq!(fill(&mut budget, 0.0, 2, 9), 2);
        budget.end(1);
        assert_eq!(budget.woken(secs(0.0)), [2]);
        assert_eq!(start(&mut budget, 0.0, 2, 7), Ok(()));
        assert_eq!(
            (in_flight(&mut budget, 1), in_flight(&mut budget, 2)),
            (1, 3)
        );
    }

    #[test]
    fn slots_that_come_free_one_by_one_go_by_weight_too() {
        let mut budget = Budget::new(&config(1, 20, 20));
        budget.join(3, Share::default()).expect("joins");
        assert_eq!(fill(&mut budget, 0.0, 3, 40), 20);
        budget.join(1, weight(4.0)).expect("joins");
        budget.join(2, weight(1.0)).expect("joins");
        for id in [1, 2] {
            assert_eq!(start(&mut budget, 0.0, id, 40), Err(Refusal::Share));
        }
        let mut order = Vec::new();
        for _ in 0..10 {
            budget.end(3);
            let woken = budget.woken(secs(0.0));
            assert_eq!(woken.len(), 1, "{order:?}");
            assert_eq!(start(&mut budget, 0.0, woken[0], 40), Ok(()));
            // Refused, it waits to be told again.
            assert!(start(&mut budget, 0.0, woken[0], 40).is_err());
            order.extend(woken);
        }
        // One each first; then whoever has the fewest for its weight, of equal ones the least recently served.
        assert_eq!(order, [1, 2, 1, 1, 1, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn a_guarantee_is_filled_before_those_that_only_come_first() {
        let mut budget = Budget::new(&config(1, 4, 4));
        for id in 2..=4 {
            budget.join(id, Share::default()).expect("joins");
        }
        assert_eq!(fill(&mut budget, 0.0, 2, 9), 4);
        let guarantee = Share {
            guarantee: 2,
            ..Share::default()
        };
        budget.join(1, guarantee).expect("joins");
        for id in [1, 3, 4] {
            assert_eq!(start(&mut budget, 0.0, id, 9), Err(Refusal::Share));
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            budget.end(2);
            let woken = budget.woken(secs(0.0));
            assert_eq!(woken.len(), 1);
            assert_eq!(start(&mut budget, 0.0, woken[0], 9), Ok(()));
            order.extend(woken);
            assert!(start(&mut budget, 0.0, order[0], 9).is_err());
        }
        assert_eq!(order, [1, 1, 3, 4]);
    }

    #[test]
    fn a_limit_is_kept_and_what_it_leaves_is_used() {
        let mut budget = Budget::new(&config(1, 10, 100));
        let limit = Share {
            limit: Some(3),
            ..Share::default()
        };
        budget.join(1, limit).expect("joins");
        budget.join(2, Share::default()).expect("joins");
        assert_eq!(fill(&mut budget, 0.0, 1, 40), 3);
        assert_eq!(fill(&mut budget, 0.0, 2, 40), 7);
        assert_eq!(
            (
                standing(&mut budget, 1).slots,
                standing(&mut budget, 2).slots
            ),
            (3, 7)
        );
    }

    #[test]
    fn one_that_cannot_start_for_another_reason_leaves_its_slots_to_others() {
        let mut budget = Budget::new(&config(1, 10, 100));
        budget.join(1, Share::default()).expect("joins");
        budget.join(2, Share::default()).expect("joins");
        budget.demand(1, 40);
        assert_eq!(fill(&mut budget, 0.0, 2, 40), 5);
        assert_eq!(
            budget.try_start(secs(0.0), 1, 40, || false),
            Err(Refusal::Further)
        );
        assert_eq!(standing(&mut budget, 1).ready, 0);
        assert_eq!(budget.woken(secs(0.0)), [2]);
        assert_eq!(fill(&mut budget, 0.0, 2, 40), 5);
    }

    #[test]
    fn guarantees_beyond_max_are_refused() {
        let mut budget = Budget::new(&config(1, 4, 4));
        let guarantee = |guarantee| Share {
            guarantee,
            ..Share::default()
        };
        assert_eq!(budget.join(1, guarantee(3)), Ok(()));
        let refused = TooManyGuaranteed {
            guaranteed: 5,
            max: 4,
        };
        assert_eq!(budget.join(2, guarantee(2)), Err(refused));
        assert_eq!(budget.join(2, guarantee(1)), Ok(()));
        budget.leave(1);
        assert_eq!(budget.join(3, guarantee(3)), Ok(()));
    }

    #[test]
    fn a_refusal_says_why() {
        let until = Duration::ZERO;
        let words: Vec<_> = [
            Refusal::Share,
            Refusal::Overloaded,
            Refusal::Rate { until, own: false },
            Refusal::Rate { until, own: true },
            Refusal::Further,
        ]
        .iter()
        .map(Refusal::to_string)
        .collect();
        assert_eq!(
            words,
            [
                "budget share",
                "budget, the machine is overloaded",
                "budget's max_tasks_per_minute",
                "share's max_tasks_per_minute",
                "no slot asked for"
            ]
        );
    }

    #[test]
    fn many_consumers_of_one_slot_each_go_round() {
        let (slots, consumers) = (50u64, 200u64);
        let mut budget = Budget::new(&config(1, slots as u32, slots as u32));
        for id in 0..consumers {
            budget.join(id, Share::default()).expect("joins");
        }
        let mut served = vec![0u32; consumers as usize];
        let mut running = std::collections::VecDeque::new();
        for id in 0..consumers {
            if start(&mut budget, 0.0, id, 1).is_ok() {
                running.push_back(id);
            }
        }
        assert_eq!(running.len() as u64, slots);
        for _ in 0..4000 {
            let ended = running.pop_front().expect("some run");
            served[ended as usize] += 1;
            budget.end(ended);
            assert!(
                start(&mut budget, 0.0, ended, 1).is_err(),
                "others are before it"
            );
            for id in budget.woken(secs(0.0)) {
                assert_eq!(start(&mut budget, 0.0, id, 1), Ok(()));
                running.push_back(id);
            }
            assert_eq!(budget.in_use() as u64, slots);
        }
        assert!(served.iter().all(|times| *times == 20), "{served:?}");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Join(u64, f64, u32),
        Leave(u64),
        Ask(u64, u32, bool),
        End(u64),
        Demand(u64, u32),
        Sample(bool),
        Tick,
        Retune(u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let id = 0u64..5;
        prop_oneof![
            1 => (id.clone(), 0.1f64..9.0, 0u32..3).prop_map(|(id, w, g)| Step::Join(id, w, g)),
            1 => id.clone().prop_map(Step::Leave),
            9 => (id.clone(), 1u32..9, any::<bool>()).prop_map(|(id, n, ok)| Step::Ask(id, n, ok)),
            6 => id.clone().prop_map(Step::End),
            2 => (id, 0u32..9).prop_map(|(id, n)| Step::Demand(id, n)),
            2 => any::<bool>().prop_map(Step::Sample),
            1 => Just(Step::Tick),
            1 => (1u32..20).prop_map(Step::Retune),
        ]
    }

    proptest! {
        #[test]
        fn a_start_needs_a_slot_has_one_end_and_is_never_forgotten(
            steps in prop::collection::vec(any_step(), 1..200),
        ) {
            let mut budget = Budget::new(&config(2, 6, 20));
            let mut running = [0u32; 5];
            let mut now = 0.0;
            for step in steps {
                now += 0.1;
                match step {
                    Step::Join(id, weight, guarantee) if running[id as usize] == 0 => {
                        let _ = budget.join(id, Share { weight, guarantee, ..Share::default() });
                    }
                    Step::Join(..) => {}
                    Step::Leave(id) => budget.leave(id),
                    Step::Ask(id, ready, ok) => {
                        let slots = budget.slots(secs(now));
                        let before = budget.in_use();
                        if budget.try_start(secs(now), id, ready, || ok).is_ok() {
                            prop_assert!(ok && before < slots);
                            running[id as usize] += 1;
                        }
                    }
                    Step::End(id) if running[id as usize] > 0 => {
                        running[id as usize] -= 1;
                        budget.end(id);
                    }
                    Step::End(_) => {}
                    Step::Demand(id, ready) => budget.demand(id, ready),
                    Step::Sample(bad) => budget.record(secs(now), Signal::Cpu, bad),
                    Step::Tick => budget.tick(secs(now)),
                    Step::Retune(max) => {
                        budget.apply(&[Override { key: "budget_max".into(), value: max.to_string() }]);
                    }
                }
                let levels = budget.levels();
                prop_assert!(1 <= levels.min && levels.min <= levels.desired && levels.desired <= levels.max);
                prop_assert_eq!(budget.in_use(), running.iter().sum::<u32>());
                // A slot that is free is for someone who wants it, and comes when told.
                for rounds in 0.. {
                    let woken = budget.woken(secs(now));
                    if woken.is_empty() {
                        break;
                    }
                    prop_assert!(rounds < 100, "told again and again");
                    for id in woken {
                        // The start of another may have moved the shares since.
                        let ready = standing(&mut budget, id).ready;
                        if budget.try_start(secs(now), id, ready, || true).is_ok() {
                            running[id as usize] += 1;
                        }
                    }
                }
                let free = budget.slots(secs(now)).saturating_sub(budget.in_use());
                let open: Vec<_> = budget.consumers.values().filter(|c| c.below_share()).collect();
                let waiting = open.iter().filter(|c| c.waiting).count();
                let coming = open.len() - waiting;
                prop_assert!(waiting == 0 || coming >= free as usize);
            }
        }
    }
}
