use std::collections::BTreeSet;

use clap::Parser;

use super::*;
use crate::config::{Filled, Origin};

#[derive(Debug, Parser)]
#[command(name = "run", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    options: RunOptions,
}

fn parse(arguments: &[&str]) -> Result<RunOptions, String> {
    Line::try_parse_from(arguments)
        .map(|line| line.options)
        .map_err(|e| e.to_string())
}

fn load(arguments: &[&str]) -> Result<Job, String> {
    let jobs = parse(arguments)?.load_jobs().map_err(|e| e.to_string())?;
    jobs.into_iter().next().ok_or_else(|| "no job".to_owned())
}

/// Without the places of the values, which differ between file and command line.
fn placeless(mut job: Job) -> Job {
    job.filled = Filled::default();
    let sandbox = &mut job.sandbox;
    for entry in sandbox.allow_hosts.iter_mut().chain(&mut sandbox.env) {
        entry.origin = Origin::Option(String::new());
    }
    for dir in &mut sandbox.dirs {
        dir.origin = Origin::Option(String::new());
    }
    job
}

/// An option, its value in a file, and on the command line if that is written otherwise.
const EVERY_OPTION: &str = r#"
    label              | "orders"
    component          | "/p/other.wasm"
    input              | "/p/other.csv"
    format             | "jsonl"
    delimiter          | "tab"
    key                | "id"
    max-item-bytes     | "1 MiB"
    rejects-csv        | "/p/rejects.csv"
    summary            | "/p/summary.json"
    batch-size         | 20
    workers            | 3
    max-batch-bytes    | 1_000_000
    max-consecutive-failures | 9
    max-failed-items   | "2.5%"
    bisect-on-failure  | true
    bisect-min-size    | 2
    max-batch-retries  | 0
    max-item-attempts  | 4
    on-trap            | "fail"
    failures-csv       | "/p/failures.csv"
    failed-items       | "/p/failed.jsonl"
    describe           | "component"
    controller         | "history"
    max-workers        | 32
    min-workers        | 2
    max-batch-size     | 200
    min-batch-size     | 5
    batch-step         | 0
    max-batch-seconds  | 30
    batch-seconds-headroom | 0.6
    congestion-ratio   | 2
    good-ratio         | 1.1
    worker-probe-min-ratio | 1.01
    batch-probe-min-ratio  | 0.9
    worker-decrease    | 0.6
    batch-decrease     | 0.4
    min-window         | 6
    max-window         | 50
    target-log-se      | 0.1
    baseline-epochs    | 4
    ceiling-ttl-epochs | 11
    history-ttl-windows | 21
    target-latency     | 1.5
    tuner-memory       | "/p/tuner.sqlite"
    max-per-sec        | 0.5
    max-bytes-per-min  | "10MB"
    max-per-day        | 10_000
    day-time-zone      | "America/Los_Angeles"
    day-resets-at      | "06:30"
    state-file         | "/p/state.json"
    breach-base-cooldown | 0.5
    breach-max-doublings | 1
    breach-quiet-window  | 10
    max-cooldown       | 100
    park               | false
    on-breach          | "fail"
    max-breach-resends | 3
    scope              | "http"
    watch-http         | false
    count-http-bytes   | false
    rate-limit-name    | "crm"
    control-db         | "/p/control.sqlite"
    control-poll-seconds | 0.2
    usage-db           | "/p/usage.sqlite"
    journal-db         | "/p/journal.sqlite"
    journal-unknown    | "hold"
    grace              | 5
    memory             | "64 MiB"
    call-timeout       | 20
    cpu-timeout        | 0.5
    max-calls-per-instance | 1000
    max-instance-memory | "32 MiB"
    calls-per-instance | 100
    max-stack          | "2 MiB"
    max-table-elements | 5000
    max-tables         | 5
    max-instances      | 50
    max-resources      | 100
    max-component-bytes | "64 MB"
    max-compile-memory | "1 GiB"
    max-compile-time | 30
    max-error-bytes    | 1000
    max-partial-items  | 1000
    max-log-line       | 500
    max-log-lines-per-sec | 0
    max-header-bytes   | 4096
    max-random-bytes   | 4096
    allow-hosts        | ["https://a", "http://b:1"] | https://a http://b:1
    ca-file            | "/p/ca.pem"
    connect-timeout    | 1
    idle-timeout       | 2
    max-connections-per-host | 16
    dirs               | ["/p/data::/data", "/p/out::/out::rw"] | /p/data::/data /p/out::/out::rw
    env                | ["HOME", "LANG"] | HOME LANG
    sockets            | true
    budget-min         | 2
    budget-desired     | 5
    budget-max         | 50
    budget-max-tasks-per-minute | 600
    budget-scale-seconds | 1
    budget-scale-step  | 0.1
    budget-current-seconds | 2
    budget-history-seconds | 20
    budget-memory      | "1 GiB"
    budget-memory-threshold | 0.8
    budget-system-memory-threshold | 0.9
    budget-cpu-threshold | 0.9
    budget-lag-threshold | 0.1
    budget-breach-threshold | 0
    budget-memory-limit | 0.3
    budget-cpu-limit   | 0.5
    budget-lag-limit   | 0.5
    budget-breach-limit | 0.5
    share-weight       | 2.5
    share-guarantee    | 2
    share-limit        | 10
    share-max-tasks-per-minute | 60
