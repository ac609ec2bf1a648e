//! The queue of those who wait for their turn: in the order of asking, and among several jobs that share a
//! limiter by their weights.
//!
//! Invariant: at most one has the turn, and if anyone waits, someone has it.

use batchgate_policy::limiter::{SharerId, Turns};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Tells the one who has the turn that another should have it.
    overtaken: Notify,
}

#[derive(Default)]
struct State {
    turns: Turns,
    has_it: Option<SharerId>,
    /// In the order of asking.
    waiting: VecDeque<Waiting>,
    /// Numbers those who wait.
    asked: u64,
}

struct Waiting {
    number: u64,
    sharer: SharerId,
    come: oneshot::Sender<()>,
}

/// The turn. Dropped, the next one has it.
pub(super) struct Place<'a> {
    queue: &'a Queue,
    sharer: SharerId,
}

impl Queue {
    pub(super) fn join(&self, sharer: SharerId, weight: f64) {
        self.state().turns.join(sharer, weight);
    }

    pub(super) fn leave(&self, sharer: SharerId) {
        self.state().turns.leave(sharer);
    }

    /// The turn, if nobody else has it or waits for it.
    pub(super) fn try_take(&self, sharer: SharerId) -> Option<Place<'_>> {
        let mut state = self.state();
        state.turns.ask(sharer);
        let free = state.take(sharer);
        drop(state);
        free.then(|| Place {
            queue: self,
            sharer,
        })
    }

    /// Waits for the turn. Dropping the future gives up the place in the queue.
    pub(super) async fn take(&self, sharer: SharerId) -> Place<'_> {
        let (come, coming) = oneshot::channel();
        let number = {
            let mut state = self.state();
            state.turns.ask(sharer);
            if state.take(sharer) {
                return Place {
                    queue: self,
                    sharer,
                };
            }
            state.asked += 1;
            let number = state.asked;
            state.waiting.push_back(Waiting {
                number,
                sharer,
                come,
            });
            if state.is_overtaken() {
                self.overtaken.notify_one();
            }
            number
        };
        let mut asking = Asking {
            queue: self,
            sharer,
            number: Some(number),
        };
        // Its sender is dropped only once it was sent to.
        let _ = coming.await;
        asking.number = None;
        Place {
            queue: self,
            sharer,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held leaves the queue as good as before.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn pass_on(&self) {
        let mut state = self.state();
        state.has_it = None;
        let asking = state.waiting.iter().map(|waiting| waiting.sharer);
        let Some(next) = state.turns.next(asking) else {
            return;
        };
        let mut waiting = state.waiting.iter();
        let place = waiting.position(|waiting| waiting.sharer == next);
        if let Some(waiting) = place.and_then(|place| state.waiting.remove(place)) {
            state.has_it = Some(next);
            // If it has stopped waiting at this moment, it passes the turn on itself.
            let _ = waiting.come.send(());
        }
    }
}

impl State {
    fn take(&mut self, sharer: SharerId) -> bool {
        let free = self.has_it.is_none() && self.waiting.is_empty();
        if free {
            self.has_it = Some(sharer);
        }
        free
    }

    fn is_overtaken(&self) -> bool {
        self.has_it.is_some_and(|has_it| {
            let mut others = self.waiting.iter();
            others.any(|waiting| self.turns.before(waiting.sharer, has_it))
        })
    }
}

impl Place<'_> {
    /// A start was booked in this turn.
    pub(super) fn used(&self) {
        self.queue.state().turns.used(self.sharer);
    }

    /// Another that waits should have the turn before it is used.
    pub(super) fn is_overtaken(&self) -> bool {
        self.queue.state().is_overtaken()
    }

    /// Ends when it may be overtaken.
    pub(super) async fn overtaken(&self) {
        while !self.is_overtaken() {
            self.queue.overtaken.notified().await;
        }
    }

    /// Lets those before it have their turn first, if there are any.
    pub(super) async fn give_way(self) -> Self {
        if !self.is_overtaken() {
            return self;
        }
        let (queue, sharer) = (self.queue, self.sharer);
        drop(self);
        queue.take(sharer).await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.pass_on();
    }
}

/// One that waits; dropped, it does not any more.
struct Asking<'a> {
    queue: &'a Queue,
    sharer: SharerId,
    number: Option<u64>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.queue.state();
        let place = state.waiting.iter().position(|w| w.number == number);
        match place {
            Some(place) => {
                state.waiting.remove(place);
            }
            // The turn has come, and nobody is there to take it.
            None => {
                debug_assert_eq!(state.has_it, Some(self.sharer));
                drop(state);
                self.queue.pass_on();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::task::yield_now;

    fn queue(weights: &[f64]) -> Arc<Queue> {
        let queue = Queue::default();
        for (id, weight) in weights.iter().enumerate() {
            queue.join(id as u64, *weight);
        }
        Arc::new(queue)
    }

    #[tokio::test]
    async fn in_the_order_of_asking_and_one_at_a_time() {
        let queue = queue(&[1.0]);
        let first = queue.try_take(0).expect("free");
        assert!(queue.try_take(0).is_none());
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..3 {
            let (queue, order) = (queue.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _place = queue.take(0).await;
                order.lock().expect("no panic").push(n);
            }));
            yield_now().await;
        }
        // One that gives up is passed over.
        tasks.remove(1).abort();
        yield_now().await;
        drop(first);
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("no panic"), [0, 2]);
        assert!(queue.try_take(0).is_some());
    }

    #[tokio::test]
    async fn a_turn_that_comes_to_one_who_has_just_left_goes_on() {
        let queue = queue(&[1.0]);
        let first = queue.try_take(0).expect("free");
        let mut leaving = Box::pin(queue.take(0));
        let polled = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(leaving.as_mut().poll(cx).is_pending())
        });
        assert!(polled.await);
        // It is given the turn, and dropped before it looks.
        drop(first);
        drop(leaving);
        assert!(queue.try_take(0).is_some());
    }

    #[tokio::test]
    async fn whoever_is_further_back_overtakes() {
        let queue = queue(&[3.0, 1.0]);
        let served = Arc::new(Mutex::new([0u32; 2]));
        let run = |sharer: u64| {
            let (queue, served) = (queue.clone(), served.clone());
            tokio::spawn(async move {
                loop {
                    let mut place = queue.take(sharer).await;
                    // What waits for a rate does: others ask meanwhile.
                    for _ in 0..3 {
                        yield_now().await;
                        place = place.give_way().await;
                    }
                    place.used();
                    let mut served = served.lock().expect("no panic");
                    served[sharer as usize] += 1;
                    if served.iter().sum::<u32>() >= 400 {
                        return;
                    }
                }
            })
        };
        for task in [run(0), run(1)] {
            task.await.expect("no panic");
        }
        let served = *served.lock().expect("no panic");
        assert!((290..=310).contains(&served[0]), "{served:?}");
    }

    #[tokio::test]
    async fn the_one_who_waits_with_the_turn_is_told() {
        let queue = queue(&[1.0, 1.0]);
        let first = queue.take(0).await;
        first.used();
        drop(first);
        let again = queue.take(0).await;
        let other = tokio::spawn({
            let queue = queue.clone();
            async move {
                let _place = queue.take(1).await;
            }
        });
        again.overtaken().await;
        let _again = again.give_way().await;
        assert!(other.await.is_ok());
    }
}
