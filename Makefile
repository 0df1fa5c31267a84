# make run    install into .venv and run the default comparison (ARGS="--seeds 3" adds flags)
# make test   install and run what a change can break, in minutes (ARGS="-k spec" selects)
# make test-all  the slow tests as well: kills, edits between runs, clusters, browser, real models where they are
# make check  lint, format, types, which file may import which, and the budget of code lines
# make docs   the documentation as a site in build/docs, with the board of all entries; a broken link or a page outside
#             the navigation is an error
# make gpu    speed on one NVIDIA GPU, and all methods there against the CPU, in eight minutes; installs nothing and needs
#             PyTorch and transformers in $(GPU_PYTHON); written to benchmarks/gpu.json and docs/benchmarks.md
# make bench  speed of the engine, written to benchmarks/results.json and docs/benchmarks.md (ARGS="decode" selects)

VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
INSTALLED := $(VENV)/.installed
# The first interpreter that is new enough and can make a virtual environment; the pinned set is tested with 3.11.
USABLE = import sys, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 /usr/bin/python3.11 python3 python3.12 python3.13; do \
	$$python -c "$(USABLE)" 2>/dev/null && { echo $$python; break; }; done)
GPU_PYTHON ?= python3
ARGS ?=

.PHONY: run test test-all check docs bench gpu clean
.DEFAULT_GOAL := run

run: $(RUNS)
	$(BIN)/adaptive-bench run $(ARGS)

PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: $(INSTALLED)
	$(PYTEST) $(ARGS)

test-all: $(INSTALLED)
	ADAPTIVE_BENCH_RANDOM_SHAPES=4 $(PYTEST) -m "not gpu and not network" $(ARGS)

check: $(INSTALLED)
	$(BIN)/python .ci/budget.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	rm -rf build/imports && mkdir -p build/imports && cp -r adaptive_bench build/imports/
	cp -r methods tasks leaderboard configs build/imports/adaptive_bench/
	cd build/imports && PYTHONPATH=. ../../$(BIN)/lint-imports --config ../../pyproject.toml --no-cache

docs: $(INSTALLED)
	$(BIN)/python -m adaptive_bench.docs docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/adaptive-bench leaderboard build leaderboard/entries -o build/docs/board
	@echo "Written to build/docs/index.html"

bench: $(INSTALLED)
	$(BIN)/python benchmarks $(ARGS)

gpu:
	$(GPU_PYTHON) benchmarks/gpu.py $(ARGS)

# Compiling every module of every library takes as long as the rest of the installation; a run imports a sixth of them.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --use-pep517 --constraint constraints.txt --editable
COMPILED = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python

$(RUNS): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with the venv module is needed (Debian: apt install python3-venv)."; exit 1; }
	@echo "Installing into $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	@$(COMPILED) -c "import adaptive_bench.runs.runner"
	@touch $@

$(INSTALLED): $(RUNS)
	$(INSTALL) '.[dev]'
	@$(COMPILED) -m compileall -qq -j 0 $(VENV)/lib || true  # some modules are for other versions of Python
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
