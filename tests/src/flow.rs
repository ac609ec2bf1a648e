//! The flow with a native function in place of a component, in virtual time.
//!
//! Time is stopped at the first call, when the reader (a real thread) has read all: before, it would
//! jump ahead while the reader works.

use batchgate::flow::{Describe, Job, Parking, Records, Stop, Watch, run};
use batchgate::item::Item;
use batchgate::limiter::{Calendar, Config as LimiterConfig, Limiter};
use batchgate::report::failures::FailuresFile;
use batchgate::report::summary::{Signal, Stopped, Summary};
use batchgate::slot::{CallInfo, Native, NativeCall};
use batchgate::source::{Format, Input, Source, SourceConfig};
use batchgate_policy::attempt::{OnBreach, OnTrap, Rules};
use batchgate_policy::breaker::{Breaker, FailureLimit};
use batchgate_policy::controller::{self, Config};
use batchgate_policy::outcome::{CallEnd, ItemFailure};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::ready;
use std::io::Read;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const RULES: Rules = Rules {
    bisect: false,
    bisect_min_size: 1,
    max_batch_retries: 2,
    max_item_attempts: 3,
    on_breach: OnBreach::Resend,
    max_breach_resends: 8,
    on_trap: OnTrap::Abort,
};

/// A job over so many numbered lines; the closures below change what a test is about.
struct Setup {
    input: Box<dyn Read + Send>,
    rules: Rules,
    tuning: Config,
    limiter: LimiterConfig,
    breaker: Breaker,
    max_batch_bytes: Option<u64>,
    parking: Parking,
    failures: Option<FailuresFile>,
    limit: Option<u64>,
    stop: Stop,
}

impl Setup {
    fn items(count: usize) -> Self {
        let text: String = (0..count).map(|n| format!("item {n}\n")).collect();
        Self::reading(std::io::Cursor::new(text.into_bytes()))
    }

    fn reading(input: impl Read + Send + 'static) -> Self {
        Self {
            input: Box::new(input),
            rules: RULES,
            tuning: Config {
                workers: 1,
                batch_size: 10,
                ..Config::default()
            },
            limiter: LimiterConfig {
                max_per_sec: None,
                max_bytes_per_min: None,
                max_per_day: None,
                calendar: Calendar::new("UTC", jiff::civil::Time::midnight()).expect("UTC"),
                state_file: None,
                breach_base_cooldown: Duration::from_secs(60),
                breach_max_doublings: 4,
                breach_quiet_window: Duration::from_secs(300),
                counts_http: false,
            },
            breaker: Breaker::new(8, None),
            max_batch_bytes: None,
            parking: Parking {
                park: true,
                max_cooldown: Duration::from_secs(3600),
            },
            failures: None,
            limit: None,
            stop: Stop::default(),
        }
    }

    async fn run<F>(self, call: F) -> Summary
    where
        F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
    {
        self.run_watched(call, |_| ()).await
    }

    async fn run_watched<F>(self, call: F, watch: impl FnOnce(Watch)) -> Summary
    where
        F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
    {
        let config = SourceConfig {
            input: Input::Stdin,
            format: Format::Lines,
            delimiter: b',',
            key: None,
            max_item_bytes: 1 << 20,
        };
        if STOPPED.replace(false) {
            tokio::time::resume();
        }
        let (read_all, end) = mpsc::channel();
        let input = Signalled(self.input, read_all);
        let call = stop_time_once_read(end, call);
        let label: Arc<str> = "test".into();
        let job = Job {
            label: label.clone(),
            run_id: "run".into(),
            source: Source::from_reader(input, &config).expect("a source"),
            limit: self.limit,
            rejects: None,
            plugin: Native::new(call),
            controller: controller::by_name("history", &self.tuning).expect("a controller"),
            fixed: false,
            rules: self.rules,
            breaker: self.breaker,
            max_batch_bytes: self.max_batch_bytes,
            limiter: Limiter::new(self.limiter).expect("a limiter"),
            budget: None,
            parking: self.parking,
            control: None,
            records: Records::new(label, None, self.failures, self.stop.clone()),
            describe: Describe::Key,
            grace: Duration::from_secs(30),
            stop: self.stop,
        };
        run(job, watch).await
    }
}

