//! A value as it was written, in a file or on the command line, before it is understood.
//!
//! Invariant: both ways of writing pass through this one type, so they share parsers and
//! ranges.

use std::ffi::OsString;
use std::fmt;

use super::origin::Origin;

/// A written value and its place.
#[derive(Debug, Clone)]
pub struct Raw {
    pub(super) origin: Origin,
    pub(super) value: RawValue,
}

/// The shapes a written value can have.
#[derive(Debug, Clone)]
pub(super) enum RawValue {
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Text(String),
    Date,
    List(Vec<Raw>),
    Table(Vec<(String, Raw)>),
    /// The command line knows no types: what it means is decided by who reads it.
    Argument(OsString),
}

impl Raw {
    pub(super) fn argument(option: &str, value: OsString) -> Self {
        Self {
            origin: Origin::Option(option.to_owned()),
            value: RawValue::Argument(value),
        }
    }

    /// The values of a repeatable option. One empty value stands for the empty list, so that
    /// the command line can take back what a file gives.
    pub(super) fn arguments(option: &str, values: &[OsString]) -> Self {
        let items: Vec<Self> = match values {
            [only] if only.is_empty() => Vec::new(),
            _ => values
                .iter()
                .map(|value| Self::argument(option, value.clone()))
                .collect(),
        };
        Self {
            origin: Origin::Option(option.to_owned()),
            value: RawValue::List(items),
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            RawValue::Text(text) => Some(text),
            RawValue::Argument(argument) => argument.to_str(),
            _ => None,
        }
    }

    pub(super) fn integer(&self) -> Option<i128> {
        match &self.value {
            RawValue::Integer(integer) => Some(i128::from(*integer)),
            RawValue::Argument(argument) => digits(argument)?.parse().ok(),
            _ => None,
        }
    }

    /// A number of either kind; may be infinite or not a number, which no range contains.
    pub(super) fn number(&self) -> Option<f64> {
        match &self.value {
            RawValue::Integer(integer) => Some(*integer as f64),
            RawValue::Float(float) => Some(*float),
            RawValue::Argument(argument) => digits(argument)?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match &self.value {
            RawValue::Boolean(boolean) => Some(*boolean),
            RawValue::Argument(argument) => argument.to_str()?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        match &self.value {
            RawValue::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn refuse(&self, expects: &str) -> String {
        format!("must be {expects}, not {self}")
    }
}

/// TOML allows `10_000`; so does the command line.
fn digits(argument: &OsString) -> Option<String> {
    argument.to_str().map(|text| text.replace('_', ""))
}

/// The value as an error quotes it: on one line, and cut where it is long.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            RawValue::Integer(integer) => write!(f, "{integer}"),
            RawValue::Float(float) => write!(f, "{float:?}"),
            RawValue::Boolean(boolean) => write!(f, "{boolean}"),
            RawValue::Text(text) => f.write_str(&quoted(text)),
            RawValue::Date => f.write_str("a date or time (put it in quotes)"),
            RawValue::List(_) => f.write_str("a list"),
            RawValue::Table(_) => f.write_str("a table"),
            RawValue::Argument(argument) => f.write_str(&quoted(&argument.to_string_lossy())),
        }
    }
}

fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?} (cut)", &text[..end]),
    }
}
