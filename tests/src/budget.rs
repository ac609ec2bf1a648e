//! One budget for many jobs, in real processes: the program beside stand-in APIs, one a job, so that
//! each says what its own job had in flight.

use crate::support::{Job, MockApi, batchgate, guest, lines, numbered_csv};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A budget that no load of the machine that runs the tests can move.
const UNMOVED: &str = "cpu_limit = 1.0\nmemory_limit = 1.0\nlag_limit = 1.0\nbreach_limit = 1.0\n";

/// A folder with a host file, jobs, and an API for each.
struct World {
    dir: TempDir,
}

impl World {
    /// With a host file that has this budget, and more.
    fn new(budget: &str, more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let world = Self { dir };
        fs::create_dir(world.path("jobs")).expect("made");
        let text = format!("[budget]\n{budget}{more}");
        fs::write(world.path("host.toml"), text).expect("written");
        fs::write(world.path("input.csv"), numbered_csv(50_000)).expect("written");
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A job file that calls this API with one item each.
    fn job(&self, name: &str, api: &MockApi, workers: u32, more: &str) -> PathBuf {
        let (component, origin) = (guest("rust"), api.origin());
        let input = self.path("input.csv");
        let text = format!(
            "label = \"{name}\"\ncomponent = {component:?}\ninput = {input:?}\n\
             [pool]\nbatch_size = 1\nworkers = {workers}\n[stop]\ngrace = 20\n\
             [sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{origin}/items\"\n{more}"
        );
        self.write(name, &text)
    }

    /// A job file that does as its lines say.
    fn scripted(&self, name: &str, script: &str, workers: u32, more: &str) -> PathBuf {
        let input = self.path(&format!("{name}.jsonl"));
        fs::write(&input, script).expect("written");
        let component = guest("scripted");
        let text = format!(
            "label = \"{name}\"\ncomponent = {component:?}\ninput = {input:?}\n\
             [pool]\nbatch_size = 1\nworkers = {workers}\n{more}"
        );
        self.write(name, &text)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, text).expect("written");
        path
    }

    /// Puts a job file into the folder of the host.
    fn add(&self, job: &Path) -> PathBuf {
        let place = self.path("jobs").join(job.file_name().expect("a name"));
        fs::copy(job, &place).expect("copied");
        place
    }

    fn run(&self, jobs: &[&Path], options: &[&str]) -> Command {
        let mut command = batchgate();
        command
            .arg("run")
            .args(jobs)
            .arg("--budget")
            .arg(self.path("host.toml"))
            .args(["--json", "--log-format", "text"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn host(&self) -> Hosted<'_> {
        self.hosted(self.host_command())
    }

    fn hosted(&self, mut command: Command) -> Hosted<'_> {
        let child = command.spawn().expect("batchgate runs");
        Hosted { world: self, child }
    }

    fn host_command(&self) -> Command {
        let mut command = self.host_command_without_budget();
        command.arg("--budget").arg(self.path("host.toml"));
        command
    }

    fn host_command_without_budget(&self) -> Command {
        let mut command = batchgate();
        command
            .args([
                "host",
                "--json",
                "--log-format",
                "text",
                "--log-level",
                "debug",
                "--jobs",
            ])
            .arg(self.path("jobs"))
            .arg("--socket")
            .arg(self.path("host.sock"))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.path("log")).expect("made"));
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// A host that runs.
struct Hosted<'a> {
    world: &'a World,
    child: Child,
}

impl Hosted<'_> {
    fn status(&self) -> Option<Value> {
        let told = batchgate()
            .args(["host", "status", "--json", "--socket"])
            .arg(self.world.path("host.sock"))
            .output()
            .expect("batchgate runs");
        serde_json::from_slice(&told.stdout).ok()
    }

    /// Waits until the status is as wanted; returns it, and how long that took.
    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> (Value, Duration) {
        let from = Instant::now();
        loop {
            let status = self.status();
            if let Some(status) = &status
                && holds(status)
            {
                return (status.clone(), from.elapsed());
            }
            let log = self.world.log();
            assert!(
                from.elapsed() < Duration::from_secs(60),
                "{what}: {status:?}\n{log}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        kill(&self.child, name);
    }

    /// Ends it; returns its exit code and the summaries.
    fn end(mut self, name: &str) -> (i32, Vec<Value>) {
        self.signal(name);
        let mut stdout = self.child.stdout.take().expect("piped");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).expect("read");
        let status = self.child.wait().expect("it ends");
        (status.code().unwrap_or(-1), lines(&text))
    }
}

