//! Sends a request through the host, over WASI 0.3.
//!
//! As in the sync world, a response ends the writing of the request.

use super::{Error, MAX_RESPONSE_BYTES, Request, Response, Target};
use crate::bindings::http::wasi::http::client;
use crate::bindings::http::wasi::http::types::{
    ErrorCode, Fields, Method, Request as Outgoing, Response as Incoming, Scheme,
};
use crate::bindings::http::{wit_future, wit_stream};
use std::future::{Future, poll_fn};
use std::pin::pin;
use wit_bindgen::{StreamReader, StreamResult};

/// One `read` returns at most this much.
const CHUNK: usize = 64 << 10;

pub(super) async fn send(request: &Request, target: &Target<'_>) -> Result<Response, Error> {
    let (mut writer, body) = wit_stream::new::<u8>();
    let outgoing = outgoing(request, target, body)?;
    let bytes = request.body.clone();
    let mut writing = Some(Box::pin(async move {
        // A failure to write is no reason not to read the response.
        let _ = writer.write_all(bytes).await;
    }));
    let mut sending = pin!(client::send(outgoing));
    let sent = poll_fn(|cx| {
        let written = writing
            .as_mut()
            .is_some_and(|writing| writing.as_mut().poll(cx).is_ready());
        let sent = sending.as_mut().poll(cx);
        if written || sent.is_ready() {
            // With the writer goes its end of the stream.
            writing = None;
        }
        sent
    })
    .await;
    let response = sent.map_err(|code| error(request, &code))?;
    let status = response.get_status_code();
    let headers = response.get_headers().copy_all();
    let headers = headers
        .into_iter()
        .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
        .collect();
    Ok(Response {
        status,
        headers,
        body: read(response).await?,
    })
}

fn outgoing(
    request: &Request,
    target: &Target<'_>,
    body: StreamReader<u8>,
) -> Result<Outgoing, Error> {
    let fields = Fields::new();
    for (name, value) in &request.headers {
        fields
            .append(name, value.as_bytes())
            .map_err(|error| invalid(request, &format!("header {name:?}: {error:?}")))?;
    }
    let length = request.body.len().to_string();
    fields
        .set("content-length", &[length.into_bytes()])
        .map_err(|error| invalid(request, &format!("header content-length: {error:?}")))?;
    // Dropped, its writer says that there are none.
    let (_, trailers) = wit_future::new(|| Ok(None));
    let (outgoing, _sent) = Outgoing::new(fields, Some(body), trailers, None);
    let scheme = if target.https {
        Scheme::Https
    } else {
        Scheme::Http
    };
    outgoing
        .set_method(&method(&request.method))
        .map_err(|()| invalid(request, "method"))?;
    outgoing
        .set_scheme(Some(&scheme))
        .map_err(|()| invalid(request, "scheme"))?;
    outgoing
        .set_authority(Some(target.authority))
        .map_err(|()| invalid(request, "host"))?;
    outgoing
        .set_path_with_query(Some(&target.path))
        .map_err(|()| invalid(request, "path"))?;
    Ok(outgoing)
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        other => Method::Other(other.to_owned()),
    }
}

async fn read(response: Incoming) -> Result<Vec<u8>, Error> {
    // Dropped, its writer says that the response was taken well.
    let (_, taken) = wit_future::new(|| Ok(()));
    let (mut stream, ended) = Incoming::consume_body(response, taken);
    let mut bytes = Vec::new();
    loop {
        let (result, chunk) = stream.read(Vec::with_capacity(CHUNK)).await;
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_RESPONSE_BYTES {
            return Err(Error::TooLong);
        }
        if !matches!(result, StreamResult::Complete(_)) {
            break;
        }
    }
    drop(stream);
    match ended.await {
        Ok(_) => Ok(bytes),
        Err(code) => Err(Error::Connection(format!(
            "the response broke off: {code:?}"
        ))),
    }
}

fn invalid(request: &Request, what: &str) -> Error {
    Error::Invalid(format!("{} {:?}: {what}", request.method, request.url))
}

fn error(request: &Request, code: &ErrorCode) -> Error {
    match code {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => {
            Error::Denied(request.url.clone())
        }
        ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestHeaderSize(_)
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestTrailerSize(_)
        | ErrorCode::HttpRequestTrailerSectionSize(_)
        | ErrorCode::HttpRequestBodySize(_) => invalid(request, &format!("{code:?}")),
        _ => Error::Connection(format!("{code:?}")),
    }
}
