//! Outgoing HTTP: one client for all slots of a job, and the rules of where it may go.
//!
//! Invariant: the host itself follows no redirect and adds no credential; it sends what the
//! guest wrote to where the guest said, if that is allowed, and hands back the answer.

mod address;
mod allow;
mod body;
mod connect;
mod entry;
mod hooks;
mod pool;
mod requests;
mod requests_async;
mod resolve;
mod target;
#[cfg(test)]
mod tests;
mod watch;

pub use allow::{AllowError, AllowList};
pub use connect::CaError;
pub use resolve::{Resolver, SystemResolver};

pub(super) use hooks::Hooks;
pub(super) use requests::bound;
pub(super) use requests_async::bound_async;

use super::call::Call;
use super::sandbox::SandboxConfig;
use super::text::{self, Secrets};
use crate::report::log::escape_line;
use body::{Counter, RequestBody, ResponseBody, header_bytes};
use connect::{ConnectError, Connector};
use http_body_util::BodyExt;
use pool::{Lease, Pool};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use target::Target;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::{Error as HttpError, RequestOptions, WasiBody};

/// What a client needs that can be wrong: read and checked when the component is loaded.
pub(super) struct ClientPlan {
    allow: Arc<AllowList>,
    connector: Connector,
}

impl ClientPlan {
    pub(super) fn new(allow: Arc<AllowList>, sandbox: &SandboxConfig) -> Result<Self, CaError> {
        let resolver = Arc::clone(&sandbox.resolver);
        let ca_file = sandbox.ca_file.as_deref();
        let connector = Connector::new(
            Arc::clone(&allow),
            resolver,
            sandbox.connect_timeout,
            ca_file,
        )?;
        Ok(Self { allow, connector })
    }
}

/// The client of one job.
pub(super) struct Client {
    label: Arc<str>,
    allow: Arc<AllowList>,
    secrets: Secrets,
    pool: Arc<Pool>,
    call_timeout: Duration,
    max_header_bytes: usize,
    watch: bool,
    count: bool,
    /// Warnings that were said.
    warned: Mutex<HashSet<String>>,
    /// What was said for debugging. Apart, so that it takes no warning's place.
    debugged: Mutex<HashSet<String>>,
    said_bytes: AtomicBool,
}

/// How many lines of each kind are said, each once; a guest can think of any number of hosts.
const SAID: usize = 50;
/// Length of one; a host's name may be very long.
const MAX_SAID: usize = 500;

impl Client {
    pub(super) fn new(label: Arc<str>, plan: &ClientPlan, sandbox: &SandboxConfig) -> Arc<Self> {
        let pool = Pool::new(
            plan.connector.clone(),
            sandbox.max_connections_per_host,
            sandbox.idle_timeout,
            sandbox.max_header_bytes,
        );
        Arc::new(Self {
            label,
            allow: Arc::clone(&plan.allow),
            secrets: Secrets::new(&sandbox.config),
            pool: Arc::new(pool),
            call_timeout: sandbox.call_timeout,
            max_header_bytes: sandbox.max_header_bytes,
            watch: sandbox.watch_http,
            count: sandbox.count_http_bytes,
            warned: Mutex::default(),
            debugged: Mutex::default(),
            said_bytes: AtomicBool::new(false),
        })
    }

    /// Sends a request of a call and returns the answer's head with its body to come.
    pub(super) async fn send(
        self: Arc<Self>,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        call: Arc<Call>,
        turns: Arc<Semaphore>,
    ) -> Result<http::Response<WasiBody>, HttpError> {
        // Whatever the host part of such a request means, it is not where it goes.
        if request.method() == http::Method::CONNECT {
            return Err(HttpError::HttpRequestMethodInvalid);
        }
        let target = Target::of(request.uri()).ok_or(HttpError::HttpRequestUriInvalid)?;
        if let Err(denied) = self.allow.check_host(&target) {
            self.say_once(&denied.to_string());
            return Err(HttpError::HttpRequestDenied);
        }
        // Requests of one instance that are under way, answers it has not read to their end included.
        let turn = turns
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        call.permission().await;

        // A guest cannot wait longer than its call; a timeout of its own can only be shorter.
        let options = options.unwrap_or_default();
        let capped = |own: Option<Duration>| own.map(|own| own.min(self.call_timeout));
        let counter = Counter(self.count.then(|| Arc::clone(&call)));
        // Boxed, since it is moved several times before it starts, on the stack of a guest's call.
        let exchange = Box::pin(self.exchange(request, &target, &options, &counter, &call, capped));
        let (response, lease) = exchange.await?;

        let headers = header_bytes(response.headers());
        counter.add(STATUS_LINE + headers);
        if headers > self.max_header_bytes {
            return Err(HttpError::HttpResponseHeaderSectionSize(
                u32::try_from(headers).ok(),
            ));
        }
        if self.watch
            && let Some(breach) = watch::breach(&response)
        {
            if let Some(nonsense) = breach.nonsense {
                self.say_once(&format!("{target}: {nonsense}"));
            }
            call.report_breach(breach.retry_after);
        }
        let between = capped(options.between_bytes_timeout);
        Ok(response.map(|body| {
            ResponseBody::new(body, (lease, turn), counter, call, between).boxed_unsync()
        }))
    }

