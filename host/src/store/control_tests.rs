#![allow(clippy::unwrap_used)]

use super::super::control;
use super::super::trouble::warnings;
use super::*;
use std::fs;

fn pairs(overrides: Vec<Override>) -> Vec<(String, String)> {
    overrides.into_iter().map(|o| (o.key, o.value)).collect()
}

fn expect(reader: &mut ControlReader, expected: &[(&str, &str)]) {
    let got = pairs(reader.poll().unwrap());
    let got: Vec<_> = got
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(got, expected);
}

/// A folder, and the path of a control store in it that does not exist.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sqlite");
    (folder, path)
}

#[test]
fn the_latest_row_of_a_key_counts_and_all_rows_stay() {
    let (_folder, path) = place();
    assert!(control::current(&path).unwrap().is_empty());
    control::set(&path, "max_workers", "4", None).unwrap();
    control::set(&path, "max_workers", "8", Some("why")).unwrap();
    control::set(&path, "any", "x", None).unwrap();
    control::clear(&path, "any", None).unwrap();
    let current = control::current(&path).unwrap();
    assert_eq!(
        current.into_iter().collect::<Vec<_>>(),
        [("max_workers".into(), "8".into())]
    );
    let mut log = Vec::new();
    let each = |event: ControlEvent| {
        log.push((event.id, event.value, event.note));
        std::ops::ControlFlow::Continue(())
    };
    assert!(control::log(&path, each).unwrap());
    let row = |id, value: &str, note: Option<&str>| (id, value.to_owned(), note.map(str::to_owned));
    let expected = [
        row(1, "4", None),
        row(2, "8", Some("why")),
        row(3, "x", None),
        row(4, CLEARED, None),
    ];
    assert_eq!(log, expected);
}

#[test]
fn the_first_look_gives_what_is_in_force_and_later_ones_what_is_new() {
    let (_folder, path) = place();
    let mut early = ControlReader::new(&path);
    expect(&mut early, &[]);
    assert!(!path.exists(), "reading created it");
    control::set(&path, "max_workers", "4", None).unwrap();
    control::set(&path, "pause", "true", None).unwrap();
    control::clear(&path, "pause", None).unwrap();
    expect(&mut early, &[("max_workers", "4")]);
    expect(&mut early, &[]);
    // The same value again is a new row: a force must act again.
    control::set(&path, "force_workers", "3", None).unwrap();
    control::set(&path, "force_workers", "3", None).unwrap();
    control::clear(&path, "max_workers", None).unwrap();
    let news = [
        ("force_workers", "3"),
        ("force_workers", "3"),
        ("max_workers", CLEARED),
    ];
    expect(&mut early, &news);
    expect(&mut ControlReader::new(&path), &[("force_workers", "3")]);
}

#[test]
fn another_database_in_its_place_is_taken_up_anew() {
    let (folder, path) = place();
    control::set(&path, "max_workers", "4", None).unwrap();
    control::set(&path, "hold_workers", "2", None).unwrap();
    let mut reader = ControlReader::new(&path);
    assert_eq!(reader.poll().unwrap().len(), 2);
    fs::remove_file(&path).unwrap();
    // Gone: said, and the values stay.
    assert_eq!(reader.poll().unwrap_err().fault, Fault::Gone);
    assert!(reader.poll_or_warn(Some("orders")).is_empty());
    assert!(!path.exists());
    control::set(&path, "max_workers", "9", None).unwrap();
    expect(
        &mut reader,
        &[("hold_workers", CLEARED), ("max_workers", "9")],
    );
    // A copy of the same log is the same log.
    let copy = folder.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    expect(&mut reader, &[]);
    control::set(&path, "max_workers", "10", None).unwrap();
    expect(&mut reader, &[("max_workers", "10")]);
    // Overwritten in place, with the same ids.
    let other = folder.path().join("other");
    control::set(&other, "a", "1", None).unwrap();
    control::set(&other, "b", "1", None).unwrap();
    fs::copy(&other, &path).unwrap();
    expect(
        &mut reader,
        &[("max_workers", CLEARED), ("a", "1"), ("b", "1")],
    );
}

