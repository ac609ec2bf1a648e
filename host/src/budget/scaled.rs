//! Our budget: scaled by the machine's load, shared fairly, retuned while it runs.
//!
//! Invariant: stopped, starting, running and stopped again, by its owner alone. What it decides is one step
//! under one short lock; whoever is to be woken is told after it.

use super::sensors::{Sample, SensorError, Sensors};
use super::tasks;
use super::{Budget, Consumer, ConsumerView, JoinError, Refusal, SignalView, View, Wake};
use crate::aside::aside;
use crate::store::{ControlReader, StoreError};
use batchgate_policy::budget::{self as policy, Signal, TooManyGuaranteed, Verdict};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A line of the log says how it stands at least so often, if anybody reads such lines.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// What a budget is made from.
#[derive(Debug, Clone)]
pub struct Config {
    /// What decides.
    pub policy: policy::Config,
    /// The time between two steps of scaling.
    pub scale_every: Duration,
    /// Processor time used, of what is allowed, above which a sample is overloaded.
    pub cpu_threshold: f64,
    /// Memory of our processes, of their limit, above which a sample is overloaded.
    pub memory_threshold: f64,
    /// Memory of the cgroup or machine, of its total, above which a sample is overloaded.
    pub system_memory_threshold: f64,
    /// How late a timer may be.
    pub lag_threshold: Duration,
    /// Breaches between two samples that are not yet too many.
    pub breach_threshold: u32,
    /// Live control, if there is any.
    pub retuning: Option<Retuning>,
}

/// Where the bounds of a running budget can be changed.
#[derive(Debug, Clone)]
pub struct Retuning {
    /// The control store.
    pub store: PathBuf,
    /// The time between two looks at it.
    pub every: Duration,
}

/// A budget that cannot start. It can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The control store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no thread to read it.
    #[error("the budget's control store could not be read: {0}")]
    Thread(#[from] std::io::Error),
}

/// The budget, in the hands of its owner. Dropped, it is stopped.
pub struct ScaledBudget {
    shared: Arc<Shared>,
    /// Makes the sensors anew at each start.
    sensors: Box<dyn Fn() -> Sensors + Send + Sync>,
    /// What runs while it runs. Held while it starts or stops, so that these come one after another.
    tasks: tokio::sync::Mutex<Vec<JoinHandle<()>>>,
}

/// What jobs borrow.
pub(super) struct Shared {
    pub(super) config: Config,
    origin: Instant,
    state: Mutex<State>,
    pub(super) breaches: AtomicU64,
}

pub(super) struct State {
    phase: Phase,
    pub(super) policy: policy::Budget,
    consumers: BTreeMap<u64, Joined>,
    /// The last verdict in the log, and when.
    said: Option<(Verdict, Duration)>,
    /// Signals whose sensors failed, which was said.
    failed: Vec<Signal>,
}

struct Joined {
    label: Arc<str>,
    wake: Wake,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Stopped,
    Starting,
    Running,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
        }
    }
}

impl ScaledBudget {
    /// A budget that is stopped. It needs a tokio runtime from here on.
    pub fn new(config: Config, sensors: impl Fn() -> Sensors + Send + Sync + 'static) -> Self {
        let policy = policy::Budget::new(&config.policy);
        Self {
            shared: Arc::new(Shared {
                config,
                origin: Instant::now(),
                state: Mutex::new(State {
                    phase: Phase::Stopped,
                    policy,
                    consumers: BTreeMap::new(),
                    said: None,
                    failed: Vec::new(),
                }),
                breaches: AtomicU64::new(0),
            }),
            sensors: Box::new(sensors),
            tasks: tokio::sync::Mutex::default(),
        }
    }

    /// What jobs borrow.
    pub fn borrow(&self) -> Arc<dyn Budget> {
        self.shared.clone()
    }

    /// Starts measuring and handing out slots. Does nothing if it runs. A start that failed, or that nobody
    /// waited for, leaves it stopped.
    pub async fn start(&self) -> Result<(), StartError> {
        let mut tasks = self.tasks.lock().await;
        if self.shared.lock().phase == Phase::Running {
            return Ok(());
        }
        let starting = Starting::begin(&self.shared);
        let config = &self.shared.config;
        let mut reader = config
            .retuning
            .as_ref()
            .map(|retuning| ControlReader::new(&retuning.store));
        if let Some(to_read) = reader.take() {
            let read = aside("batchgate-control", move || {
                let mut reader = to_read;
                let rows = reader.poll();
                (reader, rows)
            });
            let (read, rows) = read.await?;
            self.shared.retune(&rows?);
            reader = Some(read);
        }
        let shared = || self.shared.clone();
        tasks.push(tokio::spawn(tasks::measure_lag(shared())));
        tasks.push(tokio::spawn(tasks::measure_machine(
            shared(),
            (self.sensors)(),
        )));
        tasks.push(tokio::spawn(tasks::count_breaches(shared())));
        tasks.push(tokio::spawn(tasks::scale(shared())));
        if let (Some(reader), Some(retuning)) = (reader, &config.retuning) {
            tasks.push(tokio::spawn(tasks::follow(
                shared(),
                reader,
                retuning.every,
            )));
        }
        starting.done();
        Ok(())
    }

