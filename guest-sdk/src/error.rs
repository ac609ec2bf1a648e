//! How errors of any kind become the answer of a call.
//!
//! `?` turns an error into a [`BatchError`] that fails the whole batch; the type decides
//! whether the host sends the batch again:
//!
//! | Error | Becomes |
//! |---|---|
//! | `String`, `&str`, parse errors, `serde_json::Error`, UTF-8 errors | failed, not retryable |
//! | `std::io::Error` of a connection or a time-out | failed, retryable |
//! | any other `std::io::Error` | failed, not retryable |
//! | [`config::Error`](crate::config::Error) | fatal: no call of this job can succeed |
//! | `http::Error` of a connection | failed, retryable |
//! | any other `http::Error` | failed, not retryable |
//!
//! For every other type, or to decide otherwise, say it with [`Classify`]. What the host
//! does with each kind stands at [`BatchError`].

use crate::{BatchError, Failure, Item, ItemFailure, RateLimit};
use std::fmt::Display;
use std::io;
use std::time::Duration;

impl BatchError {
    /// The whole call failed and would fail again: the host bisects, if that is on.
    pub fn failed(message: impl Display) -> Self {
        Self::Failed(Failure {
            message: message.to_string(),
            retryable: false,
        })
    }

    /// The whole call failed, and may well succeed in a moment: the host sends it again.
    pub fn retryable(message: impl Display) -> Self {
        Self::Failed(Failure {
            message: message.to_string(),
            retryable: true,
        })
    }

    /// No call of this job can succeed: the job stops at once.
    pub fn fatal(message: impl Display) -> Self {
        Self::Fatal(message.to_string())
    }

    /// The batch was too large for the server: the host splits it.
    pub fn too_large(message: impl Display) -> Self {
        Self::TooLarge(message.to_string())
    }

    /// The server refused the call for our rate, and asked to be left alone that long.
    pub fn rate_limited(message: impl Display, retry_after: Option<Duration>) -> Self {
        Self::RateLimited(RateLimit {
            message: message.to_string(),
            retry_after_ms: retry_after.map(whole_millis),
        })
    }

    /// Whether the host sends the same batch again after a backoff.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.retryable)
    }

    /// The message; of a partial failure, those of its items, joined by `; `.
    pub fn message(&self) -> String {
        match self {
            Self::Failed(failure) => failure.message.clone(),
            Self::Fatal(message) | Self::TooLarge(message) => message.clone(),
            Self::RateLimited(limit) => limit.message.clone(),
            Self::Partial(items) => {
                let messages: Vec<&str> = items.iter().map(|item| &*item.message).collect();
                messages.join("; ")
            }
        }
    }
}

/// Rounded up, so that nobody comes back too early.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Says what an error of any type means for the batch.
pub trait Classify<T> {
    /// An error that may pass: the host sends the batch again.
    fn or_retry(self) -> Result<T, BatchError>;
    /// An error of this batch that would come again.
    fn or_fail(self) -> Result<T, BatchError>;
    /// An error that every call of this job would meet.
    fn or_fatal(self) -> Result<T, BatchError>;
}

impl<T, E: Display> Classify<T> for Result<T, E> {
    fn or_retry(self) -> Result<T, BatchError> {
        self.map_err(BatchError::retryable)
    }

    fn or_fail(self) -> Result<T, BatchError> {
        self.map_err(BatchError::failed)
    }

    fn or_fatal(self) -> Result<T, BatchError> {
        self.map_err(BatchError::fatal)
    }
}

/// Collects the items of a batch that failed while the others were written.
///
/// ```
/// use batchgate_guest::{BatchError, Failures, Item};
///
/// fn process(items: Vec<Item>) -> Result<u64, BatchError> {
///     let mut failures = Failures::new();
///     for item in &items {
///         if item.data.is_empty() {
///             failures.fail(item, "empty");
///         } // else write it
///     }
///     failures.into_result(items.len() as u64)
/// }
/// ```
#[derive(Debug, Default)]
pub struct Failures(Vec<ItemFailure>);

