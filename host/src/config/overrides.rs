//! What the command line sets: the same options as a file, with the same parsers.

use std::ffi::OsString;

use super::origin::Origin;
use super::raw::Raw;
use super::table::Definition;

/// Values given on the command line, in the order in which they are applied.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    given: Vec<Override>,
}

#[derive(Debug, Clone)]
struct Override {
    table: &'static str,
    key: String,
    raw: Raw,
    one_job: bool,
}

impl Overrides {
    /// An option that was given once.
    pub fn set(&mut self, definition: &Definition, value: OsString) {
        self.push(definition, Raw::argument(&option(definition), value));
    }

    /// A repeatable option, with all its values.
    pub fn set_many(&mut self, definition: &Definition, values: &[OsString]) {
        self.push(definition, Raw::arguments(&option(definition), values));
    }

    /// `--config-set`: a value for the component.
    pub fn set_config(&mut self, key: &str, value: OsString) {
        let raw = Raw::argument(&format!("--config-set {}", key.escape_debug()), value);
        self.given.push(Override {
            table: "config",
            key: key.to_owned(),
            raw,
            one_job: false,
        });
    }

    /// The options given that make no sense for several jobs at once.
    pub fn for_one_job(&self) -> impl Iterator<Item = &Origin> {
        self.given
            .iter()
            .filter(|given| given.one_job)
            .map(|given| &given.raw.origin)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str, &Raw)> {
        self.given
            .iter()
            .map(|given| (given.table, given.key.as_str(), &given.raw))
    }

    fn push(&mut self, definition: &Definition, raw: Raw) {
        let Definition {
            table,
            key,
            one_job,
            ..
        } = *definition;
        self.given.push(Override {
            table,
            key: key.to_owned(),
            raw,
            one_job,
        });
    }
}

fn option(definition: &Definition) -> String {
    format!("--{}", definition.option())
}
