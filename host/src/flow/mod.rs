//! One run of a job: items stream from the source through a bounded buffer into batches,
//! batches into slots, outcomes into the account.
//!
//! source ([`read`]) → batch ([`dispatch`]) → slot ([`recover`]) → outcome → tally →
//! controller → setting. The run loop here starts calls and waits; whoever ends an attempt
//! starts the next one in the same task if nothing has to be waited for. Only this module reads the
//! clock for tuning and applies settings.

mod buffer;
mod control;
mod dispatch;
mod permission;
mod read;
mod record;
mod recover;
mod status;
mod stop;

pub use buffer::Buffer;
pub use control::ControlPoll;
pub use permission::Parking;
pub use record::Records;
pub use status::Watch;
pub use stop::Stop;

use crate::aside::aside;
use crate::budget::{self, Member, Refusal};
use crate::item::Item;
use crate::limiter::{Limiter, Turn};
use crate::report::summary::{Earlier, LastSetting, Stopped, Summary};
use crate::slot::{Plugin, Pool, Slot};
use crate::source::{RejectsFile, Source};
use batchgate_policy::attempt::{Rules, StopCause};
use batchgate_policy::breaker::{Breaker, Trip};
use batchgate_policy::controller::{Change, Controller};
use dispatch::{Batch, Dispatch, Limited, NotYet};
use permission::Permission;
use record::Recorded;
use recover::{Counted, Done, Recover, Stint};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a batch waits to be filled by a slow input before it goes as it is.
const LINGER: Duration = Duration::from_secs(1);

/// Different errors of one attempt that its log line shows.
const SHOWN_ERRORS: usize = 5;

/// Characters of each that it shows: the text is the plugin's, and there may be such a line for every batch.
const SHOWN_CHARS: usize = 500;

/// How a batch is written in the failures file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Describe {
    /// By the component's describer; by the keys if it has none or that fails.
    Component,
    /// The items' keys.
    Key,
    /// The items' indexes.
    Index,
    /// The items' data as text.
    Data,
}

/// All that a run works with.
pub struct Job<P: Plugin> {
    /// Prefix of its log lines, its name in stores.
    pub label: Arc<str>,
    /// Names this run.
    pub run_id: Arc<str>,
    /// The items.
    pub source: Source,
    /// Takes this many items of them at most.
    pub limit: Option<u64>,
    /// Where rejected lines go.
    pub rejects: Option<RejectsFile>,
    /// What processes them.
    pub plugin: P,
    /// Decides the setting.
    pub controller: Box<dyn Controller>,
    /// Whether the setting is fixed (`--fixed`).
    pub fixed: bool,
    /// How failed calls are recovered.
    pub rules: Rules,
    /// When failures stop the run.
    pub breaker: Breaker,
    /// A batch is cut before its data exceeds this.
    pub max_batch_bytes: Option<u64>,
    /// Every call passes it.
    pub limiter: Limiter,
    /// The job's place in the budget that it shares, if there is one.
    pub budget: Option<Arc<Member>>,
    /// What to do at a wait that is very long.
    pub parking: Parking,
    /// The live control, if there is one.
    pub control: Option<ControlPoll>,
    /// Where calls and failed attempts are recorded.
    pub records: Records,
    /// How a batch is written in the failures file.
    pub describe: Describe,
    /// What calls in flight get when the run is interrupted.
    pub grace: Duration,
    /// Stops the run from outside.
    pub stop: Stop,
}

/// What the tasks of a run share.
struct Flow<P: Plugin> {
    label: Arc<str>,
    state: Mutex<Dispatch>,
    /// Wakes the run loop.
    changed: Notify,
    /// Wakes the reader.
    room: Condvar,
    recover: Recover<P>,
    records: Arc<Records>,
    stop: Stop,
    describe: Describe,
    started: Instant,
}

