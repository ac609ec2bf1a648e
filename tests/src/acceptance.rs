//! The main job, end to end: the example plugin over real HTTP against the stand-in API, judged by
//! what the server saw.

use crate::support::{Job, MockApi, Ran, guest, median, numbered_csv};
use serde_json::Value;

/// The job file of the example plugin against a server.
fn upload(api: &MockApi, rows: usize, toml: &str) -> Job {
    let (url, origin) = (format!("{}/items", api.origin()), api.origin());
    let job = format!(
        "key = \"id\"\n{toml}\n[sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{url}\"\n"
    );
    Job::new(&guest("rust"), &numbered_csv(rows), &job)
}

fn all_written(ran: &Ran, rows: usize) {
    assert_eq!(ran.code, 0, "{}", ran.log);
    assert_eq!(ran.adds_up().count("written"), rows as u64);
}

/// The server agrees: it has each row once.
fn stored_once(api: &MockApi, rows: usize) {
    let stats = api.stats();
    assert_eq!(
        (stats["distinct"].as_u64(), stats["duplicates"].as_u64()),
        (Some(rows as u64), Some(0)),
        "{stats}"
    );
}

fn numbers(log: &[Value], field: &str) -> Vec<f64> {
    let number = |row: &Value| row[field].as_f64().expect("a number");
    log.iter().map(number).collect()
}

#[test]
fn finds_a_knee_at_8_from_2_workers() {
    let api = MockApi::start(&[
        "--shape",
        "knee",
        "--knee",
        "8",
        "--slope",
        "0.4",
        "--per-item-ms",
        "4",
        "--sigma",
        "0.05",
    ]);
    let job = upload(
        &api,
        9000,
        "[pool]\nworkers = 2\nbatch_size = 5\n[adaptive]\nmax_workers = 32\n",
    );
    let ran = job.run(&[]);
    all_written(&ran, 9000);
    stored_once(&api, 9000);
    let log = api.log();
    let in_flight = median(numbers(&log[log.len() / 2..], "in_flight"));
    assert!(
        (7.0..=9.0).contains(&in_flight),
        "median {in_flight} in flight\n{}",
        ran.log
    );
}

#[test]
fn finds_the_size_limit_of_60() {
    let api = MockApi::start(&[
        "--overhead-ms",
        "20",
        "--per-item-ms",
        "1",
        "--max-batch",
        "60",
    ]);
    let toml =
        "[pool]\nworkers = 4\nbatch_size = 5\n[adaptive]\nmax_workers = 4\nmax_batch_size = 200\n";
    let ran = upload(&api, 12_000, toml).run(&[]);
    all_written(&ran, 12_000);
    stored_once(&api, 12_000);
    let log = api.log();
    let items = numbers(&log, "items");
    let last = median(items[items.len() - 60..].to_vec());
    assert!(
        (30.0..=60.0).contains(&last),
        "median of the last 60: {last}\n{}",
        ran.log
    );
    let above = items.iter().filter(|&&n| n > 60.0).count();
    assert!(
        above * 100 <= 3 * items.len(),
        "{above} of {} above 60",
        items.len()
    );
}

#[test]
fn shares_one_cooldown_when_the_server_refuses() {
    let api = MockApi::start(&["--max-per-sec", "30", "--overhead-ms", "10"]);
    let toml = "[pool]\nworkers = 4\nbatch_size = 10\nbisect_on_failure = true\n[adaptive]\nmax_workers = 4\n\
                [rate_limit]\nmax_per_sec = 50\nbreach_base_cooldown = 0.5\nbreach_max_doublings = 1\n";
    let ran = upload(&api, 1000, toml).run(&[]);
    all_written(&ran, 1000);
    stored_once(&api, 1000);
    assert!(
        ran.count("breaches") > 0,
        "the server was never too slow for us"
    );
    // A request in a cooldown must have been on its way when the refusal came: all of those arrive
    // within a call's time (10 ms; generous here), the others after the cooldown.
    let log = api.log();
    let refused = log.iter().filter(|row| row["status"] == 429);
    for refusal in refused.clone() {
        let from = refusal["t"].as_f64().expect("a time");
        let late = log.iter().filter(|row| {
            let t = row["t"].as_f64().expect("a time");
            t > from + 0.15 && t < from + 0.45
        });
        assert_eq!(late.count(), 0, "requests in the cooldown from {from}");
    }
    assert!(refused.count() as u64 >= ran.count("breaches"));
}

#[test]
fn leaves_exactly_the_bad_rows_unwritten_and_the_batch_size_alone() {
    let bad = ["117", "118", "903", "1999"];
    let mut options = vec!["--overhead-ms", "5"];
    bad.iter()
        .for_each(|key| options.extend(["--bad-key", key]));
    let api = MockApi::start(&options);
    let toml =
        "failures_csv = \"failures.csv\"\nworkers = 4\nbatch_size = 50\nbisect_on_failure = true\n";
    let job = upload(
        &api,
        2000,
        &format!("[pool]\n{toml}[adaptive]\nmax_workers = 4\n"),
    );
    let ran = job.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.log);
    assert_eq!(
        (ran.adds_up().count("written"), ran.count("failed")),
        (1996, 4)
    );
    let keys = api.keys();
    assert_eq!(keys.len(), 1996);
    assert!(keys.values().all(|&times| times == 1));
    assert!(bad.iter().all(|&key| !keys.contains_key(key)));
    assert!(!ran.log.contains("decrease batch_size"), "{}", ran.log);
    let failures = std::fs::read_to_string(job.path("failures.csv")).expect("written");
    assert!(failures.starts_with("batch,error,timestamp"), "{failures}");
}

#[test]
fn learns_again_when_items_become_costly() {
    let api = MockApi::start(&[
        "--knee",
        "6",
        "--slope",
        "0.4",
        "--per-item-ms",
        "20",
        "--change",
        "10:per-item-ms=60",
    ]);
    let toml = "[pool]\nworkers = 4\nbatch_size = 5\n[adaptive]\nmax_workers = 6\n";
    let ran = upload(&api, 5000, toml).run(&[]);
    all_written(&ran, 5000);
    let log = api.log();
    let from = log
        .iter()
        .position(|row| row["t"].as_f64() >= Some(10.0))
        .expect("the change came before the end");
    assert!(log.len() - from > 150, "too few calls after the change");
    let cuts = ran.log.matches("decrease workers").count();
    assert!(cuts <= 1, "{cuts} cuts\n{}", ran.log);
    assert!(ran.log.contains("rebaseline"), "{}", ran.log);
    let after = median(numbers(&log[log.len() - 100..], "in_flight"));
    assert!(after >= 4.0, "{after} in flight at the end\n{}", ran.log);
}