/// The same function, but the first call waits until all is read, and stops time.
fn stop_time_once_read<F>(
    end: mpsc::Receiver<()>,
    call: F,
) -> impl for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static
where
    F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
{
    let end = Mutex::new(Some(end));
    move |items, info| {
        if let Some(end) = end.lock().expect("unpoisoned").take() {
            end.recv().expect("the reader comes to the end");
            tokio::time::pause();
            STOPPED.set(true);
        }
        call(items, info)
    }
}

thread_local! {
    /// Whether this test's time stands still.
    static STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// Says when it is not read any more.
struct Signalled(Box<dyn Read + Send>, mpsc::Sender<()>);

impl Read for Signalled {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Drop for Signalled {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

fn written(items: &[Item]) -> CallEnd {
    CallEnd::Written(items.len() as u64)
}

fn failed(retryable: bool) -> CallEnd {
    CallEnd::Failed {
        message: "no".into(),
        retryable,
    }
}

fn counts(s: &Summary) -> [u64; 4] {
    [
        s.written,
        s.failed,
        s.unknown,
        s.not_dispatched.unwrap_or(u64::MAX),
    ]
}

#[tokio::test]
async fn every_item_is_written_in_batches_of_the_setting() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    let summary = Setup::items(35)
        .run(move |items, _| {
            seen.lock().expect("unpoisoned").push(items.len());
            Box::pin(async { written(items) })
        })
        .await;
    assert_eq!(counts(&summary), [35, 0, 0, 0]);
    assert_eq!((summary.items, summary.calls), (Some(35), 4));
    assert_eq!(summary.stopped, Stopped::Completed);
    assert_eq!(*sizes.lock().expect("unpoisoned"), [10, 10, 10, 5]);
}

#[tokio::test]
async fn an_empty_input_is_a_success() {
    let summary = Setup::items(0)
        .run(|items, _| Box::pin(async { written(items) }))
        .await;
    assert_eq!(
        (summary.items, summary.calls, summary.exit_code()),
        (Some(0), 0, 0)
    );
}

#[tokio::test]
async fn a_batch_is_cut_before_its_bytes_exceed_the_cap() {
    let mut setup = Setup::items(9);
    // "item N" is six bytes.
    setup.max_batch_bytes = Some(20);
    let summary = setup
        .run(|items, _| {
            assert!(items.len() <= 3);
            Box::pin(async { written(items) })
        })
        .await;
    assert_eq!((summary.written, summary.calls), (9, 3));
}

/// Counts calls in flight.
#[derive(Default)]
struct Gauge {
    now: AtomicU32,
    most: AtomicU32,
}

impl Gauge {
    async fn during(&self, time: Duration) {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        sleep(time).await;
        self.now.fetch_sub(1, SeqCst);
    }
}

#[tokio::test]
async fn keeps_as_many_calls_in_flight_as_the_setting_says() {
    for workers in [1, 5] {
        let gauge = Arc::new(Gauge::default());
        let used = gauge.clone();
        let mut setup = Setup::items(500);
        setup.tuning.workers = workers;
        let started = Arc::new(OnceLock::new());
        let first = started.clone();
        let summary = setup
            .run(move |items, _| {
                let gauge = used.clone();
                first.get_or_init(Instant::now);
                Box::pin(async move {
                    gauge.during(Duration::from_millis(100)).await;
                    written(items)
                })
            })
            .await;
        assert_eq!(summary.written, 500);
        assert_eq!(gauge.most.load(SeqCst), workers);
        let ideal = Duration::from_millis(100) * 50 / workers;
        let took = started.get().map(Instant::elapsed).unwrap_or_default();
        assert!(took < ideal + Duration::from_millis(200), "{took:?}");
    }
}

#[tokio::test]
async fn workers_grow_while_they_buy_throughput() {
    let mut setup = Setup::items(4000);
    setup.tuning.workers = 2;
    setup.tuning.max_workers = Some(6);
    let summary = setup
        .run(|items, _| {
            Box::pin(async {
                sleep(Duration::from_millis(50)).await;
                written(items)
            })
        })
        .await;
    assert_eq!((summary.written, summary.last.workers), (4000, 6));
}

/// Calls that compute and never wait end in one poll of their task: without care a hundred and more of them.
#[tokio::test]
async fn calls_that_compute_let_others_have_the_thread() {
    let calls = Arc::new(AtomicU32::new(0));
    let made = calls.clone();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let seen_by_others = seen.clone();
    let others = tokio::spawn(async move {
        loop {
            let now = calls.load(SeqCst);
            seen_by_others.lock().expect("unpoisoned").insert(now);
            tokio::task::yield_now().await;
        }
    });
    let summary = Setup::items(2000)
        .run(move |items, _| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            made.fetch_add(1, SeqCst);
            Box::pin(ready(written(items)))
        })
        .await;
    others.abort();
    assert_eq!(counts(&summary), [2000, 0, 0, 0]);
    let turns = seen.lock().expect("unpoisoned").len();
    assert!(turns >= 40, "{turns} turns in {} calls", summary.calls);
}

#[tokio::test]
async fn a_retryable_failure_is_sent_again_after_a_pause() {
    let calls = Arc::new(AtomicUsize::new(0));
    let used = calls.clone();
    let started = Instant::now();
    let summary = Setup::items(10)
        .run(move |items, info| {
            let call = used.fetch_add(1, SeqCst);
            assert_eq!(info.call_number as usize, call + 1);
            Box::pin(async move {
                if call < 2 {
                    failed(true)
                } else {
                    written(items)
                }
            })
        })
        .await;
    assert_eq!((summary.written, summary.calls), (10, 3));
    let waited = started.elapsed();
    assert!(
        waited >= Duration::from_secs(3) && waited < Duration::from_secs(4),
        "{waited:?}"
    );
}

#[tokio::test]
async fn bad_items_are_isolated_and_the_failures_file_has_a_row_an_attempt() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("failures.csv");
    let mut setup = Setup::items(40);
    setup.rules.bisect = true;
    setup.failures = Some(FailuresFile::open(&path).expect("opened"));
    let summary = setup
        .run(|items, _| {
            let bad = items.iter().any(|item| item.index == 13);
            Box::pin(async move { if bad { failed(false) } else { written(items) } })
        })
        .await;
    assert_eq!(counts(&summary), [39, 1, 0, 0]);
    let rows: Vec<_> = csv::Reader::from_path(&path)
        .expect("written")
        .into_records()
        .map(|row| row.expect("a row"))
        .collect();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0][0], &rows[0][1]),
        ("10;11;12;13;14;15;16;17;18;19", "no")
    );
}

