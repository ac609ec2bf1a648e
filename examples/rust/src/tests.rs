use crate::process;
use batchgate_guest::http::{self, Response};
use batchgate_guest::testing::{item, respond_with, set_config};
use batchgate_guest::{BatchError, Item};
use std::time::Duration;

const URL: &str = "http://api.test/items";

fn batch() -> Vec<Item> {
    vec![item(10, "a", "1"), item(11, "b", "2"), item(12, "c", "3")]
}

/// What a call comes to when the server answers so.
fn answered(status: u16, headers: &[(&str, &str)], body: &str) -> Result<u64, BatchError> {
    let headers = headers
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect();
    let response = Response {
        status,
        headers,
        body: body.into(),
    };
    set_config("api_url", URL);
    respond_with(move |_| Ok(response.clone()));
    process(batch())
}

#[test]
fn posts_key_and_data_as_json() {
    set_config("api_url", URL);
    respond_with(|request| {
        assert_eq!((&*request.method, &*request.url), ("POST", URL));
        assert!(
            request
                .headers
                .contains(&("content-type".into(), "application/json".into()))
        );
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(
            body,
            serde_json::json!([
                {"key": "ü", "data": "{\"q\":\"\\\"\"}"},
                {"key": "2", "data": "\u{fffd}"},
            ])
        );
        Ok(Response {
            status: 204,
            ..Response::default()
        })
    });
    let items = vec![item(0, "ü", r#"{"q":"\""}"#), item(1, "2", b"\xff")];
    assert_eq!(process(items).unwrap(), 2);
}

#[test]
fn successes_say_how_many_were_written() {
    for (status, body, written) in [
        (200, r#"{"written": 2}"#, 2),
        (200, r#"{"written": 0}"#, 0),
        (201, "", 3),
        (202, "accepted", 3),
        (200, r#"{"written": -1}"#, 3),
    ] {
        assert_eq!(
            answered(status, &[], body).unwrap(),
            written,
            "{status} {body}"
        );
    }
}

#[test]
fn statuses_map_to_the_contract() {
    let say = |error: BatchError| match error {
        BatchError::Failed(f) => format!("failed retryable={} {}", f.retryable, f.message),
        BatchError::Fatal(message) => format!("fatal {message}"),
        BatchError::TooLarge(message) => format!("too-large {message}"),
        BatchError::RateLimited(l) => format!("rate-limited {:?} {}", l.retry_after_ms, l.message),
        BatchError::Partial(_) => "partial".into(),
    };
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let later = ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT");
    let retry = |value| [("retry-after", value)];
    for (status, headers, body, expected) in [
        (413, &[][..], "", "too-large HTTP 413"),
        (401, &[], "who?", "fatal HTTP 401: who?"),
        (403, &[], "", "fatal HTTP 403"),
        (
            422,
            &[],
            r#"{"error":"row k2: bad value"}"#,
            "failed retryable=false HTTP 422: row k2: bad value",
        ),
        (
            404,
            &[],
            "\n gone \n",
            "failed retryable=false HTTP 404: gone",
        ),
        (302, &[], "", "failed retryable=false HTTP 302"),
        (500, &[], "", "failed retryable=true HTTP 500"),
        (503, &[], "", "failed retryable=true HTTP 503"),
        (503, &retry("soon"), "", "failed retryable=true HTTP 503"),
        (503, &retry("2"), "", "rate-limited Some(2000) HTTP 503"),
        (429, &[], "", "rate-limited None HTTP 429"),
        (429, &retry("0"), "", "rate-limited Some(0) HTTP 429"),
        (429, &[date, later], "", "rate-limited Some(10000) HTTP 429"),
        (429, &retry("nonsense"), "", "rate-limited None HTTP 429"),
    ] {
        let error = answered(status, headers, body).unwrap_err();
        assert_eq!(say(error), expected, "{status} {headers:?}");
    }
    let long = answered(400, &[], &"é".repeat(5_000))
        .unwrap_err()
        .message();
    assert_eq!(long, format!("HTTP 400: {}", "é".repeat(200)));
}

#[test]
fn a_207_lists_the_items_that_failed() {
    let list = |body: &str| match answered(207, &[], body) {
        Err(BatchError::Partial(list)) => list
            .into_iter()
            .map(|f| (f.index, f.retryable, f.message))
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let all =
        r#"{"items":[{"key":"a","status":200},{"key":"b","status":201},{"key":"c","status":200}]}"#;
    assert_eq!(answered(207, &[], all).unwrap(), 3);
    assert_eq!(
        list(
            r#"{"items":[{"key":"a","status":422,"message":"bad row"},{"key":"b","status":200},{"key":"c","status":503}]}"#
        ),
        [
            (10, false, "HTTP 422: bad row".into()),
            (12, true, "HTTP 503: ".into())
        ]
    );
    // Another order, and one left out.
    assert_eq!(
        list(r#"{"items":[{"key":"c","status":429},{"key":"a","status":200}]}"#),
        [
            (11, true, "the server gave no status for it".into()),
            (12, true, "HTTP 429: ".into())
        ]
    );
    for body in ["", "[]", r#"{"items":[{"key":1}]}"#] {
        let error = answered(207, &[], body).unwrap_err();
        assert!(error.message().starts_with("HTTP 207 without"), "{error:?}");
        assert!(!error.is_retryable());
    }
}

#[test]
fn two_items_of_one_key_have_their_own_status() {
    set_config("api_url", URL);
    respond_with(|_| {
        let body =
            r#"{"items":[{"key":"k","status":200},{"key":"k","status":422,"message":"no"}]}"#;
        Ok(Response {
            status: 207,
            body: body.into(),
            ..Response::default()
        })
    });
    let Err(BatchError::Partial(list)) = process(vec![item(0, "k", ""), item(1, "k", "")]) else {
        panic!("not partial");
    };
    assert_eq!(
        list.iter().map(|failure| failure.index).collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn without_a_response() {
    assert!(matches!(process(batch()), Err(BatchError::Fatal(m)) if m.contains("api_url")));
    set_config("api_url", "nonsense");
    assert!(matches!(process(batch()), Err(BatchError::Fatal(m)) if m.contains("nonsense")));
    set_config("api_url", URL);
    assert!(matches!(process(batch()), Err(BatchError::Fatal(m)) if m.contains("allow_hosts")));
    respond_with(|_| Err(http::Error::Connection("reset".into())));
    assert!(process(batch()).unwrap_err().is_retryable());
    respond_with(|_| Err(http::Error::TooLong));
    assert!(!process(batch()).unwrap_err().is_retryable());
}

#[test]
fn a_long_wait_is_passed_on_whole() {
    let Err(BatchError::RateLimited(limit)) = answered(429, &[("Retry-After", "86400")], "") else {
        panic!("not rate-limited");
    };
    assert_eq!(
        limit.retry_after_ms,
        Some(Duration::from_secs(86_400).as_millis() as u64)
    );
}
