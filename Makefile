# Thin: each target calls the real tool. `make run` and `make test` install what is missing themselves.

CARGO ?= cargo
DEMO  ?= .demo
CTX   := target/release/ctx
# Most tests wait for processes, and two test programs run at once: each has one more than there are cores.
RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))

.PHONY: run build test test-long test-system check bench fmt recording setup setup-test

run: build
	@scripts/demo $(CTX) $(DEMO)

build: setup
	$(CARGO) build --release --bin ctx

# What only tests need is installed while the sources are checked.
test: setup
	@scripts/setup test & installs=$$!; \
	$(CARGO) fmt --all -- --check && $(CARGO) clippy --workspace --all-targets -- -D warnings; checked=$$?; \
	wait $$installs && exit $$checked
	RUST_TEST_THREADS=$(RUST_TEST_THREADS) CARGO=$(CARGO) scripts/test

# The same with ten times the rounds of tests that kill or race, on the real disk.
test-long:
	CTX_TEST_ROUNDS=10 TMPDIR=$${TMPDIR:-/tmp} $(MAKE) test

# Real agents from npm with a model server on this machine: as MCP hosts, and resuming sessions handed on to them. `docs/test-system.md`.
SYSTEM := target/test-system
test-system:
	$(CARGO) build --bin ctx
	npm install --prefix $(SYSTEM) --no-audit --no-fund --no-save @google/gemini-cli opencode-ai @openai/codex @anthropic-ai/claude-code
	python3 tests/system/hosts.py target/debug/ctx $(SYSTEM)/node_modules
	python3 tests/system/handoff.py target/debug/ctx $(SYSTEM)/node_modules

bench: build
	bench/run

# The newcomer's first minutes in tmux, as the recording and the picture of the docs.
recording: setup-test
	CTX_RECORD=$(CURDIR)/docs/recording $(CARGO) test -p ctx --test it the_first_five_minutes

fmt:
	$(CARGO) fmt --all

# What a build needs, a C compiler for SQLite, and what runs commands in cages.
setup:
	@scripts/setup build

# What the tests use besides: shells, tools that clients are made of, Python with its packages.
setup-test:
	@scripts/setup test
