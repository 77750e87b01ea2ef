# make demo    set up .venv, forecast the sunspots and write a page about it
# make test    set up .venv and lint, type-check and test
# make setup   set up .venv and no more
# make docs    set up .venv and build the documentation as a site, build/site/index.html
# make dist    build what is published, dist/, and check it
# make audit   ask a public database about the pinned packages; needs the network

PYTHON ?= python3
BIN := .venv/bin
# What is never imported need not be compiled: that is most of what is installed.
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt

# Two targets at once would install into the environment that the other is using.
.NOTPARALLEL:
.PHONY: setup demo test test-all lint docs dist audit clean

setup: .venv/.installed-demo

demo: setup
	$(BIN)/parallelrnn demo

# Each of the two workers has a core of its own, and more threads would fight for it.
test: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-all: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m ""

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: .venv/.installed-test
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

# --strict: else packages that the database was not asked about are taken for good ones.
audit:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

# A stamp is written only after everything is installed, and is older than the files that say what to install once these
# change. So a second run installs nothing, and a run that was cut off is made up for.
KERNELS := setup.py $(wildcard src/parallelrnn/kernels/csrc/*.[ch])
.venv/.installed-demo: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[demo]'
	touch $@

.venv/.installed-docs: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[docs]'
	touch $@

# The test extra holds the others: from nothing, one installation, and one compilation of the kernels, does for all.
.venv/.installed-test: pyproject.toml constraints.txt $(KERNELS)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[test]'
	touch .venv/.installed-demo .venv/.installed-docs $@

clean:
	rm -rf .venv .venv-audit build dist src/*.egg-info src/parallelrnn/kernels/csrc/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
