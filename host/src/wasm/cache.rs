//! Keeps compiled code from start to start.
//!
//! Invariant: only what this host wrote, unchanged, is ever taken for code. The folder belongs to the user
//! alone, an entry is written in whole or not at all, and its digest is checked before use.

use sha2::{Digest, Sha256};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;
use wasmtime::Engine;
use wasmtime::component::Component;

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
    #[error("{0}")]
    Serialize(wasmtime::Error),
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
        if !entry.exists() {
            return Ok(None);
        }
        self.check_owner()?;
        match verified(&entry).map_err(|problem| io_error(&entry, problem))? {
            true => Ok(deserialize(engine, &entry).ok()),
            // It will be written anew.
            false => Ok(None),
        }
    }

    /// Keeps code for the next start.
    pub(super) fn store(
        &self,
        engine: &Engine,
        digest: &str,
        code: &Component,
    ) -> Result<(), CacheError> {
        self.make_folder()?;
        self.check_owner()?;
        let artifact = code.serialize().map_err(CacheError::Serialize)?;
        let entry = self.entry(engine, digest);
        let sum = checksum(artifact.as_slice()).map_err(|problem| io_error(&entry, problem))?;
        // The sum first: an entry without its sum is damaged, a sum without its entry is nothing.
        write(&sum_path(&entry), &sum)?;
        write(&entry, &artifact)
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
        let own = fs::metadata("/proc/self").map(|own| own.uid());
        let metadata =
            fs::metadata(self.folder).map_err(|problem| io_error(self.folder, problem))?;
        let unsafe_because = |problem| CacheError::Unsafe {
            path: self.folder.to_owned(),
            problem,
        };
        if own.is_ok_and(|own| own != metadata.uid()) {
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

#[allow(unsafe_code)]
fn deserialize(engine: &Engine, entry: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file was written by this host for this very engine (its name and header say so), into a folder that nobody
    // else may write to, and has just been found unchanged by its digest.
    unsafe { Component::deserialize_file(engine, entry) }
}

/// Whether an entry is what was written.
fn verified(entry: &Path) -> io::Result<bool> {
    let sum = match fs::read(sum_path(entry)) {
        Ok(sum) => sum,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(problem) => return Err(problem),
    };
    Ok(checksum(fs::File::open(entry)?)? == sum)
}

fn checksum(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(sum.finalize().to_vec()),
            Ok(read) => sum.update(&buffer[..read]),
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
}

fn sum_path(entry: &Path) -> PathBuf {
    entry.with_extension("sha256")
}

/// Writes a file in whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), CacheError> {
    let unique = format!("{}.{:x}", std::process::id(), rand::random::<u64>());
    let temporary = path.with_extension(unique);
    let written = (|| {
        let mut file = fs::File::create_new(&temporary)?;
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
