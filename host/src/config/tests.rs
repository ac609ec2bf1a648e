use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::*;
use crate::config::kind::Kind;
use crate::config::raw::{Raw, RawValue};
use crate::config::table::Table;
use crate::source::Input;

/// The start of every job file here; what a test adds begins on line 3.
const START: &str = "component = \"c.wasm\"\ninput = \"i.csv\"\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("the folder is writable");
        path
    }

    /// An error's text, with the folder's name left out.
    fn text(&self, error: &ConfigError) -> String {
        error
            .to_string()
            .replace(&format!("{}/", self.0.path().display()), "")
    }

    fn load(&self, content: impl AsRef<[u8]>) -> Result<Job, String> {
        let path = self.write("job.toml", content);
        let environment = |name: &str| match name {
            "TOKEN" => Some(OsString::from("s3cret")),
            _ => None,
        };
        Job::build(Some(&path), &Overrides::default(), &environment).map_err(|e| self.text(&e))
    }

    fn host(&self, content: &str) -> Result<HostFile, String> {
        HostFile::load(&self.write("host.toml", content)).map_err(|e| self.text(&e))
    }

    fn tuning(&self, content: &str) -> Result<Tuning, String> {
        Tuning::load(&self.write("job.toml", content)).map_err(|e| self.text(&e))
    }
}

/// Written by hand from the documented job file, so that a default cannot change unnoticed.
#[test]
fn defaults() {
    let documented = "
        label=\"batches\" component=required input=required format=\"auto\" delimiter=\",\" key=–
        max_item_bytes=\"16_MiB\" rejects_csv=– summary=–
        pool.batch_size=50 pool.workers=1 pool.max_batch_bytes=– pool.max_consecutive_failures=8
        pool.max_failed_items=– pool.bisect_on_failure=false pool.bisect_min_size=1
        pool.max_batch_retries=2 pool.max_item_attempts=3 pool.on_trap=\"abort\"
        pool.failures_csv=– pool.failed_items=– pool.describe=–
        adaptive.controller=– adaptive.max_workers=– adaptive.min_workers=1
        adaptive.max_batch_size=– adaptive.min_batch_size=1 adaptive.batch_step=–
        adaptive.max_batch_seconds=– adaptive.batch_seconds_headroom=0.7
        adaptive.congestion_ratio=1.5 adaptive.good_ratio=1.2 adaptive.worker_probe_min_ratio=1.05
        adaptive.batch_probe_min_ratio=0.85 adaptive.worker_decrease=0.7
        adaptive.batch_decrease=0.5 adaptive.min_window=5 adaptive.max_window=60
        adaptive.target_log_se=0.08 adaptive.baseline_epochs=5 adaptive.ceiling_ttl_epochs=10
        adaptive.history_ttl_windows=20 adaptive.target_latency=– adaptive.tuner_memory=–
        rate_limit.max_per_sec=– rate_limit.max_bytes_per_min=– rate_limit.max_per_day=–
        rate_limit.day_time_zone=\"local\" rate_limit.day_resets_at=\"00:00\"
        rate_limit.state_file=– rate_limit.breach_base_cooldown=60
        rate_limit.breach_max_doublings=4 rate_limit.breach_quiet_window=300
        rate_limit.max_cooldown=3600 rate_limit.park=true rate_limit.on_breach=\"resend\"
        rate_limit.max_breach_resends=8 rate_limit.scope=\"call\" rate_limit.watch_http=true
        rate_limit.count_http_bytes=true rate_limit.name=–
        control.db=– control.poll_seconds=5 usage.db=– journal.db=– journal.unknown=\"resend\"
        stop.grace=30
        sandbox.memory=\"256_MiB\" sandbox.call_timeout=120 sandbox.cpu_timeout=10
        sandbox.max_calls_per_instance=– sandbox.max_instance_memory=–
        sandbox.calls_per_instance=1 sandbox.max_stack=\"1_MiB\"
        sandbox.max_table_elements=100000 sandbox.max_tables=100 sandbox.max_instances=100
        sandbox.max_resources=1000 sandbox.max_component_bytes=\"128_MiB\" sandbox.max_compile_memory=\"2_GiB\" sandbox.max_compile_time=120
        sandbox.max_error_bytes=\"16_KiB\" sandbox.max_partial_items=100000
        sandbox.max_log_line=\"8_KiB\" sandbox.max_log_lines_per_sec=100
        sandbox.max_header_bytes=\"16_KiB\" sandbox.max_random_bytes=\"1_MiB\"
        sandbox.allow_hosts=[] sandbox.ca_file=– sandbox.connect_timeout=10
        sandbox.idle_timeout=60 sandbox.max_connections_per_host=10000 sandbox.dirs=[]
        sandbox.env=[] sandbox.sockets=false
        budget.min=1 budget.desired=10 budget.max=100 budget.max_tasks_per_minute=–
        budget.scale_seconds=10 budget.scale_step=0.05 budget.current_seconds=5
        budget.history_seconds=30 budget.memory=– budget.memory_threshold=0.9
        budget.system_memory_threshold=0.97 budget.cpu_threshold=0.95 budget.lag_threshold=0.05
        budget.breach_threshold=1 budget.memory_limit=0.2 budget.cpu_limit=0.4
        budget.lag_limit=0.6 budget.breach_limit=0.3
        share.weight=1 share.guarantee=0 share.limit=– share.max_tasks_per_minute=–";
    let documented: Vec<String> = documented
        .split_whitespace()
        .map(|word| {
            ["KiB", "MiB", "GiB"]
                .iter()
                .fold(word.to_owned(), |word, unit| {
                    word.replace(&format!("_{unit}"), &format!(" {unit}"))
                })
        })
        .collect();
    let defined: Vec<String> = chapters()
        .iter()
        .flat_map(|chapter| &chapter.definitions)
        .map(|d| match d.table {
            "" => format!("{}={}", d.key, d.default),
            table => format!("{table}.{}={}", d.key, d.default),
        })
        .collect();
    assert_eq!(defined, documented);
}

