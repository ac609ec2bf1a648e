//! How one table of options is defined: its fields, defaults, ranges and words, once.
//!
//! Invariant: the struct, the parser of the file, the options of the command line and the
//! reference page all come from the same lines of a `table!`, so they cannot disagree.

use super::kind::{Kind, Shape};
use super::raw::Raw;

/// A table of options that can be filled key by key.
pub trait Table {
    /// Its name in the file; empty for the keys above all tables.
    fn name(&self) -> &'static str;
    /// What it is for, for the reference page.
    fn about(&self) -> &'static str;
    /// Its options, with the defaults.
    fn definitions(&self) -> Vec<Definition>;
    /// Takes over a written value.
    fn set(&mut self, key: &str, raw: &Raw) -> Result<(), Refusal>;
}

/// Why a table did not take a value.
#[derive(Debug)]
pub enum Refusal {
    /// It has no such key.
    UnknownKey,
    /// The value does not fit; the text says what would.
    Value(String),
}

/// One option, as the command line and the reference page need it.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Empty for the keys above all tables.
    pub table: &'static str,
    pub key: &'static str,
    /// Sentences.
    pub doc: &'static str,
    /// Completes "must be ...".
    pub expects: String,
    /// As written in TOML; `–` where there is none.
    pub default: String,
    /// Stands for the value in help texts.
    pub placeholder: &'static str,
    pub shape: Shape,
    /// Makes no sense for several jobs at once.
    pub one_job: bool,
}

impl Definition {
    pub(super) fn new<K: Kind>(
        (table, key, doc): (&'static str, &'static str, &'static str),
        kind: &K,
        default: &K::Value,
    ) -> Self {
        Self {
            table,
            key,
            doc: doc.trim(),
            expects: kind.expects(),
            default: kind.show(default),
            placeholder: kind.placeholder(),
            shape: kind.shape(),
            one_job: false,
        }
    }

    /// The option's name on the command line, without the dashes in front.
    pub fn option(&self) -> String {
        let with_table = matches!(
            self.table,
            "control" | "usage" | "journal" | "budget" | "share"
        ) || (self.table, self.key) == ("rate_limit", "name");
        let name = match with_table {
            true => format!("{}-{}", self.table, self.key),
            false => self.key.to_owned(),
        };
        name.replace('_', "-")
    }
}

/// `[pool] workers`, or the bare key above all tables.
pub(super) fn subject(table: &str, key: &str) -> String {
    let key = key.escape_debug();
    match table {
        "" => key.to_string(),
        _ => format!("[{}] {key}", table.escape_debug()),
    }
}

/// Defines a table: a struct with these fields, its `Default` and its [`Table`].
///
/// A line reads `key: Type = default, kind;`, with `, one_job` where an option on the command
/// line makes no sense for several jobs.
macro_rules! table {
    (
        $(#[doc = $about:literal])+
        $Name:ident = $table:literal;
        $(
            $(#[doc = $doc:literal])+
            $key:ident: $Type:ty = $default:expr, $kind:expr $(, $mark:ident)?;
        )+
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $Name {
            $($(#[doc = $doc])+ pub $key: $Type,)+
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl $crate::config::table::Table for $Name {
            fn name(&self) -> &'static str {
                $table
            }

            fn about(&self) -> &'static str {
                concat!($($about),+)
            }

            fn definitions(&self) -> Vec<$crate::config::table::Definition> {
                let default = Self::default();
                vec![$({
                    let words = ($table, stringify!($key), concat!($($doc),+));
                    #[allow(unused_mut)]
                    let mut definition =
                        $crate::config::table::Definition::new(words, &$kind, &default.$key);
                    $(definition.$mark = true;)?
                    definition
                },)+]
            }

            fn set(
                &mut self,
                key: &str,
                raw: &$crate::config::raw::Raw,
            ) -> Result<(), $crate::config::table::Refusal> {
                use $crate::config::{kind::Kind, table::Refusal};
                match key {
                    $(stringify!($key) => {
                        self.$key = $kind.parse(raw).map_err(Refusal::Value)?;
                    })+
                    _ => return Err(Refusal::UnknownKey),
                }
                Ok(())
            }
        }
    };
}
pub(super) use table;
