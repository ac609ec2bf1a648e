#![allow(clippy::unwrap_used)]

use super::super::trouble::{run_apart, warnings};
use super::*;
use std::fs;
use std::process::{Command, Stdio};

fn learned(workers: u32) -> Learned {
    Learned {
        workers,
        batch_size: 40,
        max_workers: 32,
        max_batch_size: 100,
        in_flight: 11.5,
        items: 39.5,
        seconds: 0.25,
        spread: 0.3,
        calls: 240,
        share: 0.875,
    }
}

/// A folder, and the path of a memory in it that does not exist.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuner.sqlite");
    (folder, path)
}

fn memory(path: &Path, label: &str, hosts: &[&str]) -> TunerMemory {
    TunerMemory::new(path, label, hosts.iter().copied())
}

fn workers(path: &Path, label: &str, hosts: &[&str]) -> Option<u32> {
    let (learned, _) = memory(path, label, hosts).recall()?;
    Some(learned.workers)
}

fn execute(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn what_was_kept_is_recalled_whole_for_its_label_and_hosts() {
    let (_folder, path) = place();
    let mut orders = memory(&path, "orders", &["https://b.example", "https://A.example"]);
    assert!(orders.recall().is_none());
    assert!(!path.exists(), "reading creates nothing");
    assert!(orders.keep(&learned(12), "curve"));
    let (found, age) = orders.recall().unwrap();
    assert_eq!(found, learned(12));
    assert!((0.0..60.0).contains(&age), "{age}");

    let same = [
        "https://a.example",
        "https://b.example",
        "https://a.example",
    ];
    assert_eq!(workers(&path, "orders", &same), Some(12), "in any order");
    assert_eq!(workers(&path, "orders", &same[..1]), None);
    assert_eq!(workers(&path, "orders", &[]), None);
    assert_eq!(workers(&path, "refunds", &same), None);

    assert!(memory(&path, "refunds", &same).keep(&learned(3), "history"));
    assert!(memory(&path, "orders", &[]).keep(&learned(4), "curve"));
    assert!(memory(&path, "orders", &same).keep(&learned(13), "curve"));
    assert_eq!(workers(&path, "orders", &same), Some(13), "the last counts");
    assert_eq!(workers(&path, "orders", &[]), Some(4));
    assert_eq!(workers(&path, "refunds", &same), Some(3));
    // The last to close leaves one file.
    assert_eq!(fs::read_dir(_folder.path()).unwrap().count(), 1);
}

#[test]
fn only_what_was_recalled_is_forgotten() {
    let (_folder, path) = place();
    let mut first = memory(&path, "a", &[]);
    first.forget();
    assert!(!path.exists());
    first.keep(&learned(12), "curve");
    first.recall().unwrap();
    first.forget();
    assert_eq!(workers(&path, "a", &[]), None);

    first.keep(&learned(12), "curve");
    memory(&path, "b", &[]).keep(&learned(7), "curve");
    first.recall().unwrap();
    memory(&path, "a", &[]).keep(&learned(9), "curve");
    first.forget();
    assert_eq!(workers(&path, "a", &[]), Some(9), "learned since");
    assert_eq!(workers(&path, "b", &[]), Some(7));
}

#[test]
fn ages_are_told_and_what_is_very_old_goes() {
    let (_folder, path) = place();
    memory(&path, "old", &[]).keep(&learned(1), "curve");
    memory(&path, "very old", &[]).keep(&learned(2), "curve");
    let back = |label: &str, seconds: f64| {
        let sql = format!(
            "UPDATE tuner_memory SET learned_at = learned_at - {seconds} WHERE label = '{label}'"
        );
        execute(&path, &sql);
    };
    back("old", KEPT - 3600.0);
    back("very old", KEPT + 1.0);
    let (_, age) = memory(&path, "old", &[]).recall().unwrap();
    assert!((KEPT - 3600.0..KEPT - 3500.0).contains(&age), "{age}");
    assert_eq!(workers(&path, "very old", &[]), Some(2));
    memory(&path, "new", &[]).keep(&learned(3), "curve");
    assert_eq!(workers(&path, "very old", &[]), None);
    assert_eq!(workers(&path, "old", &[]), Some(1));
}

#[test]
fn a_file_that_cannot_be_used_is_said_once_and_left_as_it_is() {
    let (folder, path) = place();
    let at = |name: &str| folder.path().join(name);
    fs::write(
        at("garbage"),
        "not a database, and long enough to be read as one. ".repeat(40),
    )
    .unwrap();
    execute(
        &at("newer"),
        &format!(
            "{SCHEMA} UPDATE tuner_meta SET value = '2'; ALTER TABLE tuner_memory DROP COLUMN share"
        ),
    );
    execute(
        &at("other"),
        "CREATE TABLE tuner_memory (label TEXT, hosts TEXT); INSERT INTO tuner_memory VALUES ('a', '')",
    );
    execute(&at("no-sense"), SCHEMA);
    execute(
        &at("no-sense"),
        "INSERT INTO tuner_memory VALUES ('a', '', 'then', 'curve', -1, 1e300, 1, 1, 1, 1, 1, 1, 1, 1)",
    );
    memory(&path, "a", &[]).keep(&learned(12), "curve");
    // The root page stays, so that it still looks like a database.
    let mut torn = fs::read(&path).unwrap();
    torn[4096..].fill(0xa5);
    fs::write(at("torn"), torn).unwrap();
    let table = [
        ("garbage", "not an SQLite database"),
        (
            "newer",
            "its tables are of version 2, and this program's of 1",
        ),
        ("other", "is it another program's database?"),
        ("torn", "damaged"),
        (".", "it is a folder"),
    ];
    for (name, problem) in table {
        let before = fs::read(at(name)).ok();
        let warned = warnings(|| {
            let mut memory = memory(&at(name), "a", &[]);
            assert!(memory.recall().is_none(), "{name}");
            assert!(!memory.keep(&learned(3), "curve"), "{name}");
            memory.forget();
        });
        assert_eq!(warned.len(), 1, "{name}: {warned:?}");
        assert!(
            warned[0].contains("tuner memory") && warned[0].contains(problem),
            "{warned:?}"
        );
        assert!(
            warned[0].ends_with("; the run starts as configured label=\"a\""),
            "{warned:?}"
        );
        if ["garbage", "torn"].contains(&name) {
            assert_eq!(fs::read(at(name)).ok(), before, "{name}");
        }
    }
    // A row that is none is replaced.
    let warned = warnings(|| {
        let mut memory = memory(&at("no-sense"), "a", &[]);
        assert!(memory.recall().is_none());
        assert!(memory.keep(&learned(3), "curve"));
        assert_eq!(
            memory.recall().map(|(learned, _)| learned),
            Some(learned(3))
        );
    });
    assert_eq!(warned.len(), 1, "{warned:?}");
    let absent = at("absent").join("tuner.sqlite");
    let warned = warnings(|| {
        let mut memory = memory(&absent, "a", &[]);
        assert!(memory.recall().is_none());
        assert!(!memory.keep(&learned(3), "curve"));
    });
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("does not exist; what this run learned is not remembered"),
        "{warned:?}"
    );
}

