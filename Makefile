# Every target installs what it needs into .venv; Python and make are all a fresh machine must have.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-all lint fix docs bench clean

help:      ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/'

demo: .venv/eval  ## fit the bundled penguins table, generate rows, evaluate them, write a report
	$(BIN)/tabmt demo -o demo

test: .venv/dev  ## fast tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not gpu'

test-all: .venv/dev  ## every test this machine can run
	$(BIN)/python -m pytest -q

lint: .venv/dev  ## format check, lint, types
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

fix: .venv/dev  ## apply formatting and safe fixes
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

docs: .venv/dev  ## regenerate the pages that follow from the code
	$(BIN)/python -m docs.generate

bench: .venv/eval  ## compare generators, into benchmarks/results (DATA=folder of tables); takes hours
	$(BIN)/python -m benchmarks peers install ctgan realtabformer argn forest_diffusion arf copula
	$(BIN)/python -m benchmarks run comparison --data $(or $(DATA),../shared/data)
	$(BIN)/python -m benchmarks.sampling --data $(or $(DATA),../shared/data)
	$(BIN)/python -m benchmarks.sampling_peer --data $(or $(DATA),../shared/data)

clean:     ## remove what the targets made
	rm -rf .venv demo build *.egg-info

.venv/python:
	$(PYTHON) -m venv .venv
	@touch $@

.venv/tabmt: .venv/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

.venv/eval: .venv/tabmt
	$(PIP) -e '.[eval,fast,serve]'
	@touch $@

# sdmetrics is there to check our metrics against; it asks for pandas < 3 but does without.
.venv/dev: .venv/tabmt
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps sdmetrics copulas tqdm
	@touch $@
