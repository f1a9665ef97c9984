# Two commands do all the set-up: `make demo` and `make test`. Both create .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint check coverage kernels screenshots noise-picture tour clean
.PHONY: wheel wheels release workflows pythons floors lock supply-chain docs paper field-pictures fuzz

setup: .venv/.ready

# Both distributions: the library, and bench/ with the paper's experiments.
.venv/.ready: pyproject.toml bench/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "labeltide needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]' --editable ./bench
	touch $@

demo: setup
	$(BIN)/labeltide demo --out demo-output

test: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

coverage: setup
	$(BIN)/python -m pytest --numprocesses 2 --cov --cov-report=term-missing:skip-covered

# The kernels built with several compilers and options, and replayed; KERNELS_ARGS=--ci runs a share.
kernels: setup
	$(BIN)/python tools/kernels/check.py $(KERNELS_ARGS)

# Mutated files given to everything that reads files of strangers (docs/faults.md); FUZZ_SEED=1 repeats a run.
FUZZ_MINUTES ?= 2
fuzz: setup
	PYTHONPATH=tests:bench/tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz --minutes $(FUZZ_MINUTES) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

# The sdist and the wheel, tried in fresh environments outside the tree. Each of the three takes --fast, which runs a
# share of the contracts: `make wheel WHEEL_ARGS=--fast`. Other Pythons and the floors download some GB of torch.
wheel: setup
	$(BIN)/python tools/packaging/check_wheel.py $(WHEEL_ARGS)

# The wheels of all platforms, cross-compiled and tested here; into dist/. WHEELS_ARGS=--install also installs one.
wheels: setup
	$(BIN)/python tools/packaging/wheels.py $(WHEELS_ARGS)

# Everything that a release needs, into dist/; nothing is published. RELEASE_ARGS=--skip-build only checks.
release: setup
	$(BIN)/python tools/packaging/release.py $(RELEASE_ARGS)

# The commands of .github/workflows, run here.
workflows: setup
	$(BIN)/python tools/workflows.py $(WORKFLOWS_ARGS)

pythons: setup
	$(BIN)/python tools/packaging/check_pythons.py $(PYTHONS_ARGS)

floors: setup
	$(BIN)/python tools/packaging/check_floors.py $(FLOORS_ARGS)

# requirements.lock: the development environment with hashes.
lock: setup
	$(BIN)/python tools/packaging/lock.py

# Known vulnerabilities, and dist/sbom.json; SUPPLY_ARGS=--strict makes a package that was not looked up an error.
supply-chain: setup
	$(BIN)/python tools/packaging/supply_chain.py $(SUPPLY_ARGS)

# The documentation, into docs/_build/html; any warning is an error.
docs: setup
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -d docs/_build/doctrees docs docs/_build/html

# The page of the paper, from those of its records that are there: bench/results/paper/paper.html and its tables.
PAPER_STUDIES := $(addprefix bench/results/,paper/figures paper/tables paper/static paper/code paper/text paper/published annotators)
paper: setup
	$(BIN)/labeltide report $(wildcard $(PAPER_STUDIES)) --paper --out bench/results/paper

# The pictures of the pages by field, from the code of each page.
field-pictures: setup
	$(BIN)/python docs/pictures.py

# Pictures of an audit's page: of made-up results, or of the folder named by AUDIT=folder.
screenshots: setup
	$(BIN)/python docs/screenshots.py $(AUDIT)

# The README's first picture: how often labels are wrong over time, in truth and as estimated.
noise-picture: setup
	$(BIN)/python docs/noise.py

# The README's animated picture: an audit, its page and a review.
tour: setup
	$(BIN)/python docs/tour.py

clean:
	rm -rf .venv demo-output
