//! The turn of whoever is next to start something.

use super::queue::Place;
use super::shared::{Shared, unsigned};
use super::wait::Why;
use super::{QuotaError, Wait};
use batchgate_policy::limiter::{Reason, SharerId};
use std::sync::Arc;
use std::time::Duration;

/// How long a wait for the end of a day goes on before the wall clock is looked at again, as it
/// may be set, and stands on where others do not while the machine sleeps.
const LOOK_AT_WALL: Duration = Duration::from_secs(60);

/// The right to ask. Others get theirs when it is dropped.
pub struct Turn<'a> {
    shared: &'a Shared,
    /// What would start is counted by the caps.
    books: bool,
    place: Place<'a>,
}

impl<'a> Turn<'a> {
    pub(super) async fn of_calls(shared: &'a Shared, sharer: SharerId) -> Self {
        let place = shared.calls.take(sharer).await;
        Self::new(shared, !shared.counts_http, place)
    }

    pub(super) fn of_calls_now(shared: &'a Shared, sharer: SharerId) -> Option<Self> {
        let place = shared.calls.try_take(sharer)?;
        Some(Self::new(shared, !shared.counts_http, place))
    }

    pub(super) async fn of_requests(shared: &'a Shared, sharer: SharerId) -> Self {
        let place = shared.requests.take(sharer).await;
        Self::new(shared, true, place)
    }

    fn new(shared: &'a Shared, books: bool, place: Place<'a>) -> Self {
        Self {
            shared,
            books,
            place,
        }
    }

    /// Books a start, or says what to wait for. Where the caps count HTTP requests, a call is only held
    /// up by a cooldown or a spent day.
    pub fn try_start(&self) -> Result<(), Wait> {
        self.shared.try_start(self.books)?;
        if self.books {
            self.place.used();
        }
        Ok(())
    }

    /// Whether another job that shares the limiter should have its turn first: this one has had more for
    /// its weight.
    pub fn is_overtaken(&self) -> bool {
        self.place.is_overtaken()
    }

    /// Lets others have their turn first, if they should.
    pub async fn give_way(self) -> Self {
        let place = self.place.give_way().await;
        Self { place, ..self }
    }

    /// Waits until it is time to ask again, or something changed that may make it sooner or later, or
    /// another should have its turn first.
    pub async fn wait(&self, wait: &Wait) {
        let mut changes = self.shared.changes.subscribe();
        tokio::select! {
            // Ends early only if the sender is gone, which we borrow.
            _ = changes.wait_for(|change| *change != wait.change) => {}
            () = self.until(wait) => {}
            () = self.place.overtaken() => {}
        }
    }

    /// Waits until a start is allowed, and books it.
    pub(super) async fn start(mut self) -> Result<(), Arc<QuotaError>> {
        while let Err(wait) = self.try_start() {
            if let Why::Failed(failure) = wait.why {
                return Err(failure);
            }
            // In a box, since a wait is large, and a start that need not wait would move it about.
            Box::pin(self.wait(&wait)).await;
            self = self.give_way().await;
        }
        Ok(())
    }

    async fn until(&self, wait: &Wait) {
        match &wait.why {
            Why::Held {
                reason: Reason::Day,
                wall,
                ..
            } => loop {
                let left = unsigned(self.shared.clock.now().duration_until(*wall));
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LOOK_AT_WALL)).await;
            },
            Why::Held { until, .. } => tokio::time::sleep_until(*until).await,
            Why::Unleased | Why::Failed(_) => std::future::pending().await,
        }
    }
}
