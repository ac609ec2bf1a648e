//! Stores that fail, with real files and real processes: what becomes of the run is stated for each.

use crate::journal::{agree, show, upload};
use crate::support::{Job, MockApi, Ran, numbered_csv};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: usize = 1200;

/// A run of about 3 s with all stores.
fn job() -> (MockApi, Job) {
    job_of(ROWS)
}

fn job_of(rows: usize) -> (MockApi, Job) {
    let api = MockApi::start(&["--overhead-ms", "100", "--per-item-ms", "0"]);
    let toml = "[pool]\nworkers = 4\nbatch_size = 10\nfailed_items = \"failed.jsonl\"\n\
                [adaptive]\nmax_workers = 4\n\
                [control]\ndb = \"control.sqlite\"\npoll_seconds = 0.05\n\
                [usage]\ndb = \"usage.sqlite\"\n[journal]\ndb = \"journal.sqlite\"\n";
    let job = upload(&api, &numbered_csv(rows), toml);
    (api, job)
}

/// Starts the job and waits until it sends.
fn started(job: &Job, api: &MockApi) -> Child {
    let running = job.command(&["--fixed"]).spawn().expect("batchgate runs");
    let from = Instant::now();
    while api.stats()["requests"].as_u64() < Some(4) {
        assert!(from.elapsed() < Duration::from_secs(30), "nothing is sent");
    }
    running
}

/// Waits until the server has had so many requests more.
fn after(api: &MockApi, more: u64) {
    let requests = || api.stats()["requests"].as_u64().expect("a count");
    let until = requests() + more;
    let from = Instant::now();
    while requests() < until {
        assert!(
            from.elapsed() < Duration::from_secs(30),
            "nothing more is sent"
        );
    }
}

/// Another process with the database's lock, until its input ends.
struct Locked(Child);

impl Locked {
    fn by_another_process(path: &Path, how: &str) -> Locked {
        let code = "import sqlite3, sys\n\
                    c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n\
                    c.execute(sys.argv[2])\n\
                    print('locked', flush=True)\n\
                    sys.stdin.read()\n";
        let mut child = Command::new("python3")
            .args(["-c", code])
            .arg(path)
            .arg(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut said = [0; 6];
        let stdout = child.stdout.as_mut().expect("piped");
        stdout.read_exact(&mut said).expect("it has the lock");
        Locked(child)
    }

    fn release(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it ends");
    }
}

fn set(job: &Job, key: &str, value: &str) {
    let done = crate::support::batchgate()
        .args(["control", "set", key, value, "--db"])
        .arg(job.path("control.sqlite"))
        .stdout(Stdio::null())
        .status();
    assert!(done.expect("batchgate runs").success());
}

fn limit_files(running: &Child, bytes: &str) {
    let limit = format!("--fsize={bytes}:unlimited");
    let done = Command::new("prlimit")
        .args(["--pid", &running.id().to_string(), &limit])
        .status();
    assert!(done.expect("prlimit runs").success());
}

fn warnings<'a>(ran: &'a Ran, of: &str) -> Vec<&'a str> {
    let is_one = |line: &&str| line.contains("WARN") && line.contains(of);
    ran.log.lines().filter(is_one).collect()
}

fn usage_rows(job: &Job) -> u64 {
    let usage = rusqlite::Connection::open(job.path("usage.sqlite")).expect("opened");
    usage
        .query_row("SELECT COUNT(*) FROM requests", [], |row| {
            row.get::<_, i64>(0)
        })
        .expect("counted") as u64
}

#[track_caller]
fn stopped_by_a_store(ran: &Ran) {
    let end = (ran.code, ran.summary["stopped"].as_str());
    assert_eq!(end, (5, Some("store-error")), "{}", ran.log);
}

#[track_caller]
fn goes_on(ran: &Ran, job: &Job, api: &MockApi) {
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, ROWS as u64),
        "{}",
        ran.log
    );
    agree(ran, job, api);
}

#[test]
fn a_locked_usage_log_or_control_store_is_waited_for_and_told_twice() {
    let (api, job) = job();
    set(&job, "other", "1");
    let running = started(&job, &api);
    let usage = Locked::by_another_process(&job.path("usage.sqlite"), "BEGIN IMMEDIATE");
    let control = Locked::by_another_process(&job.path("control.sqlite"), "BEGIN IMMEDIATE");
    after(&api, 60);
    usage.release();
    control.release();
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    goes_on(&ran, &job, &api);
    let told = warnings(&ran, "usage log");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("locked by another process"), "{told:?}");
    assert!(
        told[1].contains("rows that were kept back are in it, 0 were dropped"),
        "{told:?}"
    );
    assert_eq!(usage_rows(&job), ran.count("calls"));
    // A writer does not keep readers out.
    assert_eq!(warnings(&ran, "control store"), [""; 0]);
}