#[test]
fn a_default_fits_its_own_range() {
    let folder = Folder::new();
    for definition in chapters().iter().flat_map(|chapter| &chapter.definitions) {
        let Definition {
            table,
            key,
            default,
            ..
        } = definition;
        if matches!(default.as_str(), "–" | "required") {
            continue;
        }
        let line = match *table {
            "" => format!("{key} = {default}"),
            table => format!("{table}.{key} = {default}"),
        };
        let mut job = folder.load(format!("{START}{line}")).expect(&line);
        assert!(job.filled.given(table, key), "{line}");
        job.filled = Filled::default();
        let mut plain = folder.load(START).expect("no option");
        plain.filled = Filled::default();
        if *table == "budget" {
            plain.budget = Some(Budget::default());
        }
        assert_eq!(job, plain, "{line}");
    }
}

#[test]
fn a_default_job_starts_the_default_controller_config() {
    let job = Folder::new().load(START).expect("no option");
    assert_eq!(
        job.controller_config(),
        batchgate_policy::controller::Config::default()
    );
}

#[test]
fn what_the_controller_does_not_read_is_known() {
    let keys = "max_workers = 4\ncongestion_ratio = 1.5\nbatch_step = 2\nmax_batch_seconds = 9";
    let table: [(&str, &[&str]); 3] = [
        ("", &["batch_step", "congestion_ratio"]),
        ("controller = 'curve'", &["batch_step", "congestion_ratio"]),
        ("controller = 'history'", &[]),
    ];
    for (controller, unread) in table {
        let file = format!("{START}[adaptive]\n{controller}\n{keys}");
        let job = Folder::new().load(file).expect("valid");
        assert_eq!(job.adaptive.unread(&job.filled), unread, "{controller}");
    }
    let job = Folder::new().load(START).expect("valid");
    assert!(job.adaptive.unread(&job.filled).is_empty());
}

#[test]
fn the_controller_gets_every_value() {
    let file = "[pool]\nworkers = 2\nbatch_size = 3\n[adaptive]\nmax_workers = 4\nmin_workers = 1
        max_batch_size = 6\nmin_batch_size = 2\nbatch_step = 8\nmax_batch_seconds = 9.5
        batch_seconds_headroom = 0.1\ncongestion_ratio = 1.1\ngood_ratio = 1.3
        worker_probe_min_ratio = 1.4\nbatch_probe_min_ratio = 1.6\nworker_decrease = 0.2
        batch_decrease = 0.3\nmin_window = 10\nmax_window = 11\ntarget_log_se = 0.12
        baseline_epochs = 13\nceiling_ttl_epochs = 14\nhistory_ttl_windows = 15
        controller = \"curve\"\ntarget_latency = 1.7
        [pol]\nother = \"tables are ignored\"";
    let expected = batchgate_policy::controller::Config {
        workers: 2,
        batch_size: 3,
        max_workers: Some(4),
        min_workers: 1,
        max_batch_size: Some(6),
        min_batch_size: 2,
        batch_step: Some(8),
        max_batch_seconds: Some(9.5),
        batch_seconds_headroom: 0.1,
        congestion_ratio: 1.1,
        good_ratio: 1.3,
        worker_probe_min_ratio: 1.4,
        batch_probe_min_ratio: 1.6,
        worker_decrease: 0.2,
        batch_decrease: 0.3,
        min_window: 10,
        max_window: 11,
        target_log_se: 0.12,
        baseline_epochs: 13,
        ceiling_ttl_epochs: 14,
        history_ttl_windows: 15,
        target_latency: Some(1.7),
        workers_learned: false,
        batch_size_learned: false,
    };
    assert_eq!(
        Folder::new()
            .tuning(file)
            .expect("valid")
            .controller_config(),
        expected
    );
}