#[test]
fn a_locked_memory_holds_a_run_up_for_a_second_or_so() {
    let (_folder, path) = place();
    memory(&path, "a", &[]).keep(&learned(12), "curve");
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let from = std::time::Instant::now();
    let warned = warnings(|| {
        let mut memory = memory(&path, "a", &[]);
        assert!(memory.recall().is_some(), "a writer keeps no reader out");
        assert!(!memory.keep(&learned(3), "curve"));
    });
    assert!(from.elapsed() < Duration::from_secs(20));
    assert!(
        warned.len() == 1 && warned[0].contains("locked"),
        "{warned:?}"
    );
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(workers(&path, "a", &[]), Some(12));
}

/// Runs as a process of its own, see the next test.
#[test]
#[ignore = "a part of two_processes_share_a_memory"]
fn keeping_process() {
    let path = PathBuf::from(std::env::var_os("MEMORY").unwrap());
    let warned = warnings(|| {
        for n in 1..=30 {
            assert!(memory(&path, "its own", &[]).keep(&learned(n), "curve"));
            assert!(memory(&path, "common", &[]).keep(&learned(n), "curve"));
        }
    });
    assert_eq!(warned, [""; 0]);
}

#[test]
fn two_processes_share_a_memory() {
    let (_folder, path) = place();
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["keeping_process", "--ignored", "--nocapture"])
        .env("MEMORY", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for n in 1..=30 {
        assert!(memory(&path, "mine", &[]).keep(&learned(n), "history"));
        assert!(memory(&path, "common", &[]).keep(&learned(n), "history"));
    }
    let output = other.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(workers(&path, "mine", &[]), Some(30));
    assert_eq!(workers(&path, "its own", &[]), Some(30));
    assert_eq!(workers(&path, "common", &[]), Some(30));
}

/// Runs as a process of its own that permissions bind, see the next test.
#[test]
#[ignore = "a part of a_read_only_memory_is_read"]
fn read_only_memory_process() {
    use std::os::unix::fs::PermissionsExt;
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let (folder, path) = place();
    memory(&path, "a", &[]).keep(&learned(12), "curve");
    allow(&path, 0o444);
    for folder_mode in [0o755, 0o555] {
        allow(folder.path(), folder_mode);
        let warned = warnings(|| {
            let mut memory = memory(&path, "a", &[]);
            assert_eq!(
                memory.recall().map(|(learned, _)| learned.workers),
                Some(12)
            );
            assert!(!memory.keep(&learned(3), "curve"));
            memory.forget();
        });
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains("read-only"), "{warned:?}");
    }
    allow(&path, 0o000);
    let warned = warnings(|| assert!(memory(&path, "a", &[]).recall().is_none()));
    assert_eq!(warned.len(), 1, "{warned:?}");
    allow(folder.path(), 0o755);
}

#[test]
fn a_read_only_memory_is_read() {
    // The superuser gives up what makes permissions mean nothing to it.
    run_apart(
        "read_only_memory_process",
        r#"test "$(id -u)" != 0 && exec "$0" "$@"
           exec setpriv --bounding-set=-dac_override,-dac_read_search "$0" "$@""#,
    );
}

/// Runs as a process of its own whose files may not grow; see the next test.
#[test]
#[ignore = "a part of a_full_disk_leaves_the_memory_as_it_was"]
fn full_disk_memory_process() {
    let (_folder, path) = place();
    let limit = |bytes: &str| {
        let mut prlimit = Command::new("prlimit");
        let pid = std::process::id().to_string();
        let set = prlimit
            .args([&format!("--fsize={bytes}"), "--pid", &pid])
            .status();
        assert!(set.unwrap().success());
    };
    memory(&path, "a", &[]).keep(&learned(12), "curve");
    limit("4096:unlimited");
    let warned = warnings(|| {
        let mut memory = memory(&path, "a", &[]);
        // Even readers need room for side files.
        memory.recall();
        assert!(!memory.keep(&learned(3), "curve"));
        memory.forget();
    });
    limit("unlimited");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!(workers(&path, "a", &[]), Some(12));
}

#[test]
fn a_full_disk_leaves_the_memory_as_it_was() {
    run_apart(
        "full_disk_memory_process",
        r#"trap '' XFSZ; exec "$0" "$@""#,
    );
}
