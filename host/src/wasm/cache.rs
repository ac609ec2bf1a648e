//! Keeps compiled code from start to start.
//!
//! Invariant: only what this host wrote, unchanged, is ever taken for code. The folder belongs to the user
//! alone, an entry is written in whole or not at all, and its digest is checked before use. It holds
//! [`MOST_KEPT`] bytes at most: entries that were not used for the longest time make way.

use sha2::{Digest, Sha256};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use thiserror::Error;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Bytes of code that are kept; the entry written last is kept in any case.
const MOST_KEPT: u64 = 1 << 30;
/// After so long, what was being written never will be.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The compiled code of former starts.
pub(super) struct Cache<'a> {
    folder: &'a Path,
}

/// The cache cannot be used. The component is compiled instead.
#[derive(Debug, Error)]
pub(super) enum CacheError {
    #[error("{}: {problem}", path.display())]
    Io { path: PathBuf, problem: io::Error },
    #[error("{}: {problem}", path.display())]
    Unsafe {
        path: PathBuf,
        problem: &'static str,
    },
}

impl<'a> Cache<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder }
    }

    /// The code compiled from a component of this digest, if it is there and whole.
    pub(super) fn load(
        &self,
        engine: &Engine,
        digest: &str,
    ) -> Result<Option<Component>, CacheError> {
        let entry = self.entry(engine, digest);
        if fs::symlink_metadata(&entry).is_err() {
            return Ok(None);
        }
        self.check_owner()?;
        // What cannot be read as it was written will be written anew.
        if !verified(&entry).unwrap_or(false) {
            return Ok(None);
        }
        used_now(&entry);
        Ok(deserialize_entry(engine, &entry).ok())
    }

    /// Keeps code for the next start.
    pub(super) fn store(
        &self,
        engine: &Engine,
        digest: &str,
        artifact: &[u8],
    ) -> Result<(), CacheError> {
        self.make_folder()?;
        self.check_owner()?;
        let entry = self.entry(engine, digest);
        let record =
            record(artifact, artifact.len() as u64).map_err(|problem| io_error(&entry, problem))?;
        // The sum first: an entry without its sum is damaged, a sum without its entry is nothing.
        write(&sum_path(&entry), &record)?;
        write(&entry, artifact)?;
        self.make_room(&entry);
        Ok(())
    }

    /// Deletes what was not used for the longest time beyond [`MOST_KEPT`], and what was never written to its
    /// end. Whatever cannot be deleted only takes space.
    fn make_room(&self, keep: &Path) {
        let Ok(files) = fs::read_dir(self.folder) else {
            return;
        };
        let mut entries = Vec::new();
        for file in files.flatten() {
            let (path, Ok(metadata)) = (file.path(), file.metadata()) else {
                continue;
            };
            let age = |time: io::Result<SystemTime>| time.ok()?.elapsed().ok();
            match kind(&path) {
                Some(Kind::Code) => {
                    let used = fs::metadata(sum_path(&path)).and_then(|sum| sum.modified());
                    let used = used.unwrap_or(SystemTime::UNIX_EPOCH);
                    entries.push((used, metadata.len(), path));
                }
                Some(Kind::Unfinished)
                    if age(metadata.modified()).is_some_and(|age| age > ABANDONED) =>
                {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        entries.sort();
        let mut kept: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in entries {
            if kept <= MOST_KEPT {
                return;
            }
            if path != keep {
                // Another host may be loading it: what it has open stays whole.
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(sum_path(&path));
                kept -= bytes;
            }
        }
    }

    fn entry(&self, engine: &Engine, digest: &str) -> PathBuf {
        // The engine's version and settings; the artifact itself repeats both and is checked against them.
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        self.folder
            .join(format!("{digest}-{:016x}.cwasm", hasher.finish()))
    }

    fn make_folder(&self) -> Result<(), CacheError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(self.folder)
            .map_err(|problem| io_error(self.folder, problem))
    }

    /// Whoever can write to the folder can have us run anything.
    #[cfg(unix)]
    fn check_owner(&self) -> Result<(), CacheError> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let metadata =
            fs::metadata(self.folder).map_err(|problem| io_error(self.folder, problem))?;
        let unsafe_because = |problem| CacheError::Unsafe {
            path: self.folder.to_owned(),
            problem,
        };
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(unsafe_because(
                "belongs to another user; give a folder of your own",
            ));
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err(unsafe_because(
                "others may write to it; take that right away (chmod 700)",
            ));
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn check_owner(&self) -> Result<(), CacheError> {
        Ok(())
    }
}

/// Takes code that this host has just compiled.
#[allow(unsafe_code)]
pub(super) fn deserialize(engine: &Engine, artifact: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: it comes straight from the compiler of this very program.
    unsafe { Component::deserialize(engine, artifact) }
}

#[allow(unsafe_code)]
fn deserialize_entry(engine: &Engine, entry: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file was written by this host for this very engine (its name and header say so), into a
    // folder that nobody else may write to, and has just been found unchanged by its digest.
    unsafe { Component::deserialize_file(engine, entry) }
}

/// Whether an entry is what was written.
fn verified(entry: &Path) -> io::Result<bool> {
    let mut known = Vec::new();
    let sum = open_own(&sum_path(entry))?;
    sum.take(RECORD as u64 + 1).read_to_end(&mut known)?;
    let file = open_own(entry)?;
    let bytes = file.metadata()?.len();
    // Its length first, so that no more is read than was written.
    if known.len() != RECORD || known[DIGEST..] != bytes.to_le_bytes() {
        return Ok(false);
    }
    Ok(record(file.take(bytes), bytes)? == known)
}

/// Opens a file of ours for reading: none that another user has, can change or is the other end of.
fn open_own(path: &Path) -> io::Result<fs::File> {
    let file = crate::regular::open_no_link(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !own || metadata.mode() & 0o022 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    Ok(file)
}

/// Bytes of the record of an entry: its SHA-256, and its length.
const RECORD: usize = DIGEST + 8;
const DIGEST: usize = 32;

/// The record of an entry of so many bytes.
fn record(mut from: impl Read, bytes: u64) -> io::Result<Vec<u8>> {
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                let mut record = sum.finalize().to_vec();
                record.extend(bytes.to_le_bytes());
                return Ok(record);
            }
            Ok(read) => sum.update(&buffer[..read]),
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
}

fn sum_path(entry: &Path) -> PathBuf {
    entry.with_extension("sha256")
}

/// Marks an entry as used: by its sum, so that the code stays as it was written.
fn used_now(entry: &Path) {
    let sum = fs::File::options().append(true).open(sum_path(entry));
    let _ = sum.and_then(|sum| sum.set_modified(SystemTime::now()));
}

enum Kind {
    Code,
    Unfinished,
}

/// What a file of the folder is, if it is ours: `DIGEST-ENGINE.cwasm`, or one on its way to such a name.
fn kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let (stem, rest) = name.split_once('.')?;
    let (digest, engine) = stem.split_once('-')?;
    let hex = |text: &str, digits| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if !hex(digest, 64) || !hex(engine, 16) {
        return None;
    }
    match rest {
        "cwasm" => Some(Kind::Code),
        rest if rest.ends_with(".tmp") => Some(Kind::Unfinished),
        _ => None,
    }
}

/// Writes a file in whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), CacheError> {
    let unique = format!("{}.{:x}.tmp", std::process::id(), rand::random::<u64>());
    let temporary = path.with_extension(unique);
    let written = (|| {
        let mut options = fs::File::options();
        // Whatever the umask says: what others may write to is not taken for ours.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.write(true).create_new(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|problem| {
        let _ = fs::remove_file(&temporary);
        io_error(path, problem)
    })
}

fn io_error(path: &Path, problem: io::Error) -> CacheError {
    CacheError::Io {
        path: path.to_owned(),
        problem,
    }
}
