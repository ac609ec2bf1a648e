//! An item's data as text or JSON.

use crate::{BatchError, Item};
use std::borrow::Cow;

impl Item {
    /// The data as text; an error that names the item if it is not UTF-8.
    pub fn text(&self) -> Result<&str, BatchError> {
        std::str::from_utf8(&self.data)
            .map_err(|error| BatchError::failed(format!("{}: not UTF-8: {error}", self.name())))
    }

    /// The data as text, with U+FFFD for what is not UTF-8.
    pub fn text_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.data)
    }

    /// The data read as JSON into `T` (`serde_json::Value` for any JSON); an error that
    /// names the item if it does not fit. A CSV row is a JSON object of strings.
    #[cfg(feature = "json")]
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, BatchError> {
        serde_json::from_slice(&self.data)
            .map_err(|error| BatchError::failed(format!("{}: {error}", self.name())))
    }

    fn name(&self) -> String {
        format!("item {} (key {:?})", self.index, self.key)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::item;

    #[test]
    fn text_is_strict_or_lossy() {
        let good = item(0, "a", "Zürich");
        assert_eq!(good.text().unwrap(), "Zürich");
        let bad = item(3, "k", b"a\xffb");
        assert_eq!(bad.text_lossy(), "a\u{fffd}b");
        let message = bad.text().unwrap_err().message();
        assert!(
            message.starts_with("item 3 (key \"k\"): not UTF-8"),
            "{message}"
        );
    }

    #[cfg(feature = "json")]
    #[test]
    fn json_becomes_a_type_or_an_error_that_names_the_item() {
        #[derive(serde::Deserialize, Debug, PartialEq)]
        struct Row<'a> {
            name: &'a str,
        }
        let good = item(0, "a", r#"{"name":"x","more":1}"#);
        assert_eq!(good.json::<Row<'_>>().unwrap(), Row { name: "x" });
        let error = item(7, "q", r#"{"nam":1}"#).json::<Row<'_>>().unwrap_err();
        assert!(!error.is_retryable());
        assert!(
            error
                .message()
                .starts_with("item 7 (key \"q\"): missing field `name`")
        );
    }
}
