//! An attempt: makes the calls that its strategy asks for, in one slot, until the batch has
//! come to its end.

use super::dispatch::Batch;
use super::permission::Permission;
use super::record::Records;
use super::stop::Stop;
use crate::budget::{Member, Refusal, Slot as BudgetSlot};
use crate::item::Item;
use crate::limiter::Limiter;
use crate::report::summary::Stopped;
use crate::slot::{CallReport, CallServices, Plugin, Pool, Slot};
use batchgate_policy::attempt::{Account, Attempt, Note, Rules, StopCause};
use batchgate_policy::bisect::Positions;
use batchgate_policy::outcome::{CallEnd, CallResult};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What the attempts of a run share.
pub struct Recover<P: Plugin> {
    /// The job's label.
    pub label: Arc<str>,
    /// The run's id.
    pub run_id: Arc<str>,
    /// How failed calls are recovered.
    pub rules: Rules,
    /// Its slots.
    pub pool: Pool<P>,
    /// Every call passes it.
    pub limiter: Limiter,
    /// The job's place in the budget, if there is one.
    pub budget: Option<Arc<Member>>,
    /// What a long wait for it means.
    pub permission: Permission,
    /// Where calls are recorded.
    pub records: Arc<Records>,
    /// Ends waits, and calls at the end of a grace.
    pub stop: Stop,
    /// Calls in flight.
    pub calling: Counted,
    /// Attempts in a pause before a further call.
    pub pausing: Counted,
    /// Attempts that wait for the limiter before a further call.
    pub limited: Counted,
    /// Attempts that wait for the budget before a further call.
    pub refused: Counted,
    /// The kinds of [`Note`] that were said.
    pub said: [AtomicBool; 2],
}

/// How many of something there are at the moment.
#[derive(Default)]
pub struct Counted(AtomicU32);

/// One of them, as long as it lives.
struct One<'a>(&'a Counted);

impl Counted {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn one(&self) -> One<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        One(self)
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a task has had its thread, as far as it knows: calls that end without waiting follow each other in one poll.
pub struct Stint {
    since: std::time::Instant,
}

/// A call that computes for longer gives its thread back by itself.
const LONGEST_STINT: Duration = Duration::from_millis(2);

impl Stint {
    pub fn begin() -> Self {
        Self {
            since: std::time::Instant::now(),
        }
    }

    /// Lets others have the thread, and timers a look, if it is time.
    async fn end_if_long(&mut self) {
        if self.since.elapsed() >= LONGEST_STINT {
            tokio::task::yield_now().await;
            self.since = std::time::Instant::now();
        }
    }
}

/// What an attempt came to.
pub struct Done {
    /// Its account.
    pub account: Account,
    /// Time of its first call, without waits.
    pub first_elapsed: Duration,
    /// When it began.
    pub started: Instant,
    /// Calls made.
    pub calls: u64,
    /// Of these, with a breach.
    pub breaches: u64,
    /// Of these, trapped.
    pub traps: u64,
    /// Why the whole run has to stop.
    pub stop: Option<StopCause>,
}

impl<P: Plugin> Recover<P> {
    /// What a batch comes to that is not called after all.
    pub fn leave(&self, batch: &Batch) -> Done {
        Done {
            account: Attempt::new(batch.items.len() as u32, self.rules).finish(),
            first_elapsed: Duration::ZERO,
            started: Instant::now(),
            calls: 0,
            breaches: 0,
            traps: 0,
            stop: None,
        }
    }

