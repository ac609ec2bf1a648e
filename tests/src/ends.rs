//! Each way a run can end, with its word, its exit code and an account that adds up: the program with a
//! component that does as its items say.

use crate::support::{Job, Ran, batchgate, guest};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs the scripted plugin over JSON lines.
fn scripted(lines: &str, toml: &str) -> Job {
    let job = Job::new(&guest("scripted"), "", toml);
    std::fs::write(job.path("input.jsonl"), lines).expect("input written");
    let text = std::fs::read_to_string(job.path("job.toml")).expect("read");
    std::fs::write(
        job.path("job.toml"),
        text.replace("input.csv", "input.jsonl"),
    )
    .expect("written");
    job
}

fn repeated(line: &str, times: usize) -> String {
    format!("{line}\n").repeat(times)
}

#[track_caller]
fn ends(ran: &Ran, stopped: &str, code: i32) {
    assert_eq!(ran.summary["stopped"], stopped, "{}", ran.log);
    assert_eq!(ran.code, code, "{}", ran.log);
}

#[test]
fn completed() {
    let ran = scripted(&repeated(r#"{"do":"ok"}"#, 10), "").run(&[]);
    ends(&ran, "completed", 0);
    let ran = scripted(&repeated(r#"{"do":"skip"}"#, 10), "").run(&[]);
    ends(&ran, "completed", 0);
    assert_eq!(ran.adds_up().count("skipped"), 10);
    let mixed = format!(
        "{}{}",
        repeated(r#"{"do":"ok"}"#, 9),
        r#"{"do":"item_fail","retryable":false}"#
    );
    let ran = scripted(&mixed, "").run(&[]);
    ends(&ran, "completed", 1);
    assert_eq!(
        (ran.adds_up().count("written"), ran.count("failed")),
        (9, 1)
    );
}

#[test]
fn circuit_breaker_fatal_and_failure_limit() {
    let one = "[pool]\nbatch_size = 1\n";
    let ran = scripted(&repeated(r#"{"do":"fail","retryable":false}"#, 20), one).run(&[]);
    ends(&ran, "circuit-breaker", 3);
    assert_eq!(
        (ran.adds_up().count("failed"), ran.count("not_dispatched")),
        (8, 12)
    );
    assert!(
        ran.log
            .contains("SYSTEMATIC FAILURE: 8 consecutive. Stopping."),
        "{}",
        ran.log
    );

    let ran = scripted(&repeated(r#"{"do":"fatal","message":"401"}"#, 20), one).run(&[]);
    ends(&ran, "fatal", 3);
    assert_eq!((ran.adds_up().count("failed"), ran.count("calls")), (1, 1));

    let toml = "[pool]\nbatch_size = 1\nmax_failed_items = 3\n";
    let ran = scripted(
        &repeated(r#"{"do":"item_fail","retryable":false}"#, 20),
        toml,
    )
    .run(&[]);
    ends(&ran, "failure-limit", 3);
    assert_eq!(ran.adds_up().count("failed"), 3);
}

#[test]
fn trap_aborts_or_fails() {
    let lines = repeated(r#"{"do":"trap"}"#, 1) + &repeated(r#"{"do":"ok"}"#, 9);
    let ran = scripted(&lines, "[pool]\nbatch_size = 1\n").run(&[]);
    ends(&ran, "trap", 4);
    assert_eq!((ran.adds_up().count("unknown"), ran.count("traps")), (1, 1));

    let ran = scripted(&lines, "[pool]\nbatch_size = 1\non_trap = \"fail\"\n").run(&[]);
    ends(&ran, "completed", 1);
    assert_eq!(
        (ran.adds_up().count("unknown"), ran.count("written")),
        (1, 9)
    );
}

#[test]
fn cpu_and_call_timeouts_are_named_with_their_values() {
    let toml = "failures_csv = \"f.csv\"\nbatch_size = 1\non_trap = \"fail\"\n";
    let toml = format!("[pool]\n{toml}[sandbox]\ncpu_timeout = 0.3\ncall_timeout = 5\n");
    let lines = "{\"do\":\"loop\"}\n{\"do\":\"sleep\",\"ms\":60000}\n{\"do\":\"ok\"}\n";
    let job = scripted(lines, &toml);
    let ran = job.run(&[]);
    ends(&ran, "completed", 1);
    assert_eq!(
        (
            ran.adds_up().count("unknown"),
            ran.count("traps"),
            ran.count("written")
        ),
        (2, 1, 1)
    );
    let failures = std::fs::read_to_string(job.path("f.csv")).expect("written");
    assert!(
        failures.contains("cpu_timeout") && failures.contains("call_timeout"),
        "{failures}"
    );
}

#[test]
fn parked() {
    let toml = "[pool]\nbatch_size = 1\n[rate_limit]\nmax_per_day = 5\npark = false\nday_time_zone = \"UTC\"\n";
    let ran = scripted(&repeated(r#"{"do":"ok"}"#, 20), toml).run(&[]);
    ends(&ran, "parked", 1);
    assert_eq!(
        (ran.adds_up().count("written"), ran.count("not_dispatched")),
        (5, 15)
    );
}

#[test]
fn interrupted_by_either_signal() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        // A cooldown of 15 minutes: the wait ends at once.
        let lines = repeated(r#"{"do":"rate_limited","ms":900000,"on_call":1}"#, 20);
        let job = scripted(
            &lines,
            "[pool]\nbatch_size = 1\n[usage]\ndb = \"usage.sqlite\"\n",
        );
        let running = job.command(&[]).spawn().expect("batchgate runs");
        let from = Instant::now();
        // The one call before the cooldown is in the usage log.
        let made = || {
            let log = batchgate()
                .args(["usage", "window", "600", "--json", "--db"])
                .arg(job.path("usage.sqlite"))
                .stderr(Stdio::null())
                .output();
            String::from_utf8_lossy(&log.expect("batchgate runs").stdout).contains("\"requests\":1")
        };
        while !made() {
            assert!(
                from.elapsed() < Duration::from_secs(30),
                "no call was logged"
            );
        }
        let pid = running.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args([name, &pid])
                .status()
                .expect("kill")
                .success()
        );
        let ran = Ran::of(running.wait_with_output().expect("it ends"));
        ends(&ran, "interrupted", code);
        assert_eq!(
            (ran.adds_up().count("not_dispatched"), ran.count("breaches")),
            (20, 1)
        );
        assert!(from.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn what_is_unusable_is_refused_before_anything_is_sent() {
    let job = scripted("", "");
    let cases: [(&[&str], &str); 7] = [
        (&["--component", "/nonexistent.wasm"], "/nonexistent.wasm"),
        (&["--input", "/nonexistent.csv"], "/nonexistent.csv"),
        (&["--workers", "0"], "--workers"),
        (&["--usage-db", "/nonexistent/usage.sqlite"], "/nonexistent"),
        (&["--failures-csv", "/nonexistent/f.csv"], "/nonexistent"),
        (&["--summary", "/nonexistent/s.json"], "/nonexistent"),
        (&["--allow-hosts", "not a host"], "allow_hosts"),
    ];
    for (options, word) in cases {
        let ran = job.run(options);
        assert_eq!(ran.code, 2, "{options:?}: {}", ran.log);
        assert!(
            ran.log.contains(word) && ran.log.lines().count() == 1,
            "{options:?}: {}",
            ran.log
        );
    }
    for (guest_name, word) in [
        ("core_module", "core WebAssembly module"),
        ("wrong_world", "processor"),
        ("wrong_version", "0.1.0"),
    ] {
        let ran = job.run(&["--component", guest(guest_name).to_str().expect("UTF-8")]);
        assert_eq!(ran.code, 2, "{guest_name}: {}", ran.log);
        assert!(ran.log.contains(word), "{guest_name}: {}", ran.log);
    }
    let unknown = batchgate()
        .args(["run", "--no-such-option"])
        .output()
        .expect("runs");
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn check_and_dry_run_send_nothing() {
    let job = scripted(&(repeated(r#"{"do":"fatal"}"#, 7) + "not json\n"), "");
    let ran = job.run(&["--check"]);
    assert_eq!((ran.code, ran.summary.is_null()), (0, true), "{}", ran.log);
    let ran = job.run(&["--dry-run"]);
    assert_eq!(ran.code, 1, "a line is rejected");
    assert_eq!(
        (
            ran.adds_up().count("not_dispatched"),
            ran.count("calls"),
            ran.count("rejected")
        ),
        (7, 0, 1)
    );
}

#[test]
fn what_a_job_reads_is_never_written_over() {
    let job = scripted(&repeated(r#"{"do":"ok"}"#, 3), "");
    let text = std::fs::read_to_string(job.path("job.toml")).expect("read");
    for lines in [
        "[pool]\nfailed_items = \"input.jsonl\"\n",
        "[pool]\nfailures_csv = \"job.toml\"\n",
    ] {
        std::fs::write(job.path("job.toml"), format!("{text}{lines}")).expect("written");
        let ran = job.run(&[]);
        assert_eq!(ran.code, 2, "{}", ran.log);
        assert!(ran.log.contains("names the same file as"), "{}", ran.log);
    }
    std::fs::write(
        job.path("job.toml"),
        format!("summary = \"job.toml\"\n{text}"),
    )
    .expect("written");
    let ran = job.run(&[]);
    assert!(
        ran.code == 2 && ran.log.contains("as the job file"),
        "{}",
        ran.log
    );
    // A link to what is not there yet stays a link.
    std::fs::write(job.path("job.toml"), &text).expect("written");
    std::os::unix::fs::symlink("there.json", job.path("link.json")).expect("a link");
    let link = job.path("link.json");
    let ran = job.run(&["--summary", link.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, 0, "{}", ran.log);
    assert!(link.is_symlink() && job.path("there.json").is_file());
}

#[test]
fn an_input_that_is_cut_short_while_it_is_read_is_no_complete_one() {
    let toml = "[pool]\nworkers = 1\nbatch_size = 1\n";
    let line = r#"{"do":"sleep","ms":20}"#;
    let job = scripted(&repeated(line, 200_000), toml);
    let mut command = job.command(&["--fixed", "--usage-db", "usage.sqlite"]);
    let running = command.current_dir(job.dir.path()).spawn().expect("runs");
    let from = Instant::now();
    let called = || {
        let usage = rusqlite::Connection::open(job.path("usage.sqlite")).ok()?;
        let count = usage.query_row("SELECT COUNT(*) FROM requests", [], |row| row.get(0));
        count.ok().filter(|&calls: &i64| calls > 0)
    };
    while called().is_none() {
        assert!(from.elapsed() < Duration::from_secs(30), "nothing is sent");
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(job.path("input.jsonl"));
    file.expect("opened").set_len(0).expect("cut short");
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    ends(&ran, "input-error", 5);
    assert!(
        ran.log.contains("cut short while it was read"),
        "{}",
        ran.log
    );
}

#[test]
fn check_and_dry_run_leave_what_is_written_to_as_it_is() {
    let toml = "rejects_csv = \"rejects.csv\"\n[pool]\nfailures_csv = \"failures.csv\"\n\
                failed_items = \"failed.jsonl\"\n[usage]\ndb = \"usage.sqlite\"\n\
                [journal]\ndb = \"journal.sqlite\"\n[control]\ndb = \"control.sqlite\"\n";
    let job = scripted(&repeated(r#"{"do":"ok"}"#, 3), toml);
    let files = || {
        let names = std::fs::read_dir(job.dir.path()).expect("a folder");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
        names.map(name).collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    for option in ["--check", "--dry-run"] {
        let ran = job.run(&[option]);
        assert_eq!((ran.code, files()), (0, before.clone()), "{}", ran.log);
    }
    // Without a journal, a run that sends would drop the row of a former one.
    let row = "{\"index\":0,\"key\":\"0\",\"data\":\"x\",\"reason\":\"r\",\"outcome\":\"failed\",\"attempts\":1}\n";
    std::fs::write(job.path("failed.jsonl"), row).expect("written");
    let without = std::fs::read_to_string(job.path("job.toml")).expect("read");
    let without = without.replace("[journal]\ndb = \"journal.sqlite\"\n", "");
    std::fs::write(job.path("job.toml"), without).expect("written");
    assert_eq!(job.run(&["--check"]).code, 0);
    let kept = std::fs::read_to_string(job.path("failed.jsonl")).expect("read");
    assert_eq!(kept, row);
    // What cannot be written is found all the same.
    std::fs::write(job.path("failed.jsonl"), "other\n").expect("written");
    let ran = job.run(&["--check"]);
    assert!(
        ran.code == 2 && ran.log.contains("no row of failed items"),
        "{}",
        ran.log
    );
    std::fs::remove_file(job.path("failed.jsonl")).expect("removed");
    std::fs::create_dir(job.path("failures.csv")).expect("made");
    let ran = job.run(&["--dry-run"]);
    assert!(
        ran.code == 2 && ran.log.contains("failures_csv"),
        "{}",
        ran.log
    );
}

#[test]
fn a_host_that_is_not_allowed_is_not_reached() {
    let api = crate::support::MockApi::start(&[]);
    let line = format!("{{\"do\":\"get\",\"url\":\"{}/stats\"}}", api.origin());
    let origin = api.origin().to_owned();
    for (allowed, reached) in [
        (vec![], false),
        (vec!["--allow-hosts", &origin], true),
        (vec!["--allow-hosts", "http://127.0.0.1:1"], false),
    ] {
        let job = scripted(&repeated(&line, 1), "[pool]\nfailures_csv = \"f.csv\"\n");
        let ran = job.run(&allowed);
        let failures = std::fs::read_to_string(job.path("f.csv")).expect("written");
        assert_eq!(failures.contains("requests"), reached, "{failures}");
        assert_eq!(ran.log.contains("allow_hosts"), !reached, "{}", ran.log);
    }
}

#[test]
fn fixed_settings_do_not_tune() {
    let job = scripted(
        &repeated(r#"{"do":"ok"}"#, 2000),
        "[pool]\nbatch_size = 3\nworkers = 2\n[adaptive]\nmax_workers = 9\n",
    );
    let ran = job.run(&["--fixed"]);
    ends(&ran, "completed", 0);
    assert_eq!(ran.count("calls"), 667);
    assert_eq!(
        (
            ran.summary["final"]["workers"].as_u64(),
            ran.summary["final"]["batch_size"].as_u64()
        ),
        (Some(2), Some(3))
    );
    assert!(!ran.log.contains("tune:"), "{}", ran.log);
}

#[test]
fn a_plugin_declared_unfit_for_concurrent_calls_gets_one_at_a_time_with_fixed_settings_too() {
    let api = crate::support::MockApi::start(&["--overhead-ms", "20", "--per-item-ms", "0"]);
    let origin = api.origin();
    let toml = format!(
        "[sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{origin}/items\"\n"
    );
    let job = Job::new(&guest("rust"), &crate::support::numbered_csv(20), &toml);
    let ran = job.run(&[
        "--fixed",
        "--workers",
        "7",
        "--max-workers",
        "1",
        "--batch-size",
        "1",
    ]);
    ends(&ran, "completed", 0);
    assert_eq!(api.stats()["max_in_flight"], 1);
}

#[test]
fn a_summary_that_cannot_be_printed_is_an_exit_code() {
    let job = scripted(&repeated(r#"{"do":"ok"}"#, 3), "");
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a device");
    let status = job.command(&[]).stdout(full).stderr(Stdio::null()).status();
    assert_eq!(status.expect("batchgate runs").code(), Some(5));
}

#[test]
fn a_cooldown_and_a_resend_are_said_when_they_begin() {
    let lines = repeated(r#"{"do":"rate_limited","ms":200,"on_call":1}"#, 1)
        + &repeated(
            r#"{"do":"fail","retryable":true,"message":"down","on_call":1}"#,
            1,
        );
    let toml = "[pool]\nbatch_size = 1\n[rate_limit]\nbreach_base_cooldown = 0.2\n";
    let ran = scripted(&lines, toml).run(&[]);
    ends(&ran, "completed", 0);
    assert!(
        ran.log
            .contains("the server refused a call for our rate: cooldown until"),
        "{}",
        ran.log
    );
    assert!(
        ran.log.contains("a call failed (down): sent again in 1."),
        "{}",
        ran.log
    );
    assert!(!ran.log.contains("FAILED"), "{}", ran.log);
}

#[test]
fn an_abandoned_call_is_logged_with_its_time() {
    // The first item of the batch says that the call has begun, the second never ends.
    let lines = "{\"do\":\"log\",\"n\":1,\"text\":\"begun\"}\n{\"do\":\"sleep\",\"ms\":60000}\n";
    let job = scripted(lines, "[stop]\ngrace = 0\n[usage]\ndb = \"usage.sqlite\"\n");
    let mut running = job.command(&[]).spawn().expect("batchgate runs");
    let stderr = BufReader::new(running.stderr.take().expect("piped"));
    let mut log = stderr.lines().map_while(Result::ok);
    assert!(log.any(|line| line.contains("begun")), "no call began");
    let pid = running.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill")
            .success()
    );
    let ran = Ran::of(running.wait_with_output().expect("it ends"));
    ends(&ran, "interrupted", 143);
    assert_eq!(ran.adds_up().count("unknown"), 2);
    let log = rusqlite::Connection::open(job.path("usage.sqlite")).expect("a database");
    let row = log.query_row("SELECT elapsed_seconds, outcome FROM requests", [], |row| {
        Ok((row.get::<_, f64>(0)?, row.get::<_, String>(1)?))
    });
    let (elapsed, outcome) = row.expect("one row");
    assert!(elapsed > 0.0 && outcome == "fail", "{elapsed} {outcome}");
}
