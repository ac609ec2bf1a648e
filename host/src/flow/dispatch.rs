//! Where a batch is cut and where its account is taken: the one state of a run, behind one
//! short lock.
//!
//! Data goes one way: the reader adds items, a dispatch cuts them under the controller's setting, an
//! ended attempt goes into the tally, the breaker and the controller, and that may change the
//! setting. Nothing waits while it holds the lock.

use super::buffer::Buffer;
use crate::budget::{Member, Refusal, Slot};
use crate::item::Item;
use crate::limiter::{Turn, Wait};
use crate::slot::CallInfo;
use batchgate_policy::attempt::Account;
use batchgate_policy::breaker::{Breaker, Trip};
use batchgate_policy::controller::{Change, Controller, Observation, Override};
use batchgate_policy::setting::Setting;
use batchgate_policy::tally::Tally;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A batch on its way.
pub struct Batch {
    /// Its items, in the order of the input.
    pub items: Vec<Item>,
    /// The setting it was cut at.
    pub setting: Setting,
    /// Calls in flight with this one, if limiter or budget had held the job below its workers; see
    /// [`Observation::in_flight`].
    pub held_at: Option<u32>,
    /// Its place in the budget, if there is one.
    pub slot: Option<Slot>,
}

impl Batch {
    /// What its call with this number can know of itself.
    pub fn call_info(&self, label: &Arc<str>, run_id: &Arc<str>, number: u32) -> CallInfo {
        CallInfo {
            label: label.clone(),
            run_id: run_id.clone(),
            call_number: number,
            workers: self.setting.workers,
            batch_size: self.setting.batch_size,
        }
    }
}

/// Why no batch was cut.
#[derive(Debug)]
pub enum NotYet {
    /// All workers are busy, or the run is paused, or not enough was read: something will change it.
    NotReady,
    /// The limiter says when to ask again.
    Limited(Wait),
    /// The budget has no slot for it; it wakes the job when it has.
    Refused(Refusal),
}

/// What an ended attempt led to.
#[derive(Debug)]
pub struct Ended {
    /// The controller changed its setting.
    pub changes: Vec<Change>,
    /// The setting after it.
    pub setting: Setting,
    /// The breaker stops the run.
    pub trip: Option<Trip>,
    /// Items written so far.
    pub total_written: u64,
}

/// The state of a run.
pub struct Dispatch {
    /// What was read and not yet cut.
    pub buffer: Buffer,
    /// Decides the setting.
    pub controller: Box<dyn Controller>,
    /// The account of items.
    pub tally: Tally,
    /// Items read so far.
    pub read: u64,
    /// Lines of the input that never became items.
    pub rejected: u64,
    /// Attempts that have not ended.
    pub in_flight: u32,
    /// The user said to dispatch nothing new.
    pub paused: bool,
    /// Nothing new starts any more.
    pub stopping: bool,
    /// The input gave no full batch for so long that a smaller one may go.
    pub lingered: bool,
    /// The reader waits to be told that there is room.
    pub reader_waits: bool,
    breaker: Breaker,
    max_batch_bytes: Option<u64>,
    /// The limiter refused the dispatch that is next, so whatever starts now was held back.
    held: bool,
    budget: Option<Arc<Member>>,
    /// What the budget said last, until it says that it is worth asking again.
    pub refused: Option<Refusal>,
    /// What the limiter said last, until a call starts.
    pub limited: Option<Limited>,
    /// What the controller did last.
    pub last_change: Option<Change>,
}

/// What the limiter holds a call back for. Its text is for people.
#[derive(Debug)]
pub enum Limited {
    /// It is somebody else's turn.
    Turn,
    /// It is not time.
    Wait(Wait),
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn => f.write_str("not its turn at the limiter"),
            Self::Wait(wait) => wait.fmt(f),
        }
    }
}

impl Dispatch {
    /// The state of a run that has not begun.
    pub fn new(
        controller: Box<dyn Controller>,
        breaker: Breaker,
        max_batch_bytes: Option<u64>,
        budget: Option<Arc<Member>>,
    ) -> Self {
        Self {
            buffer: Buffer::default(),
            controller,
            tally: Tally::default(),
            read: 0,
            rejected: 0,
            in_flight: 0,
            paused: false,
            stopping: false,
            lingered: false,
            reader_waits: false,
            breaker,
            max_batch_bytes,
            held: false,
            budget,
            refused: None,
            limited: None,
            last_change: None,
        }
    }

    /// Whether it is worth asking for a call to start: nothing but the limiter may refuse it.
    pub fn ready(&self) -> bool {
        self.refused.is_none() && self.startable()
    }

    /// Whether a call may start as far as the job itself is concerned.
    fn startable(&self) -> bool {
        self.has_worker() && self.has_batch()
    }

    /// Why no call starts that the job itself would start, in words.
    pub fn held_by(&self) -> Option<String> {
        let limited = self.limited.as_ref().filter(|_| self.startable());
        let refused = self.refused.as_ref().map(Refusal::to_string);
        refused.or_else(|| limited.map(Limited::to_string))
    }