impl Drop for Hosted<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let killed = Command::new("kill").args([name, &pid]).status();
    assert!(killed.expect("kill runs").success());
}

fn of<'a>(status: &'a Value, label: &str) -> &'a Value {
    let jobs = status["jobs"].as_array().expect("jobs");
    jobs.iter()
        .find(|job| job["label"] == label)
        .unwrap_or(&Value::Null)
}

fn in_flight(status: &Value, label: &str) -> u64 {
    of(status, label)["in_flight"].as_u64().unwrap_or(0)
}

fn adds_up(summary: &Value) {
    let parts = ["written", "skipped", "failed", "unknown", "not_dispatched"];
    let sum: Option<u64> = parts.iter().map(|part| summary[part].as_u64()).sum();
    // Not known where the input was not read to its end.
    assert!(
        summary["items"].is_null() || summary["items"].as_u64() == sum,
        "{summary}"
    );
}

/// Runs jobs together for a while, and interrupts them; returns the summaries.
fn run_for(mut command: Command, seconds: f64) -> Output {
    let child = command.spawn().expect("batchgate runs");
    std::thread::sleep(Duration::from_secs_f64(seconds));
    kill(&child, "-INT");
    child.wait_with_output().expect("it ends")
}

const CALL: Duration = Duration::from_millis(500);

#[test]
fn a_late_job_gets_its_share_and_leaves_it_by_a_trap() {
    let world = World::new(&format!("desired = 16\nmax = 16\n{UNMOVED}"), "");
    let api = MockApi::start(&["--overhead-ms", "500", "--per-item-ms", "0"]);
    let host = world.host();
    // It is to want them all, whatever they bring.
    let all = "[adaptive]\nmin_workers = 16\n";
    world.add(&world.job("a", &api, 16, all));
    host.until("a has all", |status| in_flight(status, "a") == 16);
    // Eight calls run for so long that they are all in flight, then one traps.
    let calls = "{\"do\":\"sleep\",\"ms\":6000}\n".repeat(8);
    let script = format!("{calls}{}", "{\"do\":\"trap\"}\n".repeat(8));
    world.add(&world.scripted("b", &script, 16, ""));
    host.until("b runs", |status| of(status, "b")["state"] == "running");
    let (status, waited) = host.until("b has its share", |status| in_flight(status, "b") == 8);
    // A second for the test's own looks.
    assert!(waited < 2 * CALL + Duration::from_secs(1), "{waited:?}");
    assert_eq!(status["budget"]["in_use"], 16);
    let (status, _) = host.until("a has what is left", |status| in_flight(status, "a") == 8);
    assert_eq!(of(&status, "a")["reason"], "held at 8: budget share");
    assert_eq!(of(&status, "a")["share"], 8);
    host.until("b ends", |status| of(status, "b")["state"] == "ended");
    let (_, waited) = host.until("a has all again", |status| in_flight(status, "a") == 16);
    assert!(waited < 2 * CALL + Duration::from_secs(1), "{waited:?}");
    let (code, summaries) = host.end("-TERM");
    assert_eq!(code, 143);
    let stopped: Vec<_> = summaries.iter().map(|s| &s["stopped"]).collect();
    assert_eq!(stopped, ["trap", "interrupted"]);
    summaries.iter().for_each(adds_up);
    let log = world.log();
    assert!(
        log.contains("budget: in use ") && log.contains("of 1..16, not overloaded"),
        "{log}"
    );
}

#[test]
fn weights_hold() {
    let world = World::new(&format!("desired = 8\nmax = 8\n{UNMOVED}"), "");
    let apis = ["a", "b"].map(|_| MockApi::start(&["--overhead-ms", "100", "--per-item-ms", "0"]));
    let a = world.job("a", &apis[0], 16, "[share]\nweight = 3\n");
    let b = world.job("b", &apis[1], 16, "");
    let output = run_for(world.run(&[&a, &b], &["--fixed"]), 30.0);
    let summaries = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!(summaries.len(), 2);
    summaries.iter().for_each(adds_up);
    let calls = apis
        .each_ref()
        .map(|api| api.stats()["requests"].as_f64().expect("a number"));
    let share = calls[0] / (calls[0] + calls[1]);
    assert!(
        (share - 0.75).abs() < 0.075 && calls[1] > 100.0,
        "{calls:?}"
    );
}

