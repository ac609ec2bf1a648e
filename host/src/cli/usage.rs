//! `batchgate usage`: questions to a usage log.

use super::control::{local_time, one_line};
use crate::store::usage::{self, Span, Totals, UsageLog, unix_now};
use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Ask a usage log how many calls were made.
#[derive(Debug, Args)]
pub struct UsageArgs {
    #[command(subcommand)]
    command: UsageCommand,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Calls since local midnight.
    Today {
        #[command(flatten)]
        question: Question,
    },
    /// Calls of the last seconds.
    Window {
        /// How far to look back.
        #[arg(value_parser = seconds)]
        seconds: f64,
        #[command(flatten)]
        question: Question,
    },
    /// All calls in the log, a line a label.
    Summary {
        #[command(flatten)]
        question: Question,
    },
    /// Remove the rows of old calls. Their space is used again; the file does not shrink.
    Prune {
        /// Rows before this are removed: a date or a date and time, local unless it says
        /// otherwise (2026-07-01, 2026-07-01T12:00, 2026-07-01T12:00Z).
        #[arg(long, value_name = "DATE", value_parser = moment)]
        before: Timestamp,
        /// The usage log.
        #[arg(long, value_name = "FILE")]
        db: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Question {
    /// The usage log.
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
    /// Only the calls of this job.
    #[arg(long)]
    label: Option<String>,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

/// A line of an answer.
#[derive(Debug, Serialize)]
struct Answer {
    since: Option<f64>,
    until: Option<f64>,
    label: Option<String>,
    requests: i64,
    ok: i64,
    fail: i64,
    breach: i64,
    items: i64,
    bytes: i64,
}

impl Answer {
    fn new(span: Span, label: Option<String>, totals: Totals) -> Answer {
        let Totals {
            requests,
            ok,
            fail,
            breach,
            items,
            bytes,
        } = totals;
        let Span { since, until } = span;
        Answer {
            since,
            until,
            label,
            requests,
            ok,
            fail,
            breach,
            items,
            bytes,
        }
    }

    fn write(&self, out: &mut dyn Write, json: bool) -> io::Result<()> {
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        let moment = |time: Option<f64>| time.map_or("-".to_owned(), local_time);
        let label = self
            .label
            .as_deref()
            .map_or("all labels".to_owned(), one_line);
        writeln!(
            out,
            "{label}: {} requests: {} ok, {} fail, {} breach; {} items, {} bytes ({} to {})",
            self.requests,
            self.ok,
            self.fail,
            self.breach,
            self.items,
            self.bytes,
            moment(self.since),
            moment(self.until),
        )
    }
}

/// Runs the command.
pub fn run(args: UsageArgs) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = execute(args.command, &mut out, &mut io::stderr().lock());
    unless_closed(written.and_then(|()| Ok(out.flush()?)))?;
    Ok(ExitCode::SUCCESS)
}

fn execute(
    command: UsageCommand,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        UsageCommand::Today { question } => {
            let since = |now| midnight_before(now).context("usage today");
            answer_since(&question, since, out, notes)
        }
        UsageCommand::Window { seconds, question } => {
            answer_since(&question, |now| Ok(now - seconds), out, notes)
        }
        UsageCommand::Summary { question } => summary(&question, out, notes),
        UsageCommand::Prune { before, db } => {
            if !db.exists() {
                bail!("usage prune: {} does not exist", db.display());
            }
            let removed = usage::prune(&db, before.as_microsecond() as f64 / 1e6)
                .context("usage prune: not all rows were removed")?;
            writeln!(out, "{removed} rows removed")?;
            Ok(())
        }
    }
}

fn answer_since(
    question: &Question,
    since: impl FnOnce(f64) -> anyhow::Result<f64>,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> anyhow::Result<()> {
    let log = open(question, notes)?;
    // After opening: then no call is later than this, and the sums need no correction.
    let now = unix_now();
    let span = Span {
        since: Some(since(now)?),
        until: Some(now),
    };
    let mut totals = Totals::default();
    if let Some(log) = log {
        for label in log.totals(span, question.label.as_deref())?.into_values() {
            totals += label;
        }
    }
    Answer::new(span, question.label.clone(), totals).write(out, question.json)?;
    Ok(())
}

fn summary(question: &Question, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<()> {
    let Some(log) = open(question, notes)? else {
        Answer::new(Span::default(), question.label.clone(), Totals::default())
            .write(out, question.json)?;
        return Ok(());
    };
    let by_label = log.totals(Span::default(), question.label.as_deref())?;
    let (since, until) = log.ends()?.unzip();
    let span = Span { since, until };
    if by_label.is_empty() {
        Answer::new(span, question.label.clone(), Totals::default()).write(out, question.json)?;
    }
    for (label, totals) in by_label {
        Answer::new(span, Some(label), totals).write(out, question.json)?;
    }
    Ok(())
}

fn open(question: &Question, notes: &mut dyn Write) -> anyhow::Result<Option<UsageLog>> {
    let log = UsageLog::open(&question.db)?;
    if log.is_none() {
        writeln!(
            notes,
            "note: {} does not exist or has no calls",
            question.db.display()
        )?;
    }
    Ok(log)
}

/// Local midnight of the day of a moment, both in seconds since 1970.
fn midnight_before(now: f64) -> anyhow::Result<f64> {
    let now = Timestamp::from_microsecond((now * 1e6) as i64)?;
    let midnight = now.to_zoned_datetime(TimeZone::system()).start_of_day()?;
    Ok(midnight.timestamp().as_second() as f64)
}

/// About 300 years, which the calendar can still name.
const MOST_SECONDS: f64 = 1e10;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MOST_SECONDS => Ok(seconds),
        _ => Err(format!(
            "give a number of seconds above 0, at most {MOST_SECONDS:e}"
        )),
    }
}

fn moment(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let local = text
        .parse::<DateTime>()
        .map_err(|_| anyhow!("give a date like 2026-07-01 or 2026-07-01T12:00"))?;
    Ok(local.to_zoned_datetime(TimeZone::system())?.timestamp())
}

/// A reader that wants no more, like `head`, is no failure.
pub(super) fn unless_closed(written: anyhow::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::UsageWriter;
    use crate::store::usage::UsageRow;
    use batchgate_policy::outcome::UsageOutcome;
    use clap::Parser;
    use serde_json::{Value, json};
    use std::path::Path;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: UsageArgs,
    }

