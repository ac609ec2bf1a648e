//! What is believed of the server: how probable each curve is, given what was measured.
//!
//! Invariant: the weights of the load curves, and those of the size curves, add up to 1.

use std::collections::BTreeMap;

use super::family::{LoadCurve, SizeCurve, load_curves, size_curves};
use super::samples::{Place, Samples, haste};

/// Relative spread of a real server around the best of the curves: however many samples there
/// are of a place, they say no more than this about the others.
const MISFIT: f64 = 0.02;
const STEEP_MISFIT: f64 = 0.1;
/// Log range that the speed of a server which changed may have moved in.
const SPEED_RANGE: f64 = 6.0;
/// Spread of the log speed of a server of which only the load curve changed.
const SPEED_SPREAD: f64 = 0.15;
/// A shift leaves the load curve as it was with this probability, otherwise the speed.
const CURVE_KEPT: f64 = 0.5;
/// Share of what is carried over a shift that is doubt.
const DOUBT: f64 = 0.1;
/// Size curves below this weight are left out until a size or a shift says otherwise.
const NEGLIGIBLE: f64 = 1e-3;
/// Columns kept of levels that may be asked for again.
const MOST_COLUMNS: usize = 64;
/// Half the log of 2 pi: the height of a normal density against that of a flat one.
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_7;

#[derive(Debug)]
pub(super) struct Belief {
    curves: Vec<LoadCurve>,
    prior: Vec<f64>,
    sizes: Vec<SizeCurve>,
    size_prior: Vec<f64>,
    weights: Vec<f64>,
    size_weights: Vec<f64>,
    /// Size curves that are not negligible, and the sizes they were judged at.
    live_sizes: Vec<usize>,
    judged_sizes: usize,
    /// Log seconds of a call of so many items that is alone.
    alone: f64,
    alone_items: f64,
    carried: Option<Carried>,
    columns: BTreeMap<u32, Column>,
    scratch: Scratch,
}

/// What every curve says of a level.
#[derive(Debug)]
struct Column {
    ln_penalty: Vec<f64>,
    penalty: Vec<f64>,
}

/// What was believed before the last shift.
#[derive(Debug)]
struct Carried {
    curves: Vec<f64>,
    sizes: Vec<f64>,
    alone: f64,
    alone_items: f64,
}

#[derive(Debug, Default)]
struct Scratch {
    rows: Vec<Row>,
    sizes: Vec<f64>,
    /// Of each curve: sums over the places of the log penalty, its square, its product with y.
    sum: Vec<f64>,
    square: Vec<f64>,
    product: Vec<f64>,
    /// Of each pair of curves.
    logs: Vec<f64>,
    alone: Vec<f64>,
}

/// A place's mean, and how much it says.
#[derive(Debug, Clone, Copy)]
struct Row {
    workers: u32,
    items: f64,
    mean: f64,
    /// Of the mean.
    variance: f64,
    precision: f64,
}

/// What going from one level to another brings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gain {
    /// Expected ln of the ratio of throughput.
    pub(super) mean: f64,
    pub(super) variance: f64,
}

impl Belief {
    pub(super) fn new(start: u32, max_workers: u32, learned: bool) -> Self {
        let (curves, prior) = load_curves(start, max_workers, learned);
        let (sizes, size_prior) = size_curves();
        Self {
            weights: normalized(&prior),
            size_weights: normalized(&size_prior),
            live_sizes: (0..sizes.len()).collect(),
            judged_sizes: 0,
            alone: 0.0,
            alone_items: 1.0,
            carried: None,
            columns: BTreeMap::new(),
            scratch: Scratch::default(),
            curves,
            prior,
            sizes,
            size_prior,
        }
    }

    /// The server changed: either its speed or its load curve is still what it was.
    pub(super) fn shifted(&mut self) {
        let doubted = |weights: &[f64], prior: &[f64]| {
            let mixed = weights.iter().zip(prior);
            let mixed = mixed.map(|(weight, prior)| (1.0 - DOUBT) * weight + DOUBT * prior.exp());
            mixed.map(f64::ln).collect()
        };
        self.carried = Some(Carried {
            curves: doubted(&self.weights, &self.prior),
            sizes: doubted(&self.size_weights, &self.size_prior),
            alone: self.alone,
            alone_items: self.alone_items,
        });
        self.judged_sizes = 0;
    }

