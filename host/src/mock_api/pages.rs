//! A response body of JSON lines that is made a page at a time, so that a long log needs no memory
//! of its size.

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The lines; a page is what the function gives for the number of rows already given. An empty
/// page ends them.
pub struct Pages<F> {
    page: F,
    given: usize,
}

impl<F> Pages<F> {
    /// Starts at the first row.
    pub fn new(page: F) -> Self {
        Self { page, given: 0 }
    }
}

impl<F, R> Body for Pages<F>
where
    F: Fn(usize) -> Vec<R> + Unpin,
    R: Serialize,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let rows = (self.page)(self.given);
        if rows.is_empty() {
            return Poll::Ready(None);
        }
        self.given += rows.len();
        let mut text = Vec::new();
        for row in &rows {
            serde_json::to_writer(&mut text, row)
                .expect("a row is plain data, and memory does not fail");
            text.push(b'\n');
        }
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}
