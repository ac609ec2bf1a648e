//! The window: the samples that the next decision waits for, and how many it takes.
//!
//! Invariant: every sample has a finite per-item latency above 0, so that neither a logarithm
//! nor a division can fail.

use std::collections::VecDeque;

use super::Observation;
use super::config::Config;

/// Seconds that a sample can last; a clock's answer outside them is moved to the nearer end.
const SHORTEST_SECONDS: f64 = 1e-9;
const LONGEST_SECONDS: f64 = 1e9;

/// Residuals that the noise is measured from.
const MAX_RESIDUALS: usize = 200;

/// Scales a median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// Standard error of a median of n normal values, in units of sigma / sqrt(n).
const MEDIAN_ERROR: f64 = 1.2533;

/// The samples of this epoch, and the noise seen so far.
#[derive(Debug)]
pub(super) struct Window {
    /// Seconds an item of each sample.
    per_item: Vec<f64>,
    /// The longest call, in seconds.
    worst: f64,
    held_back: bool,
    /// ln(per-item latency / its window's median), the latest last.
    residuals: VecDeque<f64>,
    /// Samples that the noise asks for, once it is known.
    noise_size: Option<usize>,
    /// Reused for medians.
    scratch: Vec<f64>,
}

/// What a full window says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// Median seconds an item.
    pub(super) per_item: f64,
    /// The longest call, in seconds.
    pub(super) worst: f64,
    /// Whether the run was held below its workers during any of its samples, so that it says
    /// nothing about that number of workers.
    pub(super) held_back: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            per_item: Vec::new(),
            worst: 0.0,
            held_back: false,
            residuals: VecDeque::new(),
            noise_size: None,
            scratch: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.per_item.clear();
        self.worst = 0.0;
        self.held_back = false;
    }

    /// Adds a sample. One without items or without a meaningful duration says nothing.
    pub(super) fn add(&mut self, observation: &Observation) {
        let elapsed = observation.elapsed;
        if observation.n_items == 0 || !elapsed.is_finite() || elapsed < 0.0 {
            return;
        }
        let elapsed = elapsed.clamp(SHORTEST_SECONDS, LONGEST_SECONDS);
        self.per_item.push(elapsed / f64::from(observation.n_items));
        self.worst = self.worst.max(elapsed);
        self.held_back |= observation.held_back();
    }

    pub(super) fn is_full(&self, workers: u32, config: &Config) -> bool {
        self.per_item.len() >= self.size(workers, config)
    }

    /// Samples to wait for: enough to tell a step in throughput from the noise.
    fn size(&self, workers: u32, config: &Config) -> usize {
        let floor = config.min_window.max(workers).max(1) as usize;
        match self.noise_size {
            None => floor,
            Some(size) => floor.max(size.min(config.max_window as usize)),
        }
    }

    /// Ends a window that is full and starts the next one.
    pub(super) fn close(&mut self, config: &Config) -> Evidence {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.per_item);
        let per_item = median(&mut self.scratch);
        for sample in &self.per_item {
            if self.residuals.len() == MAX_RESIDUALS {
                self.residuals.pop_front();
            }
            self.residuals.push_back((sample / per_item).ln());
        }
        if self.residuals.len() >= config.min_window.max(1) as usize {
            self.scratch.clear();
            self.scratch.extend(self.residuals.iter().map(|r| r.abs()));
            let sigma = MAD_TO_SIGMA * median(&mut self.scratch);
            let size = (MEDIAN_ERROR * sigma / config.target_log_se).powi(2).ceil();
            // A float that no usize can hold becomes the nearest one, NaN becomes 0.
            self.noise_size = Some(size as usize);
        }
        let evidence = Evidence {
            per_item,
            worst: self.worst,
            held_back: self.held_back,
        };
        self.clear();
        evidence
    }
}

/// The median, the mean of the middle two for an even number. Needs at least one value.
pub(super) fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if !even {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (lower + upper) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    fn sample(elapsed: f64) -> Observation {
        Observation {
            setting: Setting {
                epoch: 0,
                workers: 2,
                batch_size: 1,
            },
            n_items: 1,
            elapsed,
            ok: true,
            size_fault: false,
            in_flight: None,
        }
    }

    fn filled(residuals: &[f64], config: &Config) -> Window {
        let mut window = Window::new();
        for residual in residuals {
            window.add(&sample(residual.exp()));
        }
        window.close(config);
        window
    }

    #[test]
    fn the_size_grows_with_the_noise_between_its_bounds() {
        // sigma = 1.4826 noise, size = ceil((1.2533 sigma / 0.08)^2).
        for (noise, size) in [
            (0.0, 5),
            (0.1, 6),
            (0.2, 22),
            (0.3, 49),
            (0.5, 60),
            (20.0, 60),
        ] {
            let config = Config::default();
            let window = filled(&[-noise, noise, 0.0, -noise, noise], &config);
            assert_eq!(window.size(2, &config), size, "noise {noise}");
            assert_eq!(window.size(90, &config), 90, "a sample a worker at least");
        }
    }

    #[test]
    fn the_size_is_the_floor_until_there_is_noise_to_measure() {
        let config = Config::default();
        assert_eq!(Window::new().size(2, &config), 5);
        let config = Config {
            min_window: 6,
            ..config
        };
        assert_eq!(
            filled(&[-0.5, 0.5, 0.0, -0.5, 0.5], &config).size(2, &config),
            6
        );
    }

    #[test]
    fn the_noise_is_that_of_the_last_samples() {
        let config = Config::default();
        let mut window = filled(&[-0.3, 0.3, 0.0, -0.3, 0.3], &config);
        assert_eq!(window.size(2, &config), 49);
        for _ in 0..300 {
            window.add(&sample(1.0));
            window.close(&config);
        }
        assert_eq!(window.size(2, &config), 5);
        assert_eq!(window.residuals.len(), MAX_RESIDUALS);
        assert!(window.residuals.iter().all(|residual| *residual == 0.0));
    }

    #[test]
    fn a_window_says_its_median_its_longest_call_and_whether_it_was_held_back() {
        let config = Config::default();
        let mut window = Window::new();
        for elapsed in [4.0, 1.0, 2.0, 9.0] {
            window.add(&sample(elapsed));
        }
        let evidence = window.close(&config);
        assert_eq!(
            (evidence.per_item, evidence.worst, evidence.held_back),
            (3.0, 9.0, false)
        );
        window.add(&Observation {
            in_flight: Some(1),
            ..sample(1.0)
        });
        window.add(&sample(2.0));
        let evidence = window.close(&config);
        assert_eq!(
            (evidence.per_item, evidence.worst, evidence.held_back),
            (1.5, 2.0, true)
        );
        window.add(&Observation {
            in_flight: Some(2),
            ..sample(1.0)
        });
        assert!(!window.close(&config).held_back, "2 of 2 is not held back");
    }

    #[test]
    fn the_median_of_any_order() {
        for (mut values, expected) in [
            (vec![3.0], 3.0),
            (vec![3.0, 1.0], 2.0),
            (vec![9.0, 1.0, 5.0], 5.0),
            (vec![9.0, 1.0, 5.0, 2.0], 3.5),
            (vec![1.0, 1.0, 1.0, 7.0], 1.0),
        ] {
            assert_eq!(median(&mut values), expected);
        }
    }
}
