//! Makes a checked job file ready to run: opens all that it names, so that whatever is unusable is
//! found before anything is sent.
//!
//! Invariant: a [`Ready`] job has a component that was compiled and started once, an input whose header
//! was read, and stores that were opened.

mod folders;
mod outputs;
mod sandbox;
mod shared;
mod start;

pub use folders::check_folders;
pub use sandbox::sandbox_config;
pub use shared::{Host, Shared, budget_of};

use crate::aside::aside;
use crate::budget::Member;
use crate::config::{self, ConfigError};
use crate::flow::{self, ControlPoll, Describe, Parking, Records, Stop, Watch};
use crate::limiter::{Calendar, CalendarError, Limiter, LimiterError};
use crate::report::failed_items::FailedItemsError;
use crate::report::summary::{self, LastSetting, Stopped, Summary, SummaryError};
use crate::slot::Plugin;
use crate::source::{RejectsError, Source, SourceError};
use crate::store::journal::JournalError;
use crate::store::{ControlReader, StoreError};
use crate::wasm::{self, Component, LoadError, WasmPlugin};
use batchgate_policy::attempt::Rules;
use batchgate_policy::breaker::{Breaker, FailureLimit};
use batchgate_policy::controller::{Controller, UnknownController};
use outputs::Outputs;
use start::Start;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What `batchgate run` says beside the job file.
#[derive(Debug, Clone, Default)]
pub struct RunMode {
    /// Keep the setting as configured.
    pub fixed: bool,
    /// Take so many items at most.
    pub limit: Option<u64>,
    /// Go on from the journal although what it is about changed.
    pub accept_changes: bool,
    /// Nothing will be sent: what the job writes to is looked at, and left as it is.
    pub rehearsal: bool,
    /// Where compiled components are kept; none means to compile every time.
    pub cache_dir: Option<PathBuf>,
}