"#;

#[test]
fn every_option_means_the_same_in_a_file_and_on_the_command_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("job.toml");
    let file = file.to_str().expect("a plain name");
    let write = |lines: &str| {
        let start = if lines.starts_with("component") {
            ""
        } else {
            "component = '/p/c.wasm'\n"
        };
        let input = if lines.starts_with("input") {
            ""
        } else {
            "input = '/p/i.csv'\n"
        };
        std::fs::write(file, format!("{start}{input}{lines}\n")).expect("the folder is writable");
    };
    let definitions: Vec<Definition> = chapters()
        .into_iter()
        .flat_map(|chapter| chapter.definitions)
        .collect();
    let mut seen = BTreeSet::new();
    for line in EVERY_OPTION
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let mut columns = line.split(" | ").map(str::trim);
        let option = columns.next().expect("an option");
        let value = columns.next().expect(option);
        let arguments = columns.next().unwrap_or(value.trim_matches('"'));
        let definition = definitions
            .iter()
            .find(|d| d.option() == option)
            .expect(option);
        seen.insert(option);

        let Definition { table, key, .. } = definition;
        let assignment = match *table {
            "" => format!("{key} = {value}"),
            table => format!("{table}.{key} = {value}"),
        };
        write(&assignment);
        let from_file = load(&[file]).expect(line);
        write("");
        let values: Vec<&str> = match definition.shape {
            Shape::Many => arguments.split(' ').collect(),
            _ => vec![arguments],
        };
        let options: Vec<String> = values.iter().map(|v| format!("--{option}={v}")).collect();
        let mut command_line = vec![file];
        command_line.extend(options.iter().map(String::as_str));
        let from_options = load(&command_line).expect(line);

        assert!(from_options.filled.given(table, key), "{line}");
        assert_ne!(
            placeless(from_file.clone()),
            placeless(load(&[file]).expect("no option")),
            "{line}"
        );
        assert_eq!(placeless(from_file), placeless(from_options), "{line}");
    }
    let all: Vec<String> = definitions.iter().map(Definition::option).collect();
    let missing: Vec<&String> = all.iter().filter(|o| !seen.contains(o.as_str())).collect();
    assert!(missing.is_empty(), "not tried: {missing:?}");
}

#[test]
fn a_job_needs_no_file() {
    let job = load(&[
        "--component=c.wasm",
        "--input",
        "-",
        "--delimiter",
        ";",
        "--bisect-on-failure",
        "--park=false",
        "--config-set",
        "url=http://a?b=c",
        "--config-set",
        "empty=",
        "--control-db",
        "c.sqlite",
    ])
    .expect("valid");
    // Relative to the current folder, so as they are.
    assert_eq!(job.top.component, PathBuf::from("c.wasm"));
    assert_eq!(job.control.db, Some(PathBuf::from("c.sqlite")));
    assert_eq!(job.top.delimiter, b';');
    assert!(job.pool.bisect_on_failure && !job.rate_limit.park);
    let values: Vec<_> = job
        .config
        .values()
        .iter()
        .map(|(k, v)| (k.as_str(), v.reveal()))
        .collect();
    assert_eq!(values, [("empty", ""), ("url", "http://a?b=c")]);
}

#[test]
fn options_beat_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("job.toml");
    let text = "component = 'c'\ninput = 'i'\npool.workers = 3\nsandbox.allow_hosts = ['https://a']\n\
                [config]\na = { env = 'BATCHGATE_NOT_SET' }\nb = 'file'\n";
    std::fs::write(&file, text).expect("the folder is writable");
    let file = file.to_str().expect("a plain name");
    let job = load(&[file, "--workers=4", "--allow-hosts=", "--config-set", "a=1"]).expect("valid");
    assert_eq!(job.pool.workers, 4);
    assert!(job.sandbox.allow_hosts.is_empty());
    let values: Vec<_> = job
        .config
        .values()
        .iter()
        .map(|(k, v)| (k.as_str(), v.reveal()))
        .collect();
    assert_eq!(values, [("a", "1"), ("b", "file")]);
    let both = load(&[
        file,
        "--config-set",
        "a=1",
        "--allow-hosts",
        "https://b",
        "--allow-hosts",
        "https://c",
    ]);
    let hosts: Vec<String> = both
        .expect("valid")
        .sandbox
        .allow_hosts
        .into_iter()
        .map(|entry| entry.text)
        .collect();
    assert_eq!(hosts, ["https://b", "https://c"]);
}

