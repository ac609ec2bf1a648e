//! What a case asks for, and whether it was had.

use crate::item::Item;
use crate::slot::CallReport;
use batchgate_policy::outcome::CallEnd;
use std::fmt;
use std::time::Duration;

/// What was seen of a case's last call.
#[derive(Debug, Default)]
pub struct Seen {
    end: Option<CallEnd>,
    breached: bool,
    /// The batch: indexes and keys.
    items: Vec<(u64, String)>,
    /// Items that the server stored during the call.
    stored: u64,
    /// Items of the batch of which the server stored none.
    missing: usize,
    /// Calls that were made.
    calls: usize,
}

impl Seen {
    pub fn push(&mut self, items: &[Item], report: CallReport, stored: u32, missing: usize) {
        *self = Self {
            items: items
                .iter()
                .map(|item| (item.index, item.key().into_owned()))
                .collect(),
            end: Some(report.end),
            breached: report.breached,
            stored: stored.into(),
            missing,
            calls: self.calls + 1,
        };
    }

    /// Whether the instance ended without an answer.
    pub fn is_lost(&self) -> bool {
        matches!(
            self.end,
            None | Some(CallEnd::Trapped(_) | CallEnd::TimedOut(_) | CallEnd::Abandoned(_))
        )
    }

    fn index_of(&self, key: &str) -> Option<u64> {
        let (index, _) = self.items.iter().find(|(_, have)| have == key)?;
        Some(*index)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = |retryable| {
            if retryable {
                "retryable"
            } else {
                "not retryable"
            }
        };
        let Some(end) = &self.end else {
            return f.write_str("no call");
        };
        match end {
            CallEnd::Written(written) => write!(f, "ok({written}) of {}", self.items.len())?,
            CallEnd::Failed { message, retryable } => {
                write!(f, "failed, {}: {message}", again(*retryable))?
            }
            CallEnd::Fatal(message) => write!(f, "fatal: {message}")?,
            CallEnd::TooLarge(message) => write!(f, "too-large: {message}")?,
            CallEnd::RateLimited {
                message,
                retry_after,
            } => match retry_after {
                Some(wait) => write!(f, "rate-limited, {} ms: {message}", wait.as_millis())?,
                None => write!(f, "rate-limited: {message}")?,
            },
            CallEnd::Partial(list) => {
                write!(f, "partial, {} of {}", list.len(), self.items.len())?;
                if let Some(first) = list.first() {
                    write!(
                        f,
                        ": item {}, {}: {}",
                        first.index,
                        again(first.retryable),
                        first.message
                    )?;
                }
            }
            CallEnd::Trapped(reason) => write!(f, "a trap: {reason}")?,
            CallEnd::TimedOut(reason) => f.write_str(reason)?,
            CallEnd::Abandoned(reason) => write!(f, "no call: {reason}")?,
        }
        if self.is_lost() && self.calls > 1 {
            write!(f, " (in call {})", self.calls)?;
        }
        if self.stored > 0 {
            write!(f, "; the server stored {}", self.stored)?;
        }
        Ok(())
    }
}

/// What a case asks for.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// Any answer of the contract that fits the batch, and what the server saw.
    Answer,
    /// The batch with this bad item, which the server refused as a whole, has failed.
    ItemReported(&'static str),
    /// This bad item alone has failed; the server took the others.
    ItemAlone(&'static str),
    TooLarge,
    /// The limit is reported, with the wait in seconds that the server asked for.
    RateLimited(Option<u64>),
    Fatal,
    Failed {
        retryable: bool,
    },
    /// Any error but a trap.
    Error,
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer => f.write_str("ok with a count that is true, or an error; no trap"),
            Self::ItemReported(key) => write!(f, "failed, not retryable; or partial with {key}"),
            Self::ItemAlone(key) => write!(f, "partial with {key} alone, not retryable"),
            Self::TooLarge => f.write_str("too-large"),
            Self::RateLimited(Some(seconds)) => write!(f, "rate-limited, {} ms", seconds * 1000),
            Self::RateLimited(None) => f.write_str("rate-limited, without a time"),
            Self::Fatal => f.write_str("fatal: no other call would fare better"),
            Self::Failed { retryable: true } => f.write_str("failed, retryable"),
            Self::Failed { retryable: false } => f.write_str("failed, not retryable"),
            Self::Error => f.write_str("fatal or failed; no trap"),
        }
    }
}

impl Expect {
    pub fn holds(&self, seen: &Seen) -> bool {
        let Some(end) = &seen.end else { return false };
        match (self, end) {
            (Self::Answer, end) => fits(end, seen),
            (Self::ItemReported(_), CallEnd::Failed { retryable, message }) => {
                !retryable && !message.is_empty() && seen.stored == 0
            }
            (Self::ItemReported(key) | Self::ItemAlone(key), CallEnd::Partial(list)) => {
                let [failure] = list.as_slice() else {
                    return false;
                };
                seen.index_of(key) == Some(failure.index) && !failure.retryable && fits(end, seen)
            }
            (Self::TooLarge, CallEnd::TooLarge(message))
            | (Self::Fatal, CallEnd::Fatal(message)) => !message.is_empty(),
            // The host sees a refusal on the wire as well: what counts is what the plugin makes of it.
            (Self::RateLimited(seconds), CallEnd::RateLimited { retry_after, .. }) => {
                *retry_after == seconds.map(Duration::from_secs)
            }
            (
                Self::Failed {
                    retryable: expected,
                },
                CallEnd::Failed { retryable, message },
            ) => retryable == expected && !message.is_empty(),
            (Self::Error, CallEnd::Failed { message, .. } | CallEnd::Fatal(message)) => {
                !message.is_empty()
            }
            _ => false,
        }
    }
}

/// Whether an answer fits its batch, and what the server stored of it, if it stored any.
fn fits(end: &CallEnd, seen: &Seen) -> bool {
    let items = seen.items.len() as u64;
    // A plugin that does not post to the server may write elsewhere.
    let is_stored = |written: u64| seen.stored == 0 || seen.stored == written;
    match end {
        CallEnd::Written(written) => {
            *written <= items
                && is_stored(*written)
                && (seen.stored == 0 || *written < items || seen.missing == 0)
        }
        CallEnd::Partial(list) => {
            let mut indexes: Vec<_> = list.iter().map(|failure| failure.index).collect();
            indexes.sort_unstable();
            let count = indexes.len() as u64;
            indexes.dedup();
            let own = |index: &u64| seen.items.iter().any(|(have, _)| have == index);
            count > 0
                && count == indexes.len() as u64
                && indexes.iter().all(own)
                && is_stored(items - count)
        }
        CallEnd::Failed { message, .. } | CallEnd::Fatal(message) | CallEnd::TooLarge(message) => {
            !message.is_empty() && seen.stored == 0
        }
        // Nobody refused anything for its rate.
        CallEnd::RateLimited { .. } => seen.breached,
        CallEnd::Trapped(_) | CallEnd::TimedOut(_) | CallEnd::Abandoned(_) => false,
    }
}
