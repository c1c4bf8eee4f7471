# Every target builds the .venv it needs from Python 3.11 or newer with pip. See docs/installing.md.
PYTHON ?= python3
BIN := .venv/bin
ACTIVATE := to use deformrs in this terminal: source .venv/bin/activate

.PHONY: help quickstart test lint types unit soak mutation results clean
.DEFAULT_GOAL := help

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Once .venv is built, $(ACTIVATE)"

quickstart: .venv/ready  ## Train a small network on digits, certify it, draw the result
	$(BIN)/deformrs quickstart

test: lint types unit  ## Run the linter, the type checker and all tests

lint: .venv/dev  ## Run ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev  ## Run mypy
	$(BIN)/mypy

unit: .venv/dev  ## Run the tests, on all cores
	$(BIN)/pytest -n auto --dist loadfile

soak: .venv/dev  ## Attack at length: every fault and kill, fuzzed files, known truths: half an hour
	$(BIN)/python tests/attacks/faults.py --out results/reliability
	DEFORMRS_FUZZ=2000 $(BIN)/pytest tests/attacks/test_fuzzing.py
	DEFORMRS_KNOWN_TRUTH=20 $(BIN)/pytest tests/known_truth/test_truths.py
	DEFORMRS_AT_LENGTH=1 $(BIN)/pytest tests/test_ray.py

mutation: .venv/dev  ## Change statistics, noise and rounding line by line; every change should fail a test
	$(BIN)/python tools/mutation.py

results: .venv/ready  ## Remake results/README.md, summary.csv and figures from the stored runs
	$(BIN)/python results/make.py

clean:  ## Remove the .venv, builds and runs
	rm -rf .venv runs build dist

# Rebuilt when the requirements change.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable .
	@touch $@
	@echo "Built .venv; $(ACTIVATE)"

# What only tests need is most of the download.
.venv/dev: .venv/ready
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	@touch $@
