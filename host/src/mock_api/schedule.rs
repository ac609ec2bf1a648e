//! What the server does at which time: the options as given, then each `--change` in turn.

use super::options::{Behaviour, Options, OptionsError, Shape};
use clap::ValueEnum;
use std::collections::HashSet;
use std::time::Duration;

/// What the server does from a moment on.
#[derive(Debug)]
pub struct Phase {
    /// Its options.
    pub behaviour: Behaviour,
    /// `behaviour.bad_keys`, to look up.
    pub bad_keys: HashSet<String>,
    from: Duration,
}

/// The phases of a server, the first from 0.
#[derive(Debug)]
pub struct Schedule(Vec<Phase>);

impl Schedule {
    /// Works out the phases. Changes of the same moment apply in the order given.
    pub fn new(options: &Options) -> Result<Self, OptionsError> {
        let mut changes = options.changes.clone();
        changes.sort_by_key(|change| change.at);
        let mut behaviour = options.behaviour.clone();
        let mut phases = vec![(Duration::ZERO, behaviour.clone())];
        for change in &changes {
            change.apply(&mut behaviour).map_err(OptionsError::Change)?;
            match phases.last_mut() {
                Some(last) if last.0 == change.at => last.1 = behaviour.clone(),
                _ => phases.push((change.at, behaviour.clone())),
            }
        }
        for (at, behaviour) in &phases {
            if behaviour.shape != Shape::Knee && behaviour.knee.is_none() {
                let name = behaviour.shape.to_possible_value();
                return Err(OptionsError::ShapeNeedsKnee {
                    shape: name.map(|n| n.get_name().to_owned()).unwrap_or_default(),
                    at: *at,
                });
            }
        }
        let phase = |(from, behaviour): (Duration, Behaviour)| Phase {
            bad_keys: behaviour.bad_keys.iter().cloned().collect(),
            behaviour,
            from,
        };
        Ok(Self(phases.into_iter().map(phase).collect()))
    }

    /// The phase at a time since the server's start.
    pub fn at(&self, elapsed: Duration) -> &Phase {
        let later = self.0.partition_point(|phase| phase.from <= elapsed);
        &self.0[later.saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(changes: &[&str]) -> Options {
        Options {
            changes: changes.iter().map(|c| c.parse().unwrap()).collect(),
            ..Options::default()
        }
    }

    #[test]
    fn changes_apply_at_their_times_in_order() {
        let schedule = Schedule::new(&options(&[
            "20:knee=4",
            "10:knee=2",
            "10:slope=9",
            "20:knee=5",
            "0:sigma=1",
        ]))
        .unwrap();
        for (seconds, knee, slope) in [
            (0.0, None, 0.4),
            (9.99, None, 0.4),
            (10.0, Some(2), 9.0),
            (19.99, Some(2), 9.0),
            (20.0, Some(5), 9.0),
            (1e9, Some(5), 9.0),
        ] {
            let phase = schedule.at(Duration::from_secs_f64(seconds));
            assert_eq!(
                (phase.behaviour.knee, phase.behaviour.slope),
                (knee, slope),
                "{seconds}"
            );
            assert_eq!(phase.behaviour.sigma, 1.0);
        }
    }

    #[test]
    fn a_shape_without_its_knee_is_refused() {
        let error = Schedule::new(&options(&["5:shape=concave"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--shape concave needs --knee N (from 5 s on, by --change)"
        );
        let mut start = options(&[]);
        start.behaviour.shape = Shape::Plateau;
        assert_eq!(
            Schedule::new(&start).unwrap_err().to_string(),
            "--shape plateau needs --knee N"
        );
        start.behaviour.knee = Some(3);
        Schedule::new(&start).unwrap();
    }
}