/// A job that cannot start. Each is a line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A value of the job file does not fit what it is for.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The component cannot be used.
    #[error(transparent)]
    Component(#[from] LoadError),
    /// The component cannot be started.
    #[error("{0}")]
    Start(String),
    /// The input cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The rejects file cannot be used.
    #[error(transparent)]
    Rejects(#[from] RejectsError),
    /// The file of failed items cannot be used.
    #[error(transparent)]
    FailedItems(#[from] FailedItemsError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file cannot be written.
    #[error("{key} {}: {cause}", path.display())]
    File {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The control or usage store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The provider's calendar cannot be used.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// The limiter cannot be used.
    #[error(transparent)]
    Limiter(#[from] LimiterError),
    /// The summary's file cannot be written.
    #[error(transparent)]
    Summary(#[from] SummaryError),
    /// There is no such controller.
    #[error(transparent)]
    Controller(#[from] UnknownController),
}

/// A job that can start.
pub struct Ready {
    config: config::Job,
    mode: RunMode,
    /// Its place in the budget that it shares.
    member: Option<Arc<Member>>,
    run_id: Arc<str>,
    source: Source,
    plugin: WasmPlugin,
    start: Start,
    controller: Box<dyn Controller>,
    limiter: Limiter,
    outputs: Outputs,
    control: Option<ControlPoll>,
}

impl Ready {
    /// Opens all that the job names. Compiling a component may take seconds.
    pub async fn prepare(
        mut config: config::Job,
        shared: &Shared,
        mode: RunMode,
    ) -> Result<Self, PrepareError> {
        shared.fits(&config)?;
        config.adopt_limiter(shared.host_file())?;
        check_folders(std::slice::from_ref(&config), mode.cache_dir.as_deref())?;
        let source = Source::open(&config.top.source_config())?;
        config
            .top
            .summary
            .as_deref()
            .map(summary::check_path)
            .transpose()?;
        let sandbox = sandbox_config(&config, mode.cache_dir.clone());
        let component = {
            let path = config.top.component.clone();
            let loaded = aside("batchgate-load", move || Component::load(&path, &sandbox)).await;
            match loaded {
                Ok(component) => Arc::new(component?),
                Err(problem) => {
                    return Err(PrepareError::Start(format!(
                        "loading the component: {problem}"
                    )));
                }
            }
        };
        let limiter = shared.limiter(&config)?;
        let label: Arc<str> = config.top.label.as_str().into();
        let run_id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let plugin = WasmPlugin::new(
            component,
            wasm::Job {
                label: label.clone(),
                run_id: run_id.clone(),
                key_salt: config.top.label.clone(),
                services: Arc::new(limiter.clone()),
            },
        );
        // What start functions do is found here, before anything is sent.
        plugin
            .start_slot(0)
            .await
            .map(drop)
            .map_err(PrepareError::Start)?;
        let start = Start::new(&config, &mode);
        let controller = start.controller(None)?;
        let outputs = match mode.rehearsal {
            false => Outputs::open(&config, mode.accept_changes)?,
            true => Outputs::check(&config, mode.accept_changes)?,
        };
        let control = match &config.control.db {
            None => None,
            Some(path) => {
                // A file that is no database is found before anything is sent. One that is locked or damaged is read
                // when that ends.
                match ControlReader::new(path).poll() {
                    Err(error) if error.fault.is_of_path() => return Err(error.into()),
                    _ => {}
                }
                Some(ControlPoll {
                    reader: ControlReader::new(path),
                    every: Duration::from_secs_f64(config.control.poll_seconds),
                })
            }
        };
        // The last, so that nobody has a share of the budget who then cannot start.
        let member = shared.join(&config)?;
        Ok(Self {
            config,
            mode,
            member,
            run_id,
            source,
            plugin,
            start,
            controller,
            limiter,
            outputs,
            control,
        })
    }

    /// The job's label.
    pub fn label(&self) -> &str {
        &self.config.top.label
    }

    /// The job file.
    pub fn config(&self) -> &config::Job {
        &self.config
    }

    /// Says to the budget what the job will ask for. Jobs that start together say so before the first
    /// runs, so that each starts with its share.
    pub fn announce(&self) {
        if let Some(member) = &self.member {
            member.demand(self.controller.setting().workers);
        }
    }

    /// Its number in the budget.
    pub fn consumer_number(&self) -> Option<u64> {
        self.member.as_ref().map(|member| member.consumer().number)
    }

    /// Where the summary is written as well.
    pub fn summary_path(&self) -> Option<PathBuf> {
        self.config.top.summary.clone()
    }

    /// Runs the job to its end.
    pub async fn run(self, stop: Stop, watch: impl FnOnce(Watch)) -> Summary {
        let Self {
            config,
            mode,
            start,
            mut controller,
            outputs,
            ..
        } = self;
        if let Some(member) = &self.member
            // Its name was found before.
            && let Ok(within) = start.controller(Some(member.share()))
        {
            controller = within;
        }
        start.say(controller.setting());
        let label: Arc<str> = config.top.label.as_str().into();
        let seconds = Duration::from_secs_f64;
        let job = flow::Job {
            label: label.clone(),
            run_id: self.run_id.clone(),
            source: self.source,
            limit: mode.limit,
            rejects: outputs.rejects,
            plugin: self.plugin,
            controller,
            fixed: mode.fixed,
            rules: rules(&config),
            breaker: breaker(&config),
            max_batch_bytes: config.pool.max_batch_bytes,
            limiter: self.limiter,
            budget: self.member,
            parking: Parking {
                park: config.rate_limit.park,
                max_cooldown: seconds(config.rate_limit.max_cooldown),
            },
            control: self.control,
            records: Records::new(label, outputs.usage, outputs.failures, stop.clone())
                .with_failed_items(outputs.failed_items)
                .with_journal(outputs.journal, &self.run_id)
                .with_memory(start.into_memory()),
            describe: match config.pool.describe {
                Some(config::Describe::Key) => Describe::Key,
                Some(config::Describe::Index) => Describe::Index,
                Some(config::Describe::Data) => Describe::Data,
                Some(config::Describe::Component) | None => Describe::Component,
            },
            grace: seconds(config.stop.grace),
            stop,
        };
        flow::run(job, watch).await
    }

    /// Reads the whole input and sends nothing.
    pub fn read_through(mut self) -> Result<Summary, PrepareError> {
        let mut summary = Summary {
            label: self.config.top.label.clone(),
            run_id: self.run_id.to_string(),
            items: Some(0),
            written: 0,
            skipped: 0,
            failed: 0,
            unknown: 0,
            not_dispatched: Some(0),
            rejected: 0,
            calls: 0,
            breaches: 0,
            traps: 0,
            elapsed_seconds: 0.0,
            last: LastSetting {
                workers: self.controller.setting().workers,
                batch_size: self.controller.setting().batch_size,
            },
            stopped: Stopped::Completed,
            earlier: None,
        };
        let mut left = self.mode.limit.unwrap_or(u64::MAX);
        let mut items = 0;
        loop {
            let most = left.min(1024) as usize;
            let chunk = match most {
                0 => break,
                most => self.source.read(most, u64::MAX)?,
            };
            items += chunk.items.len() as u64;
            left -= chunk.items.len() as u64;
            summary.rejected += chunk.rejected.len() as u64;
            for rejected in &chunk.rejected {
                tracing::warn!(label = %summary.label, "{rejected}");
            }
            if chunk.end {
                break;
            }
        }
        summary.items = Some(items);
        summary.not_dispatched = Some(items);
        Ok(summary)
    }
}

fn rules(config: &config::Job) -> Rules {
    let (pool, rate_limit) = (&config.pool, &config.rate_limit);
    Rules {
        bisect: pool.bisect_on_failure,
        bisect_min_size: pool.bisect_min_size,
        max_batch_retries: pool.max_batch_retries,
        max_item_attempts: pool.max_item_attempts,
        on_breach: rate_limit.on_breach,
        max_breach_resends: rate_limit.max_breach_resends,
        on_trap: pool.on_trap,
    }
}

fn breaker(config: &config::Job) -> Breaker {
    let limit = config.pool.max_failed_items.map(|limit| match limit {
        config::FailedItems::Count(count) => FailureLimit::Count(count),
        config::FailedItems::Share(share) => FailureLimit::Share(share),
    });
    Breaker::new(config.pool.max_consecutive_failures, limit)
}

fn limiter_config(rate_limit: &config::RateLimit) -> Result<crate::limiter::Config, CalendarError> {
    let seconds = Duration::from_secs_f64;
    Ok(crate::limiter::Config {
        max_per_sec: rate_limit.max_per_sec,
        max_bytes_per_min: rate_limit.max_bytes_per_min,
        max_per_day: rate_limit.max_per_day,
        calendar: Calendar::new(&rate_limit.day_time_zone, rate_limit.day_resets_at)?,
        state_file: rate_limit.state_file.clone(),
        breach_base_cooldown: seconds(rate_limit.breach_base_cooldown),
        breach_max_doublings: rate_limit.breach_max_doublings,
        breach_quiet_window: seconds(rate_limit.breach_quiet_window),
        counts_http: rate_limit.scope == config::Scope::Http,
    })
}
