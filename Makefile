# With Python 3.11 or later and make, every target installs what it needs into .venv.
PYTHON ?= python3
BIN := .venv/bin

# tests that compile little, for `make quick`
QUICK := tests/test_dependencies.py tests/test_bad_input.py tests/cli/test_tables.py \
	tests/cli/test_messy_tables.py tests/cli/test_splits.py tests/cli/doctor \
	tests/comparison/test_significance.py tests/comparison/test_recommendation.py \
	tests/comparison/report/test_page.py tests/comparison/report/test_plots.py \
	tests/diagnostics/test_convergence.py tests/families/arrays/test_noise.py tests/internal/test_settings.py \
	tests/methods/test_kl_schedules.py tests/metrics/test_fidelity.py tests/metrics/test_metrics.py \
	tests/problem/test_predictive.py

# what needs no running: style, types, and which room may import which
define CHECKS
$(BIN)/ruff check .
$(BIN)/ruff format --check .
$(BIN)/mypy
$(BIN)/lint-imports --no-cache --no-logo
endef

.PHONY: demo quick test lint check-all clean

demo: .venv/.demo
	$(BIN)/posteriax demo

quick: .venv/.dev
	$(CHECKS)
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK)

test: .venv/.dev
	$(BIN)/posteriax doctor
	$(CHECKS)
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