    /// Works out the weights from what was measured. `in_flight` calls are still running at
    /// `here`.
    pub(super) fn update(&mut self, samples: &Samples, here: Place, visit: f64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.rows.clear();
        let noise = samples.noise();
        let in_flight = f64::from(here.workers);
        for (place, stat) in samples.places() {
            let early = match *place == here {
                true => haste(noise, in_flight, visit) * (visit / stat.n).min(1.0),
                false => 0.0,
            };
            scratch.rows.push(Row {
                workers: place.workers,
                items: f64::from(place.items),
                mean: stat.mean + early,
                precision: 0.0,
                variance: noise * noise / samples.weight(*place, stat, here) + MISFIT * MISFIT,
            });
        }
        for row in 0..scratch.rows.len() {
            let Row { items, mean, .. } = scratch.rows[row];
            let same = scratch.rows.iter().filter(|row| row.items == items);
            let sure = same.map(|row| row.mean + 2.0 * row.variance.sqrt());
            let least = sure.fold(mean, f64::min);
            let misfit = STEEP_MISFIT * (mean - least);
            let row = &mut scratch.rows[row];
            row.precision = 1.0 / (row.variance + misfit * misfit);
        }
        if !scratch.rows.is_empty() {
            self.weigh(&mut scratch, f64::from(here.items));
        }
        self.scratch = scratch;
    }

    fn weigh(&mut self, scratch: &mut Scratch, items_here: f64) {
        if self.columns.len() > MOST_COLUMNS {
            self.columns.clear();
        }
        for row in &scratch.rows {
            self.ensure(row.workers);
        }
        self.choose_sizes(scratch);
        let one_size = self.judged_sizes == 1;
        let curves = self.curves.len();
        let precision: f64 = scratch.rows.iter().map(|row| row.precision).sum();
        clear(&mut scratch.sum, curves);
        clear(&mut scratch.square, curves);
        for row in &scratch.rows {
            let column = &self.columns[&row.workers].ln_penalty;
            let sums = scratch.sum.iter_mut().zip(&mut scratch.square);
            for ((sum, square), ln) in sums.zip(column) {
                *sum += row.precision * ln;
                *square += row.precision * ln * ln;
            }
        }
        scratch.logs.clear();
        scratch.alone.clear();
        for &size in &self.live_sizes {
            let size_curve = self.sizes[size];
            clear(&mut scratch.product, curves);
            let (mut y_sum, mut y_square) = (0.0, 0.0);
            for row in &scratch.rows {
                let y = row.mean - size_curve.ln_time(row.items);
                let weighted = row.precision * y;
                y_sum += weighted;
                y_square += weighted * y;
                let column = &self.columns[&row.workers].ln_penalty;
                for (product, ln) in scratch.product.iter_mut().zip(column) {
                    *product += weighted * ln;
                }
            }
            // Where all batches have one size, their curves cannot be told apart.
            let size_prior = match (&self.carried, one_size) {
                (_, true) => 0.0,
                (None, _) => self.size_prior[size],
                (Some(carried), _) => carried.sizes[size],
            };
            let ln_time_here = size_curve.ln_time(items_here);
            for curve in 0..curves {
                // Of the residuals y - ln penalty, weighted by precision.
                let sum = y_sum - scratch.sum[curve];
                let square = y_square - 2.0 * scratch.product[curve] + scratch.square[curve];
                // The speed may be anything: its best value leaves this much unexplained.
                let free = -0.5 * (square - sum * sum / precision) - 0.5 * precision.ln();
                let log = match &self.carried {
                    None => self.prior[curve] + free,
                    Some(carried) => {
                        let kept = carried.curves[curve]
                            + free
                            + HALF_LN_TAU
                            + (CURVE_KEPT / SPEED_RANGE).ln();
                        let before = carried.alone - size_curve.ln_time(carried.alone_items);
                        let anchor = 1.0 / (SPEED_SPREAD * SPEED_SPREAD);
                        let sum = sum + anchor * before;
                        let square = square + anchor * before * before;
                        let all = precision + anchor;
                        let bound = -0.5 * (square - sum * sum / all) + 0.5 * (anchor / all).ln();
                        let other = self.prior[curve] + bound + (1.0 - CURVE_KEPT).ln();
                        ln_sum(kept, other)
                    }
                };
                scratch.logs.push(size_prior + log);
                scratch.alone.push(sum / precision + ln_time_here);
            }
        }
        self.take_weights(scratch, one_size);
        self.alone_items = items_here;
    }

    /// All size curves again once there is a size more or less to judge them by.
    fn choose_sizes(&mut self, scratch: &mut Scratch) {
        let sizes = &mut scratch.sizes;
        sizes.clear();
        sizes.extend(scratch.rows.iter().map(|row| row.items));
        sizes.sort_unstable_by(f64::total_cmp);
        sizes.dedup();
        if sizes.len() == self.judged_sizes {
            return;
        }
        self.judged_sizes = sizes.len();
        self.live_sizes.clear();
        match sizes.len() {
            1 => self.live_sizes.push(0),
            _ => self.live_sizes.extend(0..self.sizes.len()),
        }
    }

