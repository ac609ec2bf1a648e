//! Hostile guests through the flow, beside a well-behaved one: each call ends as it should, the run goes on with
//! `on_trap = "fail"` and stops in order with `"abort"`, the neighbour's calls go on, and the host's memory stays within
//! its baseline, the guest's own limit and a little.
//!
//! Memory and time are measured in a process that runs nothing else.

use super::measure::{Neighbour, alone, resident, watch};
use super::server::Server;
use super::*;
use End::{Failed, Late, Skipped, Trapped, Written};
use batchgate::flow::{Describe, Parking, Records, Stop, run};
use batchgate::limiter::{Calendar, Config as LimiterConfig, Limiter};
use batchgate::report::failures::FailuresFile;
use batchgate::report::summary::{Stopped, Summary};
use batchgate::source::{Format, Input, Source, SourceConfig};
use batchgate_policy::attempt::{OnBreach, OnTrap, Rules};
use batchgate_policy::breaker::Breaker;
use batchgate_policy::controller::{Config, Fixed};

/// What a hostile guest may cost beyond its own memory.
const ALLOWANCE: u64 = 32 << 20;
const MEMORY: u64 = 64 << 20;

/// How a call ends, of one item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Written,
    Skipped,
    Failed,
    Trapped,
    Late,
}

struct Case {
    guest: &'static str,
    /// What the guest is told, in each of its calls.
    script: &'static str,
    /// How its calls end one after the other: so many so, and what is said of each that is no success.
    ends: &'static [(usize, End, &'static str)],
}

const fn case(
    guest: &'static str,
    script: &'static str,
    ends: &'static [(usize, End, &'static str)],
) -> Case {
    Case {
        guest,
        script,
        ends,
    }
}

