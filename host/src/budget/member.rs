//! A job's membership of a budget, and the slots that it holds.
//!
//! Invariant: every start has one end, and a member that is dropped has left.

use super::{Budget, Consumer, JoinError, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::sync::watch;

/// A job in a budget.
pub struct Member {
    budget: Arc<dyn Budget>,
    consumer: Consumer,
    /// Counts the times it was told to ask again.
    woken: watch::Sender<u64>,
    /// Calls that could start: new batches, and those of attempts that go on.
    fresh: AtomicU32,
    again: AtomicU32,
    left: AtomicBool,
}

/// A place for one call. Dropped, it is free for the next.
pub struct Slot {
    member: Arc<Member>,
    /// Taken back by [`Slot::next`].
    held: bool,
}

/// An attempt that waits for a slot for its next call, which counts as demand as long as it lives.
pub struct Again<'a>(&'a Arc<Member>);

impl Member {
    /// Joins a budget.
    pub fn join(budget: Arc<dyn Budget>, consumer: Consumer) -> Result<Arc<Self>, JoinError> {
        let woken = watch::Sender::new(0);
        let wake = woken.clone();
        budget.join(
            &consumer,
            Arc::new(move || wake.send_modify(|times| *times += 1)),
        )?;
        Ok(Arc::new(Self {
            budget,
            consumer,
            woken,
            fresh: AtomicU32::new(0),
            again: AtomicU32::new(0),
            left: AtomicBool::new(false),
        }))
    }

    /// Who it is.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// The budget.
    pub fn budget(&self) -> &Arc<dyn Budget> {
        &self.budget
    }

    /// Tells each time when it may be worth asking again.
    pub fn woken(&self) -> watch::Receiver<u64> {
        self.woken.subscribe()
    }

    /// So many new batches could be dispatched now. Free of cost if that has not changed.
    pub fn demand(&self, fresh: u32) {
        if self.fresh.swap(fresh, Ordering::Relaxed) != fresh {
            self.tell();
        }
    }

    /// Slots that it may use now.
    pub fn share(&self) -> u32 {
        self.budget.share(&self.consumer)
    }

    /// A server refused one of its calls for our rate.
    pub fn breach(&self) {
        self.budget.breach(&self.consumer);
    }

    /// Starts one of `fresh` new batches, if there is a slot for it and `further` agrees. The slot
    /// of a call that `ended` goes to it or to others, as is fair.
    pub fn try_start(
        self: &Arc<Self>,
        fresh: u32,
        ended: Option<Slot>,
        mut further: impl FnMut() -> bool,
    ) -> Result<Slot, Refusal> {
        self.fresh.store(fresh, Ordering::Relaxed);
        // Only a slot of this budget can be exchanged for another of it.
        let ended = ended.is_some_and(|slot| slot.release(self));
        self.budget
            .try_start(&self.consumer, self.ready(), ended, &mut further)?;
        self.fresh.store(fresh.saturating_sub(1), Ordering::Relaxed);
        Ok(self.slot_of())
    }

    /// An attempt has another call to make.
    pub fn again(self: &Arc<Self>) -> Again<'_> {
        self.again.fetch_add(1, Ordering::Relaxed);
        Again(self)
    }

    /// Leaves, before it is dropped. Its slots count until they are.
    pub fn leave(&self) {
        if !self.left.swap(true, Ordering::Relaxed) {
            self.budget.leave(&self.consumer);
        }
    }

    /// Waits for a slot, in fair order. For users that have nothing else to ask or to wait for.
    pub async fn slot(self: &Arc<Self>) -> Result<Slot, Refusal> {
        let again = self.again();
        let mut woken = self.woken();
        loop {
            woken.mark_unchanged();
            match again.try_start(|| true) {
                Err(held @ Refusal::Held { .. }) => held.wait(&mut woken).await,
                other => return other,
            }
        }
    }

    fn ready(&self) -> u32 {
        let fresh = self.fresh.load(Ordering::Relaxed);
        fresh.saturating_add(self.again.load(Ordering::Relaxed))
    }

    fn tell(&self) {
        self.budget.demand(&self.consumer, self.ready());
    }

    fn slot_of(self: &Arc<Self>) -> Slot {
        Slot {
            member: self.clone(),
            held: true,
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Again<'_> {
    /// Starts the call if there is a slot for it and `further` agrees.
    pub fn try_start(&self, mut further: impl FnMut() -> bool) -> Result<Slot, Refusal> {
        let member = self.0;
        member
            .budget
            .try_start(&member.consumer, member.ready(), false, &mut further)?;
        Ok(member.slot_of())
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.0.again.fetch_sub(1, Ordering::Relaxed);
        self.0.tell();
    }
}

impl Slot {
    /// Hands the end of its call to whoever books it; false if the slot is another member's, whose
    /// end was booked.
    fn release(mut self, member: &Arc<Member>) -> bool {
        let own = Arc::ptr_eq(&self.member, member);
        self.held = !own;
        own
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.held {
            self.member.budget.end(&self.member.consumer);
        }
    }
}

impl Refusal {
    /// Waits until it may be worth asking again. `woken` must have been looked at before the
    /// question that was refused.
    pub async fn wait(&self, woken: &mut watch::Receiver<u64>) {
        let until = match self {
            Self::Held { until, .. } => *until,
            Self::Stopped | Self::Further => None,
        };
        let time = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Fails only if the member is gone, and then nobody is refused.
            _ = woken.changed() => {}
            () = time => {}
        }
    }
}
