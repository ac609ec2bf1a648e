//! Integration tests, a file per feature.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod acceptance;
mod control;
mod ends;
mod flow;
mod inputs;
mod journal;
mod memory;
mod parity;
mod seed_interop;
mod support;