impl Failures {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// This item has failed for good.
    pub fn fail(&mut self, item: &Item, message: impl Display) {
        self.push(item, message, false);
    }

    /// This item failed, but may succeed when it is sent again.
    pub fn retry(&mut self, item: &Item, message: impl Display) {
        self.push(item, message, true);
    }

    /// How many items failed so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none failed so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Ok(written)` if no item failed; else the list, which says that all *other* items
    /// of the batch were written.
    pub fn into_result(self, written: u64) -> Result<u64, BatchError> {
        if self.0.is_empty() {
            Ok(written)
        } else {
            Err(BatchError::Partial(self.0))
        }
    }

    fn push(&mut self, item: &Item, message: impl Display, retryable: bool) {
        self.0.push(ItemFailure {
            index: item.index,
            message: message.to_string(),
            retryable,
        });
    }
}

impl From<io::Error> for BatchError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::*;
        let passing = matches!(
            error.kind(),
            BrokenPipe
                | ConnectionAborted
                | ConnectionRefused
                | ConnectionReset
                | HostUnreachable
                | Interrupted
                | NetworkDown
                | NetworkUnreachable
                | NotConnected
                | ResourceBusy
                | TimedOut
                | UnexpectedEof
                | WouldBlock
        );
        if passing {
            Self::retryable(error)
        } else {
            Self::failed(error)
        }
    }
}

macro_rules! not_retryable {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for BatchError {
            fn from(error: $error) -> Self {
                Self::failed(error)
            }
        }
    )+};
}

not_retryable!(
    String,
    &str,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::num::ParseIntError,
    std::num::ParseFloatError,
);

#[cfg(feature = "json")]
not_retryable!(serde_json::Error);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::item;

    #[test]
    fn question_mark_decides_by_type() {
        fn parse(text: &str) -> Result<u64, BatchError> {
            Ok(text.parse::<u64>()?)
        }
        let cases: [(BatchError, bool); 5] = [
            (parse("x").unwrap_err(), false),
            ("no".into(), false),
            (io::Error::from(io::ErrorKind::ConnectionReset).into(), true),
            (io::Error::from(io::ErrorKind::TimedOut).into(), true),
            (io::Error::from(io::ErrorKind::NotFound).into(), false),
        ];
        for (error, retryable) in cases {
            assert!(matches!(error, BatchError::Failed(_)), "{error:?}");
            assert_eq!(error.is_retryable(), retryable, "{error:?}");
            assert!(!error.message().is_empty());
        }
    }

    #[test]
    fn classify_overrides_the_type() {
        let error = || Err::<(), _>("gone");
        assert!(error().or_retry().unwrap_err().is_retryable());
        assert!(!error().or_fail().unwrap_err().is_retryable());
        assert!(matches!(error().or_fatal().unwrap_err(), BatchError::Fatal(m) if m == "gone"));
    }

    #[test]
    fn failures_carry_the_items_own_index() {
        assert_eq!(Failures::new().into_result(3).unwrap(), 3);
        let mut failures = Failures::new();
        failures.fail(&item(41, "a", ""), "bad");
        failures.retry(&item(7, "b", ""), "busy");
        assert_eq!((failures.len(), failures.is_empty()), (2, false));
        let error = failures.into_result(3).unwrap_err();
        assert_eq!(error.message(), "bad; busy");
        let BatchError::Partial(list) = error else {
            panic!("{error:?}")
        };
        let seen: Vec<_> = list.iter().map(|f| (f.index, f.retryable)).collect();
        assert_eq!(seen, [(41, false), (7, true)]);
    }

    #[test]
    fn waits_round_up_and_saturate() {
        let millis = |wait| match BatchError::rate_limited("slow", Some(wait)) {
            BatchError::RateLimited(limit) => limit.retry_after_ms,
            other => panic!("{other:?}"),
        };
        assert_eq!(millis(Duration::from_micros(1_500)), Some(2));
        assert_eq!(millis(Duration::MAX), Some(u64::MAX));
    }
}
