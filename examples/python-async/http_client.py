"""One HTTP request and its response, over `wasi:http` of WASI 0.3."""

from urllib.parse import urlsplit

import wit_world
from answer import Response
from componentize_py_async_support import spawn
from componentize_py_async_support.streams import ByteStreamWriter
from componentize_py_types import Err, Ok
from wit_world.imports import client
from wit_world.imports.wasi_http_types import (
    ErrorCode_DestinationIpProhibited,
    ErrorCode_HttpRequestDenied,
    ErrorCode_HttpRequestUriInvalid,
    Fields,
    Method_Post,
    Request,
    Scheme_Http,
    Scheme_Https,
)
from wit_world.imports.wasi_http_types import Response as Incoming

MAX_RESPONSE = 16 << 20
"""A longer response is an error, before it fills the memory."""

CHUNK = 64 << 10


class Invalid(Exception):
    """Nobody can send such a request."""


class Denied(Exception):
    """The job does not allow it."""


class Lost(Exception):
    """No response was had; another try may have one."""


class TooLong(Exception):
    """The response is longer than `MAX_RESPONSE`."""


async def post(url: str, headers: dict[str, str], body: bytes) -> Response:
    request, writer = outgoing(url, headers | {"content-length": str(len(body))})
    # While the request is sent: a server may answer before it has read all of it.
    spawn(write(writer, body))
    try:
        response = await client.send(request)
    except Err as error:
        raise no_response(url, error.value) from error
    with response.get_headers() as fields:
        entries = fields.copy_all()
    # The first of each name.
    received = {name.lower(): value.decode("latin-1") for name, value in reversed(entries)}
    return Response(response.get_status_code(), received, await read(response))


def outgoing(url: str, headers: dict[str, str]) -> tuple[Request, ByteStreamWriter]:
    try:
        parts = urlsplit(url)
        scheme = {"http": Scheme_Http(), "https": Scheme_Https()}[parts.scheme]
        fields = Fields.from_list([(n, v.encode()) for n, v in headers.items()])
        if not parts.netloc or "@" in parts.netloc:
            raise ValueError("it names no host, or a password")
        writer, contents = wit_world.byte_stream()
        request, sent = Request.new(fields, contents, no_trailers(), None)
        with sent:
            pass
        request.set_method(Method_Post())
        request.set_scheme(scheme)
        request.set_authority(parts.netloc)
        request.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        return request, writer
    except (KeyError, ValueError, Err) as error:
        raise Invalid(f"{url!r} is not a URL that can be sent to: http://HOST/PATH") from error


def no_trailers():
    name = "result_option_wasi_http_types_fields_wasi_http_types_error_code_future"
    writer, reader = getattr(wit_world, name)(lambda: Ok(None))
    # Closed unwritten, it says what it was made with.
    with writer:
        return reader


async def write(writer: ByteStreamWriter, data: bytes) -> None:
    """What a server does not read shows in the response, or in that there is none."""
    with writer:
        await writer.write_all(data)


async def read(response: Incoming) -> bytes:
    writer, taken = wit_world.result_unit_wasi_http_types_error_code_future(lambda: Ok(None))
    with writer:
        contents, ended = Incoming.consume_body(response, taken)
    data = bytearray()
    with contents:
        while not contents.writer_dropped:
            data += await contents.read(CHUNK)
            if len(data) > MAX_RESPONSE:
                raise TooLong(f"the response is longer than {MAX_RESPONSE >> 20} MiB")
    if isinstance(await ended.read(), Err):
        raise Lost("the response broke off")
    return bytes(data)


def no_response(url: str, code: object) -> Exception:
    name = type(code).__name__.removeprefix("ErrorCode_")
    if isinstance(code, (ErrorCode_HttpRequestDenied, ErrorCode_DestinationIpProhibited)):
        return Denied(f"{url} is denied: name it in [sandbox] allow_hosts in the job")
    if isinstance(code, ErrorCode_HttpRequestUriInvalid):
        return Invalid(f"{url!r} is not a URL that can be sent to: {name}")
    return Lost(name)
