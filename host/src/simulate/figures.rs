//! What is said of simulated runs.

use batchgate_policy::controller::Controller;
use serde::Serialize;

use super::run::{Unfinished, run};
use super::scenario::Scenario;

/// What came of one simulated run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Items done, as a share of what the best fixed setting of each phase would have done in
    /// the same time, noise at its mean. Luck can take it above 1.
    pub efficiency: f64,
    /// Batches in flight at a dispatch, on average, as a multiple of the fewest workers that
    /// get 98 % of the best rate.
    pub overdrive: f64,
    /// Batches sent.
    pub calls: u64,
    /// Batches that failed for their size.
    pub rejected: u64,
}

/// What came of a scenario over several seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The scenario's name.
    pub scenario: String,
    /// The controller's name.
    pub controller: String,
    /// Seeds, counted from 0.
    pub seeds: u64,
    /// A share.
    pub efficiency_median: f64,
    /// Of the worst seed.
    pub efficiency_worst: f64,
    /// A multiple.
    pub overdrive_median: f64,
    /// A half where two seeds are in the middle.
    pub calls_median: f64,
    /// A half where two seeds are in the middle.
    pub rejected_median: f64,
}

/// Runs a scenario for the seeds from 0 on, at least one; `ran` is told of each.
pub fn summarize(
    scenario: &Scenario,
    name: &str,
    mut controller: impl FnMut() -> Box<dyn Controller>,
    seeds: u64,
    ran: &mut dyn FnMut(),
) -> Result<Summary, Unfinished> {
    let seeds = seeds.max(1);
    let mut all = Vec::new();
    for seed in 0..seeds {
        all.push(run(scenario, &mut *controller(), seed)?);
        ran();
    }
    let of = |figure: fn(&Figures) -> f64| all.iter().map(figure).collect::<Vec<f64>>();
    let efficiency = of(|f| f.efficiency);
    Ok(Summary {
        scenario: scenario.name.clone(),
        controller: name.to_owned(),
        seeds,
        efficiency_worst: efficiency.iter().copied().fold(f64::INFINITY, f64::min),
        efficiency_median: median(efficiency),
        overdrive_median: median(of(|f| f.overdrive)),
        calls_median: median(of(|f| f.calls as f64)),
        rejected_median: median(of(|f| f.rejected as f64)),
    })
}

/// The median, the mean of the middle two for an even number; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len().is_multiple_of(2)) {
        (None, _) => 0.0,
        (Some(upper), false) => *upper,
        (Some(upper), true) => (values[middle - 1] + upper) / 2.0,
    }
}
