//! Sends a request through the host.
//!
//! A server may answer before it has read the whole request (413, say), and then close or
//! read no more: a failure to write is no reason not to read the response, and a response
//! ends the writing.

use super::{Error, MAX_RESPONSE_BYTES, Request, Response, Target};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, Scheme,
};
use wasip2::io::poll::poll;
use wasip2::io::streams::{OutputStream, StreamError};

/// One `read` returns at most this much.
const CHUNK: u64 = 64 << 10;

pub(super) fn send(request: &Request, target: &Target<'_>) -> Result<Response, Error> {
    let outgoing = outgoing(request, target)?;
    let body = outgoing.body().map_err(|()| invalid(request, "body"))?;
    let answer = outgoing_handler::handle(outgoing, None).map_err(|code| error(request, &code))?;
    write(body, &request.body, &answer);
    let response = loop {
        match answer.get() {
            Some(Ok(result)) => break result.map_err(|code| error(request, &code))?,
            // The host gives it once, and it is taken once.
            Some(Err(())) => return Err(Error::Connection("the response is gone".into())),
            None => answer.subscribe().block(),
        }
    };
    let status = response.status();
    let headers = response.headers().entries();
    let headers = headers
        .into_iter()
        .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
        .collect();
    Ok(Response {
        status,
        headers,
        body: read(&response)?,
    })
}

fn outgoing(request: &Request, target: &Target<'_>) -> Result<OutgoingRequest, Error> {
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
    let outgoing = OutgoingRequest::new(fields);
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

/// Errors show in the response, or in that there is none.
fn write(body: OutgoingBody, bytes: &[u8], answer: &FutureIncomingResponse) {
    let Ok(stream) = body.write() else { return };
    let whole = write_all(&stream, bytes, answer);
    drop(stream);
    if matches!(whole, Ok(true)) {
        // Fails where the server has hung up, which the response tells better.
        let _ = OutgoingBody::finish(body, None);
    }
}

/// Whether all of it was written before the answer came.
fn write_all(
    stream: &OutputStream,
    mut bytes: &[u8],
    answer: &FutureIncomingResponse,
) -> Result<bool, StreamError> {
    let (room_again, answered) = (stream.subscribe(), answer.subscribe());
    while !bytes.is_empty() {
        let room = usize::try_from(stream.check_write()?).unwrap_or(usize::MAX);
        if room == 0 {
            poll(&[&room_again, &answered]);
            if answered.ready() {
                return Ok(false);
            }
            continue;
        }
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        stream.write(now)?;
        bytes = later;
    }
    stream.flush()?;
    Ok(true)
}

fn read(response: &IncomingResponse) -> Result<Vec<u8>, Error> {
    let lost = |why: &str| Error::Connection(format!("the response broke off: {why}"));
    let body = response.consume().map_err(|()| lost("no body"))?;
    let stream = body.stream().map_err(|()| lost("no body"))?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(CHUNK) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(lost(&error.to_debug_string()));
            }
        }
        if bytes.len() > MAX_RESPONSE_BYTES {
            return Err(Error::TooLong);
        }
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
