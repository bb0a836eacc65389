PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

PYTEST := $(BIN)/pytest
PARALLEL := -n 2 --dist worksteal
NPM := build/npm
TIERS := process database browser real slow timing
space := $(subst ,, )

# Tests start many interpreters. Without cached bytecode each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Pages that `make prose` checks. Every new or rewritten page joins the list.
PROSE := README.md CONTRIBUTING.md docs/reference/glossary.md docs/reference/problems.md docs/reference/conformance.md \
	docs/reference/messages.md docs/reference/providers/profiles.md docs/reference/command-line.md docs/tutorial/first-answer.md \
	docs/how-to/registries.md docs/how-to/credentials.md docs/how-to/migrate-from-v1.md docs/how-to/switch-models.md \
	docs/how-to/usage-and-cost.md docs/how-to/batch-from-python.md docs/how-to/notebooks.md docs/how-to/partials.md

.PHONY: setup check format types prose test test-all $(TIERS:%=test-%) conformance bench docs pin soak

setup: $(VENV)/.ready

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(NPM)/.ready: requirements/npm.txt
	npm install --prefix $(NPM) --no-audit --no-fund --silent $$(cat requirements/npm.txt)
	touch $@

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Pyright reads the installed package, as an editor does, so it needs the environment's Python on its path.
types: setup $(NPM)/.ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(NPM)/node_modules/.bin/pyright --verifytypes prompty --ignoreexternal
	PATH="$(CURDIR)/$(BIN):$$PATH" $(NPM)/node_modules/.bin/pyright tests/typing/test_signatures.py tests/batch/test_python.py

prose: $(NPM)/.ready
	$(NPM)/node_modules/.bin/textlint $(PROSE)

# What a contributor runs all day. The other tiers start processes, databases, browsers or real servers, take long, or
# measure time.
test: setup
	$(PYTEST) $(PARALLEL) -m "not ($(subst $(space), or ,$(TIERS)))"

$(TIERS:%=test-%): test-%: setup
	$(PYTEST) $(PARALLEL) -m $*

# Time is measured when nothing else runs.
test-all: setup
	$(PYTEST) $(PARALLEL) -m "not timing"
	$(PYTEST) -m timing

conformance: setup
	$(BIN)/pytest tests/conformance tests/architecture/test_spec_statements.py tests/architecture/test_spec_report.py
	$(BIN)/pytest --collect-only -qqq --spec-report

bench: setup
	$(BIN)/python -m benchmarks.run

soak: setup
	PROMPTY_SOAK=1 $(BIN)/pytest -n 2 tests/security tests/providers tests/loop tests/conversations tests/memory tests/durable tests/batch tests/transports tests/real

docs: setup
	$(BIN)/python scripts/write_schema.py
	$(BIN)/python scripts/write_provider_docs.py
	$(BIN)/python -m scripts.write_conformance

pin: setup
	$(BIN)/python -m pip install --quiet --upgrade --requirement requirements/dev.in
	$(BIN)/python -m pip freeze --exclude-editable > requirements/dev.txt
