//! Decides what a `POST /items` is answered, and carries it out.

use super::batch::{self, BatchError};
use super::ledger::{Arrival, Ledger};
use super::options::{BadMode, Behaviour, RetryAfter};
use super::rate::Window;
use super::schedule::{Phase, Schedule};
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use tokio::time::Instant;

/// Largest body that is read, in bytes.
pub const MAX_BODY: usize = 64 << 20;

/// Bodies above this are parsed on a thread of their own, so that other requests are not held up.
const LARGE_BODY: usize = 256 << 10;

/// What the requests of a server share.
pub struct Shared {
    pub ledger: Arc<Ledger>,
    pub schedule: Schedule,
    pub started: Instant,
    pub rate: Mutex<Window>,
}

/// An answer to `POST /items`.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
    pub retry_after: Option<HeaderValue>,
}

/// The connection is to be closed, or is gone.
#[derive(Debug, thiserror::Error)]
#[error("no answer is sent")]
pub struct NoAnswer;

/// What becomes of a request.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Answered at once; nothing is stored.
    Refuse(Answer),
    /// These items are stored after the latency, then this is answered, or nothing at all.
    Process(Vec<Arc<str>>, Option<Answer>),
}

/// Serves one request from the arrival of its head to the moment its answer is ready.
pub async fn post_items(shared: Arc<Shared>, body: Incoming) -> Result<Answer, NoAnswer> {
    let mut arrival = shared.ledger.arrive(shared.started.elapsed());
    let body = read(body).await.map_err(|_| NoAnswer)?;
    let keys = parse(body).await?;
    if let Read::Batch(keys) = &keys {
        arrival.has_items(keys.len());
    }

    let phase = shared.schedule.at(arrival.at);
    let within_rate = phase.behaviour.max_per_sec.is_none_or(|most| {
        let mut window = shared.rate.lock().unwrap_or_else(|e| e.into_inner());
        window.accept(shared.started.elapsed(), most)
    });
    if !within_rate {
        let answer = refuse_for_rate(&phase.behaviour);
        arrival.answered(shared.started.elapsed(), answer.status, true);
        return Ok(answer);
    }
    let items = keys.len();
    match decide(phase, keys, arrival.number()) {
        Decision::Refuse(answer) => {
            arrival.answered(shared.started.elapsed(), answer.status, false);
            Ok(answer)
        }
        Decision::Process(stored, answer) => {
            let latency = phase
                .behaviour
                .latency(items, arrival.active, arrival.number());
            let ready = shared.started + arrival.at + latency;
            if ready <= Instant::now() {
                return finish(&shared, arrival, stored, answer);
            }
            // On a task of its own: the connection drops this future when the client goes away, but
            // the server works on.
            let work = tokio::spawn(async move {
                tokio::time::sleep_until(ready).await;
                finish(&shared, arrival, stored, answer)
            });
            work.await.unwrap_or(Err(NoAnswer))
        }
    }
}

fn finish(
    shared: &Shared,
    arrival: Arrival,
    stored: Vec<Arc<str>>,
    answer: Option<Answer>,
) -> Result<Answer, NoAnswer> {
    shared.ledger.store(stored);
    let now = shared.started.elapsed();
    match answer {
        Some(answer) => {
            arrival.answered(now, answer.status, false);
            Ok(answer)
        }
        None => {
            arrival.unanswered(now);
            Err(NoAnswer)
        }
    }
}

/// A request's body, as far as it was understood.
enum Read {
    Batch(Vec<Arc<str>>),
    TooLarge,
    Malformed(BatchError),
}

impl Read {
    fn len(&self) -> usize {
        match self {
            Read::Batch(keys) => keys.len(),
            Read::TooLarge | Read::Malformed(_) => 0,
        }
    }
}

