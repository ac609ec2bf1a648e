//! Batchgate runs a team's batch logic, a WASI component that exports `process-batch`, in a
//! sandbox, and finds by itself how many batches to keep in flight and how many items to put in
//! each.
//!
//! Words, one for one thing:
//!
//! - *item*: one unit of work ([`item`]). *batch*: the items sent together.
//! - *call*: one invocation of the guest's `process-batch`. *attempt*: a batch from dispatch to its
//!   end, a first call and whatever calls recover it.
//! - *slot*: a place for one call in flight, with its own guest instance ([`slot`]).
//! - *setting*: workers and batch size at an epoch. *outcome*: what a call or an attempt came to.
//! - *tally*: the run's account of items. *controller*: turns observations into settings.
//! - *limiter*: rate caps and the shared cooldown ([`limiter`]). *breach*: the server refused us for our
//!   rate. *budget*: slots shared by jobs ([`budget`]).
//! - *job*: a component, an input and its settings ([`config`], [`job`]). *run*: one execution of a job
//!   ([`flow`]).
//! - *guest*: the user's component. *host*: us.
//!
//! What is decided is decided in the crate `batchgate_policy`, which can do no I/O. Calls are made in
//! [`wasm`], the one place of wasmtime; rows are written in [`store`], the one place of SQLite.

mod aside;
pub mod budget;
pub mod check;
pub mod cli;
pub mod config;
pub mod flow;
pub mod host;
pub mod item;
pub mod job;
pub mod limiter;
mod link;
pub mod mock_api;
mod open_files;
mod regular;
pub mod replay;
pub mod report;
pub mod retry_after;
pub mod simulate;
pub mod slot;
pub mod source;
pub mod store;
pub mod template;
pub mod wasm;
