use super::*;
use std::fs;

fn wanted(day: i32, starts: u64) -> Wanted {
    Wanted {
        day: DayId(day),
        starts,
    }
}

/// 2026-03-08
const TODAY: i32 = 20_520;

struct Fixture {
    folder: tempfile::TempDir,
    file: StateFile,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StateFile::new(folder.path().join("quota.json"));
        Self { folder, file }
    }

    fn with(text: impl AsRef<[u8]>) -> Self {
        let fixture = Self::new();
        fs::write(&fixture.file.path, text).expect("write");
        fixture
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file.path).expect("read")
    }

    fn lease(&self, starts: u64, cap: u64) -> Result<Granted, StateFileError> {
        self.file.lease(wanted(TODAY, starts), Some(cap))
    }
}

#[test]
fn a_missing_file_is_fresh_and_is_made_whole() {
    let fixture = Fixture::new();
    assert_eq!(fixture.file.check(DayId(TODAY)).expect("usable"), None);
    assert!(!fixture.file.path.exists(), "a check writes nothing");
    let granted = fixture.lease(10, 12).expect("a lease");
    assert_eq!((granted.starts, granted.counted), (10, 10));
    let text = fixture.text();
    assert_eq!(text.len(), RECORD_BYTES);
    assert_eq!(text.trim_end(), r#"{"day": "2026-03-08", "count": 10}"#);
    assert!(text.ends_with(" \n"));
    assert_eq!(fixture.lease(10, 12).expect("a lease").starts, 2);
    assert_eq!(fixture.file.check(DayId(TODAY)).expect("usable"), Some(12));
    fixture.file.give_back(DayId(TODAY), 5).expect("given back");
    assert_eq!(fixture.file.check(DayId(TODAY)).expect("usable"), Some(7));
    let files = fs::read_dir(fixture.folder.path())
        .expect("a folder")
        .count();
    assert_eq!(files, 1, "nothing is left beside it");
}

#[test]
fn records_of_others_are_read_and_kept_in_place() {
    for (text, starts, after) in [
        // As Python's json writes it.
        (
            r#"{"day": "2026-03-08", "count": 95}"#,
            5,
            r#"{"day": "2026-03-08", "count": 100}"#,
        ),
        (
            "{\n  \"count\": 7,\n  \"day\": \"2026-03-08\"\n}\n",
            10,
            r#"{"day": "2026-03-08", "count": 17}"#,
        ),
        (
            r#"{"day":"2026-03-07","count":99}"#,
            10,
            r#"{"day": "2026-03-08", "count": 10}"#,
        ),
        (
            r#"{"day":"2026-03-08","count":0,"note":"a further key and so a line longer than our own"}"#,
            10,
            r#"{"day": "2026-03-08", "count": 10}"#,
        ),
        (
            r#"{"day":"2026-03-08","count":100}"#,
            0,
            r#"{"day":"2026-03-08","count":100}"#,
        ),
        // Of tomorrow: the other host has passed midnight.
        (
            r#"{"day":"2026-03-09","count":1}"#,
            0,
            r#"{"day":"2026-03-09","count":1}"#,
        ),
    ] {
        let fixture = Fixture::with(text);
        let inode = fs::metadata(&fixture.file.path).expect("a file").ino();
        assert_eq!(fixture.lease(10, 100).expect(text).starts, starts, "{text}");
        assert_eq!(fixture.text().trim_end(), after, "{text}");
        assert!(fixture.text().len() >= text.len(), "it is never cut");
        let same = fs::metadata(&fixture.file.path).expect("a file").ino();
        assert_eq!(inode, same, "a lock on it stays one on it");
    }
}

#[test]
fn a_damaged_file_is_an_error_and_stays_as_it_is() {
    let long = format!(r#"{{"day":"2026-03-08","count":1}}{}"#, " ".repeat(5_000));
    for (text, what) in [
        ("", "empty"),
        (" \n", "empty"),
        ("\0\0\0\0", "line 1"),
        ("no", "line 1"),
        ("[]", "expected"),
        ("7", "expected"),
        (r#"{"day": "2026-03-08", "cou"#, "EOF"),
        (r#"{"day": "2026-03-08"}"#, "count"),
        (r#"{"count": 3}"#, "day"),
        (r#"{"day": "2026-03-08", "count": -1}"#, "-1"),
        (r#"{"day": "2026-03-08", "count": 1.5}"#, "1.5"),
        (r#"{"day": "2026-03-08", "count": "7"}"#, "string"),
        (r#"{"day": "2026-03-08", "count": null}"#, "null"),
        (
            r#"{"day": "2026-03-08", "count": 99999999999999999999}"#,
            "u64",
        ),
        (r#"{"day": "2026-02-30", "count": 1}"#, "not a day"),
        (r#"{"day": "2026-3-8", "count": 1}"#, "not a day"),
        (r#"{"day": "2026-03-08T00:00", "count": 1}"#, "not a day"),
        (r#"{"day": 20520, "count": 1}"#, "integer"),
        (r#"{"day": "2026-03-08", "count": 1} {"#, "trailing"),
        (r#"{"day": "2026-03-10", "count": 1}"#, "2 days ahead"),
        (r#"{"day": "9999-12-31", "count": 1}"#, "days ahead"),
        (&long, "too long"),
    ] {
        let fixture = Fixture::with(text);
        let refused = fixture
            .file
            .check(DayId(TODAY))
            .expect_err(text)
            .to_string();
        let error = fixture.lease(1, 100).expect_err(text).to_string();
        assert_eq!(refused, error);
        assert!(error.contains(what), "{text}: {error}");
        assert!(
            error.contains("quota.json") && error.contains("delete"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(fixture.text(), text);
    }
}

#[test]
fn what_the_system_refuses_is_named() {
    let no_folder = StateFile::new(PathBuf::from("/nonexistent/quota.json"));
    let fixture = Fixture::with("x");
    let under_a_file = StateFile::new(fixture.file.path.join("quota.json"));
    let folder = StateFile::new(fixture.folder.path().to_owned());
    let device = StateFile::new(PathBuf::from("/dev/null"));
    for file in [no_folder, under_a_file, folder, device] {
        for error in [
            file.check(DayId(TODAY)).map(|_| ()),
            file.lease(wanted(TODAY, 1), Some(9)).map(|_| ()),
            file.give_back(DayId(TODAY), 1),
        ] {
            let error = error.expect_err("not a state file").to_string();
            assert!(error.contains(&*file.path.to_string_lossy()), "{error}");
        }
    }
}

#[test]
fn two_hosts_share_the_file_under_its_lock() {
    let fixture = Fixture::new();
    fixture.lease(0, 1_000).expect("a lease");
    let granted: u64 = std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let leases = (0..400).map(|_| fixture.lease(1, 1_000).expect("a lease").starts);
                    leases.sum::<u64>()
                })
            })
            .collect();
        hosts
            .into_iter()
            .map(|host| host.join().expect("no panic"))
            .sum()
    });
    assert_eq!(granted, 1_000);
    assert_eq!(
        fixture.file.check(DayId(TODAY)).expect("usable"),
        Some(1_000)
    );
}

#[test]
fn the_lock_is_on_the_file_of_that_name() {
    let fixture = Fixture::with(r#"{"day":"2026-03-08","count":5}"#);
    let held = fixture.file.open().expect("open");
    held.lock().expect("lock");
    assert_eq!(fixture.file.check(DayId(TODAY)).expect("in use"), None);
    let is_still = |file: &File| fixture.file.is_still(file).expect("known");
    assert!(is_still(&held));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| fixture.lease(1, 100).expect("a lease"));
        // Replaced while the other waits for its lock, or before it opens it: the same to it.
        let new = fixture.folder.path().join("new");
        fs::write(&new, r#"{"day":"2026-03-08","count":50}"#).expect("write");
        fs::rename(&new, &fixture.file.path).expect("rename");
        assert!(!is_still(&held), "another file has the name");
        drop(held);
        assert_eq!(other.join().expect("no panic").counted, 51);
    });
    assert_eq!(fixture.file.check(DayId(TODAY)).expect("usable"), Some(51));
    let gone = fixture.file.open().expect("open");
    fs::remove_file(&fixture.file.path).expect("remove");
    assert!(!is_still(&gone), "no file has the name");
}

#[test]
fn a_file_that_is_deleted_while_in_use_is_no_fresh_one() {
    let fixture = Fixture::new();
    fixture.lease(10, 100).expect("a lease");
    fs::remove_file(&fixture.file.path).expect("removed");
    let error = fixture.lease(10, 100).expect_err("not counted from 0");
    assert!(
        error.to_string().contains("it was deleted while in use"),
        "{error}"
    );
    assert!(!fixture.file.path.exists());
}

#[test]
fn a_link_to_what_is_not_there_yet_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink("real.json", &link).expect("a link");
    let file = StateFile::new(link.clone());
    file.check(DayId(TODAY)).expect("usable");
    let granted = file.lease(wanted(TODAY, 3), Some(10)).expect("a lease");
    assert_eq!(granted.starts, 3);
    assert!(link.is_symlink() && folder.path().join("real.json").is_file());
}