    /// Stops: nothing starts any more, and whoever asks is told so. Calls in flight go on. Does nothing if
    /// it is stopped.
    pub async fn stop(&self) {
        let mut tasks = self.tasks.lock().await;
        self.shared.enter(Phase::Stopped);
        for task in tasks.drain(..) {
            task.abort();
            // Its end is what was asked for.
            let _ = task.await;
        }
    }
}

impl Drop for ScaledBudget {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().drain(..) {
            task.abort();
        }
        self.shared.enter(Phase::Stopped);
    }
}

/// A start that has not come to its end: dropped, it has failed.
struct Starting<'a> {
    shared: &'a Shared,
    reached: Phase,
}

impl<'a> Starting<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let mut state = shared.lock();
        state.phase = Phase::Starting;
        state.policy.restart(&shared.config.policy);
        state.said = None;
        state.failed.clear();
        drop(state);
        Self {
            shared,
            reached: Phase::Stopped,
        }
    }

    fn done(mut self) {
        self.reached = Phase::Running;
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.shared.enter(self.reached);
    }
}

impl Shared {
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it is held leaves counts that are as good as before.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Changes something, and wakes whoever may start a call after it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State, Duration) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let result = change(&mut state, now);
        state.say_verdict(now);
        let woken = match state.phase {
            Phase::Running => state.policy.woken(now),
            Phase::Stopped | Phase::Starting => Vec::new(),
        };
        let wakes = woken
            .iter()
            .filter_map(|number| state.consumers.get(number));
        let wakes: Vec<Wake> = wakes.map(|joined| joined.wake.clone()).collect();
        drop(state);
        for wake in wakes {
            wake();
        }
        result
    }

    /// Enters a phase; all who wait find it.
    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.phase, phase) == phase {
            return;
        }
        let joined = state.consumers.values();
        let wakes: Vec<Wake> = joined.map(|joined| joined.wake.clone()).collect();
        drop(state);
        for wake in wakes {
            wake();
        }
    }

    pub(super) fn take(&self, sample: Sample) {
        let config = &self.config;
        let cpu = sample.cpu.map(|ratio| ratio > config.cpu_threshold);
        let memory = sample.memory.map(|used| {
            used.own > config.memory_threshold || used.system > config.system_memory_threshold
        });
        self.change(|state, now| {
            state.record(now, Signal::Cpu, cpu);
            state.record(now, Signal::Memory, memory);
        });
    }

    pub(super) fn retune(&self, rows: &[batchgate_policy::controller::Override]) {
        if rows.is_empty() {
            return;
        }
        for retuned in self.change(|state, _| state.policy.apply(rows)) {
            tracing::info!("budget: control override: {retuned}");
        }
    }

    fn start(
        &self,
        state: &mut State,
        now: Duration,
        consumer: &Consumer,
        ready: u32,
        further: &mut dyn FnMut() -> bool,
    ) -> Result<(), Refusal> {
        match state.phase {
            Phase::Stopped => return Err(Refusal::Stopped),
            Phase::Starting => {
                let reason = "budget is starting".to_owned();
                return Err(Refusal::Held {
                    reason,
                    until: None,
                });
            }
            Phase::Running => {}
        }
        let started = state
            .policy
            .try_start(now, consumer.number, ready, &mut *further);
        started.map_err(|refusal| match refusal {
            policy::Refusal::Further => Refusal::Further,
            held => Refusal::Held {
                reason: held.to_string(),
                until: match held {
                    policy::Refusal::Rate { until, .. } => Some(self.origin + until),
                    _ => None,
                },
            },
        })
    }
}

impl State {
    fn record(&mut self, now: Duration, signal: Signal, sample: Result<bool, SensorError>) {
        match sample {
            Ok(overloaded) => self.record_sample(now, signal, overloaded),
            // Not a fault: there is one at each start.
            Err(SensorError::First) => {}
            Err(error) => {
                self.policy.fail(now, signal);
                if !self.failed.contains(&signal) {
                    self.failed.push(signal);
                    tracing::warn!(
                        "budget: {signal} cannot be measured, so it does not grow until it can: {error}"
                    );
                }
            }
        }
    }

