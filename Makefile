# make demo      set up .venv, forecast the sunspots and write a report
# make test      set up .venv; lint, type-check and test
# make test-all  the same with the slow tests
# make lint      lint and type-check only
# make coverage  run the tests and show which lines they miss
# make setup     set up .venv only
# make docs      build the documentation as a site, build/site/index.html
# make dist      build and check the release, dist/
# make audit     look the pinned packages up in a public vulnerability database; needs the network

PYTHON ?= python3
BIN := .venv/bin
# Most of what is installed is never imported, so compiling it would waste time.
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt

# Two targets at once would install into the environment that the other is using.
.NOTPARALLEL:
.PHONY: setup demo test test-all style lint coverage docs dist audit clean

setup: .venv/.installed-demo

demo: setup
	$(BIN)/parallelrnn demo

# Each of the two workers has its own core; more threads would compete for it.
# Tests start dozens of interpreters, each of which would compile torch again if bytecode could not be written.
PYTEST := OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

# Types are checked while the tests run: mypy has use for one core only.
test: style
	$(BIN)/mypy & types=$$!; $(PYTEST) && wait $$types

test-all: style
	$(BIN)/mypy & types=$$!; $(PYTEST) -m "" && wait $$types

coverage: .venv/.installed-test
	$(PYTEST) --cov=parallelrnn --cov-report=term-missing:skip-covered

style: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style
	$(BIN)/mypy

docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: .venv/.installed-test
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

# --strict: else packages that could not be looked up count as safe.
audit:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

# A stamp is written after everything is installed, and becomes older than the files below once they change. So a second
# run installs nothing, and an interrupted one is repeated.
KERNELS := setup.py $(wildcard src/parallelrnn/kernels/csrc/*.[ch])
.venv/.installed-demo: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[demo]'
	touch $@

.venv/.installed-docs: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[docs]'
	touch $@

# The test extra includes the others, so a fresh `make test` installs and compiles once.
.venv/.installed-test: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[test]'
	touch .venv/.installed-demo .venv/.installed-docs $@

clean:
	rm -rf .venv .venv-audit build dist src/*.egg-info src/parallelrnn/kernels/csrc/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