#[tokio::test]
async fn a_partial_answer_sends_only_its_retryable_items_again() {
    let summary = Setup::items(10)
        .run(|items, info| {
            let entry = |index, retryable| ItemFailure {
                index,
                message: "busy".into(),
                retryable,
            };
            let end = match info.call_number {
                1 => CallEnd::Partial(vec![entry(2, true), entry(7, false), entry(9, true)]),
                _ => {
                    assert_eq!(items.iter().map(|i| i.index).collect::<Vec<_>>(), [2, 9]);
                    written(items)
                }
            };
            Box::pin(async { end })
        })
        .await;
    assert_eq!(counts(&summary), [9, 1, 0, 0]);
}

#[tokio::test]
async fn one_refusal_holds_back_all_workers_for_the_cooldown() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let used = times.clone();
    let started = Instant::now();
    let mut setup = Setup::items(100);
    setup.tuning.workers = 2;
    let summary = setup
        .run(move |items, info| {
            let times = used.clone();
            let refuse = items[0].index == 20 && info.call_number == 1;
            Box::pin(async move {
                times.lock().expect("unpoisoned").push(started.elapsed());
                sleep(Duration::from_millis(10)).await;
                match refuse {
                    true => CallEnd::RateLimited {
                        message: "429".into(),
                        retry_after: Some(Duration::from_secs(90)),
                    },
                    false => written(items),
                }
            })
        })
        .await;
    assert_eq!(
        (summary.written, summary.breaches, summary.calls),
        (100, 1, 11)
    );
    let times = times.lock().expect("unpoisoned");
    let early = times
        .iter()
        .filter(|t| **t < Duration::from_secs(1))
        .count();
    assert_eq!(early, 4, "{times:?}");
    assert!(
        times[early..].iter().all(|t| *t >= Duration::from_secs(90)),
        "{times:?}"
    );
}