    pub(super) fn record_sample(&mut self, now: Duration, signal: Signal, overloaded: bool) {
        self.policy.record(now, signal, overloaded);
        if self.failed.contains(&signal) {
            self.failed.retain(|failed| *failed != signal);
            tracing::info!("budget: {signal} can be measured again");
        }
    }

    /// A sensor that is stuck brings neither a sample nor an error.
    pub(super) fn say_unknown(&mut self, now: Duration) {
        for judged in self.policy.current(now).signals() {
            let signal = judged.signal;
            if judged.ratio.is_none() && !self.failed.contains(&signal) {
                self.failed.push(signal);
                tracing::warn!(
                    "budget: {signal} has not been measured for a while, so it does not grow until it is"
                );
            }
        }
    }

    /// Says how it stands when the verdict changes, and now and then.
    fn say_verdict(&mut self, now: Duration) {
        if self.phase != Phase::Running || !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let verdict = self.policy.current(now);
        let same = self
            .said
            .is_some_and(|(said, at)| said.agrees(&verdict) && now < at + SAY_EVERY);
        if !same {
            self.said = Some((verdict, now));
            let (in_use, levels) = (self.policy.in_use(), self.policy.levels());
            tracing::debug!("budget: in use {in_use}, {levels}, {verdict}");
        }
    }
}

impl Budget for Shared {
    fn join(&self, consumer: &Consumer, wake: Wake) -> Result<(), JoinError> {
        self.change(|state, _| {
            let joined = state.policy.join(consumer.number, consumer.share);
            joined.map_err(
                |TooManyGuaranteed { guaranteed, max }| JoinError::Guarantees { guaranteed, max },
            )?;
            let label = consumer.label.clone();
            state
                .consumers
                .insert(consumer.number, Joined { label, wake });
            Ok(())
        })
    }

    fn leave(&self, consumer: &Consumer) {
        self.change(|state, _| {
            state.policy.leave(consumer.number);
            state.consumers.remove(&consumer.number);
        });
    }

    fn demand(&self, consumer: &Consumer, ready: u32) {
        self.change(|state, _| state.policy.demand(consumer.number, ready));
    }

    fn try_start(
        &self,
        consumer: &Consumer,
        ready: u32,
        ended: bool,
        further: &mut dyn FnMut() -> bool,
    ) -> Result<(), Refusal> {
        self.change(|state, now| {
            if ended {
                state.policy.end(consumer.number);
            }
            self.start(state, now, consumer, ready, further)
        })
    }

    fn end(&self, consumer: &Consumer) {
        self.change(|state, _| state.policy.end(consumer.number));
    }

    fn breach(&self, _consumer: &Consumer) {
        self.breaches.fetch_add(1, Ordering::Relaxed);
    }

    fn share(&self, consumer: &Consumer) -> u32 {
        let mut state = self.lock();
        let standings = state.policy.standings(self.now());
        let own = standings.iter().find(|own| own.id == consumer.number);
        own.map_or(0, |own| own.slots)
    }

    fn view(&self) -> View {
        let mut state = self.lock();
        let state = &mut *state;
        let now = self.now();
        let levels = state.policy.levels();
        let current = state.policy.current(now);
        let history = state.policy.history(now);
        let signals = current.signals().iter().zip(history.signals());
        let signals = signals.map(|(current, history)| SignalView {
            name: current.signal.name().to_owned(),
            current: current.ratio,
            history: history.ratio,
            limit: current.limit,
            overloaded: current.overloaded(),
        });
        let standings = state.policy.standings(now);
        let consumers = standings.iter().map(|standing| ConsumerView {
            number: standing.id,
            label: state
                .consumers
                .get(&standing.id)
                .map_or_else(String::new, |joined| joined.label.to_string()),
            in_flight: standing.in_flight,
            ready: standing.ready,
            share: standing.slots,
            weight: standing.share.weight,
            guarantee: standing.share.guarantee,
            limit: standing.share.limit,
        });
        View {
            state: state.phase.name().to_owned(),
            in_use: state.policy.in_use(),
            slots: state.policy.slots(now),
            desired: levels.desired,
            min: levels.min,
            max: levels.max,
            started_last_minute: state.policy.started_last_minute(now),
            max_tasks_per_minute: self.config.policy.max_tasks_per_minute,
            overloaded: current.overloaded(),
            verdict: current.to_string(),
            signals: signals.collect(),
            consumers: consumers.collect(),
        }
    }
}