fn decide(phase: &Phase, body: Read, number: u64) -> Decision {
    let behaviour = &phase.behaviour;
    let keys = match body {
        Read::Batch(keys) => keys,
        Read::TooLarge => {
            let text = format!("the body is larger than {MAX_BODY} bytes");
            return Decision::Refuse(error(413, &text));
        }
        Read::Malformed(e) => return Decision::Refuse(error(400, &e.to_string())),
    };
    if let Some(most) = behaviour
        .max_batch
        .filter(|most| keys.len() > *most as usize)
    {
        let text = format!(
            "{} items in a batch, at most {most} are allowed",
            keys.len()
        );
        return Decision::Refuse(error(413, &text));
    }
    if let Some(status) = behaviour.status {
        let mut answer = error(status, "the server answers every request with this status");
        if matches!(status, 429 | 503) {
            answer.retry_after = retry_after(&behaviour.retry_after);
        }
        return Decision::Process(Vec::new(), Some(answer));
    }
    if behaviour
        .fail_every
        .is_some_and(|k| number.is_multiple_of(k))
    {
        let text = "the server fails every so often";
        return Decision::Process(Vec::new(), Some(error(500, text)));
    }
    let drops = behaviour
        .drop_every
        .is_some_and(|k| number.is_multiple_of(k));
    let is_bad = |key: &Arc<str>| phase.bad_keys.contains(&**key);
    let Some(first_bad) = keys.iter().find(|key| is_bad(key)) else {
        let answer = answer(200, json!({ "written": keys.len() }));
        return Decision::Process(keys, (!drops).then_some(answer));
    };
    match behaviour.bad_mode {
        BadMode::Reject => Decision::Refuse(error(422, &format!("row {first_bad}: bad value"))),
        BadMode::Each => {
            let item = |key: &Arc<str>| match is_bad(key) {
                true => json!({ "key": **key, "status": 422, "message": "bad row" }),
                false => json!({ "key": **key, "status": 200 }),
            };
            let items: Vec<_> = keys.iter().map(item).collect();
            let answer = answer(207, json!({ "items": items }));
            let good = keys.into_iter().filter(|key| !is_bad(key)).collect();
            Decision::Process(good, (!drops).then_some(answer))
        }
    }
}

fn refuse_for_rate(behaviour: &Behaviour) -> Answer {
    let mut answer = error(behaviour.reject_status, "too many requests in one second");
    answer.retry_after = retry_after(&behaviour.retry_after);
    answer
}

fn retry_after(option: &RetryAfter) -> Option<HeaderValue> {
    let text = match option {
        RetryAfter::None => return None,
        RetryAfter::Text(text) => text.clone(),
        RetryAfter::Date(after) => httpdate::fmt_http_date(SystemTime::now() + *after),
    };
    HeaderValue::try_from(text).ok()
}

fn answer(status: u16, body: serde_json::Value) -> Answer {
    Answer {
        status,
        body: body.to_string(),
        retry_after: None,
    }
}

/// An answer whose body says what is wrong, in one line.
pub fn error(status: u16, text: &str) -> Answer {
    answer(status, json!({ "error": text }))
}

/// Reads a body to its end; of one that is too large, the rest is read and thrown away, since a client
/// that is still sending may never see an earlier answer. `None` is a body too large.
async fn read(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let mut parts: Vec<Bytes> = Vec::new();
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length > MAX_BODY {
            parts.clear();
        } else {
            parts.push(data);
        }
    }
    Ok(match parts.len() {
        _ if length > MAX_BODY => None,
        1 => parts.pop(),
        _ => Some(parts.concat().into()),
    })
}

