//! The tuner's memory between runs: real processes, one file, and a server whose best setting is known.

use crate::faults::bound_by_permissions;
use crate::support::{Job, MockApi, Ran, guest, numbered_csv};
use rusqlite::Connection;

const ROWS: usize = 3500;
/// The server's knee.
const KNEE: f64 = 8.0;
const FILE: &str = "tuner.sqlite";

/// A job that starts at 2 workers and may have 32.
fn job(controller: &str, more: &str) -> (MockApi, Job) {
    let api = MockApi::start(&[
        "--knee",
        "8",
        "--slope",
        "0.4",
        "--overhead-ms",
        "120",
        "--per-item-ms",
        "2",
        "--sigma",
        "0.1",
    ]);
    let origin = api.origin();
    let toml = format!(
        "label = \"orders\"\nkey = \"id\"\n[pool]\nworkers = 2\nbatch_size = 5\n\
         [adaptive]\nmax_workers = 32\ntuner_memory = \"{FILE}\"\ncontroller = \"{controller}\"\n\
         [sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{origin}/items\"\n{more}"
    );
    let job = Job::new(&guest("rust"), &numbered_csv(ROWS), &toml);
    (api, job)
}

/// The run's lines of the log that begin with these words.
fn said<'a>(ran: &'a Ran, words: &str) -> Vec<&'a str> {
    let lines = ran.log.lines().filter(|line| line.contains("[orders] "));
    let words = format!("[orders] tune: {words}");
    lines.filter(|line| line.contains(&words)).collect()
}

/// A value of the one row.
fn remembered(job: &Job, column: &str) -> Option<f64> {
    let memory = Connection::open(job.path(FILE)).expect("opened");
    let sql = format!("SELECT {column} FROM tuner_memory WHERE label = 'orders'");
    memory.query_row(&sql, [], |row| row.get(0)).ok()
}

fn change(job: &Job, sql: &str) {
    let memory = Connection::open(job.path(FILE)).expect("opened");
    memory.execute_batch(sql).expect("changed");
}

/// Runs it to its end, and counts the requests until as many were in flight as is best.
fn run(api: &MockApi, job: &Job, options: &[&str]) -> (Ran, usize) {
    let before = api.log().len();
    let ran = job.run(options);
    assert_eq!(ran.code, 0, "{}", ran.log);
    let log = api.log();
    let reached = log[before..]
        .iter()
        .position(|row| row["in_flight"].as_f64() >= Some(KNEE - 1.0));
    (ran, reached.unwrap_or(log.len() - before))
}

#[test]
fn the_next_run_starts_where_the_last_one_settled() {
    for controller in ["curve", "history"] {
        let (api, job) = job(controller, "");
        let (first, cold) = run(&api, &job, &[]);
        assert_eq!(said(&first, "starts at").len(), 0, "{}", first.log);
        assert_eq!(said(&first, "remembers workers=").len(), 1, "{}", first.log);
        let workers = remembered(&job, "workers").expect("remembered");
        assert!((KNEE - 2.0..=KNEE + 2.0).contains(&workers), "{workers}");
        // 130 ms of the server's, and what a call costs beside.
        let seconds = remembered(&job, "seconds").expect("remembered");
        assert!((0.12..0.5).contains(&seconds), "{seconds}");

        // Calls may really take twice as long, while other tests run beside this one.
        let (workers, second, warm) = (0..3)
            .map(|_| {
                let workers = remembered(&job, "workers").expect("remembered");
                let (ran, warm) = run(&api, &job, &[]);
                (workers, ran, warm)
            })
            .find(|(_, ran, _)| said(ran, "forget").is_empty())
            .expect("a run whose calls take as long as those before");
        let starts = said(&second, "starts at");
        assert_eq!(starts.len(), 1, "{}", second.log);
        let words = format!("starts at workers={workers}, batch_size=5, learned ");
        assert!(starts[0].contains(&words), "{starts:?}");
        assert!(starts[0].ends_with(" ago (tuner.sqlite)"), "{starts:?}");
        let adaptive =
            format!("adaptive: start workers={workers} batch_size=5, ceilings workers<=32");
        assert!(second.log.contains(&adaptive), "{}", second.log);
        println!("{controller}: {cold} batches until near the knee, then {warm}");
        assert!(2 * warm < cold, "{controller}: {warm} after {cold}");
    }
}

