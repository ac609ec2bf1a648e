//! Every rule of the controller, each on a server whose latency the test decides.

mod cuts;
mod differences;
mod evidence;
mod held_back;
mod holds;
mod overrides;
mod probes;
mod properties;
mod size_faults;
mod start;
mod words;

use super::*;

/// 3 of 16 workers, batches of 10 that cannot grow.
fn workers_only() -> Config {
    Config {
        workers: 3,
        max_workers: Some(16),
        batch_size: 10,
        ..Config::default()
    }
}

/// 1 worker, batches of 8 of 64 that grow by 4.
fn batches_only() -> Config {
    Config {
        workers: 1,
        batch_size: 8,
        max_batch_size: Some(64),
        batch_step: Some(4),
        ..Config::default()
    }
}

/// 3 of 16 workers, batches of 8 of 64 that grow by 4.
fn both() -> Config {
    Config {
        max_workers: Some(16),
        workers: 3,
        ..batches_only()
    }
}

struct Rig {
    controller: History,
    min_window: u32,
}

impl Rig {
    fn new(config: &Config) -> Self {
        Self {
            controller: History::new(config),
            min_window: config.min_window,
        }
    }

    fn levels(&self) -> (u32, u32) {
        let setting = self.controller.setting();
        (setting.workers, setting.batch_size)
    }

    fn epoch(&self) -> u64 {
        self.controller.setting().epoch
    }

    /// A good attempt at the present setting.
    fn sample(&self, per_item: f64) -> Observation {
        let setting = self.controller.setting();
        Observation {
            setting,
            n_items: setting.batch_size,
            elapsed: per_item * f64::from(setting.batch_size),
            ok: true,
            size_fault: false,
            in_flight: None,
        }
    }

    fn observe(&mut self, observation: Observation) -> String {
        joined(&self.controller.observe(&observation))
    }

    /// One window without noise at the present setting; what was decided at its end.
    fn window(&mut self, per_item: f64) -> String {
        self.window_of(|rig| rig.sample(per_item))
    }

    /// The same while only `in_flight` calls can be in flight.
    fn held_window(&mut self, per_item: f64, in_flight: u32) -> String {
        self.window_of(|rig| Observation {
            in_flight: Some(in_flight),
            ..rig.sample(per_item)
        })
    }

    fn window_of(&mut self, sample: impl Fn(&Self) -> Observation) -> String {
        let size = self.min_window.max(self.levels().0);
        for _ in 1..size {
            assert_eq!(
                self.observe(sample(self)),
                "",
                "decided before the window was full"
            );
        }
        self.observe(sample(self))
    }

    /// Windows at one latency, and what was decided at the end of each.
    fn windows(&mut self, per_items: &[f64]) -> Vec<String> {
        per_items.iter().map(|p| self.window(*p)).collect()
    }

    /// A failed attempt that was dispatched in that epoch.
    fn size_fault(&mut self, epoch: u64) -> String {
        let mut observation = self.sample(1.0);
        observation.setting.epoch = epoch;
        self.observe(Observation {
            ok: false,
            size_fault: true,
            ..observation
        })
    }

    fn apply(&mut self, rows: &[(&str, &str)]) -> String {
        joined(&self.controller.apply(&rows_of(rows)))
    }
}

fn rows_of(rows: &[(&str, &str)]) -> Vec<Override> {
    let row = |(key, value): &(&str, &str)| Override {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    rows.iter().map(row).collect()
}

fn joined(changes: &[Change]) -> String {
    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
    words.join("; ")
}
