//! The kinds of value an option can have: what is accepted, and how it is said.
//!
//! Invariant: every value that a kind accepts is one that its words allow.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use super::origin::Entry;
use super::raw::Raw;

/// One kind of value. `parse` answers with the whole complaint.
pub trait Kind {
    type Value;
    fn parse(&self, raw: &Raw) -> Result<Self::Value, String>;
    /// Completes "must be ...".
    fn expects(&self) -> String;
    /// A value as it is written in TOML, for the reference page.
    fn show(&self, value: &Self::Value) -> String;
    /// Stands for the value in the help of the command line.
    fn placeholder(&self) -> &'static str;
    fn shape(&self) -> Shape {
        Shape::One
    }
}

/// How an option is given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `--option VALUE`
    One,
    /// `--option` or `--option=false`
    Switch,
    /// `--option VALUE`, as often as there are values
    Many,
}

/// `true` or `false`.
pub struct Switch;

impl Kind for Switch {
    type Value = bool;

    fn parse(&self, raw: &Raw) -> Result<bool, String> {
        raw.boolean().ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        "true or false".to_owned()
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn placeholder(&self) -> &'static str {
        "true|false"
    }

    fn shape(&self) -> Shape {
        Shape::Switch
    }
}

/// Text that stands in log lines: not empty, on one line.
pub struct Text;

impl Kind for Text {
    type Value = String;

    fn parse(&self, raw: &Raw) -> Result<String, String> {
        let fits = |text: &&str| !text.is_empty() && !text.contains(char::is_control);
        let text = raw.text().filter(fits).map(str::to_owned);
        text.ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        "text on one line, not empty".to_owned()
    }

    fn show(&self, value: &String) -> String {
        format!("{value:?}")
    }

    fn placeholder(&self) -> &'static str {
        "TEXT"
    }
}

/// A path, relative to where it was written.
pub struct FilePath;

impl FilePath {
    pub(super) fn resolve(raw: &Raw) -> Option<PathBuf> {
        let path = match &raw.value {
            super::raw::RawValue::Argument(argument) => Path::new(argument),
            _ => Path::new(raw.text()?),
        };
        let names_a_file =
            !path.as_os_str().is_empty() && !path.as_os_str().as_encoded_bytes().contains(&0);
        names_a_file.then(|| raw.origin.resolve(path))
    }
}

impl Kind for FilePath {
    type Value = PathBuf;

    fn parse(&self, raw: &Raw) -> Result<PathBuf, String> {
        Self::resolve(raw).ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        "a path".to_owned()
    }

    fn show(&self, value: &PathBuf) -> String {
        format!("{:?}", value.to_string_lossy())
    }

    fn placeholder(&self) -> &'static str {
        "FILE"
    }
}

/// One of a few words. Made by `words!`.
pub trait Choice: Copy + 'static {
    const ALL: &'static [(&'static str, Self)];

    /// The word for this choice.
    fn word(self) -> &'static str;
}

/// The kind of an enum that `words!` names.
pub struct Word<C>(PhantomData<C>);

impl<C> Word<C> {
    pub const fn of() -> Self {
        Self(PhantomData)
    }
}

impl<C: Choice> Kind for Word<C> {
    type Value = C;

    fn parse(&self, raw: &Raw) -> Result<C, String> {
        let named = |text| C::ALL.iter().find(|(word, _)| *word == text);
        let choice = raw.text().and_then(named).map(|(_, choice)| *choice);
        choice.ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        let words: Vec<String> = C::ALL.iter().map(|(word, _)| format!("{word:?}")).collect();
        match words.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => words.concat(),
        }
    }

    fn show(&self, value: &C) -> String {
        format!("{:?}", value.word())
    }

    fn placeholder(&self) -> &'static str {
        "WORD"
    }
}

/// Gives each variant of an enum its word.
macro_rules! words {
    ($Name:ident { $($Variant:ident = $word:literal,)+ }) => {
        impl $crate::config::kind::Choice for $Name {
            const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$Variant),)+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word,)+
                }
            }
        }
    };
}
pub(super) use words;

/// A kind with rules of its own, stated beside the option that needs it.
pub struct Own<T> {
    pub expects: &'static str,
    pub placeholder: &'static str,
    /// `None`: not as `expects` says.
    pub parse: fn(&Raw) -> Option<T>,
    pub show: fn(&T) -> String,
}

impl<T> Kind for Own<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        (self.parse)(raw).ok_or_else(|| raw.refuse(self.expects))
    }

    fn expects(&self) -> String {
        self.expects.to_owned()
    }

    fn show(&self, value: &T) -> String {
        (self.show)(value)
    }

    fn placeholder(&self) -> &'static str {
        self.placeholder
    }
}

/// Text whose consumer parses it later and needs its place for that.
pub const ENTRY: Own<Entry> = Own {
    expects: "text, not empty",
    placeholder: "TEXT",
    parse: |raw| {
        let text = raw.text().filter(|text| !text.trim().is_empty())?;
        Some(Entry {
            text: text.to_owned(),
            origin: raw.origin.clone(),
        })
    },
    show: |entry| format!("{:?}", entry.text),
};

/// A value that may be absent, which no written value says.
pub struct Optional<K>(pub K);

impl<K: Kind> Kind for Optional<K> {
    type Value = Option<K::Value>;

    fn parse(&self, raw: &Raw) -> Result<Self::Value, String> {
        self.0.parse(raw).map(Some)
    }

    fn expects(&self) -> String {
        self.0.expects()
    }

    fn show(&self, value: &Self::Value) -> String {
        value
            .as_ref()
            .map_or_else(|| "–".to_owned(), |value| self.0.show(value))
    }

    fn placeholder(&self) -> &'static str {
        self.0.placeholder()
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }
}

/// A value without which there is no job; its default is never used.
pub struct Required<K>(pub K);

impl<K: Kind> Kind for Required<K> {
    type Value = K::Value;

    fn parse(&self, raw: &Raw) -> Result<K::Value, String> {
        self.0.parse(raw)
    }

    fn expects(&self) -> String {
        self.0.expects()
    }

    fn show(&self, _: &K::Value) -> String {
        "required".to_owned()
    }

    fn placeholder(&self) -> &'static str {
        self.0.placeholder()
    }
}

/// Any number of values.
pub struct Many<K>(pub K);

impl<K: Kind> Kind for Many<K> {
    type Value = Vec<K::Value>;

    fn parse(&self, raw: &Raw) -> Result<Self::Value, String> {
        let items = raw.list().ok_or_else(|| raw.refuse(&self.expects()))?;
        let values = items.iter().enumerate().map(|(n, item)| {
            self.0.parse(item).map_err(|e| match items.len() {
                1 => format!("the entry {e}"),
                _ => format!("entry {} {e}", n + 1),
            })
        });
        values.collect()
    }

    fn expects(&self) -> String {
        format!("a list, each entry {}", self.0.expects())
    }

    fn show(&self, value: &Self::Value) -> String {
        let items: Vec<String> = value.iter().map(|item| self.0.show(item)).collect();
        format!("[{}]", items.join(", "))
    }

    fn placeholder(&self) -> &'static str {
        self.0.placeholder()
    }

    fn shape(&self) -> Shape {
        Shape::Many
    }
}