    /// Sends a request until one connection takes it: one that was idle may have been closed by
    /// its server just now, which is not the request's fault. It is never sent twice.
    async fn exchange(
        &self,
        request: http::Request<WasiBody>,
        target: &Target,
        options: &RequestOptions,
        counter: &Counter,
        call: &Call,
        capped: impl Fn(Option<Duration>) -> Option<Duration>,
    ) -> Result<(http::Response<hyper::body::Incoming>, Lease), HttpError> {
        let uri = request.uri().clone();
        let mut request = request.map(|body| RequestBody {
            body,
            counter: counter.clone(),
        });
        counter.add(request_line(&request) + header_bytes(request.headers()));
        loop {
            let mut lease = self
                .pool
                .lease(target, options.connect_timeout)
                .await
                .map_err(|error| {
                    self.say_connect(&error);
                    error.to_guest()
                })?;
            address_to(&mut request, &uri, target, lease.is_http2());
            let answer = Awaited(Some(call));
            let sending = lease.send(request);
            let sent = match capped(options.first_byte_timeout) {
                Some(limit) => tokio::time::timeout(limit, sending)
                    .await
                    .map_err(|_| HttpError::ConnectionReadTimeout)?,
                None => sending.await,
            };
            let mut failed = match sent {
                Ok(response) => {
                    answer.came();
                    return Ok((response, lease));
                }
                Err(failed) => failed,
            };
            match failed.take_message() {
                Some(unsent) => {
                    answer.came();
                    if !lease.is_reused() {
                        return Err(hyper_to_guest(failed.error()));
                    }
                    request = unsent;
                }
                None => return Err(hyper_to_guest(failed.error())),
            }
        }
    }

    /// Whether a socket of the guest's own may reach an address.
    pub(super) fn allows_socket(&self, address: SocketAddr) -> bool {
        match self.allow.check_socket(address) {
            Ok(()) => true,
            Err(denied) => {
                self.say_once(&denied.to_string());
                false
            }
        }
    }

    /// Says, once, that what a guest counts is not counted.
    pub(super) fn say_bytes_ignored(&self) {
        if !self.said_bytes.swap(true, Relaxed) {
            self.say_once(
                "the bytes that the plugin counts itself (record-bytes) are ignored, for the host counts them \
                 (count_http_bytes)",
            );
        }
    }

    fn say_connect(&self, error: &ConnectError) {
        match error {
            ConnectError::Denied(denied) => self.say_once(&denied.to_string()),
            error if tracing::enabled!(target: "batchgate::http", tracing::Level::DEBUG) => {
                self.once(&self.debugged, &error.to_string(), |line| {
                    tracing::debug!(target: "batchgate::http", label = %self.label, "{line}");
                });
            }
            _ => {}
        }
    }

    fn say_once(&self, line: &str) {
        self.once(&self.warned, line, |line| {
            tracing::warn!(target: "batchgate::http", label = %self.label, "{line}");
        });
    }

    /// Says a line unless it was said before, or too many were.
    fn once(&self, said: &Mutex<HashSet<String>>, line: &str, say: impl Fn(&str)) {
        // A host's name is the guest's text.
        let line = text::cut(self.secrets.strike(line.to_owned()), MAX_SAID, 0);
        let line = escape_line(&line).into_owned();
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() > SAID || said.contains(&line) {
            return;
        }
        say(match said.len() {
            SAID => "more was denied, ignored or failed; no more of it is shown",
            _ => &line,
        });
        said.insert(line);
    }
}

/// A request under way. If this goes before the head of its answer is there, in whatever way, its call learns that.
struct Awaited<'a>(Option<&'a Call>);

impl Awaited<'_> {
    /// The answer came, or nothing was sent.
    fn came(mut self) {
        self.0 = None;
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.0 {
            call.unanswered();
        }
    }
}

const STATUS_LINE: usize = "HTTP/1.1 200 OK\r\n\r\n".len();

fn request_line<B>(request: &http::Request<B>) -> usize {
    let path = request
        .uri()
        .path_and_query()
        .map_or(1, |path| path.as_str().len());
    request.method().as_str().len() + path + "  HTTP/1.1\r\n\r\n".len()
}

/// Writes the request's target the way the connection's protocol wants it.
fn address_to(
    request: &mut http::Request<RequestBody>,
    uri: &http::Uri,
    target: &Target,
    http2: bool,
) {
    let path = uri
        .path_and_query()
        .cloned()
        .unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"));
    if http2 {
        let mut parts = target.uri().into_parts();
        parts.path_and_query = Some(path);
        *request.uri_mut() = http::Uri::from_parts(parts).expect("a target's URI takes any path");
        // HTTP/2 has the host in the target.
        request.headers_mut().remove(http::header::HOST);
        *request.version_mut() = http::Version::HTTP_2;
    } else {
        *request.uri_mut() = path.into();
        *request.version_mut() = http::Version::HTTP_11;
        if let Some(authority) = uri.authority()
            && let Ok(host) = http::HeaderValue::from_str(authority.as_str())
        {
            request.headers_mut().insert(http::header::HOST, host);
        }
    }
}

/// What a guest learns of an exchange that failed.
fn hyper_to_guest(error: &hyper::Error) -> HttpError {
    if error.is_timeout() {
        HttpError::HttpResponseTimeout
    } else if error.is_parse_too_large() {
        HttpError::HttpResponseHeaderSectionSize(None)
    } else if error.is_parse() || error.is_parse_status() {
        HttpError::HttpProtocolError
    } else {
        HttpError::ConnectionTerminated
    }
}
