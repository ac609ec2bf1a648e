//! Hands the settings of a job to its controller.

use batchgate_policy::controller::Config;

use super::adaptive::Adaptive;
use super::job::Job;
use super::pool::Pool;
use super::tuning::Tuning;

impl Job {
    /// What the job's controller starts from.
    pub fn controller_config(&self) -> Config {
        controller_config(&self.pool, &self.adaptive)
    }
}

impl Tuning {
    /// What the controller starts from.
    pub fn controller_config(&self) -> Config {
        controller_config(&self.pool, &self.adaptive)
    }
}

fn controller_config(pool: &Pool, adaptive: &Adaptive) -> Config {
    // Named one by one: a key that is added must be handed on, or named as another's.
    let Adaptive {
        controller: _,
        max_workers,
        min_workers,
        max_batch_size,
        min_batch_size,
        batch_step,
        max_batch_seconds,
        batch_seconds_headroom,
        congestion_ratio,
        good_ratio,
        worker_probe_min_ratio,
        batch_probe_min_ratio,
        worker_decrease,
        batch_decrease,
        min_window,
        max_window,
        target_log_se,
        baseline_epochs,
        ceiling_ttl_epochs,
        history_ttl_windows,
        target_latency,
        tuner_memory: _,
    } = *adaptive;
    Config {
        workers: pool.workers,
        batch_size: pool.batch_size,
        max_workers,
        min_workers,
        max_batch_size,
        min_batch_size,
        batch_step,
        max_batch_seconds,
        batch_seconds_headroom,
        congestion_ratio,
        good_ratio,
        worker_probe_min_ratio,
        batch_probe_min_ratio,
        worker_decrease,
        batch_decrease,
        min_window,
        max_window,
        target_log_se,
        baseline_epochs,
        ceiling_ttl_epochs,
        history_ttl_windows,
        target_latency,
        workers_learned: false,
        batch_size_learned: false,
    }
}
