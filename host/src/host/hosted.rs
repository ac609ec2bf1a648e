//! A job of a host, from the file that it is read from to its end.
//!
//! Invariant: a file starts a job once; a change starts it again only if it could not start before.

use super::Jobs;
use super::folder::Stamp;
use super::status::JobStatus;
use crate::budget::View;
use crate::config::{self, Overrides};
use crate::flow::{Stop, Watch};
use crate::job::{Ready, RunMode, Shared};
use crate::report::progress::{Display, Pace};
use crate::report::summary::Summary;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How often the progress display looks at a run.
const LOOK_EVERY: Duration = Duration::from_millis(125);

/// A job file, and what became of it.
pub(super) struct Hosted {
    pub(super) phase: Phase,
    pub(super) stop: Stop,
    pub(super) live: Arc<Mutex<Live>>,
    /// Of the file that it was read from, and of the last change that was said.
    stamp: Stamp,
    said: Stamp,
    /// The file came back while its job was drained: it starts another.
    pub(super) back: Option<Stamp>,
}

/// What is known of a job from when it is read.
#[derive(Default)]
pub(super) struct Live {
    config: Option<config::Job>,
    /// Its number in the budget.
    number: Option<u64>,
    watch: Option<Watch>,
    pace: Pace,
}

pub(super) enum Phase {
    /// It is read, prepared or running.
    Running,
    /// Its file is gone: it ends, and is forgotten then.
    Draining,
    /// It ended. It stays ended until its file is removed.
    Ended(Box<Summary>),
    /// It could not start. It is tried again when its file changes.
    Refused(String),
}

/// How a job came to its end.
pub(super) enum End {
    Summary(Box<Summary>, Option<PathBuf>),
    Refused(String),
}

impl Hosted {
    pub(super) fn new(stamp: Stamp) -> Self {
        Self {
            phase: Phase::Running,
            stop: Stop::default(),
            live: Arc::default(),
            said: stamp.clone(),
            stamp,
            back: None,
        }
    }

    /// Whether its file, as it is now, starts a job.
    pub(super) fn starts_again(&self, stamp: &Stamp) -> bool {
        matches!(self.phase, Phase::Refused(_)) && self.stamp != *stamp
    }

    /// Its file is there again, or changed, and starts nothing now.
    pub(super) fn keep(&mut self, file: &Path, stamp: &Stamp) {
        if matches!(self.phase, Phase::Draining) {
            self.back = Some(stamp.clone());
            return;
        }
        if self.said == *stamp || matches!(self.phase, Phase::Refused(_)) {
            return;
        }
        self.said = stamp.clone();
        tracing::warn!(
            "host: {}: the file has changed, and its job goes by what it was; to take the change up, \
             move the file away and, once the job has ended, back",
            file.display()
        );
    }

    pub(super) fn end(&mut self, phase: Phase) {
        self.phase = phase;
        let mut live = lock(&self.live);
        // The run's memory is not needed any more.
        live.watch = None;
        live.number = None;
    }

    pub(super) fn observe(&self, now: Duration) {
        let mut live = lock(&self.live);
        if let Some(status) = live.watch.as_ref().map(Watch::status) {
            live.pace.observe(now.as_secs_f64(), status.done);
        }
    }

    fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining)
    }

    pub(super) fn status(&self, file: &Path, budget: Option<&View>) -> JobStatus {
        let live = lock(&self.live);
        let config = live.config.as_ref();
        let mut job = JobStatus {
            file: file.display().to_string(),
            label: config.map(|config| config.top.label.clone()),
            ..JobStatus::default()
        };
        let state = match &self.phase {
            Phase::Running if live.watch.is_none() => "preparing",
            Phase::Running => "running",
            Phase::Draining => "draining",
            Phase::Ended(_) => "ended",
            Phase::Refused(_) => "refused",
        };
        job.state = state.to_owned();
        match &self.phase {
            Phase::Ended(summary) => {
                job.done = summary.written + summary.skipped + summary.failed + summary.unknown;
                job.total = summary.items;
                job.failed = summary.failed;
                job.workers = summary.last.workers;
                job.batch_size = summary.last.batch_size;
                job.reason = summary.stopped.to_string();
            }
            Phase::Refused(error) => job.reason = error.lines().collect::<Vec<_>>().join("; "),
            Phase::Running | Phase::Draining => {
                if let Some(status) = live.watch.as_ref().map(Watch::status) {
                    job.done = status.done;
                    job.total = status.total;
                    job.failed = status.failed;
                    job.workers = status.workers;
                    job.batch_size = status.batch_size;
                    job.in_flight = status.in_flight;
                    job.rate = live.pace.rate();
                    let reason = status.note.or(status.decision);
                    job.reason = reason.unwrap_or_else(|| "as it started".to_owned());
                }
            }
        }
        let consumers = budget.iter().flat_map(|view| &view.consumers);
        let mut own = consumers.filter(|consumer| Some(consumer.number) == live.number);
        job.share = own.next().map(|consumer| consumer.share);
        job
    }
}

/// What a job is started from.
pub(super) struct Start {
    pub(super) file: PathBuf,
    pub(super) shared: Arc<Shared>,
    pub(super) mode: RunMode,
    pub(super) accepts: fn(&config::Job) -> Result<(), String>,
    /// The jobs that it runs beside.
    pub(super) jobs: Jobs,
}

/// Reads, prepares and runs the job of a file.
pub(super) async fn run(start: Start, live: Arc<Mutex<Live>>, stop: Stop, display: Display) -> End {
    let prepared = tokio::select! {
        prepared = prepare(start, &live) => prepared,
        // It may take long, and whoever says so twice is not made to wait for it.
        () = stop.abandoning() => Err("stopped before it could start".to_owned()),
    };
    match prepared {
        Err(error) => End::Refused(error),
        Ok(ready) => {
            let path = ready.summary_path();
            let progress = display.job(ready.label());
            let mut looking = None;
            ready.announce();
            let running = ready.run(stop, |watch| {
                lock(&live).watch = Some(watch.clone());
                looking = Some(tokio::spawn(async move {
                    loop {
                        progress.update(watch.status());
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }));
            });
            let summary = running.await;
            if let Some(looking) = looking {
                looking.abort();
                // Its progress is taken off the display before its end is told.
                let _ = looking.await;
            }
            End::Summary(Box::new(summary), path)
        }
    }
}

/// On a thread of its own, as files may block: a named pipe, a slow disk, a store that is locked.
async fn prepare(start: Start, live: &Arc<Mutex<Live>>) -> Result<Ready, String> {
    let live = live.clone();
    let runtime = tokio::runtime::Handle::current();
    let prepared = tokio::task::spawn_blocking(move || prepare_here(start, &live, &runtime));
    prepared.await.map_err(|error| error.to_string())?
}

fn prepare_here(
    start: Start,
    live: &Arc<Mutex<Live>>,
    runtime: &tokio::runtime::Handle,
) -> Result<Ready, String> {
    let config = config::Job::load(&start.file, &Overrides::default());
    let config = config.map_err(|error| error.to_string())?;
    (start.accepts)(&config)?;
    fits_beside(&config, live, &start.jobs)?;
    let ready = runtime.block_on(Ready::prepare(config, &start.shared, start.mode));
    let ready = ready.map_err(|error| error.to_string())?;
    lock(live).number = ready.consumer_number();
    Ok(ready)
}

/// Checks a job against those that run, and puts it among them, in one step.
fn fits_beside(config: &config::Job, live: &Arc<Mutex<Live>>, jobs: &Jobs) -> Result<(), String> {
    let jobs = jobs.lock();
    let others = jobs
        .values()
        .filter(|job| job.runs() && !Arc::ptr_eq(&job.live, live));
    let others: Vec<config::Job> = others
        .filter_map(|job| lock(&job.live).config.clone())
        .collect();
    lock(live).config = Some(config.clone());
    let fits = config::fits_beside(config, &others.iter().collect::<Vec<_>>());
    fits.map_err(|error| {
        lock(live).config = None;
        error.to_string()
    })
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    // Each change of it is one assignment.
    live.lock().unwrap_or_else(|e| e.into_inner())
}
