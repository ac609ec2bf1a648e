//! A job: a component, an input and its settings, from a job file and the command line.

use std::path::Path;

use super::adaptive::Adaptive;
use super::budget::Budget;
use super::component_config::{ComponentConfig, Environment};
use super::control::Control;
use super::error::{ConfigError, Problem};
use super::file;
use super::filled::Filled;
use super::host_file::HostFile;
use super::journal::Journal;
use super::origin::{Origin, one_line};
use super::overrides::Overrides;
use super::pool::Pool;
use super::rate_limit::RateLimit;
use super::raw::Raw;
use super::sandbox::Sandbox;
use super::share::Share;
use super::stop::Stop;
use super::table::{Definition, Table};
use super::top::Top;
use super::usage::Usage;

/// All settings of a job, checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Job {
    pub top: Top,
    pub pool: Pool,
    pub adaptive: Adaptive,
    pub rate_limit: RateLimit,
    pub control: Control,
    pub usage: Usage,
    pub journal: Journal,
    pub stop: Stop,
    pub sandbox: Sandbox,
    pub config: ComponentConfig,
    /// A budget of the job's own; `None` unless the job has a `[budget]` table.
    pub budget: Option<Budget>,
    pub share: Share,
    /// Where each value was given.
    pub filled: Filled,
}

impl Job {
    /// A job file, with what the command line sets on top of it.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        Self::build(Some(path), overrides, &|name| std::env::var_os(name))
    }

    /// A job that the command line describes alone.
    pub fn from_options_only(overrides: &Overrides) -> Result<Self, ConfigError> {
        Self::build(None, overrides, &|name| std::env::var_os(name))
    }

    /// The limiter this job uses: its own, or the one of the host file that it names.
    pub fn limiter<'a>(&'a self, host: Option<&'a HostFile>) -> Result<&'a RateLimit, ConfigError> {
        let Some(name) = &self.rate_limit.name else {
            return Ok(&self.rate_limit);
        };
        let found = host.and_then(|host| host.limiters.get(name));
        found.ok_or_else(|| {
            let message = match host {
                None => {
                    format!("{name:?} is a limiter of a host file, and none is given; add --budget")
                }
                Some(host) => {
                    let names: Vec<&str> = host.limiters.keys().map(String::as_str).collect();
                    let known = if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(", ")
                    };
                    format!(
                        "the host file has no [limiters.{}]; it has {known}",
                        name.escape_debug()
                    )
                }
            };
            ConfigError::from(self.filled.problem("rate_limit", &["name"], message))
        })
    }

    /// Takes over what the host file says, at the limiter that this job names, of waits, refusals and HTTP;
    /// what the job says itself of these stands.
    pub fn adopt_limiter(&mut self, host: Option<&HostFile>) -> Result<(), ConfigError> {
        if self.rate_limit.name.is_some() {
            let limiter = self.limiter(host)?.clone();
            self.rate_limit.adopt(&limiter, &self.filled);
        }
        Ok(())
    }

    /// A problem with a value of this job that only its consumer could find.
    pub fn refuse(&self, table: &str, key: &str, message: impl Into<String>) -> ConfigError {
        self.filled.problem(table, &[key], message.into()).into()
    }

    /// A problem with a budget of the job's own.
    pub fn refuse_budget(&self, message: &str) -> ConfigError {
        let keys = Budget::default().definitions();
        let keys: Vec<&str> = keys.iter().map(|definition| definition.key).collect();
        match keys.iter().any(|key| self.filled.given("budget", key)) {
            true => self
                .filled
                .problem("budget", &keys, message.to_owned())
                .into(),
            // The table is empty, and has no line.
            false => {
                let label = self.top.label.escape_debug();
                Problem::at(format!("job {label}: [budget]"), message).into()
            }
        }
    }

    /// A problem with an entry of a list, such as one of `allow_hosts`.
    pub fn refuse_entry(&self, key: &str, at: &Origin, message: impl Into<String>) -> ConfigError {
        Problem::with(at, format!("[sandbox] {key}"), message).into()
    }

    pub(super) fn build(
        path: Option<&Path>,
        overrides: &Overrides,
        environment: Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let entries = path.map(file::read).transpose()?.unwrap_or_default();
        let mut problems = Vec::new();
        let mut job = Self::default();
        job.fill(&entries, overrides, &mut problems);
        // A value that was not understood would be complained about again, as a missing one.
        if problems.is_empty() {
            job.require(path, &mut problems);
            job.check(&mut problems);
        }
        job.config.look_up(environment, &mut problems);
        ConfigError::unless_empty(problems)?;
        Ok(job)
    }

    fn fill(
        &mut self,
        entries: &[(String, Raw)],
        overrides: &Overrides,
        problems: &mut Vec<Problem>,
    ) {
        let mut filled = Filled::default();
        let mut budget = Budget::default();
        let mut tables = self.tables(&mut budget);
        filled.take_file(entries, &mut tables, problems);
        filled.take_overrides(overrides, &mut tables, problems);
        self.budget = filled.has_table("budget").then_some(budget);
        self.filled = filled;
    }

    /// In the order of the reference page.
    fn tables<'a>(&'a mut self, budget: &'a mut Budget) -> [&'a mut dyn Table; 12] {
        [
            &mut self.top,
            &mut self.pool,
            &mut self.adaptive,
            &mut self.rate_limit,
            &mut self.control,
            &mut self.usage,
            &mut self.journal,
            &mut self.stop,
            &mut self.sandbox,
            &mut self.config,
            budget,
            &mut self.share,
        ]
    }

    fn require(&self, path: Option<&Path>, problems: &mut Vec<Problem>) {
        for key in ["component", "input"] {
            if !self.filled.given("", key) {
                let problem = match path {
                    Some(path) => Problem::at(
                        one_line(path),
                        format!("{key} is missing; add it above the first table, or give --{key}"),
                    ),
                    None => Problem::at(
                        format!("--{key}"),
                        "is missing; give it, or a job file that has it",
                    ),
                };
                problems.push(problem);
            }
        }
    }

    /// What no single value shows.
    fn check(&mut self, problems: &mut Vec<Problem>) {
        self.adaptive.check(&self.filled, problems);
        self.rate_limit.check(&self.filled, problems);
        self.sandbox.check(&self.filled, problems);
        self.share.check(&self.filled, problems);
        if let Some(budget) = &mut self.budget {
            budget.check(&self.filled, problems);
        }
    }
}

/// A table of a job file, for the command line and the reference page.
pub struct Chapter {
    /// Its name in the file; empty for the keys above all tables.
    pub table: &'static str,
    pub about: &'static str,
    pub definitions: Vec<Definition>,
}

/// Every table that a job file can have, in the order of the reference page.
pub fn chapters() -> Vec<Chapter> {
    let chapter = |table: &&mut dyn Table| Chapter {
        table: table.name(),
        about: table.about().trim(),
        definitions: table.definitions(),
    };
    Job::default()
        .tables(&mut Budget::default())
        .iter()
        .map(chapter)
        .collect()
}