/// Runs a job to its end, which is always a summary: whatever happens is in it. `watch` is given the means
/// to look at the run from outside.
pub async fn run<P: Plugin>(job: Job<P>, watch: impl FnOnce(Watch)) -> Summary {
    let Job { stop, limiter, .. } = &job;
    let (stop, limiter) = (stop.clone(), limiter.clone());
    let records = Arc::new(job.records);
    let setting = job.controller.setting();
    let bounds = job.controller.bounds();
    let label = job.label.clone();
    let grace = job.grace;
    let permission = Permission::new(label.clone(), job.parking, records.clone(), stop.clone());
    let flow = Arc::new(Flow {
        label: label.clone(),
        state: Mutex::new(Dispatch::new(
            job.controller,
            job.breaker,
            job.max_batch_bytes,
            job.budget.clone(),
        )),
        changed: Notify::new(),
        room: Condvar::new(),
        recover: Recover {
            label: label.clone(),
            run_id: job.run_id.clone(),
            rules: job.rules,
            pool: Pool::new(job.plugin),
            limiter: limiter.clone(),
            budget: job.budget.clone(),
            permission,
            records: records.clone(),
            stop: stop.clone(),
            calling: Counted::default(),
            pausing: Counted::default(),
            limited: Counted::default(),
            refused: Counted::default(),
            said: Default::default(),
        },
        records: records.clone(),
        stop,
        describe: job.describe,
        started: Instant::now(),
    });
    if job.fixed {
        tracing::info!(label = %label, "fixed: workers={}, batch_size={}",
            setting.workers,
            setting.batch_size
        );
    } else {
        tracing::info!(label = %label, "adaptive: start workers={} batch_size={}, ceilings workers<={} batch_size<={}",
            setting.workers,
            setting.batch_size,
            bounds.max_workers,
            bounds.max_batch_size
        );
    }
    // Read before the first dispatch, then by a timer.
    let control = match job.control {
        Some(poll) => Some(control::start(poll, flow.clone()).await),
        None => None,
    };
    let reader = match read::start(job.source, job.limit, job.rejects, flow.clone()) {
        Ok(end) => Some(end),
        Err(error) => {
            records.cannot_go_on(&format!("the input's reader cannot be started: {error}"));
            None
        }
    };
    let looked_at = flow.clone();
    watch(Watch::new(move || looked_at.status()));
    let out_of_time = async {
        flow.stop.hurried().await;
        tokio::time::sleep(grace).await;
        tracing::warn!(label = %flow.label, "calls in flight are abandoned: they had {} s to end ([stop] grace)",
            grace.as_secs_f64()
        );
        flow.stop.abandon();
        // The attempts abandoned have to be taken account of.
        std::future::pending().await
    };
    tokio::select! {
        () = flow.drive(&limiter) => {}
        () = out_of_time => {}
    }
    if let Some(budget) = &job.budget {
        budget.leave();
    }
    if let Some(control) = control {
        control.abort();
    }
    if let Some(end) = reader {
        // A reader that is blocked in its input ends with the process.
        let _ = tokio::time::timeout(read::COUNT_ON, end).await;
    }
    records.flush().await;
    let mut summary = flow.close(job.run_id);
    let closed = summary.clone();
    let complete = job.limit.is_none() && summary.is_through();
    let lesson = flow.lock().controller.lesson();
    let cooling_down = limiter.backing_off_until().is_some();
    // These may wait for a disk or another process's lock.
    let kept = aside("batchgate-close", move || {
        records.remember(lesson, closed.stopped, cooling_down);
        records.close(&closed, complete)
    })
    .await;
    if !kept.unwrap_or(false) && summary.stopped == Stopped::Completed {
        summary.stopped = Stopped::StoreError;
    }
    if let Err(error) = limiter.close().await {
        tracing::warn!(label = %label, "what is left of the day's lease counts as used: {error}");
    }
    summary
}

impl<P: Plugin> Flow<P> {
    fn lock(&self) -> MutexGuard<'_, Dispatch> {
        // The counts stay usable after a panic elsewhere, and a summary must be made of them.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The run loop: starts calls that nobody else can start, and waits for what they need.
    async fn drive(self: &Arc<Self>, limiter: &Limiter) {
        let stopped = self.stop.stopping();
        tokio::pin!(stopped);
        let mut stop_seen = false;
        let mut linger_from: Option<Instant> = None;
        let mut woken = self.recover.budget.as_ref().map(|budget| budget.woken());
        loop {
            let (finished, ready, starved, refused) = {
                let mut state = self.lock();
                // Under the lock, so that it is about the refusal at hand.
                if let Some(woken) = &mut woken
                    && woken.has_changed().unwrap_or(false)
                {
                    woken.mark_unchanged();
                    state.refused = None;
                }
                state.tell_demand();
                if self.stop.is_stopping() && !state.stopping {
                    state.stopping = true;
                    self.room.notify_all();
                }
                let starved = state.has_worker() && !state.buffer.is_empty() && !state.ready();
                let refused = state.refused.clone();
                (state.finished(), state.ready(), starved, refused)
            };
            if finished {
                return;
            }
            if !stop_seen && self.stop.is_stopping() {
                stop_seen = true;
            }
            if ready {
                linger_from = None;
                tokio::select! {
                    biased;
                    () = &mut stopped, if !stop_seen => {}
                    () = self.dispatch_one(limiter) => {}
                }
                continue;
            }
            let linger_until = match starved {
                true => Some(*linger_from.get_or_insert_with(Instant::now) + LINGER),
                false => {
                    linger_from = None;
                    None
                }
            };
            tokio::select! {
                biased;
                () = &mut stopped, if !stop_seen => {}
                () = self.changed.notified() => {}
                () = budget_moves(refused.as_ref(), &mut woken) => {
                    self.lock().refused = None;
                }
                () = sleep_until(linger_until) => {
                    self.lock().lingered = true;
                    linger_from = None;
                }
            }
        }
    }

