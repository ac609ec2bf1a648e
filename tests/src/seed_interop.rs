//! The Python library `adaptive-concurrency` and we share files: each reads and writes what
//! the other wrote, with its own functions, while both are at work.

use crate::support::target;
use batchgate::report::failures::FailuresFile;
use batchgate::store::control;
use batchgate::store::usage::{Span, Totals, UsageLog, UsageRow, unix_now};
use batchgate::store::{ControlReader, LoggedCalls, UsageReport, UsageWriter};
use batchgate_policy::outcome::UsageOutcome;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const LIBRARY: &str = "adaptive-concurrency==0.1.1";

/// A Python that has the library, in an environment of its own that is made once.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let environment = target().join("seed-library");
        let python = environment.join("bin/python");
        let version = "from importlib.metadata import version as v\n\
                       assert v('adaptive-concurrency') == '0.1.1'";
        let has_library = Command::new(&python).args(["-c", version]).output();
        if !has_library.is_ok_and(|output| output.status.success()) {
            run(Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&environment));
            let pip = [
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                LIBRARY,
            ];
            run(Command::new(&python).args(pip));
        }
        python
    })
}

/// The output of a command that has to succeed.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn script(code: &str, path: &Path) -> Command {
    let imports = "import json, sys, time\n\
                   from pathlib import Path\n\
                   from adaptive_concurrency import *\n\
                   from adaptive_concurrency import UsageLog\n\
                   path = Path(sys.argv[1])\n";
    let mut command = Command::new(python());
    command.arg("-c").arg(format!("{imports}{code}")).arg(path);
    command
}

/// What Python code prints, which is JSON. It has the library, and the file as `path`.
fn ask(code: &str, path: &Path) -> Value {
    serde_json::from_str(&run(&mut script(code, path))).unwrap()
}

fn row(timestamp: f64, outcome: UsageOutcome, bytes: Option<u64>) -> UsageRow {
    UsageRow {
        timestamp,
        label: "ours".into(),
        workers: 4,
        batch_size: 50,
        n_items: 30,
        elapsed_seconds: 0.25,
        outcome,
        bytes,
    }
}

fn overrides(reader: &mut ControlReader) -> Vec<(String, String)> {
    let rows = reader.poll().unwrap();
    rows.into_iter().map(|row| (row.key, row.value)).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn python_reads_our_control_store_and_we_follow_its_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sqlite");
    control::set(&path, "max_workers", "16", Some("off-peak")).unwrap();
    control::set(&path, "force_workers", "3", None).unwrap();
    control::clear(&path, "force_workers", None).unwrap();
    let seen = ask(
        "print(json.dumps([current_overrides(path), audit_log(path)]))",
        &path,
    );
    assert_eq!(seen[0], json!({"max_workers": "16"}));
    let rows: Vec<Value> = (0..3)
        .map(|row| {
            json!([
                seen[1][row][0],
                seen[1][row][2],
                seen[1][row][3],
                seen[1][row][4]
            ])
        })
        .collect();
    assert_eq!(
        rows,
        [
            json!([1, "max_workers", "16", "off-peak"]),
            json!([2, "force_workers", "3", null]),
            json!([3, "force_workers", "__cleared__", null]),
        ]
    );
    assert!((seen[1][0][1].as_f64().unwrap() - unix_now()).abs() < 3600.0);

    let mut reader = ControlReader::new(&path);
    assert_eq!(overrides(&mut reader), [pair("max_workers", "16")]);
    let write = "set_override(path, 'force_batch_size', 25, note='why')\n\
                 clear_override(path, 'max_workers')\n\
                 print('null')";
    ask(write, &path);
    let expected = [
        pair("force_batch_size", "25"),
        pair("max_workers", control::CLEARED),
    ];
    assert_eq!(overrides(&mut reader), expected);
    assert_eq!(control::current(&path).unwrap().len(), 1);
}

#[test]
fn a_control_store_that_python_made_is_ours_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sqlite");
    let mut reader = ControlReader::new(&path);
    assert!(overrides(&mut reader).is_empty());
    ask("set_override(path, 'min_workers', 2)\nprint('null')", &path);
    assert_eq!(overrides(&mut reader), [pair("min_workers", "2")]);
    assert_eq!(control::set(&path, "min_workers", "3", None).unwrap(), 2);
    let current = ask("print(json.dumps(current_overrides(path)))", &path);
    assert_eq!(current, json!({"min_workers": "3"}));
}

