//! Nothing lost: the program is killed, resumed and refused, and its journal, its summary and the server must agree.

use crate::support::{Job, MockApi, Ran, batchgate, guest, lines, numbered_csv};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The example plugin against a server, with a journal.
pub fn upload(api: &MockApi, input: &str, toml: &str) -> Job {
    let (url, origin) = (format!("{}/items", api.origin()), api.origin());
    let job = format!(
        "key = \"id\"\n{toml}\n[sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{url}\"\n"
    );
    Job::new(&guest("rust"), input, &job)
}

/// What a journal says of itself.
pub fn show(job: &Job) -> Value {
    let out = batchgate()
        .args(["journal", "show", "--json", "--db"])
        .arg(job.path("journal.sqlite"))
        .output()
        .expect("batchgate runs");
    let text = String::from_utf8(out.stdout).expect("JSON");
    serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&out.stderr)))
}

/// The items of a state.
pub fn items(job: &Job, state: &str) -> Vec<Value> {
    let out = batchgate()
        .args(["journal", "items", "--json", "--state", state, "--db"])
        .arg(job.path("journal.sqlite"))
        .output()
        .expect("batchgate runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    lines(&String::from_utf8(out.stdout).expect("JSON"))
}

fn keys(items: &[Value]) -> BTreeSet<String> {
    let key = |item: &Value| item["key"].as_str().expect("a key").to_owned();
    items.iter().map(key).collect()
}

/// The summary with what former runs left, the journal and the server say the same.
#[track_caller]
pub fn agree(ran: &Ran, job: &Job, api: &MockApi) -> Value {
    let shown = show(job);
    for state in ["written", "skipped", "failed", "unknown"] {
        let earlier = ran.summary["earlier"][state].as_u64().expect("a count");
        let both = ran.count(state) + earlier;
        assert_eq!(shown[state], both, "{state}: {shown} {ran:?}");
    }
    assert_eq!(
        (&shown["in_flight"], &shown["in_use"]),
        (&0.into(), &false.into())
    );
    let last = shown["runs"]
        .as_array()
        .expect("runs")
        .last()
        .expect("a run")
        .clone();
    assert_eq!(last["summary"], ran.summary);
    let stats = api.stats();
    // A call that has no answer may have been stored or not.
    let (written, unknown) = (shown["written"].as_u64(), shown["unknown"].as_u64());
    let distinct = stats["distinct"].as_u64().expect("a count");
    let written = written.expect("a count");
    assert!(
        (written..=written + unknown.expect("a count")).contains(&distinct),
        "{stats} {shown}"
    );
    shown
}

/// A number below `below` that is another one in every run of the tests.
fn random(below: u64) -> u64 {
    let state = std::collections::hash_map::RandomState::new();
    state.build_hasher().finish() % below
}

/// Kills the job so often at random moments, and returns the keys that were ever listed as unknown.
fn kill_again_and_again(job: &Job, api: &MockApi, kills: usize) -> BTreeSet<String> {
    let mut ever_unknown = BTreeSet::new();
    for kill in 0..kills {
        let calls = || api.stats()["requests"].as_u64().expect("a count");
        let before = calls();
        let mut running = job
            .command(&["--fixed", "--log-level", "warn"])
            .stderr(Stdio::null())
            .spawn()
            .expect("batchgate runs");
        // Some while starting, most while sending.
        if kill % 6 != 0 {
            let from = Instant::now();
            while calls() == before {
                assert!(
                    running.try_wait().expect("waits").is_none(),
                    "it ended by itself"
                );
                assert!(from.elapsed() < Duration::from_secs(30), "nothing is sent");
            }
        }
        std::thread::sleep(Duration::from_micros(random(150_000)));
        assert!(
            running.try_wait().expect("waits").is_none(),
            "it ended by itself"
        );
        running.kill().expect("killed");
        running.wait().expect("ended");
        ever_unknown.extend(keys(&items(job, "unknown")));
    }
    ever_unknown
}

const KILLED: usize = 20_000;

fn killed_job(mode: &str) -> (MockApi, Job) {
    let api = MockApi::start(&[
        "--overhead-ms",
        "40",
        "--per-item-ms",
        "0",
        "--sigma",
        "0.3",
    ]);
    let toml = format!(
        "[pool]\nworkers = 16\nbatch_size = 10\n[adaptive]\nmax_workers = 16\n\
         [journal]\ndb = \"journal.sqlite\"\nunknown = \"{mode}\"\n"
    );
    let job = upload(&api, &numbered_csv(KILLED), &toml);
    (api, job)
}

#[test]
fn thirty_kills_lose_nothing_and_double_only_what_was_unknown() {
    let (api, job) = killed_job("resend");
    let ever_unknown = kill_again_and_again(&job, &api, 31);
    let ran = job.run(&["--fixed"]);
    assert_eq!(
        (ran.code, &ran.summary["stopped"]),
        (0, &"completed".into()),
        "{}",
        ran.log
    );
    let shown = agree(ran.adds_up(), &job, &api);
    assert_eq!(shown["written"], KILLED);
    let runs = shown["runs"].as_array().map_or(0, Vec::len);
    assert!(
        runs > 25,
        "{runs} runs: too many kills came before the first batch"
    );
    let stored = api.keys();
    assert_eq!(stored.len(), KILLED, "every key at least once");
    let doubled: BTreeSet<String> = times_over_one(&stored);
    assert!(
        !ever_unknown.is_empty() && !doubled.is_empty(),
        "no kill hit a call"
    );
    let surprising: Vec<_> = doubled.difference(&ever_unknown).collect();
    assert!(
        surprising.is_empty(),
        "stored twice and never unknown: {surprising:?}"
    );
}

#[test]
fn held_items_are_never_stored_twice() {
    let (api, job) = killed_job("hold");
    let ever_unknown = kill_again_and_again(&job, &api, 31);
    let ran = job.run(&["--fixed"]);
    assert_eq!(
        (ran.code, &ran.summary["stopped"]),
        (1, &"completed".into()),
        "{}",
        ran.log
    );
    agree(ran.adds_up(), &job, &api);
    let stored = api.keys();
    assert_eq!(times_over_one(&stored), BTreeSet::new());
    let unknown = keys(&items(&job, "unknown"));
    assert_eq!(unknown, ever_unknown, "held items stay as they are");
    assert_eq!(ran.summary["earlier"]["unknown"], unknown.len());
    for row in 0..KILLED {
        let key = row.to_string();
        assert!(
            stored.contains_key(&key) || unknown.contains(&key),
            "{key} is lost"
        );
    }
}

fn times_over_one(stored: &BTreeMap<String, u64>) -> BTreeSet<String> {
    let doubled = stored.iter().filter(|&(_, &times)| times > 1);
    doubled.map(|(key, _)| key.clone()).collect()
}

#[test]
fn failed_items_are_run_again_exactly() {
    let bad = ["17", "18", "203", "399"];
    let mut options = vec!["--overhead-ms", "5"];
    bad.iter()
        .for_each(|key| options.extend(["--bad-key", key]));
    let refusing = MockApi::start(&options);
    let toml = "[pool]\nworkers = 4\nbatch_size = 20\nbisect_on_failure = true\nfailed_items = \"failed.jsonl\"\n\
                [journal]\ndb = \"journal.sqlite\"\n";
    let job = upload(&refusing, &numbered_csv(400), toml);
    let ran = job.run(&[]);
    assert_eq!(
        (ran.code, ran.adds_up().count("failed")),
        (1, 4),
        "{}",
        ran.log
    );
    agree(&ran, &job, &refusing);
    let rows = || lines(&std::fs::read_to_string(job.path("failed.jsonl")).expect("written"));
    let names: BTreeSet<String> = bad.iter().map(|key| key.to_string()).collect();
    assert_eq!(keys(&rows()), names);
    assert_eq!(keys(&items(&job, "failed")), names);
    for row in rows() {
        assert_eq!(
            row["data"],
            format!("{{\"id\":\"{0}\",\"name\":\"name {0}\"}}", row["index"])
        );
        let said = row["reason"].as_str().expect("a reason");
        assert!(
            !said.is_empty() && row["attempts"].as_u64() > Some(1),
            "{row}"
        );
        assert_eq!(row["outcome"], "failed");
    }
    // The same command again has nothing to do, and says that not all is well.
    let again = job.run(&[]);
    assert_eq!(
        (again.code, again.count("items"), again.count("calls")),
        (1, 0, 0)
    );
    agree(&again, &job, &refusing);
    assert_eq!(rows().len(), 4);

    // The job's own file is its input now: two are still refused, then none.
    let over = ["--input", "failed.jsonl", "--format", "failed"];
    let failed_file = job.path("failed.jsonl");
    let over = [
        over[0],
        failed_file.to_str().expect("UTF-8"),
        over[2],
        over[3],
    ];
    let half = MockApi::start(&["--bad-key", "17", "--bad-key", "203"]);
    let ran = job.run(&[&over[..], &to(&half)].concat());
    assert_eq!(
        (
            ran.code,
            ran.adds_up().count("written"),
            ran.count("failed")
        ),
        (1, 2, 2),
        "{}",
        ran.log
    );
    assert_eq!(half.keys().into_keys().collect::<Vec<_>>(), ["18", "399"]);
    assert_eq!(keys(&rows()), ["17", "203"].map(String::from).into());
    let willing = MockApi::start(&[]);
    let ran = job.run(&[&over[..], &to(&willing)].concat());
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, 2),
        "{}",
        ran.log
    );
    assert_eq!(ran.summary["earlier"]["written"], 398);
    assert_eq!(
        willing.keys().into_keys().collect::<Vec<_>>(),
        ["17", "203"]
    );
    assert_eq!(rows().len(), 0);
    assert_eq!(show(&job)["written"], 400);
    let names: BTreeSet<_> = std::fs::read_dir(job.dir.path())
        .expect("read")
        .map(|entry| entry.expect("read").file_name())
        .collect();
    let expected = ["failed.jsonl", "input.csv", "job.toml", "journal.sqlite"];
    assert_eq!(names, expected.map(Into::into).into());
    let ran = job.run(&[]);
    assert_eq!((ran.code, ran.count("items")), (0, 0), "{}", ran.log);
}

