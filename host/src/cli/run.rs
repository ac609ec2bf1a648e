//! `batchgate run`: runs jobs to their ends.

use super::options::RunOptions;
use crate::config;
use crate::flow::{Stop, Watch};
use crate::job::{Host, Ready, RunMode, Shared, budget_of, check_folders};
use crate::open_files;
use crate::report::log::Log;
use crate::report::progress::{Display, Progress};
use crate::report::summary::{Signal, Stopped, Summary, exit_code};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The code for a host that could not go on, or not say what came of it.
const HOST_TROUBLE: u8 = 5;

/// How often the progress display looks at a run.
const LOOK_EVERY: Duration = Duration::from_millis(125);

/// Runs the jobs; every error of it means that nothing was sent.
pub fn run(options: RunOptions) -> anyhow::Result<ExitCode> {
    let display = Display::stderr();
    let log = Log::start(options.log_format, options.log_level.as_deref(), &display)?;
    let jobs = options.load_jobs()?;
    let host = options.budget.clone().map(Host::load).transpose()?;
    open_files::raise_limit();
    let runtime = super::runtime()?;
    let code = runtime.block_on(run_all(&options, jobs, host, &display));
    // A reader may be blocked in its input, and abandoned calls in their servers.
    runtime.shutdown_background();
    log.flush();
    code
}

async fn run_all(
    options: &RunOptions,
    jobs: Vec<config::Job>,
    host: Option<Host>,
    display: &Display,
) -> anyhow::Result<ExitCode> {
    let mode = RunMode {
        fixed: options.fixed,
        limit: options.limit,
        accept_changes: options.accept_changes,
        rehearsal: options.check || options.dry_run,
        cache_dir: cache_dir(options.no_cache, options.cache_dir.as_deref()),
    };
    check_folders(&jobs, mode.cache_dir.as_deref())?;
    // Whoever built it owns it: it runs until the last job has ended.
    let budget = budget_of(&jobs, host.as_ref())?;
    let shared = Shared::new(host, budget.as_ref().map(|budget| budget.borrow()))?;
    let mut ready = Vec::new();
    for job in jobs {
        ready.push(Ready::prepare(job, &shared, mode.clone()).await?);
    }
    if let Some(budget) = &budget {
        // It reads its control store first, so that one that cannot be used is found here.
        budget.start().await?;
    }
    if options.check {
        for job in &ready {
            tracing::info!(label = %job.label(), "checked: ready to run");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if options.dry_run {
        return dry_run(ready, options.json);
    }
    let paths: Vec<_> = ready.iter().map(Ready::summary_path).collect();
    let stops: Vec<_> = ready.iter().map(|_| Stop::default()).collect();
    ready.iter().for_each(Ready::announce);
    obey_signals(stops.clone())?;
    let mut running = Vec::new();
    for (job, stop) in ready.into_iter().zip(stops) {
        let progress = display.job(job.label());
        running.push(tokio::spawn(run_one(job, stop, progress)));
    }
    let mut summaries = Vec::new();
    for job in running {
        summaries.push(job.await.context("a run ended in a fault of the host")?);
    }
    if let Some(budget) = &budget {
        budget.stop().await;
    }
    let mut code = exit_code(&summaries);
    for (summary, path) in summaries.iter().zip(&paths) {
        if !print(summary, options.json) {
            code = code.max(HOST_TROUBLE);
        }
        if let Some(path) = path
            && let Err(error) = summary.write_file(path)
        {
            tracing::error!(label = %summary.label, "{error}");
            code = code.max(HOST_TROUBLE);
        }
    }
    Ok(ExitCode::from(code))
}

async fn run_one(job: Ready, stop: Stop, progress: Progress) -> Summary {
    let mut looking = None;
    let summary = job
        .run(stop, |watch| {
            looking = Some(tokio::spawn(look(watch, progress)))
        })
        .await;
    if let Some(looking) = looking {
        looking.abort();
        // Its progress is taken off the display before the summary is printed.
        let _ = looking.await;
    }
    summary
}

async fn look(watch: Watch, progress: Progress) {
    loop {
        progress.update(watch.status());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn dry_run(ready: Vec<Ready>, json: bool) -> anyhow::Result<ExitCode> {
    let mut code = 0;
    for job in ready {
        let path = job.summary_path();
        let summary = job.read_through()?;
        code = code.max(u8::from(summary.rejected > 0));
        if !print(&summary, json) {
            code = HOST_TROUBLE;
        }
        if let Some(path) = path {
            summary.write_file(&path)?;
        }
    }
    Ok(ExitCode::from(code))
}

/// Returns whether that went well.
pub(super) fn print(summary: &Summary, json: bool) -> bool {
    let text = match json {
        true => summary.to_json(),
        false => summary.to_string(),
    };
    let printed = super::print_line(&text);
    if let Err(error) = &printed {
        tracing::error!(label = %summary.label, "the summary could not be printed: {error:#}");
    }
    printed.is_ok()
}

/// The first signal stops the runs in order, the second ends them at once.
fn obey_signals(stops: Vec<Stop>) -> anyhow::Result<()> {
    let mut signals = signals()?;
    tokio::spawn(async move {
        if let Some(received) = signals.recv().await {
            tracing::warn!(
                "interrupted: nothing new starts; calls in flight may end, a second signal abandons them"
            );
            for stop in &stops {
                stop.stop(Stopped::Interrupted(received));
            }
        }
        while signals.recv().await.is_some() {
            tracing::warn!("interrupted again: calls in flight are abandoned");
            stops.iter().for_each(Stop::abandon);
        }
    });
    Ok(())
}

/// The signals that ask for an end. A terminal that is closed counts as SIGTERM.
pub(super) fn signals() -> anyhow::Result<mpsc::UnboundedReceiver<Signal>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut hang_up = match hang_up_is_ignored() {
        true => None,
        false => Some(signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?),
    };
    let (told, signals) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let hung_up = async {
                match &mut hang_up {
                    Some(hang_up) => hang_up.recv().await,
                    None => std::future::pending().await,
                }
            };
            let received = tokio::select! {
                _ = interrupt.recv() => Signal::Interrupt,
                _ = terminate.recv() => Signal::Terminate,
                _ = hung_up => Signal::Terminate,
            };
            if told.send(received).is_err() {
                return;
            }
        }
    });
    Ok(signals)
}

/// Whether whoever started us wants us to outlive the terminal, as `nohup` does.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 stands for signal 1, SIGHUP.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

pub(super) fn cache_dir(no_cache: bool, given: Option<&Path>) -> Option<PathBuf> {
    if no_cache {
        return None;
    }
    let user = || {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    };
    given
        .map(Path::to_owned)
        .or_else(|| user().map(|cache| cache.join("batchgate")))
}
