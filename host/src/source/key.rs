//! Finds the field that names an item in a JSON object, without building the object.

use super::jsonl::not_json;
use super::rejects::RejectReason;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// The name of the field that names an item.
pub struct KeyField(pub Box<str>);

impl KeyField {
    /// The key in `json`: a string's value, a number or boolean as it is written.
    ///
    /// Checks the whole of `json`. Of a repeated field the last one counts, as it does for most parsers.
    pub fn find(&self, json: &str) -> Result<Box<str>, RejectReason> {
        if !json.trim_start().starts_with('{') {
            serde_json::from_str::<IgnoredAny>(json).map_err(not_json)?;
            return Err(self.missing());
        }
        let mut parser = serde_json::Deserializer::from_str(json);
        let value = ValueOf(&self.0)
            .deserialize(&mut parser)
            .and_then(|value| parser.end().map(|()| value))
            .map_err(not_json)?;
        self.text(value.ok_or_else(|| self.missing())?.get())
    }

    fn text(&self, value: &str) -> Result<Box<str>, RejectReason> {
        let found = match value.as_bytes().first() {
            Some(b'"') => {
                return match serde_json::from_str::<Box<str>>(value) {
                    Ok(text) => Ok(text),
                    // The one thing a checked string may still be.
                    Err(_) => Err(self.unfit("text with half a surrogate pair")),
                };
            }
            Some(b'n') => "null",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            _ => return Ok(value.into()),
        };
        Err(self.unfit(found))
    }

    fn missing(&self) -> RejectReason {
        RejectReason::KeyMissing {
            key: self.0.clone(),
        }
    }

    fn unfit(&self, found: &'static str) -> RejectReason {
        RejectReason::KeyType {
            key: self.0.clone(),
            found,
        }
    }
}

/// Reads an object to its end for the value of one field.
struct ValueOf<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for ValueOf<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ValueOf<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(is_key) = map.next_key_seed(Is(self.0))? {
            if is_key {
                value = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(value)
    }
}

/// Compares a field's name, escapes resolved, without allocating.
struct Is<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}