const CPU: &str = "cpu_timeout of 0.5 s exceeded";
const LATE: &str = "call_timeout of 1 s exceeded";
const ANSWER: &str = "answer limit of 16 MiB exceeded";
const DENIED: &str = "is denied";

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("scripted", r#"{"do":"loop"}"#, &[(2, Trapped, CPU)]),
    case("scripted", r#"{"do":"loop","instance_call":2}"#, &[(1, Written, ""), (1, Trapped, CPU), (1, Written, "")]),
    case("start_loop", "-", &[(2, Failed, "cannot be started: cpu_timeout of 0.5 s exceeded")]),
    case("scripted", r#"{"do":"sleep","ms":1000000}"#, &[(2, Late, LATE)]),
    case("scripted", r#"{"do":"get","url":"DRIP"}"#, &[(2, Late, LATE)]),
    case("recursion", "-", &[(4, Trapped, "stack limit of 1 MiB exceeded (max_stack)")]),
    case("scripted", r#"{"do":"recurse"}"#, &[(4, Trapped, "out of bounds memory access")]),
    case("memory_all", "-", &[(4, Skipped, "")]),
    case("memory_steps", "-", &[(4, Trapped, "memory limit of 64 MiB exceeded (memory)")]),
    // An instance that has grown much is replaced between calls, before it fails.
    case("scripted", r#"{"do":"alloc","mb":20}"#, &[(6, Written, "")]),
    case("scripted", r#"{"do":"alloc","mb":100}"#, &[(2, Trapped, "memory limit of 64 MiB exceeded (memory)")]),
    case("memory_huge", "-", &[(2, Failed, "cannot be started: memory limit of 64 MiB exceeded (memory)")]),
    case("table_flood", "-", &[(4, Trapped, "limit of 100000 elements a table exceeded (max_table_elements)")]),
    case("tables_huge", "-", &[(2, Failed, "cannot be started: limit of 100000 elements a table exceeded")]),
    case("handle_flood", "{}", &[(4, Trapped, "limit of 1000 open handles exceeded (max_resources)")]),
    case("header_flood", "-", &[(4, Trapped, "limit of 16 KiB of header fields exceeded (max_header_bytes)")]),
    case("request_flood", "-", &[(2, Trapped, "limit of 1000 open handles exceeded (max_resources)")]),
    // As long as its memory allows, and as long as may be handed over.
    case("error_huge", "-", &[(4, Trapped, ANSWER)]),
    case("scripted", r#"{"do":"err_text","bytes":15000000}"#, &[(2, Failed, "bytes cut)")]),
    case("partial_10m", "-", &[(4, Trapped, ANSWER)]),
    case("partial_flood", "100001", &[(2, Trapped, "partial answer has 100001 entries, more than 100000 (max_partial_items)")]),
    // Each index twice, and most of no item.
    case("partial_flood", "100000", &[(2, Failed, "")]),
    case("scripted", r#"{"do":"ok_n","n":99}"#, &[(4, Written, "")]),
    case("scripted", r#"{"do":"log","n":100000,"text":"[orders] forged\u001b[2J\r"}"#, &[(1, Written, "")]),
    case("scripted", r#"{"do":"log","n":1000000000000}"#, &[(1, Trapped, CPU)]),
    case("scripted", r#"{"do":"trap","every":50}"#, &[(49, Written, ""), (1, Trapped, "unreachable"), (49, Written, "")]),
    case("scripted", r#"{"do":"random","n":100000000}"#, &[(4, Trapped, "limit of 1 MiB of randomness at once exceeded (max_random_bytes)")]),
    case("scripted", r#"{"do":"exit","code":0}"#, &[(4, Trapped, "the plugin exited with code")]),
    case("bad_pointer", "-", &[(4, Trapped, "out of bounds")]),
    case("scripted", r#"{"do":"get","url":"http://169.254.169.254/latest/meta-data/"}"#, &[(4, Failed, DENIED)]),
    case("scripted", r#"{"do":"get","url":"http://[::ffff:169.254.169.254]/"}"#, &[(4, Failed, DENIED)]),
    case("scripted", r#"{"do":"get","url":"http://localhost/"}"#, &[(4, Failed, DENIED)]),
    case("scripted", r#"{"do":"get","url":"REDIRECT"}"#, &[(4, Failed, "302 go to http://169.254.169.254/")]),
    case("scripted", r#"{"do":"get","url":"REBIND"}"#, &[(1, Failed, "200 fine"), (1, Failed, DENIED)]),
    case("scripted", r#"{"do":"read","path":"/etc/passwd"}"#, &[(4, Failed, "os error 76")]),
    case("scripted", r#"{"do":"env","name":"PATH"}"#, &[(4, Failed, "environment variable not found")]),
    case("sockets", "127.0.0.1:22", &[(4, Failed, "access-denied")]),
];

/// The servers of the cases, and a resolver that leads `rebind.test` to an address that is allowed, and the next
/// time to one that is not.
struct Servers {
    drip: Server,
    redirect: Server,
    rebind: Server,
}

#[derive(Debug, Default)]
struct Rebinding(AtomicUsize);

impl batchgate::wasm::http::Resolver for Rebinding {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = std::io::Result<Vec<std::net::IpAddr>>> + Send + 'a>>
    {
        let turn = self.0.fetch_add(1, SeqCst) % 2;
        let address = ["127.0.0.1", "127.0.0.2"][turn].parse().unwrap();
        Box::pin(std::future::ready(Ok(vec![address])))
    }
}

impl Servers {
    async fn start() -> Self {
        Self {
            drip: Server::start(|_, connection| async move {
                connection
                    .write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                    .await;
                while connection.write(b"x").await {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            })
            .await,
            redirect: Server::start(|_, connection| async move {
                let body = "go to http://169.254.169.254/";
                let location = "location: http://169.254.169.254/\r\n";
                connection.answer("302 Found", location, body).await;
            })
            .await,
            rebind: Server::start(|_, connection| async move {
                connection
                    .answer("200 OK", "connection: close\r\n", "fine")
                    .await;
            })
            .await,
        }
    }

    fn rebind_url(&self) -> String {
        format!("http://rebind.test:{}", self.rebind.address.port())
    }

    fn script(&self, case: &Case) -> String {
        case.script
            .replace("DRIP", &self.drip.url())
            .replace("REDIRECT", &self.redirect.url())
            .replace("REBIND", &self.rebind_url())
    }

    fn sandbox(&self, case: &Case) -> SandboxConfig {
        let late = case.ends[0].1 == Late;
        SandboxConfig {
            memory: memory(case),
            cpu_timeout: Duration::from_millis(500),
            // What computes is to end by that, however little of the machine it gets.
            call_timeout: Duration::from_secs(if late { 1 } else { 60 }),
            allow_hosts: vec![
                self.drip.url(),
                self.redirect.url(),
                self.rebind_url(),
                format!("127.0.0.1/32:{}", self.rebind.address.port()),
            ],
            resolver: Arc::new(Rebinding::default()),
            ..SandboxConfig::default()
        }
    }
}

/// A list of ten million entries does not fit in less.
fn memory(case: &Case) -> u64 {
    match case.guest {
        "partial_10m" => 256 << 20,
        _ => MEMORY,
    }
}

#[test]
fn hostile_guests_are_held() {
    alone("sandbox::hostile::in_a_process_of_its_own");
}

#[test]
#[ignore = "run by hostile_guests_are_held, alone in its process"]
fn in_a_process_of_its_own() {
    block_on(async {
        let (neighbour, servers) = (Neighbour::start().await, Servers::start().await);
        let mut failed = Vec::new();
        for case in CASES {
            let mut tried = try_case(case, &servers, &neighbour).await;
            // What else runs on the machine slows the neighbour as well.
            for _ in 0..6 {
                if let Err(Problem::Slowed(_)) = tried {
                    tried = try_case(case, &servers, &neighbour).await;
                }
            }
            if let Err(Problem::Wrong(problem) | Problem::Slowed(problem)) = tried {
                failed.push(format!("{} {}: {problem}", case.guest, case.script));
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}

/// What went wrong with a case.
enum Problem {
    /// It ended in another way, or took too much memory.
    Wrong(String),
    /// The neighbour's calls took too long.
    Slowed(String),
}

async fn try_case(case: &Case, servers: &Servers, neighbour: &Neighbour) -> Result<(), Problem> {
    neighbour.forget();
    let usual = neighbour.percentile_95(Duration::from_millis(500)).await;
    let component = load(&guest(case.guest), &servers.sandbox(case));
    let script = servers.script(case);
    let baseline = resident();
    let mut peak = baseline;
    neighbour.forget();
    // As often as it takes a second, so that the neighbour's calls can tell.
    let until = Instant::now() + Duration::from_secs(1);
    let mut calls = 0;
    while calls == 0 || Instant::now() < until {
        let ran = watch(run_once(case, &component, &script, OnTrap::Fail), &mut peak).await;
        calls += ran.summary.calls;
        ran.check(case, OnTrap::Fail).map_err(Problem::Wrong)?;
    }
    let ran = watch(
        run_once(case, &component, &script, OnTrap::Abort),
        &mut peak,
    )
    .await;
    ran.check(case, OnTrap::Abort).map_err(Problem::Wrong)?;

    let slowed = neighbour.percentile_95(Duration::ZERO).await;
    println!(
        "{:<14} {:<40.40} {calls:>6} calls, +{:>3} MiB, abort: {:<9} neighbour {slowed:?}, usually {usual:?}",
        case.guest,
        case.script,
        (peak - baseline) >> 20,
        ran.summary.stopped.as_str(),
    );
    let most = baseline + memory(case) + ALLOWANCE;
    if peak > most {
        let (peak, most) = (peak >> 20, most >> 20);
        return Err(Problem::Wrong(format!(
            "{peak} MiB resident, more than {most} MiB"
        )));
    }
    if slowed > usual * 2 {
        return Err(Problem::Slowed(format!(
            "the neighbour's calls took {slowed:?}, usually {usual:?}"
        )));
    }
    Ok(())
}

/// What a run came to, with what it says of failed batches.
struct Ran {
    summary: Summary,
    errors: Vec<String>,
}

/// A run of one call at a time, an item a call.
async fn run_once(case: &Case, component: &Arc<Component>, script: &str, on_trap: OnTrap) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let failures = folder.path().join("failures.csv");
    let count = case.ends.iter().map(|&(times, ..)| times).sum();
    let input = format!("{script}\n").repeat(count).into_bytes();
    let source = SourceConfig {
        input: Input::Stdin,
        format: Format::Lines,
        delimiter: b',',
        key: None,
        max_item_bytes: 1 << 20,
    };
    let limiter = Limiter::new(LimiterConfig {
        max_per_sec: None,
        max_bytes_per_min: None,
        max_per_day: None,
        calendar: Calendar::new("UTC", jiff::civil::Time::midnight()).unwrap(),
        state_file: None,
        breach_base_cooldown: Duration::from_secs(60),
        breach_max_doublings: 4,
        breach_quiet_window: Duration::from_secs(300),
        counts_http: false,
    });
    let limiter = limiter.unwrap();
    let (label, run_id): (Arc<str>, Arc<str>) = ("orders".into(), "run-1".into());
    let plugin = WasmPlugin::new(
        Arc::clone(component),
        Job {
            label: label.clone(),
            run_id: run_id.clone(),
            key_salt: String::new(),
            services: Arc::new(limiter.clone()),
        },
    );
    let stop = Stop::default();
    let setting = Config {
        workers: 1,
        batch_size: 1,
        ..Config::default()
    };
    let job = batchgate::flow::Job {
        label: label.clone(),
        run_id,
        source: Source::from_reader(std::io::Cursor::new(input), &source).unwrap(),
        limit: None,
        rejects: None,
        plugin,
        controller: Box::new(Fixed::new(&setting)),
        fixed: true,
        rules: Rules {
            bisect: false,
            bisect_min_size: 1,
            max_batch_retries: 0,
            max_item_attempts: 1,
            on_breach: OnBreach::Resend,
            max_breach_resends: 8,
            on_trap,
        },
        breaker: Breaker::new(1000, None),
        max_batch_bytes: None,
        budget: None,
        limiter,
        parking: Parking {
            park: true,
            max_cooldown: Duration::from_secs(3600),
        },
        control: None,
        records: Records::new(
            label,
            None,
            Some(FailuresFile::open(&failures).unwrap()),
            stop.clone(),
        ),
        describe: Describe::Key,
        grace: Duration::from_secs(30),
        stop,
    };
    let summary = run(job, |_| ()).await;
    let rows = csv::Reader::from_path(&failures).unwrap().into_records();
    let errors = rows.map(|row| row.unwrap()[1].to_owned()).collect();
    Ran { summary, errors }
}

impl Ran {
    /// Whether the run came to what its case says.
    fn check(&self, case: &Case, on_trap: OnTrap) -> Result<(), String> {
        let ends: Vec<_> = case
            .ends
            .iter()
            .flat_map(|&(times, end, said)| std::iter::repeat_n((end, said), times))
            .collect();
        // With "abort", the first trap is the last call.
        let first_trap = ends.iter().position(|&(end, _)| end == Trapped);
        let (calls, stopped) = match (on_trap, first_trap) {
            (OnTrap::Abort, Some(trap)) => (&ends[..=trap], Stopped::Trap),
            _ => (&ends[..], Stopped::Completed),
        };
        let of = |kinds: &[End]| calls.iter().filter(|(end, _)| kinds.contains(end)).count() as u64;
        let expected = [
            of(&[Written]),
            of(&[Skipped]),
            of(&[Failed]),
            of(&[Trapped, Late]),
            (ends.len() - calls.len()) as u64,
            of(&[Trapped]),
        ];
        let summary = &self.summary;
        let came = [
            summary.written,
            summary.skipped,
            summary.failed,
            summary.unknown,
            summary.not_dispatched.unwrap_or(u64::MAX),
            summary.traps,
        ];
        if (came, summary.stopped) != (expected, stopped) {
            return Err(format!(
                "{on_trap:?}: written, skipped, failed, unknown, not dispatched, traps: {came:?} {:?}, not {expected:?} \
                 {stopped:?}; {:.500?}",
                summary.stopped, self.errors
            ));
        }
        let unsuccessful = calls
            .iter()
            .filter(|(end, _)| !matches!(end, Written | Skipped));
        let reasons: Vec<_> = unsuccessful.map(|&(_, said)| said).collect();
        let all_said = reasons.len() == self.errors.len()
            && std::iter::zip(&self.errors, &reasons).all(|(error, said)| error.contains(said));
        if !all_said {
            return Err(format!(
                "{on_trap:?}: {:.1000?}, not {reasons:?}",
                self.errors
            ));
        }
        Ok(())
    }
}
