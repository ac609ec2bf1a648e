//! The sandbox as the program shows it: its log, its files, its exit codes, and the caps that it puts on HTTP.

use super::server::Server;
use super::{Arc, Duration, Instant, block_on};
use crate::support::{Job, Ran, batchgate, guest, numbered_csv, target};
use std::path::Path;

/// A job of a guest over JSON lines.
fn job(name: &str, lines: &[&str], toml: &str) -> Job {
    let lines = lines.join("\n");
    let job = Job::new(&guest(name), &lines, &format!("format = \"jsonl\"\n{toml}"));
    std::fs::write(job.path("input.csv"), lines + "\n").unwrap();
    job
}

/// Runs a job while the runtime of its server goes on.
async fn run(job: Job, options: &'static [&'static str]) -> (Job, Ran) {
    let running = tokio::task::spawn_blocking(move || {
        let ran = job.run(options);
        (job, ran)
    });
    running.await.unwrap()
}

const ONE: &str = "[pool]\nbatch_size = 1\nmax_consecutive_failures = 1000\n";

#[test]
fn a_guests_lines_can_neither_forge_nor_move() {
    let forged = r#"{"do":"log","n":3,"text":"[batches] all 99 written\u001b[2J\u001b]0;title\u0007\r\u0085\u2028\u202Etxt\u009b1A","out":OUT}"#;
    let (out, err) = (
        forged.replace("OUT", "true"),
        forged.replace("OUT", "false"),
    );
    let forging = job("scripted", &[&out, &err], ONE);
    let ran = forging.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.log);
    let lines: Vec<_> = ran
        .log
        .lines()
        .filter(|line| line.contains("all 99 written"))
        .collect();
    assert_eq!(lines.len(), 6, "{}", ran.log);
    for line in lines {
        assert!(line.starts_with("[batches#0] [batches] all 99"), "{line}");
    }
    let moving = |c: char| c.is_control() && c != '\n' || "\u{2028}\u{2029}\u{202e}".contains(c);
    assert!(!ran.log.contains(moving), "{:?}", ran.log);

    let mut command = batchgate();
    command
        .arg("run")
        .arg(forging.path("job.toml"))
        .args(["--json", "--log-format", "json"]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.log);
    assert!(!ran.log.contains(moving), "{:?}", ran.log);
    let mut shown = 0;
    for line in ran.log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["message"].as_str().unwrap().contains("all 99 written") {
            assert_eq!(line["label"], "batches#0");
            shown += 1;
        }
    }
    assert_eq!(shown, 6, "{}", ran.log);
}

/// File work of guests runs on the runtime's threads for blocking work, and may never end.
#[test]
fn a_run_ends_while_every_blocking_thread_is_taken() {
    use batchgate::job::{Ready, RunMode, Shared};
    let job = Job::new(
        &guest("noop"),
        &numbered_csv(10),
        "[pool]\nfailures_csv = \"failed.csv\"",
    );
    // Compiled before: this program is none that compiles.
    super::load(&guest("noop"), &super::SandboxConfig::default());
    let mode = RunMode {
        cache_dir: Some(target().join("sandbox-cache")),
        ..RunMode::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || held.recv());
    let summary = runtime.block_on(async {
        let config = batchgate::config::Job::load(&job.path("job.toml"), &Default::default());
        let shared = Shared::new(None, None).unwrap();
        let running = async {
            let ready = Ready::prepare(config.unwrap(), &shared, mode)
                .await
                .unwrap();
            ready.run(Default::default(), |_| {}).await
        };
        tokio::time::timeout(Duration::from_secs(60), running).await
    });
    drop(release);
    assert_eq!(summary.expect("it ends").written, 10);
}

