//! Does what its items say. Each item's data is a JSON object:
//!
//! - `{"do": ACTION, …}`: one instruction (other fields, such as a key, are ignored);
//! - `{"steps": [{"do": …}, …]}`: the first of them whose conditions hold;
//! - anything without either, or not JSON: the item is written.
//!
//! Conditions, all of which must hold:
//! - `on_call` K: this is the attempt's Kth call; `until_call` K: its Kth or an earlier one;
//! - `instance_call` K: this is this instance's Kth call; `every` K: its Kth, 2Kth, …;
//! - `min_items` N, `max_items` N: the batch has at least, at most N items.
//!
//! Instructions are followed in the order of the items; one that answers ends the call.
//! Unanswered, the call ends with the items that failed, else `ok` for all but the skipped.
//! An unknown instruction is `fatal`. `message` may be left out everywhere.
//!
//! | do | with | effect |
//! |---|---|---|
//! | `ok` | | the item is written |
//! | `skip` | | the item counts as not written |
//! | `item_fail` | `retryable`, `message`, `index` | the item (or any index) is in the partial list |
//! | `sleep` | `ms` | sleeps |
//! | `spin` | `ms` | computes |
//! | `breach` | `ms` (optional) | reports a breach |
//! | `bytes` | `n` | records bytes |
//! | `alloc` | `mb` | takes memory and keeps it |
//! | `log` | `n`, `text` | writes n lines to stderr (`out`: true: to stdout); text as it is |
//! | `random` | `n` | asks for n random bytes at once |
//! | `ok_n` | `n` | answers ok(n), however many items there are |
//! | `fail` | `retryable`, `message` | answers failed |
//! | `fatal`, `too_large` | `message` | answers so |
//! | `rate_limited` | `ms` (optional), `message` | answers so |
//! | `err_text` | `bytes` | answers failed with a message that long |
//! | `partial_flood` | `n` | answers partial with n entries, index from 0, retryable |
//! | `info` | | answers failed; message `label=… run_id=… call=… workers=… batch_size=… deadline_ms=… idempotency_key=… backing_off=…` |
//! | `config` | `name` | answers failed; message the value, or why there is none |
//! | `env` | `name` | the same for an environment variable |
//! | `read` | `path` | the same for a file's text |
//! | `write` | `path` | answers failed; message `written`, or why not |
//! | `get` | `url` | answers failed; message the status and the body, or why there is none |
//! | `trap` | `message` | panics |
//! | `exit` | `code` | ends the process |
//! | `loop` | | never returns, computing |
//! | `recurse` | | calls itself without end |

use batchgate_guest::{BatchError, Failures, Item, ItemFailure, call, config, http, limiter};
use serde::Deserialize;
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

batchgate_guest::export!(process);

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Script {
    Steps { steps: Vec<Step> },
    One(Step),
}

#[derive(Deserialize)]
struct Step {
    #[serde(flatten)]
    when: When,
    #[serde(flatten)]
    action: Action,
}

