//! What a call came to, as the guest answered it or the host ended it.

use std::time::Duration;

/// One item of a batch failed; see [`CallEnd::Partial`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemFailure {
    /// The item's own index in the input.
    pub index: u64,
    /// Why, in one line.
    pub message: String,
    /// Whether to send the item again.
    pub retryable: bool,
}

/// How a call ended. The rows of the table in `docs/design.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// The guest answered `ok(n)`: n items written, the others skipped.
    Written(u64),
    /// The call failed as a whole.
    Failed {
        /// Why, in one line.
        message: String,
        /// Whether the same batch may succeed if it is sent again.
        retryable: bool,
    },
    /// No call of this job can succeed.
    Fatal(String),
    /// The batch was too large for the server.
    TooLarge(String),
    /// The server refused the call for our rate.
    RateLimited {
        /// Why, in one line.
        message: String,
        /// How long the server asked to be left alone, if it said so.
        retry_after: Option<Duration>,
    },
    /// All items were written but those listed.
    Partial(Vec<ItemFailure>),
    /// The guest trapped, or exceeded its memory, its stack or its `cpu_timeout`. The
    /// text names the cause, and the limit with its value.
    Trapped(String),
    /// The call exceeded `call_timeout`. The text names the limit with its value.
    TimedOut(String),
    /// The host abandoned the call while stopping. The text says so.
    Abandoned(String),
}

/// How a call went: its end, and what the limiter knew when it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// How it ended.
    pub end: CallEnd,
    /// A breach was learned during this call: reported by the guest, returned by it, or seen by
    /// the host on the wire.
    pub breached: bool,
    /// A cooldown was running when the call ended.
    pub backing_off: bool,
    /// Something that the call sent was not answered, or not in full: whatever the guest says, some of its items may have
    /// been written.
    pub unanswered: bool,
}

/// A call's outcome as the usage log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageOutcome {
    /// Something was written, or there was nothing to write.
    Ok,
    /// The call failed.
    Fail,
    /// The call failed in or with a breach of the server's rate limit.
    Breach,
}

impl UsageOutcome {
    /// The word in the `outcome` column.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageOutcome::Ok => "ok",
            UsageOutcome::Fail => "fail",
            UsageOutcome::Breach => "breach",
        }
    }
}
