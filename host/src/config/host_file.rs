//! The host file: what jobs that run in one host share.

use std::collections::BTreeMap;
use std::path::Path;

use super::budget::Budget;
use super::control::Control;
use super::error::{ConfigError, Problem};
use super::file;
use super::filled::{Filled, Known};
use super::rate_limit::RateLimit;
use super::raw::{Raw, RawValue};
use super::table::{Table, subject};

/// What `--budget HOST.toml` names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFile {
    /// `None` unless the file has the table.
    pub budget: Option<Budget>,
    /// Live control of the budget.
    pub control: Control,
    /// Limiters that jobs share, by name.
    pub limiters: BTreeMap<String, RateLimit>,
    /// Where each value was given; a limiter's table is called `limiters.NAME`.
    pub filled: Filled,
}

impl HostFile {
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut entries = file::read(path)?;
        let mut problems = Vec::new();
        let mut host = Self::default();

        let limiters = entries.iter().position(|(name, _)| name == "limiters");
        if let Some(limiters) = limiters.map(|at| entries.remove(at).1) {
            host.take_limiters(&limiters, &mut problems);
        }
        let mut budget = Budget::default();
        host.filled.take_file(
            &entries,
            &mut [&mut budget, &mut host.control],
            &mut problems,
        );
        if host.filled.has_table("budget") {
            if problems.is_empty() {
                budget.check(&host.filled, &mut problems);
            }
            host.budget = Some(budget);
        } else if host.filled.given("control", "db") {
            let message = "is for the live keys of a budget, and there is no [budget]; add one, or remove this";
            problems.push(host.filled.problem("control", &["db"], message.to_owned()));
        }
        ConfigError::unless_empty(problems)?;
        Ok(host)
    }

    fn take_limiters(&mut self, raw: &Raw, problems: &mut Vec<Problem>) {
        let RawValue::Table(entries) = &raw.value else {
            let message = "must hold a table for each limiter; write [limiters.NAME]";
            problems.push(Problem::with(&raw.origin, "[limiters]".to_owned(), message));
            return;
        };
        for (name, raw) in entries {
            let mut limiter = RateLimit::default();
            let known = Known::of(&[&mut limiter as &mut dyn Table]);
            let table = format!("limiters.{}", name.escape_debug());
            self.filled
                .take_table(&mut limiter, &table, raw, &known, problems);
            if let Some(origin) = self.filled.origin(&table, "name") {
                let message = "a limiter is called as its table is; remove name";
                problems.push(Problem::with(origin, subject(&table, "name"), message));
            }
            self.limiters.insert(name.clone(), limiter);
        }
    }
}
