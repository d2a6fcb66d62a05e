# `make up` runs the stack, `make test` the tests; both set up the tree first.

PYTHON ?= python3
VENV := .venv/bin
ENGINE ?= vllm
PORT ?= 8000
ARGS ?=
PIN ?=
BENCH ?=
MINUTES ?= 10
FUZZ ?=
JOBS ?= 2

.PHONY: help setup up test test-fast test-operations test-containers lint lint-compose audit secrets fuzz format bench pin clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## Make .venv with everything and the demo models (takes no input, safe to repeat).
	@$(PYTHON) .ci/setup.py

up: setup ## Run the whole stack. ENGINE=vllm|scripted PORT=8000 ARGS="…"
	@$(VENV)/toolrail up --engine $(ENGINE) --port $(PORT) $(ARGS)

test: setup ## Run every test, with real NATS servers and a real engine.
	@$(VENV)/python -m pytest -m "not slow and not operations and not containers"

# A module is one process's: its tests keep their order, and its fixtures are made once.
test-fast: setup ## Run the unmarked tests: no server, no engine. JOBS=2 processes.
	@$(VENV)/python -m pytest --numprocesses $(JOBS) --dist loadscope

test-operations: setup ## Run dashboards and alerts in a real Prometheus (needs Debian's package).
	@$(VENV)/python -m pytest -m operations

test-containers: setup ## Build the images and run the compose file, where this machine can (as root).
	@$(VENV)/python .ci/containers.py

lint: setup ## Check style, types and the import contracts.
	@$(VENV)/ruff check
	@$(VENV)/ruff format --check
	@$(VENV)/pyright
	@$(VENV)/lint-imports

lint-compose: setup ## Check the compose files against Compose's schema (dclint, from npm).
	@$(VENV)/python .ci/compose_lint.py

audit: setup ## Compare every pinned dependency with the published advisories.
	@$(VENV)/python .ci/audit.py

secrets: setup ## Look for secrets in the tree and its history.
	@$(VENV)/python .ci/scan_secrets.py

fuzz: setup ## Fuzz for a while. MINUTES=10 FUZZ="TARGET …" chooses.
	@$(VENV)/python -m tests.fuzz --minutes $(MINUTES) $(FUZZ)

format: setup ## Put every file into the project's format.
	@$(VENV)/ruff check --fix --quiet
	@$(VENV)/ruff format

bench: setup ## Measure the pipeline with the scripted engine. BENCH="…" passes flags.
	@$(VENV)/python -m benchmarks.pipeline $(BENCH)

pin: setup ## Write the constraints files anew from pyproject.toml. PIN=--upgrade for newer ones.
	@$(VENV)/python .ci/pin.py $(PIN)

clean: ## Remove what set-up and tests made in this tree (not the cache outside it).
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis
