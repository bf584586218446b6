# make demo and make test set everything up in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP := $(BIN)/python $(INSTALL)

DEMO := sr-fca,oracle,ifca,global,local

.PHONY: demo test test-slow test-network test-trackers test-all lint types check docs package package-quick bench clean

demo: .venv/installed-report  ## SR-FCA beside Oracle, IFCA, Global and Local on rotated digits
	$(BIN)/srfca compare rotated-digits --methods $(DEMO) --report demo.html

test: .venv/installed-dev  ## all tests except the slow ones; COVERAGE=--cov measures coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -rs $(COVERAGE) -m "not slow"

test-slow: .venv/installed-dev  ## slow tests, most of them on a real network: some minutes
	$(BIN)/python -m pytest -m slow

test-network: .venv/installed-dev  ## of the slow ones, those on Flower, Ray and killed processes
	$(BIN)/python -m pytest -m slow tests/flower tests/ray tests/tools/test_damage.py \
	  --ignore tests/flower/test_all_methods.py

test-trackers: .venv/installed-trackers  ## TensorBoard, MLflow and Weights & Biases, installed for it
	$(BIN)/python -m pytest -rs tests/callbacks

test-all: test test-slow  ## both

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

check: lint types docs test-all  ## everything but the package

docs: .venv/installed-docs  ## the generated tables, and the site in docs/_build: a warning is an error
	$(BIN)/python docs/make_tables.py
	$(BIN)/python -m tools.disclosure
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build
	$(BIN)/python docs/website/check.py docs/_build

package: .venv/installed-dev  ## wheel and sdist in dist/, checked; the demo in a fresh environment
	$(BIN)/python tools/package.py

package-quick: .venv/installed-dev  ## the same with the dependencies of .venv: seconds
	$(BIN)/python tools/package.py --shared

bench: .venv/installed-fast benchmarks/.venv/flower/installed benchmarks/.venv/pfl/installed  ## side by side
	$(BIN)/python benchmarks/run.py --out benchmarks/RESULTS.md

clean:
	rm -rf .venv benchmarks/.venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist demo.html docs/_build docs/_generated

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "srfca needs Python 3.11 to 3.13: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

# torch comes first and pinned: whatever asks for it later then takes what is there.
.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) --editable .
	@touch $@

.venv/installed-fast: .venv/installed
	$(PIP) --editable '.[fast]'
	@touch $@

.venv/installed-report: .venv/installed
	$(PIP) --editable '.[report]'
	@touch $@

.venv/installed-docs: .venv/installed
	$(PIP) --editable '.[docs]'
	@touch $@

.venv/installed-dev: .venv/installed
	$(PIP) --editable '.[dev]'
	@touch $@

.venv/installed-trackers: .venv/installed-dev
	$(PIP) --editable '.[tensorboard,mlflow,wandb]'
	@touch $@

benchmarks/.venv/%/installed: benchmarks/requirements-%.txt constraints.txt | .venv/bin/python
	$(PYTHON) -m venv benchmarks/.venv/$*
	benchmarks/.venv/$*/bin/python $(INSTALL) torch
	benchmarks/.venv/$*/bin/python $(INSTALL) --requirement $<
	@touch $@
