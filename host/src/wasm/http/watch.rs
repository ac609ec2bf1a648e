//! Sees on the wire that a server refused us for our rate.

use crate::retry_after::{Nonsense, parse};
use std::time::{Duration, SystemTime};

/// A refusal, with how long the server asked to be left alone if it said so, or what it said
/// instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) retry_after: Option<Duration>,
    pub(super) nonsense: Option<Nonsense>,
}

/// The breach that a response tells of, if it does: a 429, or a 503 with Retry-After.
pub(super) fn breach<B>(response: &http::Response<B>) -> Option<Breach> {
    let header = response.headers().get(http::header::RETRY_AFTER);
    match response.status() {
        http::StatusCode::TOO_MANY_REQUESTS => {}
        http::StatusCode::SERVICE_UNAVAILABLE if header.is_some() => {}
        _ => return None,
    }
    let (retry_after, nonsense) =
        match header.map(|value| parse(value.as_bytes(), SystemTime::now())) {
            None => (None, None),
            Some(Ok(retry_after)) => (Some(retry_after), None),
            Some(Err(nonsense)) => (None, Some(nonsense)),
        };
    Some(Breach {
        retry_after,
        nonsense,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: u16, retry_after: Option<&str>) -> Option<(Option<u64>, bool)> {
        let mut response = http::Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header("retry-after", value);
        }
        let breach = breach(&response.body(()).unwrap())?;
        Some((
            breach.retry_after.map(|time| time.as_secs()),
            breach.nonsense.is_some(),
        ))
    }

    #[test]
    fn refusals_for_our_rate_alone() {
        let table = [
            (200, Some("5"), None),
            (500, Some("5"), None),
            (503, None, None),
            (503, Some("5"), Some((Some(5), false))),
            (503, Some("soon"), Some((None, true))),
            (429, None, Some((None, false))),
            (429, Some("7"), Some((Some(7), false))),
            (429, Some("-1"), Some((None, true))),
        ];
        for (status, header, expected) in table {
            assert_eq!(seen(status, header), expected, "{status} {header:?}");
        }
    }
}
