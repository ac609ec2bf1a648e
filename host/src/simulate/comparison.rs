//! One controller over many scenarios, and against the first of those compared.

use serde::Serialize;

use super::figures::{Summary, median};

/// Efficiency that is asked of a controller on a scenario it was not made for.
const GOOD: f64 = 0.85;

/// What is said of a controller over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The controller's name.
    pub controller: String,
    /// How many scenarios.
    pub scenarios: usize,
    /// Median over the scenarios of the median over the seeds.
    pub efficiency_median: f64,
    /// The same of the tenth part of the scenarios that went worst.
    pub efficiency_tenth: f64,
    /// Scenarios with an efficiency of at least 85 %.
    pub good: usize,
    /// Scenarios on which it is at least as efficient as the first controller.
    pub not_behind_first: usize,
}

/// Compares: the summaries are those of each scenario in turn, of every controller in the same
/// order.
pub fn compare(summaries: &[Summary], controllers: usize) -> Vec<Comparison> {
    let scenarios: Vec<&[Summary]> = summaries.chunks_exact(controllers.max(1)).collect();
    let of = |controller: usize| -> Option<Comparison> {
        let name = &scenarios.first()?.get(controller)?.controller;
        let mut efficiency: Vec<f64> = scenarios
            .iter()
            .map(|of_scenario| of_scenario[controller].efficiency_median)
            .collect();
        let behind = |of_scenario: &&&[Summary]| {
            of_scenario[controller].efficiency_median < of_scenario[0].efficiency_median
        };
        efficiency.sort_by(f64::total_cmp);
        Some(Comparison {
            controller: name.clone(),
            scenarios: scenarios.len(),
            efficiency_tenth: efficiency[efficiency.len() / 10],
            good: efficiency.iter().filter(|share| **share >= GOOD).count(),
            not_behind_first: scenarios.len() - scenarios.iter().filter(behind).count(),
            efficiency_median: median(efficiency),
        })
    };
    (0..controllers).filter_map(of).collect()
}
