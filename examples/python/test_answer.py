import json
import unittest

from answer import Response, answer
from componentize_py_types import Err
from wit_world.imports.batchgate_batch_types import (
    BatchError_Failed as Failed,
    BatchError_Fatal as Fatal,
    BatchError_Partial as Partial,
    BatchError_RateLimited as RateLimited,
    BatchError_TooLarge as TooLarge,
    Failure,
    Item,
    ItemFailure,
    RateLimit,
)

ITEMS = [Item(10 + position, key, b"") for position, key in enumerate("abc")]


def answered(status, headers={}, body=b"", items=ITEMS):
    """What a batch comes to when the server answers so: a count, or the error."""
    try:
        return answer(items, Response(status, headers, body))
    except Err as error:
        return error.value


class Answers(unittest.TestCase):
    def test_successes_say_how_many_were_written(self):
        for status, body, expected in [
            (200, b'{"written": 2}', 2),
            (200, b'{"written": 0}', 0),
            (201, b"", 3),
            (202, b"accepted", 3),
            (204, b"null", 3),
            (200, b'{"written": -1}', 3),
            (200, b'{"written": true}', 3),
            (200, b"\xff", 3),
        ]:
            self.assertEqual(answered(status, {}, body), expected, (status, body))

    def test_statuses_map_to_the_contract(self):
        def retry(value):
            return {"retry-after": value}

        date, later = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:47 GMT"
        for status, headers, body, expected in [
            (413, {}, b"", TooLarge("HTTP 413")),
            (401, {}, b"who?", Fatal("HTTP 401: who?")),
            (403, {}, b"", Fatal("HTTP 403")),
            (422, {}, b'{"error":"row k2: bad"}', Failed(Failure("HTTP 422: row k2: bad", False))),
            (404, {}, b"\n gone \n", Failed(Failure("HTTP 404: gone", False))),
            (302, {}, b"", Failed(Failure("HTTP 302", False))),
            (500, {}, b"", Failed(Failure("HTTP 500", True))),
            (503, {}, b"", Failed(Failure("HTTP 503", True))),
            (503, retry("soon"), b"", Failed(Failure("HTTP 503", True))),
            (503, retry("2"), b"", RateLimited(RateLimit("HTTP 503", 2000))),
            (429, {}, b"", RateLimited(RateLimit("HTTP 429", None))),
            (429, retry("0"), b"", RateLimited(RateLimit("HTTP 429", 0))),
            (429, retry("-1"), b"", RateLimited(RateLimit("HTTP 429", None))),
            (429, retry("9" * 5000), b"", RateLimited(RateLimit("HTTP 429", 2**64 - 1))),
            (429, {"date": date} | retry(later), b"", RateLimited(RateLimit("HTTP 429", 10_000))),
            (429, retry(date), b"", RateLimited(RateLimit("HTTP 429", 0))),
        ]:
            self.assertEqual(answered(status, headers, body), expected, (status, headers))
        long = answered(400, {}, ("é" * 5000).encode())
        self.assertEqual(long.value.message, "HTTP 400: " + "é" * 200)

    def test_a_207_lists_the_items_that_failed(self):
        def statuses(*items):
            fields = ("key", "status", "message")
            return json.dumps({"items": [dict(zip(fields, item)) for item in items]}).encode()

        self.assertEqual(answered(207, {}, statuses(("a", 200), ("b", 201), ("c", 200))), 3)
        self.assertEqual(
            answered(207, {}, statuses(("a", 422, "bad row"), ("b", 200), ("c", 503))),
            Partial([
                ItemFailure(10, "HTTP 422: bad row", False),
                ItemFailure(12, "HTTP 503: ", True),
            ]),
        )
        # Another order, and one left out.
        self.assertEqual(
            answered(207, {}, statuses(("c", 429), ("a", 200))),
            Partial([
                ItemFailure(11, "the server gave no status for it", True),
                ItemFailure(12, "HTTP 429: ", True),
            ]),
        )
        for body in [b"", b"[]", b"null", b'{"items":[{"key":1}]}', b'{"items":[null]}']:
            error = answered(207, {}, body)
            self.assertTrue(error.value.message.startswith("HTTP 207 without"), body)

    def test_two_items_of_one_key_have_their_own_status(self):
        twins = [Item(0, "k", b""), Item(1, "k", b"")]
        body = b'{"items":[{"key":"k","status":200},{"key":"k","status":422,"message":"no"}]}'
        self.assertEqual(answered(207, {}, body, twins), Partial([ItemFailure(1, "HTTP 422: no", False)]))


if __name__ == "__main__":
    unittest.main()