#[test]
fn locks_of_forty_seconds_lose_nothing() {
    // Runs for at least 50 s.
    let rows = 20_000;
    let (api, job) = job_of(rows);
    set(&job, "other", "1");
    let running = started(&job, &api);
    let usage = Locked::by_another_process(&job.path("usage.sqlite"), "BEGIN IMMEDIATE");
    let control = Locked::by_another_process(&job.path("control.sqlite"), "BEGIN EXCLUSIVE");
    std::thread::sleep(Duration::from_secs(40));
    usage.release();
    control.release();
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, rows as u64),
        "{}",
        ran.log
    );
    agree(&ran, &job, &api);
    assert_eq!(warnings(&ran, "usage log").len(), 2, "{}", ran.log);
    assert_eq!(usage_rows(&job), ran.count("calls"));
}

#[test]
fn a_usage_log_that_is_locked_to_the_end_costs_its_rows_alone() {
    let (api, job) = job();
    let running = started(&job, &api);
    let usage = Locked::by_another_process(&job.path("usage.sqlite"), "BEGIN IMMEDIATE");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    usage.release();
    goes_on(&ran, &job, &api);
    let told = warnings(&ran, "usage log");
    assert_eq!(told.len(), 2, "{}", ran.log);
    let missing = ran.count("calls") - usage_rows(&job);
    assert!(missing > 0);
    assert!(
        told[1].contains(&format!("lacks {missing} rows of this run")),
        "{told:?}"
    );
}

/// Starts the job with permissions that bind it: the superuser gives up what makes them mean nothing to it.
pub fn bound_by_permissions(job: &Job, script: &str) -> Command {
    let run = job.command(&[]);
    let mut command = Command::new("sh");
    let script = format!(
        "{script}; test \"$(id -u)\" != 0 && exec \"$0\" \"$@\"\n\
         exec setpriv --bounding-set=-dac_override,-dac_read_search \"$0\" \"$@\""
    );
    command
        .args(["-c", &script])
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(job.dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn stores_that_are_read_only_from_the_start_do_not_stop_the_run() {
    let (api, job) = job();
    set(&job, "max_workers", "3");
    std::fs::write(job.path("usage.sqlite"), "").expect("written");
    let run = bound_by_permissions(&job, "chmod 444 usage.sqlite control.sqlite").output();
    let ran = Ran::of(run.expect("it ends"));
    goes_on(&ran, &job, &api);
    let told = warnings(&ran, "usage log");
    assert!(told.len() == 2 && told[0].contains("read-only"), "{told:?}");
    assert!(told[1].contains("lacks"), "{told:?}");
    // What is not written to may well be read-only.
    assert!(ran.log.contains("max_workers 4->3"), "{}", ran.log);
    assert_eq!(warnings(&ran, "control store"), [""; 0], "{}", ran.log);
}

#[test]
fn a_control_store_that_may_not_be_read_for_a_while_is_told_of_twice() {
    let (api, job) = job();
    set(&job, "other", "1");
    let running = bound_by_permissions(&job, ":").spawn().expect("starts");
    after(&api, 8);
    let allow = |mode: &str| {
        let mut chmod = Command::new("chmod");
        let done = chmod.arg(mode).arg(job.path("control.sqlite")).status();
        assert!(done.expect("chmod").success());
    };
    allow("000");
    // Seen by a reader that opens it anew, as it does when the file was written to.
    set(&job, "max_workers", "3");
    after(&api, 40);
    allow("644");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    goes_on(&ran, &job, &api);
    assert!(ran.log.contains("max_workers 4->3"), "{}", ran.log);
    assert_eq!(warnings(&ran, "control store").len() % 2, 0, "{}", ran.log);
}

#[test]
fn a_full_disk_under_the_control_store_lets_no_value_in_and_stops_nothing() {
    let (api, job) = job();
    set(&job, "other", "1");
    let running = started(&job, &api);
    // Another process's write is cut off half-way.
    let size = std::fs::metadata(job.path("control.sqlite"))
        .expect("there")
        .len();
    let mut write = Command::new("prlimit");
    write
        .arg(format!("--fsize={size}"))
        .arg(crate::support::batchgate().get_program());
    write.args(["control", "set", "max_workers", "2", "--db"]);
    let done = write
        .arg(job.path("control.sqlite"))
        .output()
        .expect("runs");
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    goes_on(&ran, &job, &api);
    assert!(!ran.log.contains("max_workers 4->2"), "{}", ran.log);
}

#[test]
fn other_faults_of_the_usage_log_and_the_control_store_do_not_stop_the_run() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("cut short", |path| {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.expect("opened").set_len(100).expect("cut short");
        }),
        ("deleted", |path| {
            std::fs::remove_file(path).expect("removed")
        }),
        ("truncated", |path| {
            std::fs::write(path, "").expect("written")
        }),
        ("corrupt", |path| {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .expect("opened");
            file.write_all(&[0x5a; 4096]).expect("written");
        }),
    ];
    for (name, damage) in damages {
        let (api, job) = job();
        set(&job, "other", "1");
        let running = started(&job, &api);
        damage(&job.path("usage.sqlite"));
        damage(&job.path("control.sqlite"));
        let ran = Ran::of(running.wait_with_output().expect("it ends"));
        goes_on(&ran, &job, &api);
        for store in ["usage log", "control store"] {
            let told = warnings(&ran, store);
            let begins = |line: &&&str| line.contains("goes on") || line.contains("stay in force");
            let begins = told.iter().filter(begins).count();
            // What SQLite has in memory it need not read: then the log is whole again at the end.
            let healed = || usage_rows(&job) == ran.count("calls");
            assert!(told.len() <= 2, "{name} {store}: {told:?}");
            let unnoticed = name == "corrupt" && store == "usage log" && begins == 0;
            assert!(
                begins == 1 || (unnoticed && healed()),
                "{name} {store}: {}",
                ran.log
            );
        }
    }
}

