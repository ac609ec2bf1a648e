//! The parts of the call path, each for one batch at a time: in one thread, and with nothing in them that depends on
//! the time.

use super::bare::Instance;
use super::fixture::{info, item, target};
use batchgate::flow::Buffer;
use batchgate::source::{Format, Input, Source, SourceConfig};
use batchgate_policy::attempt::{Attempt, OnBreach, OnTrap, Rules};
use batchgate_policy::breaker::Breaker;
use batchgate_policy::controller::{Config, Controller, Curve, History, Observation};
use batchgate_policy::limiter::{Limiter, LimiterConfig};
use batchgate_policy::outcome::{CallEnd, CallResult};
use batchgate_policy::quota::{Day, DayId, Ledger};
use batchgate_policy::ranges::{Ranges, State};
use batchgate_policy::tally::Tally;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Read;
use std::time::Duration;

const BATCH: u32 = 50;

/// Does a batch each time.
pub type Part = Box<dyn FnMut()>;

type Prepare = fn() -> Part;

/// Each part by its name, in the order of a call.
pub const PARTS: &[(&str, Prepare)] = &[
    ("source-csv", || source(Format::Csv)),
    ("source-lines", || source(Format::Lines)),
    ("cut", cut),
    ("limiter", limiter),
    ("call", call),
    ("attempt", || attempt(false)),
    ("attempt-bisected", || attempt(true)),
    ("ranges", ranges),
    ("curve", || observe(Box::new(Curve::new(&config())))),
    ("history", || observe(Box::new(History::new(&config())))),
];

/// The part of that name.
pub fn part(name: &str) -> Part {
    let (_, part) = PARTS.iter().find(|(part, _)| *part == name).unwrap();
    part()
}

/// Text without an end: a header, then the same rows again and again.
struct Rows {
    text: Vec<u8>,
    at: usize,
    again_from: usize,
}

impl Read for Rows {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.text.len() {
            self.at = self.again_from;
        }
        let length = (&self.text[self.at..]).read(into)?;
        self.at += length;
        Ok(length)
    }
}

fn source(format: Format) -> Part {
    let mut text = String::from("id,note\n");
    let again_from = text.len();
    for n in 0..10_000 {
        let _ = writeln!(text, "{n},\"{}\"", "x".repeat(80));
    }
    let rows = Rows {
        text: text.into_bytes(),
        at: 0,
        again_from,
    };
    let config = SourceConfig {
        input: Input::Stdin,
        format,
        delimiter: b',',
        key: (format == Format::Csv).then(|| "id".to_owned()),
        max_item_bytes: 1 << 20,
    };
    let mut source = Source::from_reader(rows, &config).unwrap();
    Box::new(move || {
        let mut left = BATCH as usize;
        while left > 0 {
            left -= black_box(source.read(left, u64::MAX).unwrap()).items.len();
        }
    })
}

fn cut() -> Part {
    let mut buffer = Buffer::default();
    let items: Vec<_> = (0..u64::from(BATCH)).map(item).collect();
    Box::new(move || {
        buffer.push(items.clone());
        black_box(buffer.cut(BATCH, Some(1 << 30)));
    })
}

fn limiter() -> Part {
    let mut limiter = Limiter::new(&LimiterConfig {
        max_per_sec: Some(1e5),
        max_bytes_per_min: Some(u64::MAX),
        max_per_day: Some(u64::MAX),
        durable_day: false,
        breach_base_cooldown: Duration::from_secs(60),
        breach_max_doublings: 0,
        breach_quiet_window: Duration::from_secs(60),
    })
    .unwrap();
    let day = Day {
        id: DayId(0),
        ends: Duration::MAX,
    };
    limiter.quota().set_day(day);
    let mut ledger = Ledger {
        day: day.id,
        count: 0,
    };
    let mut now = Duration::ZERO;
    Box::new(move || {
        now += Duration::from_micros(20);
        while let Some(wanted) = limiter.quota().wanted() {
            let granted = ledger.lease(wanted, limiter.quota().cap()).unwrap();
            limiter.quota().grant(wanted, granted);
        }
        limiter.try_start(now).unwrap();
        limiter.record_bytes(now, 5000);
    })
}

/// Items go into a guest and its answer comes out. Under wasmtime alone: the limits of a slot look at the clock.
fn call() -> Part {
    let guest = target().join("guests/noop.wasm");
    let items: Vec<_> = (0..u64::from(BATCH)).map(item).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut instance = runtime.block_on(Instance::new(&guest, true));
    Box::new(move || {
        let report = runtime.block_on(instance.call(&items, info()));
        assert!(!black_box(report).dead);
    })
}

fn attempt(fails_whole: bool) -> Part {
    let rules = Rules {
        bisect: true,
        bisect_min_size: 1,
        max_batch_retries: 0,
        max_item_attempts: 1,
        on_breach: OnBreach::Resend,
        max_breach_resends: 0,
        on_trap: OnTrap::Fail,
    };
    let (mut tally, mut breaker) = (Tally::default(), Breaker::new(20, None));
    Box::new(move || {
        let mut attempt = Attempt::new(BATCH, rules);
        tally.take(u64::from(BATCH));
        while let Some(next) = attempt.next() {
            let end = match fails_whole && next.positions.contains(17) {
                true => CallEnd::Failed {
                    message: "503".into(),
                    retryable: false,
                },
                false => CallEnd::Written(u64::from(next.positions.len())),
            };
            let result = CallResult {
                end,
                breached: false,
                backing_off: false,
                unanswered: false,
            };
            black_box(attempt.mark(result, |index| Some(index as u32), 0.5));
        }
        let account = attempt.finish();
        tally.end(&account.counts);
        black_box(breaker.record(account.breaker, tally.ended.failed, tally.done()));
    })
}

/// Eight in flight, which end in another order than they started.
fn ranges() -> Part {
    let (mut ranges, mut number) = (Ranges::default(), 0u64);
    Box::new(move || {
        let first = (number ^ 7) * u64::from(BATCH);
        number += 1;
        let items = first..first + u64::from(BATCH);
        ranges.set(items, Some(State::Written), |first| {
            black_box(first);
        });
    })
}

fn config() -> Config {
    Config {
        workers: 8,
        max_workers: Some(64),
        batch_size: BATCH,
        max_batch_size: Some(500),
        ..Config::default()
    }
}

/// A server that slows down from 16 calls on, and noise.
fn observe(mut controller: Box<dyn Controller>) -> Part {
    let mut random = 1u64;
    Box::new(move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let noise = (random >> 33) as f64 / (1u64 << 31) as f64;
        let setting = controller.setting();
        let load = (f64::from(setting.workers) / 16.0).max(1.0);
        black_box(controller.observe(&Observation {
            setting,
            n_items: setting.batch_size,
            elapsed: (0.05 + 0.001 * f64::from(setting.batch_size)) * load * (0.9 + 0.2 * noise),
            ok: true,
            size_fault: false,
            in_flight: None,
        }));
    })
}
