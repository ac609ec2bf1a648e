//! Plugins in five languages: one behaviour, tuned identically, and each a start for one's own.

use crate::support::{Job, MockApi, batchgate, guest, median, numbered_csv, target};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LANGUAGES: [&str; 5] = ["rust", "js", "python", "c", "go"];
/// The examples of the async world: components beside those of the languages.
const ASYNC: [&str; 2] = ["rust-async", "python-async"];

/// All examples.
fn examples() -> impl Iterator<Item = &'static str> {
    LANGUAGES.into_iter().chain(ASYNC)
}

fn repository() -> PathBuf {
    target()
        .parent()
        .expect("target is in the repository")
        .to_owned()
}

fn check(component: &Path) -> Output {
    let mut command = batchgate();
    command.arg("check").arg(component).arg("--json");
    command.output().expect("batchgate runs")
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn named(report: &Value, verdict: &str) -> Vec<String> {
    let cases = report["cases"].as_array().expect("cases");
    let of = cases.iter().filter(|case| case["verdict"] == verdict);
    of.map(|case| format!("{}: {}", case["case"], case["got"]))
        .collect()
}

#[test]
fn all_examples_keep_the_contract() {
    for language in examples() {
        let output = check(&guest(language));
        let report = report(&output);
        let other = [named(&report, "failed"), named(&report, "does_not_apply")].concat();
        assert!(other.is_empty(), "{language}: {other:#?}");
        assert_eq!(named(&report, "passed").len(), 29, "{language}");
        assert_eq!(output.status.code(), Some(0), "{language}");
    }
}

#[test]
fn a_check_says_what_is_wrong() {
    // Traps at each call.
    let output = check(&guest("recursion"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report(&output);
    let failed = named(&report, "failed");
    assert!(
        failed.iter().all(|case| case.contains("a trap: ")),
        "{failed:?}"
    );
    assert!(failed.len() >= 14, "{failed:?}");
    assert!(named(&report, "passed").is_empty());
    // Sends nothing anywhere.
    let output = check(&guest("noop"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(named(&self::report(&output), "does_not_apply").len(), 15);

    let output = batchgate()
        .arg("check")
        .arg(guest("recursion"))
        .output()
        .expect("batchgate runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("FAIL  empty text") && text.contains("expected: ok with"),
        "{text}"
    );
    for unusable in ["core_module", "wrong_world", "unknown_import"] {
        let output = check(&guest(unusable));
        assert_eq!(output.status.code(), Some(2), "{unusable}: {output:?}");
        assert!(output.stdout.is_empty());
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }
}

/// Calls in flight, the median of the last half.
fn in_flight(language: &str) -> f64 {
    let options = [
        "--knee",
        "8",
        "--slope",
        "0.4",
        "--per-item-ms",
        "8",
        "--sigma",
        "0.05",
    ];
    let api = MockApi::start(&options);
    let origin = api.origin();
    let toml = format!(
        "key = \"id\"\n[pool]\nworkers = 2\nbatch_size = 5\n[adaptive]\nmax_workers = 32\n\
         [sandbox]\nallow_hosts = [\"{origin}\"]\ncalls_per_instance = 8\n[config]\napi_url = \"{origin}/items\"\n"
    );
    let ran = Job::new(&guest(language), &numbered_csv(6000), &toml).run(&[]);
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, 6000),
        "{language}: {}",
        ran.log
    );
    let log = api.log();
    let last = log[log.len() / 2..].iter();
    median(
        last.map(|row| row["in_flight"].as_f64().expect("a number"))
            .collect(),
    )
}

#[test]
fn all_are_tuned_alike() {
    let medians: Vec<_> = examples().map(in_flight).collect();
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let most = medians.iter().copied().fold(0.0, f64::max);
    assert!(
        most - least <= 1.0,
        "{:?}: {medians:?} in flight",
        examples().collect::<Vec<_>>()
    );
    assert!((7.0..=9.0).contains(&least), "{medians:?} at a knee of 8");
}

#[test]
fn every_copy_of_the_wit_is_the_contract() {
    let root = repository();
    let mut copies = 0;
    for language in ["js", "python", "c", "go", "python-async"] {
        let deps = root.join("examples").join(language).join("wit/deps");
        for package in std::fs::read_dir(&deps).expect("wit/deps") {
            let package = package.expect("an entry").path();
            for copy in std::fs::read_dir(&package).expect("a folder a package") {
                let copy = copy.expect("an entry").path();
                let original = match copy.file_name() {
                    Some(name) if name == "batch.wit" => root.join("wit/batch.wit"),
                    _ => root
                        .join("wit/deps")
                        .join(copy.strip_prefix(&deps).expect("within")),
                };
                let read = |path: &Path| {
                    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
                };
                let same = read(&copy) == read(&original);
                assert!(same, "{} differs: run tools/sync-wit.sh", copy.display());
                copies += 1;
            }
        }
    }
    assert_eq!(copies, 4 * 5 + 4);
    for copy in [
        "batch.wit",
        "deps/wasi-config/store.wit",
        "deps/wasi-http-0.3/http.wit",
        "deps/wasi-clocks-0.3/clocks.wit",
    ] {
        let read = |folder: &str| std::fs::read(root.join(folder).join(copy)).expect(copy);
        assert!(
            read("guest-sdk/wit") == read("wit"),
            "{copy} of the SDK differs: run tools/sync-wit.sh"
        );
    }
}

/// What builds and tests a new plugin, with the tools of the repository in place of its own.
fn commands(language: &str, root: &Path, out: &Path) -> Vec<String> {
    let (root, out) = (root.display(), out.display());
    let tools = format!("TOOLS={root}/target/tools WASM_TOOLS={root}/target/tools/bin/wasm-tools");
    let make = format!("make -s {tools} && cp uploader.wasm {out} && make -s {tools} test");
    match language {
        "rust" | "rust-async" => vec![
            format!(
                "CARGO_TARGET_DIR={root}/target/guests-native cargo test --offline --locked --release"
            ),
            format!("{root}/tools/build-rust-guest.sh . {out}"),
        ],
        "js" => vec![
            format!("ln -s {root}/examples/js/node_modules node_modules"),
            format!("npm run --silent build && cp uploader.wasm {out} && npm test --silent"),
        ],
        "python" | "python-async" => vec![
            format!("ln -s {root}/target/tools/python .venv"),
            format!(".venv/bin/componentize-py -d wit -w uploader componentize app -o {out}"),
            ".venv/bin/componentize-py -d wit -w uploader bindings bindings".to_owned(),
            "PYTHONPATH=.:bindings python3 -m unittest".to_owned(),
        ],
        _ => vec![make],
    }
}

#[test]
fn a_new_plugin_builds_passes_its_test_and_runs() {
    let root = repository();
    for language in examples() {
        let work = tempfile::tempdir().expect("a temporary folder");
        let mut new = batchgate();
        new.current_dir(&work)
            .args(["new", "mine", "--lang", language]);
        let output = new.output().expect("batchgate runs");
        assert!(output.status.success(), "{language}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.lines().count() == 1 && said.contains("cd mine && "),
            "{said}"
        );
        let again = new.output().expect("batchgate runs");
        assert_eq!(again.status.code(), Some(2), "{again:?}");

        let component = work.path().join("mine.wasm");
        for command in commands(language, &root, &component) {
            let output = Command::new("bash")
                .args(["-euc", &command])
                .current_dir(work.path().join("mine"))
                .output()
                .expect("bash runs");
            assert!(output.status.success(), "{language}: {command}: {output:?}");
        }
        let api = MockApi::start(&[]);
        let origin = api.origin();
        let toml = format!(
            "key = \"id\"\n[sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{origin}/items\"\n"
        );
        let ran = Job::new(&component, &numbered_csv(100), &toml).run(&[]);
        assert_eq!(ran.code, 0, "{language}: {}", ran.log);
        assert_eq!(api.stats()["distinct"], 100, "{language}");
    }
}

#[test]
fn a_component_says_its_world() {
    for example in examples() {
        let mut inspect = batchgate();
        let output = inspect
            .arg("inspect")
            .arg(guest(example))
            .arg("--json")
            .output()
            .expect("batchgate runs");
        let world = match ASYNC.contains(&example) {
            true => "async-batch-processor",
            false => "batch-processor",
        };
        let inspection = report(&output);
        assert_eq!(inspection["world"], world, "{example}");
        let needs = inspection["needs"].as_array().expect("needs");
        assert!(
            needs.contains(&"allow_hosts".into()),
            "{example}: {needs:?}"
        );
    }
}

#[test]
fn calls_on_one_instance_wait_out_one_cooldown() {
    for example in ASYNC {
        let api = MockApi::start(&["--max-per-sec", "20", "--overhead-ms", "20", "--sigma", "0"]);
        let origin = api.origin();
        let toml = format!(
            "key = \"id\"\n[pool]\nworkers = 10\nbatch_size = 5\n[rate_limit]\nbreach_base_cooldown = 2\n\
             breach_max_doublings = 0\n[sandbox]\nallow_hosts = [\"{origin}\"]\ncalls_per_instance = 10\n\
             [config]\napi_url = \"{origin}/items\"\n"
        );
        let ran = Job::new(&guest(example), &numbered_csv(300), &toml).run(&["--fixed"]);
        let written = ran.adds_up().count("written");
        assert_eq!((ran.code, written), (0, 300), "{example}: {}", ran.log);
        assert!(ran.count("breaches") >= 1, "{example}: {}", ran.log);
        // Whatever was in flight at the refusal has come by half a second later; then all is quiet.
        let log = api.log();
        let time = |row: &Value| row["t"].as_f64().expect("a time");
        let refused = log.iter().find(|row| row["status"] == 429);
        let refused = time(refused.expect("the server refuses"));
        let early: Vec<_> = log
            .iter()
            .filter(|row| (refused + 0.5..refused + 1.8).contains(&time(row)))
            .collect();
        assert!(early.is_empty(), "{example}: {early:?}");
    }
}