#[test]
fn a_guarantee_is_kept_under_three_saturating_neighbours() {
    let world = World::new(&format!("desired = 5\nmax = 5\n{UNMOVED}"), "");
    let options = ["--overhead-ms", "100", "--per-item-ms", "0"];
    let apis = ["a", "b", "c", "d"].map(|_| MockApi::start(&options));
    let share = "[share]\nguarantee = 2\nweight = 0.1\n";
    let a = world.job("a", &apis[0], 8, share);
    let others = [1, 2, 3].map(|n| world.job(&format!("job{n}"), &apis[n], 8, ""));
    let jobs = [&*a, &*others[0], &*others[1], &*others[2]];
    run_for(world.run(&jobs, &["--fixed"]), 10.0);
    // Two slots for it, and one for each of the others; by its weight it would have less than any.
    let calls = apis.each_ref().map(|api| api.log().len());
    let most = calls[1..].iter().max().expect("three");
    let least = calls[1..].iter().min().expect("three");
    assert!(2 * calls[0] > 3 * most && *least > 30, "{calls:?}");
    assert!(apis[0].log().iter().any(|row| row["in_flight"] == 2));
}

#[test]
fn two_hundred_jobs_share_fifty_without_starvation() {
    let world = World::new(&format!("desired = 50\nmax = 50\n{UNMOVED}"), "");
    let length = |job: usize, call: usize| 100 + (job * 7 + call * 13) % 100;
    let jobs: Vec<PathBuf> = (0..200)
        .map(|job| {
            let call = |call| format!("{{\"do\":\"sleep\",\"ms\":{}}}\n", length(job, call));
            let script: String = (0..8).map(call).collect();
            let usage = "[usage]\ndb = \"usage.sqlite\"\n";
            world.scripted(&format!("job{job}"), &script, 1, usage)
        })
        .collect();
    let jobs: Vec<&Path> = jobs.iter().map(PathBuf::as_path).collect();
    let output = world.run(&jobs, &[]).output().expect("runs");
    assert_eq!(output.status.code(), Some(0));
    let usage = rusqlite::Connection::open(world.path("usage.sqlite")).expect("opened");
    let mut calls = usage
        .prepare("SELECT label, timestamp, elapsed_seconds FROM requests ORDER BY label, timestamp")
        .expect("a table");
    let calls = calls.query_map([], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, f64>(1)?,
            row.get::<_, f64>(2)?,
        ))
    });
    let calls: Vec<_> = calls
        .expect("rows")
        .map(|row| row.expect("a row"))
        .collect();
    assert_eq!(calls.len(), 1600);
    // With one worker, a job asks for a slot when its last call has ended.
    let waits: Vec<f64> = calls
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0)
        .map(|pair| pair[1].1 - pair[1].2 - pair[0].1)
        .collect();
    assert_eq!(waits.len(), 1400);
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let longest = waits.iter().copied().fold(0.0, f64::max);
    assert!(longest <= 3.0 * mean, "{longest} s of {mean} s");
    // Three of four jobs wait at any time.
    assert!(mean > 0.2, "{mean} s");
}

#[test]
fn a_job_alone_may_bring_its_own_budget() {
    let api = MockApi::start(&["--overhead-ms", "20", "--per-item-ms", "0"]);
    let origin = api.origin();
    let job = Job::new(
        &guest("rust"),
        &numbered_csv(60),
        &format!(
            "[pool]\nbatch_size = 1\nworkers = 8\n[sandbox]\nallow_hosts = [\"{origin}\"]\n\
             [config]\napi_url = \"{origin}/items\"\n[budget]\ndesired = 3\nmax = 3\n{UNMOVED}"
        ),
    );
    let ran = job.run(&[]);
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, 60),
        "{}",
        ran.log
    );
    assert_eq!(api.stats()["max_in_flight"], 3);
    assert!(
        ran.log
            .contains("start workers=3 batch_size=1, ceilings workers<=8"),
        "{}",
        ran.log
    );
    // The rate: a third start is refused, and waits.
    let options = ["--budget-max-tasks-per-minute", "2", "--grace", "0"];
    let output = run_for(job.command(&options), 4.0);
    let ran = crate::support::Ran::of(output);
    assert_eq!((ran.code, ran.count("calls")), (130, 2), "{}", ran.log);
}

