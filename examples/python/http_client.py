"""One HTTP request and its response, over `wasi:http`."""

from typing import Optional
from urllib.parse import urlsplit

from answer import Response
from componentize_py_types import Err, Ok
from wit_world.imports import outgoing_handler
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.wasi_http_types import (
    ErrorCode_DestinationIpProhibited,
    ErrorCode_HttpRequestDenied,
    ErrorCode_HttpRequestUriInvalid,
    Fields,
    FutureIncomingResponse,
    IncomingResponse,
    Method_Post,
    OutgoingBody,
    OutgoingRequest,
    Scheme_Http,
    Scheme_Https,
)

MAX_RESPONSE = 16 << 20
"""A longer response is an error, before it fills the memory."""

CHUNK = 4096
"""`blocking-write-and-flush` takes no more at once."""


class Invalid(Exception):
    """Nobody can send such a request."""


class Denied(Exception):
    """The job does not allow it."""


class Lost(Exception):
    """No response was had; another try may have one."""


class TooLong(Exception):
    """The response is longer than `MAX_RESPONSE`."""


def post(url: str, headers: dict[str, str], body: bytes) -> Response:
    request = outgoing(url, headers | {"content-length": str(len(body))})
    outgoing_body = request.body()
    try:
        future = outgoing_handler.handle(request, None)
    except Err as error:
        raise no_response(url, error.value) from error
    with future:
        write(outgoing_body, body)
        with wait(url, future) as response:
            with response.headers() as fields:
                entries = fields.entries()
            # The first of each name.
            received = {name.lower(): value.decode("latin-1") for name, value in reversed(entries)}
            return Response(response.status(), received, read(response))


def outgoing(url: str, headers: dict[str, str]) -> OutgoingRequest:
    try:
        parts = urlsplit(url)
        scheme = {"http": Scheme_Http(), "https": Scheme_Https()}[parts.scheme]
        request = OutgoingRequest(Fields.from_list([(n, v.encode()) for n, v in headers.items()]))
        request.set_method(Method_Post())
        request.set_scheme(scheme)
        request.set_authority(parts.netloc)
        request.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        if not parts.netloc or "@" in parts.netloc:
            raise ValueError("it names no host, or a password")
        return request
    except (KeyError, ValueError, Err) as error:
        raise Invalid(f"{url!r} is not a URL that can be sent to: http://HOST/PATH") from error


def write(body: OutgoingBody, data: bytes) -> None:
    """A server may answer before it has read all of it, and hang up: that shows in the response,
    or in that there is none."""
    try:
        with body.write() as stream:
            for start in range(0, len(data), CHUNK):
                stream.blocking_write_and_flush(data[start : start + CHUNK])
        OutgoingBody.finish(body, None)
    except Err:
        body.__exit__(None, None, None)


def wait(url: str, future: FutureIncomingResponse) -> IncomingResponse:
    with future.subscribe() as ready:
        ready.block()
    match future.get():
        case Ok(Ok(response)):
            return response
        case Ok(Err(code)):
            raise no_response(url, code)
        case _:
            raise Lost("the response is gone")


def read(response: IncomingResponse) -> bytes:
    data = bytearray()
    with response.consume() as body, body.stream() as stream:
        while True:
            try:
                data += stream.blocking_read(64 << 10)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return bytes(data)
                raise Lost("the response broke off") from error
            if len(data) > MAX_RESPONSE:
                raise TooLong(f"the response is longer than {MAX_RESPONSE >> 20} MiB")


def no_response(url: str, code: Optional[object]) -> Exception:
    name = type(code).__name__.removeprefix("ErrorCode_")
    if isinstance(code, (ErrorCode_HttpRequestDenied, ErrorCode_DestinationIpProhibited)):
        return Denied(f"{url} is denied: name it in [sandbox] allow_hosts in the job")
    if isinstance(code, ErrorCode_HttpRequestUriInvalid):
        return Invalid(f"{url!r} is not a URL that can be sent to: {name}")
    return Lost(name)
