//! Where a path leads.

use std::fs;
use std::path::{Path, PathBuf};

/// As many links as the system follows.
const MOST_LINKS: usize = 40;

/// The file that creating `path` would create: the end of its links, whether there is a file or not.
pub fn end_of(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&end) else {
            break;
        };
        end = match end.parent() {
            Some(folder) => folder.join(next),
            None => next,
        };
    }
    end
}

/// The file that creating `path` would create, by a name that is the same whichever way it is named.
pub fn resolved(path: &Path) -> PathBuf {
    let end = end_of(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let in_folder = || Some(fs::canonicalize(end.parent()?).ok()?.join(end.file_name()?));
    let there = fs::canonicalize(&end).ok();
    there.or_else(in_folder).unwrap_or(end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_to_what_is_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        symlink("deep/second", at("first")).unwrap();
        symlink("../third", at("deep/second")).unwrap();
        assert_eq!(end_of(&at("first")), at("deep/../third"));
        assert_eq!(end_of(&at("plain")), at("plain"));
        symlink("deep", at("way")).unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for name in ["first", "deep/../third", "way/../third", "./third"] {
            assert_eq!(resolved(&at(name)), root.join("third"), "{name}");
        }
        fs::write(at("third"), "").unwrap();
        assert_eq!(resolved(&at("first")), root.join("third"));
        assert_eq!(resolved(&at("way/x")), root.join("deep/x"));
        assert_eq!(resolved(&at("none/x")), at("none/x"));
        symlink("loop", at("loop")).unwrap();
        assert_eq!(end_of(&at("loop")), at("loop"));
    }
}
