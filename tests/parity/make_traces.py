"""Makes parity traces: random but reproducible runs of the reference controller.

    make_traces.py FOLDER --count N [--seed S]     N random traces, on which both must agree
    make_traces.py FOLDER --differences            one trace for each deliberate difference

Needs adaptive-concurrency==0.1.1 on the Python path. A trace is three files: NAME.toml, a job
file with [pool] and [adaptive]; NAME.trace.jsonl.gz, the input of `batchgate replay`; and
NAME.states.jsonl.gz, the state after each line, as `batchgate replay --json` prints it.
"""

import argparse
import gzip
import heapq
import json
import math
import random
from pathlib import Path

from adaptive_concurrency import AdaptiveConfig, Controller, Observation, Setting

from differences import DIFFERENCES

POOL_KEYS = ("workers", "batch_size")
CLEARED = "__cleared__"


class Server:
    """Latency by load, size and noise; changes its mind now and then."""

    def __init__(self, rng):
        self.rng = rng
        self.per_item = 10 ** rng.uniform(-3, 0)
        self.overhead = self.per_item * rng.choice((0, 0, 1, 10, 50))
        self.sigma = rng.choice((0.0, 0.02, 0.1, 0.3, 0.6))
        self.shape = rng.choice(("knee", "knee", "plateau", "concave", "flat"))
        self.knee = rng.randint(1, 20)
        self.slope = rng.uniform(0.02, 1.0)
        self.size_limit = rng.choice((None, None, None, rng.randint(1, 200)))
        self.fault_share = rng.choice((0, 0, 0.002, 0.02))
        self.failure_share = rng.choice((0, 0.01, 0.1))

    def penalty(self, active):
        if self.shape == "knee":
            return 1 + self.slope * max(0, active - self.knee)
        if self.shape == "plateau":
            return max(1, active / self.knee)
        if self.shape == "concave":
            return 1 + active / self.knee
        return 1

    def change(self):
        what = self.rng.randrange(4)
        if what == 0:
            self.per_item *= self.rng.uniform(0.2, 5)
        elif what == 1:
            self.knee = self.rng.randint(1, 20)
        elif what == 2:
            self.size_limit = self.rng.choice((None, self.rng.randint(1, 200)))
        else:
            self.fault_share = self.rng.choice((0, 0.01, 0.05))

    def answer(self, n_items, active):
        """Seconds, ok, size_fault."""
        noise = math.exp(self.rng.gauss(0, self.sigma))
        if self.rng.random() < 0.003:
            noise *= self.rng.uniform(2, 20)
        seconds = (self.overhead + self.per_item * n_items) * self.penalty(active) * noise
        if self.size_limit is not None and n_items > self.size_limit:
            return seconds / 10, False, True
        if self.rng.random() < self.fault_share:
            return seconds, False, True
        if self.rng.random() < self.failure_share:
            return seconds, False, False
        return seconds, True, False


def random_config(rng):
    config = {"workers": rng.choice((1, 1, 2, 3, 5, 8, 20)), "batch_size": rng.choice((1, 3, 10, 50, 100))}
    if rng.random() < 0.8:
        # Sometimes below the start, which is then clamped; sometimes 1.
        config["max_workers"] = max(1, config["workers"] + rng.choice((-3, 0, 2, 8, 30)))
    if rng.random() < 0.3:
        top = config.get("max_workers", config["workers"])
        config["min_workers"] = rng.randint(1, top)
    if rng.random() < 0.7:
        config["max_batch_size"] = max(1, config["batch_size"] + rng.choice((-5, 0, 7, 90, 400)))
    if rng.random() < 0.3:
        top = min(config["batch_size"], config.get("max_batch_size", config["batch_size"]))
        config["min_batch_size"] = rng.randint(1, top)
    if rng.random() < 0.5:
        config["batch_step"] = rng.choice((0, 1, 2, 7, 25))
    if rng.random() < 0.3:
        config["max_batch_seconds"] = round(10 ** rng.uniform(-1, 2), 3)
    ranges = {
        "batch_seconds_headroom": (0.3, 1.0), "congestion_ratio": (1.1, 2.5), "good_ratio": (1.0, 1.6),
        "worker_probe_min_ratio": (0.9, 1.2), "batch_probe_min_ratio": (0.6, 1.1), "worker_decrease": (0.1, 0.95),
        "batch_decrease": (0.1, 0.95), "target_log_se": (0.02, 0.3),
    }
    for key, (low, high) in ranges.items():
        if rng.random() < 0.3:
            config[key] = round(rng.uniform(low, high), 3)
    counts = {"min_window": (1, 12), "max_window": (5, 100), "baseline_epochs": (1, 8), "ceiling_ttl_epochs": (1, 20),
              "history_ttl_windows": (1, 30)}
    for key, (low, high) in counts.items():
        if rng.random() < 0.3:
            config[key] = rng.randint(low, high)
    return config