#[test]
fn conflicts_are_refused_with_both_names() {
    let world = World::new("max = 4\ndesired = 4\n", "");
    let plain = world.scripted("plain", "{}\n", 1, "");
    let own = world.scripted("own", "{}\n", 1, "[budget]\nmax = 3\n");
    let empty = world.scripted("empty", "{}\n", 1, "[budget]\n");
    let greedy = |name: &str| world.scripted(name, "{}\n", 1, "[share]\nguarantee = 3\n");
    let (one, two) = (greedy("one"), greedy("two"));
    let named = world.scripted("named", "{}\n", 1, "[rate_limit]\nname = \"crm\"\n");
    let cases: [(&[&Path], &[&str]); 4] = [
        (&[&own], &["own.toml:", "host.toml"]),
        (&[&plain, &empty], &["empty", "host.toml"]),
        (&[&one, &two], &["two.toml:", "6 slots", "max = 4"]),
        (&[&named], &["named.toml:", "crm"]),
    ];
    for (jobs, words) in cases {
        let output = world.run(jobs, &[]).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            words.iter().all(|word| said.contains(word)),
            "{words:?}: {said}"
        );
    }
    // Without a host file: a budget of one's own is for a job that runs alone.
    let output = batchgate()
        .arg("run")
        .args([&own, &plain])
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("own.toml:") && said.contains("\"plain\""),
        "{said}"
    );
    // A host file without a budget shares none.
    fs::write(
        world.path("host.toml"),
        "[limiters.crm]\nmax_per_sec = 100\n",
    )
    .expect("written");
    for job in [&own, &named] {
        let output = world.run(&[job], &[]).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
    // A shared limiter also says what a refusal and a long wait mean.
    let limiter = "[limiters.crm]\nmax_cooldown = 1\npark = false\n";
    fs::write(world.path("host.toml"), limiter).expect("written");
    let refused = "{\"do\":\"rate_limited\"}\n";
    let refused = world.scripted("refused", refused, 1, "[rate_limit]\nname = \"crm\"\n");
    let output = world.run(&[&refused], &[]).output().expect("runs");
    let summaries = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!(summaries[0]["stopped"], "parked", "{summaries:?}");
    // A control store that is none is found by a check.
    fs::write(world.path("text"), "no database ".repeat(100)).expect("written");
    fs::write(
        world.path("host.toml"),
        "[budget]\n[control]\ndb = \"text\"\n",
    )
    .expect("written");
    let output = world.run(&[&plain], &["--check"]).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && said.contains("text"),
        "{said}"
    );
    let output = world
        .run(&[&plain], &["--budget-min", "5", "--budget-max", "2"])
        .output();
    assert_eq!(output.expect("runs").status.code(), Some(2));
}

#[test]
fn a_job_of_a_folder_has_no_budget_of_its_own_and_writes_over_no_job_file() {
    let world = World::new("", "");
    let host = world.hosted(world.host_command_without_budget());
    let own = world.add(&world.scripted("own", "{}\n", 1, "[budget]\nmax = 3\n"));
    let writer = "failures_csv = \"own.toml\"\n";
    world.add(&world.scripted("writer", "{}\n", 1, writer));
    let refused = |status: &Value, words: [&str; 2]| {
        let jobs = status["jobs"].as_array().expect("jobs").iter();
        let reasons = jobs.filter(|job| job["state"] == "refused");
        let reason = reasons.filter_map(|job| job["reason"].as_str());
        let said = |reason: &str| words.iter().all(|word| reason.contains(word));
        reason.into_iter().any(said)
    };
    host.until("both are refused", |status| {
        refused(status, ["own.toml:", "--budget"])
            && refused(status, ["writer.toml:", "failures_csv"])
    });
    assert!(
        fs::read_to_string(own)
            .expect("read")
            .contains("label = \"own\"")
    );
    assert_eq!(host.end("-TERM").0, 143);
}

#[test]
fn no_job_of_a_folder_may_write_to_what_another_keeps() {
    let world = World::new(&format!("desired = 4\nmax = 4\n{UNMOVED}"), "");
    let host = world.host();
    let open = world.path("open");
    fs::create_dir(&open).expect("made");
    let long = "{\"do\":\"sleep\",\"ms\":100000}\n";
    let keeps = format!(
        "failures_csv = {:?}\n[stop]\ngrace = 0\n",
        open.join("f.csv")
    );
    world.add(&world.scripted("keeps", long, 1, &keeps));
    host.until("it runs", |status| in_flight(status, "keeps") == 1);
    let writes = format!("[sandbox]\ndirs = [\"{}::/d::rw\"]\n", open.display());
    world.add(&world.scripted("writes", "{}\n", 1, &writes));
    host.until("it is refused", |status| {
        let reason = of(status, "writes")["reason"].as_str().unwrap_or_default();
        reason.contains("dirs") && reason.contains("failures_csv")
    });
    assert_eq!(host.end("-TERM").0, 143);
}

