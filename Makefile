# On a machine with Python 3.11 or later and make: `make demo` and `make test` install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint check-all clean

demo: .venv/.demo
	$(BIN)/posteriax demo

test: .venv/.dev
	$(BIN)/posteriax doctor
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/pytest -n 2 --dist worksteal

check-all: .venv/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m ""

lint: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

clean:
	rm -rf .venv

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cli,plots]'
	$(BIN)/python -m compileall -q posteriax
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q posteriax
	touch $@