#[test]
fn a_full_disk_stops_the_run_for_the_journal_and_loses_nothing() {
    let (api, job) = job();
    let running = started(&job, &api);
    // Not a byte more in any file: all stores fail, and the journal decides.
    limit_files(&running, "1");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    stopped_by_a_store(&ran);
    assert!(
        ran.log.contains("the journal") && ran.log.contains("disk"),
        "{}",
        ran.log
    );
    ran.adds_up();
    // What the full disk kept out of the journal was in flight, so it is unknown.
    let shown = show(&job);
    let unknown = shown["unknown"].as_u64().expect("a count");
    assert_eq!(
        shown["written"].as_u64().expect("a count") + unknown,
        ran.count("written")
    );
    assert!(
        unknown <= 80,
        "{unknown}: of 4 workers and their next batches"
    );
    let ran = job.run(&["--workers", "16", "--max-workers", "16"]);
    assert_eq!(ran.code, 0, "{}", ran.log);
    let shown = agree(ran.adds_up(), &job, &api);
    assert_eq!(shown["written"], ROWS);
    assert!(api.stats()["duplicates"].as_u64() <= Some(unknown));
}

#[test]
fn a_usage_log_on_a_full_disk_alone_keeps_its_rows() {
    let (api, job) = job();
    let text = std::fs::read_to_string(job.path("job.toml")).expect("read");
    let without = text.replace("[journal]\ndb = \"journal.sqlite\"\n", "");
    std::fs::write(job.path("job.toml"), without).expect("written");
    let running = started(&job, &api);
    limit_files(&running, "1");
    after(&api, 40);
    limit_files(&running, "unlimited");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, ROWS as u64),
        "{}",
        ran.log
    );
    let told = warnings(&ran, "usage log");
    assert_eq!(told.len(), 2, "{}", ran.log);
    assert_eq!(usage_rows(&job), ran.count("calls"));
}

#[test]
fn a_journal_that_is_locked_for_a_moment_is_waited_for_and_then_it_stops_the_run() {
    let (api, job) = job();
    let running = started(&job, &api);
    let lock = Locked::by_another_process(&job.path("journal.sqlite"), "BEGIN IMMEDIATE");
    std::thread::sleep(Duration::from_secs(1));
    lock.release();
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    goes_on(&ran, &job, &api);

    let (api, job) = self::job();
    let running = started(&job, &api);
    let lock = Locked::by_another_process(&job.path("journal.sqlite"), "BEGIN IMMEDIATE");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    lock.release();
    stopped_by_a_store(&ran);
    assert!(
        ran.log.contains("the journal") && ran.log.contains("locked by another process"),
        "{}",
        ran.log
    );
    ran.adds_up();
    let unknown = show(&job)["unknown"].as_u64().expect("a count");
    assert!((1..=80).contains(&unknown), "{unknown}: {}", ran.log);
    let ran = job.run(&["--workers", "16", "--max-workers", "16"]);
    assert_eq!(ran.code, 0, "{}", ran.log);
    assert_eq!(agree(ran.adds_up(), &job, &api)["written"], ROWS);
    assert!(api.stats()["duplicates"].as_u64() <= Some(unknown));
}