#[test]
fn a_removed_job_has_its_grace_to_end_and_no_more() {
    let world = World::new(&format!("desired = 4\nmax = 4\n{UNMOVED}"), "");
    let host = world.host();
    let hangs = "{\"do\":\"sleep\",\"ms\":100000}\n";
    let grace = "[stop]\ngrace = 1\n";
    let hangs = world.add(&world.scripted("hangs", hangs, 1, grace));
    let ends = "{\"do\":\"sleep\",\"ms\":3000}\n";
    let ends = world.add(&world.scripted("ends", ends, 1, ""));
    host.until("it hangs", |status| in_flight(status, "hangs") == 1);
    fs::remove_file(hangs).expect("removed");
    host.until("it is gone", |status| of(status, "hangs").is_null());
    fs::remove_file(ends).expect("removed");
    host.until("it is drained or gone", |status| {
        of(status, "ends")["state"] != "running"
    });
    // A signal does not take its grace from a job that is drained.
    let (code, summaries) = host.end("-TERM");
    assert_eq!(code, 143);
    let summary = |label: &str| summaries.iter().find(|summary| summary["label"] == label);
    let (hangs, ends) = (
        summary("hangs").expect("a summary"),
        summary("ends").expect("a summary"),
    );
    assert_eq!(
        (&hangs["stopped"], &hangs["unknown"]),
        (&"drained".into(), &1.into())
    );
    assert_eq!(
        (&ends["written"], &ends["unknown"]),
        (&1.into(), &0.into()),
        "{ends}"
    );
    adds_up(hangs);
}

#[test]
fn several_jobs_have_a_summary_each_and_the_worst_code() {
    let world = World::new("", "");
    let good = world.scripted("good", &"{\"do\":\"ok\"}\n".repeat(5), 2, "");
    let bad = world.scripted("bad", "{\"do\":\"fatal\"}\n", 2, "");
    let output = world.run(&[&good, &bad], &[]).output().expect("runs");
    assert_eq!(output.status.code(), Some(3));
    let summaries = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    let ends: Vec<_> = summaries
        .iter()
        .map(|s| (&s["label"], &s["stopped"]))
        .collect();
    let words = ["good", "completed", "bad", "fatal"].map(Value::from);
    assert_eq!(ends, [(&words[0], &words[1]), (&words[2], &words[3])]);
}

#[test]
fn a_shared_limiter_has_one_quota_shared_by_weight() {
    let world = World::new(UNMOVED, "[limiters.crm]\nmax_per_sec = 40\n");
    let apis = ["a", "b"].map(|_| MockApi::start(&["--overhead-ms", "50", "--per-item-ms", "0"]));
    let named = "[rate_limit]\nname = \"crm\"\n";
    let a = world.job("a", &apis[0], 4, &format!("{named}[share]\nweight = 3\n"));
    let b = world.job("b", &apis[1], 4, named);
    run_for(world.run(&[&a, &b], &["--fixed"]), 10.0);
    let calls = apis
        .each_ref()
        .map(|api| api.stats()["requests"].as_f64().expect("a number"));
    let all = calls[0] + calls[1];
    assert!(all < 40.0 * 12.0 && all > 100.0, "{calls:?}");
    assert!((calls[0] / all - 0.75).abs() < 0.08, "{calls:?}");
}

#[test]
fn a_shared_limiter_has_one_cooldown() {
    let world = World::new(UNMOVED, "[limiters.crm]\nbreach_base_cooldown = 4\n");
    let good = MockApi::start(&["--overhead-ms", "50", "--per-item-ms", "0"]);
    let named = "[rate_limit]\nname = \"crm\"\n";
    let a = world.job("a", &good, 2, named);
    let refused = "{\"do\":\"sleep\",\"ms\":1500}\n{\"do\":\"rate_limited\",\"on_call\":1}\n";
    let b = world.scripted("b", refused, 1, named);
    run_for(world.run(&[&a, &b], &["--fixed"]), 8.0);
    let at: Vec<f64> = good
        .log()
        .iter()
        .map(|row| row["t"].as_f64().expect("a time"))
        .collect();
    let longest = at
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    assert!(longest > 3.0, "no pause of 4 s in {at:?}");
}

