//! The controller that does not tune: the setting stays as it was configured.

use super::{Bounds, Change, Config, Controller, Observation, Override};
use crate::setting::Setting;

/// Keeps `workers` and `batch_size` as they are; nothing that is observed or overridden moves them.
#[derive(Debug, Clone)]
pub struct Fixed {
    setting: Setting,
}

impl Fixed {
    /// At the configured start, whatever the bounds for tuning say.
    pub fn new(config: &Config) -> Self {
        Self {
            setting: Setting {
                epoch: 0,
                workers: config.workers.max(1),
                batch_size: config.batch_size.max(1),
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

    fn apply(&mut self, _rows: &[Override]) -> Vec<Change> {
        Vec::new()
    }
}
