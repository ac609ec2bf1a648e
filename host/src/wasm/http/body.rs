//! The bodies of requests and responses, counted on their way.

use super::pool::Lease;
use crate::wasm::call::Call;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use wasmtime_wasi_http::{Error as HttpError, WasiBody};

/// Counts bytes for a call, if the host counts them.
#[derive(Clone)]
pub(super) struct Counter(pub(super) Option<Arc<Call>>);

impl Counter {
    pub(super) fn add(&self, bytes: usize) {
        if let Some(call) = &self.0 {
            call.count_bytes(bytes as u64);
        }
    }

    fn add_frame(&self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.add(data.len());
        } else if let Some(trailers) = frame.trailers_ref() {
            self.add(header_bytes(trailers));
        }
    }
}

/// The length of header fields as HTTP/1.1 writes them.
pub(super) fn header_bytes(headers: &http::HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum()
}

/// A request's body.
pub(super) struct RequestBody {
    pub(super) body: WasiBody,
    pub(super) counter: Counter,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.counter.add_frame(frame);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body. It holds its connection until the last byte.
pub(super) struct ResponseBody {
    incoming: Incoming,
    /// The connection, and the instance's turn.
    held: Option<(Lease, OwnedSemaphorePermit)>,
    counter: Counter,
    call: Arc<Call>,
    between: Option<Between>,
}

/// The longest time between two frames, as the guest asked for it.
struct Between {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl ResponseBody {
    pub(super) fn new(
        incoming: Incoming,
        held: (Lease, OwnedSemaphorePermit),
        counter: Counter,
        call: Arc<Call>,
        between: Option<Duration>,
    ) -> Self {
        let between = between.map(|limit| Between {
            limit,
            timer: Box::pin(sleep(limit)),
        });
        let mut body = Self {
            incoming,
            held: Some(held),
            counter,
            call,
            between,
        };
        body.release_at_end();
        body
    }

    /// Gives the connection back as soon as the last byte is here, which is before the guest knows.
    fn release_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some((lease, _)) = self.held.take()
        {
            lease.release();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        let polled = match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(polled) => polled,
            Poll::Pending => {
                if let Some(between) = &mut this.between
                    && between.timer.as_mut().poll(cx).is_ready()
                {
                    this.call.unanswered();
                    return Poll::Ready(Some(Err(HttpError::ConnectionReadTimeout)));
                }
                return Poll::Pending;
            }
        };
        if let Some(Between { limit, timer }) = &mut this.between
            && let Some(next) = Instant::now().checked_add(*limit)
        {
            timer.as_mut().reset(next);
        }
        Poll::Ready(match polled {
            Some(Ok(frame)) => {
                this.counter.add_frame(&frame);
                this.release_at_end();
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.call.unanswered();
                this.held = None;
                Some(Err(super::hyper_to_guest(&error)))
            }
            None => {
                if let Some((lease, _)) = this.held.take() {
                    lease.release();
                }
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
