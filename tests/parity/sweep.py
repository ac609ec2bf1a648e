"""Runs the reference's sweep and ours in one run: what each takes, and whether they agree.

    sweep.py [--seeds N] [--batchgate PATH]

Times `python -m benchmarks.sweep` of adaptive-concurrency==0.1.1 and `batchgate simulate --sweep`.
Then compares each figure of the first three tables over N seeds of each. They draw other random
numbers, and now and then a seed is far from the rest, so it is not the means that are compared: a
figure agrees unless a rank test (Mann-Whitney, corrected for ties, two-sided) says at a level of
1 % for all 62 together that the two samples are not from one distribution. Exit 1 if one does not.
"""

import argparse
import json
import math
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from run import TARGET
from reference import REFERENCE, python_with_reference

# Standard errors beyond which one of 62 rank sums is by chance in 1 of 100 runs.
LIMIT = 3.78


def sources(python):
    """The reference's sources, which hold its benchmark."""
    name, version = REFERENCE.split("==")
    folder = TARGET / f"{name.replace('-', '_')}-{version}"
    if not folder.exists():
        download = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", TARGET, REFERENCE]
        subprocess.run(download, check=True)
        with tarfile.open(folder.with_name(folder.name + ".tar.gz")) as archive:
            archive.extractall(TARGET, filter="data")
    return folder


def seconds_of(command, **options):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    return time.perf_counter() - start


# Runs in the reference's environment: the same cells as benchmarks/sweep.py, a value a seed.
THEIRS = """
import json, sys
from dataclasses import replace
from adaptive_concurrency import AdaptiveConfig
from tests.support import regression_penalty, simulate
seeds = range(int(sys.argv[1]))
base = AdaptiveConfig(label="sim", batch_size=10, workers=3, max_workers=16)
knee = lambda w, b: b * regression_penalty(w)
flat = lambda w, b: float(b)
plateau = lambda w, b: b * max(1.0, w / 4)
concave = lambda w, b: b * (1 + w / 8)
out = {}
def add(name, value):
    out.setdefault(name, []).append(value)
for sigma in (0.1, 0.3, 0.5, 0.8):
    for ratio in (0.95, 1.0, 1.05, 1.1):
        cfg = replace(base, worker_probe_min_ratio=ratio)
        for seed in seeds:
            tail = simulate(cfg, knee, sigma, 2000, seed)[1000:]
            add(f"knee {sigma} {ratio} at_6", tail.count(6) / len(tail))
            add(f"knee {sigma} {ratio} relative_throughput", sum(w / regression_penalty(w) for w in tail) / len(tail) / 6)
    for ratio in (1.3, 1.5, 2.0):
        cfg = replace(base, workers=6, max_workers=6, congestion_ratio=ratio)
        for seed in seeds:
            s = simulate(cfg, flat, sigma, 1200, seed)
            add(f"false_cuts {sigma} {ratio} per_100_rounds", sum(b < a for a, b in zip(s, s[1:])) / 12)
for sigma in (0.1, 0.3, 0.5):
    for ratio in (1.0, 1.05, 1.1):
        cfg = replace(base, workers=2, worker_probe_min_ratio=ratio)
        for seed in seeds:
            top = simulate(cfg, plateau, sigma, 2000, seed)[1000:]
            bowed = simulate(cfg, concave, sigma, 2000, seed)[1000:]
            add(f"flat_top {sigma} {ratio} plateau_workers", sum(top) / len(top))
            add(f"flat_top {sigma} {ratio} concave_throughput", sum(w / (1 + w / 8) for w in bowed) / len(bowed) / (16 / 3))
json.dump(out, sys.stdout)
"""


def mean_of_ours(batchgate, seeds):
    """Our mean of each figure over seeds 0 to `seeds`."""
    command = [batchgate, "simulate", "--sweep", "--controller", "history", "--seeds", str(seeds), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    means = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        ratio = row.get("worker_probe_min_ratio", row.get("congestion_ratio"))
        for figure in ("at_6", "relative_throughput", "per_100_rounds", "plateau_workers", "concave_throughput"):
            if figure in row:
                means[f"{row['sweep']} {row['sigma']} {ratio} {figure}"] = row[figure]
    return means


def ours(batchgate, seeds):
    """Each figure of each seed: what that seed adds to the mean."""
    table, sums = {}, {}
    for count in range(1, seeds + 1):
        for name, mean in mean_of_ours(batchgate, count).items():
            value = mean * count - sums.get(name, 0.0)
            sums[name] = mean * count
            table.setdefault(name, []).append(round(value, 9))
    return table


def standard_errors(ours, theirs):
    """How far the sum of our ranks is from what it would be if both came from one distribution."""
    values = sorted((round(value, 9), side) for side, sample in enumerate((ours, theirs)) for value in sample)
    total, ranks, ties = len(values), 0.0, 0
    start = 0
    while start < total:
        end = start
        while end < total and values[end][0] == values[start][0]:
            end += 1
        ranks += (start + end + 1) / 2 * sum(side == 0 for _, side in values[start:end])
        ties += (end - start) ** 3 - (end - start)
        start = end
    m, n = len(ours), len(theirs)
    variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)))
    return 0.0 if variance <= 0 else (ranks - m * (total + 1) / 2) / math.sqrt(variance)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--batchgate", type=Path, default=root / "target" / "release" / "batchgate")
    args = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    python = python_with_reference(TARGET)
    folder = sources(python)
    there = {"cwd": folder, "env": {"PYTHONPATH": "src"}}

    sweep = [args.batchgate, "simulate", "--sweep", "--controller", "history"]
    before = seconds_of(sweep)
    theirs = seconds_of([python, "-m", "benchmarks.sweep"], **there)
    best = min(before, seconds_of(sweep))
    print(f"the whole sweep: reference {theirs:.1f} s, ours {best:.2f} s: {theirs / best:.0f} times less")

    done = subprocess.run([python, "-c", THEIRS, str(args.seeds)], check=True, capture_output=True, **there)
    theirs, ours_by_seed = json.loads(done.stdout), ours(args.batchgate, args.seeds)
    if theirs.keys() != ours_by_seed.keys():
        raise SystemExit(f"other figures: {sorted(theirs.keys() ^ ours_by_seed.keys())}")
    off = 0
    for name, values in theirs.items():
        errors = standard_errors(ours_by_seed[name], values)
        off += abs(errors) > LIMIT
        means = [sum(sample) / len(sample) for sample in (values, ours_by_seed[name])]
        differs = "  DIFFERS" if abs(errors) > LIMIT else ""
        print(f"{name:40} reference {means[0]:8.3f}  ours {means[1]:8.3f}  rank sum {errors:+5.1f} standard errors{differs}")
    print(f"{len(theirs)} figures over {args.seeds} seeds: {off} differ")
    sys.exit(1 if off else 0)


if __name__ == "__main__":
    main()
