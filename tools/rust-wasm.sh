#!/bin/sh
# Makes `wasm32-wasip2` available to Rust, and writes how to target/tools/rust-wasm.env.
#
# usage: tools/rust-wasm.sh            (BATCHGATE_RUST_WASM=rustup|debian forces a way)
#
# rustup: the target is present, or `rustup target add` brings it. The ordinary way.
# debian: Debian's own Rust and clang, for machines that reach no Rust distribution
#         server, or where RUSTUP_AUTO_INSTALL=0 says that rustup shall not fetch by
#         itself; std is then built from source with the first guest.
#
# Fast when there is nothing to do. Says what it installs.
set -eu
# Where rustup puts cargo, for shells that have not been told.
PATH=$PATH:${HOME:-/root}/.cargo/bin
cd "$(dirname "$0")/.."
tools=$PWD/target/tools
env=$tools/rust-wasm.env
linker_version=0.5.31
packages="rustc-web cargo-web rust-web-src clang-19 lld-19 wasi-libc"

say() { echo "rust-wasm: $*" >&2; }
fail() { say "$*"; exit 1; }

# The directory of the target's std; it exists only where the target is installed.
has_target() {
  command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
  lib=$(rustc --print target-libdir --target wasm32-wasip2 2>/dev/null) && [ -d "$lib" ]
}

rustup_way() {
  has_target && return
  command -v rustup >/dev/null || return 1
  # Whoever sets this wants rustup to fetch nothing that was not asked for.
  [ "$way" = rustup ] || [ "${RUSTUP_AUTO_INSTALL:-1}" != 0 ] || return 1
  say "rustup target add wasm32-wasip2"
  # A server that is not reached must not hold up the build.
  RUSTUP_MAX_RETRIES=0 timeout 120 rustup target add wasm32-wasip2 >&2 && has_target
}

missing_packages() {
  for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      printf '%s ' "$package"
  done
}

debian_way() {
  command -v apt-get >/dev/null ||
    fail "no apt-get here: install rustup, then run: rustup target add wasm32-wasip2"
  missing=$(missing_packages)
  if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] ||
      fail "not root: run as root: apt-get update && apt-get install -y --no-install-recommends $missing"
    say "apt-get install $missing"
    apt-get update -qq >&2 || fail "apt-get update failed: check the package sources"
    # shellcheck disable=SC2086 # one word a package
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2 ||
      fail "apt-get install failed: install by hand: $missing"
  fi
  linker=$tools/bin/wasm-component-ld
  if [ "$("$linker" --version 2>/dev/null)" != "wasm-component-ld $linker_version" ]; then
    cargo=$(command -v cargo || echo /usr/bin/cargo)
    say "cargo install wasm-component-ld $linker_version (about a minute)"
    env -u CARGO_TARGET_DIR -u RUSTFLAGS "$cargo" install --quiet --locked --force \
      --version "$linker_version" wasm-component-ld --root "$tools" >&2 ||
      fail "cargo install wasm-component-ld failed: is the crates registry reached?"
  fi
}

write_env() {
  mkdir -p "$tools"
  cat >"$env.new"
  # Left alone when the same, so that make sees no change.
  if cmp -s "$env.new" "$env"; then rm "$env.new"; else mv "$env.new" "$env"; fi
}

way=${BATCHGATE_RUST_WASM:-auto}
case $way in
auto)
  # Where rustup could not add the target once, it is not asked at every build.
  if has_target; then way=rustup
  elif grep -q build-std "$env" 2>/dev/null; then way=debian
  elif rustup_way; then way=rustup
  else way=debian; fi
  ;;
rustup) rustup_way || fail "wasm32-wasip2 is not installed and 'rustup target add wasm32-wasip2' failed" ;;
debian) ;;
*) fail "BATCHGATE_RUST_WASM is '$way': use rustup, debian or nothing" ;;
esac

case $way in
rustup)
  write_env <<END
guest_cargo=cargo
guest_flags=
END
  ;;
debian)
  debian_way
  libc=/usr/lib/wasm32-wasi
  write_env <<END
guest_cargo=/usr/bin/cargo
guest_flags=-Zbuild-std=std,panic_abort
export RUSTC=/usr/bin/rustc
export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_WASM32_WASIP2_LINKER='$tools/bin/wasm-component-ld'
export CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS='-Clink-self-contained=no -Clink-arg=$libc/crt1-reactor.o -Lnative=$libc -Clink-arg=--wasm-ld-path=/usr/bin/wasm-ld-19'
END
  ;;
esac