    fn take_weights(&mut self, scratch: &Scratch, one_size: bool) {
        let most = scratch
            .logs
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let curves = self.curves.len();
        clear(&mut self.weights, curves);
        if !one_size {
            self.size_weights.fill(0.0);
        }
        let (mut total, mut alone) = (0.0, 0.0);
        let logs = scratch
            .logs
            .chunks(curves)
            .zip(scratch.alone.chunks(curves));
        for (&size, (logs, alones)) in self.live_sizes.iter().zip(logs) {
            let mut of_size = 0.0;
            for ((weight, log), ln) in self.weights.iter_mut().zip(logs).zip(alones) {
                let share = (log - most).exp();
                *weight += share;
                of_size += share;
                alone += share * ln;
            }
            total += of_size;
            if !one_size {
                self.size_weights[size] = of_size;
            }
        }
        self.weights.iter_mut().for_each(|weight| *weight /= total);
        self.alone = alone / total;
        if !one_size {
            self.size_weights
                .iter_mut()
                .for_each(|weight| *weight /= total);
            let weights = &self.size_weights;
            self.live_sizes.retain(|size| weights[*size] > NEGLIGIBLE);
        }
    }

    fn ensure(&mut self, workers: u32) {
        let curves = &self.curves;
        self.columns.entry(workers).or_insert_with(|| {
            let of = |curve: &LoadCurve| curve.ln_penalty(f64::from(workers));
            let ln_penalty: Vec<f64> = curves.iter().map(of).collect();
            Column {
                penalty: ln_penalty.iter().map(|ln| ln.exp()).collect(),
                ln_penalty,
            }
        });
    }

    /// Ratio of throughput.
    pub(super) fn gain(&mut self, from: u32, to: u32) -> Gain {
        self.outlook(from, to).0
    }

    /// Work lost by one round of calls there, in units of what a round here gets done: a call
    /// there may take very long.
    pub(super) fn loss(&mut self, from: u32, to: u32) -> f64 {
        self.outlook(from, to).1
    }

    /// The gain and the loss, in one pass over the curves.
    pub(super) fn outlook(&mut self, from: u32, to: u32) -> (Gain, f64) {
        let more = f64::from(to) / f64::from(from);
        let (mut mean, mut square, mut loss) = (0.0, 0.0, 0.0);
        self.for_each(from, to, |weight, ln_ratio, ratio| {
            mean += weight * ln_ratio;
            square += weight * ln_ratio * ln_ratio;
            loss += weight * (ratio - more).max(0.0);
        });
        let gain = Gain {
            mean: ln_ratio(from, to) - mean,
            variance: (square - mean * mean).max(0.0),
        };
        (gain, loss)
    }

    /// How probable it is that going there brings more than this ln.
    pub(super) fn confidence(&mut self, from: u32, to: u32, least: f64) -> f64 {
        let more = ln_ratio(from, to);
        let mut confidence = 0.0;
        self.for_each(from, to, |weight, ln_ratio, _| {
            if more - ln_ratio > least {
                confidence += weight;
            }
        });
        confidence
    }

    /// Calls with each curve's weight, and the ratio of its penalties and the ln of that.
    fn for_each(&mut self, from: u32, to: u32, mut f: impl FnMut(f64, f64, f64)) {
        self.ensure(from);
        self.ensure(to);
        let (from, to) = (&self.columns[&from], &self.columns[&to]);
        for (curve, weight) in self.weights.iter().enumerate() {
            f(
                *weight,
                to.ln_penalty[curve] - from.ln_penalty[curve],
                to.penalty[curve] / from.penalty[curve],
            );
        }
    }

    /// Expected ln of the ratio of throughput that another batch size brings.
    pub(super) fn size_gain(&self, from: u32, to: u32) -> f64 {
        let more = ln_ratio(from, to);
        let (from, to) = (f64::from(from), f64::from(to));
        let of = |curve: &SizeCurve| more + curve.ln_time(from) - curve.ln_time(to);
        self.sizes
            .iter()
            .zip(&self.size_weights)
            .map(|(curve, weight)| weight * of(curve))
            .sum()
    }

    /// Expected ln of the seconds that a call takes.
    pub(super) fn ln_seconds(&mut self, workers: u32, items: u32) -> f64 {
        self.ensure(workers);
        let column = &self.columns[&workers].ln_penalty;
        let load: f64 = column
            .iter()
            .zip(&self.weights)
            .map(|(ln, weight)| ln * weight)
            .sum();
        let items = f64::from(items);
        let more = |curve: &SizeCurve| curve.ln_time(items) - curve.ln_time(self.alone_items);
        let sizes = self.sizes.iter().zip(&self.size_weights);
        let size: f64 = sizes.map(|(curve, weight)| weight * more(curve)).sum();
        self.alone + load + size
    }
}

fn ln_ratio(from: u32, to: u32) -> f64 {
    (f64::from(to) / f64::from(from)).ln()
}

fn ln_sum(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    most + ((a - most).exp() + (b - most).exp()).ln()
}

fn clear(values: &mut Vec<f64>, len: usize) {
    values.clear();
    values.resize(len, 0.0);
}

fn normalized(logs: &[f64]) -> Vec<f64> {
    let weights: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}
