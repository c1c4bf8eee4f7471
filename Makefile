# `make quickstart` and `make test` need nothing but Python 3.11 or newer with pip.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test lint types unit clean

quickstart: .venv/ready
	$(BIN)/deformrs quickstart

test: lint types unit

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

unit: .venv/dev
	$(BIN)/pytest -n auto --dist loadfile

# Made anew whenever the requirements change; otherwise there is nothing to do.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# What only tests need is most of the download.
.venv/dev: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv runs build dist