#[test]
fn what_is_contradicted_is_dropped_and_the_search_starts_as_configured() {
    let (api, job) = job("curve", "");
    run(&api, &job, &[]);
    change(
        &job,
        "UPDATE tuner_memory SET workers = 30, in_flight = 30, seconds = seconds / 10",
    );
    let (ran, _) = run(&api, &job, &[]);
    assert_eq!(said(&ran, "starts at workers=30").len(), 1, "{}", ran.log);
    let dropped = said(&ran, "forget what was remembered, workers 30->2");
    assert_eq!(dropped.len(), 1, "{}", ran.log);
    assert!(
        dropped[0].ends_with("x that) -> workers=2, batch_size=5"),
        "{dropped:?}"
    );
    // It found the knee all the same, and remembers that.
    let workers = remembered(&job, "workers").expect("remembered");
    assert!((KNEE - 2.0..=KNEE + 2.0).contains(&workers), "{workers}");
    // A run that is too short to settle takes the wrong setting out of the file.
    change(
        &job,
        "UPDATE tuner_memory SET workers = 30, in_flight = 30, seconds = seconds / 10",
    );
    let (ran, _) = run(&api, &job, &["--limit", "200"]);
    assert_eq!(said(&ran, "forget").len(), 1, "{}", ran.log);
    assert_eq!(
        said(&ran, "remembers nothing new: no setting was kept").len(),
        1,
        "{}",
        ran.log
    );
    assert_eq!(remembered(&job, "workers"), None);
}

#[test]
fn bounds_age_and_a_fixed_setting_come_first() {
    let (api, job) = job("curve", "");
    run(&api, &job, &[]);
    let workers = remembered(&job, "workers").expect("remembered");
    let short = |options: &[&str]| {
        let options = [&["--limit", "100"], options].concat();
        run(&api, &job, &options).0
    };
    let ran = short(&["--max-workers", "4"]);
    let words = format!(
        "starts at workers=4, batch_size=5, within the bounds of workers={workers}, batch_size=5, learned "
    );
    assert_eq!(said(&ran, &words).len(), 1, "{}", ran.log);

    // Neither read nor written.
    let ran = short(&["--fixed"]);
    assert!(!ran.log.contains("tune: "), "{}", ran.log);
    assert!(ran.log.contains("fixed: workers=2"), "{}", ran.log);

    for label in ["refunds", "orders"] {
        let ran = short(&["--label", label]);
        let starts = ran.log.contains("tune: starts at");
        assert_eq!(starts, label == "orders", "{}", ran.log);
    }

    change(
        &job,
        "UPDATE tuner_memory SET learned_at = learned_at - 9 * 86400",
    );
    let ran = short(&[]);
    let stale = "starts as configured: what was learned 9 days ago is too old (more than 8 days) (tuner.sqlite)";
    assert_eq!(said(&ran, stale).len(), 1, "{}", ran.log);
    assert!(
        ran.log.contains("adaptive: start workers=2 "),
        "{}",
        ran.log
    );
}

#[test]
fn a_rehearsal_makes_no_memory_and_a_bad_one_stops_nothing() {
    let (api, job) = job("curve", "");
    for rehearsal in ["--check", "--dry-run"] {
        let ran = job.run(&[rehearsal]);
        assert_eq!(ran.code, 0, "{}", ran.log);
        assert!(!job.path(FILE).exists(), "{rehearsal}");
    }
    std::fs::write(job.path(FILE), "no database at all. ".repeat(100)).expect("written");
    let (ran, _) = run(&api, &job, &["--limit", "1000"]);
    let warned: Vec<&str> = ran
        .log
        .lines()
        .filter(|line| line.contains("WARN"))
        .collect();
    assert_eq!(warned.len(), 1, "{}", ran.log);
    assert!(
        warned[0].contains("not an SQLite database")
            && warned[0].ends_with("the run starts as configured"),
        "{warned:?}"
    );
}

#[test]
fn a_read_only_memory_is_started_from_and_stays_as_it_is() {
    let (api, job) = job("curve", "");
    run(&api, &job, &[]);
    let at = remembered(&job, "learned_at");
    let ran = bound_by_permissions(&job, "chmod 444 tuner.sqlite").output();
    let ran = Ran::of(ran.expect("it ends"));
    assert_eq!(ran.code, 0, "{}", ran.log);
    assert_eq!(said(&ran, "starts at").len(), 1, "{}", ran.log);
    let warned: Vec<&str> = ran
        .log
        .lines()
        .filter(|line| line.contains("WARN"))
        .collect();
    assert_eq!(warned.len(), 1, "{}", ran.log);
    assert!(warned[0].contains("read-only"), "{warned:?}");
    assert_eq!(remembered(&job, "learned_at"), at);
}

#[test]
fn a_run_that_failed_teaches_nothing() {
    let (api, job) = job("curve", "");
    drop(api);
    // Nobody listens any more: every call fails.
    let ran = job.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.log);
    let nothing = said(&ran, "remembers nothing new: the run failed (tuner.sqlite)");
    assert_eq!(nothing.len(), 1, "{}", ran.log);
    assert!(!job.path(FILE).exists());
}
