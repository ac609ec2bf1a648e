//! A job of a host, from the file that it is read from to its end.
//!
//! Invariant: a file starts a job once; a change starts it again only if it could not start before.

use super::Jobs;
use super::folder::Version;
use super::status::JobStatus;
use crate::aside::aside;
use crate::budget::View;
use crate::config::{self, Overrides};
use crate::flow::{Stop, Watch};
use crate::job::{Ready, RunMode, Shared, check_folders};
use crate::report::progress::{Display, Pace};
use crate::report::summary::{Stopped, Summary};
use crate::source::Input;
use rustix::fs::OFlags;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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
    version: Version,
    said: Version,
    /// The file came back while its job was drained: it starts another.
    pub(super) back: Option<Version>,
}

/// What is known of a job from when it is read.
#[derive(Default)]
pub(super) struct Live {
    /// Its label, once its file could be read; also of a job that is refused.
    label: Option<String>,
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
    /// Its file was removed before it could start.
    Removed,
}

impl Hosted {
    pub(super) fn new(version: Version) -> Self {
        Self {
            phase: Phase::Running,
            stop: Stop::default(),
            live: Arc::default(),
            said: version.clone(),
            version,
            back: None,
        }
    }

    /// Whether its file, as it is now, starts a job.
    pub(super) fn starts_again(&self, version: &Version) -> bool {
        matches!(self.phase, Phase::Refused(_)) && self.version != *version
    }

    /// Its file is there again, or changed, and starts nothing now.
    pub(super) fn keep(&mut self, file: &Path, version: &Version) {
        if matches!(self.phase, Phase::Draining) {
            self.back = Some(version.clone());
            return;
        }
        if self.said.says_the_same(version) || matches!(self.phase, Phase::Refused(_)) {
            return;
        }
        self.said = version.clone();
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
        let mut job = JobStatus {
            file: file.display().to_string(),
            label: live.label.clone(),
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
                job.reason = "its component, input and stores are opened".to_owned();
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
    /// The folder of job files.
    pub(super) folder: PathBuf,
    pub(super) shared: Arc<Shared>,
    pub(super) mode: RunMode,
    /// The jobs that it runs beside.
    pub(super) jobs: Jobs,
}

/// Reads, prepares and runs the job of a file.
pub(super) async fn run(start: Start, live: Arc<Mutex<Live>>, stop: Stop, display: Display) -> End {
    let prepared = tokio::select! {
        prepared = prepare(start, &live, &stop) => prepared,
        // It may take long, and nothing has begun.
        () = drained(&stop) => {
            release(&live);
            return End::Removed;
        }
        // Whoever says so twice is not made to wait for it.
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

/// Ends when the job's file is removed.
async fn drained(stop: &Stop) {
    stop.stopping().await;
    if stop.reason() != Some(Stopped::Drained) {
        std::future::pending().await
    }
}

/// Whoever waits in the background for somebody to write to the job's input waits no more, and so takes nothing of
/// what is written to it later.
fn release(live: &Mutex<Live>) {
    let input = match lock(live).config.as_ref().map(|config| &config.top.input) {
        Some(Input::Path(path)) => path.clone(),
        Some(Input::Stdin) | None => return,
    };
    let is_pipe = std::fs::metadata(&input).is_ok_and(|input| input.file_type().is_fifo());
    if is_pipe {
        // Fails if nobody waits.
        let _ = std::fs::File::options()
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(input);
    }
}

/// On a thread of its own, as files may block: a named pipe, a slow disk, a store that is locked. If that lasts
/// beyond the job's end, the thread stays behind.
async fn prepare(start: Start, live: &Arc<Mutex<Live>>, stop: &Stop) -> Result<Ready, String> {
    let (live, stop) = (live.clone(), stop.clone());
    let runtime = tokio::runtime::Handle::current();
    let prepared = aside("prepare", move || {
        prepare_here(start, &live, &stop, &runtime)
    });
    prepared.await.map_err(|error| error.to_string())?
}

fn prepare_here(
    start: Start,
    live: &Arc<Mutex<Live>>,
    stop: &Stop,
    runtime: &tokio::runtime::Handle,
) -> Result<Ready, String> {
    let config = config::Job::load(&start.file, &Overrides::default());
    let config = config.map_err(|error| error.to_string())?;
    lock(live).label = Some(config.top.label.clone());
    // First, for a job that is refused on its own account is not to stand in another's way.
    let fits = start.shared.fits_folder(&config, &start.folder);
    fits.map_err(|error| error.to_string())?;
    fits_beside(&config, live, &start)?;
    let ready = runtime.block_on(async {
        tokio::select! {
            biased;
            // It opens nothing more.
            () = drained(stop) => Err("removed before it could start".to_owned()),
            ready = Ready::prepare(config, &start.shared, start.mode) => {
                ready.map_err(|error| error.to_string())
            }
        }
    })?;
    lock(live).number = ready.consumer_number();
    Ok(ready)
}

/// Checks a job against those that run, and puts it among them, in one step.
fn fits_beside(config: &config::Job, live: &Arc<Mutex<Live>>, start: &Start) -> Result<(), String> {
    let jobs = start.jobs.lock();
    let others = jobs
        .values()
        .filter(|job| job.runs() && !Arc::ptr_eq(&job.live, live));
    let mut together: Vec<config::Job> = others
        .filter_map(|job| lock(&job.live).config.clone())
        .collect();
    lock(live).config = Some(config.clone());
    let fits = config::fits_beside(config, &together.iter().collect::<Vec<_>>());
    together.push(config.clone());
    let fits = fits.and_then(|()| check_folders(&together, start.mode.cache_dir.as_deref()));
    fits.map_err(|error| {
        lock(live).config = None;
        error.to_string()
    })
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    // Each change of it is one assignment.
    live.lock().unwrap_or_else(|e| e.into_inner())
}
