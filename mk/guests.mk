# Components: one example a language, and the guests that the tests run.
#
#   make guests         all of them, at target/guests/NAME.wasm
#   make guest-rust     one language's example; so for each of LANGUAGES
#   make tools          what they are built with
#   make test-guests    the SDK's and the examples' own tests
#   make lint-guests    format and clippy for them
#
# A language more: its name in LANGUAGES, its tools in TOOLS, a rule for its component.

CARGO ?= cargo
GUESTS := target/guests
LANGUAGES := rust
TOOLS := target/tools/rust-wasm.env target/tools/bin/wasm-tools

# The tests' guests: one a file, in Rust or as WebAssembly text.
RUST_GUESTS := $(patsubst tests/guests/src/%.rs,$(GUESTS)/%.wasm,$(wildcard tests/guests/src/*.rs))
WAT_GUESTS := $(patsubst tests/guests/wat/%.wat,$(GUESTS)/%.wasm,$(wildcard tests/guests/wat/*.wat))

RUST_SDK := $(shell find guest-sdk/src guest-sdk/wit guest-sdk/Cargo.toml -type f) \
	tools/build-rust-guest.sh tools/rust-wasm.sh

.PHONY: guests tools test-guests lint-guests $(LANGUAGES:%=guest-%)
guests: $(LANGUAGES:%=$(GUESTS)/%.wasm) $(RUST_GUESTS) $(WAT_GUESTS) ## all components, at target/guests

$(LANGUAGES:%=guest-%): guest-%: $(GUESTS)/%.wasm

tools: $(TOOLS) ## what components are built with

target/tools/rust-wasm.env: tools/rust-wasm.sh
	tools/rust-wasm.sh
	@touch $@

target/tools/bin/wasm-tools: tools/wasm-tools.sh
	tools/wasm-tools.sh
	@touch $@

$(GUESTS)/rust.wasm: $(wildcard examples/rust/src/*.rs) examples/rust/Cargo.toml \
		examples/rust/Cargo.lock $(RUST_SDK) | target/tools/rust-wasm.env
	+tools/build-rust-guest.sh examples/rust $@
	@touch $@

# One run of cargo builds them all.
$(RUST_GUESTS) &: $(wildcard tests/guests/src/*.rs) tests/guests/Cargo.toml \
		tests/guests/Cargo.lock $(RUST_SDK) | target/tools/rust-wasm.env
	+tools/build-rust-guest.sh tests/guests $(GUESTS)
	@for guest in $(RUST_GUESTS); do \
		[ -s $$guest ] || { echo "$$guest: its [[example]] is missing in tests/guests/Cargo.toml"; exit 1; }; \
	done
	@touch $(RUST_GUESTS)

$(GUESTS)/%.wasm: tests/guests/wat/%.wat | target/tools/bin/wasm-tools
	@mkdir -p $(GUESTS)
	target/tools/bin/wasm-tools parse $< -o $@

RUST_PACKAGES := guest-sdk examples/rust tests/guests
# Native builds of guests, apart from the host's own.
NATIVE := CARGO_TARGET_DIR=target/guests-native

test-guests: ## the SDK's and the examples' own tests
	$(NATIVE) $(CARGO) test --release --locked --all-features --manifest-path guest-sdk/Cargo.toml
	$(NATIVE) $(CARGO) test --release --locked --manifest-path examples/rust/Cargo.toml

lint-guests: ## format and clippy for guests
	@for package in $(RUST_PACKAGES); do \
		$(CARGO) fmt --check --manifest-path $$package/Cargo.toml && \
		$(NATIVE) $(CARGO) clippy --quiet --release --locked --all-targets --all-features \
			--manifest-path $$package/Cargo.toml -- -D warnings || exit 1; \
	done
