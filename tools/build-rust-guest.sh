#!/bin/sh
# Builds Rust plugins into components.
#
# usage: tools/build-rust-guest.sh DIR OUT.wasm    the plugin whose package is in DIR
#        tools/build-rust-guest.sh DIR OUT/        each `cdylib` example of the package in
#                                                  DIR, as OUT/NAME.wasm
#
# All share one build folder, so that std and the SDK are built once. An output is only
# written when it changed.
set -eu
# Where rustup puts cargo, for shells that have not been told.
PATH=$PATH:${HOME:-/root}/.cargo/bin
fail() { echo "build-rust-guest: $*" >&2; exit 1; }

[ $# = 2 ] || fail "usage: build-rust-guest.sh DIR OUT.wasm|OUT/"
root=$(cd "$(dirname "$0")/.." && pwd)
dir=$1 out=$2
manifest=$dir/Cargo.toml
[ -f "$manifest" ] || fail "$manifest does not exist: name the folder of a Rust package"

"$root/tools/rust-wasm.sh"
. "$root/target/tools/rust-wasm.env"
# Flags meant for native code would replace the target's own.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS RUSTC_WRAPPER
export CARGO_TARGET_DIR="$root/target/guests-build"
built=$CARGO_TARGET_DIR/wasm32-wasip2/release

build() {
  # shellcheck disable=SC2086 # guest_flags may be empty
  "$guest_cargo" build $guest_flags --quiet --locked --release --target wasm32-wasip2 \
    --manifest-path "$manifest" "$@" || fail "$dir does not build (see above)"
}

# The names in every manifest section with that header.
names() {
  awk -v header="$1" '/^\[/ { inside = $0 == header } inside && /^name *=/ { print $3 }' "$manifest" |
    tr -d '"'
}

put() {
  cmp -s "$1" "$2" || { cp "$1" "$2.new" && mv "$2.new" "$2"; }
}

case $out in
*.wasm)
  build --lib
  name=$(names '[package]' | tr - _)
  mkdir -p "$(dirname "$out")"
  put "$built/$name.wasm" "$out"
  ;;
*)
  build --examples
  mkdir -p "$out"
  for name in $(names '[[example]]'); do
    put "$built/examples/$name.wasm" "$out/$name.wasm"
  done
  ;;
esac
