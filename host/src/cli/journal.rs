//! `batchgate journal`: what a journal knows.

use super::control::{local_time, one_line};
use super::usage::unless_closed;
use crate::report::log::escape_json;
use crate::store::journal::{ItemLook, Look, StateName, Subject, look};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look into a journal: runs, counts, and items by what became of them.
#[derive(Debug, Args)]
pub struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// What the journal is about, its runs, and how many items came to each end.
    Show {
        /// The journal.
        #[arg(long, value_name = "FILE")]
        db: PathBuf,
        /// One object.
        #[arg(long)]
        json: bool,
    },
    /// The items of one state, a line each: index, key, reason.
    Items {
        /// What became of the items. Those of a call that wrote some and skipped others are listed as both.
        #[arg(long, value_enum)]
        state: State,
        /// The journal.
        #[arg(long, value_name = "FILE")]
        db: PathBuf,
        /// An object a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Written,
    Skipped,
    Failed,
    Unknown,
    InFlight,
}

impl State {
    fn name(self) -> StateName {
        match self {
            State::Written => StateName::Written,
            State::Skipped => StateName::Skipped,
            State::Failed => StateName::Failed,
            State::Unknown => StateName::Unknown,
            State::InFlight => StateName::InFlight,
        }
    }
}

/// Runs the command.
pub fn run(args: JournalArgs) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = execute(args.command, &mut out, &mut io::stderr().lock());
    unless_closed(written.and_then(|()| Ok(out.flush()?)))?;
    Ok(ExitCode::SUCCESS)
}

fn execute(
    command: JournalCommand,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        JournalCommand::Show { db, json } => {
            let Some(look) = open(&db, notes)? else {
                return Ok(());
            };
            match json {
                true => writeln!(out, "{}", as_json(&look)?)?,
                false => show(&look, &db, out)?,
            }
        }
        JournalCommand::Items { state, db, json } => {
            let Some(look) = open(&db, notes)? else {
                return Ok(());
            };
            let mut result = Ok(());
            look.items(state.name(), |item| {
                result = write_item(&item, json, out);
                match result {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            result?;
        }
    }
    Ok(())
}

fn open(db: &Path, notes: &mut dyn Write) -> anyhow::Result<Option<Look>> {
    let found = look(db)?;
    if found.is_none() {
        writeln!(
            notes,
            "note: {} does not exist or is no journal",
            db.display()
        )?;
    }
    Ok(found)
}

fn write_item(item: &ItemLook, json: bool, out: &mut dyn Write) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", escape_json(serde_json::to_string(item)?));
    }
    let key = item.key.as_deref().map_or("-".to_owned(), one_line);
    let reason = item
        .reason
        .as_deref()
        .map_or(item.state.to_owned(), one_line);
    writeln!(out, "{}\t{key}\t{reason}", item.index)
}

fn as_json(look: &Look) -> anyhow::Result<Value> {
    let totals = look.totals();
    let about = |subject: &Subject| {
        json!({
            "input": subject.input.name,
            "size": subject.input.file.as_ref().map(|file| file.size),
            "sha256": subject.input.file.as_ref().map(|file| &file.sha256),
            "cut": subject.cut,
            "key": subject.key,
            "component_sha256": subject.component,
        })
    };
    let subjects = look.subjects()?;
    Ok(json!({
        "label": subjects.as_ref().map(|(main, _)| &main.label),
        "in_use": look.is_used(),
        "written": totals.written,
        "skipped": totals.skipped,
        "failed": totals.failed,
        "unknown": totals.unknown,
        "in_flight": look.in_flight(),
        "subject": subjects.as_ref().map(|(main, _)| about(main)),
        "last_subject": subjects.as_ref().map(|(_, last)| about(last)),
        "runs": look.runs()?,
    }))
}

fn show(look: &Look, db: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let totals = look.totals();
    let used = if look.is_used() { " (in use)" } else { "" };
    writeln!(out, "{}{used}", db.display())?;
    writeln!(
        out,
        "items: {} written, {} skipped, {} failed, {} unknown, {} in flight",
        totals.written,
        totals.skipped,
        totals.failed,
        totals.unknown,
        look.in_flight()
    )?;
    if let Some((main, last)) = look.subjects()? {
        writeln!(out, "label: {}", one_line(&main.label))?;
        about("input", &main, out)?;
        if last.input != main.input {
            about("input of the last run", &last, out)?;
        }
        let key = main.key.as_deref().map_or("none".to_owned(), one_line);
        writeln!(out, "key: {key}")?;
        writeln!(out, "component: SHA-256 {}", main.component)?;
    }
    for run in look.runs()? {
        let ended = match (run.ended, &run.summary) {
            (Some(ended), Some(summary)) => format!(
                "to {}: {}, {} written, {} skipped, {} failed, {} unknown",
                local_time(ended),
                summary["stopped"].as_str().unwrap_or("-"),
                summary["written"],
                summary["skipped"],
                summary["failed"],
                summary["unknown"],
            ),
            _ if look.is_used() => "goes on, or was killed".to_owned(),
            _ => "was killed".to_owned(),
        };
        writeln!(
            out,
            "run {} from {} {ended}",
            run.run_id,
            local_time(run.started)
        )?;
    }
    Ok(())
}

fn about(what: &str, subject: &Subject, out: &mut dyn Write) -> anyhow::Result<()> {
    let name = one_line(&subject.input.name);
    match &subject.input.file {
        Some(file) => writeln!(
            out,
            "{what}: {name} ({}; {} bytes, SHA-256 {})",
            subject.cut, file.size, file.sha256
        )?,
        None => writeln!(out, "{what}: {name} ({}; a stream)", subject.cut)?,
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_items_line_stays_in_its_place() {
        let key = "a\u{202e}b\u{2028}\u{1b}[2J\u{9b}\n";
        let item = ItemLook {
            index: 3,
            key: Some(key.to_owned()),
            state: "failed",
            reason: Some("no\u{2066}".to_owned()),
            outcome: None,
            attempts: None,
        };
        let written = |json| {
            let mut out = Vec::new();
            write_item(&item, json, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            written(false),
            "3\ta\\u{202e}b\\u{2028}\\x1b[2J\\u{9b}\\n\tno\\u{2066}\n"
        );
        let json = written(true);
        assert!(json.is_ascii(), "{json}");
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["key"], key);
    }
}