#[test]
fn a_journal_that_is_deleted_or_cut_short_stops_the_run() {
    for damage in [
        (|path| std::fs::remove_file(path).expect("removed")) as fn(&Path),
        |path| std::fs::write(path, "").expect("written"),
    ] {
        let (api, job) = job();
        let running = started(&job, &api);
        damage(&job.path("journal.sqlite"));
        let ran = Ran::of(running.wait_with_output().expect("it ends"));
        stopped_by_a_store(&ran);
        assert!(
            ran.log.contains("deleted, replaced or truncated"),
            "{}",
            ran.log
        );
        // In order: what was in flight was waited for, and the summary is the server's.
        assert_eq!(
            ran.adds_up().count("written"),
            api.stats()["stored"].as_u64().expect("a count")
        );
        assert!(ran.count("written") < ROWS as u64);
    }
}

#[test]
fn a_journal_that_was_cut_short_is_put_right_from_its_log_or_refused_before_anything_is_sent() {
    let (api, job) = job();
    let running = started(&job, &api);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(job.path("journal.sqlite"));
    file.expect("opened").set_len(100).expect("cut short");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 5, "{}", ran.log);
    let ran = job.run(&["--workers", "16", "--max-workers", "16"]);
    if ran.code == 2 {
        assert_eq!(ran.log.lines().count(), 1, "{}", ran.log);
    } else {
        assert_eq!(ran.code, 0, "{}", ran.log);
        assert_eq!(agree(ran.adds_up(), &job, &api)["written"], ROWS);
    }
}

#[test]
fn files_of_failures_that_vanish_stop_the_run() {
    for (option, name) in [
        ("--failed-items", "failed_items"),
        ("--failures-csv", "failures_csv"),
    ] {
        let api = MockApi::start(&["--overhead-ms", "20", "--status", "400"]);
        let toml = "[pool]\nworkers = 2\nbatch_size = 10\nmax_consecutive_failures = 1000\n";
        let job = upload(&api, &numbered_csv(4000), toml);
        let file = job.path("file");
        let options = ["--fixed", option, file.to_str().expect("UTF-8")];
        let running = job.command(&options).spawn().expect("batchgate runs");
        after(&api, 8);
        std::fs::remove_file(&file).expect("removed");
        let ran = Ran::of(running.wait_with_output().expect("it ends"));
        stopped_by_a_store(&ran);
        let said = ran.log.lines().any(|line| {
            line.contains(name) && line.contains("deleted, replaced or truncated while in use")
        });
        assert!(said, "{}", ran.log);
    }
}

#[test]
fn a_quota_whose_state_file_vanishes_lets_no_more_than_the_cap_through() {
    let api = MockApi::start(&["--overhead-ms", "20"]);
    let toml = "[pool]\nworkers = 4\nbatch_size = 1\n[rate_limit]\nmax_per_day = 200\n\
                state_file = \"state.json\"\n";
    let job = upload(&api, &numbered_csv(1000), toml);
    let running = started(&job, &api);
    std::fs::remove_file(job.path("state.json")).expect("removed");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    stopped_by_a_store(&ran);
    assert!(
        ran.log.contains("it was deleted while in use"),
        "{}",
        ran.log
    );
    assert!(ran.adds_up().count("calls") <= 200);
}

