# Thin: each target calls the real tool. `make run` and `make test` install what is missing themselves.

CARGO ?= cargo
DEMO  ?= .demo
CTX   := target/release/ctx
# Most tests wait for processes: two at a time for every core.
RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) * 2)))

.PHONY: run build test test-long check bench fmt setup setup-test

run: build
	@scripts/demo $(CTX) $(DEMO)

build: setup
	$(CARGO) build --release --bin ctx

test: setup-test
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUST_TEST_THREADS=$(RUST_TEST_THREADS) $(CARGO) test --workspace

# The same with ten times the rounds of tests that kill or race.
test-long:
	CTX_TEST_ROUNDS=10 $(MAKE) test

bench: build
	bench/run

fmt:
	$(CARGO) fmt --all

# What a build needs: a C compiler for SQLite.
setup:
	@scripts/setup build

# What the tests use besides: shells, tools that clients are made of, Python with its packages.
setup-test:
	@scripts/setup test
