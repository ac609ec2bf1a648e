//! Stops in order: what is told to stop starts nothing new, ends its waits at once, and accounts for every item.

use crate::journal::{agree, items, show, upload};
use crate::support::{Job, MockApi, Ran, numbered_csv};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const JOURNAL: &str = "[journal]\ndb = \"journal.sqlite\"\n[usage]\ndb = \"usage.sqlite\"\n";

fn signal(name: &str, running: &Child) {
    let sent = Command::new("kill")
        .args([name, &running.id().to_string()])
        .status();
    assert!(sent.expect("kill").success());
}

/// Starts the job and waits until the server has had so many requests.
fn started(job: &Job, api: &MockApi, requests: u64, options: &[&str]) -> Child {
    let running = job.command(options).spawn().expect("batchgate runs");
    let from = Instant::now();
    while api.stats()["requests"].as_u64() < Some(requests) {
        assert!(from.elapsed() < Duration::from_secs(30), "nothing is sent");
    }
    running
}

#[test]
fn a_term_in_a_cooldown_of_900_s_ends_at_once_with_every_item_accounted_for() {
    let api = MockApi::start(&[
        "--max-per-sec",
        "3",
        "--retry-after",
        "900",
        "--overhead-ms",
        "5",
    ]);
    let toml = format!("[pool]\nworkers = 4\nbatch_size = 10\n{JOURNAL}");
    let job = upload(&api, &numbered_csv(1000), &toml);
    let running = started(&job, &api, 4, &["--fixed"]);
    while api.stats()["rejected_429"] == 0 {}
    // The answer is on its way to the guest; nothing says when it is there.
    std::thread::sleep(Duration::from_millis(300));
    signal("-TERM", &running);
    let from = Instant::now();
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    assert!(
        from.elapsed() < Duration::from_secs(5),
        "{:?}",
        from.elapsed()
    );
    assert_eq!(
        (ran.code, &ran.summary["stopped"]),
        (143, &"interrupted".into()),
        "{}",
        ran.log
    );
    assert_eq!(ran.adds_up().count("items"), 1000);
    assert_eq!(ran.count("unknown"), 0);
    let stored = api.stats()["stored"].as_u64().expect("a count");
    assert_eq!(
        (ran.count("written"), ran.count("not_dispatched")),
        (stored, 1000 - stored)
    );
    agree(&ran, &job, &api);
    let usage = rusqlite::Connection::open(job.path("usage.sqlite")).expect("opened");
    let rows: i64 = usage
        .query_row("SELECT COUNT(*) FROM requests", [], |row| row.get(0))
        .expect("counted");
    assert_eq!(rows as u64, ran.count("calls"));
}

#[test]
fn calls_in_flight_get_a_grace_and_are_then_unknown() {
    // Calls take 60 s, so all that ends them is the host.
    let api = MockApi::start(&["--overhead-ms", "60000"]);
    for (grace, second) in [("0.5", false), ("600", true)] {
        let toml =
            format!("[pool]\nworkers = 3\nbatch_size = 10\n[stop]\ngrace = {grace}\n{JOURNAL}");
        let job = upload(&api, &numbered_csv(100), &toml);
        let before = api.stats()["requests"].as_u64().expect("a count");
        let running = started(&job, &api, before + 3, &["--fixed"]);
        let from = Instant::now();
        signal("-INT", &running);
        if second {
            // The first one may not have been taken yet, and two at once are one.
            std::thread::sleep(Duration::from_millis(300));
            signal("-INT", &running);
        }
        let ran = Ran::of(running.wait_with_output().expect("it ends"));
        assert!(
            from.elapsed() < Duration::from_secs(20),
            "{:?}",
            from.elapsed()
        );
        assert_eq!(ran.code, 130, "{}", ran.log);
        assert_eq!(
            (ran.adds_up().count("unknown"), ran.count("not_dispatched")),
            (30, 70)
        );
        let shown = show(&job);
        assert_eq!(
            (&shown["unknown"], &shown["in_flight"]),
            (&30.into(), &0.into())
        );
        let unknown = items(&job, "unknown");
        assert!(
            unknown.iter().all(|item| item["outcome"] == "abandoned"),
            "{unknown:?}"
        );
        assert_eq!(unknown.len(), 30);
    }
}

#[test]
fn calls_that_end_in_their_grace_are_written_and_the_rest_is_resumed() {
    let api = MockApi::start(&["--overhead-ms", "400"]);
    let toml = format!("[pool]\nworkers = 4\nbatch_size = 10\n{JOURNAL}");
    let job = upload(&api, &numbered_csv(200), &toml);
    let running = started(&job, &api, 4, &["--fixed"]);
    signal("-TERM", &running);
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    assert_eq!(
        (ran.code, ran.adds_up().count("unknown")),
        (143, 0),
        "{}",
        ran.log
    );
    let written = ran.count("written");
    assert!((40..200).contains(&written), "{written}");
    agree(&ran, &job, &api);
    let ran = job.run(&["--workers", "16", "--max-workers", "16"]);
    assert_eq!(
        (ran.code, ran.adds_up().count("items")),
        (0, 200 - written),
        "{}",
        ran.log
    );
    agree(&ran, &job, &api);
    assert_eq!(api.stats()["duplicates"], 0);
}