#[test]
fn a_journal_that_is_overwritten_while_in_use_is_whole_in_the_end_or_stops_the_run() {
    // Of one failed item in each batch the journal has a row, in many pages.
    let api = MockApi::start(&["--overhead-ms", "5", "--bad-mode", "207", "--bad-key", "7"]);
    let toml = "[pool]\nworkers = 4\nbatch_size = 1\n[adaptive]\nmax_workers = 4\n\
                [journal]\ndb = \"journal.sqlite\"\n";
    let job = upload(&api, &numbered_csv(2000), toml);
    // A former run left pages that this one need not touch.
    let ran = job.run(&["--fixed", "--limit", "1000"]);
    assert_eq!(ran.code, 1, "{}", ran.log);
    let running = started(&job, &api);
    after(&api, 1);
    let path = job.path("journal.sqlite");
    let size = std::fs::metadata(&path).expect("there").len();
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    let garbage = vec![0x5a; size as usize];
    file.expect("opened").write_all(&garbage).expect("written");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    let told = ran.adds_up().count("written")
        + ran.summary["earlier"]["written"].as_u64().expect("a count");
    assert_eq!(Some(told), api.stats()["stored"].as_u64());
    if ran.summary["stopped"] == "store-error" {
        assert_eq!(ran.code, 5, "{}", ran.log);
        assert!(ran.log.contains("the journal"), "{}", ran.log);
    } else {
        // SQLite had all of it in its log and wrote it over the garbage.
        assert_eq!(ran.code, 1, "{}", ran.log);
        agree(&ran, &job, &api);
    }
}

#[test]
fn a_journal_that_is_corrupt_or_read_only_is_refused_before_anything_is_sent() {
    let (api, job) = job();
    std::fs::write(job.path("journal.sqlite"), "no database ".repeat(100)).expect("written");
    let ran = job.run(&[]);
    assert_eq!(ran.code, 2, "{}", ran.log);
    assert!(
        ran.log.contains("not an SQLite database") && ran.log.lines().count() == 1,
        "{}",
        ran.log
    );
    std::fs::write(job.path("journal.sqlite"), "").expect("written");
    let ran = bound_by_permissions(&job, "chmod 444 journal.sqlite").output();
    let ran = Ran::of(ran.expect("it ends"));
    assert_eq!(ran.code, 2, "{}", ran.log);
    assert!(ran.log.contains("journal.sqlite: read-only"), "{}", ran.log);
    assert_eq!(api.stats()["requests"], 0);
}

#[test]
fn failed_items_that_cannot_take_the_place_of_the_input_are_told_by_the_exit_code() {
    let api = MockApi::start(&["--overhead-ms", "50"]);
    let job = upload(&api, &numbered_csv(10), "");
    let row = |index| {
        format!(
            "{{\"index\":{index},\"key\":\"k{index}\",\"data\":\"{{}}\",\"reason\":\"r\",\"outcome\":\"failed\",\"attempts\":1}}\n"
        )
    };
    let rows: String = (0..10).map(row).collect();
    std::fs::create_dir(job.path("in")).expect("made");
    let file = job.path("in/failed.jsonl");
    std::fs::write(&file, rows).expect("written");
    let file = file.to_str().expect("UTF-8");
    let options = [
        "--format",
        "failed",
        "--input",
        file,
        "--failed-items",
        file,
    ];
    let running = job.command(&options).spawn().expect("batchgate runs");
    let from = Instant::now();
    while api.stats()["requests"].as_u64() < Some(1) {
        assert!(from.elapsed() < Duration::from_secs(30), "nothing is sent");
    }
    std::fs::remove_file(file).expect("removed");
    std::fs::create_dir(file).expect("made");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    stopped_by_a_store(&ran);
    assert_eq!(ran.adds_up().count("written"), 10);
}

#[test]
fn a_file_of_failures_that_cannot_be_written_stops_the_run() {
    for (option, name) in [
        ("--failed-items", "failed_items"),
        ("--failures-csv", "failures_csv"),
        ("--rejects-csv", "rejects_csv"),
    ] {
        let api = MockApi::start(&["--overhead-ms", "20", "--status", "400"]);
        let mut input = numbered_csv(4000);
        input.push_str(&"too,many,fields\n".repeat(3000));
        let toml = "[pool]\nbatch_size = 10\nmax_consecutive_failures = 1000\n";
        let job = upload(&api, &input, toml);
        let file = job.path("file");
        let file = file.to_str().expect("UTF-8");
        let run = job.command(&["--fixed", "--log-level", "error", option, file]);
        let limited = Command::new("prlimit")
            .arg("--fsize=30000:unlimited")
            .arg(run.get_program())
            .args(run.get_args())
            .output();
        let ran = Ran::of(limited.expect("it ends"));
        stopped_by_a_store(&ran);
        assert!(
            ran.log.contains(&format!("{name} cannot be written")),
            "{}",
            ran.log
        );
        let size = std::fs::metadata(file).expect("there").len();
        assert!((20_000..=30_000).contains(&size), "{size}");
        let text = std::fs::read_to_string(file).expect("read");
        // What is left of a rejected line is closed when the file is opened next.
        let is_whole = text.ends_with('\n');
        assert!(is_whole || name == "rejects_csv", "half a row is left");
    }
}
