//! What is posted, and what the server's answer means for a batch.
//!
//! | Server | Answer |
//! |---|---|
//! | 207 | written, but for the items whose own status is not 2xx; 429 and 5xx are sent again |
//! | other 2xx | `written` of the body if it has one, else all items |
//! | 401, 403 | fatal |
//! | 413 | too large |
//! | 429; 503 with Retry-After | rate-limited |
//! | other 5xx, a lost connection | failed, retryable |
//! | anything else | failed, not retryable |

use batchgate_guest::http::{self, Request, Response};
use batchgate_guest::{BatchError, Classify, Failures, Item, call, config};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;

#[derive(Serialize)]
struct Row<'a> {
    key: &'a str,
    data: Cow<'a, str>,
}

/// What the server says of a whole batch.
#[derive(Deserialize)]
struct Written {
    written: u64,
}

/// What it says of each item, in the order of the request.
#[derive(Deserialize)]
struct Statuses {
    items: Vec<Status>,
}

#[derive(Deserialize)]
struct Status {
    key: String,
    status: u16,
    #[serde(default)]
    message: String,
}

/// The request that posts a batch.
pub fn request(items: &[Item]) -> Result<Request, BatchError> {
    let url = config::require("api_url")?;
    let rows: Vec<Row<'_>> = items
        .iter()
        .map(|item| Row {
            key: &item.key,
            data: item.text_lossy(),
        })
        .collect();
    Ok(Request::post(&url)
        .header("content-type", "application/json")
        .header("idempotency-key", call::info().idempotency_key)
        .body(serde_json::to_vec(&rows)?))
}

/// What the batch came to.
pub fn answer(items: &[Item], sent: Result<Response, http::Error>) -> Result<u64, BatchError> {
    let response = &match sent {
        // The URL is the same for every call: none would fare better.
        Err(error @ (http::Error::Denied(_) | http::Error::Invalid(_))) => Err(error).or_fatal()?,
        sent => sent?,
    };
    let all = items.len() as u64;
    match response.status {
        207 => each(items, response),
        200..=299 => Ok(response.json::<Written>().map_or(all, |body| body.written)),
        401 | 403 => Err(BatchError::fatal(describe(response))),
        413 => Err(BatchError::too_large(describe(response))),
        429 => Err(BatchError::rate_limited(
            describe(response),
            response.retry_after(),
        )),
        503 if response.retry_after().is_some() => Err(BatchError::rate_limited(
            describe(response),
            response.retry_after(),
        )),
        500..=599 => Err(BatchError::retryable(describe(response))),
        _ => Err(BatchError::failed(describe(response))),
    }
}

/// A status an item.
fn each(items: &[Item], response: &Response) -> Result<u64, BatchError> {
    let statuses: Statuses = response
        .json()
        .map_err(|error| format!("HTTP 207 without a list of statuses: {error}"))?;
    let by_key: HashMap<&str, &Status> = statuses
        .items
        .iter()
        .map(|status| (&*status.key, status))
        .collect();
    let mut failures = Failures::new();
    for (position, item) in items.iter().enumerate() {
        // By position first: a batch may hold two items of the same key.
        let in_place = statuses
            .items
            .get(position)
            .filter(|status| status.key == item.key);
        match in_place.or_else(|| by_key.get(&*item.key).copied()) {
            Some(Status {
                status: 200..=299, ..
            }) => {}
            Some(Status {
                status, message, ..
            }) => {
                let message = format!("HTTP {status}: {message}");
                match status {
                    429 | 500..=599 => failures.retry(item, message),
                    _ => failures.fail(item, message),
                }
            }
            None => failures.retry(item, "the server gave no status for it"),
        }
    }
    failures.into_result(items.len() as u64)
}

/// The status, and what the body says: its `error` if it is JSON with one, else its start.
fn describe(response: &Response) -> String {
    #[derive(Deserialize)]
    struct Problem {
        error: String,
    }
    let text = match response.json::<Problem>() {
        Ok(problem) => problem.error,
        Err(_) => response.text().into_owned(),
    };
    let start: String = text.trim().chars().take(200).collect();
    match start.as_str() {
        "" => format!("HTTP {}", response.status),
        start => format!("HTTP {}: {start}", response.status),
    }
}