    /// Starts the next call as soon as the limiter allows it, in the order of asking; returns
    /// without one if something changes that may forbid it.
    async fn dispatch_one(self: &Arc<Self>, limiter: &Limiter) {
        let (turn, mut cut) = match self.cut_now(limiter) {
            Some(cut) => cut,
            None => {
                let turn = tokio::select! {
                    biased;
                    turn = limiter.turn() => turn,
                    () = self.changed.notified() => return,
                };
                let cut = self.cut(self.lock(), &turn);
                (turn, cut)
            }
        };
        loop {
            let wait = match cut {
                Ok(batch) => {
                    self.recover.permission.started();
                    drop(turn);
                    tokio::spawn(self.clone().work(batch));
                    return;
                }
                Err(NotYet::NotReady) => return,
                Err(NotYet::Refused(refusal)) => {
                    if refusal == Refusal::Stopped {
                        self.recover.budget_stopped();
                    }
                    return;
                }
                Err(NotYet::Limited(wait)) => wait,
            };
            if !self.recover.permission.may_wait(&wait) {
                return;
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => {
                    if !self.lock().ready() {
                        return;
                    }
                }
                () = turn.wait(&wait) => {}
            }
            if turn.is_overtaken() {
                return;
            }
            cut = self.cut(self.lock(), &turn);
        }
    }

