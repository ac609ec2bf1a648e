//! What a run came to: the summary in its two forms, and the exit code that follows from it.
//!
//! Invariant: items = written + skipped + failed + unknown + not_dispatched, wherever items is known.

use super::appended::Appended;
use super::log::escape_line;
use crate::link::end_of;
use serde::{Serialize, Serializer};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a run came to. The order of the fields is that of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The job's label.
    pub label: String,
    /// The run's id.
    pub run_id: String,
    /// Items that this run took up. None where the input was not read to its end.
    pub items: Option<u64>,
    /// Items written.
    pub written: u64,
    /// Items that the guest answered ok for, with nothing to write.
    pub skipped: u64,
    /// Items that failed for good.
    pub failed: u64,
    /// Items whose call ended without an answer.
    pub unknown: u64,
    /// Items never sent. None where the input was not read to its end.
    pub not_dispatched: Option<u64>,
    /// Lines of the input that never became items.
    pub rejected: u64,
    /// Calls of the guest.
    pub calls: u64,
    /// Refusals for our rate.
    pub breaches: u64,
    /// Calls that trapped.
    pub traps: u64,
    /// The run's length.
    #[serde(serialize_with = "to_milliseconds")]
    pub elapsed_seconds: f64,
    /// The setting at the end.
    #[serde(rename = "final")]
    pub last: LastSetting,
    /// Why the run ended.
    pub stopped: Stopped,
    /// The items that former runs of the journal came to. None without a journal.
    pub earlier: Option<Earlier>,
}

/// The setting at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LastSetting {
    /// Calls to keep in flight.
    pub workers: u32,
    /// Items to put in a batch.
    pub batch_size: u32,
}

/// What former runs of a journal left, of items that this run did not take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Earlier {
    /// Items written.
    pub written: u64,
    /// Items with nothing to write.
    pub skipped: u64,
    /// Items failed for good.
    pub failed: u64,
    /// Items in doubt that are held.
    pub unknown: u64,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The input is done.
    Completed,
    /// Too many failed attempts in a row.
    CircuitBreaker,
    /// The guest said that no call can succeed.
    Fatal,
    /// More items failed than the job allows.
    FailureLimit,
    /// The guest trapped.
    Trap,
    /// The day's quota is spent or a cooldown too long to wait for.
    Parked,
    /// A signal.
    Interrupted(Signal),
    /// The input cannot be read further.
    InputError,
    /// A store that the run depends on cannot be written.
    StoreError,
    /// The shared budget was stopped.
    BudgetStopped,
    /// The job was taken away.
    Drained,
}

/// What interrupted a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// 128 and the signal's number, as shells have it.
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