#[test]
fn options_are_refused_like_values_of_a_file() {
    let table: [(&[&str], &str); 14] = [
        (
            &["--workers", "0"],
            "--workers: must be a whole number from 1 to 4294967295, not \"0\"",
        ),
        (
            &["--workers", "-1"],
            "--workers: must be a whole number from 1 to 4294967295, not \"-1\"",
        ),
        (
            &["--workers", "2.5"],
            "--workers: must be a whole number from 1 to 4294967295, not \"2.5\"",
        ),
        (
            &["--workers", "1e3"],
            "--workers: must be a whole number from 1 to 4294967295, not \"1e3\"",
        ),
        (
            &["--workers", "99999999999999999999999999999999999999999"],
            "--workers: must be a whole number",
        ),
        (
            &["--grace", "nan"],
            "--grace: must be a number of seconds from 0 to 31536000, not \"nan\"",
        ),
        (
            &["--grace", "infinity"],
            "--grace: must be a number of seconds from 0 to 31536000",
        ),
        (
            &["--grace", "-1"],
            "--grace: must be a number of seconds from 0 to 31536000, not \"-1\"",
        ),
        (
            &["--memory", "16 megs"],
            "--memory: must be a size from 64 KiB to 4 GiB",
        ),
        (
            &["--park=yes"],
            "--park: must be true or false, not \"yes\"",
        ),
        (
            &["--input", ""],
            "--input: must be a path, or \"-\" for standard input, not \"\"",
        ),
        (
            &["--share-guarantee=5", "--share-limit=4"],
            "--share-guarantee: 5 is above limit = 4; lower it or raise limit",
        ),
        (
            &["--rate-limit-name=crm", "--max-per-sec=4"],
            "--max-per-sec: this job takes the limiter \"crm\"",
        ),
        (
            &["--min-workers=5", "--max-workers=4"],
            "--min-workers: 5 is above max_workers = 4",
        ),
    ];
    for (arguments, expected) in table {
        let mut line = vec!["--component=c"];
        if arguments[0] != "--input" {
            line.push("--input=i");
        }
        line.extend(arguments);
        let error = load(&line).expect_err(expected);
        assert!(
            error.starts_with(expected) && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn usage_errors() {
    let table: [(&[&str], &str); 8] = [
        (&["--log-format", "xml"], "possible values: text, json"),
        (&["--wrokers", "2"], "--workers"),
        (
            &["--workers", "2", "--workers", "3"],
            "cannot be used multiple times",
        ),
        (&["--config-set", "s3cret"], "--config-set needs KEY=VALUE"),
        (&["--config-set", "=s3cret"], "--config-set needs KEY=VALUE"),
        (&["--limit", "0"], "--limit"),
        (&["--check", "--dry-run"], "cannot be used with"),
        (&["--workers"], "a value is required"),
    ];
    for (arguments, expected) in table {
        let error = parse(arguments).expect_err(expected);
        assert!(
            error.contains(expected) && !error.contains("s3cret"),
            "{error}"
        );
    }
}

#[test]
fn options_of_one_job_are_refused_for_several() {
    let arguments = [
        "a.toml",
        "b.toml",
        "--input=i",
        "--journal-db=j",
        "--workers=3",
    ];
    let error = parse(&arguments)
        .expect("well-formed")
        .load_jobs()
        .expect_err("two jobs")
        .to_string();
    let lines: Vec<&str> = error.lines().collect();
    let message = "makes no sense for several jobs; set it in the job files, or run one job";
    assert_eq!(
        lines[..2],
        [
            format!("--input: {message}"),
            format!("--journal-db: {message}")
        ]
    );
    assert_eq!(
        lines[2..],
        [
            "a.toml: no such file; check the path",
            "b.toml: no such file; check the path"
        ]
    );
}

#[test]
fn help_tells_each_option_with_its_default() {
    use clap::CommandFactory;
    let mut command = Line::command();
    command.build();
    command.clone().debug_assert();
    let short = command.render_help().to_string();
    assert!(
        short.lines().count() < 60
            && short.contains("--component")
            && !short.contains("--max-window")
    );
    let long = command
        .render_long_help()
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for definition in chapters()
        .into_iter()
        .flat_map(|chapter| chapter.definitions)
    {
        let text: Vec<String> = long_help(&definition)
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert!(
            long.contains(&format!("--{}", definition.option())),
            "{definition:?}"
        );
        assert!(long.contains(&text.join(" ")), "{definition:?}");
    }
}