/// Options that send to another server.
fn to(api: &MockApi) -> Vec<&'static str> {
    let url = format!("api_url={}/items", api.origin());
    let origin = api.origin().to_owned();
    vec!["--config-set", url.leak(), "--allow-hosts", origin.leak()]
}

#[test]
fn a_second_host_and_a_change_are_refused_and_send_nothing() {
    let api = MockApi::start(&["--overhead-ms", "100"]);
    let toml = "[pool]\nworkers = 2\nbatch_size = 10\n[journal]\ndb = \"journal.sqlite\"\n";
    let job = upload(&api, &numbered_csv(300), toml);
    let first = job.command(&["--fixed"]).spawn().expect("batchgate runs");
    let from = Instant::now();
    while api.stats()["requests"] == 0 {
        assert!(from.elapsed() < Duration::from_secs(30), "nothing is sent");
    }
    let second = job.run(&[]);
    assert_eq!(second.code, 2, "{}", second.log);
    assert!(
        second.log.contains("another run uses this journal"),
        "{}",
        second.log
    );
    let ran = Ran::of(first.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, ran.count("written")), (0, 300), "{}", ran.log);
    agree(&ran, &job, &api);
    std::fs::write(job.path("input.csv"), numbered_csv(301)).expect("written");
    let refused = job.run(&[]);
    assert_eq!(refused.code, 2, "{}", refused.log);
    assert!(
        refused.log.contains("the input ") && refused.log.lines().count() == 1,
        "{}",
        refused.log
    );
    let accepted = job.run(&["--accept-changes"]);
    assert_eq!(
        (accepted.code, accepted.count("items")),
        (0, 1),
        "{}",
        accepted.log
    );
    agree(&accepted, &job, &api);
    assert_eq!(api.stats()["duplicates"], 0);
}
