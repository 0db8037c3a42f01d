# Every target works on a machine that has only Python 3.11, make and a package index.

# The first Python that is new enough; `make setup PYTHON=...` chooses another.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.setup-done
CODE := $(wildcard src tests bench scripts)
PYTEST := $(BIN)/python -m pytest
# Half of the time tests wait: for sockets, threads, leases, pods that stop.
CORES = $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
PARALLEL = -n $(shell expr $(CORES) + $(CORES) / 2) --dist worksteal
WAITING = -n $(shell expr 2 \* $(CORES)) --dist worksteal
OLDEST_KUBE := 1.34
export KUBE
# What Python and pytest compile is kept, whatever the environment says, and beside the sources: every worker and every
# `yard` that a test starts would compile it anew, half of the work of collecting tests.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check format proof mutants answers chaos bench bench-local bench-agent bench-openb bench-muri bench-philly kube e2e-kube bench-kube clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(PYTEST) $(WAITING) -m "not slow" --ignore tests/e2e

check: setup ## lint, format, types, layers, size budget
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(PYTEST) -q tests/test_tidy.py

format: setup ## put imports and layout right
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

proof: setup ## the long versions of properties and fuzzing, by random seeds; failures are kept as scenarios
	HYPOTHESIS_PROFILE=proof $(PYTEST) $(PARALLEL) --long --timeout 7200
	@if KUBE=$(OLDEST_KUBE) $(BIN)/python -m tests.support.kube.components; then \
		$(MAKE) e2e-kube KUBE=$(OLDEST_KUBE); \
	else echo "Kubernetes $(OLDEST_KUBE) cannot be had here: nothing was proven on it."; fi

mutants: setup ## N small mistakes in the brain, and which of them no test notices; SEED=N repeats
	$(BIN)/python -m tests.mutants -n $(or $(N),200) --seed $(or $(SEED),1) $(if $(ONLY),--only $(ONLY))

answers: setup ## keep what scenarios and drawn yards are answered now, and with what work; look at what the diff touches
	$(BIN)/python -m tests.support.answers

chaos: setup ## ten minutes of kills, stops, full disks and clock jumps; SEED=N repeats one
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED))

bench: setup ## cost against size
	$(BIN)/python -m bench

bench-local: setup ## the embedded yard: 10,000 queued jobs, 256 virtual GPUs
	$(BIN)/python -m bench.embedded
	$(BIN)/python -m bench served-jobs served-submit served-submits served-start served-idle served-rss supervisor

bench-agent: setup ## the agent: memory and CPU on replayed machines of 8 and 16 GPUs
	$(BIN)/python -m bench.agent

bench-openb: setup ## FGD's experiment replayed: packing, 17 workloads, ten seeds (long)
	$(BIN)/python -m bench.replays openb moves

bench-muri: setup ## Muri's traces replayed: completion times
	$(BIN)/python -m bench.replays muri

bench-philly: setup ## Philly's week and its whole table replayed: waits, speed
	$(BIN)/python -m bench.replays philly philly-all

kube: setup ## build a real Kubernetes cluster for tests, once (minutes; into the user's cache folder); KUBE=1.34: that one
	$(BIN)/python -m tests.support.kube.components
	-$(BIN)/python -m tests.support.kube.node_components

e2e-kube: kube ## the tests that meet a real Kubernetes cluster, the long ones too; KUBE=1.34: of that version
	$(PYTEST) $(PARALLEL) --long tests/e2e/kube tests/e2e/node tests/contract -k "kube or e2e"

bench-kube: setup ## pods bound per second on a real API server: ours, kube-scheduler's, the ceiling (long)
	$(BIN)/python -m bench.kube

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
