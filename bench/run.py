"""Measures Batchgate beside its Python peer, both in one run, and writes the table of docs/performance.md and of the README.

    run.py [--rounds N] [--only NAME]... [--quick] [--write]

Each round runs both sides of a comparison in turn. The figures are medians of the rounds, with
their range. Without --write the table is printed and no file is touched; --quick takes a tenth
of the items, to see that all of it works.
"""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = ROOT / "target"
BATCHGATE = TARGET / "release" / "batchgate"
GUESTS = TARGET / "guests"
# The pages that hold the table.
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
CARGO = shutil.which("cargo") or Path.home() / ".cargo/bin/cargo"

sys.path.insert(0, str(ROOT / "tools"))
from reference import REFERENCE, python_with_reference


def peer_python():
    return python_with_reference(TARGET / "bench")


def peer(*args):
    done = subprocess.run([peer_python(), HERE / "peer.py", *map(str, args)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


class Ran:
    """A run of batchgate to its end."""

    def __init__(self, command, stdin=None):
        start = time.perf_counter()
        log = tempfile.TemporaryFile()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=stdin)
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.wall = time.perf_counter() - start
        # No less than this process ever had, which therefore holds nothing large.
        self.peak_mb = usage.ru_maxrss / 1024
        self.cpu = usage.ru_utime + usage.ru_stime
        if child.returncode != 0:
            log.seek(0)
            raise SystemExit(f"{command}: exit code {child.returncode}: {log.read()[-2000:].decode()}{out[-500:]}")
        self.summary = json.loads(out.splitlines()[-1]) if out.strip().startswith(b"{") else {}


def job(folder, component, source, **tables):
    """A job file; `tables` are lines of TOML a table."""
    text = f'component = "{component}"\ninput = "{source}"\n' + tables.pop("top", "")
    for name, lines in tables.items():
        text += f"[{name}]\n{lines}\n"
    path = Path(folder) / "job.toml"
    path.write_text(text)
    return path


def calls_per_second(path):
    """Over three runs, as one takes a tenth of a second."""
    done = [Ran([BATCHGATE, "run", path, "--json"]).summary for _ in range(3)]
    return sum(summary["calls"] for summary in done) / sum(summary["elapsed_seconds"] for summary in done)


def cargo_bench(name):
    """What a benchmark of the host's own prints."""
    command = [CARGO, "bench", "--locked", "-p", "batchgate", "--bench", name]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


class MockApi:
    def __init__(self, *options):
        self.child = subprocess.Popen([BATCHGATE, "mock-api", *options], stdout=subprocess.PIPE, text=True)
        self.url = self.child.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()

    def uploads(self):
        return {"sandbox": f'allow_hosts = ["{self.url}"]', "config": f'api_url = "{self.url}/items"'}


class Figures:
    """Samples of one figure."""

    def __init__(self, unit, digits=0):
        self.unit, self.digits, self.samples = unit, digits, []

    def add(self, value):
        self.samples.append(value)

    @property
    def median(self):
        return statistics.median(self.samples)

    def __str__(self):
        show = lambda value: f"{value:,.{self.digits}f}"
        low, high = min(self.samples), max(self.samples)
        spread = "" if len(self.samples) == 1 else f" ({show(low)} to {show(high)})"
        return f"{show(self.median)} {self.unit}{spread}"


class Bench:
    def __init__(self, rounds, quick):
        self.rounds, self.scale = rounds, 10 if quick else 1
        self.rows = []

    def row(self, what, ours, theirs="", ratio="", aim=""):
        self.rows.append((what, str(ours), str(theirs), ratio, aim))
        print(" | ".join(self.rows[-1]), flush=True)

    # No-op calls: the cost of the host itself.
    def noop(self):
        count = 500_000 // self.scale
        with tempfile.TemporaryDirectory() as folder:
            with open(Path(folder) / "in.txt", "w") as out:
                for _ in range(0, count, 1000):
                    out.write(("x" * 100 + "\n") * 1000)
            for workers in (8, 32):
                path = job(folder, GUESTS / "noop.wasm", "in.txt", top='format = "lines"\n',
                           pool=f"workers = {workers}\nbatch_size = 50", adaptive=f"max_workers = {workers}")
                ours, threads, coroutines = (Figures("calls/s") for _ in range(3))
                for _ in range(self.rounds):
                    ours.add(calls_per_second(path))
                    threads.add(peer("threads", workers, count)["calls_per_second"])
                    coroutines.add(peer("asyncio", workers, count)["calls_per_second"])
                best = max(threads, coroutines, key=lambda figures: figures.median)
                self.row(f"no-op plugin, batches of 50, adaptive, {workers} workers", ours,
                         f"threads {threads}; asyncio {coroutines}", f"{ours.median / best.median:.1f}x", "2x, aiming at 3x")
            path = job(folder, GUESTS / "noop.wasm", "in.txt", top='format = "lines"\n',
                       pool="workers = 8\nbatch_size = 50", adaptive="max_workers = 8", usage='db = "usage.sqlite"')
            ours, theirs = Figures("calls/s"), Figures("calls/s")
            for _ in range(self.rounds):
                for old in Path(folder).glob("usage.sqlite*"):
                    old.unlink()
                ours.add(calls_per_second(path))
                theirs.add(peer("usage", 8, count // 10)["calls_per_second"])
            self.row("the same with the usage log, 8 workers", ours, theirs, f"{ours.median / theirs.median:.0f}x", "20x")

    # What the sandbox costs a call, and its limits alone.
    def price(self):
        price, copy, limits = Figures("us", 1), Figures("us", 1), Figures("%", 1)
        thousand = Figures("times", 2)
        for _ in range(self.rounds):
            told = cargo_bench("price")
            price.add(float(re.search(r"^50 items.* costs ([\d.]+) us", told, re.M)[1]))
            copy.add(float(re.search(r"^1000 items.* an item ([\d.]+) us", told, re.M)[1]))
            thousand.add(float(re.search(r"^1000 items.* ([\d.]+) times", told, re.M)[1]))
            limits.add(float(re.search(r"^ *50 .*us: ([-+\d.]+) %", cargo_bench("sandbox"), re.M)[1]))
        self.row("a component instead of a native function, 50 items a call", f"{price} more", "", "", "15 us")
        self.row("the same of 1,000 items, beside a native copy with two allocations an item", thousand, "", f"copy: {copy}", "2 times")
        self.row("limits on beside off, 50 items a call", f"{limits} more", "", "", "10 %")

    # Many slow calls at once.
    def in_flight(self):
        workers = 10_000 // self.scale
        calls = workers * 4
        ideal = calls / workers * 2.0
        with MockApi("--overhead-ms", "2000", "--per-item-ms", "0") as api, tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "in.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(calls)))
            for name in ("rust", "rust-async"):
                if not (GUESTS / f"{name}.wasm").exists():
                    continue
                tables = api.uploads()
                if name == "rust-async":
                    tables["sandbox"] += "\ncalls_per_instance = 1000"
                path = job(folder, GUESTS / f"{name}.wasm", "in.csv", top='key = "id"\n',
                           pool=f"workers = {workers}\nbatch_size = 1", **tables)
                seconds, peak = Figures("s", 1), Figures("MB")
                for _ in range(self.rounds):
                    done = Ran([BATCHGATE, "run", path, "--fixed", "--json"])
                    seconds.add(done.summary["elapsed_seconds"])
                    peak.add(done.peak_mb)
                aim = "800 MB" if name == "rust" else "300 MB"
                self.row(f"{workers:,} calls in flight, {name}: time for {calls:,} calls of 2 s (ideal {ideal:.0f} s)", seconds,
                         "", f"{seconds.median / ideal:.2f} of ideal", "1.15")
                self.row(f"{workers:,} calls in flight, {name}: peak resident memory", peak, "", "", aim)
            theirs = peer("in-flight", workers, calls, f"{api.url}/items")
            self.row(f"{workers:,} calls in flight, the peer's asyncio runner", "", f"{theirs['seconds']:.1f} s, {theirs['peak_mb']:.0f} MB",
                     f"{theirs['seconds'] / ideal:.2f} of ideal")

    # A large input.
    def input(self):
        rows = 10_000_000 // self.scale
        with tempfile.TemporaryDirectory(dir=TARGET) as folder:
            with open(Path(folder) / "in.csv", "w") as out:
                out.write("id,name,note\n")
                for start in range(0, rows, 10_000):
                    out.write("".join(f'{n},"name of row {n}",{"x" * 70}\n' for n in range(start, start + 10_000)))
            size = (Path(folder) / "in.csv").stat().st_size
            path = job(folder, GUESTS / "noop.wasm", "in.csv", pool="workers = 8\nbatch_size = 500", adaptive="max_workers = 8")
            read = Figures("items/s")
            for _ in range(self.rounds):
                read.add(rows / Ran([BATCHGATE, "run", path, "--dry-run", "--json"]).wall)
            self.row(f"CSV source alone, {rows:,} rows, {size / 1e9:.2f} GB", read, "", "", "1,000,000 items/s")
            done = Ran([BATCHGATE, "run", path, "--json"])
            self.row("the same rows through the no-op plugin: peak resident memory", f"{done.peak_mb:.0f} MB", "", "", "120 MB")

    # From the start of the process to the first request.
    def start(self):
        for name, aim in (("rust", "60 ms"), ("python", "250 ms")):
            first = Figures("ms")
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "in.csv").write_text("id\n1\n")
                for turn in range(self.rounds + 1):
                    listener = socket.create_server(("127.0.0.1", 0))
                    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                    came = []
                    server = threading.Thread(target=answer_one, args=(listener, came))
                    server.start()
                    path = job(folder, GUESTS / f"{name}.wasm", "in.csv", top='key = "id"\n', sandbox=f'allow_hosts = ["{url}"]',
                               config=f'api_url = "{url}/items"')
                    begun = time.perf_counter()
                    Ran([BATCHGATE, "run", path, "--json", "--cache-dir", Path(folder) / "cache"])
                    server.join()
                    if turn > 0:  # The first one compiles.
                        first.add((came[0] - begun) * 1000)
            self.row(f"from start to the first request, compiled before, {name} plugin", first, "", "", aim)

    # Cost as work grows. The rate is that of the run, from its first look at the input to its last call; a short run is
    # done several times a round, so that each figure stands for as many seconds as it can, and all sizes in turn.
    def growth(self):
        sizes = {1_000_000: 5, 10_000_000: 2, 100_000_000: 1}
        sizes = {rows // self.scale: runs for rows, runs in sizes.items()}
        rates = {rows: Figures("items/s") for rows in sizes}
        with tempfile.TemporaryDirectory() as folder:
            path = job(folder, GUESTS / "noop.wasm", "-", top='format = "lines"\n', pool="workers = 8\nbatch_size = 500",
                       adaptive="max_workers = 8")
            for turn in range(self.rounds):
                for rows, runs in sizes.items():
                    if rows == max(sizes) and turn >= 2:
                        continue
                    for _ in range(runs):
                        # Lines of the same length, whatever their number.
                        source = subprocess.Popen(["seq", str(10**9), str(10**9 + rows - 1)], stdout=subprocess.PIPE)
                        done = Ran([BATCHGATE, "run", path, "--fixed", "--json"], stdin=source.stdout)
                        source.stdout.close()
                        source.wait()
                        rates[rows].add(done.summary["items"] / done.summary["elapsed_seconds"])
        for rows, figures in rates.items():
            self.row(f"{rows:,} lines through the no-op plugin", figures)
        medians = [figures.median for figures in rates.values()]
        self.row("slowest of these to fastest", "", "", f"{(1 - min(medians) / max(medians)) * 100:.0f} % less", "10 %")

    # A long usage log.
    def usage(self):
        rows = 10_000_000 // self.scale
        with tempfile.TemporaryDirectory(dir=TARGET) as folder:
            db = Path(folder) / "usage.sqlite"
            peer("usage", 1, 50)
            subprocess.run([peer_python(), "-c", f"from adaptive_concurrency import UsageLog; UsageLog(__import__('pathlib').Path({str(db)!r})).close()"], check=True)
            now = time.time()
            connection = sqlite3.connect(db)
            columns = [row[1] for row in connection.execute("PRAGMA table_info(requests)") if row[1] != "id"]
            values = {"ts": None, "label": "bench", "workers": 8, "batch_size": 50, "n_items": 50, "elapsed_seconds": 0.1,
                      "outcome": "ok", "bytes": 1000}
            stamp = next(name for name in columns if name in ("ts", "timestamp"))
            row = [values.get(name) for name in columns]
            place = columns.index(stamp)
            def all_rows():
                for n in range(rows):
                    row[place] = now - n * 0.0005
                    yield row
            marks = ",".join("?" * len(columns))
            connection.execute("PRAGMA synchronous=OFF")
            connection.executemany(f"INSERT INTO requests ({','.join(columns)}) VALUES ({marks})", all_rows())
            connection.commit()
            connection.close()
            # The sums of rows that the Python library wrote are made once.
            Ran([BATCHGATE, "usage", "today", "--db", db])
            ours, theirs = Figures("ms"), Figures("ms")
            for _ in range(self.rounds):
                ours.add(Ran([BATCHGATE, "usage", "today", "--db", db]).wall * 1000)
                theirs.add(peer("today", db)["seconds"] * 1000)
            self.row(f"usage today, over {rows:,} calls (ours with the start of the process)", ours, theirs,
                     f"{theirs.median / ours.median:.1f}x", "100 ms")

    # What is handed out.
    def size(self):
        self.row("size of the program", f"{BATCHGATE.stat().st_size / 1e6:.1f} MB")
        tree = subprocess.run([CARGO, "tree", "--locked", "-p", "batchgate", "-e", "normal", "--prefix", "none", "--format", "{p}"],
                              cwd=ROOT, check=True, capture_output=True, text=True).stdout
        crates = {re.sub(r" \(.*", "", line) for line in tree.splitlines() if line}
        self.row("crates in it, its own included", f"{len(crates)}")


def answer_one(listener, came):
    """Answers one request, and notes when it was there."""
    connection, _ = listener.accept()
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    came.append(time.perf_counter())
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.I)
    chunked = re.search(rb"transfer-encoding: *chunked", head, re.I)
    while (chunked and not body.endswith(b"0\r\n\r\n")) or (length and len(body) < int(length[1])):
        body += connection.recv(65536)
    answer = b'{"written":1}'
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
    connection.close()
    listener.close()


def versions():
    version = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.strip()
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    memory = int(re.search(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text())[1]) / 1e6
    lock = (ROOT / "Cargo.lock").read_text()
    wasmtime = re.search(r'name = "wasmtime"\nversion = "([^"]+)"', lock)[1]
    return (f"{os.cpu_count()} cores of {model}, {memory:.0f} GB, Linux {platform.release().split('-')[0]}; {version(BATCHGATE, '--version')} "
            f"with wasmtime {wasmtime}; {REFERENCE} on Python {platform.python_version()}")


ALL = ("noop", "price", "in_flight", "input", "start", "growth", "usage", "size")
BEGINS, ENDS = "<!-- table: begins -->", "<!-- table: ends -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=ALL)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write and (args.only or args.quick):
        parser.error("--write puts the whole table in its place: leave out --only and --quick")
    (TARGET / "bench").mkdir(parents=True, exist_ok=True)
    bench = Bench(args.rounds, args.quick)
    for name in args.only or ALL:
        getattr(bench, name)()
    table = "| What | Batchgate | Python peer | Ratio | Aim |\n|---|---|---|---|---|\n"
    table += "".join("| " + " | ".join(row) + " |\n" for row in bench.rows)
    text = f"{BEGINS}\n{versions()}. Medians of {args.rounds} rounds, in brackets their range.\n\n{table}{ENDS}"
    print("\n" + text)
    if args.write:
        for page in PAGES:
            doc = page.read_text()
            page.write_text(doc[: doc.index(BEGINS)] + text + doc[doc.index(ENDS) + len(ENDS) :])


if __name__ == "__main__":
    sys.exit(main())