#[test]
fn python_counts_our_calls_as_we_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.sqlite");
    let writer = UsageWriter::open(&path).unwrap();
    let now = unix_now();
    for (age, outcome, bytes) in [
        (0.0, UsageOutcome::Ok, Some(10)),
        (100.0, UsageOutcome::Fail, None),
        (4000.0, UsageOutcome::Breach, Some(5)),
        (90_000.0, UsageOutcome::Ok, Some(1)),
    ] {
        writer.log(row(now - age, outcome, bytes));
    }
    let report = UsageReport {
        written: 4,
        dropped: 0,
        unwritten: 0,
    };
    assert_eq!(writer.close(), report);
    let code = "u = UsageLog(path)\n\
                u.log_batch_attempt(label='theirs', workers=1, batch_size=2, n_items=2, \
                    elapsed_seconds=0.5, outcome='ok', n_bytes=7)\n\
                now = time.time()\n\
                t = time.localtime(now)\n\
                midnight = time.mktime((t.tm_year, t.tm_mon, t.tm_mday, 0, 0, 0, 0, 0, -1))\n\
                print(json.dumps([now, midnight, u.requests_today(now), \
                    u.requests_in_window(7200, now), u.bytes_in_window(7200, now)]))\n\
                u.close()";
    let theirs = ask(code, &path);
    let number = |at: usize| theirs[at].as_f64().unwrap();
    let log = UsageLog::open(&path).unwrap().unwrap();
    let ours = |since: f64| {
        let span = Span {
            since: Some(since),
            until: Some(number(0)),
        };
        let mut all = Totals::default();
        for totals in log.totals(span, None).unwrap().into_values() {
            all += totals;
        }
        all
    };
    assert_eq!(ours(number(1)).requests as f64, number(2));
    let window = ours(number(0) - 7200.0);
    assert_eq!([window.requests, window.bytes], [4, 22]);
    assert_eq!(
        [window.requests as f64, window.bytes as f64],
        [number(3), number(4)]
    );
    let call = LoggedCalls::open(&path, "theirs")
        .unwrap()
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((call.workers, call.batch_size, call.n_items), (1, 2, 2));
    assert_eq!(
        (call.elapsed_seconds, call.outcome),
        (0.5, UsageOutcome::Ok)
    );
}

#[test]
fn both_write_one_usage_log_at_the_same_time() {
    const THEIRS: i64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.sqlite");
    // Python makes the file.
    ask("UsageLog(path).close()\nprint('null')", &path);
    let writer = UsageWriter::open(&path).unwrap();
    let code = format!(
        "u = UsageLog(path)\n\
         for i in range({THEIRS}):\n\
         \u{20}   u.log_batch_attempt(label='theirs', workers=1, batch_size=2, n_items=2, \
             elapsed_seconds=0.5, outcome='fail')\n\
         u.close()"
    );
    let mut python = script(&code, &path).spawn().unwrap();
    let mut logged = 0_u64;
    let status = loop {
        writer.log(row(unix_now(), UsageOutcome::Ok, None));
        logged += 1;
        if let Some(status) = python.try_wait().unwrap() {
            break status;
        }
        // Some thousand calls a second.
        std::thread::sleep(std::time::Duration::from_micros(100));
    };
    assert!(status.success());
    let report = writer.close();
    assert_eq!(
        (report.written, report.unwritten),
        (logged - report.dropped, 0)
    );
    let log = UsageLog::open(&path).unwrap().unwrap();
    let totals = log.totals(Span::default(), None).unwrap();
    assert_eq!(
        (totals["theirs"].requests, totals["theirs"].fail),
        (THEIRS, THEIRS)
    );
    assert_eq!(totals["ours"].ok as u64, report.written);
    let count = ask(
        "u = UsageLog(path)\nprint(u.requests_in_window(1e9))\nu.close()",
        &path,
    );
    assert_eq!(count, json!(THEIRS as u64 + report.written));
}

#[test]
fn tables_and_indexes_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [our_control, our_usage, their_control, their_usage] =
        ["a", "b", "c", "d"].map(|name| folder.path().join(name));
    control::set(&our_control, "a", "1", None).unwrap();
    UsageWriter::open(&our_usage).unwrap().close();
    ask("set_override(path, 'a', 1)\nprint('null')", &their_control);
    ask("UsageLog(path).close()\nprint('null')", &their_usage);
    for (ours, theirs, table) in [
        (our_control, their_control, "control_events"),
        (our_usage, their_usage, "requests"),
    ] {
        let schema = |path| -> Vec<String> {
            let connection = rusqlite::Connection::open(path).unwrap();
            let sql = "SELECT type || name || ' ' || sql FROM sqlite_master \
                       WHERE tbl_name = ?1 AND type <> 'trigger' ORDER BY type, name";
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement
                .query_map([table], |row| row.get::<_, String>(0))
                .unwrap();
            // Apart from line ends and indents.
            rows.map(|sql| {
                sql.unwrap()
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
        };
        assert_eq!(schema(&ours), schema(&theirs));
        assert_eq!(schema(&ours).len(), 2);
    }
}

#[test]
fn python_reads_our_failures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("failures.csv");
    let odd = "1;\"2\",\r\n3;\u{e9}";
    let mut failures = FailuresFile::open(&path).unwrap();
    failures.write(odd, "a | b", 1_720_000_000.5).unwrap();
    failures.write("4", "", 1_720_000_001.0).unwrap();
    let code = "import csv\n\
                rows = csv.DictReader(path.open(newline='', encoding='utf-8'))\n\
                row = lambda r: [r['batch'], r['error'], float(r['timestamp'])]\n\
                print(json.dumps([row(r) for r in rows]))";
    let rows = json!([[odd, "a | b", 1_720_000_000.5], ["4", "", 1_720_000_001.0]]);
    assert_eq!(ask(code, &path), rows);
}