#[tokio::test]
async fn the_cap_on_starts_is_kept() {
    let mut setup = Setup::items(100);
    setup.tuning.workers = 8;
    setup.tuning.batch_size = 1;
    setup.limiter.max_per_sec = Some(10.0);
    let started = Instant::now();
    let summary = setup
        .run(|items, _| Box::pin(async { written(items) }))
        .await;
    assert_eq!(summary.written, 100);
    let took = started.elapsed();
    assert!(
        took >= Duration::from_secs(9) && took < Duration::from_secs(10),
        "{took:?}"
    );
}

#[tokio::test]
async fn each_reason_to_stop_is_named_and_everything_is_accounted_for() {
    let summary = Setup::items(200)
        .run(|_, _| Box::pin(async { failed(false) }))
        .await;
    assert_eq!(summary.stopped, Stopped::CircuitBreaker);
    // Eight attempts; each failure halves the batch.
    let failed_items = 10 + 5 + 2 + 5;
    assert_eq!(
        (counts(&summary), summary.exit_code()),
        ([0, failed_items, 0, 200 - failed_items], 3)
    );

    let summary = Setup::items(200)
        .run(|_, _| Box::pin(async { CallEnd::Fatal("401".into()) }))
        .await;
    assert_eq!(summary.stopped, Stopped::Fatal);
    assert_eq!(
        (counts(&summary), summary.exit_code()),
        ([0, 10, 0, 190], 3)
    );

    let summary = Setup::items(200)
        .run(|_, _| Box::pin(async { CallEnd::Trapped("unreachable".into()) }))
        .await;
    assert_eq!(summary.stopped, Stopped::Trap);
    assert_eq!(
        (counts(&summary), summary.exit_code(), summary.traps),
        ([0, 0, 10, 190], 4, 1)
    );

    let mut setup = Setup::items(200);
    setup.breaker = Breaker::new(100, Some(FailureLimit::Count(15)));
    let summary = setup.run(|_, _| Box::pin(async { failed(false) })).await;
    assert_eq!(summary.stopped, Stopped::FailureLimit);
    assert_eq!(
        (counts(&summary), summary.exit_code()),
        ([0, 15, 0, 185], 3)
    );
}

#[tokio::test]
async fn a_long_cooldown_parks_the_run_or_stops_it() {
    let refuse_once = |items: &[Item], info: CallInfo| {
        let refuse = items[0].index == 0 && info.call_number == 1;
        let count = items.len() as u64;
        match refuse {
            true => CallEnd::RateLimited {
                message: "429".into(),
                retry_after: Some(Duration::from_secs(7200)),
            },
            false => CallEnd::Written(count),
        }
    };
    let started = Instant::now();
    let summary = Setup::items(50)
        .run(move |items, info| Box::pin(async move { refuse_once(items, info) }))
        .await;
    assert_eq!((summary.written, summary.stopped), (50, Stopped::Completed));
    assert!(started.elapsed() >= Duration::from_secs(7200));

    let mut setup = Setup::items(50);
    setup.parking.park = false;
    let summary = setup
        .run(move |items, info| Box::pin(async move { refuse_once(items, info) }))
        .await;
    assert_eq!(summary.stopped, Stopped::Parked);
    assert_eq!((counts(&summary), summary.exit_code()), ([0, 0, 0, 50], 1));
}