    /// Cuts a batch if nobody has the turn at the limiter. Turn and batch are one step under the lock: a call that ends
    /// at this moment asks for the turn under it too, and without one would have to leave its slot.
    fn cut_now<'a>(&self, limiter: &'a Limiter) -> Option<(Turn<'a>, Result<Batch, NotYet>)> {
        let mut state = self.lock();
        let Some(turn) = limiter.try_turn() else {
            state.tell_no_demand();
            state.limited = Some(Limited::Turn);
            return None;
        };
        let cut = self.cut(state, &turn);
        Some((turn, cut))
    }

    fn cut(&self, mut state: MutexGuard<'_, Dispatch>, turn: &Turn<'_>) -> Result<Batch, NotYet> {
        let cut = state.cut(turn, None);
        let read_on = state.wants_reader();
        drop(state);
        if read_on {
            self.room.notify_one();
        }
        cut
    }

    /// Runs a batch, and then others for as long as they can start at once: a slot in flight.
    async fn work(self: Arc<Self>, first: Batch) {
        let mut next = Some(first);
        let mut slot = None;
        let mut stint = Stint::begin();
        while let Some(mut batch) = next.take() {
            let guard = InFlight::new(&self, batch.items.len() as u64);
            let mut place = batch.slot.take();
            let (recorded, may_be_sent) = self.records.dispatch(&batch.items).await;
            let done = match may_be_sent {
                true => {
                    self.recover
                        .run(&batch, &mut slot, &mut place, &mut stint)
                        .await
                }
                false => self.recover.leave(&batch),
            };
            self.record_failure(&batch, &done, &mut slot).await;
            guard.defuse();
            next = self.end(batch, recorded, done, &mut slot, place);
            // A guest that answers at once must not keep timers and the run loop from running, however fast the clock says
            // that it is.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// One row for an attempt that failed or partly failed.
    async fn record_failure(&self, batch: &Batch, done: &Done, slot: &mut Option<P::Slot>) {
        let errors = &done.account.errors;
        if errors.is_empty() || !self.records.keeps_failures() {
            return;
        }
        let described = match (self.describe, slot.as_mut()) {
            (Describe::Component, Some(guest)) => guest.describe(&batch.items).await,
            _ => None,
        };
        if slot.as_ref().is_some_and(Slot::is_dead) {
            *slot = None;
        }
        let batch_text = described.unwrap_or_else(|| describe(self.describe, &batch.items));
        self.records.failure(&batch_text, &errors.join(" | "));
    }

    /// Takes the account of an attempt; returns the next batch if one can start at once, and gives the slot back
    /// if none can.
    fn end(
        &self,
        batch: Batch,
        recorded: Recorded,
        mut done: Done,
        slot: &mut Option<P::Slot>,
        place: Option<budget::Slot>,
    ) -> Option<Batch> {
        self.records.end(recorded, &batch.items, &mut done.account);
        let mut state = self.lock();
        state.tally.calls += done.calls;
        state.tally.breaches += done.breaches;
        state.tally.traps += done.traps;
        let ended = state.end(&batch, &done.account, done.first_elapsed, done.breaches > 0);
        // Logged under the lock, so that the lines come in the order of the decisions.
        let goes_on = done.stop.is_none() && ended.trip.is_none() && !self.stop.is_stopping();
        self.log_attempt(&batch, &done, ended.total_written, goes_on);
        let last = (ended.setting.workers, ended.setting.batch_size);
        let levels = Change::levels_after(&ended.changes, last);
        for (change, (workers, batch_size)) in ended.changes.iter().zip(levels) {
            tracing::info!(label = %self.label, "tune: {change} -> workers={workers}, batch_size={batch_size}");
        }
        if let Some(change) = ended.changes.last() {
            state.last_change = Some(change.clone());
        }
        self.react(done.stop, ended.trip);
        if self.stop.is_stopping() {
            state.stopping = true;
        }
        let next = match self.recover.limiter.try_turn() {
            Some(turn) => state.cut(&turn, place).ok(),
            None => None,
        };
        // Before the lock is gone, so that whoever starts the next call finds it.
        if next.is_none()
            && let Some(slot) = slot.take()
        {
            self.recover.pool.put(slot);
        }
        let read_on = state.wants_reader();
        let more = next.is_none() || state.ready();
        drop(state);
        if read_on {
            self.room.notify_one();
        }
        if more {
            self.changed.notify_one();
        }
        next
    }

    fn react(&self, cause: Option<StopCause>, trip: Option<Trip>) {
        let label = &self.label;
        match cause {
            Some(StopCause::Fatal) if self.stop.stop(Stopped::Fatal) => {
                tracing::error!(label = %label, "FATAL: the plugin says that no call can succeed. Stopping.");
            }
            Some(StopCause::Trap) if self.stop.stop(Stopped::Trap) => {
                tracing::error!(label = %label, "TRAP: the plugin failed in a way that leaves items unknown. Stopping \
                     (on_trap = \"fail\" would go on)."
                );
            }
            _ => {}
        }
        match trip {
            Some(Trip::Consecutive(n)) if self.stop.stop(Stopped::CircuitBreaker) => {
                tracing::error!(label = %label, "SYSTEMATIC FAILURE: {n} consecutive. Stopping.");
            }
            Some(Trip::FailedItems(n)) if self.stop.stop(Stopped::FailureLimit) => {
                tracing::error!(label = %label, "FAILURE LIMIT: {n} items failed. Stopping.");
            }
            _ => {}
        }
    }

    fn log_attempt(&self, batch: &Batch, done: &Done, total_written: u64, goes_on: bool) {
        let account = &done.account;
        // Nothing failed for good where a stop ended an attempt that was to be sent again.
        if account.uncalled || (!account.succeeded && account.errors.is_empty()) {
            return;
        }
        let label = &self.label;
        let seconds = || done.started.elapsed().as_secs_f64();
        let (workers, batch_size) = (batch.setting.workers, batch.setting.batch_size);
        if !account.succeeded {
            let then = if goes_on { " -- continuing" } else { "" };
            tracing::warn!(
                label = %label,
                "batch FAILED after {:.1}s (w={workers} b={batch_size}) ({}){then}",
                seconds(),
                folded(&account.errors)
            );
            return;
        }
        if !account.errors.is_empty() {
            tracing::info!(label = %label, "partial failure: {} of {} items: {}",
                account.counts.failed + account.counts.unknown,
                batch.items.len(),
                folded(&account.errors)
            );
        }
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let wall = self.started.elapsed().as_secs_f64();
        let average = if wall > 0.0 {
            total_written as f64 / wall
        } else {
            0.0
        };
        tracing::debug!(label = %label, "{}/{} written, {:.1}s (w={workers} b={batch_size}) | run_avg={average:.2}/s, \
             total={total_written}, wall={:.1}min",
            account.counts.written,
            batch.items.len(),
            seconds(),
            wall / 60.0
        );
    }

    /// The summary of a run whose calls have ended.
    fn close(&self, run_id: Arc<str>) -> Summary {
        let state = self.lock();
        let setting = state.controller.setting();
        // What was unknown before and was not sent again is no item of this run.
        let read = state.read - self.records.give_back(state.buffer.items());
        let counts = state.tally.close(read);
        let known = state.buffer.ended();
        let label = &self.label;
        let stopped = self.stop.reason().unwrap_or(Stopped::Completed);
        let earlier = self.records.earlier();
        if known && read == 0 && stopped == Stopped::Completed {
            tracing::info!(label = %label, "{}: nothing to do", match (earlier, state.rejected) {
                (Some(earlier), _) if earlier != Earlier::default() => "former runs left no items",
                (_, 0) => "the input holds no items",
                _ => "no line of the input is an item",
            });
        }
        let undispatched = match known {
            true => counts.not_dispatched.to_string(),
            false => "an unknown number".to_owned(),
        };
        tracing::info!(label = %label, "done. {} written this run, {undispatched} not dispatched, final workers={} batch_size={}",
            counts.written,
            setting.workers,
            setting.batch_size
        );
        Summary {
            label: label.to_string(),
            run_id: run_id.to_string(),
            items: known.then_some(read),
            written: counts.written,
            skipped: counts.skipped,
            failed: counts.failed,
            unknown: counts.unknown,
            not_dispatched: known.then_some(counts.not_dispatched),
            rejected: state.rejected,
            calls: state.tally.calls,
            breaches: state.tally.breaches,
            traps: state.tally.traps,
            elapsed_seconds: self.started.elapsed().as_secs_f64(),
            last: LastSetting {
                workers: setting.workers,
                batch_size: setting.batch_size,
            },
            stopped,
            earlier,
        }
    }
}

/// Books the end of an attempt even if its task panics: its items are unknown then, and the run stops.
struct InFlight<'a, P: Plugin> {
    flow: &'a Flow<P>,
    items: u64,
    armed: bool,
}

