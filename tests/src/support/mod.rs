//! Runs the built program beside its stand-in API, and reads what both say.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The folder of what was built.
pub fn target() -> PathBuf {
    // target/release/deps/it-….
    let exe = std::env::current_exe().expect("a running test has a path");
    exe.ancestors().nth(3).expect("cargo's folders").to_owned()
}

/// A component that `make guests` built.
pub fn guest(name: &str) -> PathBuf {
    let path = target().join("guests").join(format!("{name}.wasm"));
    assert!(
        path.exists(),
        "{} is missing: run `make guests`",
        path.display()
    );
    path
}

/// The program.
pub fn batchgate() -> Command {
    let path = target().join("release/batchgate");
    assert!(
        path.exists(),
        "{} is missing: run `make build`",
        path.display()
    );
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).env_remove("BATCHGATE_LOG");
    command
}

/// A stand-in API in a process of its own.
pub struct MockApi {
    child: Child,
    /// Its base URL.
    pub url: String,
}

impl MockApi {
    /// Starts one on a free port.
    pub fn start(options: &[&str]) -> Self {
        let mut child = batchgate()
            .args(["mock-api", "--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("mock-api starts");
        let stdout = child.stdout.as_mut().expect("piped");
        let mut url = String::new();
        BufReader::new(stdout)
            .read_line(&mut url)
            .expect("its first line is the URL");
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://"), "mock-api says {url:?}");
        Self { child, url }
    }

    /// The scheme, host and port, as `allow_hosts` names them.
    pub fn origin(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    /// The body of a page.
    pub fn get(&self, path: &str) -> String {
        let host = self.origin().trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).expect("mock-api listens");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        assert!(head.contains(" 200 "), "{path}: {head}");
        body.to_owned()
    }

    /// Its statistics.
    pub fn stats(&self) -> Value {
        serde_json::from_str(&self.get("/stats")).expect("stats are JSON")
    }

    /// Its log, a row a request, in the order of arrival.
    pub fn log(&self) -> Vec<Value> {
        lines(&self.get("/log"))
    }

    /// How often each key was stored.
    pub fn keys(&self) -> std::collections::BTreeMap<String, u64> {
        let row = |row: Value| {
            let key = row["key"].as_str().expect("a key").to_owned();
            (key, row["times"].as_u64().expect("a count"))
        };
        lines(&self.get("/keys")).into_iter().map(row).collect()
    }
}

impl Drop for MockApi {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// JSON lines.
pub fn lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().filter(|l| !l.is_empty()).map(parse).collect()
}

/// A folder with a job file and its input.
pub struct Job {
    /// The folder.
    pub dir: TempDir,
}

impl Job {
    /// A job that runs `component` over `input` (CSV with a column `id`), with further lines of TOML.
    pub fn new(component: &Path, input: &str, toml: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("input.csv"), input).expect("input written");
        let job = format!(
            "component = {component:?}\ninput = \"input.csv\"\n{toml}",
            component = component.to_str().expect("UTF-8 path")
        );
        std::fs::write(dir.path().join("job.toml"), job).expect("job written");
        Self { dir }
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command that runs it.
    pub fn command(&self, options: &[&str]) -> Command {
        let mut command = batchgate();
        command
            .arg("run")
            .arg(self.path("job.toml"))
            .args(["--json", "--log-format", "text"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, options: &[&str]) -> Ran {
        Ran::of(self.command(options).output().expect("batchgate runs"))
    }
}

/// What a run said.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code.
    pub code: i32,
    /// The summary.
    pub summary: Value,
    /// The log.
    pub log: String,
}

impl Ran {
    /// Reads the output of a run.
    pub fn of(output: Output) -> Self {
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let stdout = String::from_utf8(output.stdout).expect("JSON is UTF-8");
        let summary = match stdout.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}\n{log}")),
        };
        assert!(!log.contains("a fault in the host"), "{log}");
        Self {
            code: output.status.code().unwrap_or(-1),
            summary,
            log,
        }
    }

    /// A count of the summary.
    pub fn count(&self, name: &str) -> u64 {
        self.summary[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// Checks that the summary adds up.
    pub fn adds_up(&self) -> &Self {
        let parts = ["written", "skipped", "failed", "unknown", "not_dispatched"];
        let sum: u64 = parts.iter().map(|part| self.count(part)).sum();
        assert_eq!(self.count("items"), sum, "{self:?}");
        self
    }
}

/// A CSV with a column `id` that counts from 0, and one of text.
pub fn numbered_csv(rows: usize) -> String {
    let mut text = String::from("id,name\n");
    for row in 0..rows {
        text.push_str(&format!("{row},name {row}\n"));
    }
    text
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "a median of something");
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
