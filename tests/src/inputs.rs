//! Bad input is normal: each kind has its documented answer, with the line named and the exit code set.

use crate::support::{Job, Ran, guest};
use std::io::Write;

/// Runs the no-op plugin over an input file of this name and content.
fn run(name: &str, content: &[u8], toml: &str) -> (Job, Ran) {
    let job = Job::new(&guest("noop"), "", toml);
    std::fs::write(job.path(name), content).expect("input written");
    let ran = job.run(&["--input", job.path(name).to_str().expect("UTF-8")]);
    (job, ran)
}

/// What was written, and the rejected lines with their reasons.
fn outcome(name: &str, content: &[u8], toml: &str) -> (u64, Vec<(String, String)>) {
    let (job, ran) = run(
        name,
        content,
        &format!("rejects_csv = \"rejects.csv\"\n{toml}"),
    );
    let rows: Vec<_> = csv::Reader::from_path(job.path("rejects.csv"))
        .expect("made")
        .into_records()
        .map(|row| row.expect("a row"))
        .map(|row| (row[0].to_owned(), row[1].to_owned()))
        .collect();
    assert_eq!(ran.adds_up().count("rejected"), rows.len() as u64);
    assert_eq!(ran.code, i32::from(!rows.is_empty()), "{}", ran.log);
    for (line, _) in &rows {
        assert!(
            ran.log.contains(&format!("line {line}")),
            "line {line} is not named in {}",
            ran.log
        );
    }
    (ran.count("written"), rows)
}

#[test]
fn lines_that_are_no_items_are_rejected_by_number_and_the_run_goes_on() {
    let long = format!("id,name\n1,{}\n2,b\n", "x".repeat(4000));
    type Case<'a> = (&'a str, &'a [u8], &'a str, u64, &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 8] = [
        (
            "a.csv",
            b"\xef\xbb\xbfid,name\r\n1,\"a, \"\"b\"\"\r\nc\"\r\n2,d\r\n",
            "key = \"id\"\n",
            2,
            &[],
        ),
        (
            "b.csv",
            b"id,name\n1,a\n2\n3,\"x\ny\"\n4,b,c\n5,d\n",
            "",
            3,
            &[("3", "fields"), ("6", "fields")],
        ),
        ("c.csv", b"id,name\n1,\xff\n2,b\n", "", 1, &[("2", "UTF-8")]),
        (
            "d.csv",
            long.as_bytes(),
            "max_item_bytes = 1000\n",
            1,
            &[("2", "max_item_bytes")],
        ),
        (
            "e.jsonl",
            b"{\"id\":1}\nnot json\n{\"id\":2}\n\xff\n",
            "",
            2,
            &[("2", "JSON"), ("4", "")],
        ),
        (
            "f.jsonl",
            b"{\"id\":1}\n{\"no\":2}\n",
            "key = \"id\"\n",
            1,
            &[("2", "id")],
        ),
        ("g.txt", b"one\r\ntwo\xff\nthree", "", 3, &[]),
        ("h.tsv", b"id\tname\n1\ta,b\n", "", 1, &[]),
    ];
    for (name, content, toml, written, expected) in cases {
        let (wrote, rows) = outcome(name, content, toml);
        assert_eq!(wrote, written, "{name}");
        assert_eq!(rows.len(), expected.len(), "{name}: {rows:?}");
        for ((line, reason), (expected_line, word)) in rows.iter().zip(expected) {
            assert_eq!(line, expected_line, "{name}");
            assert!(
                reason.contains(word),
                "{name}: {reason:?} says nothing of {word:?}"
            );
        }
    }
}

#[test]
fn empty_inputs_are_a_success_that_says_so() {
    for (name, content) in [
        ("a.csv", ""),
        ("b.csv", "id,name\n"),
        ("c.jsonl", ""),
        ("d.txt", "\n\n"),
    ] {
        let (_, ran) = run(name, content.as_bytes(), "");
        assert_eq!((ran.code, ran.count("items")), (0, 0), "{name}");
        assert!(
            ran.log.contains("the input holds no items"),
            "{name}: {}",
            ran.log
        );
    }
}

#[test]
fn packed_inputs_are_unpacked_and_damaged_ones_stop_the_run() {
    let lines: String = (0..200_000).map(|n| format!("item {n}\n")).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).expect("packed");
    let packed = gzip.finish().expect("packed");
    let (_, ran) = run("a.txt.gz", &packed, "");
    assert_eq!((ran.code, ran.count("written")), (0, 200_000));

    let (_, ran) = run("b.txt.gz", &packed[..packed.len() / 2], "");
    assert_eq!(ran.code, 5, "{}", ran.log);
    assert_eq!(ran.summary["stopped"], "input-error");
    assert!(ran.summary["items"].is_null() && ran.count("written") > 0);
}

#[test]
fn what_makes_the_input_unusable_is_found_before_anything_is_sent() {
    let cases: [(&str, &[u8], &str, &str); 5] = [
        ("a.csv", b"id,name\n1,a\n", "key = \"nope\"\n", "nope"),
        ("b.csv", b"id,id\n1,a\n", "", "id"),
        ("c.csv", b"\xff\xfei\0d\0", "", "UTF-16"),
        ("d.txt.gz", b"not packed", "", "gz"),
        ("e.txt", b"x\n", "key = \"id\"\n", "key"),
    ];
    for (name, content, toml, word) in cases {
        let (_, ran) = run(name, content, toml);
        assert_eq!(ran.code, 2, "{name}: {}", ran.log);
        assert!(ran.summary.is_null(), "{name}");
        assert!(
            ran.log.contains(word),
            "{name}: {:?} says nothing of {word:?}",
            ran.log
        );
        assert_eq!(ran.log.lines().count(), 1, "{name}: {}", ran.log);
    }
}
