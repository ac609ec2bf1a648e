//! Says once when a store starts to fail, and lets its user say once that it works again.

use super::fault::StoreError;

/// Whether a store is failing.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    failing: bool,
}

impl Trouble {
    /// The store failed. Warns if it worked until now; `label` is that of the job whose alone the store is, and
    /// `consequence` says what becomes of the run.
    pub(super) fn begin(
        &mut self,
        label: Option<&str>,
        store: &str,
        error: &StoreError,
        consequence: &str,
    ) {
        if !self.failing {
            self.failing = true;
            tracing::warn!(label, "{store} {error}; {consequence}");
        } else {
            tracing::debug!(label, "{store} {error}");
        }
    }

    /// The store worked. True if it failed until now.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.failing)
    }
}

/// What a body of code warned of.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) fn warnings(body: impl FnOnce()) -> Vec<String> {
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, body);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Runs an ignored test in a process that a shell script prepares.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) fn run_apart(test: &str, script: &str) {
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}
