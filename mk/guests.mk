# Components: the examples, one a language and more for the async world, and the guests that the tests run.
#
#   make guests         all of them, at target/guests/NAME.wasm, several at once
#   make guest-rust     one language's example; so for each of LANGUAGES
#   make tools          what they are built with
#   make test-guests    the SDK's and the examples' own tests
#   make lint-guests    format and clippy for them
#
# A language more: its name in LANGUAGES, its tools in TOOLS, a rule for its component.

CARGO ?= cargo
GUESTS := target/guests
PYTHON_TOOLS := target/tools/python
LANGUAGES := rust js python c go rust-async python-async
TOOLS := target/tools/rust-wasm.env target/tools/bin/wasm-tools examples/js/node_modules/.package-lock.json \
	$(PYTHON_TOOLS)/bin/componentize-py target/tools/c.installed target/tools/go.installed

# The tests' guests: one a file, in Rust or as WebAssembly text.
RUST_GUESTS := $(patsubst tests/guests/src/%.rs,$(GUESTS)/%.wasm,$(wildcard tests/guests/src/*.rs))
WAT_GUESTS := $(patsubst tests/guests/wat/%.wat,$(GUESTS)/%.wasm,$(wildcard tests/guests/wat/*.wat))

RUST_SDK := $(shell find guest-sdk/src guest-sdk/wit guest-sdk/Cargo.toml -type f) \
	tools/build-rust-guest.sh tools/rust-wasm.sh

# Builds at once: each takes up to 2 GB.
AT_ONCE := $(shell awk -v cores=$$(nproc) '/MemAvailable/ { n = int($$2 / 2e6); print n < 1 ? 1 : n < cores ? n : cores }' /proc/meminfo)

.PHONY: guests components tools test-guests lint-guests $(LANGUAGES:%=guest-%)
guests: ## all components, at target/guests
	@+$(MAKE) --no-print-directory -j $(AT_ONCE) --output-sync=target components

components: $(LANGUAGES:%=$(GUESTS)/%.wasm) $(RUST_GUESTS) $(WAT_GUESTS)

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

$(GUESTS)/rust-async.wasm: examples/rust-async/src/lib.rs examples/rust-async/Cargo.toml \
		examples/rust-async/Cargo.lock examples/rust/src/answer.rs $(RUST_SDK) | target/tools/rust-wasm.env
	+tools/build-rust-guest.sh examples/rust-async $@
	@touch $@

# The examples in other languages are built where they are, as their READMEs say; what that leaves there,
# git ignores.
sources = $(shell find $(addprefix examples/$(1)/,$(2)) -type f)
put = @mkdir -p $(GUESTS) && cp examples/$(1)/uploader.wasm $@

examples/js/node_modules/.package-lock.json: examples/js/package-lock.json
	@echo "js: npm ci in examples/js (componentize-js, jco, esbuild, typescript)"
	cd examples/js && npm ci --no-audit --no-fund --loglevel error
	@touch $@

$(GUESTS)/js.wasm: $(call sources,js,src wit package.json) | examples/js/node_modules/.package-lock.json
	cd examples/js && npm run --silent build
	$(call put,js)

$(PYTHON_TOOLS)/bin/componentize-py: examples/python/requirements.txt
	@echo "python: pip install $$(cat $<) into $(PYTHON_TOOLS)"
	python3 -m venv $(PYTHON_TOOLS)
	$(PYTHON_TOOLS)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(GUESTS)/python.wasm: $(wildcard examples/python/*.py) $(call sources,python,wit) | $(PYTHON_TOOLS)/bin/componentize-py
	cd examples/python && $(abspath $(PYTHON_TOOLS))/bin/componentize-py -d wit -w uploader \
		componentize app -o uploader.wasm
	$(call put,python)

$(GUESTS)/python-async.wasm: $(wildcard examples/python-async/*.py) examples/python/answer.py \
		$(call sources,python-async,wit) | $(PYTHON_TOOLS)/bin/componentize-py
	cd examples/python-async && $(abspath $(PYTHON_TOOLS))/bin/componentize-py -d wit -w uploader \
		componentize -p . -p ../python app -o uploader.wasm
	$(call put,python-async)

# C and Go share tools, which are installed one after the other.
EXAMPLE = $(MAKE) --no-print-directory -C examples/$* TOOLS=$(abspath target/tools) \
	WASM_TOOLS=$(abspath target/tools/bin/wasm-tools)

# After Rust's, since apt-get runs once at a time.
target/tools/%.installed: examples/%/Makefile | target/tools/bin/wasm-tools target/tools/rust-wasm.env
	@echo "$*: its tools, into target/tools (see examples/$*/README.md)"
	+flock target/tools/.lock $(EXAMPLE) tools
	@touch $@

$(GUESTS)/c.wasm: $(call sources,c,src wit Makefile)
$(GUESTS)/go.wasm: $(call sources,go,main.go answer wasihttp exports/export_batchgate_batch_processor go.mod wit Makefile)
$(GUESTS)/c.wasm $(GUESTS)/go.wasm: $(GUESTS)/%.wasm: | target/tools/%.installed
	+$(EXAMPLE)
	$(call put,$*)

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

RUST_PACKAGES := guest-sdk examples/rust examples/rust-async tests/guests
# Native builds of guests, apart from the host's own.
NATIVE := CARGO_TARGET_DIR=target/guests-native

test-guests: $(TOOLS) ## the SDK's and the examples' own tests
	$(NATIVE) $(CARGO) test --release --locked --all-features --manifest-path guest-sdk/Cargo.toml
	$(NATIVE) $(CARGO) test --release --locked --manifest-path examples/rust/Cargo.toml
	$(NATIVE) $(CARGO) test --release --locked --manifest-path examples/rust-async/Cargo.toml
	cd examples/js && npm test --silent
	rm -rf examples/python/bindings
	cd examples/python && $(abspath $(PYTHON_TOOLS))/bin/componentize-py -d wit -w uploader bindings bindings
	cd examples/python && PYTHONPATH=bindings python3 -m unittest
	rm -rf examples/python-async/bindings
	cd examples/python-async && $(abspath $(PYTHON_TOOLS))/bin/componentize-py -d wit -w uploader bindings bindings
	cd examples/python-async && PYTHONPATH=.:bindings:../python python3 -m unittest test_app.py
	+$(MAKE) --no-print-directory -C examples/c TOOLS=$(abspath target/tools) test
	+$(MAKE) --no-print-directory -C examples/go TOOLS=$(abspath target/tools) test

lint-guests: ## format and clippy for guests
	@for package in $(RUST_PACKAGES); do \
		$(CARGO) fmt --check --manifest-path $$package/Cargo.toml && \
		$(NATIVE) $(CARGO) clippy --quiet --release --locked --all-targets --all-features \
			--manifest-path $$package/Cargo.toml -- -D warnings || exit 1; \
	done
