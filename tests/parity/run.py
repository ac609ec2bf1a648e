"""Compares the controller with its reference on fresh traces, decision for decision.

    run.py [--count N] [--seed S] [--batchgate PATH]

Makes a virtual environment under target/ with adaptive-concurrency==0.1.1, N traces, and
replays each with `batchgate replay --json`. Exit 0 only if every state after every line is the
same. Traces that differ stay in target/parity/fresh.
"""

import argparse
import gzip
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "target" / "parity"
sys.path.insert(0, str(HERE.parents[1] / "tools"))
from reference import python_with_reference


def states_of(batchgate, trace):
    """What our controller made of a trace."""
    config = trace.with_name(trace.name.replace(".trace.jsonl.gz", ".toml"))
    command = [batchgate, "replay", "-", "--controller", "history", "--config", config, "--json"]
    done = subprocess.run(command, input=gzip.decompress(trace.read_bytes()), capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"{trace}: batchgate replay failed: {done.stderr.decode().strip()}")
    return done.stdout.decode().splitlines()


def first_difference(batchgate, trace):
    """The first line after which they differ, and both states, or None."""
    ours = states_of(batchgate, trace)
    theirs = gzip.decompress(Path(str(trace).replace(".trace.", ".states.")).read_bytes()).decode().splitlines()
    for line, (our, their) in enumerate(zip(ours, theirs), start=1):
        if our != their:
            return line, our, their
    if len(ours) != len(theirs):
        return min(len(ours), len(theirs)) + 1, f"{len(ours)} states", f"{len(theirs)} states"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="another one each time, unless given")
    parser.add_argument("--batchgate", type=Path, default=HERE.parents[1] / "target" / "release" / "batchgate")
    args = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    fresh = TARGET / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    make = [python_with_reference(TARGET), "-B", HERE / "make_traces.py", fresh, "--count", str(args.count), "--seed", args.seed]
    subprocess.run(make, check=True)

    differ = lines = 0
    for trace in sorted(fresh.glob("*.trace.jsonl.gz")):
        difference = first_difference(args.batchgate, trace)
        lines += gzip.decompress(trace.read_bytes()).count(b"\n")
        if difference is not None:
            differ += 1
            line, ours, theirs = difference
            print(f"{trace}, line {line}:\n  ours      {ours}\n  reference {theirs}")
    print(f"{args.count} traces of seed {args.seed}, {lines} lines: {differ} traces differ")
    if differ == 0:
        shutil.rmtree(fresh)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
