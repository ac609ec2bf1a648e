use super::*;
use jiff::Timestamp;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

const S: Duration = Duration::from_secs(1);
const ZERO: Duration = Duration::ZERO;

/// Goes with tokio's clock, which the tests pause, and can be set.
struct FakeClock {
    started: Instant,
    base: Timestamp,
    set_by: AtomicI64,
}

impl FakeClock {
    fn at(base: &str) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            base: base.parse().expect("a timestamp"),
            set_by: AtomicI64::new(0),
        })
    }
}

impl WallClock for FakeClock {
    fn now(&self) -> Timestamp {
        let set_by = jiff::SignedDuration::from_secs(self.set_by.load(Ordering::Relaxed));
        self.base + self.started.elapsed() + set_by
    }
}

fn config() -> Config {
    Config {
        max_per_sec: None,
        max_bytes_per_min: None,
        max_per_day: None,
        calendar: calendar("UTC"),
        state_file: None,
        breach_base_cooldown: 60 * S,
        breach_max_doublings: 4,
        breach_quiet_window: 300 * S,
        counts_http: false,
    }
}

fn calendar(zone: &str) -> Calendar {
    Calendar::new(zone, jiff::civil::Time::midnight()).expect("a calendar")
}

fn limiter(config: Config) -> Limiter {
    limiter_at("2026-03-10T12:00:00Z", config)
}

fn limiter_at(now: &str, config: Config) -> Limiter {
    Limiter::with_clock(config, FakeClock::at(now)).expect("a limiter")
}

fn per_sec(rate: f64) -> Limiter {
    limiter(Config {
        max_per_sec: Some(rate),
        ..config()
    })
}

/// Starts once, and says how long it took.
async fn timed(limiter: &Limiter) -> Duration {
    let asked = Instant::now();
    limiter.start().await.expect("a start");
    asked.elapsed()
}

/// Starts as many as can now.
fn at_once(limiter: &Limiter) -> u64 {
    let turn = limiter.try_turn().expect("nobody else's turn");
    std::iter::repeat_with(|| turn.try_start())
        .take_while(Result::is_ok)
        .count() as u64
}

fn refused(limiter: &Limiter) -> Wait {
    let turn = limiter.try_turn().expect("nobody else's turn");
    turn.try_start().expect_err("no start")
}

#[tokio::test(start_paused = true)]
async fn starts_are_spaced_exactly() {
    let limiter = per_sec(0.5);
    for wait in [0, 2, 2] {
        assert_eq!(timed(&limiter).await, wait * S);
    }
    let limiter = per_sec(20.0);
    let began = Instant::now();
    for _ in 0..100 {
        timed(&limiter).await;
    }
    assert_eq!(began.elapsed(), 4 * S);
}

#[tokio::test(start_paused = true)]
async fn turns_come_in_the_order_of_asking_and_can_be_given_up() {
    let limiter = per_sec(1.0);
    timed(&limiter).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for who in 0..6 {
        let (limiter, order) = (limiter.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            limiter.start().await.expect("a start");
            order.lock().expect("no panic").push((who, Instant::now()));
        }));
        // So that each has asked before the next is there.
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    // The one whose turn it is, and one that waits for its turn.
    tasks[0].abort();
    tasks[3].abort();
    for task in tasks {
        let _ = task.await;
    }
    let order: Vec<_> = order.lock().expect("no panic").clone();
    let expected = [(1, 1), (2, 2), (4, 3), (5, 4)].map(|(who, at)| (who, began + at * S));
    assert_eq!(order, expected);
}

