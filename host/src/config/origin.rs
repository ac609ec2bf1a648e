//! Where a configured value came from, so that every complaint can say where to look.
//!
//! Invariant: an origin never holds a value, so printing one cannot leak a secret.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A line of a file, or an option of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Line of a job file or host file, counted from 1.
    File {
        /// The file as the user named it.
        path: Arc<Path>,
        /// The line of the key, or of the list entry.
        line: usize,
    },
    /// A command-line option, dashes included.
    Option(String),
}

impl Origin {
    /// A path in a file is relative to that file's folder; one given on the command line to
    /// the current folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match self {
            Self::File { path: file, .. } => match file.parent() {
                Some(folder) => folder.join(path),
                None => path.to_owned(),
            },
            Self::Option(_) => path.to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", one_line(path)),
            Self::Option(option) => f.write_str(option),
        }
    }
}

/// A list entry that its consumer parses, together with where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The entry as written.
    pub text: String,
    /// Where it was written.
    pub origin: Origin,
}

/// A path's text with control characters escaped: a file name must not break a message in two.
pub(super) fn one_line(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
