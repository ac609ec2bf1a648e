//! The command line: a file a command.
//!
//! Every error ends here as one line on stderr and a documented exit code, never as a backtrace.

mod check;
mod compile;
mod control;
mod host;
mod inspect;
mod journal;
mod mock_api;
mod new;
pub mod options;
mod replay;
mod run;
mod simulate;
mod usage;

use anyhow::Context;
use clap::{Parser, Subcommand};
use rustix::process::Signal;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// The code for usage, configuration, input or component unusable: nothing was sent.
const UNUSABLE: u8 = 2;

/// Runs batch plugins in a sandbox, and finds by itself how many calls to keep in flight
#[derive(Debug, Parser)]
#[command(name = "batchgate", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<options::RunOptions>),
    Host(host::HostArgs),
    Control(control::ControlArgs),
    Usage(usage::UsageArgs),
    Journal(journal::JournalArgs),
    Inspect(inspect::InspectArgs),
    Check(check::CheckArgs),
    New(new::NewArgs),
    Simulate(simulate::SimulateArgs),
    Replay(replay::ReplayArgs),
    MockApi(mock_api::MockApiArgs),
    #[command(hide = true)]
    Compile(compile::CompileArgs),
}

/// Polls of tasks between two looks at timers and sockets. A guest that computes holds a thread for up to 2 ms a poll: with
/// tokio's own 61 of them, a timer could be 120 ms late.
const POLLS_BETWEEN_EVENTS: u32 = 8;

/// The runtime of a command that runs plugins.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .event_interval(POLLS_BETWEEN_EVENTS)
        .enable_all()
        .build()
        .context("the runtime could not be started")
}

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(one_line_panic));
    let cli = Cli::parse();
    // Without this, a file that reaches its size limit ends the process without a word; with it, writing fails and says
    // so.
    let size_limit = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
    if let Err(error) = size_limit {
        complain(&anyhow::Error::new(error).context("SIGXFSZ cannot be handled"));
    }
    let result = match cli.command {
        Command::Run(options) => run::run(*options),
        Command::Host(args) => host::run(args),
        Command::Control(args) => control::run(args),
        Command::Usage(args) => usage::run(args),
        Command::Journal(args) => journal::run(args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Check(args) => check::run(args),
        Command::New(args) => new::run(&args),
        Command::Simulate(args) => simulate::run(args),
        Command::Replay(args) => replay::run(args),
        Command::MockApi(args) => mock_api::run(args),
        Command::Compile(args) => Ok(compile::run(&args)),
    };
    result.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::from(UNUSABLE)
    })
}

/// Prints a result. That its reader has gone away is no error: nobody is left to tell.
fn print_line(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written to")
        }
        _ => Ok(()),
    }
}

/// An error of several lines names several faults, one each.
#[allow(clippy::print_stderr)]
fn complain(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Some errors name their causes themselves.
        if !text.contains(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    for line in text.lines() {
        eprintln!("batchgate: {}", crate::report::log::escape_line(line));
    }
}

/// A fault of ours is one line as well.
#[allow(clippy::print_stderr)]
fn one_line_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let text = panic
        .payload_as_str()
        .map_or_else(|| "no message".into(), crate::report::log::escape_line);
    let place = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    eprintln!("batchgate: a fault in the host, please report it: {text} ({place})");
}
