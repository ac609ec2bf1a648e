//! What was measured at each setting: the last few window medians of per-item latency.
//!
//! Invariant: a setting that is in here has at least one median, finite and above 0.

use std::collections::{BTreeMap, VecDeque};

use super::config::Config;
use super::window::median;

/// Where a window was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// `None` when the run was held below its workers: how many calls were really in flight
    /// then varies, so only the batch size can be compared.
    pub(super) workers: Option<u32>,
    pub(super) batch_size: u32,
}

#[derive(Debug)]
struct History {
    /// Median seconds an item, the latest last.
    medians: VecDeque<f64>,
    /// The number of the window that measured it last.
    last_window: u64,
}

/// The history of every setting measured lately.
#[derive(Debug, Default)]
pub(super) struct Measured {
    places: BTreeMap<Place, History>,
    /// Windows so far.
    windows: u64,
}

impl Measured {
    /// Counts a window, before it is recorded.
    pub(super) fn next_window(&mut self) {
        self.windows += 1;
    }

    /// Joins a window's median to its setting's history, and drops the settings that were
    /// not measured for too long.
    pub(super) fn record(&mut self, place: Place, per_item: f64, config: &Config) {
        let window = self.windows;
        let history = self.places.entry(place).or_insert_with(|| History {
            medians: VecDeque::new(),
            last_window: window,
        });
        history.last_window = window;
        while history.medians.len() >= config.baseline_epochs.max(1) as usize {
            history.medians.pop_front();
        }
        history.medians.push_back(per_item);
        let ttl = u64::from(config.history_ttl_windows);
        self.places
            .retain(|_, history| window - history.last_window <= ttl);
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.places.clear();
    }

    /// Windows remembered of a setting.
    pub(super) fn count(&self, place: Place) -> usize {
        self.places.get(&place).map_or(0, |h| h.medians.len())
    }

    /// Seconds an item at a setting, over its history.
    pub(super) fn per_item(&self, place: Place) -> Option<f64> {
        let history = self.places.get(&place)?;
        let mut medians: Vec<f64> = history.medians.iter().copied().collect();
        Some(median(&mut medians))
    }

    /// Items a second at a setting, over its history. Where the run was held back it is an
    /// item's share of one call, comparable with others of its kind alone.
    pub(super) fn throughput(&self, place: Place) -> Option<f64> {
        let workers = f64::from(place.workers.unwrap_or(1));
        self.per_item(place).map(|per_item| workers / per_item)
    }

    /// The best throughput of any comparable setting but this one.
    pub(super) fn best_other(&self, place: Place) -> Option<f64> {
        self.places
            .keys()
            .filter(|other| **other != place && other.workers.is_some() == place.workers.is_some())
            .filter_map(|other| self.throughput(*other))
            .max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(workers: u32) -> Place {
        Place {
            workers: Some(workers),
            batch_size: 10,
        }
    }

    fn record(measured: &mut Measured, place: Place, per_item: f64, config: &Config) {
        measured.next_window();
        measured.record(place, per_item, config);
    }

    #[test]
    fn a_setting_not_measured_for_too_long_is_forgotten() {
        let config = Config {
            history_ttl_windows: 2,
            ..Config::default()
        };
        let mut measured = Measured::default();
        record(&mut measured, place(3), 1.0, &config);
        record(&mut measured, place(4), 1.0, &config);
        record(&mut measured, place(4), 1.0, &config);
        assert_eq!(measured.count(place(3)), 1, "two windows later");
        record(&mut measured, place(3), 1.0, &config);
        for _ in 0..3 {
            record(&mut measured, place(4), 1.0, &config);
        }
        assert_eq!(measured.count(place(3)), 0, "three windows later");
        assert_eq!(measured.count(place(4)), 5);
    }

    #[test]
    fn a_setting_keeps_its_last_windows() {
        let config = Config {
            baseline_epochs: 3,
            ..Config::default()
        };
        let mut measured = Measured::default();
        for per_item in [9.0, 9.0, 1.0, 2.0, 3.0] {
            record(&mut measured, place(4), per_item, &config);
        }
        assert_eq!(measured.count(place(4)), 3);
        assert_eq!(measured.per_item(place(4)), Some(2.0));
        assert_eq!(measured.throughput(place(4)), Some(2.0));
        assert_eq!(measured.per_item(place(5)), None);
    }

    #[test]
    fn the_best_is_that_of_the_other_settings_of_its_kind() {
        let config = Config::default();
        let held_back = |batch_size| Place {
            workers: None,
            batch_size,
        };
        let mut measured = Measured::default();
        record(&mut measured, place(8), 1.0, &config);
        assert_eq!(measured.best_other(place(8)), None);
        record(&mut measured, place(4), 1.0, &config);
        record(&mut measured, place(2), 1.0, &config);
        record(&mut measured, held_back(10), 0.01, &config);
        assert_eq!(measured.best_other(place(8)), Some(4.0));
        assert_eq!(measured.best_other(place(4)), Some(8.0));
        assert_eq!(measured.best_other(held_back(10)), None);
        assert_eq!(measured.best_other(held_back(20)), Some(100.0));
        measured.forget();
        assert_eq!(measured.best_other(place(8)), None);
    }
}
