//! Reads the keys out of a posted batch: a JSON array of objects, or JSON lines.

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// A body that is not a batch. The text says where and what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BatchError(String);

/// The keys of the batch's items, in order. A number or boolean counts as its text.
pub fn keys(body: &[u8]) -> Result<Vec<Arc<str>>, BatchError> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Err(BatchError(
            "the body is empty; send a JSON array or JSON lines of objects with a \"key\""
                .to_owned(),
        )),
        Some(b'[') => serde_json::from_slice::<Vec<Key>>(body)
            .map(|keys| keys.into_iter().map(|key| key.0).collect())
            .map_err(|e| explain(&e, e.line())),
        Some(_) => lines(body),
    }
}

fn lines(body: &[u8]) -> Result<Vec<Arc<str>>, BatchError> {
    let mut keys = Vec::new();
    for (number, line) in body.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let key: Key = serde_json::from_slice(line).map_err(|e| explain(&e, number + 1))?;
        keys.push(key.0);
    }
    Ok(keys)
}

fn explain(error: &serde_json::Error, line: usize) -> BatchError {
    let what = match error.classify() {
        serde_json::error::Category::Data => {
            "not an object with one \"key\" that is text, a number or a boolean"
        }
        _ => "not JSON",
    };
    BatchError(format!("line {line}, column {}: {what}", error.column()))
}

/// An object's `key`; its other fields are skipped.
struct Key(Arc<str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Key, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "lowercase")]
        enum Field {
            Key,
            #[serde(other)]
            Other,
        }
        let mut key = None;
        while let Some(field) = object.next_key()? {
            match field {
                // Raw, so that a number keeps its digits.
                Field::Key if key.is_none() => key = Some(object.next_value::<&RawValue>()?.get()),
                Field::Key => return Err(A::Error::duplicate_field("key")),
                Field::Other => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        let raw = key.ok_or_else(|| A::Error::missing_field("key"))?;
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<String>(raw)
                .map(|text| Key(text.into()))
                .map_err(A::Error::custom),
            Some(b'0'..=b'9' | b'-' | b't' | b'f') => Ok(Key(raw.into())),
            _ => Err(A::Error::custom("not text, a number or a boolean")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_order() {
        for (body, expected) in [
            ("[]", &[] as &[&str]),
            (
                r#" [{"key":"a"},{"data":[{"key":1}],"key":"b\n\u00e9"}]"#,
                &["a", "b\né"],
            ),
            (
                r#"[{"key":7},{"key":-1.50e3},{"key":true},{"key":12345678901234567890123}]"#,
                &["7", "-1.50e3", "true", "12345678901234567890123"],
            ),
            ("{\"key\":\"a\"}", &["a"]),
            ("\r\n{\"key\":\"a\"}\r\n\n {\"key\":\"b\"} \n", &["a", "b"]),
        ] {
            let keys = keys(body.as_bytes()).expect(body);
            assert_eq!(
                keys.iter().map(|k| &**k).collect::<Vec<_>>(),
                expected,
                "{body}"
            );
        }
    }

    #[test]
    fn what_is_no_batch_is_said_with_its_place() {
        let no_key = "not an object with one \"key\" that is text, a number or a boolean";
        for (body, says) in [
            (&b""[..], "the body is empty"),
            (b" \n ", "the body is empty"),
            (b"[{\"key\":\"a\"}", "line 1, column 12: not JSON"),
            (
                b"[{\"key\":\"a\"},\n{\"kay\":\"b\"}]",
                &format!("line 2, column 11: {no_key}"),
            ),
            (b"[1]", no_key),
            (b"[[\"a\"]]", no_key),
            (b"[{\"key\":null}]", no_key),
            (b"[{\"key\":{}}]", no_key),
            (b"[{\"key\":1,\"key\":2}]", no_key),
            (b"[{\"key\":01}]", "not JSON"),
            (b"[{\"key\":\"a\"}] x", "not JSON"),
            (b"[{\"key\":\"\xff\"}]", "line 1"),
            (
                b"{\"key\":1}\n{\"kay\":1}",
                &format!("line 2, column 9: {no_key}"),
            ),
            (b"{\"key\":1}\n{\"key\":1", "line 2, column 8: not JSON"),
            (b"{\"key\":1} {\"key\":2}", "line 1, column 11: not JSON"),
            (b"hello", "line 1, column 1: not JSON"),
        ] {
            let error = keys(body)
                .expect_err(&String::from_utf8_lossy(body))
                .to_string();
            assert!(
                error.contains(says),
                "{}: {error}",
                String::from_utf8_lossy(body)
            );
        }
        let deep = [b"[{\"key\":1,\"a\":".as_slice(), &[b'['; 1_000_000]].concat();
        assert!(keys(&deep).is_err());
    }
}
