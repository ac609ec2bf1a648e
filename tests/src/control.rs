//! Live control of a running job, seen from the server and the log.

use crate::support::{Job, MockApi, batchgate, guest, numbered_csv};
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

const POLL: f64 = 0.5;
const CALL_MS: u64 = 200;

fn start(toml: &str) -> (MockApi, Job, Child) {
    let api = MockApi::start(&["--overhead-ms", &CALL_MS.to_string(), "--per-item-ms", "0"]);
    let origin = api.origin();
    let job = format!(
        "{toml}[control]\ndb = \"control.sqlite\"\npoll_seconds = {POLL}\n\
         [sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{origin}/items\"\n"
    );
    let job = Job::new(&guest("rust"), &numbered_csv(3000), &job);
    let running = job.command(&[]).spawn().expect("batchgate runs");
    (api, job, running)
}

fn set(job: &Job, words: &[&str]) {
    let done = batchgate()
        .args(["control"])
        .args(words)
        .arg("--db")
        .arg(job.path("control.sqlite"))
        .status()
        .expect("batchgate runs");
    assert!(done.success());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let from = Instant::now();
    while !holds() {
        assert!(
            from.elapsed() < Duration::from_secs(30),
            "{what}: not within 30 s"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn in_flight_from(api: &MockApi, row: usize) -> f64 {
    let most = |most: f64, n: f64| most.max(n);
    let number = |row: &serde_json::Value| row["in_flight"].as_f64().expect("a number");
    api.log()[row..].iter().map(number).fold(0.0, most)
}

fn interrupt(child: &mut Child) {
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(killed.expect("kill runs").success());
}

#[test]
fn a_raised_ceiling_and_a_forced_level_give_real_calls_in_flight() {
    let (api, job, mut running) = start("[pool]\nworkers = 2\nbatch_size = 1\n");
    wait_until("calls are made", || api.log().len() > 10);
    assert_eq!(in_flight_from(&api, 0), 2.0);
    let before = api.log().len();
    set(&job, &["set", "max_workers", "8"]);
    set(&job, &["set", "force_workers", "8", "--note", "off-peak"]);
    let asked = Instant::now();
    wait_until("more than 2 in flight", || {
        in_flight_from(&api, before) > 2.0
    });
    let limit = Duration::from_secs_f64(POLL) + 2 * Duration::from_millis(CALL_MS);
    // A second for the test's own looks at the log.
    assert!(
        asked.elapsed() < limit + Duration::from_secs(1),
        "after {:?}",
        asked.elapsed()
    );
    wait_until("8 in flight", || in_flight_from(&api, before) >= 8.0);
    interrupt(&mut running);
    let ran = crate::support::Ran::of(running.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 130, "{}", ran.log);
    assert!(
        ran.log.contains("control override: max_workers 2->8"),
        "{}",
        ran.log
    );
    assert!(
        ran.log.contains("control override: force workers 2->8"),
        "{}",
        ran.log
    );
}

#[test]
fn a_plugin_declared_with_one_worker_never_gets_two() {
    let (api, job, mut running) = start("[pool]\nworkers = 1\nbatch_size = 1\n");
    wait_until("a call is made", || !api.log().is_empty());
    set(&job, &["set", "max_workers", "8"]);
    set(&job, &["set", "force_workers", "8"]);
    let stderr = BufReader::new(running.stderr.take().expect("piped"));
    let said = stderr
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("ignored"));
    let expected = "[batches] control override: ignored max_workers, force_workers: run declared not thread-safe \
                    (max_workers=1)";
    assert_eq!(said.as_deref(), Some(expected));
    let from = api.log().len();
    wait_until("further calls are made", || api.log().len() > from + 5);
    interrupt(&mut running);
    running.wait().expect("it ends");
    assert_eq!(in_flight_from(&api, 0), 1.0);
}

#[test]
fn a_paused_job_dispatches_nothing_until_it_is_cleared() {
    let (api, job, mut running) = start("[pool]\nworkers = 2\nbatch_size = 1\n");
    wait_until("calls are made", || api.log().len() > 4);
    set(&job, &["set", "pause", "true"]);
    let mut seen = api.log().len();
    wait_until("no call for a second", || {
        std::thread::sleep(Duration::from_secs(1));
        std::mem::replace(&mut seen, api.log().len()) == seen
    });
    set(&job, &["clear", "pause"]);
    wait_until("calls again", || api.log().len() > seen + 4);
    interrupt(&mut running);
    running.wait().expect("it ends");
}
