"""The Python peer's side of the benchmark: runs in an environment with adaptive-concurrency.

    peer.py threads|asyncio|usage WORKERS ITEMS        calls a second of a call that does nothing
    peer.py in-flight WORKERS CALLS URL                so many calls at once, of one item each
    peer.py today DB                                   what has been done today, of a usage log

Prints one JSON object.
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from adaptive_concurrency import AdaptiveConfig, UsageLog, arun_adaptive, run_adaptive

BATCH = 50


def config(workers, **more):
    return AdaptiveConfig(workers=workers, max_workers=workers, batch_size=more.pop("batch_size", BATCH), **more)


def noop(how, workers, count):
    items = ["x" * 100] * count
    if how == "asyncio":

        async def call(batch):
            return True, len(batch), ""

        start = time.perf_counter()
        written = asyncio.run(arun_adaptive(items, call, config(workers)))
    else:
        more = {}
        if how == "usage":
            more["usage_log"] = UsageLog(Path(tempfile.mkdtemp()) / "usage.sqlite")
        start = time.perf_counter()
        written = run_adaptive(items, lambda batch: (True, len(batch), ""), config(workers, **more))
    seconds = time.perf_counter() - start
    assert written == count
    return {"seconds": seconds, "calls_per_second": count / BATCH / seconds}


def in_flight(workers, calls, url):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    target = urlsplit(url)
    idle = []

    async def call(batch):
        reader, writer = idle.pop() if idle else await asyncio.open_connection(target.hostname, target.port)
        body = json.dumps([{"key": str(item), "data": {}} for item in batch]).encode()
        head = f"POST {target.path} HTTP/1.1\r\nhost: {target.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        idle.append((reader, writer))
        ok = answer.startswith(b"HTTP/1.1 200")
        return ok, len(batch) if ok else 0, "" if ok else answer.split(b"\r\n")[0].decode()

    start = time.perf_counter()
    written = asyncio.run(arun_adaptive(list(range(calls)), call, config(workers, batch_size=1)))
    seconds = time.perf_counter() - start
    assert written == calls, written
    return {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def today(db):
    log = UsageLog(Path(db))
    start = time.perf_counter()
    count = log.requests_today()
    return {"seconds": time.perf_counter() - start, "count": count}


def main():
    how, *rest = sys.argv[1:]
    if how == "today":
        result = today(rest[0])
    elif how == "in-flight":
        result = in_flight(int(rest[0]), int(rest[1]), rest[2])
    else:
        result = noop(how, int(rest[0]), int(rest[1]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