def random_overrides(rng, controller):
    """Rows on which both controllers agree: every bound keeps the level, and the level before
    an open probe, inside."""
    rows = {}
    for dim in ("workers", "batch_size"):
        level, probe = controller._levels[dim], controller._probe
        lowest = min(level, probe.prev_level) if probe is not None and probe.dim == dim else level
        top, floor = controller._max[dim], controller._min[dim]
        if rng.random() < 0.3:
            top = level + rng.choice((0, 1, 5, 40))
            rows[f"max_{dim}"] = str(top)
        if rng.random() < 0.2:
            floor = rng.randint(1, lowest)
            rows[f"min_{dim}"] = str(floor)
        if rng.random() < 0.3:
            rows[f"force_{dim}"] = str(rng.choice((1, level, floor, top, rng.randint(1, 2 * top))))
    if rng.random() < 0.2:
        rows["max_wrokers"] = "7"
    if not controller.thread_safe and rng.random() < 0.5:
        rows["max_workers"] = "8"
    return rows


class Recorder:
    """Drives the reference and keeps what it was told and where it stood."""

    def __init__(self, config):
        self.config = config
        self.controller = Controller(AdaptiveConfig(**config))
        self.events, self.states = [], []

    def observe(self, setting, n_items, elapsed, ok, size_fault):
        self.events.append({"epoch": setting.epoch, "workers": setting.workers, "batch_size": setting.batch_size,
                            "n_items": n_items, "elapsed": elapsed, "ok": ok, "size_fault": size_fault})
        change = self.controller.observe(Observation(setting, n_items, elapsed, ok, size_fault))
        self._state([] if change is None else [change])

    def override(self, rows, current=None):
        """`current`: all keys that stand, for what the reference does when it reads them again."""
        self.events.append({"overrides": rows})
        self._state(self.controller.apply_overrides(rows if current is None else current))

    def _state(self, changes):
        s = self.controller.setting
        self.states.append({"changes": changes, "epoch": s.epoch, "workers": s.workers, "batch_size": s.batch_size})


def random_trace(rng):
    recorder = Recorder(random_config(rng))
    server = Server(rng)
    controller = recorder.controller
    now, in_flight = 0.0, []
    length = rng.choice((150, 400, 800, 1500))
    override_share = rng.choice((0, 0.003, 0.02))
    change_share = rng.choice((0, 2 / length, 8 / length))
    for number in range(length):
        if rng.random() < override_share:
            recorder.override(random_overrides(rng, controller))
        if rng.random() < change_share:
            server.change()
        while len(in_flight) < controller.setting.workers:
            setting = controller.setting
            n_items = setting.batch_size if rng.random() < 0.95 else rng.randint(1, setting.batch_size)
            seconds, ok, size_fault = server.answer(n_items, len(in_flight) + 1)
            # Few digits keep the traces small.
            seconds = max(1e-6, float(f"{seconds:.4g}"))
            heapq.heappush(in_flight, (now + seconds, number, len(in_flight), setting, n_items, seconds, ok, size_fault))
        now, _, _, setting, n_items, seconds, ok, size_fault = heapq.heappop(in_flight)
        if rng.random() < 0.01:
            # One that was in flight for very long.
            setting = Setting(rng.randint(0, setting.epoch), setting.workers, setting.batch_size)
        recorder.observe(setting, n_items, seconds, ok, size_fault)
    return recorder


def run_difference(difference):
    """The reference on a trace where it is not followed. It may die on the way."""
    recorder = Recorder(difference["config"])
    current = {}
    for event in difference["events"]:
        try:
            if "overrides" in event:
                for key, value in event["overrides"].items():
                    current[key] = value
                    if value == CLEARED:
                        del current[key]
                recorder.override(event["overrides"], dict(current))
            else:
                seen = dict(event)
                setting = Setting(seen.pop("epoch"), seen.pop("workers"), seen.pop("batch_size"))
                recorder.observe(setting, **seen)
        except Exception as error:
            recorder.states.append({"dies": f"{type(error).__name__}: {error}"})
            break
    return recorder


def toml(config):
    pool = [f"{key} = {config[key]}" for key in POOL_KEYS]
    adaptive = [f"{key} = {value}" for key, value in config.items() if key not in POOL_KEYS]
    return "\n".join(["[pool]", *pool, "", "[adaptive]", *adaptive, ""])


def write_lines(path, lines):
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    # No name and no time in the header: the same trace is the same file.
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as out:
        out.write(text.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", default="parity")
    parser.add_argument("--differences", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.differences:
        for name, difference in DIFFERENCES.items():
            recorder = run_difference(difference)
            (args.folder / f"{name}.toml").write_text(toml(difference["config"]))
            write_lines(args.folder / f"{name}.trace.jsonl.gz", difference["events"])
            write_lines(args.folder / f"{name}.states.jsonl.gz", difference["states"])
            write_lines(args.folder / f"{name}.reference.jsonl.gz", recorder.states)
        return
    for number in range(args.count):
        recorder = random_trace(random.Random(f"{args.seed}/{number}"))
        name = f"{number:04}"
        (args.folder / f"{name}.toml").write_text(toml(recorder.config))
        write_lines(args.folder / f"{name}.trace.jsonl.gz", recorder.events)
        write_lines(args.folder / f"{name}.states.jsonl.gz", recorder.states)


if __name__ == "__main__":
    main()
