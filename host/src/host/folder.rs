//! A folder of job files, and what changes in it.
//!
//! Invariant: a file is told of only when it has stopped changing, so that a half-written one starts
//! nothing; a folder that cannot be read has not lost its files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that was changed this long ago is taken to be complete.
const SETTLED: Duration = Duration::from_secs(1);

/// What tells two versions of a file apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    changed: Option<SystemTime>,
    bytes: u64,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A file is there, new or with other content.
    Here(PathBuf, Stamp),
    /// A file is there no more.
    Gone(PathBuf),
}

/// A folder, as it was when it was looked at last.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, File>,
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
            unreadable: false,
        })
    }

    /// What changed since the last look.
    pub(super) fn look(&mut self) -> Vec<Change> {
        let found = match self.list() {
            Ok(found) => found,
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
                changes.push(Change::Here(path, stamp));
            }
        }
        changes
    }

    /// Files that end in `.toml` and do not begin with a dot.
    fn list(&self) -> io::Result<BTreeMap<PathBuf, Stamp>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let hidden = path
                .file_name()
                .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if hidden || path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            // One that is gone by now is not there.
            if let Ok(metadata) = std::fs::metadata(&path)
                && metadata.is_file()
            {
                let stamp = Stamp {
                    changed: metadata.modified().ok(),
                    bytes: metadata.len(),
                };
                found.insert(path, stamp);
            }
        }
        Ok(found)
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
        let mut folder = Folder::open(dir.path()).expect("a folder");
        assert_eq!(names(folder.look()), ["here a.toml"]);
        assert_eq!(names(folder.look()), [""; 0]);

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