/// A guest that reads a pipe in each of more calls than there are threads for blocking work.
#[test]
fn pipes_in_folders_hold_up_nobody() {
    let pipe = job(
        "scripted",
        &[r#"{"do":"read","path":"/d/pipe"}"#; 20],
        "[pool]\nbatch_size = 1\nmax_batch_retries = 0\nmax_consecutive_failures = 1000\n\
         [sandbox]\ncall_timeout = 30\ndirs = [\"d::/d::rw\"]",
    );
    std::fs::create_dir(pipe.path("d")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(pipe.path("d/pipe"))
        .status();
    assert!(made.unwrap().success());
    let ran = pipe.run(&[]);
    assert_eq!(ran.count("unknown"), 0, "{}", ran.log);
    assert!(ran.log.contains("not permitted"), "{}", ran.log);
    assert!(!ran.log.contains("exceeded"), "{}", ran.log);
}

#[test]
fn folders_that_hold_what_the_host_relies_on_are_refused() {
    let wide = job("noop", &["{}"], "[sandbox]\ndirs = [\".::/d::rw\"]");
    for options in [&["--check"][..], &[]] {
        let ran = wide.run(options);
        assert_eq!(ran.code, 2, "{}", ran.log);
        let said: Vec<_> = ran.log.lines().collect();
        assert_eq!(said.len(), 1, "{}", ran.log);
        let named = said[0].contains("job.toml:5: [sandbox] dirs: the component may write to ")
            && said[0].contains("which holds the job file, ");
        assert!(named, "{}", ran.log);
    }
}

#[test]
fn a_flood_of_lines_is_counted_and_said_once() {
    let ran = job(
        "scripted",
        &[r#"{"do":"log","n":20000,"text":"again"}"#],
        ONE,
    )
    .run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.log);
    let count = |text: &str| ran.log.lines().filter(|line| line.contains(text)).count();
    let shown = count("again");
    assert!((100..2000).contains(&shown), "{shown}");
    assert_eq!(
        count("the surplus is counted and not shown"),
        1,
        "{}",
        ran.log
    );
    let surplus = format!("{} log lines of the plugin were not shown", 20_000 - shown);
    assert_eq!(count(&surplus), 1, "{surplus}: {}", ran.log);
}

#[test]
fn answers_that_do_not_fit_the_batch_are_put_right_and_said() {
    let ran = job("scripted", &[r#"{"do":"ok_n","n":99}"#], ONE).run(&[]);
    assert_eq!((ran.code, ran.adds_up().count("written")), (0, 1));
    let clamped = "says that it wrote 99 items of a call with 1: counted as 1";
    assert!(ran.log.contains(clamped), "{}", ran.log);

    // Indexes 0 to 3, each twice, of a batch with 0 and 1.
    let job = job(
        "partial_flood",
        &["8", "8"],
        "[pool]\nmax_item_attempts = 1\n",
    );
    let ran = job.run(&[]);
    assert_eq!(
        (ran.code, ran.adds_up().count("failed")),
        (1, 2),
        "{}",
        ran.log
    );
    let ignored = "4 name no item of the call, 2 repeat one";
    assert!(ran.log.contains(ignored), "{}", ran.log);
}

/// A trap stops a run with "abort", and takes no call in flight with it.
#[test]
fn calls_in_flight_end_when_another_traps() {
    let slow = r#"{"do":"sleep","ms":700}"#;
    let lines = [slow, slow, slow, r#"{"do":"trap"}"#, slow, slow, slow, slow];
    let toml = "[pool]\nbatch_size = 1\nworkers = 4\n";
    let ran = job("scripted", &lines, toml).run(&["--fixed"]);
    assert_eq!(ran.summary["stopped"], "trap", "{}", ran.log);
    let counts = ["written", "unknown", "not_dispatched"].map(|name| ran.adds_up().count(name));
    assert_eq!((ran.code, counts), (4, [3, 1, 4]), "{}", ran.log);
}

/// Every file of a folder, but one.
fn all_files(folder: &Path, but: &str) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .filter(|path| path.is_file() && path.file_name().unwrap() != but)
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

const SECRET: &str = "s3cr3t-VALUE-of-42";

#[test]
fn secrets_are_in_no_log_summary_error_or_store() {
    let stores = "summary = \"summary.json\"\nrejects_csv = \"rejects.csv\"\n\
        [pool]\nbatch_size = 1\non_trap = \"fail\"\nmax_consecutive_failures = 1000\nfailures_csv = \"failures.csv\"\n\
        failed_items = \"failed.jsonl\"\n[usage]\ndb = \"usage.sqlite\"\n[journal]\ndb = \"journal.sqlite\"\n\
        [control]\ndb = \"control.sqlite\"\n[config]\ntoken = { env = \"BATCHGATE_TEST_TOKEN\" }\n";
    let told = [r#"{"do":"config","name":"token"}"#; 2];
    let telling = job("scripted", &told, stores);
    let run = |job: &Job, options: &[&str]| {
        let mut command = job.command(options);
        let output = command
            .env("BATCHGATE_TEST_TOKEN", SECRET)
            .output()
            .unwrap();
        (Ran::of(output.clone()), output)
    };
    let (ran, output) = run(&telling, &["--log-level", "trace"]);
    assert_eq!(
        (ran.code, ran.adds_up().count("failed")),
        (1, 2),
        "{}",
        ran.log
    );
    let failures = std::fs::read_to_string(telling.path("failures.csv")).unwrap();
    assert!(failures.contains("(secret token)"), "{failures}");
    let files = all_files(telling.dir.path(), "");
    assert!(
        files.len() >= 7,
        "{:?}",
        files.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    for (name, bytes) in files.iter().chain(&[
        ("stdout".to_owned(), output.stdout),
        ("stderr".to_owned(), output.stderr),
    ]) {
        assert!(!holds(bytes, SECRET), "{name}");
    }

    // What the guest writes, panics with, or asks for by name; its input holds it as well.
    let lines = [
        format!(r#"{{"do":"log","n":1,"text":"Bearer {SECRET}"}}"#),
        format!(r#"{{"do":"trap","message":"with {SECRET}"}}"#),
        format!(r#"{{"do":"get","url":"http://{SECRET}.example/"}}"#),
        format!(r#"{{"do":"item_fail","message":"{SECRET}"}}"#),
    ];
    let leaking = job("scripted", &lines.each_ref().map(String::as_str), stores);
    let (ran, output) = run(&leaking, &["--log-level", "trace"]);
    assert!(ran.log.contains("Bearer (secret token)"), "{}", ran.log);
    let failures = std::fs::read(leaking.path("failures.csv")).unwrap();
    for bytes in [output.stdout, output.stderr, failures] {
        let text = String::from_utf8(bytes).unwrap().to_lowercase();
        assert!(!text.contains(&SECRET.to_lowercase()), "{text}");
    }
    // The variable must be there.
    let output = leaking
        .command(&[])
        .env_remove("BATCHGATE_TEST_TOKEN")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn what_does_not_fit_is_exit_2_with_a_line_that_names_it() {
    let table = [
        ("core_module", "is a core WebAssembly module"),
        ("wrong_world", "it exports example:tool/tool@1.0.0"),
        ("wrong_version", "exports batchgate:batch/processor@9.0.0"),
        ("unknown_import", "imports example:magic/wand@1.0.0"),
        (
            "start_loop",
            "cannot be started: cpu_timeout of 0.2 s exceeded",
        ),
        (
            "memory_huge",
            "cannot be started: memory limit of 256 MiB exceeded (memory)",
        ),
    ];
    for (name, expected) in table {
        let ran = job(name, &["{}"], "[sandbox]\ncpu_timeout = 0.2\n").run(&["--no-cache"]);
        assert_eq!(ran.code, 2, "{name}: {}", ran.log);
        assert_eq!(ran.log.lines().count(), 1, "{name}: {}", ran.log);
        assert!(ran.log.contains(expected), "{name}: {}", ran.log);
        if !expected.contains("started") {
            let inspected = batchgate()
                .arg("inspect")
                .arg(guest(name))
                .output()
                .unwrap();
            let said = String::from_utf8(inspected.stderr).unwrap();
            assert_eq!(inspected.status.code(), Some(2), "{name}");
            assert!(said.contains(expected), "{name}: {said}");
        }
    }
}

fn gets(server: &Server, count: usize) -> Vec<String> {
    vec![format!(r#"{{"do":"get","url":"{}"}}"#, server.url()); count]
}

fn allowing(server: &Server) -> String {
    format!("[sandbox]\nallow_hosts = [\"{}\"]\n", server.url())
}

/// With `scope = "http"` requests are counted, and their waits are in no timeout and no latency.
#[test]
fn caps_count_requests_or_calls() {
    block_on(async {
        let server = Server::slow(10).await;
        let cap = "[pool]\nbatch_size = 1\nworkers = 8\nmax_consecutive_failures = 1000\n[usage]\ndb = \"usage.sqlite\"\n\
            [rate_limit]\nmax_per_sec = 4\nscope = \"http\"\n";
        let lines = gets(&server, 12);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let toml = format!("{cap}{}call_timeout = 1\n", allowing(&server));
        let started = Instant::now();
        let (job, ran) = run(job("scripted", &lines, &toml), &["--fixed"]).await;
        let took = started.elapsed();
        assert_eq!(ran.adds_up().count("failed"), 12, "{}", ran.log);
        assert_eq!(server.heads().len(), 12);
        assert!(
            took >= Duration::from_secs(2),
            "12 requests at 4 a second took {took:?}"
        );
        let database = rusqlite::Connection::open(job.path("usage.sqlite")).unwrap();
        let longest: f64 = database
            .query_row("SELECT max(elapsed_seconds) FROM requests", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert!(
            longest < took.as_secs_f64() / 2.0,
            "waits count as latency: {longest} s of {took:?}"
        );

        // Calls that request nothing are not held back; by calls they are.
        let noop = vec!["{}"; 100];
        let started = Instant::now();
        let (_, ran) = run(self::job("noop", &noop, cap), &["--fixed"]).await;
        assert_eq!((ran.code, ran.count("calls")), (0, 100), "{}", ran.log);
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{:?}",
            started.elapsed()
        );
        let calls = cap.replace("\"http\"", "\"call\"");
        let started = Instant::now();
        let (_, ran) = run(self::job("noop", &noop[..12], &calls), &["--fixed"]).await;
        assert_eq!(ran.code, 0, "{}", ran.log);
        assert!(
            started.elapsed() >= Duration::from_secs(2),
            "{:?}",
            started.elapsed()
        );
    });
}

/// The plugin reports nothing of it.
#[test]
fn a_refusal_seen_on_the_wire_starts_the_cooldown_unless_the_job_says_not_to() {
    block_on(async {
        for (watch, breaches, failed) in [(true, 1, 2), (false, 0, 2)] {
            let refused = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let server = Server::start(move |_, connection| {
                let first = !refused.swap(true, std::sync::atomic::Ordering::SeqCst);
                async move {
                    match first {
                        true => {
                            connection
                                .answer("429 Too Many Requests", "retry-after: 1\r\n", "")
                                .await
                        }
                        false => connection.answer("200 OK", "", "fine").await,
                    }
                }
            })
            .await;
            let lines = gets(&server, 2);
            let toml = format!(
                "{ONE}[rate_limit]\nbreach_base_cooldown = 1\nwatch_http = {watch}\n{}",
                allowing(&server)
            );
            let started = Instant::now();
            let (_, ran) = run(
                job("scripted", &[&lines[0], &lines[1]], &toml),
                &["--fixed"],
            )
            .await;
            assert_eq!(
                (ran.adds_up().count("breaches"), ran.count("failed")),
                (breaches, failed),
                "{watch}: {}",
                ran.log
            );
            // The refused batch goes again.
            assert_eq!(server.heads().len() as u64, 2 + breaches, "{watch}");
            if watch {
                assert!(started.elapsed() >= Duration::from_secs(1), "{}", ran.log);
            }
        }
    });
}

/// With no call by the plugin: the first answer uses up the minute, and the second call waits for the next.
#[test]
fn bytes_on_the_wire_use_up_the_minute() {
    block_on(async {
        let server = Server::start(|_, connection| async move {
            connection.answer("200 OK", "", &"x".repeat(50_000)).await;
        })
        .await;
        let after = async |cap: &str| {
            server.requests.lock().unwrap().clear();
            let lines = gets(&server, 3);
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let toml = format!("{ONE}[rate_limit]\n{cap}{}", allowing(&server));
            let job = job("scripted", &lines, &toml);
            let mut child = job.command(&["--fixed"]).spawn().unwrap();
            let started = Instant::now();
            while server.heads().len() < 3
                && (server.heads().is_empty() || started.elapsed() < Duration::from_secs(3))
                && started.elapsed() < Duration::from_secs(60)
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            server.heads().len()
        };
        assert_eq!(after("max_bytes_per_min = 40000\n").await, 1);
        assert_eq!(after("max_bytes_per_min = \"10 MB\"\n").await, 3);
        assert_eq!(
            after("max_bytes_per_min = 40000\ncount_http_bytes = false\n").await,
            3
        );
    });
}
