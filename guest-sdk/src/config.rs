//! Values of the job's `[config]` table.

use crate::BatchError;
use std::fmt;

#[cfg(target_family = "wasm")]
use crate::bindings::config::wasi::config::store as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::store as host;

/// A value could not be had. As a [`BatchError`] it is fatal: no call would fare better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The job sets no such key.
    Missing(String),
    /// The host could not read its configuration.
    Unreadable(String),
}

/// The value of `key`, or `None` if the job does not set it.
pub fn get(key: &str) -> Result<Option<String>, Error> {
    host::get(key).map_err(unreadable)
}

/// The value of `key`, which the job must set.
pub fn require(key: &str) -> Result<String, Error> {
    get(key)?.ok_or_else(|| Error::Missing(key.to_owned()))
}

/// All keys with their values.
pub fn all() -> Result<Vec<(String, String)>, Error> {
    host::get_all().map_err(unreadable)
}

fn unreadable(error: host::Error) -> Error {
    match error {
        host::Error::Upstream(message) | host::Error::Io(message) => Error::Unreadable(message),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "{key} is not set: add it to [config] in the job"),
            Self::Unreadable(message) => write!(f, "the configuration cannot be read: {message}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for BatchError {
    fn from(error: Error) -> Self {
        Self::fatal(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::set_config;

    #[test]
    fn a_required_key_that_is_missing_is_fatal() {
        set_config("present", "old");
        set_config("present", "yes");
        assert_eq!(require("present").unwrap(), "yes");
        assert_eq!(all().unwrap(), [("present".to_owned(), "yes".to_owned())]);
        assert_eq!(get("absent").unwrap(), None);
        let error = BatchError::from(require("absent").unwrap_err());
        assert!(matches!(error, BatchError::Fatal(m) if m.starts_with("absent is not set")));
    }
}
