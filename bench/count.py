"""Counts the instructions of each part of the call path, which noise cannot move, and compares them with those kept.

    count.py [--write]

Fails if a part takes more than a tenth more than bench/instructions.json says; --write puts the new counts there. A
count is that of one batch: the difference between two runs of different length, so that starting up is not in it.
Needs valgrind; without it nothing is counted, which is an error only where CI is set.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KEPT = HERE / "instructions.json"
MARGIN = 0.10
FEW, MANY = 200, 1200


def built():
    """The program that runs the parts."""
    cargo = shutil.which("cargo") or Path.home() / ".cargo/bin/cargo"
    command = [cargo, "bench", "--locked", "-p", "batchgate", "--bench", "counted", "--no-run", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    messages = [json.loads(line) for line in lines if line.startswith("{")]
    return next(message["executable"] for message in messages
                if message.get("executable") and message["target"]["name"] == "counted")


def instructions(program, part, times):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, part, str(times)]
    ran = subprocess.run(command, capture_output=True, text=True)
    counted = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode != 0 or not counted:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {ran.returncode}: {ran.stderr[-2000:]}")
    return int(counted[1])


def main():
    if shutil.which("valgrind") is None:
        print("instructions are not counted: valgrind is not installed (apt-get install valgrind)", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    write = sys.argv[1:] == ["--write"]
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    program = built()
    parts = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    counts, wrong = {}, []
    for part in parts:
        few, many = (instructions(program, part, times) for times in (FEW, MANY))
        counts[part] = round((many - few) / (MANY - FEW))
        before = kept.get(part)
        change = f"{counts[part] / before - 1:+.1%}" if before else "new"
        print(f"{part:18} {counts[part]:8,} instructions a batch of 50: {change}", flush=True)
        if not before or counts[part] > before * (1 + MARGIN):
            wrong.append(part)
        elif counts[part] < before * (1 - MARGIN):
            print("  less than kept: keep it so with bench/count.py --write")
    wrong += [f"{part} (gone)" for part in kept.keys() - counts.keys()]
    if write:
        KEPT.write_text(json.dumps(counts, indent=2) + "\n")
    elif wrong:
        print(f"more than a tenth above {KEPT.relative_to(ROOT)}, or not in it: {', '.join(sorted(wrong))}; if that is meant, "
              "keep the new counts with bench/count.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
