//! Turns what a guest writes to stdout and stderr into lines of our log.
//!
//! Invariant: whatever a guest writes, a line begins with its job's label and its slot, holds nothing that
//! could pass for another line, and the whole job writes no more than its lines a second.

use super::sandbox::SandboxConfig;
use super::text::{Secrets, cut};
use crate::report::log::escape_line;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// The log of one job's guests.
pub(super) struct JobLog {
    label: Arc<str>,
    max_line: usize,
    secrets: Secrets,
    per_second: u32,
    rate: Mutex<Rate>,
}

/// Allows so many lines a second, and as many at once after a quiet second.
struct Rate {
    per_second: f64,
    allowed: f64,
    since: Instant,
    /// Lines that were not written.
    dropped: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Written,
    FirstDropped,
    Dropped,
}

impl JobLog {
    pub(super) fn new(label: Arc<str>, secrets: Secrets, sandbox: &SandboxConfig) -> Arc<Self> {
        let per_second = f64::from(sandbox.max_log_lines_per_sec);
        Arc::new(Self {
            label,
            max_line: sandbox.max_log_line,
            secrets,
            per_second: sandbox.max_log_lines_per_sec,
            rate: Mutex::new(Rate {
                per_second,
                allowed: per_second,
                since: Instant::now(),
                dropped: 0,
            }),
        })
    }

    /// Writes a line, of which `beyond` bytes at the end were not kept.
    fn write(&self, slot: usize, line: &[u8], beyond: usize) {
        let turn = self
            .rate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now());
        match turn {
            Turn::Written => {
                let mut line = self
                    .secrets
                    .strike(String::from_utf8_lossy(line).into_owned());
                let mut gone = beyond;
                if beyond > 0 {
                    // What is left of a secret that the end of the kept bytes splits.
                    let known =
                        line.floor_char_boundary(line.len().saturating_sub(self.secrets.longest()));
                    gone += line.len() - known;
                    line.truncate(known);
                }
                let line = cut(line, self.max_line, gone);
                let label = format_args!("{}#{slot}", self.label);
                tracing::info!(target: "batchgate::guest", %label, "{}", escape_line(&line));
            }
            Turn::FirstDropped => tracing::warn!(
                target: "batchgate::guest",
                label = %self.label,
                "the plugin writes more than {} log lines a second (max_log_lines_per_sec); \
                 the surplus is counted and not shown",
                self.per_second
            ),
            Turn::Dropped => {}
        }
    }
}

impl Drop for JobLog {
    fn drop(&mut self) {
        let dropped = self
            .rate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .dropped;
        if dropped > 0 {
            tracing::warn!(
                target: "batchgate::guest",
                label = %self.label,
                "{dropped} log lines of the plugin were not shown (max_log_lines_per_sec)",
            );
        }
    }
}

impl Rate {
    /// What becomes of one more line.
    fn take(&mut self, now: Instant) -> Turn {
        let passed = now.saturating_duration_since(self.since);
        self.allowed = (self.allowed + passed.as_secs_f64() * self.per_second).min(self.per_second);
        self.since = now;
        if self.allowed >= 1.0 {
            self.allowed -= 1.0;
            return Turn::Written;
        }
        self.dropped += 1;
        if self.dropped == 1 {
            Turn::FirstDropped
        } else {
            Turn::Dropped
        }
    }
}

/// stdout or stderr of one instance. All streams of it that the guest opens share its lines.
#[derive(Clone)]
pub(super) struct GuestOutput {
    job: Arc<JobLog>,
    slot: usize,
    line: Arc<Mutex<Line>>,
}

/// A line that has not ended yet.
#[derive(Default)]
struct Line {
    text: Vec<u8>,
    /// Bytes that were not kept.
    beyond: usize,
}

impl GuestOutput {
    pub(super) fn new(job: Arc<JobLog>, slot: usize) -> Self {
        Self {
            job,
            slot,
            line: Arc::default(),
        }
    }

    /// Writes a line that the guest began and did not end.
    pub(super) fn end_line(&self) {
        self.line
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .end(&self.job, self.slot);
    }

    fn take(&self, bytes: &[u8]) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pieces = bytes.split(|&byte| byte == b'\n');
        line.extend(pieces.next().unwrap_or_default(), self.keep());
        for piece in pieces {
            // An empty line is written as well: it is the guest's.
            line.write(&self.job, self.slot);
            line.extend(piece, self.keep());
        }
    }

    /// A secret that the cut would split must be there in whole to be found.
    fn keep(&self) -> usize {
        self.job.max_line + self.job.secrets.longest() + 1
    }
}

