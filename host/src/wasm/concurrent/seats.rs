//! How many calls an instance may have in flight, how many it has, and whether it takes more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(super) type Permit = OwnedSemaphorePermit;

/// The seats of one instance.
pub(super) struct Seats {
    /// Closed once the instance is retired.
    free: Arc<Semaphore>,
    in_flight: AtomicUsize,
    /// Told when the instance may have become idle for good.
    over: Notify,
}

impl Seats {
    /// As many seats, the first of them taken.
    pub(super) fn new(seats: u32) -> (Arc<Self>, Permit) {
        let seats = (seats as usize).clamp(1, Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(seats));
        let first = Arc::clone(&free)
            .try_acquire_owned()
            .expect("there is at least one, and nobody else has it yet");
        let seats = Self {
            free,
            in_flight: AtomicUsize::new(0),
            over: Notify::new(),
        };
        (Arc::new(seats), first)
    }

    /// A seat, if one is free and the instance is not retired.
    pub(super) fn take(&self) -> Option<Permit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Has the instance take no further call.
    pub(super) fn retire(&self) {
        self.free.close();
        self.over.notify_one();
    }

    pub(super) fn is_retired(&self) -> bool {
        self.free.is_closed()
    }

    /// A call is in flight from now on.
    pub(super) fn begin(self: &Arc<Self>) -> Flight {
        self.in_flight.fetch_add(1, SeqCst);
        Flight {
            seats: Arc::clone(self),
            answered: false,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// Returns once the instance is retired and nobody waits for a call on it.
    pub(super) async fn over(&self) {
        while !self.is_retired() || self.in_flight() > 0 {
            self.over.notified().await;
        }
    }
}

/// A call in flight. Dropped without an answer, it retires the instance.
pub(super) struct Flight {
    seats: Arc<Seats>,
    answered: bool,
}

impl Flight {
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.answered {
            self.seats.free.close();
        }
        self.seats.in_flight.fetch_sub(1, SeqCst);
        if self.seats.is_retired() {
            self.seats.over.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn an_instance_is_over_when_it_is_retired_and_nobody_waits() {
        let (seats, first) = Seats::new(2);
        let second = seats.take().expect("one is left");
        assert!(seats.take().is_none());
        drop(second);
        assert!(seats.take().is_some());

        let mut over = pin!(seats.over());
        let mut is_over =
            || over.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
        assert!(!is_over());
        let (one, two) = (seats.begin(), seats.begin());
        one.answered();
        assert!(!seats.is_retired(), "an answer retires nothing");
        let three = seats.begin();
        drop(three);
        assert!(seats.is_retired(), "a call that was left does");
        drop(first);
        assert!(seats.take().is_none());
        assert!(!is_over(), "one is in flight");
        two.answered();
        assert!(is_over());
    }
}
