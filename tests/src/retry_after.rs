//! What a server's Retry-After comes to, from its bytes on the wire to the pause of all calls.

use crate::support::{Job, Ran, guest, numbered_csv};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// A server that refuses its first request with a given answer and stores the rest. It notes when each came.
struct Refusing {
    url: String,
    came: Arc<Mutex<Vec<Instant>>>,
}

impl Refusing {
    fn start(refusal: impl Fn() -> String + Send + Sync + 'static) -> Refusing {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let came: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (times, refusal) = (came.clone(), Arc::new(refusal));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (times, refusal) = (times.clone(), refusal.clone());
                std::thread::spawn(move || serve(stream, &times, &*refusal));
            }
        });
        Refusing { url, came }
    }
}

fn serve(stream: TcpStream, came: &Mutex<Vec<Instant>>, refusal: &dyn Fn() -> String) {
    let mut reader = BufReader::new(stream.try_clone().expect("two ends"));
    let mut writer = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let count = {
            let mut came = came.lock().expect("whole");
            came.push(Instant::now());
            came.len()
        };
        let items: Vec<serde_json::Value> = serde_json::from_slice(&body).expect("an array");
        let answer = match count {
            1 => refusal(),
            _ => {
                let body = format!("{{\"written\":{}}}", items.len());
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
        };
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn refused(status: &str, retry_after: &str) -> String {
    format!("HTTP/1.1 {status}\r\nretry-after: {retry_after}\r\ncontent-length: 4\r\n\r\nlate")
}

/// Runs two batches of ten, one at a time; returns how long the second request stayed away.
fn run(server: &Refusing, toml: &str) -> (Ran, Duration) {
    let job = Job::new(
        &guest("rust"),
        &numbered_csv(20),
        &format!(
            "key = \"id\"\n[pool]\nworkers = 1\nbatch_size = 10\n[sandbox]\nallow_hosts = [\"{url}\"]\n\
             [config]\napi_url = \"{url}/items\"\n[rate_limit]\n{toml}",
            url = server.url
        ),
    );
    let ran = job.run(&["--fixed"]);
    let came = server.came.lock().expect("whole");
    assert!(came.len() >= 2, "{}", ran.log);
    (ran, came[1] - came[0])
}

fn in_seconds(seconds: u64) -> String {
    httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds))
}

#[test]
fn seconds_and_dates_on_429_and_503_are_waited_out() {
    let base = "breach_base_cooldown = 0.05\n";
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let ran = [
            Refusing::start(move || refused(status, "2")),
            // A date has no fractions: this is 2 to 3 s away.
            Refusing::start(move || refused(status, &in_seconds(3))),
        ]
        .map(|server| run(&server, base));
        for (ran, away) in ran {
            assert_eq!(
                (ran.code, ran.adds_up().count("written")),
                (0, 20),
                "{}",
                ran.log
            );
            assert_eq!(
                (ran.count("breaches"), ran.count("failed")),
                (1, 0),
                "{}",
                ran.log
            );
            assert!(
                (Duration::from_millis(1900)..Duration::from_secs(8)).contains(&away),
                "{status}: {away:?}: {}",
                ran.log
            );
        }
    }
}

#[test]
fn a_shorter_retry_after_does_not_shorten_the_cooldown() {
    let server = Refusing::start(|| refused("429 Too Many Requests", "0"));
    let (ran, away) = run(&server, "breach_base_cooldown = 1.5\n");
    assert_eq!((ran.code, ran.count("breaches")), (0, 1), "{}", ran.log);
    assert!(away >= Duration::from_millis(1400), "{away:?}");
}

#[test]
fn nonsense_is_ignored_and_said() {
    for value in [
        "-5",
        "soon",
        "1e9",
        "Wed, 11 Mar 2020 12:00:00 GMT",
        "99 bottles",
        "0x10",
        "2678401",
        "999999999999999999999999",
    ] {
        let server = Refusing::start(move || refused("429 Too Many Requests", value));
        let (ran, away) = run(&server, "breach_base_cooldown = 0.05\n");
        assert_eq!(
            (ran.code, ran.adds_up().count("written")),
            (0, 20),
            "{}",
            ran.log
        );
        assert_eq!(ran.count("breaches"), 1, "{}", ran.log);
        assert!(away < Duration::from_secs(20), "{value}: {away:?}");
        let said = ran.log.lines().filter(|line| line.contains("is ignored"));
        let said: Vec<_> = said.collect();
        // The plugin reads the header too; a number that it makes of it is as little honoured.
        let of_plugin = |line: &&&str| line.contains("a plugin's wait of");
        assert_eq!(
            said.len() - said.iter().filter(of_plugin).count(),
            1,
            "{said:?}"
        );
        assert!(said[0].contains(value), "{value}: {}", ran.log);
    }
}

#[test]
fn a_503_that_names_no_time_is_a_failure_and_no_breach() {
    let server = Refusing::start(|| {
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned()
    });
    let (ran, _) = run(&server, "");
    assert_eq!(
        (ran.code, ran.adds_up().count("written")),
        (0, 20),
        "{}",
        ran.log
    );
    assert_eq!(ran.count("breaches"), 0, "{}", ran.log);
}

#[test]
fn a_time_beyond_the_longest_cooldown_parks_the_job() {
    let server = Refusing::start(|| refused("429 Too Many Requests", "7200"));
    let job = Job::new(
        &guest("rust"),
        &numbered_csv(20),
        &format!(
            "key = \"id\"\n[pool]\nworkers = 1\nbatch_size = 10\n[sandbox]\nallow_hosts = [\"{url}\"]\n\
             [config]\napi_url = \"{url}/items\"\n[rate_limit]\npark = false\nmax_cooldown = 3600\n",
            url = server.url
        ),
    );
    let ran = job.run(&["--fixed"]);
    assert_eq!(ran.summary["stopped"], "parked", "{}", ran.log);
    assert_eq!(ran.adds_up().count("not_dispatched"), 20, "{}", ran.log);
    assert_eq!(server.came.lock().expect("whole").len(), 1);
}