#[test]
fn a_host_survives_its_jobs_and_tells_its_user_how_they_are() {
    let world = World::new(&format!("desired = 4\nmax = 4\n{UNMOVED}"), "");
    let api = MockApi::start(&["--overhead-ms", "100", "--per-item-ms", "0"]);
    fs::create_dir(world.path("jobs/odd.toml")).expect("made");
    let host = world.host();
    world.add(&world.write("broken", "label = \"broken\"\nworkers = 3\n"));
    world.add(&world.job("long", &api, 2, ""));
    world.add(&world.scripted("short", "{\"do\":\"ok\"}\n", 1, "summary = \"x\"\n"));
    world.add(&world.scripted("own", "{\"do\":\"ok\"}\n", 1, "[budget]\nmax = 2\n"));
    let trap = world.scripted("trap", "{\"do\":\"trap\"}\n", 1, "");
    world.add(&trap);
    let refused = |status: &Value| {
        let jobs = status["jobs"].as_array().expect("jobs").iter();
        jobs.filter(|job| job["state"] == "refused").count()
    };
    let (status, _) = host.until("all have come up", |status| {
        // `summary` below a table is a key that this table does not have.
        refused(status) == 3
            && of(status, "trap")["state"] == "ended"
            && of(status, "long")["state"] == "running"
            && of(status, "long")["done"].as_u64() > Some(3)
    });
    assert_eq!(of(&status, "trap")["reason"], "trap");
    let own = of(&status, "own")["reason"].as_str().expect("words");
    assert!(
        own.contains("own.toml:") && own.contains("host.toml"),
        "{own}"
    );
    assert_eq!(status["budget"]["state"], "running");
    let mode = fs::metadata(world.path("host.sock"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // For people.
    let told = batchgate()
        .args(["host", "status", "--socket"])
        .arg(world.path("host.sock"))
        .output();
    let text = String::from_utf8(told.expect("runs").stdout).expect("UTF-8");
    assert!(
        text.contains("budget running: in use ") && text.contains("[long] running: "),
        "{text}"
    );
    // A file that is corrected starts, one that is removed is drained, and one that comes back runs again.
    fs::write(
        world.path("jobs/broken.toml"),
        fs::read(&trap).expect("read"),
    )
    .expect("written");
    let broken = world.path("jobs/broken.toml").display().to_string();
    host.until("the corrected one ran", |status| {
        let mut jobs = status["jobs"].as_array().expect("jobs").iter();
        jobs.any(|job| job["file"] == *broken && job["state"] == "ended")
    });
    fs::remove_file(world.path("jobs/long.toml")).expect("removed");
    host.until("it is gone", |status| of(status, "long").is_null());
    world.add(&world.path("long.toml"));
    host.until("it runs again", |status| in_flight(status, "long") == 2);
    // The next one begins the log anew.
    let log = world.log();
    let second = world.host_command().output().expect("runs");
    assert_eq!(second.status.code(), Some(2), "another host has the socket");
    let (code, summaries) = host.end("-INT");
    assert_eq!(code, 130);
    summaries.iter().for_each(adds_up);
    let ended = |word: &str| summaries.iter().filter(|s| s["stopped"] == word).count();
    assert_eq!(
        (ended("trap"), ended("drained"), ended("interrupted")),
        (2, 1, 1),
        "{summaries:?}"
    );
    assert!(!world.path("host.sock").exists());
    assert_eq!(log.matches("odd.toml is ignored").count(), 1, "{log}");
    let mut faults = log.lines().filter(|line| line.starts_with("ERROR host:"));
    let named_once = |line: &str| line.matches("broken.toml").count() == 1;
    assert!(faults.any(named_once), "{log}");
}

#[test]
fn the_status_says_why_a_job_is_where_it_is() {
    let more = "[limiters.crm]\nbreach_base_cooldown = 60\n";
    let world = World::new(&format!("desired = 9\nmax = 9\n{UNMOVED}"), more);
    let api = MockApi::start(&["--overhead-ms", "30", "--per-item-ms", "0"]);
    let host = world.host();
    let tuned = "[adaptive]\ncontroller = \"history\"\nmax_workers = 3\nmax_batch_size = 1\n";
    world.add(&world.job("tuned", &api, 2, tuned));
    let refused = "{\"do\":\"rate_limited\",\"on_call\":1}\n";
    let named = "[rate_limit]\nname = \"crm\"\n";
    world.add(&world.scripted("refused", refused, 1, named));
    let rare = "[rate_limit]\nmax_per_sec = 0.01\n";
    world.add(&world.scripted("rare", &"{\"do\":\"ok\"}\n".repeat(3), 1, rare));
    let fails = "{\"do\":\"fail\",\"retryable\":true}\n";
    world.add(&world.scripted("fails", fails, 1, "max_batch_retries = 30\n"));
    let reason = |status: &Value, label: &str| {
        let reason = of(status, label)["reason"].as_str();
        reason.unwrap_or_default().to_owned()
    };
    host.until("a probe", |status| reason(status, "tuned") == "probing 3");
    let (status, _) = host.until("a cooldown", |status| {
        reason(status, "refused").starts_with("cooldown until ")
    });
    assert_eq!(in_flight(&status, "refused"), 0, "none is called: {status}");
    host.until("a cap", |status| {
        reason(status, "rare").starts_with("held at 0: max_per_sec reached until ")
    });
    host.until("a pause", |status| {
        reason(status, "fails").ends_with("to be sent again after a failure: 1")
            && in_flight(status, "fails") == 0
    });
    let time = reason(&status, "refused");
    let time = time.trim_start_matches("cooldown until ");
    assert!(
        time.split(':').all(|part| part.parse::<u8>().is_ok()),
        "{time}"
    );
    let (status, _) = host.until("a rate", |status| {
        of(status, "tuned")["rate"].as_f64() > Some(1.0)
    });
    let setting = of(&status, "tuned");
    assert!(setting["workers"].as_u64() >= Some(2) && setting["batch_size"] == 1);
    let (code, summaries) = host.end("-TERM");
    assert_eq!((code, summaries.len()), (143, 4));
    summaries.iter().for_each(adds_up);
}

#[test]
fn a_job_that_cannot_be_opened_yet_holds_up_nobody_and_no_end() {
    let world = World::new(&format!("desired = 4\nmax = 4\n{UNMOVED}"), "");
    let host = world.host();
    // Whoever opens such a pipe waits for someone to write to it.
    for n in 0..4 {
        let pipe = world.scripted(&format!("pipe{n}"), "", 1, "");
        let input = world.path(&format!("pipe{n}.jsonl"));
        fs::remove_file(&input).expect("removed");
        let made = Command::new("mkfifo").arg(&input).status();
        assert!(made.expect("mkfifo runs").success());
        world.add(&pipe);
    }
    let waiting = |status: &Value| {
        let jobs = status["jobs"].as_array().expect("jobs").iter();
        jobs.filter(|job| job["state"] == "preparing").count()
    };
    host.until("all wait", |status| waiting(status) == 4);
    world.add(&world.scripted("other", "{\"do\":\"ok\"}\n", 1, ""));
    host.until("another runs", |status| {
        of(status, "other")["state"] == "ended"
    });
    // One that is removed meanwhile ends, and takes nothing from the one that comes in its place.
    let there = world.path("jobs/pipe0.toml");
    fs::remove_file(&there).expect("removed");
    host.until("it is gone", |status| of(status, "pipe0").is_null());
    world.add(&world.path("pipe0.toml"));
    host.until("it waits again", |status| {
        let reason = of(status, "pipe0")["reason"].as_str();
        waiting(status) == 4 && reason.is_some_and(|reason| !reason.is_empty())
    });
    fs::write(world.path("pipe0.jsonl"), "{\"do\":\"ok\"}\n".repeat(2)).expect("written");
    host.until("it runs to its end", |status| {
        let job = of(status, "pipe0");
        job["state"] == "ended" && job["done"] == 2
    });
    host.signal("-TERM");
    let from = Instant::now();
    while !world.log().contains("a second signal") {
        assert!(from.elapsed() < Duration::from_secs(30), "{}", world.log());
    }
    let (code, summaries) = host.end("-TERM");
    assert_eq!((code, summaries.len()), (143, 2));
}

#[test]
fn a_host_is_retuned_while_it_runs() {
    let more = "[control]\ndb = \"control.sqlite\"\npoll_seconds = 0.2\n";
    let world = World::new(&format!("desired = 2\nmax = 2\n{UNMOVED}"), more);
    let api = MockApi::start(&["--overhead-ms", "100", "--per-item-ms", "0"]);
    let host = world.host();
    world.add(&world.job("a", &api, 8, ""));
    host.until("it runs", |status| in_flight(status, "a") == 2);
    let set = |key: &str, value: &str| {
        let done = batchgate()
            .args(["control", "set", key, value, "--db"])
            .arg(world.path("control.sqlite"))
            .status();
        assert!(done.expect("runs").success());
    };
    set("budget_max", "6");
    set("budget_desired", "6");
    host.until("more", |status| status["budget"]["desired"] == 6);
    set("budget_min", "7");
    let from = Instant::now();
    while !world
        .log()
        .contains("refused: budget_min=7 is above budget_max=6")
    {
        assert!(from.elapsed() < Duration::from_secs(30), "{}", world.log());
    }
    host.end("-INT");
}

/// A cgroup of 512 MB and half a core, of whichever version the machine has; `None` where a test may
/// make none.
struct Cgroup {
    dirs: Vec<PathBuf>,
}

impl Cgroup {
    fn make() -> Option<Self> {
        let name = format!("batchgate-test-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let v1 = root.join("cpu/cpu.cfs_quota_us").exists() || root.join("cpu/tasks").exists();
        let roots: &[&str] = if v1 {
            &["cpu", "cpuacct", "memory"]
        } else {
            &["."]
        };
        let mut group = Self { dirs: Vec::new() };
        for part in roots {
            let dir = root.join(part).join(&name);
            fs::create_dir(&dir).ok()?;
            group.dirs.push(dir);
        }
        let set = |file: &str, value: &str| {
            let mut dirs = group.dirs.iter().map(|dir| dir.join(file));
            fs::write(dirs.find(|path| path.exists())?, value).ok()
        };
        if v1 {
            set("cpu.cfs_quota_us", "50000")?;
            // However busy the machine is, it gets its half.
            set("cpu.shares", "262144")?;
            set("memory.limit_in_bytes", "536870912")?;
        } else {
            set("cpu.max", "50000 100000")?;
            set("cpu.weight", "10000")?;
            set("memory.max", "536870912")?;
        }
        Some(group)
    }

    /// The command, run inside.
    fn inside(&self, command: &Command) -> Command {
        let join: Vec<_> = self
            .dirs
            .iter()
            .map(|dir| format!("echo $$ > {}/cgroup.procs", dir.display()))
            .collect();
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("{} && exec \"$0\" \"$@\"", join.join(" && ")));
        shell.arg(command.get_program()).args(command.get_args());
        shell
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in &self.dirs {
            // A process that was killed is in it for a moment.
            for _ in 0..100 {
                if fs::remove_dir(dir).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// A process that uses all the processor time it gets, until it is dropped.
struct Burner(Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn inside_a_cgroup_load_is_judged_against_it() {
    let Some(cgroup) = Cgroup::make() else {
        // The same with simulated files: `load_makes_it_fall_to_min_and_rise_again`, in the library.
        println!("no cgroup may be made here");
        return;
    };
    let budget = "min = 2\ndesired = 10\nmax = 20\nscale_seconds = 1\ncurrent_seconds = 3\n\
                  history_seconds = 5\nlag_limit = 1.0\n";
    let world = World::new(budget, "");
    let script = "{\"do\":\"sleep\",\"ms\":200}\n".repeat(5000);
    world.add(&world.scripted("a", &script, 20, ""));
    let child = cgroup
        .inside(&world.host_command())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(world.path("log")).expect("made"))
        .spawn()
        .expect("batchgate runs");
    let host = Hosted {
        world: &world,
        child,
    };
    let desired = |status: &Value| status["budget"]["desired"].as_u64().unwrap_or(0);
    host.until("it is used and grows", |status| desired(status) >= 12);
    // 512 MB is the limit, not the machine's: a quarter of most machines is more than this host ever uses.
    let burner = cgroup
        .inside(Command::new("sh").args(["-c", "while :; do :; done"]))
        .spawn();
    let burner = Burner(burner.expect("a burner"));
    let (status, _) = host.until("it falls", |status| desired(status) <= 8);
    let verdict = status["budget"]["verdict"].as_str().expect("words");
    assert!(verdict.contains("overloaded: cpu "), "{verdict}");
    assert_eq!(status["budget"]["slots"], 2);
    let done = of(&status, "a")["done"].as_u64();
    host.until("min goes on", |status| {
        of(status, "a")["done"].as_u64() > done.map(|n| n + 10)
    });
    drop(burner);
    let low = desired(&host.status().expect("told"));
    host.until("it rises again", |status| desired(status) > low + 1);
    host.end("-INT");

    // Of 0.8 x 512 MB a small part, of a quarter of a machine's memory nearly nothing.
    let budget = format!("{budget}memory_threshold = 0.02\n");
    let world = World::new(&budget, "");
    world.add(&world.scripted("a", &script, 20, ""));
    let child = cgroup
        .inside(&world.host_command())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(world.path("log")).expect("made"))
        .spawn()
        .expect("batchgate runs");
    let host = Hosted {
        world: &world,
        child,
    };
    host.until("its memory is judged", |status| {
        let verdict = status["budget"]["verdict"].as_str().unwrap_or_default();
        verdict.contains("overloaded: ") && verdict.contains("memory 100% of the time")
    });
    host.end("-INT");
}
