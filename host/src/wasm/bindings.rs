//! The host's side of `wit/batch.wit`, generated from that file.
//!
//! Items are lowered straight from borrowed data; answers are lifted into owned types,
//! whose total size the sandbox caps before anything is allocated.

wasmtime::component::bindgen!({
    path: "../wit",
    world: "describing-batch-processor",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { default: trappable },
    exports: { default: async },
});

pub use self::batchgate::batch::{call, limiter, types};
pub use self::exports::batchgate::batch::{describer, processor};