    /// Runs a batch to its end. Limiter and budget have granted its first call; `place` is what the budget
    /// gave for it. `held` is the slot that the caller used last, if it has one; it comes back in the
    /// same place.
    pub async fn run(
        &self,
        batch: &Batch,
        held: &mut Option<P::Slot>,
        place: &mut Option<BudgetSlot>,
        stint: &mut Stint,
    ) -> Done {
        let started = Instant::now();
        let mut attempt = Attempt::new(batch.items.len() as u32, self.rules);
        let places = Places::new(&batch.items);
        let mut done = Done {
            account: Attempt::new(0, self.rules).finish(),
            first_elapsed: Duration::ZERO,
            started,
            calls: 0,
            breaches: 0,
            traps: 0,
            stop: None,
        };
        while let Some(next) = attempt.next() {
            let number = next.number;
            // Boxed, or every call in flight would keep the room that these waits take.
            if number > 1 && !Box::pin(self.may_go_on(next.pause, place)).await {
                break;
            }
            let items = select(&batch.items, next.positions);
            let info = batch.call_info(&self.label, &self.run_id, number);
            let call_started = match number {
                1 => started,
                _ => Instant::now(),
            };
            let report = self.call(&items, info, held).await;
            stint.end_if_long().await;
            let backing_off = self.limiter.is_backing_off();
            let breached = self.learn_breach(&report, call_started);
            let jitter = rand::random::<f64>();
            let (elapsed, bytes) = (report.elapsed, report.bytes);
            done.calls += 1;
            done.breaches += u64::from(breached);
            done.traps += u64::from(matches!(report.end, CallEnd::Trapped(_)));
            if number == 1 {
                done.first_elapsed = elapsed;
            }
            let n_items = items.len();
            let failure = match &report.end {
                CallEnd::Failed { message, .. } => Some(message.clone()),
                _ => None,
            };
            let result = CallResult {
                end: report.end,
                breached,
                backing_off,
                unanswered: report.unanswered,
            };
            let marked = attempt.mark(result, |index| places.of(index), jitter);
            self.records
                .call(batch.setting, n_items, elapsed, marked.outcome, bytes);
            if breached && let Some(budget) = &self.budget {
                budget.breach();
            }
            if let Some(note) = marked.note {
                self.say(note);
            }
            if marked.stop.is_some() {
                done.stop = marked.stop;
                break;
            }
            if let (Some(failure), Some(next)) = (failure, attempt.next())
                && !next.pause.is_zero()
            {
                let seconds = next.pause.as_secs_f64();
                tracing::info!(label = %self.label, "a call failed ({failure}): sent again in {seconds:.1} s");
            }
        }
        done.account = attempt.finish();
        done
    }

    /// Waits out the pause, the limiter and the budget before a further call; false if the run stops
    /// meanwhile. Others have the call's place in the budget while it waits.
    async fn may_go_on(&self, pause: Duration, place: &mut Option<BudgetSlot>) -> bool {
        drop(place.take());
        let wait = async {
            if !pause.is_zero() {
                let _pausing = self.pausing.one();
                tokio::time::sleep(pause).await;
            }
            let may = match &self.budget {
                None => self.may_start().await,
                Some(budget) => self.may_start_within(budget, place).await,
            };
            if may {
                self.permission.started();
            }
            may
        };
        tokio::select! {
            biased;
            () = self.stop.stopping() => false,
            may = wait => may,
        }
    }

    async fn may_start(&self) -> bool {
        let _limited = self.limited.one();
        let mut turn = self.limiter.turn().await;
        while let Err(wait) = turn.try_start() {
            if !self.permission.may_wait(&wait) {
                return false;
            }
            turn.wait(&wait).await;
            turn = turn.give_way().await;
        }
        true
    }

    async fn may_start_within(&self, budget: &Arc<Member>, place: &mut Option<BudgetSlot>) -> bool {
        let mut woken = budget.woken();
        let mut limited = Some(self.limited.one());
        let mut turn = self.limiter.turn().await;
        loop {
            woken.mark_unchanged();
            let again = budget.again();
            let mut wait = None;
            let started = again.try_start(|| {
                wait = turn.try_start().err();
                wait.is_none()
            });
            match (started, wait) {
                (Ok(slot), _) => {
                    *place = Some(slot);
                    return true;
                }
                (Err(_), Some(wait)) => {
                    // Others may have the slot meanwhile.
                    drop(again);
                    if !self.permission.may_wait(&wait) {
                        return false;
                    }
                    turn.wait(&wait).await;
                    turn = turn.give_way().await;
                }
                (Err(Refusal::Stopped), None) => {
                    self.budget_stopped();
                    return false;
                }
                (Err(refusal), None) => {
                    // Whoever waits for a slot must not hold up those who wait for the limiter.
                    drop((turn, limited.take()));
                    let refused = self.refused.one();
                    refusal.wait(&mut woken).await;
                    drop((again, refused));
                    limited = Some(self.limited.one());
                    turn = self.limiter.turn().await;
                }
            }
        }
    }