#[test]
fn values_are_understood() {
    let folder = Folder::new();
    let job = folder
        .load(
            "\u{feff}component = \"../c.wasm\"\r\ninput = \"-\"\r\ndelimiter = \"\\t\"\r\n\
             sandbox.memory = \"1 GiB\"\r\nsandbox.dirs = [\"data::/data\", \"/tmp::/out::rw\"]\r\n\
             sandbox.allow_hosts = [\r\n \"https://a\",\r\n \"http://b:1\"]\r\n\
             pool = { max_failed_items = \"1%\", describe = \"index\" }\r\n\
             [rate_limit]\r\nday_resets_at = \"06:30\"\r\nmax_per_sec = 3\r\n",
        )
        .expect("valid");
    assert_eq!(job.top.component, folder.path("../c.wasm"));
    assert_eq!(job.top.input, Input::Stdin);
    assert_eq!(job.top.delimiter, b'\t');
    assert_eq!(job.sandbox.memory, 1 << 30);
    let dirs: Vec<_> = job
        .sandbox
        .dirs
        .iter()
        .map(|d| (d.host.clone(), d.guest.as_str(), d.writable))
        .collect();
    assert_eq!(
        dirs,
        [
            (folder.path("data"), "/data", false),
            ("/tmp".into(), "/out", true)
        ]
    );
    let places: Vec<String> = job
        .sandbox
        .allow_hosts
        .iter()
        .map(|e| format!("{} {}", e.text, e.origin))
        .collect();
    let at = |line: &str| format!("{}:{line}", folder.path("job.toml").display());
    assert_eq!(
        places,
        [
            format!("https://a {}", at("7")),
            format!("http://b:1 {}", at("8"))
        ]
    );
    assert_eq!(job.pool.max_failed_items, Some(FailedItems::Share(0.01)));
    assert_eq!(job.pool.describe, Some(Describe::Index));
    assert_eq!(job.rate_limit.day_resets_at, jiff::civil::time(6, 30, 0, 0));
    assert_eq!(job.rate_limit.max_per_sec, Some(3.0));
    assert_eq!(job.budget, None);
    assert!(!job.filled.has_table("budget") && job.filled.has_table("rate_limit"));
    assert_eq!(
        job.filled
            .origin("rate_limit", "max_per_sec")
            .map(ToString::to_string),
        Some(at("12"))
    );
}

#[test]
fn single_values() {
    // Table, key, value in TOML, whether it is taken.
    let table = [
        ("", "delimiter", "'\\t'", true),
        ("", "delimiter", "'tab'", true),
        ("", "delimiter", "';'", true),
        ("", "delimiter", "''", false),
        ("", "delimiter", "';;'", false),
        ("", "delimiter", "'é'", false),
        ("", "delimiter", "'\"'", false),
        ("", "delimiter", "\"\\n\"", false),
        ("", "label", "''", false),
        ("", "label", "\"a\\u001b[2J\"", false),
        ("", "format", "'CSV'", false),
        ("", "input", "''", false),
        ("", "max_item_bytes", "0", false),
        ("", "max_item_bytes", "'5 GiB'", false),
        ("", "max_item_bytes", "-1", false),
        ("", "max_item_bytes", "1.5", false),
        ("", "max_item_bytes", "'16 megs'", false),
        ("pool", "workers", "0", false),
        ("pool", "workers", "-1", false),
        ("pool", "workers", "2.0", false),
        ("pool", "workers", "'2'", false),
        ("pool", "workers", "true", false),
        ("pool", "workers", "[2]", false),
        ("pool", "workers", "{ n = 2 }", false),
        ("pool", "workers", "4294967295", true),
        ("pool", "workers", "4294967296", false),
        ("pool", "workers", "9223372036854775807", false),
        ("pool", "workers", "0x10", true),
        ("pool", "max_batch_retries", "0", true),
        ("pool", "max_item_attempts", "0", false),
        ("pool", "bisect_on_failure", "1", false),
        ("pool", "bisect_on_failure", "'true'", false),
        ("pool", "max_failed_items", "1", true),
        ("pool", "max_failed_items", "0", false),
        ("pool", "max_failed_items", "0.01", false),
        ("pool", "max_failed_items", "'100%'", true),
        ("pool", "max_failed_items", "'0%'", false),
        ("pool", "max_failed_items", "'101%'", false),
        ("pool", "max_failed_items", "'nan%'", false),
        ("pool", "max_failed_items", "'-1%'", false),
        ("pool", "max_failed_items", "'many'", false),
        ("adaptive", "controller", "'history'", true),
        ("adaptive", "controller", "'histroy'", false),
        ("adaptive", "batch_step", "0", true),
        ("adaptive", "congestion_ratio", "2", true),
        ("adaptive", "congestion_ratio", "0", false),
        ("adaptive", "congestion_ratio", "0.0", false),
        ("adaptive", "congestion_ratio", "-1.5", false),
        ("adaptive", "congestion_ratio", "nan", false),
        ("adaptive", "congestion_ratio", "inf", false),
        ("adaptive", "congestion_ratio", "1e300", false),
        ("adaptive", "worker_decrease", "1", false),
        ("adaptive", "worker_decrease", "0", false),
        ("adaptive", "worker_decrease", "0.999", true),
        ("adaptive", "max_batch_seconds", "0", false),
        ("rate_limit", "max_per_sec", "0", false),
        ("rate_limit", "max_per_sec", "-inf", false),
        ("rate_limit", "max_per_sec", "0.5", true),
        ("rate_limit", "max_per_sec", "1e9", false),
        ("rate_limit", "max_per_day", "0", false),
        ("rate_limit", "breach_max_doublings", "0", true),
        ("rate_limit", "breach_max_doublings", "33", false),
        ("rate_limit", "breach_base_cooldown", "0", false),
        ("rate_limit", "max_cooldown", "1e12", false),
        ("rate_limit", "day_time_zone", "'UTC'", true),
        ("rate_limit", "day_time_zone", "'America/Los_Angeles'", true),
        (
            "rate_limit",
            "day_time_zone",
            "'America/Los_Angelos'",
            false,
        ),
        ("rate_limit", "day_resets_at", "'23:59'", true),
        ("rate_limit", "day_resets_at", "'24:00'", false),
        ("rate_limit", "day_resets_at", "'6:30'", false),
        ("rate_limit", "day_resets_at", "'-1:30'", false),
        ("rate_limit", "day_resets_at", "'12:60'", false),
        ("rate_limit", "day_resets_at", "'12:5é'", false),
        ("rate_limit", "day_resets_at", "06:30:00", false),
        ("control", "poll_seconds", "0", false),
        ("stop", "grace", "0", true),
        ("stop", "grace", "-0.1", false),
        ("sandbox", "memory", "'1 KiB'", false),
        ("sandbox", "memory", "65536", true),
        ("sandbox", "call_timeout", "0.5", true),
        ("sandbox", "allow_hosts", "'https://a'", false),
        ("sandbox", "allow_hosts", "[1]", false),
        ("sandbox", "allow_hosts", "['']", false),
        ("sandbox", "dirs", "['/data']", false),
        ("sandbox", "dirs", "['::/data']", false),
        ("sandbox", "dirs", "['data::data']", false),
        ("sandbox", "dirs", "['data::/data::rx']", false),
        ("sandbox", "dirs", "['a::/data', 'b::/data']", false),
        ("sandbox", "env", "['PATH']", true),
        ("sandbox", "env", "['A=B']", false),
        ("sandbox", "ca_file", "\"a\\u0000b\"", false),
        ("share", "weight", "0", false),
        ("share", "weight", "0.5", true),
        ("share", "guarantee", "0", true),
        ("share", "limit", "0", false),
        ("budget", "min", "0", false),
        ("budget", "scale_step", "0", false),
        ("config", "any key", "'text'", true),
        ("config", "n", "inf", false),
        ("config", "n", "1979-05-27", false),
        ("config", "n", "[1]", false),
        ("config", "n", "{ env = 'TOKEN' }", true),
        ("config", "n", "{ env = 'TOKEN', default = '' }", false),
        ("config", "n", "{ env = 1 }", false),
        ("config", "n", "{ env = 'A=B' }", false),
        ("config", "n", "{}", false),
    ];
    let folder = Folder::new();
    for (table, key, value, taken) in table {
        let file = match table {
            "" if key == "input" => format!("component = 'c'\n\n{key} = {value}"),
            "" => format!("{START}{key} = {value}"),
            table => format!("{START}{table}.\"{key}\" = {value}"),
        };
        match (folder.load(&file), taken) {
            (Ok(_), true) => {}
            (Err(error), false) => {
                let named = error.starts_with("job.toml:3: ") && error.contains(key);
                assert!(named && error.lines().count() == 1, "{file}\n{error}");
            }
            (result, _) => panic!("{file}\n{result:?}"),
        }
    }
}