impl Stopped {
    /// The word in the summary.
    pub fn as_str(self) -> &'static str {
        match self {
            Stopped::Completed => "completed",
            Stopped::CircuitBreaker => "circuit-breaker",
            Stopped::Fatal => "fatal",
            Stopped::FailureLimit => "failure-limit",
            Stopped::Trap => "trap",
            Stopped::Parked => "parked",
            Stopped::Interrupted(_) => "interrupted",
            Stopped::InputError => "input-error",
            Stopped::StoreError => "store-error",
            Stopped::BudgetStopped => "budget-stopped",
            Stopped::Drained => "drained",
        }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Stopped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Summary {
    /// The exit code of a process that ran this job alone.
    pub fn exit_code(&self) -> u8 {
        match self.stopped {
            Stopped::Interrupted(signal) => signal.exit_code(),
            // Unusable from its first byte on: nothing was sent.
            Stopped::InputError if self.calls == 0 => 2,
            Stopped::InputError | Stopped::StoreError | Stopped::BudgetStopped => 5,
            Stopped::Trap => 4,
            Stopped::CircuitBreaker | Stopped::Fatal | Stopped::FailureLimit => 3,
            Stopped::Completed | Stopped::Parked | Stopped::Drained => {
                u8::from(!self.all_written())
            }
        }
    }

    /// Whether every line of the input came to an end that is known, whatever it is.
    pub fn is_through(&self) -> bool {
        let earlier = self.earlier.unwrap_or_default();
        let open = [self.unknown, self.rejected, earlier.unknown];
        self.stopped == Stopped::Completed
            && self.not_dispatched == Some(0)
            && open.iter().all(|items| *items == 0)
    }

    /// Whether every item, of former runs too, was written or skipped.
    fn all_written(&self) -> bool {
        let left = match (self.not_dispatched, self.stopped) {
            (Some(items), _) => items > 0,
            // A run that completed left nothing behind in what it was to read.
            (None, Stopped::Completed) => false,
            (None, _) => true,
        };
        let earlier = self.earlier.unwrap_or_default();
        let not_written = [
            self.failed,
            self.unknown,
            self.rejected,
            earlier.failed,
            earlier.unknown,
        ];
        !left && not_written.iter().all(|items| *items == 0)
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a summary is plain data with text for keys")
    }

    /// Writes the JSON to a file, replacing it whole: a reader sees the old or the new one.
    pub fn write_file(&self, path: &Path) -> Result<(), SummaryError> {
        replace(path, &(self.to_json() + "\n")).map_err(|cause| SummaryError {
            path: path.to_owned(),
            cause,
        })
    }
}

/// Makes sure, before anything is sent, that a summary can be written to this path.
pub fn check_path(path: &Path) -> Result<(), SummaryError> {
    let problem = |cause| SummaryError {
        path: path.to_owned(),
        cause,
    };
    if path.is_dir() {
        return Err(problem(io::ErrorKind::IsADirectory.into()));
    }
    if path.exists() && !path.is_file() {
        // A pipe may get its reader later, and a device is there.
        return Ok(());
    }
    super::takes_a_file(&end_of(path)).map_err(problem)
}

/// The exit code of a process that ran several jobs: an interruption's, else the highest.
pub fn exit_code(summaries: &[Summary]) -> u8 {
    let interrupted = summaries.iter().find_map(|summary| match summary.stopped {
        Stopped::Interrupted(signal) => Some(signal.exit_code()),
        _ => None,
    });
    let highest = || summaries.iter().map(Summary::exit_code).max();
    interrupted.or_else(highest).unwrap_or(0)
}

/// The form for people: each line has the label in front.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = escape_line(&self.label);
        let stopped = match self.stopped {
            Stopped::Completed => "done".to_owned(),
            stopped => format!("stopped ({stopped})"),
        };
        let Summary {
            written,
            skipped,
            failed,
            unknown,
            rejected,
            ..
        } = self;
        let (items, not_dispatched) = match (self.items, self.not_dispatched) {
            (Some(items), Some(left)) => {
                (format!("{items} items"), format!("{left} not dispatched"))
            }
            _ => {
                let taken_up = written + skipped + failed + unknown;
                (
                    format!("{taken_up} items taken up"),
                    "the rest of the input was not read".to_owned(),
                )
            }
        };
        writeln!(
            f,
            "[{label}] {stopped}: {items}: {written} written, {skipped} skipped, {failed} failed, \
             {unknown} unknown, {not_dispatched}; {rejected} rejected lines"
        )?;
        if let Some(Earlier {
            written,
            skipped,
            failed,
            unknown,
        }) = self.earlier
        {
            writeln!(
                f,
                "[{label}] earlier runs: {written} written, {skipped} skipped, {failed} failed, {unknown} unknown"
            )?;
        }
        let Summary {
            calls,
            breaches,
            traps,
            elapsed_seconds,
            last,
            ..
        } = self;
        write!(
            f,
            "[{label}] {calls} calls, {breaches} breaches, {traps} traps in {elapsed_seconds:.1} s; \
             at the end workers={}, batch_size={}",
            last.workers, last.batch_size
        )
    }
}