#[tokio::test]
async fn an_interruption_lets_calls_end_within_the_grace_and_abandons_the_others() {
    for (call_time, expected) in [(20, [10, 0, 0, 190]), (40, [0, 0, 10, 190])] {
        let setup = Setup::items(200);
        let stop = setup.stop.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(1)).await;
            stop.stop(Stopped::Interrupted(Signal::Terminate));
        });
        let started = Instant::now();
        let summary = setup
            .run(move |items, _| {
                Box::pin(async move {
                    sleep(Duration::from_secs(call_time)).await;
                    written(items)
                })
            })
            .await;
        assert_eq!(counts(&summary), expected);
        assert_eq!(
            (summary.stopped, summary.exit_code()),
            (Stopped::Interrupted(Signal::Terminate), 143)
        );
        assert_eq!(started.elapsed().as_secs(), call_time.min(31));
    }
}

#[tokio::test]
async fn an_interruption_ends_a_cooldown_at_once() {
    let setup = Setup::items(50);
    let stop = setup.stop.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        stop.stop(Stopped::Interrupted(Signal::Interrupt));
    });
    let started = Instant::now();
    let summary = setup
        .run(|_, _| {
            Box::pin(async {
                CallEnd::RateLimited {
                    message: "429".into(),
                    retry_after: Some(Duration::from_secs(900)),
                }
            })
        })
        .await;
    assert_eq!(started.elapsed().as_secs(), 5);
    assert_eq!(
        (counts(&summary), summary.exit_code()),
        ([0, 0, 0, 50], 130)
    );
}

#[tokio::test]
async fn an_input_that_fails_midway_stops_the_run() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::Error::other("the disk went away"));
            }
            self.0 -= 1;
            into[0] = b'\n';
            if self.0.is_multiple_of(2) {
                into[0] = b'x';
            }
            Ok(1)
        }
    }
    let summary = Setup::reading(Broken(60))
        .run(|items, _| Box::pin(async { written(items) }))
        .await;
    assert_eq!(summary.stopped, Stopped::InputError);
    assert_eq!((summary.items, summary.not_dispatched), (None, None));
    assert!(summary.written <= 30);
}

#[tokio::test]
async fn a_limit_takes_only_the_first_items() {
    let mut setup = Setup::items(500);
    setup.limit = Some(23);
    let summary = setup
        .run(|items, _| Box::pin(async { written(items) }))
        .await;
    assert_eq!((summary.items, summary.written), (Some(23), 23));
}

#[tokio::test]
async fn a_panic_in_a_call_leaves_its_items_unknown_and_stops() {
    let summary = Setup::items(50)
        .run(|items, _| {
            let bad = items[0].index == 10;
            Box::pin(async move {
                assert!(!bad, "a fault on purpose");
                written(items)
            })
        })
        .await;
    assert_eq!(summary.stopped, Stopped::StoreError);
    assert_eq!(counts(&summary), [10, 0, 10, 30]);
}

#[test]
fn a_failures_file_that_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("failures.csv");
    std::fs::write(&path, "batch,error,timestamp\r\n").expect("written");
    // A device on which every write fails, in the place of the file once it is open.
    std::fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink("/dev/full", &path).expect("linked");
    assert!(
        FailuresFile::open(&path).is_err(),
        "its header cannot be written: refused before anything is sent"
    );
}
