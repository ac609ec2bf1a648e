//! `batchgate control`: sets, clears and shows live overrides.

use super::usage::unless_closed;
use crate::report::log::escape_line;
use crate::store::control::{self, CLEARED, ControlEvent, LIVE_KEYS, LiveValue};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

/// Change a running job: set, clear and show its live overrides.
#[derive(Debug, Args)]
pub struct ControlArgs {
    #[command(subcommand)]
    command: ControlCommand,
}

#[derive(Debug, Subcommand)]
enum ControlCommand {
    /// Set a key. Running jobs that read this database act on it within their poll_seconds.
    Set {
        /// max_workers, min_workers, max_batch_size, min_batch_size, force_workers,
        /// force_batch_size, hold_workers, hold_batch_size, pause; of a host's budget: budget_min,
        /// budget_desired, budget_max. Others are stored and ignored.
        key: String,
        /// A whole number of at least 1; for pause: true or false.
        #[arg(allow_negative_numbers = true)]
        value: String,
        #[command(flatten)]
        db: Db,
        /// Who or why, for the log.
        #[arg(long)]
        note: Option<String>,
    },
    /// Clear a key: the job goes back to what it was configured with.
    Clear {
        /// The key.
        key: String,
        #[command(flatten)]
        db: Db,
        /// Who or why, for the log.
        #[arg(long)]
        note: Option<String>,
    },
    /// Show the values in force.
    Show {
        #[command(flatten)]
        db: Db,
        /// One object, key to value.
        #[arg(long)]
        json: bool,
    },
    /// Show every set and clear, oldest first.
    Log {
        #[command(flatten)]
        db: Db,
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Db {
    /// The control database.
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
}

/// Runs the command.
pub fn run(args: ControlArgs) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = execute(args.command, &mut out, &mut io::stderr().lock());
    unless_closed(written.and_then(|()| Ok(out.flush()?)))?;
    Ok(ExitCode::SUCCESS)
}

fn execute(
    command: ControlCommand,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        ControlCommand::Set {
            key,
            value,
            db,
            note,
        } => {
            if key.is_empty() {
                bail!("control set: the key is empty");
            }
            let id = control::set(&db.db, &key, &value, note.as_deref())
                .context("control set: nothing was written")?;
            writeln!(out, "{}: {} = {}", id, one_line(&key), one_line(&value))?;
            if let Some(remark) = remark(&key, &value) {
                writeln!(notes, "note: {remark}")?;
            }
        }
        ControlCommand::Clear { key, db, note } => {
            let id = control::clear(&db.db, &key, note.as_deref())
                .context("control clear: nothing was written")?;
            writeln!(out, "{}: {} cleared", id, one_line(&key))?;
            if let Some(remark) = remark_on_key(&key) {
                writeln!(notes, "note: {remark}")?;
            }
        }
        ControlCommand::Show { db, json } => {
            let values = control::current(&db.db).context("control show")?;
            if !db.db.exists() {
                writeln!(notes, "note: {} does not exist", db.db.display())?;
            } else if values.is_empty() {
                writeln!(notes, "note: no key is set")?;
            }
            if json {
                writeln!(out, "{}", serde_json::to_string(&values)?)?;
            } else {
                for (key, value) in values {
                    writeln!(out, "{} = {}", one_line(&key), one_line(&value))?;
                }
            }
        }
        ControlCommand::Log { db, json } => {
            let mut written = Ok(());
            let found = control::log(&db.db, |event| {
                written = write_event(out, &event, json);
                match written {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })
            .context("control log")?;
            written?;
            if !found {
                writeln!(
                    notes,
                    "note: {} does not exist or has no rows",
                    db.db.display()
                )?;
            }
        }
    }
    Ok(())
}

fn write_event(out: &mut dyn Write, event: &ControlEvent, json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", serde_json::to_string(event)?);
    }
    let what = if event.value == CLEARED {
        "cleared".to_owned()
    } else {
        format!("= {}", one_line(&event.value))
    };
    write!(
        out,
        "{}: {} {} {what}",
        event.id,
        local_time(event.timestamp),
        one_line(&event.key)
    )?;
    match &event.note {
        Some(note) => writeln!(out, " ({})", one_line(note)),
        None => writeln!(out),
    }
}

/// What is to be said about a key and value that no running job will act on.
fn remark(key: &str, value: &str) -> Option<String> {
    let Some(&(_, takes)) = LIVE_KEYS.iter().find(|(known, _)| *known == key) else {
        return remark_on_key(key);
    };
    let wanted = match takes {
        LiveValue::Count if value.trim().parse::<u32>().is_ok_and(|count| count >= 1) => {
            return None;
        }
        LiveValue::Count => "a whole number of at least 1",
        LiveValue::Flag if is_flag(value) => return None,
        LiveValue::Flag => "true or false",
    };
    (value != CLEARED).then(|| {
        format!(
            "stored, but jobs will ignore {key} = {}: it takes {wanted}",
            one_line(value)
        )
    })
}

