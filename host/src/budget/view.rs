//! How a budget stands, for people and programs that look at it.

use serde::{Deserialize, Serialize};

/// How a budget stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// `stopped`, `starting` or `running`.
    pub state: String,
    /// Calls in flight.
    pub in_use: u32,
    /// Slots there are: `desired`, or `min` while the machine is overloaded.
    pub slots: u32,
    /// The level.
    pub desired: u32,
    /// Its lower bound.
    pub min: u32,
    /// Its upper bound.
    pub max: u32,
    /// Calls started in the last minute.
    pub started_last_minute: u32,
    /// The cap on them.
    pub max_tasks_per_minute: Option<u32>,
    /// The machine is overloaded, so that nothing starts beyond `min`.
    pub overloaded: bool,
    /// The verdict in words.
    pub verdict: String,
    /// Each signal.
    pub signals: Vec<SignalView>,
    /// Each job.
    pub consumers: Vec<ConsumerView>,
}

/// How a signal stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalView {
    /// Its name.
    pub name: String,
    /// The share of the current window that it was overloaded for; null if not known.
    pub current: Option<f64>,
    /// The same of the historical window.
    pub history: Option<f64>,
    /// The share that it may be overloaded for.
    pub limit: f64,
    /// It says that the machine is overloaded.
    pub overloaded: bool,
}

/// How a job stands with the budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerView {
    /// Unique in the process.
    pub number: u64,
    /// Its label.
    pub label: String,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls it could start.
    pub ready: u32,
    /// Slots it may use.
    pub share: u32,
    /// What it brings.
    pub weight: f64,
    /// See `weight`.
    pub guarantee: u32,
    /// See `weight`.
    pub limit: Option<u32>,
}
