//! Of the async world: does what its items say, one after the other. Each item's data is a JSON object:
//!
//! | do | with | effect |
//! |---|---|---|
//! | `sleep` | `ms` | awaits |
//! | `block` | `ms` | sleeps without awaiting |
//! | `spin` | `ms` | computes |
//! | `alloc` | `mb` | takes memory and keeps it |
//! | `log` | `text` | writes the text to stdout, with no line end of its own |
//! | `breach` | `ms` (optional) | reports a breach |
//! | `get` | `url` | answers failed; message the status and the body, or why there is none |
//! | `get_blocking` | `url` | the same over WASI 0.2 |
//! | `random` | `n` | asks for n random bytes at once |
//! | `info` | | answers failed; message `call=… workers=… idempotency_key=… on_instance=…` |
//! | `partial_flood` | `n` | answers partial with n entries |
//! | `trap` | | panics |
//! | `exit` | | ends the process |
//! | `loop` | | never returns, computing |
//!
//! Anything else is written.

use batchgate_guest::http::Request;
use batchgate_guest::{BatchError, Item, ItemFailure, call, limiter, time::sleep};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

batchgate_guest::export!(async process);

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

async fn process(items: Vec<Item>) -> Result<u64, BatchError> {
    CALLS.set(CALLS.get() + 1);
    for item in &items {
        follow(&item.json::<Value>().unwrap_or_default()).await?;
    }
    Ok(items.len() as u64)
}

async fn follow(step: &Value) -> Result<(), BatchError> {
    let number = |name| step[name].as_u64();
    let wait = Duration::from_millis(number("ms").unwrap_or(0));
    let url = step["url"].as_str().unwrap_or_default();
    match step["do"].as_str().unwrap_or_default() {
        "sleep" => sleep(wait).await,
        "block" => std::thread::sleep(wait),
        "spin" => spin(wait),
        "alloc" => {
            let bytes = number("mb").unwrap_or(1) << 20;
            // Written to, so that the pages are really taken.
            KEPT.with_borrow_mut(|kept| kept.push(black_box(vec![1; bytes as usize])));
        }
        "log" => print!("{}", step["text"].as_str().unwrap_or_default()),
        "breach" => {
            limiter::report_breach(number("ms").map(Duration::from_millis));
        }
        "get" => return told(Request::new("GET", url).send_async().await),
        "get_blocking" => return told(Request::new("GET", url).send()),
        "random" => {
            black_box(wasip2::random::random::get_random_bytes(
                number("n").unwrap_or(1),
            ));
        }
        "info" => {
            let info = call::info();
            return Err(BatchError::failed(format!(
                "call={} workers={} idempotency_key={} on_instance={}",
                info.call_number,
                info.workers,
                info.idempotency_key,
                CALLS.get()
            )));
        }
        "partial_flood" => {
            let entry = |index| ItemFailure {
                index,
                message: String::new(),
                retryable: true,
            };
            let entries = 0..number("n").unwrap_or(0);
            return Err(BatchError::Partial(entries.map(entry).collect()));
        }
        "trap" => panic!("told to trap"),
        "exit" => std::process::exit(3),
        "loop" => loop {
            std::hint::spin_loop();
        },
        _ => {}
    }
    Ok(())
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..10_000 {
            std::hint::spin_loop();
        }
    }
}

fn told(
    got: Result<batchgate_guest::http::Response, batchgate_guest::http::Error>,
) -> Result<(), BatchError> {
    Err(BatchError::failed(match got {
        Ok(response) => format!("{} {}", response.status, response.text()),
        Err(error) => error.to_string(),
    }))
}
