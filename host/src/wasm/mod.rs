//! Runs components in a sandbox. All use of wasmtime is in here.
//!
//! Invariant: whatever a component does, it costs the host no more than its limits, reaches nothing
//! that its job does not name, and ends as an outcome of its own call.

mod answer;
mod bindings;
mod cache;
mod call;
mod compile;
mod component;
mod concurrent;
mod engine;
mod files;
mod guest_log;
pub mod http;
mod inspect;
mod key;
mod limits;
mod linker;
#[cfg(test)]
mod log_capture;
mod lookups;
mod meter;
mod plugin;
mod sandbox;
mod size;
mod slot;
mod state;
mod text;
mod world;

pub(crate) use compile::{compile_for_parent, own_program};
pub use component::{Component, LoadError};
pub use inspect::Inspection;
pub use plugin::{Job, WasmPlugin, WasmSlot};
pub use sandbox::{ConfigValue, Dir, SandboxConfig};
pub use world::{Unfit, World};
