//! How long a request takes: a formula of its items and of the requests in flight.
//!
//! seconds = (overhead + per_item * n) * penalty(active) * exp(N(0, sigma)), where `active`
//! counts this request.

use super::options::{Behaviour, Shape};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;
use std::time::Duration;

/// Options can ask for any latency; a request that takes longer than this only looks hung.
const LONGEST: Duration = Duration::from_secs(3600);

/// Numbers of the generator set aside for one draw. A normal draw takes one or two, very rarely more.
const NUMBERS_PER_DRAW: u128 = 64;

impl Behaviour {
    /// How many times longer a request takes because of the requests in flight.
    pub fn penalty(&self, active: u32) -> f64 {
        let Some(knee) = self.knee else { return 1.0 };
        let (active, knee) = (f64::from(active), f64::from(knee));
        match self.shape {
            Shape::Knee => 1.0 + self.slope * (active - knee).max(0.0),
            Shape::Plateau => (active / knee).max(1.0),
            Shape::Concave => 1.0 + active / knee,
        }
    }

    /// The latency of a request. `number` counts the server's requests and selects the draw of the
    /// noise, so that it depends on nothing else.
    pub fn latency(&self, items: usize, active: u32, number: u64) -> Duration {
        let mean_ms = (self.overhead_ms + self.per_item_ms * items as f64) * self.penalty(active);
        let noise = if self.sigma == 0.0 {
            1.0
        } else {
            (self.sigma * standard_normal(self.seed, number)).exp()
        };
        Duration::try_from_secs_f64(mean_ms * noise / 1000.0)
            .unwrap_or(LONGEST)
            .min(LONGEST)
    }
}

fn standard_normal(seed: u64, number: u64) -> f64 {
    let mut generator = Pcg64::seed_from_u64(seed);
    generator.advance(u128::from(number) * NUMBERS_PER_DRAW);
    StandardNormal.sample(&mut generator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(shape: Shape, knee: Option<u32>) -> Behaviour {
        Behaviour {
            shape,
            knee,
            slope: 0.5,
            overhead_ms: 100.0,
            per_item_ms: 10.0,
            ..Behaviour::default()
        }
    }

    #[test]
    fn the_mean_follows_the_formula() {
        for (shape, knee, items, active, ms) in [
            (Shape::Knee, None, 0, 1, 100),
            (Shape::Knee, None, 5, 10_000, 150),
            (Shape::Knee, Some(8), 5, 1, 150),
            (Shape::Knee, Some(8), 5, 8, 150),
            (Shape::Knee, Some(8), 5, 10, 300),
            (Shape::Plateau, Some(8), 5, 4, 150),
            (Shape::Plateau, Some(8), 5, 16, 300),
            (Shape::Concave, Some(8), 5, 8, 300),
            (Shape::Concave, Some(8), 5, 16, 450),
        ] {
            let latency = behaviour(shape, knee).latency(items, active, 1);
            assert_eq!(
                latency.as_micros(),
                ms * 1000,
                "{shape:?} {knee:?} {items} {active}"
            );
        }
    }

    #[test]
    fn the_noise_is_normal_and_fixed_by_seed_and_number() {
        let noisy = |seed, number| {
            let behaviour = Behaviour {
                sigma: 0.5,
                seed,
                ..behaviour(Shape::Knee, None)
            };
            (behaviour.latency(0, 1, number).as_secs_f64() / 0.1).ln()
        };
        let draws: Vec<f64> = (0..20_000).map(|number| noisy(7, number)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02, "mean {mean}");
        assert!(
            (variance.sqrt() - 0.5).abs() < 0.02,
            "sigma {}",
            variance.sqrt()
        );
        let neighbours = draws.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / draws.len() as f64;
        assert!(
            neighbours.abs() < 0.02,
            "covariance of neighbours {neighbours}"
        );

        assert_eq!(noisy(7, 3), draws[3]);
        assert_ne!(noisy(8, 3), draws[3]);
        assert_ne!(
            noisy(8, 2),
            draws[3],
            "a seed must not be another one shifted"
        );
    }

    #[test]
    fn no_options_make_a_latency_that_is_no_duration() {
        let mut extreme = behaviour(Shape::Knee, Some(1));
        extreme.slope = f64::MAX;
        extreme.per_item_ms = f64::MAX;
        extreme.sigma = f64::MAX;
        for number in 0..20 {
            assert!(extreme.latency(usize::MAX, u32::MAX, number) <= LONGEST);
        }
        let free = Behaviour {
            overhead_ms: 0.0,
            per_item_ms: 0.0,
            ..extreme
        };
        assert_eq!(free.latency(0, 1, 0), LONGEST.min(free.latency(0, 1, 0)));
    }
}