#[test]
fn a_database_that_cannot_be_read_is_an_error_that_says_why() {
    let (folder, path) = place();
    fs::write(
        &path,
        "nothing of a database, for many bytes to come: 0123456789",
    )
    .unwrap();
    let mut reader = ControlReader::new(&path);
    assert_eq!(reader.poll().unwrap_err().fault, Fault::NotADatabase);
    let fault = control::set(&path, "a", "1", None).unwrap_err().fault;
    assert_eq!(fault, Fault::NotADatabase);
    let error = control::set(&folder.path().join("no/control"), "a", "1", None).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    // A device stands for all that is no file: opening a pipe would wait for its other end.
    for write in [true, false] {
        let device = Path::new("/dev/null");
        let error = match write {
            true => control::set(device, "a", "1", None).unwrap_err(),
            false => ControlReader::new(device).poll().unwrap_err(),
        };
        let expected = "/dev/null: cannot be opened: it is not a regular file";
        assert_eq!(error.to_string(), expected);
        assert!(error.fault.is_of_path());
    }
    let error = ControlReader::new(folder.path()).poll().unwrap_err();
    assert!(error.to_string().contains("folder"), "{error}");
    // Empty, or without our table yet: another process is about to create it.
    fs::write(&path, "").unwrap();
    expect(&mut reader, &[]);
    assert_eq!(fs::read(&path).unwrap(), b"", "reading changed it");
    // Back to life.
    control::set(&path, "a", "1", None).unwrap();
    expect(&mut reader, &[("a", "1")]);
}

#[test]
fn values_of_any_type_are_read_as_text() {
    let (_folder, path) = place();
    control::set(&path, "a", "1", None).unwrap();
    let connection = Connection::open(&path).unwrap();
    let insert = "INSERT INTO control_events (timestamp, key, value) VALUES ";
    for row in [
        "(1, 'max_workers', 7)",
        "('x', 'b', x'ff41')",
        "(2, 'c', 2.5)",
    ] {
        connection.execute(&format!("{insert}{row}"), []).unwrap();
    }
    let expected = [
        ("a", "1"),
        ("max_workers", "7"),
        ("b", "\u{fffd}A"),
        ("c", "2.5"),
    ];
    expect(&mut ControlReader::new(&path), &expected);
}

#[test]
fn a_writer_that_holds_its_lock_does_not_keep_readers_out() {
    let (_folder, path) = place();
    control::set(&path, "a", "1", None).unwrap();
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    expect(&mut ControlReader::new(&path), &[("a", "1")]);
}

#[test]
fn a_failing_store_is_told_once_and_leaves_the_values() {
    let (_folder, path) = place();
    control::set(&path, "max_workers", "4", None).unwrap();
    let mut reader = ControlReader::new(&path);
    for (said, break_it) in [
        (
            "deleted",
            (|path| fs::remove_file(path).unwrap()) as fn(&Path),
        ),
        ("truncated", |path| fs::write(path, "").unwrap()),
        ("not an SQLite database", |path| {
            fs::write(path, "no database at all ".repeat(100)).unwrap();
        }),
    ] {
        reader.poll().unwrap();
        let warned = warnings(|| {
            break_it(&path);
            assert!(reader.poll_or_warn(Some("orders")).is_empty());
            assert!(reader.poll_or_warn(Some("orders")).is_empty());
            let _ = fs::remove_file(&path);
            control::set(&path, "max_workers", "5", None).unwrap();
            assert_eq!(reader.poll_or_warn(Some("orders")).len(), 1, "{said}");
            assert!(reader.poll_or_warn(Some("orders")).is_empty());
        });
        assert_eq!(warned.len(), 2, "{warned:?}");
        assert!(warned[0].contains(said), "{warned:?}");
        assert!(warned[1].contains("can be read again"), "{warned:?}");
        for line in &warned {
            assert!(line.ends_with(r#" label="orders""#), "{line}");
        }
    }
}
