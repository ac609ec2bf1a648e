//! A stand-in for the host, so that `cargo test` runs a plugin natively.
//!
//! On a native target every import (config, call, limiter, HTTP) is answered by the values
//! set here. They belong to the thread, as a test does, and start out empty: no config, no
//! responder, call number 1.

use crate::Item;
use crate::call::CallInfo;
use std::cell::RefCell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An item as the host would send it.
pub fn item(index: u64, key: &str, data: impl AsRef<[u8]>) -> Item {
    Item {
        index,
        key: key.to_owned(),
        data: data.as_ref().to_vec(),
    }
}

/// Runs a plugin that awaits: on the fake host nothing has to be waited for.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // The plugin's own doing, by another thread.
        std::thread::yield_now();
    }
}

/// Sets a key of `[config]`.
pub fn set_config(key: &str, value: &str) {
    with(|fake| {
        fake.config.retain(|(have, _)| have != key);
        fake.config.push((key.to_owned(), value.to_owned()));
    });
}

/// Sets what `call::info()` returns.
pub fn set_call_info(info: CallInfo) {
    with(|fake| fake.info = info);
}

/// Sets whether a cooldown is running.
pub fn set_backing_off(backing_off: bool) {
    with(|fake| fake.backing_off = backing_off);
}

/// The breaches reported so far, each with the time asked for.
pub fn breaches() -> Vec<Option<Duration>> {
    with(|fake| fake.breaches.clone())
}

/// The bytes recorded so far.
pub fn recorded_bytes() -> u64 {
    with(|fake| fake.bytes)
}

/// Answers every request of this thread. Without it, each is denied.
#[cfg(feature = "http")]
pub fn respond_with(
    responder: impl FnMut(&crate::http::Request) -> Result<crate::http::Response, crate::http::Error>
    + 'static,
) {
    with(|fake| fake.responder = Some(Box::new(responder)));
}

#[cfg(feature = "http")]
type Responder =
    Box<dyn FnMut(&crate::http::Request) -> Result<crate::http::Response, crate::http::Error>>;

struct Fake {
    config: Vec<(String, String)>,
    info: CallInfo,
    backing_off: bool,
    breaches: Vec<Option<Duration>>,
    bytes: u64,
    #[cfg(feature = "http")]
    responder: Option<Responder>,
}

/// What the host's own first cooldown is by default, in milliseconds.
const COOLDOWN_MS: u64 = 60_000;

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::new(Fake {
        config: Vec::new(),
        info: CallInfo {
            label: "batches".into(),
            run_id: "test".into(),
            call_number: 1,
            workers: 1,
            batch_size: 50,
            deadline_ms: 120_000,
            idempotency_key: "test".into(),
        },
        backing_off: false,
        breaches: Vec::new(),
        bytes: 0,
        #[cfg(feature = "http")]
        responder: None,
    });
}

fn with<T>(act: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with_borrow_mut(act)
}

/// Stands in for the imported interface of that name; likewise the modules below.
pub(crate) mod limiter {
    use super::{COOLDOWN_MS, with};
    use std::time::Duration;

    pub(crate) fn report_breach(retry_after_ms: Option<u64>) -> u64 {
        with(|fake| {
            fake.breaches
                .push(retry_after_ms.map(Duration::from_millis));
            fake.backing_off = true;
        });
        retry_after_ms.map_or(COOLDOWN_MS, |wait| wait.max(COOLDOWN_MS))
    }

    pub(crate) fn record_bytes(bytes: u64) {
        with(|fake| fake.bytes = fake.bytes.saturating_add(bytes));
    }

    pub(crate) fn is_backing_off() -> bool {
        with(|fake| fake.backing_off)
    }
}

pub(crate) mod call {
    pub(crate) fn info() -> super::CallInfo {
        super::with(|fake| fake.info.clone())
    }
}

pub(crate) mod store {
    use super::with;

    /// As the interface has it; the fake can always be read.
    #[allow(dead_code)]
    pub(crate) enum Error {
        Upstream(String),
        Io(String),
    }

    pub(crate) fn get(key: &str) -> Result<Option<String>, Error> {
        let found = |(have, value): &(String, String)| (have == key).then(|| value.clone());
        Ok(with(|fake| fake.config.iter().find_map(found)))
    }

    pub(crate) fn get_all() -> Result<Vec<(String, String)>, Error> {
        Ok(with(|fake| fake.config.clone()))
    }
}

#[cfg(feature = "http")]
pub(crate) mod http {
    use super::with;
    use crate::http::{Error, Request, Response, Target};

    pub(crate) fn send(request: &Request, _: &Target<'_>) -> Result<Response, Error> {
        // Taken out while it runs: a responder may itself use the fake.
        let Some(mut responder) = with(|fake| fake.responder.take()) else {
            return Err(Error::Denied(format!(
                "{} (no testing::respond_with)",
                request.url
            )));
        };
        let response = responder(request);
        with(|fake| {
            fake.responder.get_or_insert(responder);
        });
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fake_remembers_what_a_plugin_says() {
        assert!(!crate::limiter::is_backing_off());
        let asked = Duration::from_secs(90);
        assert_eq!(crate::limiter::report_breach(Some(asked)), asked);
        assert_eq!(
            crate::limiter::report_breach(None).as_millis(),
            u128::from(COOLDOWN_MS)
        );
        crate::limiter::record_bytes(5);
        crate::limiter::record_bytes(2);
        assert_eq!(breaches(), [Some(asked), None]);
        assert_eq!(recorded_bytes(), 7);
        assert!(crate::limiter::is_backing_off());
        set_backing_off(false);
        assert!(!crate::limiter::is_backing_off());
    }

    #[test]
    fn a_call_is_the_first_of_its_attempt_unless_set() {
        let first = crate::call::info();
        assert_eq!((first.call_number, &*first.label), (1, "batches"));
        set_call_info(CallInfo {
            call_number: 2,
            ..first
        });
        assert_eq!(crate::call::info().call_number, 2);
    }
}
