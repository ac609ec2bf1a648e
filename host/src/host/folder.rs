//! A folder of job files, and what changes in it.
//!
//! Invariant: a file is told of only when it has stopped changing, so that a half-written one starts
//! nothing; a folder that cannot be read has not lost its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File as Opened;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that was changed this long ago is taken to be complete.
const SETTLED: Duration = Duration::from_secs(1);

/// More of a file is not looked at to tell whether it changed: no job file is as long.
const MOST_BYTES: u64 = 4 << 20;

/// A file as it was when it was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    stamp: Stamp,
    /// A digest; none if it could not be read.
    content: Option<u64>,
}

/// What tells two versions of a file apart without reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    changed: Option<SystemTime>,
    bytes: u64,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A file is there, new or written anew.
    Here(PathBuf, Version),
    /// A file is there no more.
    Gone(PathBuf),
}

/// A folder, as it was when it was looked at last.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, File>,
    /// What is there and no file, which was said.
    strange: BTreeSet<PathBuf>,
    /// It could not be read, which was said.
    unreadable: bool,
}

#[derive(Debug)]
struct File {
    stamp: Stamp,
    told: Option<Stamp>,
}

impl Folder {
    /// Fails if it cannot be read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::read_dir(path)?;
        Ok(Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
            strange: BTreeSet::new(),
            unreadable: false,
        })
    }

    /// What changed since the last look.
    pub(super) fn look(&mut self) -> Vec<Change> {
        let (found, strange) = match self.list() {
            Ok(list) => list,
            Err(error) => {
                if !std::mem::replace(&mut self.unreadable, true) {
                    let path = self.path.display();
                    tracing::warn!(
                        "host: {path} cannot be read, so no job starts or is drained: {error}"
                    );
                }
                return Vec::new();
            }
        };
        if std::mem::take(&mut self.unreadable) {
            tracing::warn!("host: {} can be read again", self.path.display());
        }
        for (path, what) in &strange {
            if !self.strange.contains(path) {
                tracing::warn!("host: {} is ignored: it is {what}", path.display());
            }
        }
        self.strange = strange.into_keys().collect();
        let gone: Vec<_> = self
            .files
            .keys()
            .filter(|path| !found.contains_key(*path))
            .cloned()
            .collect();
        let mut changes = Vec::new();
        for path in gone {
            let told = self.files.remove(&path).and_then(|file| file.told);
            if told.is_some() {
                changes.push(Change::Gone(path));
            }
        }
        for (path, stamp) in found {
            let file = self.files.entry(path.clone()).or_insert_with(|| File {
                stamp: Stamp {
                    changed: None,
                    bytes: u64::MAX,
                },
                told: None,
            });
            let same = std::mem::replace(&mut file.stamp, stamp.clone()) == stamp;
            if (same || stamp.is_old()) && file.told.as_ref() != Some(&stamp) {
                file.told = Some(stamp.clone());
                let content = digest(&path).ok();
                changes.push(Change::Here(path, Version { stamp, content }));
            }
        }
        changes
    }

    /// Files that end in `.toml` and do not begin with a dot, and what else does, with what it is.
    fn list(&self) -> io::Result<(BTreeMap<PathBuf, Stamp>, BTreeMap<PathBuf, String>)> {
        let mut found = BTreeMap::new();
        let mut strange = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let hidden = path
                .file_name()
                .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if hidden || path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    let stamp = Stamp {
                        changed: metadata.modified().ok(),
                        bytes: metadata.len(),
                    };
                    found.insert(path, stamp);
                }
                Ok(metadata) => {
                    strange.insert(path, kind(metadata.file_type()).to_owned());
                }
                // One that is gone by now is not there.
                Err(error) if std::fs::symlink_metadata(&path).is_ok() => {
                    strange.insert(path, format!("a link that leads nowhere ({error})"));
                }
                Err(_) => {}
            }
        }
        Ok((found, strange))
    }
}

fn kind(file: std::fs::FileType) -> &'static str {
    if file.is_dir() {
        "a folder"
    } else if file.is_fifo() {
        "a named pipe"
    } else {
        "no regular file"
    }
}