#[tokio::test(start_paused = true)]
async fn a_breach_holds_up_those_who_wait_already() {
    let limiter = per_sec(1.0);
    timed(&limiter).await;
    let began = Instant::now();
    let turn = limiter.turn().await;
    let wait = turn.try_start().expect_err("one a second");
    assert_eq!(
        (wait.reason(), wait.until()),
        (Some(Reason::Rate), Some(began + S))
    );
    // Between asking and waiting: the wait must not miss it.
    assert_eq!(limiter.report_breach(began, None), 60 * S);
    turn.wait(&wait).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let wait = turn.try_start().expect_err("a cooldown");
    assert_eq!(wait.until(), Some(began + 60 * S));
    assert_eq!(
        wait.to_string(),
        format!(
            "cooldown until {}",
            local("2026-03-10T12:01:00Z", "%H:%M:%S")
        )
    );
    assert_eq!(limiter.cooldown_note(), Some(wait.to_string()));
    assert!(!wait.is_long(60 * S) && wait.is_long(59 * S));
    // Another, while it waits.
    let (waited, ()) = tokio::join!(
        async {
            turn.wait(&wait).await;
            began.elapsed()
        },
        async {
            tokio::time::sleep(10 * S).await;
            assert!(limiter.is_backing_off());
            assert_eq!(limiter.report_breach(began, Some(100 * S)), 100 * S);
            limiter.lengthen_cooldown(Some(200 * S));
            limiter.lengthen_cooldown(None);
        }
    );
    assert_eq!(waited, 10 * S);
    drop(turn);
    assert_eq!(limiter.backing_off_until(), Some(began + 210 * S));
    assert_eq!(timed(&limiter).await, 200 * S);
    assert_eq!((limiter.is_backing_off(), limiter.breaches()), (false, 2));
    assert_eq!(
        (limiter.backing_off_until(), limiter.cooldown_note()),
        (None, None)
    );
}

#[tokio::test(start_paused = true)]
async fn the_six_statistics() {
    let limiter = limiter(Config {
        max_per_day: Some(100),
        ..config()
    });
    assert_eq!(at_once(&limiter), 100);
    limiter.record_bytes(700);
    limiter.report_breach(Instant::now(), None);
    tokio::time::advance(500 * Duration::from_millis(1)).await;
    let stats = limiter.stats();
    let expected = Stats {
        req_per_sec_now: 100,
        bytes_per_min_now: 700,
        daily_count: 100,
        total_requests_this_process: 100,
        backing_off: true,
        backoff_remaining_s: 59.5,
    };
    assert_eq!(stats, expected);
    tokio::time::advance(86_400 * S).await;
    let expected = Stats {
        req_per_sec_now: 0,
        bytes_per_min_now: 0,
        daily_count: 0,
        total_requests_this_process: 100,
        backing_off: false,
        backoff_remaining_s: 0.0,
    };
    assert_eq!(limiter.stats(), expected);
}

#[tokio::test(start_paused = true)]
async fn bytes_hold_calls_until_they_leave_the_minute() {
    let limiter = limiter(Config {
        max_bytes_per_min: Some(1_000),
        ..config()
    });
    assert_eq!(timed(&limiter).await, ZERO);
    limiter.record_bytes(1_000);
    assert_eq!(timed(&limiter).await, 60 * S);
}

#[tokio::test(start_paused = true)]
async fn where_requests_count_calls_only_wait_for_what_holds_all() {
    let limiter = limiter(Config {
        max_per_sec: Some(1.0),
        max_per_day: Some(3),
        counts_http: true,
        ..config()
    });
    for _ in 0..100 {
        assert_eq!(timed(&limiter).await, ZERO);
    }
    assert_eq!(limiter.stats().total_requests_this_process, 0);
    let began = Instant::now();
    limiter.http_request().await;
    // A call that has its turn and waits does not hold up the requests of others.
    limiter.report_breach(Instant::now(), Some(61 * S));
    let turn = limiter.turn().await;
    assert_eq!(
        turn.try_start().expect_err("cooldown").reason(),
        Some(Reason::Cooldown)
    );
    limiter.http_request().await;
    limiter.http_request().await;
    assert_eq!(began.elapsed(), 62 * S);
    assert_eq!(limiter.stats().daily_count, 3);
    let wait = turn.try_start().expect_err("a spent day");
    assert_eq!(wait.reason(), Some(Reason::Day));
    assert!(wait.is_long(Duration::MAX));
    // Where calls count, requests are free.
    let limiter = per_sec(0.01);
    for _ in 0..100 {
        limiter.http_request().await;
    }
    assert_eq!(began.elapsed(), 62 * S);
}

