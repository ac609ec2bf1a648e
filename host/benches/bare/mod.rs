//! The guest under wasmtime alone: told of the call, timed and reported, as in a slot, and not limited.
#![allow(clippy::unwrap_used)]

use super::fixture::info;
use ::batchgate::item::{Item, Key};
use ::batchgate::slot::{CallInfo, CallReport};
use batchgate_policy::outcome::CallEnd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
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

/// An instance of the guest, without limits.
pub struct Instance {
    store: Store<State>,
    guest: BatchProcessor,
}

impl Instance {
    /// Makes one; it could be interrupted, and never is, if it is `interruptible`.
    pub async fn new(path: &Path, interruptible: bool) -> Self {
        let mut config = Config::new();
        config
            .concurrency_support(false)
            .epoch_interruption(interruptible)
            // So that it takes the same instructions each time.
            .parallel_compilation(false);
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

    /// Makes a call.
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
            unanswered: false,
            dead: false,
        }
    }
}
