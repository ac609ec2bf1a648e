//! Whose turn it is, of several that share one limiter: each in proportion to its weight.
//!
//! Invariant: of two that always want a turn, each gets them by its weight, off by one at most;
//! one that wanted none for a while has saved up nothing.
//!
//! Everyone has a position that moves by 1/weight with each turn it uses; the one furthest back
//! is next (stride scheduling).

use std::collections::BTreeMap;

/// Names one that shares.
pub type SharerId = u64;

/// The positions.
#[derive(Debug, Default)]
pub struct Turns {
    sharers: BTreeMap<SharerId, Sharer>,
    /// Where the last turn was used from.
    front: f64,
}

#[derive(Debug, Clone, Copy)]
struct Sharer {
    weight: f64,
    position: f64,
}

impl Turns {
    /// One more shares, with a weight above 0.
    pub fn join(&mut self, id: SharerId, weight: f64) {
        let position = self.front;
        self.sharers.insert(id, Sharer { weight, position });
    }

    /// One fewer shares.
    pub fn leave(&mut self, id: SharerId) {
        self.sharers.remove(&id);
    }

    /// It wants a turn from now on.
    pub fn ask(&mut self, id: SharerId) {
        if let Some(sharer) = self.sharers.get_mut(&id) {
            sharer.position = sharer.position.max(self.front);
        }
    }

    /// It used a turn.
    pub fn used(&mut self, id: SharerId) {
        if let Some(sharer) = self.sharers.get_mut(&id) {
            self.front = self.front.max(sharer.position);
            sharer.position += 1.0 / sharer.weight;
        }
    }

    /// Whether the one is further back than the other, so that its turn comes first.
    pub fn before(&self, one: SharerId, other: SharerId) -> bool {
        self.position(one) < self.position(other)
    }

    /// Who is served first; of equal ones, the one named first.
    pub fn next(&self, asking: impl IntoIterator<Item = SharerId>) -> Option<SharerId> {
        let mut next = None;
        for id in asking {
            if next.is_none_or(|best| self.before(id, best)) {
                next = Some(id);
            }
        }
        next
    }

    fn position(&self, id: SharerId) -> f64 {
        self.sharers.get(&id).map_or(self.front, |s| s.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(weights: &[f64]) -> Turns {
        let mut turns = Turns::default();
        for (id, weight) in weights.iter().enumerate() {
            turns.join(id as u64, *weight);
        }
        turns
    }

    fn serve(turns: &mut Turns, asking: &[SharerId], times: usize) -> Vec<usize> {
        let mut served = vec![0; 4];
        for _ in 0..times {
            let id = turns.next(asking.iter().copied()).expect("someone asks");
            turns.used(id);
            turns.ask(id);
            served[id as usize] += 1;
        }
        served
    }

    #[test]
    fn turns_go_by_weight() {
        assert_eq!(serve(&mut turns(&[3.0, 1.0]), &[0, 1], 40), [30, 10, 0, 0]);
        assert_eq!(serve(&mut turns(&[1.0, 1.0]), &[0, 1], 4), [2, 2, 0, 0]);
        assert_eq!(
            serve(&mut turns(&[0.5, 2.0, 1.0]), &[0, 1, 2], 70),
            [10, 40, 20, 0]
        );
    }

    #[test]
    fn of_equal_ones_the_first_is_next() {
        assert_eq!(turns(&[1.0, 1.0]).next([1, 0]), Some(1));
        assert_eq!(turns(&[1.0]).next([]), None);
    }

    #[test]
    fn nothing_is_saved_up() {
        let mut turns = turns(&[1.0, 1.0]);
        serve(&mut turns, &[0], 100);
        turns.ask(1);
        turns.join(2, 1.0);
        let served = serve(&mut turns, &[0, 1, 2], 30);
        assert!(
            served[..3].iter().all(|times| (9..=11).contains(times)),
            "{served:?}"
        );
    }

    #[test]
    fn one_that_left_is_no_longer_counted() {
        let mut turns = turns(&[1.0, 1.0]);
        turns.used(0);
        turns.leave(0);
        turns.ask(0);
        turns.used(0);
        assert!(!turns.before(0, 1), "as one that has just come");
    }
}
