//! Opens files that must be regular ones: nobody waits for the other end of a pipe, or reads a device
//! that has no end.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file for reading, following links. What is there and is no regular file is an error.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, rustix::fs::OFlags::NONBLOCK)
}

/// The same for a path whose last part must be no link.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    open_with(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

fn open_with(path: &Path, flags: rustix::fs::OFlags) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    // Opening a pipe would wait for its other end. For a regular file it makes no difference.
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_open_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        symlink("file", at("link")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(fifo.unwrap().success());
        open(&at("file")).unwrap();
        open(&at("link")).unwrap();
        open_no_link(&at("file")).unwrap();
        open_no_link(&at("link")).unwrap_err();
        for path in [at("fifo"), "/dev/zero".into()] {
            let error = open(&path).unwrap_err().to_string();
            assert_eq!(error, "is not a regular file", "{}", path.display());
        }
        let error = open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