fn is_flag(value: &str) -> bool {
    let words = ["true", "1", "yes", "on", "false", "0", "no", "off"];
    words.contains(&value.trim().to_ascii_lowercase().as_str())
}

/// Slips of the finger that a key may be off by to be taken for a known one.
const TYPO: usize = 4;

fn remark_on_key(key: &str) -> Option<String> {
    let distance = |known: &str| strsim::damerau_levenshtein(known, key);
    let nearest = LIVE_KEYS
        .iter()
        .map(|(known, _)| *known)
        .min_by_key(|known| distance(known))?;
    let advice = match distance(nearest) {
        0 => return None,
        near if near <= TYPO => format!("did you mean {nearest}?"),
        _ => "batchgate control set --help names those they know".to_owned(),
    };
    let key = one_line(key);
    Some(format!("stored, but jobs ignore the key {key}; {advice}"))
}

/// A moment in the local time zone, or as it is where it is no moment of the calendar.
pub(super) fn local_time(timestamp: f64) -> String {
    // From seconds to microseconds; the cast saturates.
    match Timestamp::from_microsecond((timestamp * 1e6) as i64) {
        Ok(moment) => moment
            .to_zoned_datetime(TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string(),
        Err(_) => timestamp.to_string(),
    }
}

/// Text that stays on its line, whatever someone put into the database.
pub(super) fn one_line(text: &str) -> String {
    escape_line(text).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ControlArgs,
    }

    /// Standard output and standard error of a command line.
    fn run(line: &[&str]) -> (String, String) {
        let cli = Cli::try_parse_from([&["control"], line].concat()).unwrap();
        let (mut out, mut notes) = (Vec::new(), Vec::new());
        execute(cli.args.command, &mut out, &mut notes).unwrap();
        (
            String::from_utf8(out).unwrap(),
            String::from_utf8(notes).unwrap(),
        )
    }

    #[test]
    fn what_is_set_is_shown_and_logged() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("control.sqlite");
        let db = db.to_str().unwrap();
        assert_eq!(run(&["show", "--db", db, "--json"]).0, "{}\n");
        assert_eq!(run(&["log", "--db", db]).0, "");
        assert!(!std::path::Path::new(db).exists(), "reading created it");
        run(&[
            "set",
            "max_workers",
            "16",
            "--db",
            db,
            "--note",
            "off\npeak",
        ]);
        run(&["set", "force_batch_size", "25", "--db", db]);
        run(&["clear", "force_batch_size", "--db", db]);
        assert_eq!(run(&["show", "--db", db]).0, "max_workers = 16\n");
        assert_eq!(
            run(&["show", "--db", db, "--json"]).0,
            "{\"max_workers\":\"16\"}\n"
        );
        let log = run(&["log", "--db", db, "--json"]).0;
        let rows: Vec<ControlEventFields> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = &rows[2];
        assert_eq!(rows.len(), 3);
        assert_eq!(
            (last.id, &*last.key, &*last.value),
            (3, "force_batch_size", CLEARED)
        );
        assert_eq!(
            (rows[0].note.as_deref(), last.note.as_deref()),
            (Some("off\npeak"), None)
        );
        assert!((last.timestamp - crate::store::usage::unix_now()).abs() < 60.0);
        let text = run(&["log", "--db", db]).0;
        assert!(text.contains("max_workers = 16 (off\\npeak)\n"), "{text}");
        assert!(text.ends_with("force_batch_size cleared\n"), "{text}");
    }

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ControlEventFields {
        id: i64,
        timestamp: f64,
        key: String,
        value: String,
        note: Option<String>,
    }

    #[test]
    fn what_no_job_acts_on_is_stored_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("control.sqlite");
        let db = db.to_str().unwrap();
        for (key, value, said) in [
            ("max_workers", "8", ""),
            ("pause", "true", ""),
            ("hold_batch_size", " 3 ", ""),
            ("max_workers", "0", "a whole number of at least 1"),
            ("max_workers", "-1", "a whole number of at least 1"),
            ("min_batch_size", "2.5", "a whole number of at least 1"),
            ("pause", "false", ""),
            ("pause", "maybe", "it takes true or false"),
            ("max_wrokers", "8", "did you mean max_workers?"),
            ("colour", "8", "ignore the key colour"),
        ] {
            let notes = run(&["set", key, value, "--db", db]).1;
            assert_eq!(notes.is_empty(), said.is_empty(), "{key} {value}: {notes}");
            assert!(notes.contains(said), "{key} {value}: {notes}");
            let shown = run(&["show", "--db", db]).0;
            assert!(
                shown.contains(&format!("{key} = {value}\n")),
                "{key} {value}: {shown}"
            );
        }
    }
}
