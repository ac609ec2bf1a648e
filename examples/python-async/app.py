"""The uploader of ../python for the async world: one instance has many requests under way at once.

What is posted, and what the server's answer means, is that example's own file, answer.py.

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


class AsyncProcessor(exports.AsyncProcessor):
    async def process_batch(self, items: list[Item]) -> int:
        """Returns how many items were written, or raises an `Err`.

        Any other exception would end the instance, with all calls that it has in flight, and leave the fate of
        their batches unknown.
        """
        url = api_url()
        headers = {
            "content-type": "application/json",
            "idempotency-key": call.info().idempotency_key,
        }
        response = await send(url, headers, body(items))
        return answer.answer(items, response)


def api_url() -> str:
    url = store.get("api_url")
    if url is None:
        raise Err(BatchError_Fatal("api_url is not set: add it to [config] in the job"))
    return url


def body(items: list[Item]) -> bytes:
    rows = [{"key": item.key, "data": item.data.decode("utf-8", "replace")} for item in items]
    return json.dumps(rows, ensure_ascii=False).encode()


async def send(url: str, headers: dict[str, str], body: bytes) -> answer.Response:
    try:
        return await http_client.post(url, headers, body)
    except (http_client.Denied, http_client.Invalid) as error:
        # The URL is the same for every call: none would fare better.
        raise Err(BatchError_Fatal(str(error))) from error
    except http_client.Lost as error:
        raise Err(BatchError_Failed(Failure(f"no response: {error}", True))) from error
    except http_client.TooLong as error:
        raise Err(BatchError_Failed(Failure(str(error), False))) from error
