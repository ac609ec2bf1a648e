//! `batchgate replay`: what a controller would have done, on a trace or a usage log.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use batchgate_policy::controller::{self, Config, Controller};

use crate::config::Tuning;
use crate::replay::{Replay, State, events, step};
use crate::store::LoggedCalls;

/// Show what a controller would have done
///
/// On a trace: JSON lines, each an observation {"epoch", "workers", "batch_size", "n_items",
/// "elapsed", "ok", "size_fault"} (and optionally "in_flight"), or {"overrides": {"KEY": "VALUE"}}.
/// On a usage log: its calls at the settings that the controller asks for; where the log goes on
/// at another one, the controller is taken there.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The trace; "-" is standard input.
    #[arg(
        value_name = "TRACE.jsonl",
        required_unless_present = "usage",
        conflicts_with = "usage"
    )]
    trace: Option<PathBuf>,
    /// A usage log to replay instead.
    #[arg(long, value_name = "FILE", requires = "label")]
    usage: Option<PathBuf>,
    /// Whose calls in the usage log.
    #[arg(long, requires = "usage")]
    label: Option<String>,
    /// The controller, by name [default: the job file's, else curve].
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// A job file, of which [pool] and [adaptive] are read [default: the defaults; for a usage
    /// log where the log starts, without a maximum].
    #[arg(long, value_name = "JOB.toml")]
    config: Option<PathBuf>,
    /// The state after each line, as one object a line.
    #[arg(long)]
    json: bool,
}