    /// The objects on standard output of a command line with --json.
    fn run(db: &Path, line: &[&str]) -> Vec<Value> {
        let db = ["--db", db.to_str().unwrap(), "--json"];
        let cli = Cli::try_parse_from([&["usage"], line, &db].concat()).unwrap();
        let mut out = Vec::new();
        execute(cli.args.command, &mut out, &mut Vec::new()).unwrap();
        let out = String::from_utf8(out).unwrap();
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The answer without its times.
    fn counts(answer: &Value) -> Value {
        let fields = [
            "label", "requests", "ok", "fail", "breach", "items", "bytes",
        ];
        fields.iter().map(|field| answer[field].clone()).collect()
    }

    fn log(db: &Path, rows: &[(f64, &str, u32, UsageOutcome, Option<u64>)]) {
        let writer = UsageWriter::open(db).unwrap();
        for &(timestamp, label, n_items, outcome, bytes) in rows {
            writer.log(UsageRow {
                timestamp,
                label: label.into(),
                workers: 2,
                batch_size: 50,
                n_items,
                elapsed_seconds: 0.1,
                outcome,
                bytes,
            });
        }
        assert_eq!(writer.close().written, rows.len() as u64);
    }

    #[test]
    fn each_question_has_its_span_and_label() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("usage.sqlite");
        let now = unix_now();
        let (hour_ago, last_month) = (now - 3600.0, now - 40.0 * 86400.0);
        log(
            &db,
            &[
                (last_month, "a", 50, UsageOutcome::Ok, Some(7)),
                (hour_ago, "a", 40, UsageOutcome::Breach, Some(5)),
                (now, "a", 30, UsageOutcome::Fail, None),
                (now, "b", 20, UsageOutcome::Ok, Some(1)),
            ],
        );
        let all = run(&db, &["window", "7200"]);
        assert_eq!(counts(&all[0]), json!([null, 3, 1, 1, 1, 90, 6]));
        assert!((all[0]["until"].as_f64().unwrap() - now).abs() < 60.0);
        let span = all[0]["until"].as_f64().unwrap() - all[0]["since"].as_f64().unwrap();
        assert!((span - 7200.0).abs() < 1e-3);
        let one = run(&db, &["window", "60.5", "--label", "a"]);
        assert_eq!(counts(&one[0]), json!(["a", 1, 0, 1, 0, 30, 0]));
        let none = run(&db, &["window", "60", "--label", "x"]);
        assert_eq!(counts(&none[0]), json!(["x", 0, 0, 0, 0, 0, 0]));
        let summary = run(&db, &["summary"]);
        assert_eq!(summary.len(), 2);
        assert_eq!(counts(&summary[0]), json!(["a", 3, 1, 1, 1, 120, 12]));
        assert_eq!(counts(&summary[1]), json!(["b", 1, 1, 0, 0, 20, 1]));
        // The reader of JSON may be off by a bit.
        assert!((summary[0]["since"].as_f64().unwrap() - last_month).abs() < 1e-5);
        let today = &run(&db, &["today", "--label", "b"])[0];
        assert_eq!(counts(today), json!(["b", 1, 1, 0, 0, 20, 1]));
        assert_eq!(today["since"].as_f64(), Some(midnight_before(now).unwrap()));
    }

