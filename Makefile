# With Python 3.11 or later and make, every target installs what it needs into .venv.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

# what needs no running: style, types, and which room may import which
define CHECKS
$(BIN)/ruff check .
$(BIN)/ruff format --check .
$(BIN)/mypy
$(BIN)/lint-imports --no-cache --no-logo
endef

PYTEST := $(BIN)/pytest -n 2 --dist worksteal
# the lowest JAX that pyproject.toml admits, with a Flax of its time
LOWEST := jax==0.9.0 jaxlib==0.9.0 flax==0.12.6

# a release of PyTorch that the tests of its modules pass with
TORCH := torch==2.13.0

.PHONY: demo quick quick-newest test test-lowest test-newest test-nightly test-torch docs check-docs dist lint check-all clean

demo: .venv/.demo
	@echo 'Starting posteriax demo.'
	@$(BIN)/posteriax demo

quick: .venv/.dev
	$(CHECKS)
	$(PYTEST) -m quick

test: .venv/.dev
	$(BIN)/posteriax doctor
	$(CHECKS)
	$(PYTEST)
	POSTERIAX_TESTS=as-shipped $(PYTEST) -m 'as_shipped and not slow'

# the doctor and the tests with the lowest JAX, in an environment of its own
test-lowest: .venv-lowest/.dev
	.venv-lowest/bin/posteriax doctor
	.venv-lowest/bin/pytest -n 2 --dist worksteal
	POSTERIAX_TESTS=as-shipped .venv-lowest/bin/pytest -n 2 --dist worksteal -m 'as_shipped and not slow'

# the same with the newest release of everything that pyproject.toml admits, and without the pins of constraints.txt
test-newest: .venv-newest/.dev
	.venv-newest/bin/posteriax doctor
	.venv-newest/bin/pytest -n 2 --dist worksteal
	POSTERIAX_TESTS=as-shipped .venv-newest/bin/pytest -n 2 --dist worksteal -m 'as_shipped and not slow'

quick-newest: .venv-newest/.dev
	.venv-newest/bin/posteriax doctor
	.venv-newest/bin/pytest -n 2 --dist worksteal -m quick

# and with last night's JAX, which pyproject.toml does not admit yet: make test-nightly NIGHTLY=INDEX, the package index
# that JAX's installation guide names for nightly releases
test-nightly: .venv-newest/.dev
	@[ -n '$(NIGHTLY)' ] || { echo 'Say which index has the nightly releases of JAX: make test-nightly NIGHTLY=INDEX' >&2; exit 1; }
	.venv-newest/bin/pip install --disable-pip-version-check --upgrade --pre --no-deps -i $(NIGHTLY) jax jaxlib
	.venv-newest/bin/posteriax doctor
	.venv-newest/bin/pytest -n 2 --dist worksteal

# the tests of PyTorch modules, which are skipped where there is no PyTorch: it takes 200 MB, more where its build is for GPUs
test-torch: .venv-torch/.dev
	.venv-torch/bin/pytest -n 2 --dist worksteal -m 'not as_shipped' tests/problem/test_torch.py

# the site, in site/: open site/index.html. Cells of its pages are executed if their code has changed.
docs: .venv/.docs
	$(BIN)/sphinx-build -W --keep-going -q -d docs/_build/doctrees docs site

# the same without executing anything: links, the reference, the syntax of pages
check-docs: .venv/.docs
	$(BIN)/sphinx-build -W --keep-going -q -D nb_execution_mode=off docs docs/_build/unexecuted

# wheel and sdist in dist/, and what a user does with the wheel, in an environment that has nothing else
dist: .venv/.dist
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/installed_wheel.py dist/*.whl

check-all: .venv/.dev
	$(PYTEST) -m 'not as_shipped'
	POSTERIAX_TESTS=as-shipped $(PYTEST) -m as_shipped

lint: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-lowest .venv-newest .venv-torch site dist docs/_build jupyter_execute

# one line for each package while pip works: $(call install,environment,arguments)
define install
	@$(1)/bin/pip install --disable-pip-version-check --progress-bar off $(2) | \
		awk '/^Collecting/ {printf "\r  %d packages found, %-50s", ++n, $$2; fflush()} \
		/^Installing collected/ {printf "\r  installing %d packages (about a minute) %-30s", n, ""; fflush()} \
		/^Successfully installed/ {printf "\r  installed.%60s\n", ""}'
	@$(1)/bin/python -m compileall -q posteriax
	@touch $@
endef

define make_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ version=$$($(PYTHON) -V 2>&1) || version='not installed'; \
		echo "posteriax needs Python 3.11 or later, and $(PYTHON) is $$version. Say which to take: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(1)
endef

.venv/bin/python:
	$(call make_environment,.venv)

.venv-lowest/bin/python:
	$(call make_environment,.venv-lowest)

.venv-newest/bin/python:
	$(call make_environment,.venv-newest)

.venv-torch/bin/python:
	$(call make_environment,.venv-torch)

.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	@echo 'Installing posteriax and what it needs into .venv, once:'
	$(call install,.venv,-c constraints.txt -e '.[cli$(comma)plots]')

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	@echo 'Installing posteriax and what its tests need into .venv, once:'
	$(call install,.venv,-c constraints.txt -e '.[dev]')

.venv/.docs: .venv/bin/python pyproject.toml constraints.txt
	@echo 'Installing posteriax and what its site needs into .venv, once:'
	$(call install,.venv,-c constraints.txt -e '.[docs]')

.venv/.dist: .venv/bin/python pyproject.toml constraints.txt
	@echo 'Installing what builds and checks a wheel into .venv, once:'
	$(call install,.venv,-c constraints.txt build twine)

.venv-newest/.dev: .venv-newest/bin/python pyproject.toml
	@echo 'Installing posteriax and the newest of what it takes into .venv-newest, once:'
	$(call install,.venv-newest,-e '.[dev]')

.venv-torch/.dev: .venv-torch/bin/python pyproject.toml constraints.txt
	@echo 'Installing PyTorch, posteriax and what its tests need into .venv-torch, once:'
	@.venv-torch/bin/pip install --disable-pip-version-check --quiet $(TORCH)
	$(call install,.venv-torch,-c constraints.txt -e '.[dev]')

.venv-lowest/.dev: .venv-lowest/bin/python pyproject.toml constraints.txt
	@echo 'Installing posteriax and the lowest JAX that it takes into .venv-lowest, once:'
	@grep -vE '^(jax|jaxlib|flax)==' constraints.txt > .venv-lowest/constraints.txt
	$(call install,.venv-lowest,-c .venv-lowest/constraints.txt $(LOWEST) -e '.[dev]')

comma := ,
