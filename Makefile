# Everything a fresh machine needs is set up by the first target that is made.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := torch==2.13.0
JOBS ?= 2

.PHONY: demo test test-all check format lint types bench clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nanwatch needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)  ## a bag of which nothing is left, in an attention classifier: found and named
	@$(BIN)/nanwatch run examples/attention_pooling --fault empty-bag; code=$$?; \
	if [ $$code -ne 3 ]; then echo "expected exit code 3, got $$code"; exit 1; fi

test: $(READY)  ## the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-all: $(READY)  ## the tests, the slow ones too
	NEW_EXAMPLES=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m ""

check: $(READY) lint types test  ## format, lint, types, tests

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## overhead and statistics, side by side in one run
	$(BIN)/python -m bench.overhead
	$(BIN)/python -m bench.statistics
	$(BIN)/python -m bench.diagnosis
	$(BIN)/python -m bench.run

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
