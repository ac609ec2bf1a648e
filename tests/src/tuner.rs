//! The `curve` controller end to end, in real time: the example plugin over real HTTP against
//! the stand-in API, on three servers whose best setting is known in closed form.

use crate::support::{Job, MockApi, guest, numbered_csv};

struct Case {
    name: &'static str,
    server: &'static [&'static str],
    rows: usize,
    /// The start and the bounds.
    toml: &'static str,
    /// Items a second that the best fixed setting gets, by the server's own formula.
    best_rate: f64,
}

const CASES: [Case; 3] = [
    Case {
        name: "a knee at 8 from 2",
        server: &[
            "--knee",
            "8",
            "--slope",
            "0.4",
            "--overhead-ms",
            "40",
            "--per-item-ms",
            "2",
            "--sigma",
            "0.2",
        ],
        rows: 12_000,
        toml: "[pool]\nworkers = 2\nbatch_size = 5\n[adaptive]\nmax_workers = 32\n",
        best_rate: 8.0 * 5.0 / 0.05,
    },
    Case {
        name: "a plateau from 10 on",
        server: &[
            "--shape",
            "plateau",
            "--knee",
            "10",
            "--overhead-ms",
            "40",
            "--per-item-ms",
            "2",
            "--sigma",
            "0.2",
        ],
        rows: 15_000,
        toml: "[pool]\nworkers = 3\nbatch_size = 5\n[adaptive]\nmax_workers = 40\n",
        best_rate: 10.0 * 5.0 / 0.05,
    },
    Case {
        name: "batches that pay, up to 60",
        server: &[
            "--knee",
            "4",
            "--slope",
            "0.4",
            "--overhead-ms",
            "80",
            "--per-item-ms",
            "2",
            "--sigma",
            "0.1",
            "--max-batch",
            "60",
        ],
        rows: 20_000,
        toml: "[pool]\nworkers = 4\nbatch_size = 5\nbisect_on_failure = true\n[adaptive]\nmax_workers = 4\nmax_batch_size = 200\n",
        best_rate: 4.0 * 60.0 / 0.2,
    },
];

#[test]
fn the_best_setting_is_found_in_real_time() {
    for case in CASES {
        let efficiency = efficiency(&case, "curve");
        // Calls cost more than the server's formula says, and other tests run beside this one.
        assert!(efficiency > 0.7, "{}: {efficiency:.2}", case.name);
    }
}

/// Items a second between the first and the last answer, as a share of the best rate.
fn efficiency(case: &Case, controller: &str) -> f64 {
    let api = MockApi::start(case.server);
    let (url, origin) = (format!("{}/items", api.origin()), api.origin());
    let toml = format!(
        "key = \"id\"\n{}controller = \"{controller}\"\n[sandbox]\nallow_hosts = [\"{origin}\"]\n[config]\napi_url = \"{url}\"\n",
        case.toml
    );
    let ran = Job::new(&guest("rust"), &numbered_csv(case.rows), &toml).run(&[]);
    assert_eq!(ran.code, 0, "{}: {}", case.name, ran.log);
    assert_eq!(ran.adds_up().count("written"), case.rows as u64);
    let times: Vec<f64> = api
        .log()
        .iter()
        .map(|row| row["t"].as_f64().expect("a time"))
        .collect();
    let first = times.iter().copied().fold(f64::INFINITY, f64::min);
    let last = times.iter().copied().fold(0.0, f64::max);
    let efficiency = case.rows as f64 / (last - first) / case.best_rate;
    println!("{} ({controller}): efficiency {efficiency:.2}", case.name);
    efficiency
}
