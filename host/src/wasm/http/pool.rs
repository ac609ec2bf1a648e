//! Keeps the connections of one job, shared by all its slots.
//!
//! Invariant: a connection is made only when none is idle, and one is idle again before its
//! response's last byte reaches the guest. So there are never more connections to a host than there were
//! requests to it at one time.

use super::body::RequestBody;
use super::connect::{ConnectError, Connected, Connector, Io};
use super::target::{Scheme, Target};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The connections by where they lead.
pub(super) struct Pool {
    connector: Connector,
    hosts: Mutex<HashMap<Target, Arc<Host>>>,
    per_host: usize,
    idle_timeout: Duration,
    max_header_bytes: usize,
    sweeping: AtomicBool,
}

/// The connections to one host.
struct Host {
    /// One for each request that may be under way.
    turns: Arc<Semaphore>,
    connections: Mutex<Connections>,
    /// Held while a connection is made that may turn out to serve all requests.
    first: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Connections {
    /// HTTP/1.1, each idle since then; the last one used is the first to be used again.
    idle: Vec<(http1::SendRequest<RequestBody>, Instant)>,
    /// HTTP/2: one for all requests, used last then.
    shared: Option<(http2::SendRequest<RequestBody>, Instant)>,
    /// What the host speaks, once known.
    speaks: Option<Protocol>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// A connection that one request may use.
pub(super) struct Lease {
    host: Arc<Host>,
    sender: Sender,
    /// Whether it has served a request before.
    reused: bool,
    _turn: OwnedSemaphorePermit,
}

enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

/// How long a connection that is idle may take to say that it is ready.
const READY: Duration = Duration::from_millis(100);
/// Hosts beyond which those that nobody uses are forgotten.
const MANY_HOSTS: usize = 1000;
/// How much of a response may lie in a connection's buffers, beyond its headers.
const READ_AHEAD: usize = 64 << 10;

impl Pool {
    pub(super) fn new(
        connector: Connector,
        per_host: usize,
        idle_timeout: Duration,
        max_header_bytes: usize,
    ) -> Self {
        Self {
            connector,
            hosts: Mutex::default(),
            per_host: per_host.clamp(1, Semaphore::MAX_PERMITS),
            idle_timeout,
            max_header_bytes,
            sweeping: AtomicBool::new(false),
        }
    }

    /// A connection to a target, as soon as the host may have one more request. `connect_timeout` is the
    /// guest's own.
    pub(super) async fn lease(
        self: &Arc<Self>,
        target: &Target,
        connect_timeout: Option<Duration>,
    ) -> Result<Lease, ConnectError> {
        let host = self.host(target);
        let turn = Arc::clone(&host.turns)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let (sender, reused) = match host.reuse().await {
            Some(sender) => (sender, true),
            // Boxed, or each request under way would keep the room that making a connection takes.
            None => Box::pin(self.connect(target, &host, connect_timeout)).await?,
        };
        Ok(Lease {
            host,
            sender,
            reused,
            _turn: turn,
        })
    }

    fn host(&self, target: &Target) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(target) {
            return Arc::clone(host);
        }
        if hosts.len() >= MANY_HOSTS {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let host = Arc::new(Host {
            turns: Arc::new(Semaphore::new(self.per_host)),
            connections: Mutex::default(),
            first: tokio::sync::Mutex::default(),
        });
        hosts.insert(target.clone(), Arc::clone(&host));
        host
    }

    async fn connect(
        self: &Arc<Self>,
        target: &Target,
        host: &Host,
        timeout: Option<Duration>,
    ) -> Result<(Sender, bool), ConnectError> {
        self.sweep_from_now_on();
        let may_share =
            target.scheme == Scheme::Https && host.connections().speaks != Some(Protocol::Http1);
        if !may_share {
            return Ok((self.open(target, host, timeout).await?, false));
        }
        // Requests that find no connection would each make one, to learn that the first serves all.
        let limit = self.connector.timeout(timeout);
        let _first = tokio::time::timeout(limit, host.first.lock())
            .await
            .map_err(|_| ConnectError::Timeout(limit))?;
        match host.reuse().await {
            Some(sender) => Ok((sender, true)),
            None => Ok((self.open(target, host, timeout).await?, false)),
        }
    }

    async fn open(
        &self,
        target: &Target,
        host: &Host,
        timeout: Option<Duration>,
    ) -> Result<Sender, ConnectError> {
        let Connected { io, http2 } = self.connector.connect(target, timeout).await?;
        if http2 {
            let sender = Box::pin(self.handshake2(io)).await?;
            let mut connections = host.connections();
            connections.speaks = Some(Protocol::Http2);
            connections.shared = Some((sender.clone(), Instant::now()));
            return Ok(Sender::Http2(sender));
        }
        host.connections().speaks = Some(Protocol::Http1);
        Ok(Sender::Http1(self.handshake1(io).await?))
    }

    async fn handshake1(&self, io: Io) -> Result<http1::SendRequest<RequestBody>, ConnectError> {
        let handshake = http1::Builder::new()
            .max_buf_size(self.max_header_bytes + READ_AHEAD)
            .handshake(io)
            .await;
        let (sender, connection) = handshake.map_err(ConnectError::Handshake)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn handshake2(&self, io: Io) -> Result<http2::SendRequest<RequestBody>, ConnectError> {
        let window = u32::try_from(READ_AHEAD).unwrap_or(u32::MAX);
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(self.max_header_bytes).unwrap_or(u32::MAX))
            // A guest that reads nothing must not have the host hold much for it.
            .initial_stream_window_size(window)
            .initial_connection_window_size(window * 16)
            .keep_alive_interval(Some(self.idle_timeout))
            .handshake(io)
            .await;
        let (sender, connection) = handshake.map_err(ConnectError::Handshake)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Starts the task that closes idle connections, once.
    fn sweep_from_now_on(self: &Arc<Self>) {
        if !self.sweeping.swap(true, Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
    }
}

/// Closes connections that were idle for longer than the timeout, for as long as there is a pool.
async fn sweep(pool: Weak<Pool>, idle_timeout: Duration) {
    let turn = (idle_timeout / 2).clamp(Duration::from_millis(10), Duration::from_secs(3600));
    loop {
        tokio::time::sleep(turn).await;
        let Some(pool) = pool.upgrade() else { return };
        let hosts: Vec<_> = {
            let hosts = pool.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            hosts.values().cloned().collect()
        };
        for host in hosts {
            let mut connections = host.connections();
            connections
                .idle
                .retain(|(sender, since)| !sender.is_closed() && since.elapsed() < idle_timeout);
            let in_use = host.turns.available_permits() < pool.per_host;
            connections.shared = connections
                .shared
                .take()
                .filter(|(_, used)| in_use || used.elapsed() < idle_timeout);
        }
    }
}

impl Host {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is there already.
    async fn reuse(&self) -> Option<Sender> {
        loop {
            let mut sender = {
                let mut connections = self.connections();
                if let Some((shared, used)) = &mut connections.shared {
                    if !shared.is_closed() {
                        *used = Instant::now();
                        return Some(Sender::Http2(shared.clone()));
                    }
                    connections.shared = None;
                }
                connections.idle.pop()?.0
            };
            // It became idle a moment ago and may not know yet; or its server has closed it.
            if let Ok(Ok(())) = tokio::time::timeout(READY, sender.ready()).await {
                return Some(Sender::Http1(sender));
            }
        }
    }
}

impl Lease {
    pub(super) fn is_reused(&self) -> bool {
        self.reused
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Sends a request. An error gives it back if nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, TrySendError<http::Request<RequestBody>>> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        }
    }

    /// Gives the connection back for the next request. One that is dropped instead is closed, if
    /// it served this request alone.
    pub(super) fn release(self) {
        if let Sender::Http1(sender) = self.sender
            && !sender.is_closed()
        {
            self.host.connections().idle.push((sender, Instant::now()));
        }
    }
}
