//! What the sandbox's limits cost a call: the same guest and items as a slot runs them, beside two hosts without
//! limits, which tell the guest of the call, time it and report. In the one, nothing interrupts the guest. In the
//! other it could be interrupted, which costs a check at each of its functions and loops, and never is.
//!
//! Usage: `cargo bench --bench sandbox [GUEST.wasm]`. Needs `make guests`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use batchgate::item::{Item, Key};
use batchgate::slot::{CallInfo, CallReport, CallServices, Plugin, Slot};
use batchgate::wasm::{Component, Job, SandboxConfig, WasmPlugin};
use batchgate_policy::outcome::CallEnd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Both are measured in turns, one right after the other, and the middle one of their ratios counts: what disturbs the
/// machine for longer than a turn disturbs both. Time is the thread's own, in which it ran.
const TURNS: usize = 301;
const TURN: Duration = Duration::from_millis(5);

fn main() {
    let guest = std::env::args()
        .nth(1)
        .filter(|argument| !argument.starts_with("--"));
    let guest = guest.map_or_else(|| target().join("guests/noop.wasm"), PathBuf::from);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(&guest));
}

/// The folder of what was built.
fn target() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .ancestors()
        .nth(3)
        .unwrap()
        .to_owned()
}

async fn measure(guest: &Path) {
    let component =
        Component::load(guest, &SandboxConfig::default()).unwrap_or_else(|error| panic!("{error}"));
    let job = Job {
        label: "bench".into(),
        run_id: "run".into(),
        key_salt: String::new(),
        services: Arc::new(NoServices),
    };
    let mut slot = WasmPlugin::new(Arc::new(component), job)
        .start_slot(0)
        .await
        .unwrap();
    let mut bare = bare::Instance::new(guest, false).await;
    let mut interruptible = bare::Instance::new(guest, true).await;
    println!("items   without limits  interruptible   with limits");
    for count in [1, 10, 50, 1000] {
        let items: Vec<_> = (0..count).map(item).collect();
        let (mut times, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
        for _ in 0..TURNS {
            let turn = [
                turn(async || drop(bare.call(&items, info()).await)).await,
                turn(async || drop(interruptible.call(&items, info()).await)).await,
                turn(async || drop(slot.call(&items, info()).await)).await,
            ];
            for (times, time) in times.iter_mut().zip(turn) {
                times.push(time);
            }
            ratios[0].push(turn[2] / turn[0]);
            ratios[1].push(turn[2] / turn[1]);
        }
        let [alone, interruptible, limited] = times.map(|times| median(times) * 1e6);
        let [more, more_than_interruptible] = ratios.map(|ratios| (median(ratios) - 1.0) * 100.0);
        println!(
            "{count:>5}   {alone:>11.2} us {interruptible:>11.2} us {limited:>10.2} us: \
             {more:+.1} %, {more_than_interruptible:+.1} % beside interruptible"
        );
    }
}

/// Seconds a call, over one turn.
async fn turn(mut call: impl AsyncFnMut()) -> f64 {
    let (started, mut calls) = (thread_time(), 0);
    loop {
        for _ in 0..10 {
            call().await;
        }
        calls += 10;
        let spent = thread_time() - started;
        if spent >= TURN {
            return spent.as_secs_f64() / f64::from(calls);
        }
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn item(index: u64) -> Item {
    Item {
        index,
        key: Key::Text(format!("key-{index}").into()),
        data: vec![b'x'; 100].into(),
    }
}

fn info() -> CallInfo {
    CallInfo {
        label: "bench".into(),
        run_id: "run".into(),
        call_number: 1,
        workers: 1,
        batch_size: 50,
    }
}

struct NoServices;

impl CallServices for NoServices {
    fn report_breach(&self, _: tokio::time::Instant, _: Option<Duration>) -> Duration {
        Duration::ZERO
    }

    fn record_bytes(&self, _: u64) {}

    fn is_backing_off(&self) -> bool {
        false
    }

    async fn http_request(&self) {}
}

/// The guest under wasmtime alone.
mod bare {
    use super::*;
    use wasmtime::component::{Component, Linker, ResourceTable};
    use wasmtime::{Config, Engine, Store};
    use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

    wasmtime::component::bindgen!({
        path: "../wit",
        world: "batch-processor",
        ownership: Borrowing { duplicate_if_necessary: true },
        exports: { default: async },
    });

    struct State {
        wasi: WasiCtx,
        table: ResourceTable,
        call: Arc<CallInfo>,
    }

    impl WasiView for State {
        fn ctx(&mut self) -> WasiCtxView<'_> {
            WasiCtxView {
                ctx: &mut self.wasi,
                table: &mut self.table,
            }
        }
    }

    pub struct Instance {
        store: Store<State>,
        guest: BatchProcessor,
    }

    impl Instance {
        pub async fn new(path: &Path, interruptible: bool) -> Self {
            let mut config = Config::new();
            config
                .concurrency_support(false)
                .epoch_interruption(interruptible);
            let engine = Engine::new(&config).unwrap();
            let component = Component::from_file(&engine, path).unwrap();
            let mut linker = Linker::new(&engine);
            wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
            let state = State {
                wasi: WasiCtx::builder().build(),
                table: ResourceTable::new(),
                call: Arc::new(info()),
            };
            let mut store = Store::new(&engine, state);
            if interruptible {
                store.set_epoch_deadline(u64::MAX >> 1);
            }
            let guest = BatchProcessor::instantiate_async(&mut store, &component, &linker)
                .await
                .unwrap();
            Self { store, guest }
        }

        pub async fn call(&mut self, items: &[Item], info: CallInfo) -> CallReport {
            let started = Instant::now();
            self.store.data_mut().call = Arc::new(info);
            let items: Vec<_> = items
                .iter()
                .map(|item| batchgate::batch::types::Item {
                    index: item.index,
                    key: match &item.key {
                        Key::Text(text) => text,
                        Key::Index => "",
                    },
                    data: &item.data,
                })
                .collect();
            let processor = self.guest.batchgate_batch_processor();
            let answer = processor.call_process_batch(&mut self.store, &items).await;
            CallReport {
                end: CallEnd::Written(answer.unwrap().unwrap()),
                breached: false,
                elapsed: started.elapsed(),
                bytes: None,
                dead: false,
            }
        }
    }
}