#[test]
fn complaints() {
    let table = [
        (
            "pool.workers = 0",
            "job.toml:3: [pool] workers: must be a whole number from 1 to 4294967295, not 0",
        ),
        (
            "pool.batch_sise = 5",
            "job.toml:3: [pool] batch_sise: unknown key; the nearest known one is batch_size",
        ),
        (
            "[pool]\nbatch-size = 5",
            "job.toml:4: [pool] batch-size: unknown key; the nearest known one is batch_size",
        ),
        (
            "worker = 5",
            "job.toml:3: worker: unknown key; the nearest known one is [pool] workers",
        ),
        (
            "lable = 'x'",
            "job.toml:3: lable: unknown key; the nearest known one is label",
        ),
        (
            "\"lab\\nel\" = 5",
            "job.toml:3: lab\\nel: unknown key; the nearest known one is label",
        ),
        (
            "[stop]\nlabel = 'x'",
            "job.toml:4: [stop] label: unknown key; the nearest known one is label, which stands above the first table",
        ),
        (
            "[adaptive]\nworkers = 3",
            "job.toml:4: [adaptive] workers: unknown key; the nearest known one is [pool] workers",
        ),
        (
            "[adaptve]\nx = 3",
            "job.toml:3: [adaptve]: unknown table; the nearest known one is [adaptive]",
        ),
        (
            "[limiters.a]\nx = 3",
            "job.toml:3: [limiters]: unknown table; the nearest known one is [limiters.NAME], of a host file",
        ),
        (
            "pool = 3",
            "job.toml:3: [pool]: must be a table, not 3; write [pool] and its keys below",
        ),
        (
            "[[pool]]\nworkers = 1",
            "job.toml:3: [pool]: must be one table; write [pool], not [[pool]]",
        ),
        (
            "[label]\nx = 1",
            "job.toml:3: label: must be text on one line, not empty, not a table",
        ),
        (
            "format = 'xml'",
            "job.toml:3: format: must be \"auto\", \"csv\", \"jsonl\", \"lines\" or \"failed\", not \"xml\"",
        ),
        (
            "adaptive.controller = 'x'",
            "job.toml:3: [adaptive] controller: must be \"curve\" or \"history\", not \"x\"",
        ),
        (
            "sandbox.memory = '1'",
            "job.toml:3: [sandbox] memory: must be a size from 64 KiB to 4 GiB, in bytes or as text with a unit, such as \"10 MB\" or \"16 MiB\", not \"1\"",
        ),
        (
            "sandbox.allow_hosts = ['https://a', 2]",
            "job.toml:3: [sandbox] allow_hosts: entry 2 must be text, not empty, not 2",
        ),
        (
            "adaptive.min_workers = 5\nadaptive.max_workers = 4",
            "job.toml:3: [adaptive] min_workers: 5 is above max_workers = 4; lower it or raise max_workers",
        ),
        (
            "adaptive.min_window = 10\nadaptive.max_window = 3",
            "job.toml:3: [adaptive] min_window: 10 is above max_window = 3; lower it or raise max_window",
        ),
        (
            "adaptive.min_batch_size = 5\nadaptive.max_batch_size = 4",
            "job.toml:3: [adaptive] min_batch_size: 5 is above max_batch_size = 4; lower it or raise max_batch_size",
        ),
        (
            "budget.min = 200",
            "job.toml:3: [budget] min: min = 200 is above max = 100; lower min or raise max",
        ),
        (
            "budget.max = 4\nbudget.desired = 5",
            "job.toml:4: [budget] desired: 5 is outside min = 1 and max = 4; move it between",
        ),
        (
            "share.guarantee = 5\nshare.limit = 4",
            "job.toml:3: [share] guarantee: 5 is above limit = 4; lower it or raise limit",
        ),
        (
            "rate_limit.name = 'crm'\nrate_limit.max_per_sec = 4",
            "job.toml:4: [rate_limit] max_per_sec: this job takes the limiter \"crm\" from the host file, where max_per_sec belongs; move it to [limiters.NAME] or remove name",
        ),
        (
            "config.x = { env = 'ABSENT' }",
            "job.toml:3: [config] x: the environment variable ABSENT is not set; set it, or write the value here",
        ),
        (
            "config.x.y = 1",
            "job.toml:3: [config] x: must be text, a finite number, true, false or { env = \"NAME\" }; put anything else in quotes",
        ),
        // All problems of a file are reported, each on its line.
        (
            "pool.workers = 0\npool.x = 1\n[config]\nx = []",
            "job.toml:3: [pool] workers: must be a whole number from 1 to 4294967295, not 0\njob.toml:4: [pool] x: unknown key; the nearest known one is workers\njob.toml:6: [config] x: must be text, a finite number, true, false or { env = \"NAME\" }; put anything else in quotes",
        ),
        // What is not TOML.
        (
            "[pool]\nworkers = 1\nworkers = 2",
            "job.toml:5: not valid TOML: duplicate key workers; keep one of the two",
        ),
        (
            "[pool]\nworkers = 1\n[pool]",
            "job.toml:5: not valid TOML: duplicate key pool; keep one of the two",
        ),
        ("[pool]\nworkers =", "job.toml:4: not valid TOML: "),
        ("config.password = 's3cret", "job.toml:3: not valid TOML: "),
        (
            "workers = 99999999999999999999",
            "job.toml:3: not valid TOML: ",
        ),
        (
            "x = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
            "job.toml:3: not valid TOML: ",
        ),
    ];
    let folder = Folder::new();
    for (lines, expected) in table {
        let error = folder.load(format!("{START}{lines}\n")).expect_err(lines);
        match expected.ends_with(": ") {
            true => assert!(
                error.starts_with(expected) && error.lines().count() == 1,
                "{error}"
            ),
            false => assert_eq!(error, expected),
        }
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn files_that_are_no_job_files() {
    let folder = Folder::new();
    let table: [(&[u8], &str); 8] = [
        (
            b"",
            "job.toml: component is missing; add it above the first table, or give --component\n\
               job.toml: input is missing; add it above the first table, or give --input",
        ),
        (
            b"component = 'c'",
            "job.toml: input is missing; add it above the first table, or give --input",
        ),
        (
            b"component = 'c'\ninput = 'i'\nlabel = '\xff'",
            "job.toml:3: is not valid UTF-8; save the file as UTF-8",
        ),
        (b"\xff\xfec\0o\0", "job.toml: is UTF-16; save it as UTF-8"),
        (b"\xfe\xff\0c\0o", "job.toml: is UTF-16; save it as UTF-8"),
        (b"a,b\n1,2\n", "job.toml:1: not valid TOML: "),
        (b"\0\0\0", "job.toml:1: not valid TOML: "),
        (
            &[b'#'; (4 << 20) + 1],
            "job.toml: larger than 4 MiB, which no job file is; give the job file's path",
        ),
    ];
    for (content, expected) in table {
        let error = folder.load(content).expect_err(expected);
        match expected.ends_with(": ") {
            true => assert!(
                error.starts_with(expected) && error.lines().count() == 1,
                "{error}"
            ),
            false => assert_eq!(error, expected),
        }
    }
    let load = |path: &Path| {
        folder.text(&Job::load(path, &Overrides::default()).expect_err("no job file"))
    };
    assert_eq!(
        load(&folder.path("absent.toml")),
        "absent.toml: no such file; check the path"
    );
    std::fs::create_dir(folder.path("sub")).expect("a folder");
    assert_eq!(
        load(&folder.path("sub")),
        "sub: is a folder; name the file in it"
    );
    assert_eq!(
        load(&folder.path("a\nb")),
        "a\\nb: no such file; check the path"
    );
    let alone = Job::from_options_only(&Overrides::default())
        .expect_err("nothing given")
        .to_string();
    assert_eq!(
        alone,
        "--component: is missing; give it, or a job file that has it\n\
         --input: is missing; give it, or a job file that has it"
    );
}

#[test]
fn component_config() {
    let file = "[config]\ntoken = { env = \"TOKEN\" }\ntext = \"a\"\nwhole = 1_000\nfloat = 1.0\nbig = 1e30\nyes = true\n";
    let job = Folder::new().load(format!("{START}{file}")).expect("valid");
    let values: Vec<(&str, &str, bool)> = job
        .config
        .values()
        .iter()
        .map(|(key, value)| (key.as_str(), value.reveal(), value.is_secret()))
        .collect();
    let expected = [
        ("big", "1e30", false),
        ("float", "1.0", false),
        ("text", "a", false),
        ("token", "s3cret", true),
        ("whole", "1000", false),
        ("yes", "true", false),
    ];
    assert_eq!(values, expected);
    let shown = format!("{job:?} {job:#?}");
    assert!(
        !shown.contains("s3cret") && shown.contains("(secret)"),
        "{shown}"
    );
}

#[test]
fn budgets() {
    let folder = Folder::new();
    let budget = |lines: &str| folder.load(format!("{START}{lines}")).expect(lines).budget;
    let of = |min, desired, max| {
        Some(Budget {
            min,
            desired,
            max,
            ..Budget::default()
        })
    };
    assert_eq!(budget(""), None);
    assert_eq!(budget("[budget]"), of(1, 10, 100));
    // A start that was not given is moved into the bounds, one that was given is not.
    assert_eq!(budget("budget.max = 4"), of(1, 4, 4));
    assert_eq!(budget("budget.min = 20"), of(20, 20, 100));
    assert_eq!(
        budget("budget = { min = 5, desired = 5, max = 5 }"),
        of(5, 5, 5)
    );
}

#[test]
fn host_files() {
    let folder = Folder::new();
    let host = folder
        .host("[budget]\nmax = 16\n[control]\ndb = 'c.sqlite'\n[limiters.crm]\nmax_per_sec = 5\nstate_file = 's.json'\n[limiters.\"a b\"]\n")
        .expect("valid");
    assert_eq!(host.budget.as_ref().map(|budget| budget.max), Some(16));
    assert_eq!(host.control.db, Some(folder.path("c.sqlite")));
    assert_eq!(host.limiters["crm"].max_per_sec, Some(5.0));
    assert_eq!(host.limiters["crm"].state_file, Some(folder.path("s.json")));
    assert_eq!(host.limiters["a b"], RateLimit::default());
    assert_eq!(folder.host("").expect("nothing shared").budget, None);

    let table = [
        (
            "[limiters.crm]\nmax_per_sek = 5",
            "host.toml:2: [limiters.crm] max_per_sek: unknown key; the nearest known one is max_per_sec",
        ),
        (
            "[limiters.crm]\nmax_per_sec = 0",
            "host.toml:2: [limiters.crm] max_per_sec: must be a number from 0.00001 to 1000000, not 0",
        ),
        (
            "[limiters.crm]\nname = 'x'",
            "host.toml:2: [limiters.crm] name: a limiter is called as its table is; remove name",
        ),
        (
            "limiters = 5",
            "host.toml:1: [limiters]: must hold a table for each limiter; write [limiters.NAME]",
        ),
        (
            "limiters.crm = 5",
            "host.toml:1: [limiters.crm]: must be a table, not 5; write [limiters.crm] and its keys below",
        ),
        (
            "[pool]\nworkers = 3",
            "host.toml:1: [pool]: unknown table; the nearest known one is [control]",
        ),
        (
            "[limitters.crm]",
            "host.toml:1: [limitters]: unknown table; the nearest known one is [limiters.NAME], of a host file",
        ),
        (
            "something = 3",
            "host.toml:1: something: unknown key; keys stand in tables here, such as [budget], [control]",
        ),
        (
            "max = 3",
            "host.toml:1: max: unknown key; the nearest known one is [budget] max",
        ),
        (
            "[control]\ndb = 'c.sqlite'",
            "host.toml:2: [control] db: is for the live keys of a budget, and there is no [budget]; add one, or remove this",
        ),
        (
            "[budget]\nmin = 5\nmax = 4",
            "host.toml:2: [budget] min: min = 5 is above max = 4; lower min or raise max",
        ),
    ];
    for (content, expected) in table {
        assert_eq!(folder.host(content).expect_err(content), expected);
    }

    let limiter = |lines: &str, host| {
        let job = folder.load(format!("{START}{lines}")).expect(lines);
        job.limiter(host)
            .map(|limiter| limiter.max_per_sec)
            .map_err(|e| folder.text(&e))
    };
    assert_eq!(limiter("rate_limit.max_per_sec = 2", None), Ok(Some(2.0)));
    assert_eq!(
        limiter("rate_limit.name = 'crm'", Some(&host)),
        Ok(Some(5.0))
    );
    assert_eq!(
        limiter("rate_limit.name = 'crm'", None),
        Err("job.toml:3: [rate_limit] name: \"crm\" is a limiter of a host file, and none is given; add --budget".to_owned())
    );
    assert_eq!(
        limiter("rate_limit.name = 'cmr'", Some(&host)),
        Err(
            "job.toml:3: [rate_limit] name: the host file has no [limiters.cmr]; it has a b, crm"
                .to_owned()
        )
    );
}

#[test]
fn tuning_reads_two_tables_alone() {
    let folder = Folder::new();
    let tuning = folder
        .tuning("nonsense = 1\n[poll]\n[pool]\nworkers = 3\n[stop]\ngrace = 'x'")
        .expect("valid");
    assert_eq!(tuning.pool.workers, 3);
    let table = [
        (
            "[pool]\nworkers = 0",
            "job.toml:2: [pool] workers: must be a whole number from 1 to 4294967295, not 0",
        ),
        (
            "[adaptive]\nmax_worker = 0",
            "job.toml:2: [adaptive] max_worker: unknown key; the nearest known one is max_workers",
        ),
        (
            "[adaptive]\nmin_workers = 3\nmax_workers = 2",
            "job.toml:2: [adaptive] min_workers: 3 is above max_workers = 2; lower it or raise max_workers",
        ),
    ];
    for (content, expected) in table {
        assert_eq!(folder.tuning(content).expect_err(content), expected);
    }
}

/// Whatever a limiter's table can say is taken from there, or said by the job beside it, or refused there.
#[test]
fn nothing_that_a_shared_limiter_says_is_passed_over() {
    let folder = Folder::new();
    let others = "max_cooldown = 7\npark = false\non_breach = 'fail'\nmax_breach_resends = 3\n\
                  watch_http = false\ncount_http_bytes = false\n";
    let host = folder
        .host(&format!("[limiters.crm]\n{others}"))
        .expect("valid");
    let adopted = |lines: &str| {
        let mut job = folder
            .load(format!("{START}[rate_limit]\nname = 'crm'\n{lines}"))
            .expect(lines);
        job.adopt_limiter(Some(&host)).expect("it is there");
        job.rate_limit
    };
    let expected = RateLimit {
        name: Some("crm".to_owned()),
        ..host.limiters["crm"].clone()
    };
    assert_eq!(adopted(""), expected);
    let own = "max_cooldown = 8\npark = true\non_breach = 'resend'\nmax_breach_resends = 4\n\
               watch_http = true\ncount_http_bytes = true\n";
    let expected = RateLimit {
        name: Some("crm".to_owned()),
        max_cooldown: 8.0,
        max_breach_resends: 4,
        ..RateLimit::default()
    };
    assert_eq!(adopted(own), expected);
    for definition in RateLimit::default().definitions() {
        let key = definition.key;
        let value = match key {
            "name" => continue,
            "day_time_zone" => "'UTC'",
            "day_resets_at" => "'01:00'",
            "state_file" => "'f'",
            "scope" => "'http'",
            "max_per_sec" | "max_bytes_per_min" | "max_per_day" => "5",
            "breach_base_cooldown" | "breach_max_doublings" | "breach_quiet_window" => "5",
            _ => {
                assert!(
                    others.contains(&format!("{key} = ")),
                    "{key} is passed over"
                );
                continue;
            }
        };
        let lines = format!("{START}[rate_limit]\nname = 'crm'\n{key} = {value}\n");
        let error = folder.load(lines).expect_err(key);
        assert!(error.contains("from the host file, where"), "{error}");
    }
}

#[test]
fn nothing_that_others_read_is_written_over() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("jobs")).expect("made");
    std::os::unix::fs::symlink(folder.path("jobs"), folder.path("way")).expect("made");
    std::os::unix::fs::symlink("jobs/b.toml", folder.path("link")).expect("made");
    let job = |name: &str, lines: &str| {
        let start = "component = '/c'\ninput = '/i'\n";
        let path = folder.write(&format!("jobs/{name}.toml"), format!("{start}{lines}\n"));
        Job::load(&path, &Overrides::default()).expect(lines)
    };
    let b = job("b", "");
    let host = folder
        .host("[budget]\n[control]\ndb = 'control'\n[limiters.x]\nstate_file = 'state'\n")
        .expect("valid");
    let (host_path, jobs) = (folder.path("host.toml"), folder.path("jobs"));
    for output in [
        "summary",
        "rejects_csv",
        "pool.failures_csv",
        "pool.failed_items",
        "journal.db",
    ] {
        for path in ["b.toml", "./../way/b.toml", "../link"] {
            let a = job("a", &format!("{output} = '{path}'"));
            for jobs in [[&a, &b], [&b, &a]] {
                let error = fits_beside(jobs[1], &jobs[..1]).expect_err(path);
                let error = folder.text(&error);
                assert!(
                    error.starts_with("jobs/a.toml:3: ")
                        && error.contains("the job file (")
                        && error.contains("b.toml"),
                    "{error}"
                );
            }
        }
        for path in [
            "../host.toml",
            "../way/../host.toml",
            "../control",
            "../state",
        ] {
            let a = job("a", &format!("{output} = '{path}'"));
            let error = fits_host_file(&a, &host_path, &host).expect_err(path);
            assert!(
                folder.text(&error).starts_with("jobs/a.toml:3: "),
                "{error}"
            );
        }
        let a = job("a", &format!("{output} = 'new.toml'"));
        let error = fits_folder(&a, &folder.path("way")).expect_err("in the folder");
        assert!(error.to_string().contains("job files"), "{error}");
    }
    let a = job("a", "usage.db = 'usage.toml'");
    assert!(fits_folder(&a, &jobs).is_err());
    for lines in ["summary = 'summary.json'", "summary = '../new.toml'"] {
        let a = job("a", lines);
        assert!(fits_folder(&a, &jobs).is_ok(), "{lines}");
        assert!(fits_host_file(&a, &host_path, &host).is_ok() && fits_beside(&a, &[&b]).is_ok());
    }
    // A memory of settings is no store of another kind, and may be another job's memory.
    for path in ["../host.toml", "../control", "../state"] {
        let a = job("a", &format!("adaptive.tuner_memory = '{path}'"));
        assert!(fits_host_file(&a, &host_path, &host).is_err(), "{path}");
    }
    for lines in [
        "control.db = 'x'",
        "usage.db = '../way/x'",
        "journal.db = 'x'",
        "rate_limit.state_file = 'x'",
        "summary = 'x'",
        "sandbox.ca_file = 'x'",
    ] {
        let a = job("a", "adaptive.tuner_memory = 'x'");
        let c = job("c", lines);
        assert!(fits_beside(&c, &[&a]).is_err(), "{lines}");
    }
    let a = job("a", "adaptive.tuner_memory = 'x'");
    let c = job("c", "adaptive.tuner_memory = '../way/x'");
    assert!(fits_beside(&c, &[&a]).is_ok());
    // The same control store for both is no clash.
    let a = job("a", "control.db = '../control'");
    assert!(fits_host_file(&a, &host_path, &host).is_ok());
}

