# Everything a fresh machine with Python and pip needs: each target sets itself up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.installed-demo
FRAMEWORKS_INSTALLED := $(VENV)/.installed-frameworks
DOCS_INSTALLED := $(VENV)/.installed-docs
# How often a failed test that measures is tried again: on a machine of one's own, never.
RERUNS ?= 0
MEASURING := integration and not environments and not gpu and not frameworks
UNIT := not integration and not environments and not gpu and not frameworks
# Where it is set, every process of the tests compiles the package, and every pytest rewrites all tests, once more.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test lint coverage test-frameworks test-environments bench docs tutorial pictures gpu-check clean

help:  ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Each target installs what it needs. A stamp is older than pyproject.toml when the dependencies may have changed.
# torch and torchvision are named together, so that pip picks a pair that fits: their compiled operators only work
# with each other.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO_INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --no-compile torch torchvision --editable '.[demo]'
	touch $@

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install torch torchvision --editable '.[dev]'
	touch $(DEMO_INSTALLED) $@

$(FRAMEWORKS_INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install torch torchvision --editable '.[dev,frameworks]'
	touch $(DEMO_INSTALLED) $(INSTALLED) $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --editable '.[docs]'
	touch $@

demo: $(DEMO_INSTALLED)  ## make photographs once, diagnose a job that reads them, write reports
	$(BIN)/bottleneck demo

test: lint  ## lint; side by side what judges no times, one by one what does
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(UNIT)"
	$(BIN)/python -m pytest -n 3 --dist worksteal --reruns $(RERUNS) -m "sleeps and $(MEASURING)"
	$(BIN)/python -m pytest -n 2 --dist worksteal --reruns $(RERUNS) -m "untimed and $(MEASURING)"
	$(BIN)/python -m pytest --reruns $(RERUNS) -m "not untimed and not sleeps and $(MEASURING)"

LINES_OF = find $(1) -name '*.py' -exec cat {} + | wc -l
BUDGET_OF = sed -n 's/^$(1) = \([0-9][0-9]*\).*/\1/p' pyproject.toml

lint: $(INSTALLED)  ## ruff, mypy (strict), the order of the layers, the budget of lines
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	test $$($(call LINES_OF,bottleneck)) -le $$($(call BUDGET_OF,bottleneck))
	test $$($(call LINES_OF,tests)) -le $$($(call BUDGET_OF,tests))
	test $$($(call LINES_OF,benchmarks)) -le $$($(call BUDGET_OF,benchmarks))

coverage: $(INSTALLED)  ## what the unit tests run of the package: a table, and pages in build/coverage
	$(BIN)/python -m coverage run -m pytest -m "$(UNIT)" $(TESTS)
	$(BIN)/python -m coverage html
	$(BIN)/python -m coverage report

test-frameworks: $(FRAMEWORKS_INSTALLED)  ## on the real datasets and training loops of other packages
	$(BIN)/python -m pytest -n 2 --dist worksteal --reruns $(RERUNS) -m frameworks

test-environments: $(INSTALLED)  ## beside pandas, xarray, astropy and pydata's Bottleneck, for real
	$(BIN)/python -m pytest -m environments

bench: $(FRAMEWORKS_INSTALLED)  ## measure the numbers to hold, write benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.bench

docs: $(DOCS_INSTALLED)  ## build the site into build/site
	PYTHONPATH=. $(BIN)/properdocs build --strict -f mkdocs.yml

tutorial: $(INSTALLED)  ## run the tutorial and the tuning anew, on a quiet machine, and write outputs and pictures
	$(BIN)/python -m docs.make.tutorial
	$(BIN)/python -m docs.make.tuning
	$(BIN)/python -m docs.make.pictures

pictures: $(INSTALLED)  ## write the pictures and outputs of the documentation from the kept results
	$(BIN)/python -m docs.make.tutorial --kept
	$(BIN)/python -m docs.make.tuning --kept
	$(BIN)/python -m docs.make.pictures

# A bar that is missed is kept in the lines, and does not end the target.
gpu-check: $(INSTALLED)  ## what holds on a real accelerator, within eight minutes; writes benchmarks/GPU.md there
	-$(BIN)/python -m benchmarks.bench --part gpu
	$(BIN)/python -m pytest -m gpu

clean:  ## remove what the other targets made here, the virtual environment included
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage report.md report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
