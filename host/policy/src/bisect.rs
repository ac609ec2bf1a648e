//! Which items of a batch a call is made over, and how a failed part is halved.

use std::ops::Range;

/// Places in a batch, from 0: the items of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Positions {
    /// A run of neighbours: the whole batch, or a part that bisection cut.
    Run(Range<u32>),
    /// Single places in rising order: what a partial answer left.
    Some(Vec<u32>),
}

impl Positions {
    /// How many there are.
    pub fn len(&self) -> u32 {
        match self {
            Positions::Run(run) => run.end - run.start,
            Positions::Some(list) => list.len() as u32,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `position` is one of them.
    pub fn contains(&self, position: u32) -> bool {
        match self {
            Positions::Run(run) => run.contains(&position),
            Positions::Some(list) => list.binary_search(&position).is_ok(),
        }
    }

    /// All of them, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (run, list) = match self {
            Positions::Run(run) => (run.clone(), [].as_slice()),
            Positions::Some(list) => (0..0, list.as_slice()),
        };
        run.chain(list.iter().copied())
    }

    /// Splits at half the length, the shorter half first.
    pub fn halve(self) -> (Positions, Positions) {
        let half = self.len() / 2;
        match self {
            Positions::Run(run) => {
                let middle = run.start + half;
                (
                    Positions::Run(run.start..middle),
                    Positions::Run(middle..run.end),
                )
            }
            Positions::Some(mut list) => {
                let second = list.split_off(half as usize);
                (Positions::Some(list), Positions::Some(second))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_at_half_the_length_the_shorter_first() {
        for (start, end, middle) in [(0, 2, 1), (0, 3, 1), (4, 9, 6), (7, 8, 7)] {
            let (a, b) = Positions::Run(start..end).halve();
            assert_eq!(
                (a, b),
                (Positions::Run(start..middle), Positions::Run(middle..end))
            );
        }
        let (a, b) = Positions::Some(vec![1, 4, 9]).halve();
        assert_eq!(
            (a, b),
            (Positions::Some(vec![1]), Positions::Some(vec![4, 9]))
        );
    }

    #[test]
    fn knows_its_members() {
        let run = Positions::Run(3..6);
        let list = Positions::Some(vec![2, 5, 8]);
        assert_eq!(run.iter().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(list.iter().collect::<Vec<_>>(), [2, 5, 8]);
        assert!(run.contains(5) && !run.contains(6) && list.contains(8) && !list.contains(3));
        assert!(Positions::Run(2..2).is_empty() && !list.is_empty());
    }
}