#[test]
fn jobs_that_run_together() {
    let folder = Folder::new();
    let load = |jobs: &[&str]| {
        let write = |(n, lines): (usize, &&str)| {
            folder.write(&format!("{n}.toml"), format!("component = 'c'\n{lines}\n"))
        };
        let paths: Vec<PathBuf> = jobs.iter().enumerate().map(write).collect();
        let jobs = load_jobs(&paths, &Overrides::default());
        jobs.map(|jobs| jobs.len()).map_err(|e| folder.text(&e))
    };
    let refused = |message: &str| Err(message.to_owned());
    assert_eq!(
        load(&["input = 'i'\nusage.db = 'u'", "input = 'i'\nusage.db = 'u'"]),
        Ok(2)
    );
    assert_eq!(
        load(&[
            "input = 'i'\nsummary = '/dev/null'",
            "input = 'i'\nsummary = '/dev/null'"
        ]),
        Ok(2)
    );
    assert_eq!(
        load(&["input = 'f'\nformat = 'failed'\npool.failed_items = 'f'"]),
        Ok(1)
    );
    assert_eq!(
        load(&["input = 'i'\nsummary = 's'", "input = 'i'\nsummary = './s'"]),
        refused("1.toml:3: summary: names the same file as summary (0.toml:3); choose another")
    );
    assert_eq!(
        load(&["input = 'i'\njournal.db = 'i'"]),
        refused("0.toml:3: [journal] db: names the same file as input (0.toml:2); choose another")
    );
    assert_eq!(
        load(&["input = '-'", "input = '-'"]),
        refused(
            "1.toml:2: input: is standard input, which another job reads; give one of them a file"
        )
    );
    assert_eq!(
        load(&["input = 1", "input = 2"]),
        refused(
            "0.toml:2: input: must be a path, or \"-\" for standard input, not 1\n1.toml:2: input: must be a path, or \"-\" for standard input, not 2"
        )
    );
}

