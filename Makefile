# Every target works on a machine that has only Python 3.11, make and a package index.

# The first Python that is new enough; `make setup PYTHON=...` chooses another.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.setup-done
CODE := $(wildcard src tests bench scripts)
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check format proof bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything in it (instant when nothing has changed)

$(STAMP): pyproject.toml uv.lock scripts/setup.py
	@test -n "$(PYTHON)" || { echo "GPUYard needs Python 3.11 or newer on the PATH." >&2; exit 1; }
	@echo "Setting up .venv ..."
	@$(PYTHON) scripts/setup.py
	@touch $@

demo: setup ## show everything at once
	@$(BIN)/yard demo

test: setup check ## every check and every test
	$(PYTEST) $(PARALLEL)

quick: setup ## the inner loop: the fast tests, under a minute
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(PYTEST) $(PARALLEL) -m "not slow"

check: setup ## lint, format, types, layers, size budget
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(PYTEST) -q tests/test_tidy.py

format: setup ## put imports and layout right
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

proof: setup ## the long versions of properties and fuzzing
	HYPOTHESIS_PROFILE=proof $(PYTEST) $(PARALLEL) --timeout 7200

bench: setup ## cost against size
	$(BIN)/python -m bench

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
