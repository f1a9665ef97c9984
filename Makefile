# Two commands do all the set-up: `make demo` and `make test`. Both create .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check coverage screenshots noise-picture clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "labeltide needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/labeltide demo --out demo-output

test: setup
	$(BIN)/python -m pytest --numprocesses 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses 2

coverage: setup
	$(BIN)/python -m pytest --numprocesses 2 --cov --cov-report=term-missing:skip-covered

# Pictures of an audit's page: of made-up results, or of the folder named by AUDIT=folder.
screenshots: setup
	$(BIN)/python docs/screenshots.py $(AUDIT)

# The README's first picture: how often labels are wrong over time, in truth and as estimated.
noise-picture: setup
	$(BIN)/python docs/noise.py

clean:
	rm -rf .venv demo-output
