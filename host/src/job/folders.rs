//! Sees that no folder that a component may write to holds what the host runs, trusts or writes itself.
//!
//! Invariant: paths are compared by where they lead. A link on the way to a file counts as well: who can
//! write beside it can replace it.

use crate::config::{ConfigError, Job};
use crate::link::stations;
use std::path::{Path, PathBuf};

/// Checks the writable folders of each job against the files of all, and the cache.
pub fn check_folders(jobs: &[Job], cache_dir: Option<&Path>) -> Result<(), ConfigError> {
    let files: Vec<_> = jobs.iter().flat_map(protected).collect();
    jobs.iter()
        .try_for_each(|job| check(job, &files, cache_dir))
}

fn check(job: &Job, files: &[Protected], cache_dir: Option<&Path>) -> Result<(), ConfigError> {
    for dir in job.sandbox.dirs.iter().filter(|dir| dir.writable) {
        let Ok(folder) = dir.host.canonicalize() else {
            // Whoever opens it says what is wrong.
            continue;
        };
        let refuse = |how: &str, what: &str, path: &Path| {
            let message = format!(
                "the component may write to {}, which {how} {what} {}; give it a folder of its own",
                dir.host.display(),
                path.display()
            );
            Err(job.refuse_entry("dirs", &dir.origin, message))
        };
        let cache = cache_dir.map(|cache| (CACHE, cache.to_owned()));
        for (what, path) in files.iter().chain(&cache) {
            if stations(path)
                .iter()
                .any(|station| station.starts_with(&folder))
            {
                return refuse("holds", what, path);
            }
        }
        if let Some(cache) = cache_dir
            && stations(cache)
                .last()
                .is_some_and(|cache| folder.starts_with(cache))
        {
            return refuse("lies in", CACHE, cache);
        }
    }
    Ok(())
}

const CACHE: &str = "the cache of compiled components,";

/// What it is, and its path.
type Protected = (&'static str, PathBuf);

/// What no component may change.
fn protected(job: &Job) -> Vec<Protected> {
    let files = [
        ("the component,", Some(job.top.component.as_path())),
        ("the job file,", job.filled.file()),
        ("[sandbox] ca_file,", job.sandbox.ca_file.as_deref()),
        ("rejects_csv,", job.top.rejects_csv.as_deref()),
        ("summary,", job.top.summary.as_deref()),
        ("[pool] failures_csv,", job.pool.failures_csv.as_deref()),
        ("[pool] failed_items,", job.pool.failed_items.as_deref()),
        ("[journal] db,", job.journal.db.as_deref()),
        ("[control] db,", job.control.db.as_deref()),
        ("[usage] db,", job.usage.db.as_deref()),
        (
            "[rate_limit] state_file,",
            job.rate_limit.state_file.as_deref(),
        ),
        (
            "[adaptive] tuner_memory,",
            job.adaptive.tuner_memory.as_deref(),
        ),
    ];
    let given = files
        .into_iter()
        .filter_map(|(what, path)| Some((what, path?.to_owned())));
    given.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn folders_that_hold_what_the_host_relies_on_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["own", "open", "cache/deep", "plugins", "state", "jobs"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("plugins/real.wasm"), "").unwrap();
        fs::write(at("in.csv"), "a\n").unwrap();
        symlink(at("plugins/real.wasm"), at("open/link.wasm")).unwrap();
        symlink(at("cache"), at("other-name")).unwrap();
        let checked = |dir: &str, top: &str, rest: &str| {
            let text =
                format!("input = \"../in.csv\"\n{top}\n[sandbox]\ndirs = [\"../{dir}\"]\n{rest}");
            let file = at("jobs/job.toml");
            fs::write(&file, text).unwrap();
            let job = Job::load(&file, &Overrides::default()).unwrap();
            check_folders(&[job], Some(&at("cache"))).map_err(|error| error.to_string())
        };
        let plain = "component = \"../plugins/real.wasm\"";
        let linked = "component = \"../open/link.wasm\"";
        let summary = format!("{plain}\nsummary = \"../own/new.json\"");
        let usage = "[usage]\ndb = \"../state/u.db\"";
        let table = [
            ("own::/d::rw", plain, "", None),
            ("plugins::/d", plain, "", None),
            ("open::/d::rw", plain, "", None),
            ("state::/d::rw", plain, "", None),
            ("plugins::/d::rw", plain, "", Some("holds the component,")),
            ("plugins::/d::rw", linked, "", Some("holds the component,")),
            ("open::/d::rw", linked, "", Some("holds the component,")),
            ("jobs::/d::rw", plain, "", Some("holds the job file,")),
            (".::/d::rw", plain, "", Some("which holds the ")),
            ("cache::/d::rw", plain, "", Some("holds the cache")),
            ("other-name::/d::rw", plain, "", Some("holds the cache")),
            ("cache/deep::/d::rw", plain, "", Some("lies in the cache")),
            ("own/../own::/d::rw", &summary, "", Some("holds summary,")),
            ("state::/d::rw", plain, usage, Some("holds [usage] db,")),
        ];
        for (dir, top, rest, expected) in table {
            let said = checked(dir, top, rest);
            match expected {
                None => assert_eq!(said, Ok(()), "{dir} {top}"),
                Some(expected) => {
                    let said = said.unwrap_err();
                    assert!(said.contains(expected), "{dir} {top}: {said}");
                    assert!(
                        said.contains("job.toml:4: [sandbox] dirs: ")
                            || said.contains("job.toml:5: "),
                        "{said}"
                    );
                    assert!(!said.contains('\n'), "{said}");
                }
            }
        }
    }
}
