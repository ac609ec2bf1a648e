//! What a controller is given at the start of a run.

/// The start, the bounds and the constants of a controller. Values out of range do no harm
/// here (levels are clamped), but should be refused where they are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Workers to start with; 1 or more, clamped into the bounds.
    pub workers: u32,
    /// Most workers; 1 or more. `None`: the start. 1 declares the run unfit for concurrent
    /// calls.
    pub max_workers: Option<u32>,
    /// Fewest workers; 1 or more.
    pub min_workers: u32,
    /// Items in a batch to start with; 1 or more, clamped into the bounds.
    pub batch_size: u32,
    /// Most items in a batch; 1 or more. `None`: the start.
    pub max_batch_size: Option<u32>,
    /// Fewest items in a batch; 1 or more.
    pub min_batch_size: u32,
    /// Items added by a batch probe. `None` or 0: a quarter of `batch_size`, at least 1.
    pub batch_step: Option<u32>,
    /// Seconds after which a call times out; above 0. Batch growth stops short of it.
    pub max_batch_seconds: Option<f64>,
    /// Share of `max_batch_seconds` that a grown batch may be expected to take; above 0.
    pub batch_seconds_headroom: f64,
    /// Latency, as a multiple of a setting's history, above which workers are cut; above 0.
    pub congestion_ratio: f64,
    /// Latency, as a multiple of a setting's history, up to which growth is tried; above 0.
    pub good_ratio: f64,
    /// Share of the best throughput that a worker probe must reach to be kept; above 0.
    pub worker_probe_min_ratio: f64,
    /// Share of the best throughput that a batch probe must reach to be kept; above 0.
    pub batch_probe_min_ratio: f64,
    /// Factor of a cut in workers; between 0 and 1.
    pub worker_decrease: f64,
    /// Factor of a cut in batch size; between 0 and 1.
    pub batch_decrease: f64,
    /// Fewest attempts that a decision is based on; 1 or more.
    pub min_window: u32,
    /// Most attempts that noise can make a decision wait for; 1 or more.
    pub max_window: u32,
    /// Standard error of log latency that sizes the window; above 0.
    pub target_log_se: f64,
    /// Windows remembered for each setting; 1 or more.
    pub baseline_epochs: u32,
    /// Windows without a cut after which a ceiling found by a failure is lifted; 1 or more.
    pub ceiling_ttl_epochs: u32,
    /// Windows after which a setting that was not measured again is forgotten; 1 or more.
    pub history_ttl_windows: u32,
    /// Seconds that a call may be expected to take at a setting that is chosen; above 0. Of
    /// `curve`.
    pub target_latency: Option<f64>,
    /// Whether the workers to start with are what a former run found best of those that it might have had. Of
    /// `curve`.
    pub workers_learned: bool,
    /// The same of the items in a batch.
    pub batch_size_learned: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 1,
            max_workers: None,
            min_workers: 1,
            batch_size: 50,
            max_batch_size: None,
            min_batch_size: 1,
            batch_step: None,
            max_batch_seconds: None,
            batch_seconds_headroom: 0.7,
            congestion_ratio: 1.5,
            good_ratio: 1.2,
            worker_probe_min_ratio: 1.05,
            batch_probe_min_ratio: 0.85,
            worker_decrease: 0.7,
            batch_decrease: 0.5,
            min_window: 5,
            max_window: 60,
            target_log_se: 0.08,
            baseline_epochs: 5,
            ceiling_ttl_epochs: 10,
            history_ttl_windows: 20,
            target_latency: None,
            workers_learned: false,
            batch_size_learned: false,
        }
    }
}

impl Config {
    /// Items that a batch probe adds.
    pub fn step(&self) -> u32 {
        match self.batch_step {
            None | Some(0) => (self.batch_size / 4).max(1),
            Some(step) => step,
        }
    }
}
