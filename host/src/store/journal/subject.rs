//! What a journal is about: the input, the component, and all that decides which item an index
//! means.
//!
//! Invariant: two subjects without a [`Subject::changes`] between them give each index the same item, as
//! far as it can be known: standard input and pipes cannot be looked at before they are read.

use crate::source::{Format, Input, SourceConfig};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a journal is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The job's label, which idempotency keys are made of.
    pub label: String,
    /// The items.
    pub input: InputPrint,
    /// How they are cut out of the input: format, delimiter and the longest line.
    pub cut: String,
    /// The field that names an item.
    pub key: Option<String>,
    /// The component's SHA-256.
    pub component: String,
    /// The input holds items that failed, under the indexes of the input they came from.
    pub of_failed: bool,
}

/// An input as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPrint {
    /// Its name.
    pub name: String,
    /// The file, unless it is a stream.
    pub file: Option<FilePrint>,
}

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePrint {
    /// Bytes, packed if it is packed.
    pub size: u64,
    /// Of these bytes.
    pub sha256: String,
    /// Device, inode, and the nanoseconds of its last changes: a file with the same is not read again.
    stamp: (u64, u64, i64, i64),
}

/// The input or the component could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} for its digest: {cause}", path.display())]
pub struct DigestError {
    path: PathBuf,
    cause: io::Error,
}

impl Subject {
    /// Reads the input and the component for their digests. An input that is still as `known` is not read.
    pub fn take(
        label: &str,
        source: &SourceConfig,
        component: &Path,
        known: impl Fn(&Path) -> Option<FilePrint>,
    ) -> Result<Subject, DigestError> {
        let failed = |path: &Path, cause| DigestError {
            path: path.to_owned(),
            cause,
        };
        let (name, file) = match &source.input {
            Input::Stdin => ("standard input".to_owned(), None),
            Input::Path(path) => {
                let print = FilePrint::take(path, known(path)).map_err(|e| failed(path, e))?;
                (path.display().to_string(), print)
            }
        };
        Ok(Subject {
            label: label.to_owned(),
            input: InputPrint { name, file },
            cut: source.cut(),
            key: source.key.clone(),
            component: sha256(component).map_err(|cause| failed(component, cause))?,
            of_failed: source.format == Format::Failed,
        })
    }

    /// What is not as it was; empty if the subject is the same.
    pub fn changes(&self, now: &Subject) -> Vec<String> {
        let mut changes = Vec::new();
        changes.extend(self.input.change(&now.input));
        let key = |key: &Option<String>| match key {
            Some(key) => format!("{key:?}"),
            None => "none".to_owned(),
        };
        if self.key != now.key {
            let (was, is) = (key(&self.key), key(&now.key));
            changes.push(format!("the key setting (was {was}, is {is})"));
        }
        if self.cut != now.cut {
            changes.push(format!(
                "how the input is cut into items (was {}; is {})",
                self.cut, now.cut
            ));
        }
        changes.extend(self.changes_beside_input(now));
        changes
    }

    /// The same, whatever the input is.
    pub fn changes_beside_input(&self, now: &Subject) -> Vec<String> {
        let mut changes = Vec::new();
        if self.component != now.component {
            changes.push(format!(
                "the component (SHA-256 was {}, is {})",
                short(&self.component),
                short(&now.component)
            ));
        }
        if self.label != now.label {
            changes.push(format!(
                "the label (was {:?}, is {:?})",
                self.label, now.label
            ));
        }
        changes
    }
}

impl InputPrint {
    /// Whether the content is the same. Streams are never known to be.
    pub fn is(&self, other: &InputPrint) -> bool {
        match (&self.file, &other.file) {
            (Some(a), Some(b)) => a.sha256 == b.sha256,
            _ => false,
        }
    }

    fn change(&self, now: &InputPrint) -> Option<String> {
        match (&self.file, &now.file) {
            (Some(was), Some(is)) if was.sha256 == is.sha256 => None,
            (Some(was), Some(is)) => Some(format!(
                "the input {} (was {} bytes, SHA-256 {}; is {} bytes, SHA-256 {})",
                now.name,
                was.size,
                short(&was.sha256),
                is.size,
                short(&is.sha256)
            )),
            // Nothing is known of what either holds.
            (None, None) => None,
            _ => Some(format!("the input (was {}, is {})", self.name, now.name)),
        }
    }
}

impl FilePrint {
    /// `None` for what is no regular file.
    fn take(path: &Path, known: Option<FilePrint>) -> io::Result<Option<FilePrint>> {
        let facts = std::fs::metadata(path)?;
        if !facts.is_file() {
            return Ok(None);
        }
        let nanoseconds = |seconds: i64, rest: i64| seconds * 1_000_000_000 + rest;
        let stamp = (
            facts.dev(),
            facts.ino(),
            nanoseconds(facts.mtime(), facts.mtime_nsec()),
            nanoseconds(facts.ctime(), facts.ctime_nsec()),
        );
        let same = |known: &FilePrint| known.size == facts.len() && known.stamp == stamp;
        if let Some(known) = known.filter(same) {
            return Ok(Some(known));
        }
        Ok(Some(FilePrint {
            size: facts.len(),
            sha256: sha256(path)?,
            stamp,
        }))
    }
}

/// Enough to tell two apart by eye.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(count) => hash.update(&block[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let digest = hash.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
