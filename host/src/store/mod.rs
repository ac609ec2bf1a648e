//! The stores in SQLite: live control, the usage log, the journal and the tuner's memory.
//!
//! The tables and columns of the first two are those of the Python library `adaptive-concurrency`, whose
//! functions read and write the same files while a job runs. SQLite is used in this module alone. Nothing of these two,
//! nor of the memory, may stop a run or hold up a call: a store that fails is reported once, when it starts to fail and when it works
//! again. The journal is different: what it cannot record must not be sent.

pub mod control;
mod control_reader;
mod fault;
pub mod journal;
mod logged_calls;
mod rollup;
mod sqlite;
mod trouble;
mod tuner_memory;
pub mod usage;
mod usage_buffer;
mod usage_writer;

pub use control_reader::ControlReader;
pub use fault::{Fault, StoreError};
pub use logged_calls::{LoggedCall, LoggedCalls};
pub use tuner_memory::TunerMemory;
pub use usage_writer::{UsageReport, UsageWriter};