impl<'a, P: Plugin> InFlight<'a, P> {
    fn new(flow: &'a Flow<P>, items: u64) -> Self {
        Self {
            flow,
            items,
            armed: true,
        }
    }

    fn defuse(mut self) {
        self.armed = false;
    }
}

impl<P: Plugin> Drop for InFlight<'_, P> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let mut state = self.flow.lock();
        state.in_flight -= 1;
        state.tally.ended.unknown += self.items;
        drop(state);
        self.flow
            .records
            .cannot_go_on("a fault in the host ended a call; please report it");
        self.flow.changed.notify_one();
    }
}

/// The errors of an attempt for one line of the log: equal ones once, with their number, and long ones cut. The failures
/// file has them all.
fn folded(errors: &[String]) -> String {
    let mut distinct: Vec<(&str, usize)> = Vec::new();
    for error in errors {
        if let Some((_, times)) = distinct.iter_mut().find(|(text, _)| text == error) {
            *times += 1;
        } else if distinct.len() < SHOWN_ERRORS {
            distinct.push((error, 1));
        }
    }
    let shown: usize = distinct.iter().map(|(_, times)| times).sum();
    let mut texts: Vec<_> = distinct
        .iter()
        .map(|(text, times)| {
            let mut shown = (*text).to_owned();
            if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARS) {
                shown.truncate(end);
                shown.push_str(" [...]");
            }
            match times {
                1 => shown,
                times => format!("{shown} ({times} times)"),
            }
        })
        .collect();
    if shown < errors.len() {
        texts.push(format!("and {} others", errors.len() - shown));
    }
    texts.join(" | ")
}

/// Ends when it may be worth asking the budget again that refused.
async fn budget_moves(
    refused: Option<&Refusal>,
    woken: &mut Option<tokio::sync::watch::Receiver<u64>>,
) {
    match (refused, woken) {
        (Some(refused), Some(woken)) => refused.wait(woken).await,
        _ => std::future::pending().await,
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn describe(how: Describe, items: &[Item]) -> String {
    let parts: Vec<_> = items
        .iter()
        .map(|item| match how {
            Describe::Component | Describe::Key => item.key().into_owned(),
            Describe::Index => item.index.to_string(),
            Describe::Data => String::from_utf8_lossy(&item.data).into_owned(),
        })
        .collect();
    parts.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_shows_each_error_once_and_cut() {
        let long = "é".repeat(SHOWN_CHARS + 1);
        let errors = ["a", "b", "a", &long, "c", "d", "e", "e"].map(str::to_owned);
        let shown = format!("{} [...]", "é".repeat(SHOWN_CHARS));
        assert_eq!(
            folded(&errors),
            format!("a (2 times) | b | {shown} | c | d | and 2 others")
        );
        let fits = "é".repeat(SHOWN_CHARS);
        assert_eq!(folded(std::slice::from_ref(&fits)), fits);
    }
}
