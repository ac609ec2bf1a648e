//! The fields of one JSON object, taken out one by one with their ranges.
//!
//! Invariant: a value that is missing, of another kind or out of range, and a field that
//! nobody took, are errors that name the field.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

pub(super) struct Fields {
    /// Where these fields stand, for messages; "" at the top.
    path: String,
    values: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    pub(super) fn new(path: &str, value: Value) -> Result<Self, String> {
        match value {
            Value::Object(values) => Ok(Self {
                path: path.to_owned(),
                values,
                known: Vec::new(),
            }),
            other => Err(format!("{path}: must be an object, not {}", shown(&other))),
        }
    }

    /// Where a field stands, for messages.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Any value, if the field is there.
    pub(super) fn value(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a text", &other)),
        }
    }

    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let kind = format!("a number from {} to {}", range.start(), range.end());
                Err(self.wrong(key, &kind, &value))
            }
        }
    }

    /// A whole number from 1 to `most`.
    pub(super) fn count(&mut self, key: &'static str, most: u32) -> Result<Option<u32>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let kind = format!("a whole number from 1 to {most}");
                Err(self.wrong(key, &kind, &value))
            }
        }
    }

    /// Refuses an object without this field.
    pub(super) fn required(&self, key: &str) -> Result<(), String> {
        self.needed(key, self.values.get(key)).map(|_| ())
    }

    /// What a field holds, or an error if it is not there.
    pub(super) fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| format!("{}: is missing", self.path(key)))
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!(
                "{}: there is no such field; known are {}",
                self.path(key),
                self.known.join(", ")
            )),
        }
    }

    fn wrong(&self, key: &str, kind: &str, value: &Value) -> String {
        format!("{}: must be {kind}, not {}", self.path(key), shown(value))
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 40 => "a long text".to_owned(),
        other => other.to_string(),
    }
}
