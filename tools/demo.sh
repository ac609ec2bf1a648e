#!/usr/bin/env bash
# The main job on real data: every row of examples/data/cities.csv through the example plugin to a
# stand-in API that slows down past 8 calls, refuses batches above 60 items and more than 40
# calls a second, and rejects four bad rows.
#
# usage: tools/demo.sh target/release/batchgate
set -euo pipefail
cd "$(dirname "$0")/.."
batchgate=$1
bad=(2643743 1850147 5128581 3448439)   # London, Tokyo, New York, São Paulo
work=$(mktemp -d)
api=
trap '[ -z "$api" ] || kill "$api" 2>/dev/null; rm -rf "$work"' EXIT

options=(--listen 127.0.0.1:0 --knee 8 --slope 0.4 --overhead-ms 60 --per-item-ms 2 --sigma 0.1
  --max-batch 60 --max-per-sec 40 --retry-after 1)
for key in "${bad[@]}"; do options+=(--bad-key "$key"); done
"$batchgate" mock-api "${options[@]}" >"$work/url" &
api=$!
until [ -s "$work/url" ]; do
  kill -0 "$api" 2>/dev/null || { echo "demo: the stand-in API did not start" >&2; exit 1; }
  sleep 0.05
done
url=$(head -n 1 "$work/url")
url=${url%/}
echo "demo: a stand-in API listens at $url"

code=0
"$batchgate" run examples/jobs/cities.toml \
  --allow-hosts "$url" --config-set "api_url=$url/items" \
  --failures-csv "$work/failures.csv" --usage-db "$work/usage.sqlite" \
  --summary "$work/summary.json" || code=$?
echo "demo: exit code $code (1: completed, but not every row was written)"
"$batchgate" usage today --db "$work/usage.sqlite"

python3 tools/demo_check.py "$url" "$work/summary.json" examples/data/cities.csv "$code" "${bad[@]}"
