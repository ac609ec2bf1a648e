//! The budget: calls in flight that the jobs of a host share.
//!
//! Invariant: a call runs only while it holds a [`Slot`], and a slot is given back exactly once,
//! when it is dropped, whatever its call came to.
//!
//! [`Budget`] is what a run needs of the system that hands out slots; [`ScaledBudget`] is ours, which
//! follows the machine's load. Whoever builds one owns it, starts and stops it; jobs only borrow
//! it. What is decided is decided in [`batchgate_policy::budget`].

mod member;
mod scaled;
pub mod sensors;
mod tasks;
#[cfg(test)]
mod tests;
mod view;

pub use batchgate_policy::budget::{EachSignal, Levels, Share, Signal};
pub use member::{Again, Member, Slot};
pub use scaled::{Config, Retuning, ScaledBudget, StartError};
pub use view::{ConsumerView, SignalView, View};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// A job, as the budget knows it. Fields may be added.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Consumer {
    /// For people.
    pub label: Arc<str>,
    /// Unique in the process.
    pub number: u64,
    /// What the job brings.
    pub share: Share,
}

impl Consumer {
    /// A consumer like no other, even of the same label.
    pub fn new(label: &str, share: Share) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            label: label.into(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            share,
        }
    }
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.label, self.number)
    }
}

/// Tells a consumer that was refused to ask again. May be called at any time, and must not block.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Why no call starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The budget does not run: nothing starts until its owner starts it.
    Stopped,
    /// Not now. The consumer is woken when it may ask again.
    Held {
        /// What holds it, in words.
        reason: String,
        /// Ask again at that time, woken or not.
        until: Option<Instant>,
    },
    /// What the consumer asked besides said no. It has to ask again by itself.
    Further,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the budget is stopped; start it before asking it for slots",
            Self::Held { reason, .. } => reason,
            Self::Further => "no slot asked for",
        })
    }
}

/// A consumer that cannot join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The guarantees cannot all be kept.
    #[error(
        "the guarantees of all jobs are {guaranteed} slots, and the budget has max = {max}; lower a guarantee or raise max"
    )]
    Guarantees {
        /// All guarantees together.
        guaranteed: u64,
        /// The most slots that there can be.
        max: u32,
    },
}

/// A system that hands out slots to consumers.
///
/// A [`Member`] calls these in order and sees to it that every start has exactly one end.
pub trait Budget: Send + Sync + 'static {
    /// A consumer joins.
    fn join(&self, consumer: &Consumer, wake: Wake) -> Result<(), JoinError>;

    /// It leaves. Its calls in flight count until they end.
    fn leave(&self, consumer: &Consumer);

    /// It could start so many calls now, beside those in flight.
    fn demand(&self, consumer: &Consumer, ready: u32);

    /// Starts a call: capacity, then rate, then `further`, then it is booked, as one step that no
    /// other start comes between. If `ended`, a call of the same consumer ends first.
    fn try_start(
        &self,
        consumer: &Consumer,
        ready: u32,
        ended: bool,
        further: &mut dyn FnMut() -> bool,
    ) -> Result<(), Refusal>;

    /// A call ended.
    fn end(&self, consumer: &Consumer);

    /// A server refused one of its calls for our rate.
    fn breach(&self, consumer: &Consumer);

    /// Slots that it may use now.
    fn share(&self, consumer: &Consumer) -> u32;

    /// How the budget stands.
    fn view(&self) -> View;
}
