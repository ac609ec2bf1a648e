//! Sensors: what processor time and memory are used, of what is allowed.
//!
//! Invariant: where a cgroup limits us, we are judged against it and not against the machine;
//! what cannot be read is an error, never a guess.
//!
//! All of it is read from Linux's files, below a root that tests can choose.

mod cgroup;
mod cpu;
mod memory;
#[cfg(test)]
pub(super) mod tests;

use cpu::Cpu;
use memory::Memory;
use procfs_core::{FromRead, ProcError};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer is none of the files read here.
const MAX_FILE: u64 = 4 << 20;

/// Something cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum SensorError {
    /// A file cannot be read.
    #[error("{}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Nothing to compare with yet.
    #[error("no earlier reading")]
    First,
}

/// Memory used, of what is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryUse {
    /// Our processes', as a part of their limit.
    pub own: f64,
    /// The cgroup's, else the machine's, as a part of the total.
    pub system: f64,
}

/// What was measured at one moment.
#[derive(Debug)]
pub struct Sample {
    /// Processor time since the last sample, as a part of what is allowed.
    pub cpu: Result<f64, SensorError>,
    /// Memory in use.
    pub memory: Result<MemoryUse, SensorError>,
}

/// Reads the machine.
#[derive(Debug)]
pub struct Sensors {
    files: Files,
    cpu: Cpu,
    memory: Memory,
}

impl Sensors {
    /// Sensors of this machine. `memory` is what our processes may use; if it is not given, it
    /// follows from the cgroup's limit or the machine's memory.
    pub fn new(memory: Option<u64>) -> Self {
        Self::under(Path::new("/"), memory)
    }

    /// Sensors that read the files below another root.
    pub fn under(root: &Path, memory: Option<u64>) -> Self {
        Self {
            files: Files {
                root: root.to_owned(),
            },
            cpu: Cpu::default(),
            memory: Memory::new(memory),
        }
    }

    /// Measures now. Blocks on file access, for about a millisecond.
    pub fn sample(&mut self, now: Duration) -> Sample {
        Sample {
            cpu: self.cpu.measure(&self.files, now),
            memory: self.memory.measure(&self.files, now),
        }
    }
}

/// The files below a root.
#[derive(Debug)]
struct Files {
    root: PathBuf,
}

impl Files {
    /// Where an absolute path is.
    fn path(&self, absolute: &Path) -> PathBuf {
        self.root
            .join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    fn text(&self, absolute: &Path) -> Result<String, SensorError> {
        let path = self.path(absolute);
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(text),
            Err(cause) => Err(SensorError::Read { path, cause }),
        }
    }

    /// `None` if there is no such file.
    fn optional_text(&self, absolute: &Path) -> Result<Option<String>, SensorError> {
        match self.text(absolute) {
            Err(SensorError::Read { cause, .. })
                if cause.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// A file in a format of procfs.
    fn parsed<T: FromRead>(&self, absolute: &Path) -> Result<T, SensorError> {
        let text = self.text(absolute)?;
        T::from_read(text.as_bytes()).map_err(|error| match error {
            ProcError::Io(cause, _) => SensorError::Read {
                path: self.path(absolute),
                cause,
            },
            other => self.malformed(absolute, other.to_string().replace('\n', " ")),
        })
    }

    fn malformed(&self, absolute: &Path, what: impl Into<String>) -> SensorError {
        SensorError::Format {
            path: self.path(absolute),
            what: what.into(),
        }
    }

    /// The number after a word, in a file of such lines (`usage_usec 12`, `Pss: 12 kB`).
    fn number_after(&self, absolute: &Path, text: &str, word: &str) -> Result<u64, SensorError> {
        let number = text.lines().find_map(|line| {
            let mut parts = line.split_ascii_whitespace();
            let is_it = parts.next()?.trim_end_matches(':') == word;
            is_it.then(|| parts.next()?.parse().ok()).flatten()
        });
        number.ok_or_else(|| {
            self.malformed(absolute, format!("has no line with a number for {word}"))
        })
    }
}