async fn parse(body: Option<Bytes>) -> Result<Read, NoAnswer> {
    let keys = match body {
        None => return Ok(Read::TooLarge),
        Some(body) if body.len() > LARGE_BODY => {
            let parsing = tokio::task::spawn_blocking(move || batch::keys(&body));
            parsing.await.map_err(|_| NoAnswer)?
        }
        Some(body) => batch::keys(&body),
    };
    Ok(keys.map_or_else(Read::Malformed, Read::Batch))
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::*;
    use std::time::Duration;

    fn decided(arguments: Behaviour, keys: &[&str], number: u64) -> Decision {
        let options = Options {
            behaviour: arguments,
            ..Options::default()
        };
        let schedule = Schedule::new(&options).unwrap();
        let keys = keys.iter().map(|k| Arc::from(*k)).collect();
        decide(schedule.at(Duration::ZERO), Read::Batch(keys), number)
    }

    /// Status (0: none), items stored, whether at once.
    fn short(decision: Decision) -> (u16, usize, bool) {
        match decision {
            Decision::Refuse(answer) => (answer.status, 0, true),
            Decision::Process(stored, answer) => {
                (answer.map_or(0, |a| a.status), stored.len(), false)
            }
        }
    }

    #[test]
    fn each_option_has_its_answer() {
        let plain = Behaviour::default();
        let with = |change: fn(&mut Behaviour)| {
            let mut behaviour = Behaviour::default();
            behaviour.bad_keys.push("bad".to_owned());
            change(&mut behaviour);
            behaviour
        };
        for (case, behaviour, keys, number, expected) in [
            (
                "plain",
                plain.clone(),
                &["a", "b"] as &[&str],
                1,
                (200, 2, false),
            ),
            ("empty", plain, &[], 1, (200, 0, false)),
            (
                "largest",
                with(|b| b.max_batch = Some(2)),
                &["a", "b"],
                1,
                (200, 2, false),
            ),
            (
                "too large",
                with(|b| b.max_batch = Some(1)),
                &["a", "b"],
                1,
                (413, 0, true),
            ),
            (
                "status",
                with(|b| b.status = Some(401)),
                &["a"],
                1,
                (401, 0, false),
            ),
            (
                "2nd fails",
                with(|b| b.fail_every = Some(2)),
                &["a"],
                4,
                (500, 0, false),
            ),
            (
                "3rd does not",
                with(|b| b.fail_every = Some(2)),
                &["a"],
                3,
                (200, 1, false),
            ),
            (
                "dropped",
                with(|b| b.drop_every = Some(2)),
                &["a"],
                4,
                (0, 1, false),
            ),
            (
                "not dropped",
                with(|b| b.drop_every = Some(2)),
                &["a"],
                5,
                (200, 1, false),
            ),
            ("reject", with(|_| ()), &["a", "bad"], 1, (422, 0, true)),
            (
                "reject, all good",
                with(|_| ()),
                &["a", "badder"],
                1,
                (200, 2, false),
            ),
            (
                "each",
                with(|b| b.bad_mode = BadMode::Each),
                &["a", "bad"],
                1,
                (207, 1, false),
            ),
            (
                "each, all good",
                with(|b| b.bad_mode = BadMode::Each),
                &["a"],
                1,
                (200, 1, false),
            ),
        ] {
            assert_eq!(short(decided(behaviour, keys, number)), expected, "{case}");
        }
    }

    #[test]
    fn bodies_say_what_happened() {
        let mut behaviour = Behaviour {
            bad_keys: vec!["k\"2".to_owned()],
            ..Behaviour::default()
        };
        let keys = ["k1", "k\"2"];
        let body = |decision| match decision {
            Decision::Refuse(answer) | Decision::Process(_, Some(answer)) => answer.body,
            Decision::Process(_, None) => String::new(),
        };
        let rejected = decided(behaviour.clone(), &keys, 1);
        assert_eq!(body(rejected), r#"{"error":"row k\"2: bad value"}"#);
        behaviour.bad_mode = BadMode::Each;
        let each: serde_json::Value =
            serde_json::from_str(&body(decided(behaviour, &keys, 1))).unwrap();
        let expected = json!({"items": [{"key": "k1", "status": 200},
            {"key": "k\"2", "status": 422, "message": "bad row"}]});
        assert_eq!(each, expected);
    }

    #[test]
    fn retry_after_is_sent_as_asked() {
        for (option, header) in [
            ("2", Some("2")),
            ("0.5", Some("0.5")),
            ("none", None),
            ("raw:soon", Some("soon")),
        ] {
            let behaviour = Behaviour {
                retry_after: option.parse().unwrap(),
                ..Behaviour::default()
            };
            let answer = refuse_for_rate(&behaviour);
            assert_eq!(
                answer.retry_after.as_ref().map(|h| h.to_str().unwrap()),
                header
            );
        }
        let behaviour = Behaviour {
            retry_after: "date:100".parse().unwrap(),
            ..Behaviour::default()
        };
        let header = refuse_for_rate(&behaviour).retry_after.unwrap();
        let at = httpdate::parse_http_date(header.to_str().unwrap()).unwrap();
        let after = at.duration_since(SystemTime::now()).unwrap();
        assert!((90..=100).contains(&after.as_secs()), "{after:?}");
    }
}
