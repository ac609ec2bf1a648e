//! What is tried.

use super::expect::Expect;
use crate::item::{Item, Key};
use crate::mock_api::{BadMode, Behaviour, RetryAfter};
use bytes::Bytes;

/// One thing that a plugin is asked for.
pub struct Case {
    pub name: &'static str,
    pub situation: Situation,
    /// On one instance, in this order. The last one is judged.
    pub calls: Vec<Call>,
    pub expect: Expect,
}

/// Where the plugin is called.
#[derive(Debug, Clone)]
pub struct Situation {
    /// What its server does; none means that nobody listens there.
    pub server: Option<Behaviour>,
    /// Whether its config has the URL.
    pub has_url: bool,
    /// Whether it may reach the server.
    pub is_allowed: bool,
}

impl Default for Situation {
    fn default() -> Self {
        Self {
            server: Some(at_once()),
            has_url: true,
            is_allowed: true,
        }
    }
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    pub items: Vec<Given>,
}

/// One item, but for its index.
#[derive(Debug, Clone)]
pub struct Given {
    key: String,
    data: Bytes,
}

impl Given {
    fn new(key: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            data: data.into(),
        }
    }

    pub fn with(&self, index: u64) -> Item {
        Item {
            index,
            key: Key::Text(self.key.as_str().into()),
            data: self.data.clone(),
        }
    }
}

/// A server that takes no time.
fn at_once() -> Behaviour {
    Behaviour {
        overhead_ms: 0.0,
        per_item_ms: 0.0,
        ..Behaviour::default()
    }
}

/// Three ordinary items.
fn three() -> Call {
    let item = |n| {
        Given::new(
            format!("k{n}"),
            format!(r#"{{"id":"k{n}","name":"name {n}"}}"#),
        )
    };
    Call {
        items: (1..=3).map(item).collect(),
    }
}

/// The batch to describe.
pub fn to_describe() -> Call {
    three()
}

/// Inputs of every kind, at a server that takes them all.
pub fn of_inputs() -> Vec<Case> {
    let case = |name, calls| Case {
        name,
        situation: Situation::default(),
        calls,
        expect: Expect::Answer,
    };
    let one = |name, key: &str, data: Bytes| {
        case(
            name,
            vec![Call {
                items: vec![Given::new(key, data)],
            }],
        )
    };
    let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let many = (0..1000).map(|n| Given::new(format!("m{n}"), format!(r#"{{"id":"m{n}"}}"#)));
    let twins = ["1", "2"].map(|data| Given::new("twin", data));
    vec![
        case("three items", vec![three()]),
        one("empty text", "empty", Bytes::new()),
        one("empty key", "", text("x")),
        one("bytes that are no text", "bytes", (0..=255).collect()),
        one(
            "text that breaks off in a character",
            "broken",
            Bytes::from_static(b"a\xe2\x82"),
        ),
        one("a byte order mark", "bom", text("\u{feff}x")),
        one(
            "Unicode",
            "schlüssel-键-🔑",
            text("naïve — 数据 — e\u{301} — שלום — 👩‍👩‍👧 — \u{10ffff}"),
        ),
        one(
            "quotes and control characters",
            "\"'\\\n\t\0\u{7f}",
            text("\"'\\\r\n\t\0\u{1}\u{7f}\u{2028}</script>"),
        ),
        one(
            "JSON of another kind",
            "json",
            text("[1, null, {\"deep\": [true]}]"),
        ),
        one("an item of 1 MiB", "large", vec![b'x'; 1 << 20].into()),
        one(
            "1 MiB of bytes",
            "large-bytes",
            (0..1 << 20).map(|n: u32| (n >> 3) as u8).collect(),
        ),
        case(
            "1,000 items",
            vec![Call {
                items: many.collect(),
            }],
        ),
        case(
            "two items of one key",
            vec![Call {
                items: twins.into(),
            }],
        ),
        case("100 calls on one instance", vec![three(); 100]),
    ]
}

/// A server that answers in every way, and none at all.
pub fn of_answers() -> Vec<Case> {
    let at = |name, behaviour, expect| Case {
        name,
        situation: Situation {
            server: Some(behaviour),
            ..Situation::default()
        },
        calls: vec![three()],
        expect,
    };
    let status = |status| Behaviour {
        status: Some(status),
        ..at_once()
    };
    let bad = |bad_mode| Behaviour {
        bad_keys: vec!["k2".to_owned()],
        bad_mode,
        ..at_once()
    };
    let refusal = |name, number, retry_after: Option<u64>, expect| {
        let text = retry_after.map(|seconds| RetryAfter::Text(seconds.to_string()));
        let behaviour = Behaviour {
            retry_after: text.unwrap_or(RetryAfter::None),
            ..status(number)
        };
        at(name, behaviour, expect)
    };
    let elsewhere = |name, situation, expect| Case {
        name,
        situation,
        calls: vec![three()],
        expect,
    };
    vec![
        at(
            "422 for a bad item",
            bad(BadMode::Reject),
            Expect::ItemReported("k2"),
        ),
        at(
            "207 with a bad item",
            bad(BadMode::Each),
            Expect::ItemAlone("k2"),
        ),
        at(
            "413",
            Behaviour {
                max_batch: Some(2),
                ..at_once()
            },
            Expect::TooLarge,
        ),
        refusal(
            "429 with Retry-After",
            429,
            Some(7),
            Expect::RateLimited(Some(7)),
        ),
        refusal("429 without", 429, None, Expect::RateLimited(None)),
        refusal(
            "503 with Retry-After",
            503,
            Some(7),
            Expect::RateLimited(Some(7)),
        ),
        refusal("503 without", 503, None, Expect::Failed { retryable: true }),
        at("401", status(401), Expect::Fatal),
        at("403", status(403), Expect::Fatal),
        at("404", status(404), Expect::Failed { retryable: false }),
        at("500", status(500), Expect::Failed { retryable: true }),
        at(
            "a connection that is closed",
            Behaviour {
                drop_every: Some(1),
                ..at_once()
            },
            Expect::Failed { retryable: true },
        ),
        elsewhere(
            "a server that is not there",
            Situation {
                server: None,
                ..Situation::default()
            },
            Expect::Failed { retryable: true },
        ),
        elsewhere(
            "a server that the job does not allow",
            Situation {
                is_allowed: false,
                ..Situation::default()
            },
            Expect::Error,
        ),
        elsewhere(
            "no URL in its config",
            Situation {
                has_url: false,
                ..Situation::default()
            },
            Expect::Error,
        ),
    ]
}
