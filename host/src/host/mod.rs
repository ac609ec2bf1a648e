//! A host of jobs: runs the job files of a folder under one budget, for as long as it is not told to stop.
//!
//! Invariant: nothing that a job is or does ends the host or another job; every job that started comes to a
//! summary.

mod folder;
mod hosted;
mod socket;
mod status;

pub use socket::{SocketError, ask, default_socket};
pub use status::{JobStatus, Status};

use crate::aside::aside_with;
use crate::budget::Budget;
use crate::job::{RunMode, Shared};
use crate::report::progress::Display;
use crate::report::summary::{Signal, Stopped, Summary};
use folder::{Change, Folder};
use hosted::{End, Hosted, Phase};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

/// The time between two looks at the folder.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a host works with.
pub struct Hosting {
    /// The folder of job files.
    pub folder: PathBuf,
    /// Where to tell the status.
    pub socket: PathBuf,
    /// What the jobs share.
    pub shared: Shared,
    /// Their budget, to tell how it stands.
    pub budget: Option<Arc<dyn Budget>>,
    /// How jobs are run.
    pub mode: RunMode,
    /// Shows how far they are.
    pub display: Display,
}

/// A host that cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The folder cannot be read.
    #[error("--jobs {}: {cause}; name a folder of job files", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Runs jobs until a signal comes, and then until all have ended. `ended` is told of each.
/// A second signal abandons the calls in flight.
pub async fn run(
    hosting: Hosting,
    mut signals: mpsc::UnboundedReceiver<Signal>,
    mut ended: impl FnMut(&Summary, Option<&Path>),
) -> Result<Signal, HostError> {
    let folder = Folder::open(&hosting.folder).map_err(|cause| HostError::Folder {
        path: hosting.folder.clone(),
        cause,
    })?;
    let jobs = Jobs::default();
    let status = {
        let (jobs, budget) = (jobs.clone(), hosting.budget.clone());
        let folder = hosting.folder.display().to_string();
        move || Status {
            pid: std::process::id(),
            folder: folder.clone(),
            budget: budget.as_ref().map(|budget| budget.view()),
            jobs: jobs.statuses(budget.as_deref()),
        }
    };
    // Kept as long as the host runs.
    let _socket = socket::Socket::serve(&hosting.socket, status)?;
    tracing::info!(
        "host: runs the job files of {}; tells its status at {}",
        hosting.folder.display(),
        hosting.socket.display()
    );
    let watcher = watch(folder);
    let mut host = Host {
        jobs,
        folder: hosting.folder,
        shared: Arc::new(hosting.shared),
        mode: hosting.mode,
        display: hosting.display,
        tasks: JoinSet::new(),
        ending: false,
    };
    let told = host.serve(watcher, &mut signals, &mut ended).await;
    host.ending = true;
    host.jobs.stop_all(told);
    while !host.tasks.is_empty() {
        tokio::select! {
            Some(_) = signals.recv() => host.jobs.abandon_all(),
            Some(end) = host.tasks.join_next() => host.take_end(end, &mut ended),
        }
    }
    Ok(told)
}

/// Looks at the folder now and then, off the tasks that make calls: it may be on a slow disk.
fn watch(folder: Folder) -> mpsc::Receiver<Vec<Change>> {
    let (changes, changed) = mpsc::channel(1);
    tokio::spawn(async move {
        let folder = Arc::new(Mutex::new(folder));
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // No thread for it now: the next time.
            let found = aside_with("batchgate-folder", &folder, Folder::look);
            let found = found.await.unwrap_or_default();
            if changes.send(found).await.is_err() {
                return;
            }
        }
    });
    changed
}

/// The jobs, by file.
#[derive(Clone, Default)]
struct Jobs(Arc<Mutex<BTreeMap<PathBuf, Hosted>>>);

struct Host {
    jobs: Jobs,
    folder: PathBuf,
    shared: Arc<Shared>,
    mode: RunMode,
    display: Display,
    tasks: JoinSet<(PathBuf, End)>,
    /// A signal came: nothing new starts.
    ending: bool,
}