/// The summary's file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the summary could not be written to {}: {cause}", path.display())]
pub struct SummaryError {
    path: PathBuf,
    cause: io::Error,
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let existing = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    let is_special = |metadata: &fs::Metadata| !metadata.is_file();
    // What /dev/stdout and its like lead to is in use by others.
    if existing.as_ref().is_some_and(is_special) || path.starts_with("/dev") {
        // A pipe or a device cannot be replaced.
        return Appended::open(path)?.write_all(text.as_bytes());
    }
    // A link stays: what it points to is replaced, or made.
    let target = end_of(path);
    let name = target
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        if let Some(metadata) = &existing {
            file.set_permissions(metadata.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&beside, &target)
    });
    if written.is_err() {
        // Whatever failed is the error to tell, not this.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn to_milliseconds<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((seconds * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(stopped: Stopped) -> Summary {
        Summary {
            label: "orders".to_owned(),
            run_id: "r1".to_owned(),
            items: Some(10),
            written: 9,
            skipped: 1,
            failed: 0,
            unknown: 0,
            not_dispatched: Some(0),
            rejected: 0,
            calls: 3,
            breaches: 2,
            traps: 1,
            elapsed_seconds: 1.23456,
            last: LastSetting {
                workers: 4,
                batch_size: 50,
            },
            stopped,
            earlier: None,
        }
    }

    const ALL: [Stopped; 12] = [
        Stopped::Completed,
        Stopped::Parked,
        Stopped::Drained,
        Stopped::CircuitBreaker,
        Stopped::Fatal,
        Stopped::FailureLimit,
        Stopped::Trap,
        Stopped::InputError,
        Stopped::StoreError,
        Stopped::BudgetStopped,
        Stopped::Interrupted(Signal::Interrupt),
        Stopped::Interrupted(Signal::Terminate),
    ];

    #[test]
    fn exit_codes_follow_from_end_and_counts() {
        let earlier = |failed, unknown| {
            Some(Earlier {
                written: 5,
                skipped: 5,
                failed,
                unknown,
            })
        };
        type Change = Box<dyn Fn(&mut Summary)>;
        let cases: [(&str, [u8; 3], Change); 10] = [
            // completed, parked, drained
            ("all written or skipped", [0, 0, 0], Box::new(|_| ())),
            (
                "no items",
                [0, 0, 0],
                Box::new(|s| (s.items, s.written, s.skipped) = (Some(0), 0, 0)),
            ),
            ("one failed", [1, 1, 1], Box::new(|s| s.failed = 1)),
            ("one unknown", [1, 1, 1], Box::new(|s| s.unknown = 1)),
            ("one rejected", [1, 1, 1], Box::new(|s| s.rejected = 1)),
            (
                "one not dispatched",
                [1, 1, 1],
                Box::new(|s| s.not_dispatched = Some(1)),
            ),
            (
                "not read to its end",
                [0, 1, 1],
                Box::new(|s| (s.items, s.not_dispatched) = (None, None)),
            ),
            (
                "earlier all written",
                [0, 0, 0],
                Box::new(move |s| s.earlier = earlier(0, 0)),
            ),
            (
                "earlier failed",
                [1, 1, 1],
                Box::new(move |s| s.earlier = earlier(1, 0)),
            ),
            (
                "earlier unknown",
                [1, 1, 1],
                Box::new(move |s| s.earlier = earlier(0, 1)),
            ),
        ];
        for (case, ended, change) in cases {
            let codes: Vec<u8> = ALL
                .iter()
                .map(|stopped| {
                    let mut summary = summary(*stopped);
                    change(&mut summary);
                    summary.exit_code()
                })
                .collect();
            let others = [3, 3, 3, 4, 5, 5, 5, 130, 143];
            assert_eq!(codes, [&ended[..], &others].concat(), "{case}");
        }
        let unusable = Summary {
            calls: 0,
            ..summary(Stopped::InputError)
        };
        assert_eq!(unusable.exit_code(), 2);
    }

    #[test]
    fn several_jobs_have_an_interruption_s_code_or_the_highest() {
        let code = |stopped: &[Stopped]| {
            let summaries: Vec<_> = stopped.iter().map(|s| summary(*s)).collect();
            exit_code(&summaries)
        };
        assert_eq!(code(&[]), 0);
        assert_eq!(
            code(&[Stopped::Completed, Stopped::Trap, Stopped::Fatal]),
            4
        );
        assert_eq!(
            code(&[
                Stopped::StoreError,
                Stopped::Interrupted(Signal::Interrupt),
                Stopped::Trap
            ]),
            130
        );
        assert_eq!(
            code(&[Stopped::Interrupted(Signal::Terminate), Stopped::StoreError]),
            143
        );
    }

    #[test]
    fn json_has_the_fields_in_order() {
        let json = summary(Stopped::CircuitBreaker).to_json();
        assert_eq!(
            json,
            r#"{"label":"orders","run_id":"r1","items":10,"written":9,"skipped":1,"failed":0,"unknown":0,"not_dispatched":0,"rejected":0,"calls":3,"breaches":2,"traps":1,"elapsed_seconds":1.235,"final":{"workers":4,"batch_size":50},"stopped":"circuit-breaker","earlier":null}"#
        );
        let mut unread = summary(Stopped::Interrupted(Signal::Terminate));
        (unread.items, unread.not_dispatched) = (None, None);
        unread.earlier = Some(Earlier {
            written: 1,
            skipped: 2,
            failed: 3,
            unknown: 4,
        });
        let value: serde_json::Value = serde_json::from_str(&unread.to_json()).unwrap();
        assert!(value["items"].is_null() && value["not_dispatched"].is_null());
        assert_eq!(value["stopped"], "interrupted");
        let earlier = serde_json::json!({"written": 1, "skipped": 2, "failed": 3, "unknown": 4});
        assert_eq!(value["earlier"], earlier);
        let words: Vec<_> = ALL[..11].iter().map(|s| s.as_str()).collect();
        let expected = "completed parked drained circuit-breaker fatal failure-limit trap input-error store-error budget-stopped interrupted";
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn people_read_what_adds_up() {
        assert_eq!(
            summary(Stopped::Completed).to_string(),
            "[orders] done: 10 items: 9 written, 1 skipped, 0 failed, 0 unknown, 0 not dispatched; 0 rejected lines\n\
             [orders] 3 calls, 2 breaches, 1 traps in 1.2 s; at the end workers=4, batch_size=50"
        );
        let mut stopped = summary(Stopped::CircuitBreaker);
        stopped.label = "a\nb".to_owned();
        (stopped.items, stopped.not_dispatched, stopped.failed) = (None, None, 2);
        stopped.earlier = Some(Earlier {
            written: 7,
            ..Earlier::default()
        });
        let text = stopped.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "[a\\nb] stopped (circuit-breaker): 12 items taken up: 9 written, 1 skipped, 2 failed, 0 unknown, the rest of the input was not read; 0 rejected lines",
                "[a\\nb] earlier runs: 7 written, 0 skipped, 0 failed, 0 unknown",
            ]
        );
    }

    #[test]
    fn the_file_is_replaced_whole_or_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(folder.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        let path = folder.path().join("summary.json");
        let one = summary(Stopped::Completed);
        one.write_file(&path).unwrap();
        let two = summary(Stopped::Trap);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("summary.json", &link).unwrap();
        two.write_file(&link).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), two.to_json() + "\n");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(), ["link", "summary.json"]);

        two.write_file(Path::new("/dev/null")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = two
            .write_file(&folder.path().join("no/summary.json"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the summary could not be written to /")
                && error.contains("no/summary.json: No such file"),
            "{error}"
        );
        fs::create_dir(folder.path().join("full")).unwrap();
        two.write_file(&folder.path().join("full")).unwrap_err();
        assert_eq!(names(), ["full", "link", "summary.json"]);
    }
}