    /// Nothing was read that a free worker could do.
    pub fn is_out_of_items(&self) -> bool {
        self.has_worker() && self.buffer.is_empty() && !self.buffer.ended()
    }

    /// Tells the budget how many calls could start.
    pub fn tell_demand(&self) {
        if let Some(budget) = &self.budget {
            budget.demand(self.startable_calls());
        }
    }

    /// The job waits for something else than a slot, so that others may have its own.
    pub fn tell_no_demand(&self) {
        if let Some(budget) = &self.budget {
            budget.demand(0);
        }
    }

    fn startable_calls(&self) -> u32 {
        if !self.startable() {
            return 0;
        }
        let setting = self.controller.setting();
        let workers = setting.workers.saturating_sub(self.in_flight);
        self.buffer.batches(setting.batch_size).clamp(1, workers)
    }

    /// Whether a worker is free.
    pub fn has_worker(&self) -> bool {
        !self.stopping && !self.paused && self.in_flight < self.controller.setting().workers
    }

    fn has_batch(&self) -> bool {
        let batch_size = self.controller.setting().batch_size;
        self.buffer.has_batch(batch_size, self.max_batch_bytes)
            || (self.lingered && !self.buffer.is_empty())
    }

    /// Nothing is in flight, and nothing will be.
    pub fn finished(&self) -> bool {
        self.in_flight == 0 && (self.stopping || self.buffer.exhausted())
    }

    /// Cuts a batch at the setting of this moment, if everything allows a call to start at this moment.
    /// `ended` is the place of a call that has just ended, which goes to whoever is next.
    pub fn cut(&mut self, turn: &Turn<'_>, ended: Option<Slot>) -> Result<Batch, NotYet> {
        if !self.startable() {
            self.tell_no_demand();
            return Err(NotYet::NotReady);
        }
        let slot = match self.allowed(turn, ended) {
            Ok(slot) => slot,
            Err(not_yet) => {
                if let NotYet::Limited(wait) = &not_yet {
                    self.held = true;
                    self.limited = Some(Limited::Wait(wait.clone()));
                }
                return Err(not_yet);
            }
        };
        let setting = self.controller.setting();
        let items = self.buffer.cut(setting.batch_size, self.max_batch_bytes);
        self.lingered = false;
        self.limited = None;
        self.tally.take(items.len() as u64);
        self.in_flight += 1;
        let held = std::mem::take(&mut self.held) || self.refused.is_some();
        Ok(Batch {
            items,
            setting,
            held_at: held.then_some(self.in_flight),
            slot,
        })
    }

    /// Asks the budget and the limiter, in one step if there are both.
    fn allowed(&mut self, turn: &Turn<'_>, ended: Option<Slot>) -> Result<Option<Slot>, NotYet> {
        let Some(budget) = &self.budget else {
            return turn.try_start().map(|()| None).map_err(NotYet::Limited);
        };
        let mut wait = None;
        let started = budget.try_start(self.startable_calls(), ended, || {
            wait = turn.try_start().err();
            wait.is_none()
        });
        match (started, wait) {
            (Ok(slot), _) => Ok(Some(slot)),
            (Err(_), Some(wait)) => {
                // Nothing to wake it for before the limiter agrees.
                self.refused = None;
                Err(NotYet::Limited(wait))
            }
            (Err(refusal), None) => {
                self.refused = matches!(refusal, Refusal::Held { .. }).then(|| refusal.clone());
                Err(NotYet::Refused(refusal))
            }
        }
    }

    /// Takes the account of an attempt; its slot is free now.
    /// `refused`: the server refused it for our rate, which says nothing about its setting.
    pub fn end(
        &mut self,
        batch: &Batch,
        account: &Account,
        elapsed: Duration,
        refused: bool,
    ) -> Ended {
        self.in_flight -= 1;
        self.tally.end(&account.counts);
        let (failed, done) = (self.tally.ended.failed, self.tally.done());
        let trip = self.breaker.record(account.breaker, failed, done);
        let says_nothing = account.uncalled || (refused && !account.sample && !account.size_fault);
        let changes = match says_nothing {
            true => Vec::new(),
            false => self.controller.observe(&Observation {
                setting: batch.setting,
                n_items: batch.items.len() as u32,
                elapsed: elapsed.as_secs_f64(),
                ok: account.sample,
                size_fault: account.size_fault,
                in_flight: batch.held_at,
            }),
        };
        Ended {
            changes,
            setting: self.controller.setting(),
            trip,
            total_written: self.tally.ended.written,
        }
    }

    /// Applies rows of the control store; returns the changes they made.
    pub fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        self.controller.apply(rows)
    }

    /// Whether there is room for more of the input.
    pub fn has_room(&self) -> bool {
        self.buffer.has_room(self.controller.setting().batch_size)
    }

    /// Whether the reader has to be told now that there is room. True once for each of its waits.
    pub fn wants_reader(&mut self) -> bool {
        let batch_size = self.controller.setting().batch_size;
        let wanted = self.reader_waits && self.buffer.is_low(batch_size, self.max_batch_bytes);
        self.reader_waits &= !wanted;
        wanted
    }
}
