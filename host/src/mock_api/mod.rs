//! `batchgate mock-api`: a stand-in for the API that a plugin uploads to, with limits and a
//! latency that are known, to rehearse against.
//!
//! Invariant: what `/stats`, `/log` and `/keys` report is what happened: a request is in the log
//! from its arrival on, and a key is counted exactly when its item was stored.
//!
//! What the server does with a `POST /items`, in this order:
//! - The rate (`--max-per-sec`), the body's size and form, and `--max-batch` are checked at once, and
//!   a refusal (429 or 503, 400, 413) is answered without any latency. So is the 422 of
//!   `--bad-mode reject`, which stores nothing of the batch.
//! - Everything else takes the time of the latency model, counted from the arrival of the request's
//!   head and fixed then, for the requests in flight at that moment (this one included).
//! - Items are stored when that time is over, just before the answer is sent. A client that goes away
//!   once its request has arrived changes nothing: the server goes on, stores the items, and only
//!   then counts the request as no longer in flight.

mod answer;
mod batch;
mod latency;
mod ledger;
mod options;
mod pages;
mod rate;
mod schedule;
mod server;

pub use ledger::{KeyEntry, LogEntry, Stats};
pub use options::{BadMode, Behaviour, Change, Options, OptionsError, RetryAfter, Shape};
pub use server::{Server, StartError};

#[cfg(test)]
mod tests;
