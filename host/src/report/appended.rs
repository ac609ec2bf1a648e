//! A file that a run adds rows to.
//!
//! Invariant: once [`Appended::write_all`](Write::write_all) has returned, the rows survive the end of the process and stand in
//! the file of that name; of what could not be written whole, no part stays. A file that was deleted, replaced or cut
//! short while in use is an error, since its rows are lost.

use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file, open for adding to it.
#[derive(Debug)]
pub struct Appended {
    file: File,
    path: PathBuf,
    /// Bytes when it was last written to.
    length: u64,
}

impl Appended {
    /// Opens or creates it. A pipe that nobody reads is an error, where opening it would wait.
    pub fn open(path: &Path) -> io::Result<Appended> {
        if fs::metadata(path).is_ok_and(|facts| facts.file_type().is_fifo()) {
            has_reader(path)?;
        }
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Appended {
            file,
            path: path.to_owned(),
            length,
        })
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// An error if what was written is not there any more.
    pub fn check(&self) -> io::Result<()> {
        self.look().map(drop)
    }

    /// Waits until it is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn look(&self) -> io::Result<Metadata> {
        let ours = self.file.metadata()?;
        if !ours.is_file() {
            return Ok(ours);
        }
        let is_named = match fs::metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) == (ours.dev(), ours.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_named || ours.len() < self.length {
            return Err(io::Error::other(
                "the file was deleted, replaced or truncated while in use",
            ));
        }
        Ok(ours)
    }
}

impl Write for Appended {
    /// In one write, so that neither the end of the process nor other writers can split it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.look()?;
        self.file.write_all(bytes).inspect_err(|_| {
            if before.is_file() {
                // If this fails as well, the first error is still the one to tell.
                let _ = self.file.set_len(before.len());
            }
        })?;
        self.length = before.len() + bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opening a pipe for writing waits until someone reads it, which nothing could interrupt.
pub fn has_reader(path: &Path) -> io::Result<()> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(flags)
        .open(path);
    opened.map(drop).map_err(|error| {
        let nobody = rustix::io::Errno::NXIO.raw_os_error();
        match error.raw_os_error() == Some(nobody) {
            true => io::Error::other("it is a pipe that nobody reads; start its reader first"),
            false => error,
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_an_error_and_what_others_add_is_none() {
        type Harm = fn(&Path);
        let harms: [(Harm, bool); 5] = [
            (|_| (), true),
            (|path| fs::write(path, "one\ntwo\nand more").unwrap(), true),
            (|path| fs::remove_file(path).unwrap(), false),
            (|path| fs::write(path, "on").unwrap(), false),
            (
                |path| {
                    fs::rename(path, path.with_extension("old")).unwrap();
                    fs::write(path, "one\ntwo\n").unwrap();
                },
                false,
            ),
        ];
        for (number, (harm, goes_on)) in harms.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("rows");
            let mut rows = Appended::open(&path).unwrap();
            rows.write_all(b"one\n").unwrap();
            rows.write_all(b"two\n").unwrap();
            harm(&path);
            assert_eq!(rows.check().is_ok(), goes_on, "{number}");
            assert_eq!(rows.write_all(b"three\n").is_ok(), goes_on, "{number}");
        }
    }

    #[test]
    fn a_pipe_needs_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let error = Appended::open(&path).unwrap_err().to_string();
        assert!(error.contains("nobody reads"), "{error}");
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || fs::read_to_string(path).unwrap())
        };
        // The reader waits in its open until we are there.
        let mut rows = loop {
            match Appended::open(&path) {
                Ok(rows) => break rows,
                Err(_) => std::thread::yield_now(),
            }
        };
        rows.write_all(b"row\n").unwrap();
        drop(rows);
        assert_eq!(reader.join().unwrap(), "row\n");
    }
}
