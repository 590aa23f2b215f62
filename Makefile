# The project's commands. They need Python 3.10 to 3.14 and make; everything else goes into .venv.

VENV := .venv
RUN := $(VENV)/bin/python
SUITABLE := import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 15))
PYTHON := $(shell for each in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	$$each -c "$(SUITABLE)" >/dev/null 2>&1 && echo $$each && break; done)

# The tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# What each size of the tests leaves out. `make soak` draws other samples each time; the seed repeats them.
PYTEST := $(RUN) -m pytest
GROUPED := --dist loadgroup --no-loadscope-reorder
QUICK := not (java or flink or spark or server or torch or ray or orchestrators or nightly$(if $(WHERE),, or slow))
FEEDS := (torch or ray) and not nightly
TEST_SEED := $(or $(TEST_SEED),$(shell date +%s))

.PHONY: help demo check quick test test-feeds test-orchestrators alone lint corpus differential flink soak matrix bench bench-public readme docs first-hours release clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s%s\n", $$1, $$2 }' Makefile

demo: $(VENV)/demo-ready ## Follow a live table for a minute (SECONDS=n for another time)
	@$(RUN) -m pypaimon.streaming.demo --seconds $(or $(SECONDS),60)

check: $(VENV)/ready ## Style, types and quick tests: a minute on 2 cores (WHERE=planning for the tests of one folder)
	@echo "Style, types and quick tests: about a minute on 2 cores"
	@$(MAKE) --no-print-directory -j 2 lint quick

quick: $(VENV)/ready
	$(PYTEST) -q -n logical $(GROUPED) -m "$(QUICK)" pypaimon/tests/$(WHERE) $(ARGS)

test: $(VENV)/ready ## All tests but those of PyTorch and Ray: 8 minutes on 2 cores (ARGS="-k name" for some)
	@$(if $(ARGS),,echo "All tests but those of PyTorch and Ray: about 8 minutes on 2 cores")
	$(PYTEST) -n auto $(GROUPED) $(ARGS)

test-feeds: $(VENV)/feeds-ready ## The tests of PyTorch and Ray: 2 minutes on 2 cores
	@$(if $(ARGS),,echo "The tests of PyTorch and Ray: about 2 minutes on 2 cores")
	$(PYTEST) -n 2 $(GROUPED) -m "$(FEEDS)" $(ARGS)

test-orchestrators: $(VENV)-airflow/ready $(VENV)-orchestrators/ready ## The tests of Airflow, Dagster, Prefect, dlt, Bytewax and Quix Streams: 6 minutes on 2 cores
	$(VENV)-airflow/bin/python -m pytest -W default -m orchestrators pypaimon/tests/orchestrators/airflow_test.py $(ARGS)
	$(VENV)-orchestrators/bin/python -m pytest -W default -m orchestrators pypaimon/tests/orchestrators --ignore pypaimon/tests/orchestrators/airflow_test.py $(ARGS)

alone: $(VENV)/ready ## Each test file in a process of its own: an hour on 2 cores (ARGS="--some 20", or files)
	$(RUN) pypaimon/tests/support/run.py support.alone $(ARGS)

lint: $(VENV)/ready ## Style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check --quiet .
	$(RUN) -m mypy

corpus: $(VENV)/ready ## Our reads compared with Java's
	$(RUN) pypaimon/tests/support/run.py support.corpus.report $(ARGS)

differential: $(VENV)/ready ## Random histories next to live Java, some minutes (needs Maven and a JDK; N=n, KIND=tracked for one kind)
	@echo "TEST_SEED=$(TEST_SEED) draws these histories again"
	TEST_SEED=$(TEST_SEED) DIFFERENTIAL_HISTORIES=$(or $(N),300) DIFFERENTIAL_KIND="$(KIND)" $(PYTEST) -s $(addprefix pypaimon/tests/, histories/differential_test.py writing/java_twins_test.py writing/java_race_test.py maintenance/maintain_java_test.py compaction/histories_java_test.py) $(ARGS)

flink: $(VENV)/ready ## A live Flink writes what ours follow, and reads what ours write (needs Maven and a JDK)
	$(PYTEST) -m flink pypaimon/tests/histories $(ARGS)