/// Replays. Every error is one of the input.
pub fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    match execute(&args, &mut out).and_then(|()| Ok(out.flush()?)) {
        // Who reads no further has seen enough.
        Err(error) if closed(&error) => Ok(ExitCode::SUCCESS),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn closed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn execute(args: &ReplayArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let (config, name) = load_config(args.config.as_deref())?;
    let name = args.controller.as_deref().or(name.as_deref());
    let build = |config: &Config| controller::by_name(name.unwrap_or(controller::DEFAULT), config);
    match (&args.trace, &args.usage, &args.label) {
        (Some(path), ..) => {
            let mut controller = build(&config.unwrap_or_default())?;
            let trace = open(path)?;
            replay_trace(&mut *controller, trace, args.json, out)
                .with_context(|| path.display().to_string())
        }
        (None, Some(path), Some(label)) => replay_usage(path, label, config, build, args.json, out),
        _ => bail!("name a trace, or a usage log and a label"),
    }
}

/// The tuner's part of a job file, and the controller that it names.
fn load_config(path: Option<&Path>) -> anyhow::Result<(Option<Config>, Option<String>)> {
    let Some(path) = path else {
        return Ok((None, None));
    };
    let tuning = Tuning::load(path)?;
    Ok((Some(tuning.controller_config()), tuning.adaptive.controller))
}

fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

fn replay_trace(
    controller: &mut dyn Controller,
    trace: impl BufRead,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut last = 0;
    for event in events(trace) {
        let (line, event) = event?;
        let state = step(controller, &event);
        write_state(&state, "line", line, json, out)?;
        last = line;
    }
    if !json {
        let setting = controller.setting();
        let (workers, batch_size) = (setting.workers, setting.batch_size);
        writeln!(
            out,
            "after line {last}: workers={workers}, batch_size={batch_size}"
        )?;
    }
    Ok(())
}

fn replay_usage(
    path: &Path,
    label: &str,
    config: Option<Config>,
    build: impl Fn(&Config) -> Result<Box<dyn Controller>, controller::UnknownController>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let calls = LoggedCalls::open(path, label)?
        .with_context(|| format!("{}: there is no usage log", path.display()))?;
    let mut calls = calls.peekable();
    let first = match calls.peek() {
        None => bail!("{}: no calls with the label {label:?}", path.display()),
        // The error comes again, and is returned, below.
        Some(Err(_)) => None,
        Some(Ok(call)) => Some(Replay::config(call)),
    };
    let config = config.or(first).unwrap_or_default();
    let mut replay = Replay::new(build(&config)?);
    let mut last = None;
    for call in calls {
        let call = call?;
        let state = replay.take(&call);
        write_state(&state, "call", call.id, json, out)?;
        last = Some(state);
    }
    let tally = replay.tally();
    if !json
        && let Some(State {
            workers,
            batch_size,
            ..
        }) = last
    {
        writeln!(
            out,
            "after {} calls: workers={workers}, batch_size={batch_size}; {} were at the setting asked for, \
             {} at one out of bounds; the log went on elsewhere {} times",
            tally.calls, tally.asked_for, tally.out_of_bounds, tally.followed
        )?;
    }
    Ok(())
}

fn write_state(
    state: &State,
    what: &str,
    number: impl std::fmt::Display,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, state)?;
        return writeln!(out);
    }
    for (change, (workers, batch_size)) in state.changes.iter().zip(&state.levels_after) {
        writeln!(
            out,
            "{what} {number}: {change} -> workers={workers}, batch_size={batch_size}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::UsageWriter;
    use crate::store::usage::UsageRow;
    use batchgate_policy::outcome::UsageOutcome;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ReplayArgs,
    }

    fn output(line: &[&str]) -> Result<String, String> {
        let cli =
            Cli::try_parse_from([&["replay"], line].concat()).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        execute(&cli.args, &mut out).map_err(|error| format!("{error:#}"))?;
        Ok(String::from_utf8(out).expect("text"))
    }

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn path(&self, name: &str) -> String {
            self.0.path().join(name).display().to_string()
        }

        fn write(&self, name: &str, text: &str) -> String {
            std::fs::write(self.path(name), text).expect("written");
            self.path(name)
        }
    }

    const SAMPLE: &str = r#"{"epoch":0,"workers":2,"batch_size":10,"n_items":10,"elapsed":1.5,"ok":true,"size_fault":false}"#;
    const JOB: &str = "input = 3\n[pool]\nworkers = 2\nbatch_size = 10\n[adaptive]\ncontroller = \"history\"\nmax_workers = 4\n";

    #[test]
    fn a_trace_is_replayed_by_the_job_files_tuner() {
        let files = Files::new();
        let trace = files.write("trace.jsonl", &[SAMPLE; 5].join("\n"));
        let job = files.write("job.toml", JOB);
        assert_eq!(
            output(&[&trace, "--config", &job]).expect("replayed"),
            "line 5: probe workers 2->3 -> workers=3, batch_size=10\n\
             after line 5: workers=3, batch_size=10\n"
        );
        let states = output(&[&trace, "--config", &job, "--json"]).expect("replayed");
        let states: Vec<&str> = states.lines().collect();
        assert_eq!(states.len(), 5);
        assert_eq!(
            states[4],
            r#"{"changes":["probe workers 2->3"],"epoch":1,"workers":3,"batch_size":10}"#
        );
        // Without it by the defaults, where one worker is all there may be.
        let states = output(&[&trace, "--json"]).expect("replayed");
        assert!(
            states.ends_with("\"workers\":1,\"batch_size\":50}\n"),
            "{states}"
        );
    }

    #[test]
    fn a_usage_log_is_replayed_from_where_it_starts() {
        let files = Files::new();
        let db = files.path("usage.sqlite");
        let writer = UsageWriter::open(Path::new(&db)).expect("a log");
        for label in ["other", "mine", "mine", "mine", "mine", "mine"] {
            writer.log(UsageRow {
                timestamp: 1.0,
                label: label.into(),
                workers: 1,
                batch_size: 8,
                n_items: 8,
                elapsed_seconds: 0.5,
                outcome: UsageOutcome::Ok,
                bytes: None,
            });
        }
        writer.close();
        assert_eq!(
            output(&["--usage", &db, "--label", "mine", "--controller", "history"])
                .expect("replayed"),
            "call 6: probe workers 1->2 -> workers=2, batch_size=8\n\
             after 5 calls: workers=2, batch_size=8; 5 were at the setting asked for, \
             0 at one out of bounds; the log went on elsewhere 0 times\n"
        );
        let states = output(&["--usage", &db, "--label", "mine", "--json"]).expect("replayed");
        assert_eq!(states.lines().count(), 5);
        // From a job file's start, until the log has clearly stayed elsewhere.
        let job = files.write("job.toml", JOB);
        let said =
            output(&["--usage", &db, "--label", "mine", "--config", &job]).expect("replayed");
        // Two changes at once: each with the levels that it left.
        let first = "call 4: force workers 2->1 -> workers=1, batch_size=10\n\
             call 4: force batch_size 10->8 -> workers=1, batch_size=8\n";
        assert!(said.starts_with(first), "{said}");
        let error = output(&["--usage", &db, "--label", "nobody"]).expect_err("no calls");
        assert_eq!(error, format!("{db}: no calls with the label \"nobody\""));
    }

    #[test]
    fn what_cannot_be_replayed_is_said_with_its_place() {
        let files = Files::new();
        let trace = files.write("trace.jsonl", "x\n");
        let named = files.write("named.toml", "[adaptive]\ncontroller = \"hasty\"\n");
        let wrong = files.write("wrong.toml", "[pool]\nworkers = 0\n");
        let nowhere = files.path("nowhere");
        for (line, words) in [
            (vec![&*trace], format!("{trace}: line 1: is no JSON: ")),
            (vec![&*nowhere], format!("{nowhere}: cannot be opened: ")),
            (
                vec!["--usage", &nowhere, "--label", "x"],
                format!("{nowhere}: there is no usage log"),
            ),
            (
                vec![&*trace, "--config", &named],
                format!("{named}:2: [adaptive] controller: "),
            ),
            (
                vec![&*trace, "--controller", "x"],
                "no controller is called \"x\"".to_owned(),
            ),
            (
                vec![&*trace, "--config", &wrong],
                format!("{wrong}:2: [pool] workers: "),
            ),
            (vec![], "error: the following required arguments".to_owned()),
            (
                vec!["--usage", &trace],
                "error: the following required arguments".to_owned(),
            ),
            (
                vec![&*trace, "--usage", &trace, "--label", "x"],
                "error: the argument".to_owned(),
            ),
        ] {
            let error = output(&line).expect_err("refused");
            assert!(error.starts_with(&words), "{line:?}: {error}");
        }
        assert!(!Path::new(&nowhere).exists(), "reading makes no file");
    }
}