    #[test]
    fn prune_removes_what_is_older_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("usage.sqlite");
        let cut = "2026-07-01T00:00Z"
            .parse::<Timestamp>()
            .unwrap()
            .as_second() as f64;
        let row = |time| (time, "a", 1, UsageOutcome::Ok, None);
        log(&db, &[row(cut - 0.25), row(cut), row(cut + 9e4)]);
        let cli = |before: &str| {
            let line = [
                "usage",
                "prune",
                "--before",
                before,
                "--db",
                db.to_str().unwrap(),
            ];
            Cli::try_parse_from(line)
        };
        assert!(cli("yesterday").is_err());
        let mut out = Vec::new();
        let command = cli("2026-07-01T02:00+02:00").unwrap().args.command;
        execute(command, &mut out, &mut Vec::new()).unwrap();
        assert_eq!(out, b"1 rows removed\n");
        assert_eq!(
            counts(&run(&db, &["summary"])[0]),
            json!(["a", 2, 2, 0, 0, 2, 0])
        );
    }

    #[test]
    fn a_missing_log_has_no_calls_and_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("usage.sqlite");
        for question in [&["today"][..], &["window", "60"], &["summary"]] {
            let answers = run(&db, question);
            assert_eq!(answers.len(), 1);
            assert_eq!(
                counts(&answers[0]),
                json!([null, 0, 0, 0, 0, 0, 0]),
                "{question:?}"
            );
        }
        let prune = UsageCommand::Prune {
            before: Timestamp::UNIX_EPOCH,
            db: db.clone(),
        };
        assert!(execute(prune, &mut Vec::new(), &mut Vec::new()).is_err());
        assert!(!db.exists());
    }

    #[test]
    fn what_is_no_span_of_time_is_refused() {
        for bad in ["0", "-1", "nan", "inf", "1e11", "1h"] {
            let line = ["usage", "window", bad, "--db", "x"];
            assert!(Cli::try_parse_from(line).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_date_is_local_unless_it_says_otherwise() {
        let local = |text: &str| moment(text).unwrap();
        assert_eq!(local("2026-07-01"), local("2026-07-01T00:00:00"));
        assert_eq!(local("2026-07-01T12:00Z"), local("2026-07-01T14:00+02:00"));
        assert!(moment("1.7.2026").is_err());
    }
}
