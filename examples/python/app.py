"""Posts each batch to `api_url` as a JSON array of {"key": …, "data": …}, and says what the
server's status means for it (the table in answer.py).

`data` is the item's data as text; what is not UTF-8 in it arrives as U+FFFD.

Imports stand at the top of a module: the component holds what was imported when it was built.
"""

import json

import answer
import http_client
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import call, store
from wit_world.imports.batchgate_batch_types import (
    BatchError_Failed,
    BatchError_Fatal,
    Failure,
    Item,
)


class Processor(exports.Processor):
    def process_batch(self, items: list[Item]) -> int:
        """Returns how many items were written, or raises an `Err`.

        Any other exception would end the instance, and leave the fate of the batch unknown.
        """
        url = api_url()
        headers = {
            "content-type": "application/json",
            "idempotency-key": call.info().idempotency_key,
        }
        response = send(url, headers, body(items))
        return answer.answer(items, response)


def api_url() -> str:
    url = store.get("api_url")
    if url is None:
        raise Err(BatchError_Fatal("api_url is not set: add it to [config] in the job"))
    return url


def body(items: list[Item]) -> bytes:
    rows = [{"key": item.key, "data": item.data.decode("utf-8", "replace")} for item in items]
    return json.dumps(rows, ensure_ascii=False).encode()


def send(url: str, headers: dict[str, str], body: bytes) -> answer.Response:
    try:
        return http_client.post(url, headers, body)
    except (http_client.Denied, http_client.Invalid) as error:
        # The URL is the same for every call: none would fare better.
        raise Err(BatchError_Fatal(str(error))) from error
    except http_client.Lost as error:
        raise Err(BatchError_Failed(Failure(f"no response: {error}", True))) from error
    except http_client.TooLong as error:
        raise Err(BatchError_Failed(Failure(str(error), False))) from error
