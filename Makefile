# Everything is installed into .venv; only Python 3.10 or later (with venv) and make have to be there.
# Each .stamp file records one finished installation and is redone when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install $(if $(V),,--quiet)
NBVAL := $(BIN)/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout=120 \
	--nbval-sanitize-with tests/nbval_sanitize.cfg

# Extra arguments for JupyterLab, for example LAB_ARGS="--no-browser --port=8899".
LAB_ARGS ?=
# Extra arguments for pytest, for example PYTEST_ARGS="-k planner -x".
PYTEST_ARGS ?=
# Processes that share the unit tests; "make PYTEST_WORKERS=0 unit" runs them in one, for a debugger.
PYTEST_WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help lab tour test lint format unit notebooks test-browser lessons conformance fuzz fuzz-loaders bench clean

help: ## Show this list
	@echo "npu_kit: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Another Python: make PYTHON=python3.12 lab.   pip's own output: make V=1 lab."

lab: $(VENV)/.stamp-lab ## Install and open the lessons in JupyterLab (LAB_ARGS="--no-browser")
	$(BIN)/jupyter lab notebooks $(LAB_ARGS)

tour: $(VENV)/.stamp-lab ## Run a digits classifier through all four stages, in the terminal
	$(BIN)/npu-kit tour

test: lint unit notebooks ## Install, then run every check but the browser's: lint, unit tests, all notebooks

lint: $(VENV)/.stamp-dev ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.stamp-dev ## Lay out the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: $(VENV)/.stamp-dev ## Run the tests in tests/ (PYTEST_ARGS="-k planner")
	$(BIN)/python -m pytest --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 --dist=worksteal $(PYTEST_ARGS)

notebooks: $(VENV)/.stamp-dev ## Run all notebooks: as the learner gets them, then the solved ones, with every exercise right
	$(NBVAL) --ignore=notebooks/solutions notebooks
	NPU_KIT_EXERCISES=strict $(NBVAL) notebooks/solutions

test-browser: $(VENV)/.stamp-browser ## Drive the lessons in a real JupyterLab with a real Chromium
	chromium=$$(sh scripts/ensure_chromium.sh) && \
	NPU_KIT_CHROMIUM="$$chromium" $(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

lessons: $(VENV)/.stamp-dev ## Build notebooks/ from lessons/ (overwrites the notebooks), and the pictures and operation cards in docs/
	$(BIN)/python scripts/build_lessons.py
	$(BIN)/python scripts/build_pictures.py
	$(BIN)/python scripts/build_op_cards.py

conformance: $(VENV)/.stamp-dev ## Hold the kit against every case of the onnx package (some minutes)
	$(BIN)/python scripts/conformance.py

# How many models to draw, and from which seed: FUZZ_ARGS="--cases 20000 --seed 7"; one again: FUZZ_ARGS="--only 7:123".
FUZZ_ARGS ?=
fuzz: $(VENV)/.stamp-dev ## Draw random models and hold the kit against TVM and float64 (FUZZ_ARGS="--cases 20000")
	$(BIN)/python scripts/fuzz.py $(FUZZ_ARGS)

# For how long, and which: LOADERS_ARGS="--seconds 600 graph arrays".
LOADERS_ARGS ?= --seconds 60
fuzz-loaders: $(VENV)/.stamp-fuzz ## Feed broken files to every loader, guided by coverage (LOADERS_ARGS="--seconds 600")
	$(BIN)/python fuzz/run.py $(LOADERS_ARGS)

bench: $(VENV)/.stamp-dev ## Time planning, running and compiling on this machine
	$(BIN)/python bench/run.py

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +

$(VENV)/.stamp-python:
	@sh scripts/check_python.sh "$(PYTHON)"
	@echo "Making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-lab: pyproject.toml $(VENV)/.stamp-python
	@echo "Installing the kit, TVM and JupyterLab into $(VENV): about a minute, 0.7 GB"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml $(VENV)/.stamp-python
	@echo "Installing the kit and its test tools into $(VENV): about a minute, 1.1 GB"
	@$(PIP) --editable ".[dev]"
	@touch $@ $(VENV)/.stamp-lab

$(VENV)/.stamp-fuzz: pyproject.toml $(VENV)/.stamp-dev
	@echo "Installing Atheris into $(VENV)"
	@$(PIP) --editable ".[dev,fuzz]"
	@touch $@

$(VENV)/.stamp-browser: pyproject.toml $(VENV)/.stamp-dev
	@echo "Installing Playwright into $(VENV)"
	@$(PIP) --editable ".[dev,browser]"
	@touch $@
