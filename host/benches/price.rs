//! What the sandbox costs a run: the same runner over the same input with a component in its one slot, and with a native
//! function there that does nothing. Beside it what a native copy costs that makes two allocations for each item,
//! as a component has its items.
//!
//! Usage: `cargo bench --bench price`. Needs `make guests`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod fixture;

use batchgate::flow::{self, Describe, Parking, Records, Stop};
use batchgate::item::Item;
use batchgate::limiter::{self, Calendar, Limiter};
use batchgate::slot::{CallInfo, Native, NativeCall, Plugin};
use batchgate::source::{Format, Input, Source, SourceConfig};
use batchgate::wasm::{Component, SandboxConfig};
use batchgate_policy::attempt::{OnBreach, OnTrap, Rules};
use batchgate_policy::breaker::Breaker;
use batchgate_policy::controller::{Config, Fixed};
use batchgate_policy::outcome::CallEnd;
use fixture::{median, plugin, target, thread_time};
use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// All are measured in turns, one right after the other, and the middle one of their differences counts.
const TURNS: usize = 31;
const ITEMS: usize = 100_000;

fn main() {
    let guest = target().join("guests/noop.wasm");
    let component = |path: &Path| {
        Component::load(path, &SandboxConfig::default()).unwrap_or_else(|error| panic!("{error}"))
    };
    let component = plugin(component(&guest));
    let component = Arc::new(component);
    let mut input = String::from("id,note\n");
    for n in 0..ITEMS {
        let _ = writeln!(input, "key-{n},{}", "x".repeat(80));
    }
    let input: Arc<[u8]> = input.into_bytes().into();
    for batch_size in [50, 1000] {
        let (mut price, mut copy) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let nothing = run(Native::new(nothing), &input, batch_size);
            price.push(run(Borrowed(component.clone()), &input, batch_size) - nothing);
            copy.push(run(Native::new(copied), &input, batch_size) - nothing);
        }
        let (price, copy) = (median(price), median(copy));
        println!(
            "{batch_size} items a call: a component costs {price:.2} us more than a native function, \
             a native copy with two allocations an item {copy:.2} us; {:.2} times",
            price / copy
        );
    }
}

fn nothing(items: &[Item], _: CallInfo) -> NativeCall<'_> {
    Box::pin(std::future::ready(CallEnd::Written(items.len() as u64)))
}

fn copied(items: &[Item], _: CallInfo) -> NativeCall<'_> {
    let copies: Vec<_> = items
        .iter()
        .map(|item| (item.index, item.key().into_owned(), item.data.to_vec()))
        .collect();
    let written = std::hint::black_box(copies).len() as u64;
    Box::pin(std::future::ready(CallEnd::Written(written)))
}

/// A plugin that serves run after run.
struct Borrowed<P>(Arc<P>);

impl<P: Plugin> Plugin for Borrowed<P> {
    type Slot = P::Slot;

    async fn start_slot(&self, number: usize) -> Result<P::Slot, String> {
        self.0.start_slot(number).await
    }
}

/// Microseconds a call: time of the thread in which all runs but the reader.
fn run<P: Plugin>(plugin: P, input: &Arc<[u8]>, batch_size: u32) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let job = job(plugin, input, batch_size);
    let started = thread_time();
    let summary = runtime.block_on(flow::run(job, |_| ()));
    let spent = thread_time() - started;
    assert_eq!(summary.written, ITEMS as u64);
    spent.as_secs_f64() * 1e6 / summary.calls as f64
}

fn job<P: Plugin>(plugin: P, input: &Arc<[u8]>, batch_size: u32) -> flow::Job<P> {
    let label: Arc<str> = "bench".into();
    let stop = Stop::default();
    let config = SourceConfig {
        input: Input::Stdin,
        format: Format::Csv,
        delimiter: b',',
        key: Some("id".to_owned()),
        max_item_bytes: 1 << 20,
    };
    flow::Job {
        label: label.clone(),
        run_id: "run".into(),
        source: Source::from_reader(Cursor::new(input.clone()), &config).unwrap(),
        limit: None,
        rejects: None,
        plugin,
        controller: Box::new(Fixed::new(&Config {
            batch_size,
            ..Config::default()
        })),
        fixed: true,
        rules: Rules {
            bisect: true,
            bisect_min_size: 1,
            max_batch_retries: 0,
            max_item_attempts: 1,
            on_breach: OnBreach::Resend,
            max_breach_resends: 0,
            on_trap: OnTrap::Fail,
        },
        breaker: Breaker::new(1, None),
        max_batch_bytes: None,
        limiter: Limiter::new(limiter::Config {
            max_per_sec: None,
            max_bytes_per_min: None,
            max_per_day: None,
            calendar: Calendar::new("UTC", jiff::civil::Time::midnight()).unwrap(),
            state_file: None,
            breach_base_cooldown: Duration::from_secs(60),
            breach_max_doublings: 0,
            breach_quiet_window: Duration::from_secs(60),
            counts_http: false,
        })
        .unwrap(),
        budget: None,
        parking: Parking {
            park: true,
            max_cooldown: Duration::MAX,
        },
        control: None,
        records: Records::new(label, None, None, stop.clone()),
        describe: Describe::Key,
        grace: Duration::from_secs(1),
        stop,
    }
}