    /// Stops the run in order.
    pub fn budget_stopped(&self) {
        if self.stop.stop(Stopped::BudgetStopped) {
            tracing::error!(label = %self.label, "the budget was stopped by its owner. Stopping.");
        }
    }

    /// Makes one call in the slot at hand, a new one if there is none, and drops it if it is dead after.
    async fn call(
        &self,
        items: &[Item],
        info: crate::slot::CallInfo,
        held: &mut Option<P::Slot>,
    ) -> CallReport {
        let mut slot = match held.take() {
            Some(slot) => slot,
            None => match self.pool.take().await {
                Ok(slot) => slot,
                Err(reason) => return CallReport::cannot_start(&reason),
            },
        };
        let _calling = self.calling.one();
        let started = Instant::now();
        let report = tokio::select! {
            biased;
            report = slot.call(items, info) => report,
            () = self.stop.abandoning() => abandoned(started.elapsed()),
        };
        if !report.dead {
            *held = Some(slot);
        }
        report
    }

    /// A call's breach starts the shared cooldown, once, however it was learned.
    fn learn_breach(&self, report: &CallReport, call_started: Instant) -> bool {
        let refused = if let CallEnd::RateLimited { retry_after, .. } = &report.end {
            if report.breached {
                self.limiter.lengthen_cooldown(*retry_after);
            } else {
                self.limiter.report_breach(call_started, *retry_after);
            }
            true
        } else {
            report.breached
        };
        if refused {
            self.permission.refused(&self.limiter);
        }
        refused
    }

    /// Each kind once: a plugin that counts wrong does so in every call.
    fn say(&self, note: Note) {
        let said = match note {
            Note::WrittenClamped { .. } => &self.said[0],
            Note::PartialIgnored { .. } => &self.said[1],
        };
        if said.swap(true, Ordering::Relaxed) {
            tracing::debug!(label = %self.label, "{note}");
        } else {
            tracing::warn!(label = %self.label, "{note} (said once)");
        }
    }
}

fn abandoned(elapsed: Duration) -> CallReport {
    CallReport {
        end: CallEnd::Abandoned("in flight when the run stopped: abandoned".into()),
        breached: false,
        elapsed,
        bytes: None,
        unanswered: true,
        dead: true,
    }
}

/// The items of a call. Only what a partial answer left has to be gathered.
pub fn select<'a>(items: &'a [Item], positions: &Positions) -> Cow<'a, [Item]> {
    match positions {
        Positions::Run(run) => Cow::Borrowed(&items[run.start as usize..run.end as usize]),
        Positions::Some(list) => list.iter().map(|&p| items[p as usize].clone()).collect(),
    }
}

/// Finds an item's place in its batch by its own index.
struct Places<'a> {
    items: &'a [Item],
    by_index: OnceCell<HashMap<u64, u32>>,
}

impl<'a> Places<'a> {
    fn new(items: &'a [Item]) -> Self {
        Self {
            items,
            by_index: OnceCell::new(),
        }
    }

    fn of(&self, index: u64) -> Option<u32> {
        // Nearly every batch is a run of neighbours.
        let offset = index.checked_sub(self.items.first()?.index);
        let near = offset.filter(|&o| o < self.items.len() as u64);
        if let Some(offset) = near
            && self.items[offset as usize].index == index
        {
            return Some(offset as u32);
        }
        let by_index = self.by_index.get_or_init(|| {
            let place = |(place, item): (usize, &Item)| (item.index, place as u32);
            self.items.iter().enumerate().map(place).collect()
        });
        by_index.get(&index).copied()
    }
}