#[derive(Deserialize)]
struct When {
    on_call: Option<u32>,
    until_call: Option<u32>,
    instance_call: Option<u64>,
    every: Option<u64>,
    min_items: Option<usize>,
    max_items: Option<usize>,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Action {
    Ok,
    Skip,
    ItemFail {
        #[serde(default)]
        retryable: bool,
        message: Option<String>,
        index: Option<u64>,
    },
    Sleep {
        ms: u64,
    },
    Spin {
        ms: u64,
    },
    Breach {
        ms: Option<u64>,
    },
    Bytes {
        n: u64,
    },
    Alloc {
        mb: usize,
    },
    Log {
        n: u64,
        text: Option<String>,
        #[serde(default)]
        out: bool,
    },
    Random {
        n: u64,
    },
    OkN {
        n: u64,
    },
    Fail {
        #[serde(default)]
        retryable: bool,
        message: Option<String>,
    },
    Fatal {
        message: Option<String>,
    },
    TooLarge {
        message: Option<String>,
    },
    RateLimited {
        ms: Option<u64>,
        message: Option<String>,
    },
    ErrText {
        bytes: usize,
    },
    PartialFlood {
        n: u64,
    },
    Info,
    Config {
        name: String,
    },
    Env {
        name: String,
    },
    Read {
        path: String,
    },
    Write {
        path: String,
    },
    Get {
        url: String,
    },
    Trap {
        message: Option<String>,
    },
    Exit {
        code: i32,
    },
    Loop,
    Recurse,
}

fn process(items: Vec<Item>) -> Result<u64, BatchError> {
    CALLS.set(CALLS.get() + 1);
    let call_number = call::info().call_number;
    let mut failures = Failures::new();
    let mut skipped = 0;
    for item in &items {
        let Some(script) = script(item)? else {
            continue;
        };
        let step = match script {
            Script::One(step) => step.when.holds(call_number, items.len()).then_some(step),
            Script::Steps { steps } => steps
                .into_iter()
                .find(|step| step.when.holds(call_number, items.len())),
        };
        match step.map(|step| step.action) {
            None | Some(Action::Ok) => {}
            Some(Action::Skip) => skipped += 1,
            Some(Action::ItemFail {
                retryable,
                message,
                index,
            }) => {
                let message = message.unwrap_or_else(|| format!("item {} told to fail", item.key));
                let named = Item {
                    index: index.unwrap_or(item.index),
                    ..item.clone()
                };
                if retryable {
                    failures.retry(&named, message);
                } else {
                    failures.fail(&named, message);
                }
            }
            Some(action) => {
                if let Some(answer) = follow(action) {
                    return answer;
                }
            }
        }
    }
    failures.into_result(items.len() as u64 - skipped)
}

/// None if the item says nothing.
fn script(item: &Item) -> Result<Option<Script>, BatchError> {
    let Ok(value) = item.json::<serde_json::Value>() else {
        return Ok(None);
    };
    if value.get("do").is_none() && value.get("steps").is_none() {
        return Ok(None);
    }
    // Read twice for a message that says what is wrong with the step: an untagged enum
    // only says that nothing fits.
    let steps = value
        .get("steps")
        .and_then(|steps| steps.as_array())
        .cloned();
    for step in steps.unwrap_or_else(|| vec![value.clone()]) {
        serde_json::from_value::<Step>(step)
            .map_err(|error| BatchError::fatal(format!("item {}: {error}", item.index)))?;
    }
    let script = serde_json::from_value(value)
        .map_err(|error| BatchError::fatal(format!("item {}: {error}", item.index)))?;
    Ok(Some(script))
}

impl When {
    fn holds(&self, call: u32, items: usize) -> bool {
        let instance_call = CALLS.get();
        self.on_call.is_none_or(|k| call == k)
            && self.until_call.is_none_or(|k| call <= k)
            && self.instance_call.is_none_or(|k| instance_call == k)
            && self
                .every
                .is_none_or(|k| k > 0 && instance_call.is_multiple_of(k))
            && self.min_items.is_none_or(|n| items >= n)
            && self.max_items.is_none_or(|n| items <= n)
    }
}

/// The answer of the call, if the action is one.
fn follow(action: Action) -> Option<Result<u64, BatchError>> {
    let or = |message: Option<String>, default: &str| message.unwrap_or_else(|| default.into());
    let error = match action {
        Action::Ok | Action::Skip | Action::ItemFail { .. } => return None,
        Action::Sleep { ms } => {
            std::thread::sleep(Duration::from_millis(ms));
            return None;
        }
        Action::Spin { ms } => {
            let end = Instant::now() + Duration::from_millis(ms);
            while Instant::now() < end {
                for _ in 0..10_000 {
                    std::hint::spin_loop();
                }
            }
            return None;
        }
        Action::Breach { ms } => {
            limiter::report_breach(ms.map(Duration::from_millis));
            return None;
        }
        Action::Bytes { n } => {
            limiter::record_bytes(n);
            return None;
        }
        Action::Alloc { mb } => {
            // Written to, so that the pages are really taken.
            KEPT.with_borrow_mut(|kept| kept.push(black_box(vec![1; mb << 20])));
            return None;
        }
        Action::Log { n, text, out } => {
            let text = or(text, "a line");
            for _ in 0..n {
                if out {
                    println!("{text}");
                } else {
                    eprintln!("{text}");
                }
            }
            return None;
        }
        Action::Random { n } => {
            black_box(wasip2::random::random::get_random_bytes(n));
            return None;
        }
        Action::OkN { n } => return Some(Ok(n)),
        Action::Fail {
            retryable: true,
            message,
        } => BatchError::retryable(or(message, "told to fail, retryable")),
        Action::Fail {
            retryable: false,
            message,
        } => BatchError::failed(or(message, "told to fail")),
        Action::Fatal { message } => BatchError::fatal(or(message, "told to be fatal")),
        Action::TooLarge { message } => BatchError::too_large(or(message, "told to be too large")),
        Action::RateLimited { ms, message } => BatchError::rate_limited(
            or(message, "told to be rate-limited"),
            ms.map(Duration::from_millis),
        ),
        Action::ErrText { bytes } => BatchError::failed("x".repeat(bytes)),
        Action::PartialFlood { n } => BatchError::Partial(
            (0..n)
                .map(|index| ItemFailure {
                    index,
                    message: String::new(),
                    retryable: true,
                })
                .collect(),
        ),
        Action::Info => {
            let i = call::info();
            BatchError::failed(format!(
                "label={} run_id={} call={} workers={} batch_size={} deadline_ms={} \
                 idempotency_key={} backing_off={}",
                i.label,
                i.run_id,
                i.call_number,
                i.workers,
                i.batch_size,
                i.deadline_ms,
                i.idempotency_key,
                limiter::is_backing_off()
            ))
        }
        Action::Config { name } => told(config::require(&name)),
        Action::Env { name } => told(std::env::var(&name)),
        Action::Read { path } => told(std::fs::read_to_string(&path)),
        Action::Write { path } => told(std::fs::write(&path, "x").map(|()| "written".to_owned())),
        Action::Get { url } => {
            told(http::get(&url).map(|got| format!("{} {}", got.status, got.text())))
        }
        Action::Trap { message } => panic!("{}", or(message, "told to trap")),
        Action::Exit { code } => std::process::exit(code),
        Action::Loop => loop {
            std::hint::spin_loop();
        },
        Action::Recurse => BatchError::failed(format!("came back after {}", recurse(1))),
    };
    Some(Err(error))
}

/// The message is the value, or the error.
fn told<E: std::fmt::Display>(result: Result<String, E>) -> BatchError {
    match result {
        Ok(value) => BatchError::failed(value),
        Err(error) => BatchError::failed(error),
    }
}

#[inline(never)]
#[allow(unconditional_recursion)]
fn recurse(depth: u64) -> u64 {
    // The frame is used after the call, so that this is no loop.
    let frame = black_box([depth; 64]);
    recurse(depth + 1) + frame[0]
}
