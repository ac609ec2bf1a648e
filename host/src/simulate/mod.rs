//! Simulations: a controller against a server whose best setting is known, in virtual time.
//!
//! Invariant: a seed fixes every figure; nothing here reads a clock or sleeps.

mod comparison;
mod fields;
mod figures;
mod random;
mod run;
mod scenario;
mod server;
mod sweep;

pub use comparison::{Comparison, compare};
pub use figures::{Figures, Summary, summarize};
pub use random::random_scenarios;
pub use run::{Unfinished, run};
pub use scenario::{Job, Scenario, ScenarioError};
pub use server::{Server, Shape};
pub use sweep::{Convergence, FalseCuts, FlatTop, Knee, Sweep, sweep};

#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod tests;