soak: $(VENV)/feeds-ready ## Long forms, hours: crashes at every step, crowds, fuzzing; then thousands of histories (N=n)
	@echo "TEST_SEED=$(TEST_SEED) draws these samples again"
	SOAK=1 TEST_SEED=$(TEST_SEED) $(PYTEST) -n auto $(GROUPED) --timeout 14400 -m "soak or nightly" $(ARGS)
	$(MAKE) differential N=$(or $(N),6000) TEST_SEED=$(TEST_SEED) ARGS=

matrix: $(VENV)/ready ## The tests on each supported Python, pyarrow, pandas, numpy and PySpark (ARGS="-s 'matrix(oldest)'" for a row)
	$(RUN) -m nox $(ARGS)

bench: $(VENV)/ready ## Requests, time and memory compared with pypaimon; writes docs/benchmarks.md
	$(RUN) -m pip install --quiet --editable '.[bench]'
	$(RUN) -m benchmarks $(ARGS)

bench-public: $(VENV)/ready ## The same work by ours, Flink, Java and others, an hour (needs Maven and a JDK; SCALE=0.1: minutes)
	$(RUN) -m pip install --quiet --editable '.[bench]'
	$(RUN) -m benchmarks.public --scale $(or $(SCALE),1) $(ARGS)

readme: $(VENV)/ready ## The README's picture of the demo, and its figures out of docs/benchmarks.md
	$(RUN) pypaimon/tests/support/run.py support.docs.readme_parts

docs: $(VENV)/docs-ready ## The site of the documentation, in build/site; each of its links is checked
	$(RUN) -m mkdocs build

first-hours: $(VENV)/ready ## What five people type first, from a fresh clone and HOME, with times: ten minutes (ROLE=operator)
	$(RUN) pypaimon/tests/support/run.py support.docs.first_hours $(ROLE)

release: $(VENV)/ready ## The files of a release in dist/, checked and tried; a rehearsal without a tag; publishes nothing
	$(RUN) .ci/release.py

clean: ## Remove the environments and what was built
	rm -rf $(VENV) $(VENV)-airflow $(VENV)-orchestrators build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .nox

# The environment: with what the demo needs, then with what the tests and the other commands do, then with PyTorch and Ray.
# uv takes half of pip's time. It does not read pip's settings: where only those name the index, pip does the rest.
PIP_INSTALL := $(RUN) -m pip install --disable-pip-version-check
NO_INDEX := pip cannot download packages: no network, or no index that its settings name ($(RUN) -m pip download uv says more)
INSTALL = install() { \
	$(PIP_INSTALL) -qqq --retries 1 uv 2>/dev/null || { echo "$(NO_INDEX)" >&2; return 1; }; \
	$(RUN) -m uv pip install --python $(RUN) --override .ci/overrides.txt "$$@" || $(PIP_INSTALL) "$$@"; \
	}; install

$(RUN):
ifeq ($(PYTHON),)
	@echo "Python 3.10, 3.11, 3.12, 3.13 or 3.14 with its venv module is needed; none was found." >&2; exit 1
endif
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/demo-ready: pyproject.toml | $(RUN)
	@echo "Installing pypaimon and what the demo needs, once: about 200 MB to download, 600 MB on disk"
	@$(INSTALL) --editable '.[cli]'
	@touch $@

$(VENV)/docs-ready: pyproject.toml | $(RUN)
	@echo "Installing what builds the site, once: about 220 MB to download"
	@$(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/ready: pyproject.toml | $(RUN)
	@echo "Installing what the tests need, Spark with it, once: about 1.1 GB to download; some minutes"
	@$(INSTALL) --no-deps 'pyspark<4.4' # uv would download this source twice behind a proxy that forbids caching
	@$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/demo-ready $(VENV)/docs-ready

$(VENV)/feeds-ready: $(VENV)/ready
	@echo "Installing PyTorch and Ray, once: about 3 GB to download (300 MB with UV_TORCH_BACKEND=cpu); some minutes"
	@$(INSTALL) --editable '.[dev,test-feeds]'
	@touch $@

# Frameworks that pin what others want newer: environments of their own, made with the uv of the first one.
$(VENV)-%/ready: pyproject.toml | $(VENV)/demo-ready
	@echo "Installing what the tests of $* need, once: about 900 MB on disk"
	@$(RUN) -m uv venv --quiet --clear --python $(RUN) $(VENV)-$*
	@$(RUN) -m uv pip install --quiet --python $(VENV)-$*/bin/python --editable '.[test-$*]'
	@touch $@