#[test]
fn the_reference_in_the_readme_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md is there");
    let (before, rest) = readme
        .split_once("<!-- job file reference: begins -->\n")
        .expect("README.md says where the reference begins");
    let (written, after) = rest
        .split_once("<!-- job file reference: ends -->\n")
        .expect("README.md says where the reference ends");
    let reference = format!("\n{}\n", job_file_reference());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        let marked = format!(
            "{before}<!-- job file reference: begins -->\n{reference}<!-- job file reference: ends -->\n{after}"
        );
        std::fs::write(path, marked).expect("README.md is writable");
        return;
    }
    assert!(
        written == reference,
        "the reference in {path} is stale; run this test with UPDATE_REFERENCE=1"
    );
}

#[test]
fn long_values_are_cut_on_a_character() {
    let raw = Raw {
        origin: Origin::Option("--x".into()),
        value: RawValue::Text("é\n".repeat(40)),
    };
    let refusal = number::COUNT.parse(&raw).expect_err("no number");
    assert!(
        refusal.ends_with("é\\n\" (cut)") && refusal.lines().count() == 1,
        "{refusal}"
    );
}

proptest::proptest! {
    /// Whatever a file holds, the answer is a job or lines that name it.
    #[test]
    fn any_text_is_answered(lines in proptest::collection::vec("[a-z_.\\[\\]={}\"'0-9 \\n-]{0,12}|pool|workers|config|\\[stop\\]|= |nan|\\{ env = ", 0..12)) {
        let folder = Folder::new();
        if let Err(error) = folder.load(lines.concat()) {
            proptest::prop_assert!(error.lines().all(|line| line.starts_with("job.toml")), "{}", error);
        }
    }
}
