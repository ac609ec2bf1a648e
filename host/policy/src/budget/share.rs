//! Fair shares: who gets how many of the slots there are.
//!
//! Invariant: the shares are never more than the slots nor more than anyone can use, and no slot
//! is left over while someone could use it.
//!
//! Guarantees come first. The other slots are given as if one at a time to whoever has the fewest
//! for its weight, but first one each to those that have no call in flight: nobody is forgotten
//! for being light, and where there are fewer slots than consumers, they go round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// More slots than this for each consumer are given at once rather than one at a time.
const FEW: usize = 16;

/// A weight beyond this, or its inverse, counts as this, so that no level is infinite.
const LIGHTEST: f64 = 1e-100;

/// What one consumer wants and may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Its weight beside the others, above 0.
    pub weight: f64,
    /// Slots it gets whatever the others want.
    pub guarantee: u32,
    /// The most slots it can use: calls in flight and ready ones, within its limit.
    pub cap: u32,
    /// It has no call in flight.
    pub idle: bool,
    /// When it last started a call: a number that rises with each start of anyone.
    pub served: u64,
}

/// The share of each.
pub fn shares(slots: u32, demands: &[Demand]) -> Vec<u32> {
    let wanted: u64 = demands.iter().map(|demand| u64::from(demand.cap)).sum();
    if wanted <= u64::from(slots) {
        return demands.iter().map(|demand| demand.cap).collect();
    }
    let guaranteed = |demand: &Demand| demand.guarantee.min(demand.cap);
    let sum: u64 = demands
        .iter()
        .map(|demand| u64::from(guaranteed(demand)))
        .sum();
    // One slot goes round among those without a guarantee, or they might wait for ever.
    let forgotten = |demand: &Demand| demand.idle && demand.cap > 0 && demand.guarantee == 0;
    let for_guarantees = slots - u32::from(slots > 0 && demands.iter().any(forgotten));
    let mut shares = vec![0; demands.len()];
    let given = match u32::try_from(sum).ok().filter(|sum| *sum <= for_guarantees) {
        Some(sum) => {
            for (share, demand) in shares.iter_mut().zip(demands) {
                *share = guaranteed(demand);
            }
            sum
        }
        None => {
            give(for_guarantees, demands, &mut shares, guaranteed);
            for_guarantees
        }
    };
    give(slots - given, demands, &mut shares, |demand| demand.cap);
    shares
}

/// Gives slots as if one at a time, to nobody more than `most`.
fn give(slots: u32, demands: &[Demand], shares: &mut [u32], most: impl Fn(&Demand) -> u32) {
    let mut left = slots;
    let mut forgotten: Vec<usize> = (0..demands.len())
        .filter(|&who| demands[who].idle && shares[who] == 0 && most(&demands[who]) > 0)
        .collect();
    // Of those that have none, the weight does not matter.
    forgotten.sort_by_key(|&who| (demands[who].served, who));
    for who in forgotten.into_iter().take(left as usize) {
        shares[who] = 1;
        left -= 1;
    }
    if left as usize / FEW >= demands.len() {
        left -= fill(left, demands, shares, &most);
    }
    if left == 0 {
        return;
    }
    let claim = |who: usize, share: u32| {
        let demand = &demands[who];
        (share < most(demand)).then(|| {
            Reverse(Claim {
                level: level(u64::from(share) + 1, demand.weight).to_bits(),
                served: demand.served,
                who,
            })
        })
    };
    let open = shares.iter().enumerate();
    let mut claims: BinaryHeap<_> = open.filter_map(|(who, share)| claim(who, *share)).collect();
    while left > 0
        && let Some(Reverse(Claim { who, .. })) = claims.pop()
    {
        left -= 1;
        shares[who] += 1;
        claims.extend(claim(who, shares[who]));
    }
}

/// Gives at once, and returns, what one at a time would come first. There are less than one slot a consumer left
/// then, or nobody can use one.
fn fill(slots: u32, demands: &[Demand], shares: &mut [u32], most: &impl Fn(&Demand) -> u32) -> u32 {
    let total = |shares: &[u32]| shares.iter().map(|share| u64::from(*share)).sum::<u64>();
    let filled_to = |line: f64| -> Vec<u32> {
        let consumers = demands.iter().zip(shares.iter());
        consumers
            .map(|(demand, share)| reach(line, demand.weight, *share, most(demand)))
            .collect()
    };
    let before = total(shares);
    // A level's bits sort as it does: the last one to which there are slots enough is found by halving.
    let (mut enough, mut beyond) = (0.0_f64.to_bits(), f64::INFINITY.to_bits());
    while beyond - enough > 1 {
        let middle = enough.midpoint(beyond);
        match total(&filled_to(f64::from_bits(middle))) - before <= u64::from(slots) {
            true => enough = middle,
            false => beyond = middle,
        }
    }
    shares.copy_from_slice(&filled_to(f64::from_bits(enough)));
    // As many as there are slots at most, so it fits.
    (total(shares) - before) as u32
}

/// The most slots, from `share` to `most`, whose level is not above the line.
fn reach(line: f64, weight: f64, share: u32, most: u32) -> u32 {
    // It is right, or rounded to a neighbour of it; a float that no u32 can hold becomes the nearest one.
    let mut reached = ((line * sensible(weight)) as u32).clamp(share, most.max(share));
    while reached > share && level(u64::from(reached), weight) > line {
        reached -= 1;
    }
    while reached < most && level(u64::from(reached) + 1, weight) <= line {
        reached += 1;
    }
    reached
}

/// What so many slots are, for a weight. Each further slot is a higher level.
fn level(slots: u64, weight: f64) -> f64 {
    slots as f64 / sensible(weight)
}

fn sensible(weight: f64) -> f64 {
    weight.clamp(LIGHTEST, 1.0 / LIGHTEST)
}

/// A consumer that could use one more slot. The least is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// What it would then have, for its weight: the bits of a positive float, which sort as it does.
    level: u64,
    served: u64,
    who: usize,
}
