"""What the server's answer means for a batch. Asks nothing of the host, so it is tested anywhere.

Server                        Answer
----------------------------  --------------------------------------------------------------------
207                           written, but for the items whose own status is not 2xx; 429 and 5xx
                              are sent again
other 2xx                     `written` of the body if it has one, else all items
401, 403                      fatal
413                           too large
429; 503 with Retry-After     rate-limited
other 5xx, a lost connection  failed, retryable
anything else                 failed, not retryable
"""

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Optional

from componentize_py_types import Err
from wit_world.imports.batchgate_batch_types import (
    BatchError_Failed,
    BatchError_Fatal,
    BatchError_Partial,
    BatchError_RateLimited,
    BatchError_TooLarge,
    Failure,
    Item,
    ItemFailure,
    RateLimit,
)

U64_MAX = 2**64 - 1


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    """By name in lower case; the first of each."""
    body: bytes


def answer(items: list[Item], response: Response) -> int:
    """How many items were written; otherwise raises an `Err`."""
    match response.status:
        case 207:
            return each(items, response)
        case status if 200 <= status <= 299:
            written = field(response, "written")
            return written if is_count(written) else len(items)
        case 401 | 403:
            raise Err(BatchError_Fatal(describe(response)))
        case 413:
            raise Err(BatchError_TooLarge(describe(response)))
        case 429:
            raise Err(BatchError_RateLimited(RateLimit(describe(response), retry_after_ms(response))))
        case 503 if (wait := retry_after_ms(response)) is not None:
            raise Err(BatchError_RateLimited(RateLimit(describe(response), wait)))
        case status:
            raise Err(BatchError_Failed(Failure(describe(response), 500 <= status <= 599)))


def each(items: list[Item], response: Response) -> int:
    """A status an item."""
    statuses = field(response, "items")
    if not isinstance(statuses, list) or not all(map(is_status, statuses)):
        raise Err(BatchError_Failed(Failure("HTTP 207 without a list of statuses", False)))
    by_key = {status["key"]: status for status in statuses}
    failures = []
    for position, item in enumerate(items):
        # By position first: a batch may hold two items of the same key.
        found = statuses[position] if position < len(statuses) else None
        if found is None or found["key"] != item.key:
            found = by_key.get(item.key)
        if found is None:
            failures.append(ItemFailure(item.index, "the server gave no status for it", True))
        elif not 200 <= (code := found["status"]) <= 299:
            message = f"HTTP {code}: {found.get('message', '')}"
            failures.append(ItemFailure(item.index, message, code == 429 or 500 <= code <= 599))
    if failures:
        raise Err(BatchError_Partial(failures))
    return len(items)


def retry_after_ms(response: Response) -> Optional[int]:
    """How long Retry-After asks to wait: seconds, or until a date, which is measured from the
    response's own Date if there is one."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        # No clock counts so many seconds; Python's own limit is on digits.
        return min(int(value) * 1000, U64_MAX) if len(value) <= 20 else U64_MAX
    until = http_date(value)
    if until is None:
        return None
    now = http_date(response.headers.get("date", "")) or datetime.now(timezone.utc)
    return max(0, round((until - now).total_seconds() * 1000))


def http_date(text: str) -> Optional[datetime]:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=timezone.utc)


def describe(response: Response) -> str:
    """The status, and what the body says: its `error` if it is JSON with one, else its start."""
    error = field(response, "error")
    text = error if isinstance(error, str) else response.body.decode("utf-8", "replace")
    start = text.strip()[:200]
    return f"HTTP {response.status}: {start}" if start else f"HTTP {response.status}"


def field(response: Response, name: str) -> Any:
    """A field of a JSON object, None where there is none."""
    try:
        return json.loads(response.body).get(name)
    except (ValueError, AttributeError, RecursionError):
        return None


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= U64_MAX


def is_status(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("key"), str)
        and type(value.get("status")) is int
    )
