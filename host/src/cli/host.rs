//! `batchgate host`: runs the job files of a folder, and tells how that goes.

use super::run::{cache_dir, print, signals};
use crate::host::{self, Hosting, ask, default_socket};
use crate::job::{Host, RunMode, Shared};
use crate::report::log::{Log, LogFormat};
use crate::report::progress::Display;
use anyhow::Context;
use clap::{Args, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the job files of a folder under one budget until it is told to stop: new files start, removed
/// ones are drained
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct HostArgs {
    #[command(subcommand)]
    command: Option<HostCommand>,
    /// The folder of job files, `*.toml`.
    #[arg(long, value_name = "FOLDER", required = true)]
    jobs: Option<PathBuf>,
    /// The host file with what the jobs share: a budget of calls in flight, and limiters.
    #[arg(long, value_name = "HOST.toml")]
    budget: Option<PathBuf>,
    /// Where to tell the status; by default in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one summary object a job that ends on standard output, a line each, and nothing else there.
    #[arg(long)]
    json: bool,
    /// How log lines, on standard error, are written.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    /// Which log lines are written: off, error, warn, info, debug or trace; by default what
    /// the variable BATCHGATE_LOG says, else info.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Neither read nor write compiled components.
    #[arg(long, conflicts_with = "cache_dir")]
    no_cache: bool,
    /// Where compiled components are kept; by default in the user's cache folder.
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Subcommand)]
enum HostCommand {
    Status(StatusArgs),
}

/// Tells how a running host stands: its budget, the load, and each job with the reason for where it is
#[derive(Debug, Clone, Args)]
struct StatusArgs {
    /// The host's socket; by default in the user's runtime folder.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs a host, or asks one.
pub fn run(args: HostArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(HostCommand::Status(status)) => tell(&status),
        None => serve(args),
    }
}

fn tell(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => default_socket(false)?,
    };
    let status = ask(&socket)?;
    let text = match args.json {
        true => serde_json::to_string(&status)? + "\n",
        false => status.to_string(),
    };
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn serve(args: HostArgs) -> anyhow::Result<ExitCode> {
    let display = Display::stderr();
    let log = Log::start(args.log_format, args.log_level.as_deref(), &display)?;
    crate::open_files::raise_limit();
    let runtime = super::runtime()?;
    let code = runtime.block_on(serve_jobs(&args, display));
    // Abandoned calls may be blocked in their servers.
    runtime.shutdown_background();
    log.flush();
    code
}

async fn serve_jobs(args: &HostArgs, display: Display) -> anyhow::Result<ExitCode> {
    let host = args.budget.clone().map(Host::load).transpose()?;
    // Whoever built it owns it: it runs until the last job has ended.
    let budget = host.as_ref().and_then(Host::budget);
    let hosting = Hosting {
        folder: args.jobs.clone().unwrap_or_default(),
        socket: match &args.socket {
            Some(socket) => socket.clone(),
            None => default_socket(true)?,
        },
        budget: budget.as_ref().map(|budget| budget.borrow()),
        shared: Shared::new(host, budget.as_ref().map(|budget| budget.borrow()))?,
        mode: RunMode {
            cache_dir: cache_dir(args.no_cache, args.cache_dir.as_deref()),
            ..RunMode::default()
        },
        display,
    };
    let signals = signals()?;
    if let Some(budget) = &budget {
        budget.start().await?;
    }
    let told = host::run(hosting, signals, |summary, path| {
        print(summary, args.json);
        if let Some(path) = path
            && let Err(error) = summary.write_file(path)
        {
            tracing::error!(label = %summary.label, "{error}");
        }
    });
    let told = told.await?;
    if let Some(budget) = &budget {
        budget.stop().await;
    }
    Ok(ExitCode::from(told.exit_code()))
}
