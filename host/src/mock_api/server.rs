//! Listens, serves connections (HTTP/1.1, and HTTP/2 with prior knowledge) and routes requests.

use super::answer::{Answer, NoAnswer, Shared, error, post_items};
use super::ledger::{KeyEntry, Ledger, LogEntry, Stats};
use super::options::{Options, OptionsError};
use super::pages::Pages;
use super::rate::Window;
use super::schedule::Schedule;
use crate::open_files;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Connections that wait to be accepted: a client may open thousands at once.
const BACKLOG: u32 = 4096;

/// Requests in flight on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100_000;

/// How long accepting pauses when the process is out of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// A server that runs until it is shut down or dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, as in `http://127.0.0.1:8080`.
    pub base_url: String,
    ledger: Arc<Ledger>,
    accepting: JoinHandle<()>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The options do not go together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {cause}; choose another --listen (port 0 takes a free one)"
    )]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
}

impl Server {
    /// Starts a server on the current runtime. It accepts connections when this returns.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let schedule = Schedule::new(&options)?;
        let address = options.listen;
        let (listener, bound) =
            listen(address).map_err(|cause| StartError::Listen { address, cause })?;
        open_files::raise_limit();
        let ledger = Arc::new(Ledger::default());
        let shared = Arc::new(Shared {
            ledger: ledger.clone(),
            schedule,
            started: Instant::now(),
            rate: Mutex::new(Window::default()),
        });
        let accepting = tokio::spawn(accept(listener, shared));
        Ok(Self {
            base_url: format!("http://{bound}"),
            ledger,
            accepting,
        })
    }

    /// What `/stats` answers.
    pub fn stats(&self) -> Stats {
        self.ledger.stats()
    }

    /// What `/log` answers.
    pub fn log(&self) -> Vec<LogEntry> {
        let mut log = Vec::new();
        loop {
            let page = self.ledger.log(log.len(), usize::MAX);
            if page.is_empty() {
                return log;
            }
            log.extend(page);
        }
    }

    /// What `/keys` answers.
    pub fn keys(&self) -> Vec<KeyEntry> {
        let mut keys = Vec::new();
        loop {
            let page = self.ledger.keys(keys.len(), usize::MAX);
            if page.is_empty() {
                return keys;
            }
            keys.extend(page);
        }
    }

    /// Stops accepting and closes all connections. Requests in flight get no answer, but their items
    /// are stored when their time is over, as long as the runtime lives.
    pub async fn shutdown(mut self) {
        self.accepting.abort();
        // The only error is the cancellation just asked for.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Owns the connections: they end with this future.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut pausing = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    pausing = false;
                    connections.spawn(serve(stream, shared.clone()));
                }
                // A client that was gone before it was accepted.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    if !pausing {
                        tracing::warn!("no connection can be accepted for now: {e}");
                    }
                    pausing = true;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // An answer that waits for the client's acknowledgement would add to the latency. Should it
    // fail, the connection works all the same.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| route(shared.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(16 << 20);
    // A connection that ends in an error was closed by the client, or is closed without an answer
    // on purpose; the log has its requests.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn route(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, NoAnswer> {
    let method = request.method();
    let ledger = shared.ledger.clone();
    match request.uri().path() {
        "/items" if method == Method::POST => post_items(shared, request.into_body())
            .await
            .map(Response::from),
        "/stats" if method == Method::GET => {
            let body = serde_json::to_string(&ledger.stats()).map_err(|_| NoAnswer)?;
            Ok(json(StatusCode::OK, body))
        }
        "/log" if method == Method::GET => {
            let until = ledger.requests();
            let pages = Pages::new(move |from| ledger.log(from, until));
            Ok(json_lines(pages.boxed_unsync()))
        }
        "/keys" if method == Method::GET => {
            let until = ledger.distinct();
            let pages = Pages::new(move |from| ledger.keys(from, until));
            Ok(json_lines(pages.boxed_unsync()))
        }
        path @ ("/items" | "/stats" | "/log" | "/keys") => {
            let allowed = if path == "/items" { "POST" } else { "GET" };
            let text = format!("{path} takes {allowed}");
            let mut response = Response::from(error(405, &text));
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allowed));
            Ok(response)
        }
        _ => {
            let text = "there are POST /items, GET /stats, GET /log and GET /keys";
            Ok(error(404, text).into())
        }
    }
}

impl From<Answer> for Response<Body> {
    fn from(answer: Answer) -> Self {
        // The options admit no status that is none.
        let status =
            StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, answer.body);
        if let Some(value) = answer.retry_after {
            response.headers_mut().insert(RETRY_AFTER, value);
        }
        response
    }
}

fn json(status: StatusCode, body: String) -> Response<Body> {
    with_type(status, "application/json", Either::Left(Full::from(body)))
}

fn json_lines(body: UnsyncBoxBody<Bytes, Infallible>) -> Response<Body> {
    with_type(StatusCode::OK, "application/x-ndjson", Either::Right(body))
}

fn with_type(status: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
