//! Where a path leads.

use std::fs;
use std::path::{Path, PathBuf};

/// As many links as the system follows.
const MOST_LINKS: usize = 40;

/// The file that creating `path` would create, by a name that is the same whichever way it is named.
pub fn end_of(path: &Path) -> PathBuf {
    // There is always a last one.
    stations(path).pop().unwrap_or_default()
}

/// Where a path leads, each link on the way included: by paths that have no link in them. The last is the
/// file itself, whether it is there or not.
pub fn stations(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts = |path: &Path| {
        let parts = path.components().rev();
        let parts = parts.map(|part| part.as_os_str().to_owned());
        parts.collect::<Vec<_>>()
    };
    let (mut stations, mut links) = (Vec::new(), 0);
    let mut here = PathBuf::new();
    // The next part last.
    let mut rest = parts(&path);
    while let Some(part) = rest.pop() {
        if part == "." {
            continue;
        }
        if part == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                // An absolute one begins with the root, which takes the place of all before.
                rest.extend(parts(&target));
                stations.push(next);
            }
            _ => here = next,
        }
    }
    stations.push(here);
    stations
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
        symlink("deep", at("way")).unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at_root = |name: &str| root.join(name);
        for name in ["first", "deep/../third", "way/../third", "./third"] {
            assert_eq!(end_of(&at(name)), at_root("third"), "{name}");
        }
        fs::write(at("third"), "").unwrap();
        assert_eq!(end_of(&at("first")), at_root("third"));
        assert_eq!(end_of(&at("way/x")), at_root("deep/x"));
        assert_eq!(end_of(&at("none/x")), at_root("none/x"));
        symlink("loop", at("loop")).unwrap();
        assert_eq!(end_of(&at("loop")), at_root("loop"));

        let first = [at_root("first"), at_root("deep/second"), at_root("third")];
        assert_eq!(stations(&at_root("first")), first);
        symlink(at_root("deep"), at("folder")).unwrap();
        let through = [at_root("folder"), at_root("deep/none/there")];
        assert_eq!(stations(&at_root("folder/none/./x/../there")), through);
        assert!(stations(&at_root("loop")).len() > 1);
    }
}