fn digest(path: &Path) -> io::Result<u64> {
    let mut text = Vec::new();
    Opened::open(path)?
        .take(MOST_BYTES)
        .read_to_end(&mut text)?;
    let mut digest = DefaultHasher::new();
    text.hash(&mut digest);
    Ok(digest.finish())
}

impl Version {
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.content == other.content && self.stamp.bytes == other.stamp.bytes
    }
}

impl Stamp {
    fn is_old(&self) -> bool {
        let age = self.changed.and_then(|changed| changed.elapsed().ok());
        age.is_some_and(|age| age >= SETTLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(changes: Vec<Change>) -> Vec<String> {
        let name = |path: &Path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        };
        let change = |change| match change {
            Change::Here(path, _) => format!("here {}", name(&path)),
            Change::Gone(path) => format!("gone {}", name(&path)),
        };
        changes.into_iter().map(change).collect()
    }

    fn aged(path: &Path, seconds: u64) {
        let file = fs::File::options().write(true).open(path).expect("opened");
        let then = SystemTime::now() - Duration::from_secs(seconds);
        file.set_modified(then).expect("set");
    }

    #[test]
    fn tells_what_comes_changes_and_goes_once_it_has_settled() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str| dir.path().join(name);
        for name in ["a.toml", "b.txt", ".c.toml", "d.toml.swp"] {
            fs::write(file(name), "x").expect("written");
            aged(&file(name), 60);
        }
        fs::create_dir(file("e.toml")).expect("made");
        std::os::unix::fs::symlink("nowhere", file("h.toml")).expect("made");
        let mut folder = Folder::open(dir.path()).expect("a folder");
        assert_eq!(names(folder.look()), ["here a.toml"]);
        assert_eq!(names(folder.look()), [""; 0]);
        let strange: Vec<_> = folder.strange.iter().collect();
        assert_eq!(strange, [&file("e.toml"), &file("h.toml")]);

        // Just written: not at the first look, as more may follow.
        fs::write(file("f.toml"), "x").expect("written");
        assert_eq!(names(folder.look()), [""; 0]);
        fs::write(file("f.toml"), "xyz").expect("written");
        assert_eq!(names(folder.look()), [""; 0]);
        assert_eq!(names(folder.look()), ["here f.toml"]);

        fs::write(file("a.toml"), "changed").expect("written");
        aged(&file("a.toml"), 30);
        assert_eq!(names(folder.look()), ["here a.toml"]);
        fs::remove_file(file("a.toml")).expect("removed");
        assert_eq!(names(folder.look()), ["gone a.toml"]);

        // One that goes before it was told of was never there.
        fs::write(file("g.toml"), "x").expect("written");
        folder.look();
        fs::remove_file(file("g.toml")).expect("removed");
        assert_eq!(names(folder.look()), [""; 0]);
    }

    #[test]
    fn a_file_that_is_written_anew_may_say_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("a.toml");
        let mut folder = Folder::open(dir.path()).expect("a folder");
        let mut version = |text: &str, age| {
            fs::write(&file, text).expect("written");
            aged(&file, age);
            match folder.look().pop() {
                Some(Change::Here(_, version)) => version,
                other => panic!("{other:?}"),
            }
        };
        let versions = [version("x", 60), version("x", 50), version("y", 40)];
        assert!(versions[0] != versions[1] && versions[0].says_the_same(&versions[1]));
        assert!(!versions[1].says_the_same(&versions[2]));
    }

    #[test]
    fn a_folder_that_cannot_be_read_has_not_lost_its_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let jobs = dir.path().join("jobs");
        assert!(Folder::open(&jobs).is_err());
        fs::create_dir(&jobs).expect("made");
        fs::write(jobs.join("a.toml"), "x").expect("written");
        aged(&jobs.join("a.toml"), 60);
        let mut folder = Folder::open(&jobs).expect("a folder");
        assert_eq!(folder.look().len(), 1);
        fs::rename(&jobs, dir.path().join("away")).expect("moved");
        assert_eq!(folder.look(), []);
        fs::rename(dir.path().join("away"), &jobs).expect("moved back");
        assert_eq!(folder.look(), []);
    }
}