impl Host {
    /// Follows the folder until a signal comes.
    async fn serve(
        &mut self,
        mut watcher: mpsc::Receiver<Vec<Change>>,
        signals: &mut mpsc::UnboundedReceiver<Signal>,
        ended: &mut impl FnMut(&Summary, Option<&Path>),
    ) -> Signal {
        let started = Instant::now();
        loop {
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => return signal,
                Some(end) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    self.take_end(end, ended);
                }
                Some(changes) = watcher.recv() => {
                    self.jobs.observe(started.elapsed());
                    for change in changes {
                        self.obey(change);
                    }
                }
            }
        }
    }

    fn obey(&mut self, change: Change) {
        let mut jobs = self.jobs.lock();
        match change {
            Change::Here(file, version) => {
                if let Some(job) = jobs.get_mut(&file)
                    && !job.starts_again(&version)
                {
                    job.keep(&file, &version);
                    return;
                }
                let job = Hosted::new(version);
                let (live, stop) = (job.live.clone(), job.stop.clone());
                jobs.insert(file.clone(), job);
                drop(jobs);
                let run = hosted::run(
                    hosted::Start {
                        file: file.clone(),
                        folder: self.folder.clone(),
                        shared: self.shared.clone(),
                        mode: self.mode.clone(),
                        jobs: self.jobs.clone(),
                    },
                    live,
                    stop,
                    self.display.clone(),
                );
                self.tasks.spawn(async move {
                    // In a task of its own, so that a fault in it is an end like others.
                    let end = tokio::spawn(run).await;
                    let fault =
                        |error| End::Refused(format!("a fault in the host ended it: {error}"));
                    (file, end.unwrap_or_else(fault))
                });
            }
            Change::Gone(file) => match jobs.get_mut(&file).map(|job| &mut job.phase) {
                Some(phase @ Phase::Running) => {
                    *phase = Phase::Draining;
                    tracing::info!(
                        "host: {}: its file is gone, the job is drained",
                        file.display()
                    );
                    if let Some(job) = jobs.get(&file) {
                        job.stop.stop(Stopped::Drained);
                    }
                }
                Some(Phase::Ended(_) | Phase::Refused(_)) => {
                    jobs.remove(&file);
                }
                Some(Phase::Draining) => {
                    if let Some(job) = jobs.get_mut(&file) {
                        job.back = None;
                    }
                }
                None => {}
            },
        }
    }

    fn take_end(
        &mut self,
        end: Result<(PathBuf, End), tokio::task::JoinError>,
        ended: &mut impl FnMut(&Summary, Option<&Path>),
    ) {
        // Its only work is to wait for the task that runs the job.
        let Ok((file, end)) = end else { return };
        let phase = match end {
            End::Summary(summary, path) => {
                ended(&summary, path.as_deref());
                Phase::Ended(summary)
            }
            End::Refused(error) => {
                let name = file.display().to_string();
                for line in error.lines() {
                    // Most begin with the file and the line in it.
                    match line.starts_with(&name) {
                        true => tracing::error!("host: {line}"),
                        false => tracing::error!("host: {name}: {line}"),
                    }
                }
                Phase::Refused(error)
            }
            End::Removed => {
                let name = file.display();
                tracing::info!("host: {name}: ended before it could start");
                Phase::Refused("removed before it could start".to_owned())
            }
        };
        let mut jobs = self.jobs.lock();
        let Some(job) = jobs.get_mut(&file) else {
            return;
        };
        if !matches!(job.phase, Phase::Draining) {
            job.end(phase);
            return;
        }
        let back = job.back.take();
        jobs.remove(&file);
        drop(jobs);
        if let Some(version) = back
            && !self.ending
        {
            self.obey(Change::Here(file, version));
        }
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Hosted>> {
        // Each change of the map is one insertion, removal or assignment.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// In order. One that is drained or stops by itself goes on with that.
    fn stop_all(&self, signal: Signal) {
        tracing::warn!(
            "interrupted: nothing new starts; calls in flight may end, a second signal abandons them"
        );
        for job in self.lock().values() {
            job.stop.stop(Stopped::Interrupted(signal));
        }
    }

    /// At once.
    fn abandon_all(&self) {
        tracing::warn!("interrupted again: calls in flight are abandoned");
        for job in self.lock().values() {
            job.stop.abandon();
        }
    }

    /// Follows the rates.
    fn observe(&self, now: Duration) {
        for job in self.lock().values() {
            job.observe(now);
        }
    }

    fn statuses(&self, budget: Option<&dyn Budget>) -> Vec<JobStatus> {
        let view = budget.map(|budget| budget.view());
        let jobs = self.lock();
        let status = |(file, job): (&PathBuf, &Hosted)| job.status(file, view.as_ref());
        jobs.iter().map(status).collect()
    }
}
