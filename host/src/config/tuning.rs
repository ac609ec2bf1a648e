//! The part of a job file that a controller needs, for running one without a job.

use std::path::Path;

use super::adaptive::Adaptive;
use super::error::ConfigError;
use super::file;
use super::filled::Filled;
use super::pool::Pool;

/// `[pool]` and `[adaptive]` of a job file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuning {
    pub pool: Pool,
    pub adaptive: Adaptive,
}

impl Tuning {
    /// Reads the two tables and ignores all others, but a file that is no TOML is an error.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut entries = file::read(path)?;
        entries.retain(|(name, _)| matches!(name.as_str(), "pool" | "adaptive"));
        let mut tuning = Self::default();
        let mut filled = Filled::default();
        let mut problems = Vec::new();
        let tables = &mut [&mut tuning.pool as _, &mut tuning.adaptive as _];
        filled.take_file(&entries, tables, &mut problems);
        ConfigError::unless_empty(std::mem::take(&mut problems))?;
        tuning.adaptive.check(&filled, &mut problems);
        ConfigError::unless_empty(problems)?;
        Ok(tuning)
    }
}
