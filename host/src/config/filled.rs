//! Fills tables from a file and from the command line, and remembers where each value stands.
//!
//! Invariant: nothing written is ignored; what no table takes is a problem that names the
//! nearest known name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::Problem;
use super::origin::Origin;
use super::overrides::Overrides;
use super::raw::{Raw, RawValue};
use super::table::{Definition, Refusal, Table, subject};

/// Where each value that was given stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filled {
    origins: BTreeMap<(String, String), Origin>,
    tables: BTreeSet<String>,
}

impl Filled {
    /// Where a value was given; `None` if it is the default. `table` is empty for the keys
    /// above all tables.
    pub fn origin(&self, table: &str, key: &str) -> Option<&Origin> {
        self.origins.get(&(table.to_owned(), key.to_owned()))
    }

    /// The job file; `None` if all was given on the command line.
    pub fn file(&self) -> Option<&Path> {
        self.origins.values().find_map(|origin| match origin {
            Origin::File { path, .. } => Some(&**path),
            Origin::Option(_) => None,
        })
    }

    /// Whether a value was given at all.
    pub fn given(&self, table: &str, key: &str) -> bool {
        self.origin(table, key).is_some()
    }

    /// Whether the file has the table, be it empty, or the command line an option of it.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains(table)
    }

    /// A problem with a value that was understood, placed at the first of the keys that was
    /// given, so that the line shown is one the user wrote.
    pub(super) fn problem(&self, table: &str, keys: &[&str], message: String) -> Problem {
        let given = keys
            .iter()
            .find_map(|key| Some((key, self.origin(table, key)?)));
        match given {
            Some((key, origin)) => Problem::with(origin, subject(table, key), message),
            None => Problem::at(subject(table, keys.first().unwrap_or(&"")), message),
        }
    }

    fn note(&mut self, table: &str, key: &str, origin: &Origin) {
        self.tables.insert(table.to_owned());
        self.origins
            .insert((table.to_owned(), key.to_owned()), origin.clone());
    }

    /// Takes over a whole table of a file; `name` is what the file calls it.
    pub(super) fn take_table(
        &mut self,
        table: &mut dyn Table,
        name: &str,
        raw: &Raw,
        known: &Known,
        problems: &mut Vec<Problem>,
    ) {
        let RawValue::Table(entries) = &raw.value else {
            let message = match raw.value {
                RawValue::List(_) => format!("must be one table; write [{name}], not [[{name}]]"),
                _ => format!("must be a table, not {raw}; write [{name}] and its keys below"),
            };
            problems.push(Problem::with(&raw.origin, format!("[{name}]"), message));
            return;
        };
        self.tables.insert(name.to_owned());
        for (key, value) in entries {
            self.take(table, name, key, value, known, problems);
        }
    }

    fn take(
        &mut self,
        table: &mut dyn Table,
        name: &str,
        key: &str,
        raw: &Raw,
        known: &Known,
        problems: &mut Vec<Problem>,
    ) {
        let message = match table.set(key, raw) {
            Ok(()) => return self.note(name, key, &raw.origin),
            Err(Refusal::Value(message)) => message,
            Err(Refusal::UnknownKey) => known.unknown_key(table.name(), key),
        };
        problems.push(Problem::with(&raw.origin, subject(name, key), message));
    }

    /// Takes over a file: `tables` are those it may have; the one without a name takes the keys above them.
    pub(super) fn take_file(
        &mut self,
        entries: &[(String, Raw)],
        tables: &mut [&mut dyn Table],
        problems: &mut Vec<Problem>,
    ) {
        let known = Known::of(tables);
        for (name, raw) in entries {
            if let Some(table) = tables
                .iter_mut()
                .find(|t| !name.is_empty() && t.name() == name)
            {
                self.take_table(*table, name, raw, &known, problems);
            } else if let RawValue::Table(_) = &raw.value
                && !known.has_key("", name)
            {
                let message = known.unknown_table(name);
                problems.push(Problem::with(
                    &raw.origin,
                    subject(name, "").trim().to_owned(),
                    message,
                ));
            } else if let Some(top) = tables.iter_mut().find(|t| t.name().is_empty()) {
                self.take(*top, "", name, raw, &known, problems);
            } else {
                let message = known.unknown_key("", name);
                problems.push(Problem::with(&raw.origin, subject("", name), message));
            }
        }
    }

    /// Takes over the options of the command line, which beat the file.
    pub(super) fn take_overrides(
        &mut self,
        overrides: &Overrides,
        tables: &mut [&mut dyn Table],
        problems: &mut Vec<Problem>,
    ) {
        let known = Known::of(tables);
        for (table_name, key, raw) in overrides.iter() {
            if let Some(table) = tables.iter_mut().find(|table| table.name() == table_name) {
                self.take(*table, table_name, key, raw, &known, problems);
            }
        }
    }
}

/// The names that a file may use.
pub(super) struct Known {
    tables: Vec<&'static str>,
    keys: Vec<Definition>,
}

impl Known {
    pub(super) fn of(tables: &[&mut dyn Table]) -> Self {
        Self {
            tables: tables.iter().map(|table| table.name()).collect(),
            keys: tables
                .iter()
                .flat_map(|table| table.definitions())
                .collect(),
        }
    }

    fn has_key(&self, table: &str, key: &str) -> bool {
        self.keys
            .iter()
            .any(|known| known.table == table && known.key == key)
    }

    fn unknown_key(&self, table: &str, key: &str) -> String {
        let spelled = spelling(key);
        let distance = |known: &Definition| strsim::damerau_levenshtein(&spelled, known.key);
        // A key of another table is named only if it is all but the same.
        let near = |known: &&Definition| {
            known.table == table || distance(known) * 3 <= spelled.chars().count()
        };
        let known = self.keys.iter().filter(near);
        let Some(nearest) = known.min_by_key(|known| (distance(known), known.table != table))
        else {
            return format!(
                "unknown key; keys stand in tables here, such as {}",
                self.list_tables()
            );
        };
        let name = match nearest.table {
            same if same == table => nearest.key.to_owned(),
            "" => format!("{}, which stands above the first table", nearest.key),
            other => subject(other, nearest.key),
        };
        format!("unknown key; the nearest known one is {name}")
    }

    fn list_tables(&self) -> String {
        let tables = self.tables.iter().filter(|table| !table.is_empty());
        let names: Vec<String> = tables.map(|table| format!("[{table}]")).collect();
        names.join(", ")
    }

    fn unknown_table(&self, name: &str) -> String {
        let spelled = spelling(name);
        let tables = self.tables.iter().filter(|table| !table.is_empty());
        let nearest = tables
            .chain(&["limiters"])
            .min_by_key(|table| strsim::damerau_levenshtein(&spelled, table));
        match nearest {
            Some(&"limiters") | None => {
                "unknown table; the nearest known one is [limiters.NAME], of a host file".to_owned()
            }
            Some(table) => format!("unknown table; the nearest known one is [{table}]"),
        }
    }
}

/// As known names are spelled, so that `Batch-Size` is as near as can be.
fn spelling(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}
