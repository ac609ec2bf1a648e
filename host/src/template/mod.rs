//! `batchgate new`: a plugin to start from, in a folder of its own.
//!
//! Invariant: a folder that was there before is left alone, and one that could not be written whole is
//! taken away again.

mod files;

use clap::ValueEnum;
use files::File;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The languages that there is an example in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Language {
    Rust,
    Js,
    Python,
    C,
    Go,
    /// For the async world.
    RustAsync,
    /// For the async world.
    PythonAsync,
}

/// Why there is no new plugin.
#[derive(Debug, Error)]
pub enum NewError {
    /// The name cannot be that of a folder everywhere.
    #[error(
        "{0:?} cannot be the name of a plugin: use letters, digits, - and _, a letter first, 64 at most"
    )]
    Name(String),
    /// Something of that name is there.
    #[error("{} is there already: choose another name, or remove it", .0.display())]
    Exists(PathBuf),
    /// A file could not be written.
    #[error("{}: {problem}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
}

/// Where a plugin in Rust carries its SDK.
const SDK_FOLDER: &str = "batchgate-guest";

impl Language {
    fn files(self) -> impl Iterator<Item = &'static File> {
        let (own, shared): (&[File], &[File]) = match self {
            Self::Rust => (files::RUST, &[]),
            Self::Js => (files::JS, &[]),
            Self::Python => (files::PYTHON, &[]),
            Self::C => (files::C, &[]),
            Self::Go => (files::GO, &[]),
            Self::RustAsync => (files::RUST_ASYNC, files::RUST_SHARED),
            Self::PythonAsync => (files::PYTHON_ASYNC, files::PYTHON_SHARED),
        };
        own.iter().chain(shared)
    }

    fn carries_its_sdk(self) -> bool {
        matches!(self, Self::Rust | Self::RustAsync)
    }

    /// What reads otherwise where the example is no longer beside the others: in its files, what for what.
    fn alone(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::RustAsync => &[
                ("#[path = \"../../rust/src/answer.rs\"]\n", ""),
                ("`../rust/src/answer.rs`", "`src/answer.rs`"),
                ("[`../rust`](../rust/README.md)", "the example in Rust"),
                ("`../rust`", "Rust"),
                ("that example's own file", "src/answer.rs"),
            ],
            Self::PythonAsync => &[
                (" -p . -p ../python", ""),
                (":../python", ""),
                ("`../python/answer.py`", "`answer.py`"),
                (
                    "[`../python`](../python/README.md)",
                    "the example in Python",
                ),
                ("../python", "Python"),
                ("that example's own file, answer.py", "answer.py"),
            ],
            _ => &[],
        }
    }

    /// The first command of its README, which gets the tools.
    pub fn first_command(self) -> &'static str {
        let readme = self.files().find(|file| file.path == "README.md");
        let commands = readme.and_then(|file| file.text.split("```sh\n").nth(1));
        let line = commands.and_then(|text| text.lines().next());
        let command = line.and_then(|line| line.split("  #").next());
        command.unwrap_or_default().trim_end()
    }
}

/// Writes a new plugin to the folder `name` in `parent`, and returns that folder.
pub fn new(parent: &Path, name: &str, language: Language) -> Result<PathBuf, NewError> {
    if !is_name(name) {
        return Err(NewError::Name(name.to_owned()));
    }
    let folder = parent.join(name);
    std::fs::create_dir(&folder).map_err(|problem| match problem.kind() {
        io::ErrorKind::AlreadyExists => NewError::Exists(folder.clone()),
        _ => NewError::Write {
            path: folder.clone(),
            problem,
        },
    })?;
    write_all(&folder, language).inspect_err(|_| {
        // What is half written helps nobody; the error says what matters.
        let _ = std::fs::remove_dir_all(&folder);
    })?;
    Ok(folder)
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(fits)
}

fn write_all(folder: &Path, language: Language) -> Result<(), NewError> {
    for file in language.files() {
        write(&folder.join(file.path), &adapted(language, file))?;
    }
    if language.carries_its_sdk() {
        for file in files::SDK {
            write(&folder.join(SDK_FOLDER).join(file.path), file.text)?;
        }
    }
    Ok(())
}

/// The text of a file where nothing of the repository is around it. A plugin in Rust has its SDK beside its
/// sources, in a workspace of its own.
fn adapted(language: Language, file: &File) -> String {
    let mut text = file.text.to_owned();
    for (there, here) in language.alone() {
        text = text.replace(there, here);
    }
    if language.carries_its_sdk() && file.path == "Cargo.toml" {
        let apart = format!("[workspace]\nexclude = [\"{SDK_FOLDER}\"]");
        text = text
            .replace("../../guest-sdk", SDK_FOLDER)
            .replace("[workspace]", &apart);
    }
    text
}

fn write(path: &Path, text: &str) -> Result<(), NewError> {
    let written = match path.parent() {
        Some(folder) => std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text)),
        None => std::fs::write(path, text),
    };
    written.map_err(|problem| NewError::Write {
        path: path.to_owned(),
        problem,
    })
}

#[cfg(test)]
mod tests;
