import asyncio
import sys
import unittest
from unittest import mock

# A component has a loop of its own, which is not for here: asyncio's runs the tests.
for module in ("", ".futures", ".streams"):
    sys.modules[f"componentize_py_async_support{module}"] = mock.MagicMock()

import app
import http_client
from answer import Response
from componentize_py_types import Err
from wit_world.imports.batchgate_batch_types import (
    BatchError_Failed as Failed,
    BatchError_Fatal as Fatal,
    Failure,
    Item,
)

URL = "http://api.test/items"
ITEMS = [Item(10, "ü", b'{"q":"\\""}'), Item(11, "2", b"\xff")]


def processed(post, url=URL):
    """What the batch comes to when a request ends so: a count, or the error."""
    info = mock.Mock(idempotency_key="a key")
    with (
        mock.patch("app.store.get", return_value=url),
        mock.patch("app.call.info", return_value=info),
        mock.patch("app.http_client.post", post),
    ):
        try:
            return asyncio.run(app.AsyncProcessor().process_batch(ITEMS))
        except Err as error:
            return error.value


class Calls(unittest.TestCase):
    def test_key_and_data_are_posted_as_json(self):
        post = mock.AsyncMock(return_value=Response(200, {}, b'{"written": 1}'))
        self.assertEqual(processed(post), 1)
        url, headers, body = post.await_args.args
        self.assertEqual(url, URL)
        self.assertEqual(headers["idempotency-key"], "a key")
        expected = '[{"key": "ü", "data": "{\\"q\\":\\"\\\\\\"\\"}"}, {"key": "2", "data": "\ufffd"}]'
        self.assertEqual(body.decode(), expected)

    def test_a_request_that_fails_says_what_it_means(self):
        for error, expected in [
            (http_client.Denied("denied"), Fatal("denied")),
            (http_client.Invalid("invalid"), Fatal("invalid")),
            (http_client.Lost("reset"), Failed(Failure("no response: reset", True))),
            (http_client.TooLong("too long"), Failed(Failure("too long", False))),
        ]:
            self.assertEqual(processed(mock.AsyncMock(side_effect=error)), expected)

    def test_a_missing_url_is_fatal(self):
        self.assertIsInstance(processed(mock.AsyncMock(), url=None), Fatal)


if __name__ == "__main__":
    unittest.main()