impl Line {
    fn extend(&mut self, piece: &[u8], keep: usize) {
        let room = keep.saturating_sub(self.text.len()).min(piece.len());
        self.text.extend_from_slice(&piece[..room]);
        self.beyond = self.beyond.saturating_add(piece.len() - room);
    }

    fn end(&mut self, job: &JobLog, slot: usize) {
        if !self.text.is_empty() {
            self.write(job, slot);
        }
    }

    fn write(&mut self, job: &JobLog, slot: usize) {
        let text = self.text.strip_suffix(b"\r").unwrap_or(&self.text);
        job.write(slot, text, self.beyond);
        self.text.clear();
        self.beyond = 0;
    }
}

impl StdoutStream for GuestOutput {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

/// Bytes that a guest may write at once.
const PERMIT: usize = 64 << 10;

impl OutputStream for GuestOutput {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl Pollable for GuestOutput {
    // Always ready: a line is written at once or dropped.
    fn ready<'a, 'ready>(&'a mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'ready>>
    where
        'a: 'ready,
        Self: 'ready,
    {
        Box::pin(std::future::ready(()))
    }
}

impl AsyncWrite for GuestOutput {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasm::sandbox::ConfigValue;
    use std::time::Duration;

    /// Runs `write` and returns the lines it logged.
    fn logged(sandbox: &SandboxConfig, write: impl FnOnce(&GuestOutput)) -> Vec<String> {
        let lines = crate::wasm::log_capture::Lines::default();
        tracing::subscriber::with_default(lines.subscriber(), || {
            let job = JobLog::new("orders".into(), Secrets::new(&sandbox.config), sandbox);
            let output = GuestOutput::new(job, 3);
            write(&output);
            output.end_line();
        });
        lines.take()
    }

    #[test]
    fn lines_are_whole_labelled_and_escaped() {
        let lines = logged(&SandboxConfig::default(), |output| {
            let mut one = output.clone();
            OutputStream::write(&mut one, "hel".into()).unwrap();
            let mut two = output.clone();
            OutputStream::write(&mut two, "lo\r\n\n[orders#0] forged\x1b[2J\nopen".into()).unwrap();
        });
        assert_eq!(
            lines,
            [
                "[orders#3] hello",
                "[orders#3] ",
                "[orders#3] [orders#0] forged\\x1b[2J",
                "[orders#3] open"
            ]
        );
    }

    #[test]
    fn long_lines_are_cut_and_split_no_secret() {
        let secret = ConfigValue {
            key: "token".into(),
            value: "s3cr3t-value".into(),
            secret: true,
        };
        let sandbox = SandboxConfig {
            max_log_line: 20,
            config: vec![secret],
            ..SandboxConfig::default()
        };
        let lines = logged(&sandbox, |output| {
            output.take(b"0123456789abcdefgh s3cr3t-value and so on\n");
            output.take(b"s3cr3t-value s3cr3t-value s3cr3t-value s3cr3t-value s3cr3t\n");
        });
        assert_eq!(lines.len(), 2);
        for line in lines {
            assert!(!line.contains("s3cr"), "{line}");
            assert!(line.contains("bytes cut"), "{line}");
        }
    }

    #[test]
    fn the_surplus_is_said_once_and_counted() {
        let sandbox = SandboxConfig {
            max_log_lines_per_sec: 3,
            ..SandboxConfig::default()
        };
        let lines = logged(&sandbox, |output| {
            for _ in 0..10_000 {
                output.take(b"again\n");
            }
        });
        let shown = lines.iter().filter(|line| line.ends_with("again")).count();
        assert!((3..=30).contains(&shown), "{shown}");
        let said: Vec<_> = lines
            .iter()
            .filter(|line| !line.ends_with("again"))
            .collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[1].contains(&format!("{} log lines", 10_000 - shown)),
            "{said:?}"
        );
    }

    #[test]
    fn a_quiet_second_allows_a_second_of_lines() {
        let now = Instant::now();
        let mut rate = Rate {
            per_second: 2.0,
            allowed: 2.0,
            since: now,
            dropped: 0,
        };
        let turns: Vec<_> = (0..4).map(|_| rate.take(now)).collect();
        assert_eq!(
            turns,
            [
                Turn::Written,
                Turn::Written,
                Turn::FirstDropped,
                Turn::Dropped
            ]
        );
        let later = now + Duration::from_secs(60);
        let turns: Vec<_> = (0..3).map(|_| rate.take(later)).collect();
        assert_eq!(turns, [Turn::Written, Turn::Written, Turn::Dropped]);
    }
}
