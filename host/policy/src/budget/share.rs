//! Fair shares: who gets how many of the slots there are.
//!
//! Invariant: the shares are never more than the slots nor more than anyone can use, and no slot
//! is left over while someone could use it.
//!
//! Guarantees come first. The other slots are given one at a time to whoever has the fewest
//! for its weight, but first one each to those that have no call in flight: nobody is forgotten
//! for being light, and where there are fewer slots than consumers, they go round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// Gives slots one at a time, to nobody more than `most`.
fn give(slots: u32, demands: &[Demand], shares: &mut [u32], most: impl Fn(&Demand) -> u32) {
    let claim = |who: usize, share: u32| {
        let demand = &demands[who];
        let busy = share > 0 || !demand.idle;
        let level = match busy {
            true => f64::from(share + 1) / demand.weight,
            // Of those that have none, the weight does not matter.
            false => 0.0,
        };
        (share < most(demand)).then(|| {
            Reverse(Claim {
                busy,
                level: level.to_bits(),
                served: demand.served,
                who,
            })
        })
    };
    let open = shares.iter().enumerate();
    let mut claims: BinaryHeap<_> = open.filter_map(|(who, share)| claim(who, *share)).collect();
    let mut left = slots;
    while left > 0
        && let Some(Reverse(Claim { who, .. })) = claims.pop()
    {
        left -= 1;
        shares[who] += 1;
        claims.extend(claim(who, shares[who]));
    }
}

/// A consumer that could use one more slot. The least is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// It has a call in flight, or was given a slot for one.
    busy: bool,
    /// What it would then have, for its weight: the bits of a positive float, which sort as it does.
    level: u64,
    served: u64,
    who: usize,
}
