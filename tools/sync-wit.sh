#!/bin/sh
# Copies the contract, and the WIT that it needs, to everything that carries its own copy, so that
# each can stand alone. A test fails where a copy differs.
#
# usage: tools/sync-wit.sh
set -eu
cd "$(dirname "$0")/.."

# put DIR PACKAGE…: the contract and these packages of wit/deps, as dependencies in DIR.
put() {
  dir=$1
  shift
  rm -rf "$dir"
  mkdir -p "$dir/batchgate-batch"
  cp wit/batch.wit "$dir/batchgate-batch/"
  for package; do cp -R "wit/deps/$package" "$dir/"; done
}

cp wit/batch.wit guest-sdk/wit/batch.wit
for package in wasi-config wasi-http-0.3 wasi-clocks-0.3; do
  rm -rf "guest-sdk/wit/deps/$package"
  cp -R "wit/deps/$package" guest-sdk/wit/deps/
done

for language in js python c go; do
  put examples/$language/wit/deps wasi-config wasi-http wasi-io wasi-clocks
done
put examples/python-async/wit/deps wasi-config wasi-http-0.3 wasi-clocks-0.3
