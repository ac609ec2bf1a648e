//! What the journal costs: a benchmark, run by `make bench-journal`.

use batchgate::flow::{Describe, Job, Parking, Records, Stop, run};
use batchgate::limiter::{Calendar, Config as LimiterConfig, Limiter};
use batchgate::slot::Native;
use batchgate::source::{Format, Input, Source, SourceConfig};
use batchgate::store::journal::{Journal, OnUnknown, Options, Subject};
use batchgate_policy::attempt::{OnBreach, OnTrap, Rules};
use batchgate_policy::breaker::Breaker;
use batchgate_policy::controller::{Config, Fixed};
use batchgate_policy::outcome::CallEnd;
use std::path::Path;
use std::time::Duration;

const CALLS: usize = 15_000;
const BATCH: usize = 10;
/// Calls of about 12 ms, 64 at once: about 5,000 a second.
const WORKERS: u32 = 64;
const CALL: Duration = Duration::from_millis(11);
const ROUNDS: usize = 7;

/// Calls a second of a run over numbered items with keys.
async fn calls_per_second(folder: &Path, with_journal: bool) -> f64 {
    let input = folder.join("input.jsonl");
    let config = SourceConfig {
        input: Input::Path(input.clone()),
        format: Format::Jsonl,
        delimiter: b',',
        key: Some("id".into()),
        max_item_bytes: 1 << 20,
    };
    let db = folder.join("journal.sqlite");
    let _ = std::fs::remove_file(&db);
    let journal = with_journal.then(|| {
        let options = Options {
            path: &db,
            label: "bench",
            unknown: OnUnknown::Resend,
            accept_changes: false,
        };
        // Any file does for the component, which is only read for its digest.
        Journal::open(&options, |known| {
            Subject::take("bench", &config, &input, known)
        })
        .expect("a journal")
    });
    let stop = Stop::default();
    let job = Job {
        label: "bench".into(),
        run_id: "run".into(),
        source: Source::open(&config).expect("a source"),
        limit: None,
        rejects: None,
        plugin: Native::new(|items, _| {
            let written = items.len() as u64;
            // Timers end at whole milliseconds: calls of even length would turn the shortest delay into one of 1 ms.
            let uneven = Duration::from_micros(items[0].index * 379 % 1000);
            Box::pin(async move {
                tokio::time::sleep(CALL + uneven).await;
                CallEnd::Written(written)
            })
        }),
        controller: Box::new(Fixed::new(&Config {
            workers: WORKERS,
            batch_size: BATCH as u32,
            ..Config::default()
        })),
        fixed: true,
        rules: Rules {
            bisect: false,
            bisect_min_size: 1,
            max_batch_retries: 2,
            max_item_attempts: 3,
            on_breach: OnBreach::Resend,
            max_breach_resends: 8,
            on_trap: OnTrap::Abort,
        },
        breaker: Breaker::new(8, None),
        max_batch_bytes: None,
        limiter: Limiter::new(LimiterConfig {
            max_per_sec: None,
            max_bytes_per_min: None,
            max_per_day: None,
            calendar: Calendar::new("UTC", jiff::civil::Time::midnight()).expect("UTC"),
            state_file: None,
            breach_base_cooldown: Duration::from_secs(60),
            breach_max_doublings: 4,
            breach_quiet_window: Duration::from_secs(300),
            counts_http: false,
        })
        .expect("a limiter"),
        budget: None,
        parking: Parking {
            park: true,
            max_cooldown: Duration::from_secs(3600),
        },
        control: None,
        records: Records::new("bench".into(), None, None, stop.clone())
            .with_journal(journal, "run"),
        describe: Describe::Key,
        grace: Duration::from_secs(30),
        stop,
    };
    let summary = run(job, |_| ()).await;
    assert_eq!(summary.written, (CALLS * BATCH) as u64);
    summary.calls as f64 / summary.elapsed_seconds
}

#[test]
#[ignore = "a benchmark: make bench-journal"]
fn journal_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines: String = (0..CALLS * BATCH)
        .map(|n| format!("{{\"id\":\"item-{n:09}\"}}\n"))
        .collect();
    std::fs::write(folder.path().join("input.jsonl"), lines).expect("written");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut costs = Vec::new();
    for round in 0..ROUNDS {
        // Side by side, in turns, so that what else the machine does meets both.
        let mut rates = [0.0; 2];
        for side in [round % 2, 1 - round % 2] {
            rates[side] = runtime.block_on(calls_per_second(folder.path(), side == 1));
        }
        let cost = 1.0 - rates[1] / rates[0];
        println!(
            "without {:.0} calls/s, with {:.0}: {:.1} % less",
            rates[0],
            rates[1],
            cost * 100.0
        );
        costs.push(cost);
    }
    let size = std::fs::metadata(folder.path().join("journal.sqlite")).map_or(0, |file| file.len());
    let median = crate::support::median(costs);
    println!(
        "median cost {:.1} %; the journal has {size} bytes after {} items",
        median * 100.0,
        CALLS * BATCH
    );
    assert!(median < 0.1, "the journal costs {:.1} %", median * 100.0);
}
