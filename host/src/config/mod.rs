//! What a job is told to do: reads job files, host files and command-line options.
//!
//! Invariant: every option is defined once, by a line of a `table!`; a configuration that is
//! handed out has every value inside its range.

mod adaptive;
mod budget;
mod component_config;
mod control;
mod controller;
mod error;
mod file;
mod filled;
mod host_file;
mod job;
mod journal;
mod kind;
mod number;
mod origin;
mod overrides;
mod pool;
mod rate_limit;
mod raw;
mod reference;
mod sandbox;
mod several;
mod share;
mod size;
mod stop;
mod table;
mod top;
mod tuning;
mod usage;

#[cfg(test)]
mod tests;

pub use adaptive::Adaptive;
pub use budget::Budget;
pub use component_config::{ComponentConfig, ConfigValue};
pub use control::Control;
pub use error::{ConfigError, Problem};
pub use filled::Filled;
pub use host_file::HostFile;
pub use job::{Chapter, Job, chapters};
pub use journal::{Journal, Unknown};
pub use kind::{Choice, Shape};
pub use origin::{Entry, Origin};
pub use overrides::Overrides;
pub use pool::{Describe, FailedItems, Pool};
pub use rate_limit::{RateLimit, Scope};
pub use reference::job_file_reference;
pub use sandbox::{Dir, Sandbox};
pub use several::{fits_beside, fits_folder, fits_host_file, load_jobs};
pub use share::Share;
pub use stop::Stop;
pub use table::Definition;
pub use top::Top;
pub use tuning::Tuning;
pub use usage::Usage;
