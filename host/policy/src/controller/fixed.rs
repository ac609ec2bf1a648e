//! The controller that does not tune: the setting stays as it was configured.

use super::overrides::ignored;
use super::{Bounds, Change, Config, Controller, Observation, Override, Unfit};
use crate::setting::Setting;

/// Keeps `workers` and `batch_size` as they are; nothing that is observed or overridden moves them.
#[derive(Debug, Clone)]
pub struct Fixed {
    setting: Setting,
}

impl Fixed {
    /// At the configured start, clamped into the bounds: a plugin that is declared unfit for concurrent
    /// calls gets one at a time here as well.
    pub fn new(config: &Config) -> Self {
        let level = |start: u32, min: u32, max: Option<u32>| {
            start.max(min).min(max.unwrap_or(u32::MAX)).max(1)
        };
        Self {
            setting: Setting {
                epoch: 0,
                workers: level(config.workers, config.min_workers, config.max_workers),
                batch_size: level(
                    config.batch_size,
                    config.min_batch_size,
                    config.max_batch_size,
                ),
            },
        }
    }
}

impl Controller for Fixed {
    fn setting(&self) -> Setting {
        self.setting
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            min_workers: self.setting.workers,
            max_workers: self.setting.workers,
            min_batch_size: self.setting.batch_size,
            max_batch_size: self.setting.batch_size,
        }
    }

    fn single(&self) -> bool {
        self.setting.workers == 1
    }

    fn observe(&mut self, _observation: &Observation) -> Vec<Change> {
        Vec::new()
    }

    fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        ignored(rows, Unfit::Fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(workers: u32, max_workers: Option<u32>) -> Fixed {
        Fixed::new(&Config {
            workers,
            max_workers,
            batch_size: 7,
            ..Config::default()
        })
    }

    #[test]
    fn one_worker_is_single() {
        assert!(fixed(1, None).single());
        assert!(!fixed(2, None).single());
    }

    #[test]
    fn stays_where_it_starts_inside_the_bounds() {
        for (start, max, workers) in [(7, None, 7), (7, Some(3), 3), (7, Some(1), 1), (0, None, 1)]
        {
            assert_eq!(fixed(start, max).setting().workers, workers);
        }
        let mut fixed = fixed(4, None);
        let setting = fixed.setting();
        for n in 1..100 {
            let changes = fixed.observe(&Observation {
                setting,
                n_items: 7,
                elapsed: f64::from(n),
                ok: n % 3 != 0,
                size_fault: n % 3 == 0,
                in_flight: None,
            });
            assert!(changes.is_empty());
        }
        assert_eq!(fixed.setting(), setting);
    }

    #[test]
    fn says_that_it_ignores_overrides() {
        let row = |key: &str, value: &str| Override {
            key: key.into(),
            value: value.into(),
        };
        let rows = [
            row("force_workers", "8"),
            row("other", "1"),
            row("max_workers", super::super::CLEARED),
        ];
        let said: Vec<_> = fixed(2, None)
            .apply(&rows)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            ["ignored force_workers=8: the setting is fixed (--fixed)"]
        );
    }
}
