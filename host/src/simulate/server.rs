//! The simulated server: how long a batch takes, given its size and the load.

/// How latency depends on the batches in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Flat up to the knee, then `slope` more for each batch beyond it.
    Knee,
    /// Flat up to the knee, then in proportion: throughput stays where it is.
    Plateau,
    /// Every batch slows the others down: throughput keeps growing, ever more slowly.
    Concave,
}

/// A server. `seconds = (overhead + per_item * n) * penalty(active) * exp(N(0, sigma))`, times
/// `straggler_x` with probability `straggler_p`.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// How latency depends on the batches in flight.
    pub shape: Shape,
    /// Batches in flight at which the shape bends; above 0.
    pub knee: f64,
    /// Of shape `Knee`: latency added by each batch beyond the knee, as a share; 0 or more.
    pub slope: f64,
    /// Seconds for a batch, whatever its size; 0 or more.
    pub overhead: f64,
    /// Seconds for an item; 0 or more.
    pub per_item: f64,
    /// Spread of the log of latency; 0 or more.
    pub sigma: f64,
    /// Share of batches that take `straggler_x` times as long.
    pub straggler_p: f64,
    /// See `straggler_p`.
    pub straggler_x: f64,
    /// Most items in a batch; a bigger one fails.
    pub max_batch: Option<u32>,
    /// Seconds after which a batch that is too big fails; 0 or more.
    pub reject_seconds: f64,
}

/// The best that a fixed setting gets out of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Best {
    /// Items a second.
    pub(super) rate: f64,
    /// Fewest workers that get near it.
    pub(super) fewest_workers: u32,
}

/// The share of the best rate that counts as near it.
const NEAR: f64 = 0.98;

impl Server {
    /// How many times as long a batch takes with so many in flight, itself included.
    pub fn penalty(&self, active: f64) -> f64 {
        match self.shape {
            Shape::Knee => 1.0 + self.slope * (active - self.knee).max(0.0),
            Shape::Plateau => (active / self.knee).max(1.0),
            Shape::Concave => 1.0 + active / self.knee,
        }
    }

    /// Seconds that a batch takes without noise.
    pub fn seconds(&self, n_items: u32, active: f64) -> f64 {
        self.seconds_alone(n_items) * self.penalty(active)
    }

    /// Whether a batch of so many items fails for its size.
    pub fn rejects(&self, n_items: u32) -> bool {
        self.max_batch.is_some_and(|max| n_items > max)
    }

    /// The mean of the noise's factor.
    fn mean_noise(&self) -> f64 {
        (self.sigma * self.sigma / 2.0).exp() * (1.0 + self.straggler_p * (self.straggler_x - 1.0))
    }

    /// The best fixed setting within these maxima: workers and batch size enter the rate as
    /// two factors, so each is the best by itself.
    pub(super) fn best(&self, max_workers: u32, max_batch_size: u32) -> Best {
        let concurrency = |workers: u32| f64::from(workers) / self.penalty(f64::from(workers));
        let best_concurrency = (1..=max_workers).map(concurrency).fold(0.0, f64::max);
        let fewest_workers = (1..=max_workers)
            .find(|workers| concurrency(*workers) >= NEAR * best_concurrency)
            .unwrap_or(max_workers);
        let largest = self.max_batch.unwrap_or(max_batch_size).min(max_batch_size);
        // The bigger the batch, the smaller its share of the overhead.
        let batch = f64::from(largest) / self.seconds_alone(largest);
        Best {
            rate: best_concurrency * batch / self.mean_noise(),
            fewest_workers,
        }
    }

    /// Seconds that a batch takes before load and noise.
    fn seconds_alone(&self, n_items: u32) -> f64 {
        self.overhead + self.per_item * f64::from(n_items)
    }
}
