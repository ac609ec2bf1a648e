//! Where a run's tuning starts: as configured, or at what a former run learned.

use super::RunMode;
use crate::config;
use crate::store::TunerMemory;
use batchgate_policy::controller::{
    self, Config, Controller, Fixed, Learned, Remembering, UnknownController, Unusable,
};
use batchgate_policy::setting::Setting;

/// What a controller is made of.
pub struct Start {
    name: String,
    configured: Config,
    fixed: bool,
    memory: Option<TunerMemory>,
    /// What is remembered, its age in seconds, and the start that follows from it.
    recalled: Option<(Learned, f64, Result<Config, Unusable>)>,
}

impl Start {
    /// Asks the job's memory, if it has one and tunes.
    pub fn new(config: &config::Job, mode: &RunMode) -> Self {
        let configured = config.controller_config();
        let unread = config.adaptive.unread(&config.filled);
        if !mode.fixed && !unread.is_empty() {
            tracing::warn!(label = %config.top.label,
                "[adaptive] {} not read: of the controller \"history\" alone; remove or set controller = \"history\"",
                unread.join(", ")
            );
        }
        let adaptive = &config.adaptive;
        if !mode.fixed
            && adaptive.max_workers.is_none()
            && config.pool.workers <= 1
            && adaptive.min_workers > 1
        {
            tracing::warn!(label = %config.top.label,
                "min_workers = {} has no effect: without max_workers, a start of one worker means one call at a time; \
                 set max_workers, or workers in [pool]",
                adaptive.min_workers
            );
        }
        let path = config.adaptive.tuner_memory.as_deref();
        let mut memory = path.filter(|_| !mode.fixed).map(|path| {
            let hosts = config.sandbox.allow_hosts.iter();
            TunerMemory::new(
                path,
                &config.top.label,
                hosts.map(|entry| entry.text.as_str()),
            )
        });
        let recalled = memory.as_mut().and_then(TunerMemory::recall);
        let recalled =
            recalled.map(|(learned, age)| (learned, age, learned.start(age, &configured)));
        let name = config.adaptive.controller.as_deref();
        Self {
            name: name.unwrap_or(controller::DEFAULT).to_owned(),
            configured,
            fixed: mode.fixed,
            memory,
            recalled,
        }
    }

    /// A controller. With a share of a budget it starts with the lesser of its own workers and these, and may have
    /// as many as without.
    pub fn controller(&self, share: Option<u32>) -> Result<Box<dyn Controller>, UnknownController> {
        if self.fixed {
            return Ok(Box::new(Fixed::new(&self.configured)));
        }
        let learned = match &self.recalled {
            Some((learned, _, Ok(start))) => Some((learned, start)),
            _ => None,
        };
        let configured = within(&self.configured, share);
        let start = learned.map_or_else(|| configured.clone(), |(_, start)| within(start, share));
        let inner = controller::by_name(&self.name, &start)?;
        if self.memory.is_none() {
            return Ok(inner);
        }
        let learned = learned.map(|(learned, _)| learned);
        Ok(Box::new(Remembering::new(inner, &configured, learned)))
    }

    /// Says where the run starts if that is not as configured, and if it might have been.
    pub fn say(&self, setting: Setting) {
        let (Some(memory), Some((learned, age, start))) = (&self.memory, &self.recalled) else {
            return;
        };
        let (label, file) = (memory.label(), memory.file_name());
        match start {
            Ok(_) => {
                let (workers, batch_size) = (setting.workers, setting.batch_size);
                let clamped = (learned.workers, learned.batch_size) != (workers, batch_size);
                let learned = match clamped {
                    true => format!(
                        "within the bounds of workers={}, batch_size={}, learned",
                        learned.workers, learned.batch_size
                    ),
                    false => "learned".to_owned(),
                };
                tracing::info!(label = %label,
                    "tune: starts at workers={workers}, batch_size={batch_size}, {learned} {} ago ({file})", in_words(*age));
            }
            Err(why) => {
                tracing::info!(label = %label, "tune: starts as configured: {why} ({file})")
            }
        }
    }

    /// The memory, and the name of the controller that will have learned what it is told.
    pub fn into_memory(self) -> Option<(TunerMemory, String)> {
        self.memory.map(|memory| (memory, self.name))
    }
}

fn within(config: &Config, share: Option<u32>) -> Config {
    let Some(share) = share else {
        return config.clone();
    };
    let workers = config.workers.min(share.max(1));
    Config {
        max_workers: Some(config.max_workers.unwrap_or(config.workers)),
        workers,
        workers_learned: config.workers_learned && workers == config.workers,
        ..config.clone()
    }
}

/// An age in seconds, as people say it.
fn in_words(age: f64) -> String {
    let age = age.max(0.0);
    let units = [
        (2.0 * 86_400.0, 86_400.0, "days"),
        (3600.0, 3600.0, "h"),
        (60.0, 60.0, "min"),
    ];
    let unit = units.into_iter().find(|(least, ..)| age >= *least);
    let (_, seconds, unit) = unit.unwrap_or((0.0, 1.0, "s"));
    format!("{:.0} {unit}", (age / seconds).floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_lowers_the_start_alone_and_what_was_learned_of_it_is_void() {
        let start = Config {
            workers: 12,
            max_workers: None,
            workers_learned: true,
            batch_size_learned: true,
            ..Config::default()
        };
        let table = [
            (None, 12, None, true),
            (Some(0), 1, Some(12), false),
            (Some(3), 3, Some(12), false),
            (Some(12), 12, Some(12), true),
            (Some(50), 12, Some(12), true),
        ];
        for (share, workers, max_workers, learned) in table {
            let within = within(&start, share);
            assert_eq!(
                (within.workers, within.max_workers, within.workers_learned),
                (workers, max_workers, learned),
                "{share:?}"
            );
            assert!(within.batch_size_learned);
        }
    }

    #[test]
    fn ages_are_said_in_one_unit() {
        let table = [
            (-5.0, "0 s"),
            (59.9, "59 s"),
            (60.0, "1 min"),
            (3.5 * 3600.0, "3 h"),
            (47.9 * 3600.0, "47 h"),
            (48.0 * 3600.0, "2 days"),
            (7.9 * 86_400.0, "7 days"),
        ];
        for (age, words) in table {
            assert_eq!(in_words(age), words);
        }
    }
}
