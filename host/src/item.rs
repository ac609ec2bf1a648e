//! One unit of work, as it was read from the input.

use bytes::Bytes;
use std::borrow::Cow;

/// An item's name: the value of the job's `key` field, or its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The job names no key: the index in decimal.
    Index,
    /// The value of the key field.
    Text(Box<str>),
}

/// One unit of work. Cloning is cheap: the data is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Position in the input, from 0.
    pub index: u64,
    /// Its name.
    pub key: Key,
    /// What the guest gets.
    pub data: Bytes,
}

impl Item {
    /// The name as text.
    pub fn key(&self) -> Cow<'_, str> {
        match &self.key {
            Key::Index => Cow::Owned(self.index.to_string()),
            Key::Text(text) => Cow::Borrowed(text),
        }
    }
}
