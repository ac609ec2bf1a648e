//! Requests over `wasi:http`.
//!
//! One request, one response, read to its end; the host follows no redirect. Whether a
//! status is an error is for the plugin to say. Outgoing HTTP is denied unless the job's
//! `[sandbox] allow_hosts` names the destination.

use crate::BatchError;
use std::fmt;
use std::time::{Duration, SystemTime};

#[cfg(not(target_family = "wasm"))]
use crate::testing::http as host;
#[cfg(target_family = "wasm")]
use wasi as host;

#[cfg(target_family = "wasm")]
mod wasi;
#[cfg(target_family = "wasm")]
mod wasi_async;

/// A response longer than this is an error, before it fills the plugin's memory.
pub const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Posts `body` to `url`, without further headers.
pub fn post(url: &str, body: impl Into<Vec<u8>>) -> Result<Response, Error> {
    Request::post(url).body(body).send()
}

/// Gets `url`.
pub fn get(url: &str) -> Result<Response, Error> {
    Request::new("GET", url).send()
}

/// A request. `content-length` is set when it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `POST`, `PUT`, …
    pub method: String,
    /// Absolute, `http` or `https`.
    pub url: String,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// Sent as it is.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: &str, url: &str) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A POST request.
    pub fn post(url: &str) -> Self {
        Self::new("POST", url)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and reads the response to its end.
    pub fn send(&self) -> Result<Response, Error> {
        host::send(self, &Target::parse(&self.url)?)
    }

    /// The same in a plugin that awaits: the other calls of its instance go on meanwhile, where
    /// [`send`](Self::send) would hold them up.
    pub async fn send_async(&self) -> Result<Response, Error> {
        let target = Target::parse(&self.url)?;
        #[cfg(target_family = "wasm")]
        return wasi_async::send(self, &target).await;
        #[cfg(not(target_family = "wasm"))]
        host::send(self, &target)
    }
}

/// What the server answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// 200, 429, …
    pub status: u16,
    /// Names and values, in order; what is not UTF-8 in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Response {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// How long `Retry-After` asks to wait, in seconds or until a date, which is measured
    /// from the response's own `Date` if there is one. `None` without the header or if it
    /// says neither.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.header("retry-after")?.trim();
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            // All digits, so that the only possible error is one of size.
            return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
        }
        let until = httpdate::parse_http_date(value).ok()?;
        let date = self
            .header("date")
            .and_then(|date| httpdate::parse_http_date(date).ok());
        let now = date.unwrap_or_else(SystemTime::now);
        Some(until.duration_since(now).unwrap_or(Duration::ZERO))
    }

    /// The body as text, with U+FFFD for what is not UTF-8.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// The body read as JSON.
    #[cfg(feature = "json")]
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// No response was had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The URL or the request cannot be sent by anyone.
    Invalid(String),
    /// The job does not allow it.
    Denied(String),
    /// The connection could not be made, broke, or took too long.
    Connection(String),
    /// The response is longer than [`MAX_RESPONSE_BYTES`].
    TooLong,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => write!(f, "the request is not valid: {why}"),
            Self::Denied(url) => {
                write!(
                    f,
                    "{url} is denied: name it in [sandbox] allow_hosts in the job"
                )
            }
            Self::Connection(why) => write!(f, "no response: {why}"),
            Self::TooLong => {
                write!(
                    f,
                    "the response is longer than {} MiB",
                    MAX_RESPONSE_BYTES >> 20
                )
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for BatchError {
    fn from(error: Error) -> Self {
        match error {
            Error::Connection(_) => Self::retryable(error),
            _ => Self::failed(error),
        }
    }
}

/// The parts of a URL that `wasi:http` takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) https: bool,
    /// Host and port, as written.
    pub(crate) authority: &'a str,
    /// Path and query, from the slash.
    pub(crate) path: String,
}

impl<'a> Target<'a> {
    /// The host checks the characters; here only the parts are told apart.
    fn parse(url: &'a str) -> Result<Self, Error> {
        let invalid = |why| Err(Error::Invalid(format!("{url:?}: {why}")));
        let Some((scheme, rest)) = url.split_once("://") else {
            return invalid("a URL starts with http:// or https://");
        };
        let https = if scheme.eq_ignore_ascii_case("https") {
            true
        } else if scheme.eq_ignore_ascii_case("http") {
            false
        } else {
            return invalid("only http and https can be sent");
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return invalid("it names no host");
        }
        if authority.contains('@') {
            return invalid("a name and password in it are not sent; use a header");
        }
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Ok(Self {
            https,
            authority,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn urls_fall_into_their_parts() {
        let parse = |url| Target::parse(url).map(|t| (t.https, t.authority.to_owned(), t.path));
        let good = [
            ("http://a:80/x?y=1#z", (false, "a:80", "/x?y=1")),
            ("HTTPS://[::1]:4", (true, "[::1]:4", "/")),
            ("http://h?q", (false, "h", "/?q")),
        ];
        for (url, (https, authority, path)) in good {
            assert_eq!(
                parse(url),
                Ok((https, authority.to_owned(), path.to_owned())),
                "{url}"
            );
        }
        for url in [
            "",
            "h/x",
            "ftp://h/",
            "http://",
            "http:///x",
            "http://u:p@h/",
        ] {
            assert!(matches!(parse(url), Err(Error::Invalid(_))), "{url}");
        }
    }

    #[test]
    fn retry_after_in_every_form() {
        const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        let cases = [
            (vec![], None),
            (vec![("Retry-After", "7")], Some(7)),
            (vec![("retry-after", " 0 ")], Some(0)),
            (
                vec![("Retry-After", "99999999999999999999999")],
                Some(u64::MAX),
            ),
            (vec![("Retry-After", AT)], Some(0)),
            (
                vec![
                    ("Retry-After", AT),
                    ("Date", "Sun, 06 Nov 1994 08:48:37 GMT"),
                ],
                Some(60),
            ),
            (vec![("Retry-After", "-1")], None),
            (vec![("Retry-After", "1.5")], None),
            (vec![("Retry-After", "")], None),
            (vec![("Retry-After", "soon")], None),
        ];
        for (headers, seconds) in cases {
            let headers: Vec<_> = headers
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect();
            let response = Response {
                status: 429,
                headers,
                ..Response::default()
            };
            assert_eq!(
                response.retry_after().map(|wait| wait.as_secs()),
                seconds,
                "{response:?}"
            );
        }
    }

    #[test]
    fn requests_reach_the_responder_and_only_it() {
        assert!(
            matches!(get("http://h/"), Err(Error::Denied(_))),
            "denied by default"
        );
        testing::respond_with(|request| {
            assert_eq!(
                (request.method.as_str(), &*request.body),
                ("POST", &b"[1]"[..])
            );
            Ok(Response {
                status: 201,
                ..Response::default()
            })
        });
        assert!(post("http://h/", "[1]").unwrap().is_success());
        assert!(matches!(post("nonsense", ""), Err(Error::Invalid(_))));
    }

    #[test]
    fn only_a_lost_connection_is_retryable() {
        assert!(BatchError::from(Error::Connection("reset".into())).is_retryable());
        for error in [
            Error::Invalid("x".into()),
            Error::Denied("u".into()),
            Error::TooLong,
        ] {
            assert!(!BatchError::from(error).is_retryable());
        }
    }
}
