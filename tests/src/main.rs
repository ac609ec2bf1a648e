//! Integration tests, a file per feature.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod acceptance;
mod budget;
mod budget_flow;
mod control;
mod ends;
mod faults;
mod flow;
mod inputs;
mod journal;
mod journal_cost;
mod languages;
mod memory;
mod parity;
mod retry_after;
mod sandbox;
mod seed_interop;
mod stops;
mod support;
mod tuner;
mod tuner_memory;
