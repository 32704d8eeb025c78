# Every target sets itself up first; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
# Images of Python often set it: each of the hundreds of processes of the tests would then compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PYTEST := $(BIN)/pytest

.PHONY: help setup demo test soak faults broken test-matrix bench check static lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv, with the redrive command in it, and install what the system lacks
	@scripts/setup

demo: setup ## Show Redrive at work on a private broker (CLUSTER=3: on three nodes)
	@$(BIN)/redrive demo $(if $(CLUSTER),--cluster $(CLUSTER))

# Four at a time: most tests wait for a broker, on two cores too. Each worker has servers of its own.
test: static ## Everything, on real RabbitMQ and PostgreSQL; large figures at a hundredth
	$(PYTEST) --numprocesses 4 --dist worksteal $(ARGS)

soak: setup ## The large figures in full; takes hours (ARGS="-k word" chooses)
	REDRIVE_SOAK=full $(PYTEST) -m soak -rP --timeout=10800 -o faulthandler_timeout=0 $(ARGS)

faults: setup ## The whole system under faults, on three broker nodes (MINUTES=30 SEED=7 NODES=3)
	@$(BIN)/python -m tests.faults.storm --minutes $(or $(MINUTES),30) --nodes $(or $(NODES),3) \
		$(if $(SEED),--seed $(SEED))

broken: setup ## Break the code of each guarantee, in a copy: tests must notice (ARGS="policies" chooses)
	@$(BIN)/python -m tests.broken $(ARGS)

test-matrix: setup ## The broker-facing suites on RabbitMQ 3.10, 4.0 and 4.3 (RABBITMQ=4.0: on one)
	@scripts/test-matrix $(or $(RABBITMQ),3.10 4.0 4.3) -- $(ARGS)

bench: setup ## Measure, and print ratios (ARGS="wire --quick" for one, fast)
	@$(BIN)/python -m bench $(ARGS)

check: static ## The fast loop: format, lint, types, imports, unit tests
	$(PYTEST) tests/unit $(ARGS)

# Types take longest, so the others run beside them; each says what it found when it has ended.
static: setup
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types format lint imports console collected

.PHONY: types format lint imports console collected
types:
	$(BIN)/mypy
format:
	$(BIN)/ruff format --check .
lint:
	$(BIN)/ruff check .
imports:
	$(BIN)/lint-imports
console:
	scripts/console check
# And with that all tests are compiled, which else each worker of `make test` would do for itself.
collected:
	@tests=$$($(PYTEST) --collect-only -qqq) || { echo "$$tests"; exit 1; }

lock: setup ## Write requirements/ anew from pyproject.toml (UPGRADE=1: newest versions)
	@scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## Remove .venv, caches and builds
	rm -rf console/node_modules src/redrive/server/console
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