#[tokio::test(start_paused = true)]
async fn a_spent_day_waits_for_the_providers_midnight() {
    // 23:00 on the day when clocks went forward, in Los Angeles.
    let clock = FakeClock::at("2026-03-09T06:00:00Z");
    let config = Config {
        max_per_day: Some(5),
        calendar: calendar("America/Los_Angeles"),
        ..config()
    };
    let limiter = Limiter::with_clock(config, clock.clone()).expect("a limiter");
    assert_eq!(at_once(&limiter), 5);
    let wait = refused(&limiter);
    let text = local("2026-03-09T07:00:00Z", "%H:%M:%S");
    assert!(
        wait.to_string().starts_with("max_per_day reached until "),
        "{wait}"
    );
    assert!(wait.to_string().ends_with(&text), "{wait}");
    assert_eq!(timed(&limiter).await, 3_600 * S);
    // The wall clock is set half an hour forward while someone waits for the end of the day.
    assert_eq!(at_once(&limiter), 4);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { timed(&limiter).await }
    });
    tokio::task::yield_now().await;
    clock.set_by.store(1_800, Ordering::Relaxed);
    let waited = waiting.await.expect("no panic");
    assert_eq!(waited, (86_400 - 1_800) * S);
    // A note is asked for at any time, also when the day that was spent is over.
    assert_eq!(at_once(&limiter), 4);
    assert!(limiter.cooldown_note().is_some());
    tokio::time::advance(86_400 * S).await;
    assert_eq!(limiter.cooldown_note(), None);
    // Set back over midnight, the day that was counted already gives no more.
    clock.set_by.store(0, Ordering::Relaxed);
    assert_eq!(refused(&limiter).reason(), Some(Reason::Day));
    clock.set_by.store(-3 * 86_400, Ordering::Relaxed);
    let failure = refused(&limiter).failure().map(ToString::to_string);
    assert!(failure.is_some_and(|text| text.contains("set back")));
}

#[tokio::test(start_paused = true)]
async fn without_a_cap_a_clock_that_is_set_back_does_no_harm() {
    let clock = FakeClock::at("2026-03-09T00:00:00Z");
    let limiter = Limiter::with_clock(config(), clock.clone()).expect("a limiter");
    for set_by in [0, -1, -30 * 86_400, 30 * 86_400] {
        clock.set_by.store(set_by, Ordering::Relaxed);
        tokio::time::advance(S).await;
        assert_eq!(timed(&limiter).await, ZERO, "{set_by}");
    }
}

/// A day's worth of starts, hour by hour, over days on which clocks change: by date, what was
/// allowed. The run is started again before the hours in `restart`.
async fn walk(zone: &str, from: &str, hours: u32, restart: &[u32]) -> Vec<(String, u64)> {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = FakeClock::at(from);
    let config = Config {
        // Blocks of 1, so that a run that ends without giving back wastes none.
        max_per_day: Some(50),
        calendar: calendar(zone),
        state_file: Some(folder.path().join("quota.json")),
        ..config()
    };
    let limiter = || Limiter::with_clock(config.clone(), clock.clone()).expect("a limiter");
    let mut run = limiter();
    let mut days: Vec<(String, u64)> = Vec::new();
    for hour in 0..hours {
        if restart.contains(&hour) {
            run.close().await.expect("closed");
            run = limiter();
        }
        // More than the cap allows in any day.
        for _ in 0..3 {
            until_leased_or_spent(&run).await;
            let turn = run.turn().await;
            if turn.try_start().is_ok() {
                let date = config.calendar.day_at(clock.now()).expect("a day").date;
                let date = date.to_string();
                match days.last_mut() {
                    Some((last, count)) if *last == date => *count += 1,
                    _ => days.push((date, 1)),
                }
            }
        }
        tokio::time::advance(3_600 * S).await;
    }
    run.close().await.expect("closed");
    days
}

/// Waits until what is leased or refused is known.
async fn until_leased_or_spent(limiter: &Limiter) {
    loop {
        let lease = {
            let mut state = limiter.shared.state();
            let now = limiter.shared.now();
            limiter
                .shared
                .look_at_calendar(&mut state, now)
                .expect("a day");
            limiter.shared.lease(&mut state);
            state.policy.quota().hold() == batchgate_policy::quota::Hold::Unleased
        };
        if !lease {
            return;
        }
        // The thread runs on the real clock.
        std::thread::yield_now();
    }
}

#[tokio::test(start_paused = true)]
async fn quotas_follow_the_providers_days_over_clock_changes_and_restarts() {
    let spent = |dates: &[&str]| -> Vec<(String, u64)> {
        dates.iter().map(|date| (date.to_string(), 50)).collect()
    };
    // Midnight to midnight there, started again around the ends of the days.
    let days = walk(
        "America/Los_Angeles",
        "2026-03-07T08:00:00Z",
        71,
        &[5, 23, 24, 46, 47],
    )
    .await;
    assert_eq!(days, spent(&["2026-03-07", "2026-03-08", "2026-03-09"]));
    let days = walk(
        "America/Los_Angeles",
        "2026-10-31T07:00:00Z",
        73,
        &[23, 24, 48, 49],
    )
    .await;
    assert_eq!(days, spent(&["2026-10-31", "2026-11-01", "2026-11-02"]));
    let days = walk("UTC", "2026-03-07T00:00:00Z", 72, &[1, 23, 24]).await;
    assert_eq!(days, spent(&["2026-03-07", "2026-03-08", "2026-03-09"]));
}

#[tokio::test(start_paused = true)]
async fn a_restart_a_minute_before_midnight_keeps_the_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = FakeClock::at("2026-03-08T23:59:00Z");
    let config = Config {
        max_per_day: Some(1_000),
        state_file: Some(folder.path().join("quota.json")),
        ..config()
    };
    let limiter = || Limiter::with_clock(config.clone(), clock.clone()).expect("a limiter");
    let first = limiter();
    for _ in 0..995 {
        until_leased_or_spent(&first).await;
        timed(&first).await;
    }
    first.close().await.expect("closed");
    let second = limiter();
    assert_eq!(second.stats().daily_count, 995);
    tokio::time::advance(59 * S).await;
    for _ in 0..5 {
        until_leased_or_spent(&second).await;
        assert_eq!(timed(&second).await, ZERO);
    }
    until_leased_or_spent(&second).await;
    assert_eq!(refused(&second).reason(), Some(Reason::Day));
    tokio::time::advance(S).await;
    until_leased_or_spent(&second).await;
    assert_eq!(timed(&second).await, ZERO);
    assert_eq!(second.stats().daily_count, 1);
}

#[tokio::test]
async fn two_hosts_share_one_quota_and_a_crash_wastes_at_most_a_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config {
        max_per_day: Some(1_000),
        state_file: Some(folder.path().join("quota.json")),
        ..config()
    };
    let hosts = [limiter(config.clone()), limiter(config.clone())];
    let started = |limiter: Limiter, most: u64| async move {
        let mut started = 0;
        while started < most {
            let turn = limiter.turn().await;
            match turn.try_start() {
                Ok(()) => started += 1,
                Err(wait) if wait.reason() == Some(Reason::Lease) => turn.wait(&wait).await,
                Err(_) => break,
            }
            // So that both get along.
            drop(turn);
            tokio::task::yield_now().await;
        }
        started
    };
    let [one, two] = hosts;
    let crashed = tokio::spawn(started(one, 333));
    let first = started(two.clone(), 400).await;
    let first = first + crashed.await.expect("no panic");
    two.close().await.expect("closed");
    let third = limiter(config);
    let total = first + started(third, u64::MAX).await;
    assert!((990..=1_000).contains(&total), "{total}");
}

