//! Memory does not grow with the input, and little with the calls in flight.

use crate::support::{Job, MockApi, batchgate, guest, numbered_csv};
use std::io::{BufWriter, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Peak resident memory, in MB, of a run over so many lines from stdin.
fn peak(lines: usize) -> u64 {
    let mut running = batchgate()
        .args([
            "run",
            "--input",
            "-",
            "--format",
            "lines",
            "--json",
            "--component",
        ])
        .arg(guest("noop"))
        .args(["--workers", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("batchgate runs");
    let mut stdin = BufWriter::new(running.stdin.take().expect("piped"));
    for n in 0..lines {
        writeln!(stdin, "{n:0>100}").expect("read on");
    }
    // Nearly all is through: what the buffers hold is bounded.
    stdin.flush().expect("read on");
    let kb = peak_kb(&running);
    drop(stdin);
    assert!(running.wait().expect("it ends").success());
    kb / 1024
}

/// Peak resident memory of a process that runs.
fn peak_kb(running: &Child) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", running.id())).expect("it runs still");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("a peak");
    let kb = line.split_whitespace().nth(1).expect("a number");
    kb.parse().expect("a number")
}

/// Peak resident memory, in kB, of a run with so many calls in flight, all of which wait for their answer.
fn peak_in_flight(component: &str, calls: usize, sandbox: &str) -> u64 {
    let api = MockApi::start(&["--overhead-ms", "600000"]);
    let toml = format!(
        "key = \"id\"\n[pool]\nworkers = {calls}\nbatch_size = 1\n[sandbox]\nallow_hosts = [\"{}\"]\n{sandbox}\n\
         [config]\napi_url = \"{}/items\"\n",
        api.origin(),
        api.url
    );
    let job = Job::new(&guest(component), &numbered_csv(calls), &toml);
    let command = job.command(&["--fixed"]);
    // Each call takes a file, and a shell often gives a process fewer than it may have.
    let mut running = Command::new("prlimit")
        .arg("--nofile=256:")
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prlimit runs");
    let until = Instant::now() + Duration::from_secs(100);
    while api.stats()["max_in_flight"].as_u64() < Some(calls as u64) {
        let ended = running.try_wait().expect("it is ours");
        assert!(ended.is_none(), "it ended early: {ended:?}");
        assert!(Instant::now() < until, "not all calls were sent");
        std::thread::sleep(Duration::from_millis(50));
    }
    let kb = peak_kb(&running);
    running.kill().expect("it runs still");
    running.wait().expect("it ends");
    kb
}

#[test]
fn a_call_in_flight_takes_little_memory() {
    for (component, sandbox, most_kb) in [
        ("rust", "", 120),
        ("rust-async", "calls_per_instance = 1000", 45),
    ] {
        let (few, many) = (500, 2000);
        let [few_kb, many_kb] = [few, many].map(|calls| peak_in_flight(component, calls, sandbox));
        let each = many_kb.saturating_sub(few_kb) / (many - few) as u64;
        assert!(
            each <= most_kb,
            "{component}: {each} kB a call, {many_kb} kB for {many}"
        );
        assert!(
            many_kb < 300 << 10,
            "{component}: {many_kb} kB for {many} calls"
        );
    }
}

#[test]
fn two_million_lines_take_no_more_memory_than_two_hundred_thousand() {
    let (few, many) = (peak(200_000), peak(2_000_000));
    assert!(many < 150, "{many} MB");
    assert!(many <= few + 20, "{many} MB against {few} MB");
}
