//! What the jobs of one host share: a budget, and limiters.
//!
//! Invariant: a limiter of the host file is one object, whichever jobs take it; a job under a shared budget
//! has none of its own.

use super::{PrepareError, limiter_config};
use crate::budget::{self, Budget, Consumer, EachSignal, Levels, Member, Retuning, ScaledBudget};
use crate::budget::{Share, sensors::Sensors};
use crate::config::{self, ConfigError, HostFile};
use crate::limiter::Limiter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A host file, and where it is.
#[derive(Debug, Clone)]
pub struct Host {
    /// The path, for messages.
    pub path: PathBuf,
    /// What it says.
    pub file: HostFile,
}

/// What jobs share.
#[derive(Default)]
pub struct Shared {
    host: Option<Host>,
    budget: Option<Arc<dyn Budget>>,
    limiters: BTreeMap<String, Limiter>,
}

impl Host {
    /// Reads a host file.
    pub fn load(path: PathBuf) -> Result<Self, ConfigError> {
        let file = HostFile::load(&path)?;
        Ok(Self { path, file })
    }

    /// The budget that the file describes.
    pub fn budget(&self) -> Option<ScaledBudget> {
        let budget = self.file.budget.as_ref()?;
        Some(new_budget(budget, &self.file.control))
    }

    /// A job with a budget of its own cannot run under a shared one, and none may write over what the file names.
    pub fn fits(&self, job: &config::Job) -> Result<(), ConfigError> {
        config::fits_host_file(job, &self.path, &self.file)?;
        if self.file.budget.is_none() || job.budget.is_none() {
            return Ok(());
        }
        let shared = self.path.display();
        Err(job.refuse_budget(&format!(
            "the job has a budget of its own, and runs under the one of {shared}; remove one of the two"
        )))
    }
}

/// The budget of jobs that run together: the host file's, or that of a job that runs alone.
pub fn budget_of(
    jobs: &[config::Job],
    host: Option<&Host>,
) -> Result<Option<ScaledBudget>, ConfigError> {
    if let Some(host) = host {
        for job in jobs {
            host.fits(job)?;
        }
        if let Some(budget) = host.budget() {
            return Ok(Some(budget));
        }
    }
    let Some(job) = jobs.iter().find(|job| job.budget.is_some()) else {
        return Ok(None);
    };
    if let Some(other) = jobs.iter().find(|other| !std::ptr::eq(*other, job)) {
        let label = &other.top.label;
        return Err(job.refuse_budget(&format!(
            "a job has a budget of its own only where it runs alone, and {label:?} runs beside it; move the \
             table to a host file and name that with --budget"
        )));
    }
    let budget = job.budget.as_ref();
    Ok(budget.map(|budget| new_budget(budget, &job.control)))
}

fn new_budget(budget: &config::Budget, control: &config::Control) -> ScaledBudget {
    let seconds = Duration::from_secs_f64;
    let memory = budget.memory;
    let config = budget::Config {
        policy: batchgate_policy::budget::Config {
            levels: Levels {
                min: budget.min,
                desired: budget.desired,
                max: budget.max,
            },
            max_tasks_per_minute: budget.max_tasks_per_minute,
            step: budget.scale_step,
            current: seconds(budget.current_seconds),
            history: seconds(budget.history_seconds),
            limits: EachSignal {
                cpu: budget.cpu_limit,
                memory: budget.memory_limit,
                lag: budget.lag_limit,
                breaches: budget.breach_limit,
            },
        },
        scale_every: seconds(budget.scale_seconds),
        cpu_threshold: budget.cpu_threshold,
        memory_threshold: budget.memory_threshold,
        system_memory_threshold: budget.system_memory_threshold,
        lag_threshold: seconds(budget.lag_threshold),
        breach_threshold: budget.breach_threshold,
        retuning: control.db.as_ref().map(|store| Retuning {
            store: store.clone(),
            every: seconds(control.poll_seconds),
        }),
    };
    ScaledBudget::new(config, move || Sensors::new(memory))
}

impl Shared {
    /// What a host file, if there is one, has to share, beside a budget that its owner keeps. Opens the
    /// limiters' state files.
    pub fn new(host: Option<Host>, budget: Option<Arc<dyn Budget>>) -> Result<Self, PrepareError> {
        let mut limiters = BTreeMap::new();
        for (name, rate_limit) in host.iter().flat_map(|host| &host.file.limiters) {
            let limiter = Limiter::shared(limiter_config(rate_limit)?)?;
            limiters.insert(name.clone(), limiter);
        }
        Ok(Self {
            host,
            budget,
            limiters,
        })
    }

    /// A job with a budget of its own cannot run under a shared one, and none may write over what the host file
    /// names.
    pub fn fits(&self, job: &config::Job) -> Result<(), ConfigError> {
        self.host.as_ref().map_or(Ok(()), |host| host.fits(job))
    }

    /// The jobs of a folder never run alone, so that none may have a budget of its own, and none may write over
    /// their files.
    pub fn fits_folder(&self, job: &config::Job, folder: &Path) -> Result<(), ConfigError> {
        self.fits(job)?;
        config::fits_folder(job, folder)?;
        if job.budget.is_none() {
            return Ok(());
        }
        let place = match &self.host {
            Some(host) => format!("to {}", host.path.display()),
            None => "to a host file and name that with --budget".to_owned(),
        };
        Err(job.refuse_budget(&format!(
            "a job has a budget of its own only where it runs alone, and this one runs with all of --jobs {}; \
             move the table {place}",
            folder.display()
        )))
    }

    /// What the jobs share, as written.
    pub fn host_file(&self) -> Option<&HostFile> {
        self.host.as_ref().map(|host| &host.file)
    }

    /// The job's limiter: its own, or the shared one that it names.
    pub(super) fn limiter(&self, job: &config::Job) -> Result<Limiter, PrepareError> {
        let own = job.limiter(self.host.as_ref().map(|host| &host.file))?;
        let name = job.rate_limit.name.as_ref();
        match name.and_then(|name| self.limiters.get(name)) {
            Some(shared) => Ok(shared.for_another(job.share.weight)),
            None => Ok(Limiter::new(limiter_config(own)?)?),
        }
    }

    /// Takes the job into the budget, if there is one.
    pub(super) fn join(&self, job: &config::Job) -> Result<Option<Arc<Member>>, ConfigError> {
        let Some(budget) = &self.budget else {
            return Ok(None);
        };
        let share = Share {
            weight: job.share.weight,
            guarantee: job.share.guarantee,
            limit: job.share.limit,
            max_tasks_per_minute: job.share.max_tasks_per_minute,
        };
        let consumer = Consumer::new(&job.top.label, share);
        match Member::join(budget.clone(), consumer) {
            Ok(member) => Ok(Some(member)),
            Err(error) => Err(job.refuse("share", "guarantee", error.to_string())),
        }
    }
}