#[tokio::test]
async fn a_state_file_that_fails_stops_the_starts_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("quota.json");
    let config = Config {
        max_per_day: Some(200),
        state_file: Some(path.clone()),
        ..config()
    };
    let limiter = limiter(config.clone());
    limiter.start().await.expect("a start");
    // Damaged mid-run, while no lease is on its way: what is leased may leave, and no more.
    while limiter.shared.state().leasing {
        std::thread::yield_now();
    }
    std::fs::write(&path, "oops").expect("write");
    let mut starts = 0;
    let failure = loop {
        match limiter.start().await {
            Ok(()) => starts += 1,
            Err(failure) => break failure.to_string(),
        }
    };
    assert!(starts <= 2, "{starts}");
    assert!(failure.contains("quota.json is damaged"), "{failure}");
    let wait = refused(&limiter);
    assert_eq!((wait.reason(), wait.to_string()), (None, failure));
    // A new run is refused before it sends anything.
    let refused = Limiter::new(config).err().map(|e| e.to_string());
    assert!(refused.is_some_and(|text| text.contains("quota.json is damaged")));
}

#[tokio::test]
async fn a_lock_that_another_host_holds_holds_up_starts_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("quota.json");
    std::fs::write(&path, r#"{"day": "2026-03-10", "count": 3}"#).expect("write");
    let lock = std::fs::File::open(&path).expect("open");
    lock.lock().expect("lock");
    let limiter = limiter(Config {
        max_per_day: Some(500),
        state_file: Some(path.clone()),
        ..config()
    });
    let turn = limiter.turn().await;
    let wait = turn.try_start().expect_err("no lease");
    assert_eq!((wait.reason(), wait.until()), (Some(Reason::Lease), None));
    assert_eq!(wait.to_string(), "waiting for the state file");
    // Neither the runtime nor the limiter is blocked.
    limiter.record_bytes(1);
    tokio::task::yield_now().await;
    drop(lock);
    turn.wait(&wait).await;
    turn.try_start().expect("a lease");
    assert_eq!(limiter.stats().daily_count, 4);
}

#[tokio::test]
async fn senseless_configurations_are_refused() {
    for (bad, what) in [
        (
            Config {
                max_per_sec: Some(f64::NAN),
                ..config()
            },
            "max_per_sec",
        ),
        (
            Config {
                max_per_day: Some(0),
                ..config()
            },
            "max_per_day",
        ),
        (
            Config {
                max_bytes_per_min: Some(0),
                ..config()
            },
            "max_bytes_per_min",
        ),
        (
            Config {
                state_file: Some("/nonexistent/quota.json".into()),
                ..config()
            },
            "/nonexistent/quota.json",
        ),
    ] {
        let error = Limiter::new(bad).err().expect(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_at_once_lose_no_turn() {
    let limiter = limiter(Config {
        max_per_sec: Some(1e6),
        ..config()
    });
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for n in 0..500 {
                    if n % 7 == 0 {
                        // Given up at once, at any point of the way.
                        let _ = tokio::time::timeout(Duration::ZERO, limiter.turn()).await;
                    }
                    limiter.start().await.expect("a start");
                    limiter.record_bytes(1);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let stats = limiter.stats();
    assert_eq!(
        (stats.total_requests_this_process, stats.daily_count),
        (32_000, 32_000)
    );
}

/// A moment as the text of a wait has it.
fn local(at: &str, format: &str) -> String {
    let at: Timestamp = at.parse().expect("a timestamp");
    at.to_zoned_datetime(jiff::tz::TimeZone::system())
        .strftime(format)
        .to_string()
}
