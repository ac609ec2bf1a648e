//! What hostile guests must not cost: a neighbour's time, and the host's memory. For tests in a process of their own.

use super::server::Server;
use super::*;
use batchgate_policy::outcome::CallEnd;
use std::sync::Mutex;

/// Runs one ignored test of this program in a process that runs nothing else, so that time and memory are its alone.
pub fn alone(test: &str) {
    let outcome = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout) + String::from_utf8_lossy(&outcome.stderr);
    assert!(
        outcome.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// Bytes of this process that are resident.
pub fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs to the end, and remembers the most memory that was resident meanwhile.
pub async fn watch<F: Future>(future: F, peak: &mut u64) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        let done = tokio::time::timeout(Duration::from_millis(5), &mut future).await;
        *peak = (*peak).max(resident());
        if let Ok(output) = done {
            return output;
        }
    }
}

/// A well-behaved plugin whose server takes 50 ms, called without end.
pub struct Neighbour(Arc<Mutex<Vec<Duration>>>);

impl Neighbour {
    pub async fn start() -> Self {
        let server = Server::slow(50).await;
        let sandbox = SandboxConfig {
            allow_hosts: vec![server.url()],
            config: vec![config("api_url", &server.url(), false)],
            ..SandboxConfig::default()
        };
        let plugin = plugin("rust", &sandbox);
        let times = Arc::new(Mutex::new(Vec::new()));
        for number in 0..4 {
            let mut slot = plugin.start_slot(number).await.unwrap();
            let times = Arc::clone(&times);
            tokio::spawn(async move {
                loop {
                    let report = slot.call(&items(&["a", "b", "c"]), info(1)).await;
                    assert_eq!(report.end, CallEnd::Written(3));
                    times.lock().unwrap().push(report.elapsed);
                }
            });
        }
        Self(times)
    }

    pub fn forget(&self) {
        self.0.lock().unwrap().clear();
    }

    /// Of the calls since they were forgotten, after a while more.
    pub async fn percentile_95(&self, more: Duration) -> Duration {
        tokio::time::sleep(more).await;
        let mut times = self.0.lock().unwrap().clone();
        assert!(
            times.len() >= 10,
            "the neighbour came to a stand: {} calls",
            times.len()
        );
        times.sort();
        times[times.len() * 95 / 100]
    }
}
