"""Checks what the demo did against what its server saw.

usage: demo_check.py URL SUMMARY.json INPUT.csv EXIT-CODE BAD-KEY...
"""

import csv
import json
import sys
import urllib.request


def main() -> int:
    url, summary_path, input_path, code, *bad = sys.argv[1:]
    with open(summary_path, encoding="utf-8") as file:
        summary = json.load(file)
    with open(input_path, encoding="utf-8", newline="") as file:
        rows = [row["id"] for row in csv.DictReader(file)]
    with urllib.request.urlopen(url + "/keys") as answer:
        stored = {row["key"]: row["times"] for row in map(json.loads, answer)}

    ends = ("written", "skipped", "failed", "unknown", "not_dispatched")
    good = set(rows) - set(bad)
    checks = {
        "the summary adds up": summary["items"] == len(rows) == sum(summary[end] for end in ends),
        "every good row was written": summary["written"] == len(good),
        "the server has every good row": set(stored) == good,
        "and each exactly once": all(times == 1 for times in stored.values()),
        "the bad rows failed": summary["failed"] == len(bad) and set(bad) <= set(rows),
        "the exit code says so": code == "1",
    }
    for what, holds in checks.items():
        print(f"demo: {'ok' if holds else 'NOT SO'}: {what}")
    print(" + ".join(f"{summary[end]} {end}" for end in ends), "=", summary["items"], "items")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
