//! Memory does not grow with the input.

use crate::support::{batchgate, guest};
use std::io::{BufWriter, Write};
use std::process::Stdio;

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
    // Nearly all is through: what the buffers hold is bounded. Its peak stands in the process's status.
    stdin.flush().expect("read on");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", running.id())).expect("it runs still");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("a peak");
    let kb: u64 = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    drop(stdin);
    assert!(running.wait().expect("it ends").success());
    kb / 1024
}

#[test]
fn two_million_lines_take_no_more_memory_than_two_hundred_thousand() {
    let (few, many) = (peak(200_000), peak(2_000_000));
    assert!(many < 150, "{many} MB");
    assert!(many <= few + 20, "{many} MB against {few} MB");
}
