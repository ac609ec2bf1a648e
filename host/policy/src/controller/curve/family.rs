//! The curves that a server may follow, and how likely each is before anything was measured.
//!
//! Invariant: every logarithm given out is finite, whatever the levels.

/// How a call's time depends on the calls in flight, as a multiple of a call's time alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LoadCurve {
    /// The server does not bend within the bounds.
    Flat,
    /// Flat up to the knee, then `slope` more for each call beyond it. With a slope of
    /// 1 / knee it is a plateau: beyond the knee, calls only queue.
    Hinge { knee: f64, slope: f64 },
    /// Every call slows the others down: 1 + workers / half, so that throughput reaches half
    /// of what it can at `half` workers.
    Shared { half: f64 },
}

/// Knees, slopes and the rest of a family of curves stand on grids: finer than what samples
/// can tell apart would only cost time.
const KNEE_RATIO: f64 = 1.07;
const STEEPNESS_RATIO: f64 = 1.6;
const HALF_RATIO: f64 = 1.25;
/// Slope times knee, from gentle to a cliff at a knee of 200.
const STEEPNESS: (f64, f64) = (0.25, 220.0);
/// One call more never does worse than this to all the others.
const STEEPEST: f64 = 1.5;
/// Halves beyond so many times the most workers look flat.
const HALF_REACH: f64 = 4.0;

/// Prior weights: they decide only while there is no evidence.
const FLAT: f64 = 0.25;
const SHARED: f64 = 0.15;
/// Share of the hinges that are plateaus; a server that queues is common.
const PLATEAU: f64 = 0.45;
/// A start is chosen by someone who knows a little: curves on which it is already too many
/// weigh less by this factor.
const PAST_START: f64 = 0.03;
/// Gain, as a share of the relative step, below which a start counts as too many.
const TOO_MANY: f64 = 0.05;
/// A learned start is within a step of the best: with so many more workers, and more than so much of them in
/// throughput, it was not.
const MORE: f64 = 1.25;
const TOO_FEW: f64 = 0.5;

impl LoadCurve {
    pub(super) fn ln_penalty(self, workers: f64) -> f64 {
        match self {
            Self::Flat => 0.0,
            Self::Hinge { knee, slope } => (slope * (workers - knee).max(0.0)).ln_1p(),
            Self::Shared { half } => (workers / half).ln_1p(),
        }
    }

    /// Whether fewer than so many workers get as much done.
    fn is_past(self, workers: f64) -> bool {
        match self {
            Self::Hinge { knee, slope } if knee < workers => {
                let gain = 1.0 - slope * workers / (1.0 + slope * (workers - knee));
                gain < TOO_MANY
            }
            _ => false,
        }
    }

    /// Whether many more workers get much more done.
    fn wants_more(self, workers: f64) -> bool {
        let slower = self.ln_penalty(MORE * workers) - self.ln_penalty(workers);
        MORE.ln() - slower > TOO_FEW * MORE.ln()
    }
}

/// The curves for a run, each with the log of its prior weight.
pub(super) fn load_curves(
    start: u32,
    max_workers: u32,
    learned: bool,
) -> (Vec<LoadCurve>, Vec<f64>) {
    let most = f64::from(max_workers.max(2));
    let mut all = vec![(LoadCurve::Flat, FLAT)];

    let steepness = grid(STEEPNESS.0, STEEPNESS.1, STEEPNESS_RATIO);
    let mut knee = 1.0;
    while knee < most {
        let next = (knee + 1.0_f64).max(knee * KNEE_RATIO).min(most);
        // Every octave of knees weighs the same.
        let weight = (next / knee).ln() / most.ln() * (1.0 - FLAT - SHARED);
        let slope = 1.0 / knee;
        all.push((LoadCurve::Hinge { knee, slope }, weight * PLATEAU));
        let slopes = steepness.iter().map(|steep| steep / knee);
        // From a knee at 1 on, a line is a shared curve.
        let slopes = slopes.filter(|slope| knee > 1.0 && *slope <= STEEPEST);
        let slopes: Vec<f64> = slopes.collect();
        for slope in &slopes {
            let slope = *slope;
            let weight = weight * (1.0 - PLATEAU) / slopes.len() as f64;
            all.push((LoadCurve::Hinge { knee, slope }, weight));
        }
        knee = (knee + 1.0).max(knee * KNEE_RATIO);
    }

    let halves = grid(1.0, most * HALF_REACH, HALF_RATIO);
    for half in &halves {
        let weight = SHARED / halves.len() as f64;
        all.push((LoadCurve::Shared { half: *half }, weight));
    }

    let start = f64::from(start);
    all.into_iter()
        .map(|(curve, weight)| {
            let unlikely = curve.is_past(start) || (learned && curve.wants_more(start));
            let factor = if unlikely { PAST_START } else { 1.0 };
            (curve, (weight * factor).ln())
        })
        .unzip()
}

/// How a call's time grows with its items.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SizeCurve {
    /// A call costs as much as so many items, besides its items.
    Overhead(f64),
    /// The items to this power: bigger batches are slower by the item.
    Power(f64),
}

impl SizeCurve {
    /// Log of the time, up to a constant of the server's.
    pub(super) fn ln_time(self, items: f64) -> f64 {
        match self {
            Self::Overhead(worth) => (worth + items).ln(),
            Self::Power(power) => power * items.ln(),
        }
    }
}

/// The size curves, each with the log of its prior weight.
pub(super) fn size_curves() -> (Vec<SizeCurve>, Vec<f64>) {
    let overheads = grid(1.0, 5000.0, 2.0);
    let mut all = vec![
        (SizeCurve::Overhead(0.0), 0.15),
        (SizeCurve::Power(1.2), 0.03),
        (SizeCurve::Power(1.6), 0.02),
    ];
    for worth in &overheads {
        all.push((SizeCurve::Overhead(*worth), 0.8 / overheads.len() as f64));
    }
    all.into_iter()
        .map(|(curve, weight): (_, f64)| (curve, weight.ln()))
        .unzip()
}

/// Values from `first` to below `end`, each `ratio` times the one before.
fn grid(first: f64, end: f64, ratio: f64) -> Vec<f64> {
    std::iter::successors(Some(first), |value| Some(value * ratio))
        .take_while(|value| *value < end)
        .collect()
}
