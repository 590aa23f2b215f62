# The project's commands. They need Python 3.10 to 3.14 and make; everything else goes into .venv.

VENV := .venv
RUN := $(VENV)/bin/python
SUITABLE := import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 15))
PYTHON := $(shell for each in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	$$each -c "$(SUITABLE)" >/dev/null 2>&1 && echo $$each && break; done)

# The tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint corpus differential soak matrix bench readme release clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-14s%s\n", $$1, $$2 }' Makefile

demo: $(VENV)/demo-ready ## Follow a live table for a minute (SECONDS=n for another time)
	@$(RUN) -m pypaimon.streaming.demo --seconds $(or $(SECONDS),60)

test: $(VENV)/ready ## Every test, in about 12 minutes on 2 cores (ARGS="-k name" for some)
	@$(if $(ARGS),,echo "Every test: about 12 minutes on 2 cores")
	$(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/ready ## Style and types
	$(RUN) -m ruff check .
	$(RUN) -m mypy

corpus: $(VENV)/ready ## Our reads beside Java's: the scoreboard
	$(RUN) pypaimon/tests/support/run.py support.corpus.report $(ARGS)

differential: $(VENV)/ready ## Random histories beside live Java, some minutes (needs Maven and a JDK; N=n)
	DIFFERENTIAL_HISTORIES=$(or $(N),300) $(RUN) -m pytest -s pypaimon/tests/histories/differential_test.py $(addprefix pypaimon/tests/writing/, java_twins_test.py java_race_test.py) $(ARGS)

soak: $(VENV)/ready ## Long forms: crashes at every step, crowds, fuzzing; then thousands of histories (N=n)
	SOAK=1 $(RUN) -m pytest -n auto --dist load $(addprefix pypaimon/tests/, histories/model_test.py histories/rollback_model_test.py consumers/shard_group_test.py consumers/progress_machine_test.py consumers/groups/group_model_test.py group_streams/group_processes_test.py histories/corpus_test.py histories/corpus_batch_test.py histories/ranges_model_test.py formats/record_files_test.py formats/row_files_test.py metadata/manifests_test.py histories/faults_test.py histories/faults_corpus_test.py histories/faults_process_test.py histories/crash_test.py histories/long_run_test.py planning/resharding_test.py histories/concurrency_test.py model/position_test.py metadata/hostile_input_test.py metadata/hostile_files_test.py metadata/snapshots_test.py formats/binary_row_test.py filtering/pruning_test.py cli/cli_inspect_test.py scanning/interrupts_test.py writing/commit_faults_test.py writing/manifest_merge_test.py writing/dynamic_buckets_test.py writing/java_files_test.py writing/copy_crash_test.py writing/writer_conflicts_test.py writing/full_disk_test.py writing/killed_writer_test.py compaction/compaction_model_test.py compaction/compaction_changelog_test.py compaction/concurrent_compaction_test.py databases/database_model_test.py databases/database_changing_test.py databases/database_names_test.py databases/killed_copy_test.py databases/paimon_database_test.py live_tables/live_history_test.py apply_changes/killed_targets_test.py apply_changes/bad_target_test.py apply_changes/lakes_on_s3_test.py feeds/feed_test.py feeds/torch_feed_test.py)
	SOAK=1 $(RUN) -m pytest pypaimon/tests/databases/database_crowd_test.py
	$(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m by_commit
	SOAK=1 $(RUN) -m pytest $(addprefix pypaimon/tests/, spark/spark_installed_test.py spark/spark_example_test.py project/notebooks_test.py project/spark_docs_test.py spark/read/spark_corpus_test.py spark/read/spark_batch_test.py spark/read/spark_stream_test.py spark/write/spark_sink_write_test.py spark/read/spark_kill_test.py spark/write/spark_sink_kill_test.py spark/write/spark_sink_exactly_once_test.py spark/write/spark_sink_copy_test.py)
	DIFFERENTIAL_HISTORIES=$(or $(N),6000) $(RUN) -m pytest -s pypaimon/tests/histories/differential_test.py $(addprefix pypaimon/tests/writing/, java_twins_test.py java_race_test.py) $(ARGS)

matrix: $(VENV)/ready ## The tests on each supported Python, pyarrow, pandas, numpy and PySpark (ARGS="-s 'matrix(oldest)'" for a row)
	$(RUN) -m nox $(ARGS)

bench: $(VENV)/ready ## Requests, time and memory beside pypaimon; writes docs/benchmarks.md
	$(RUN) -m pip install --quiet --editable '.[bench]'
	$(RUN) -m benchmarks $(ARGS)

readme: $(VENV)/ready ## The README's picture of the demo, and its figures out of docs/benchmarks.md
	$(RUN) pypaimon/tests/support/run.py support.docs.readme_parts

release: $(VENV)/ready ## The distributions of the tag that is checked out, with bill of materials and checksums, in dist/
	$(RUN) .ci/release.py

clean: ## Remove the environment and what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .nox

# The environment: with what the demo needs, then with all that the tests and the other commands do.
# uv takes half of pip's time. It does not read pip's settings: where only those tell the index, pip goes on.
PIP_INSTALL := $(RUN) -m pip install --disable-pip-version-check
INSTALL = install() { \
	$(PIP_INSTALL) --quiet uv && \
	$(RUN) -m uv pip install --python $(RUN) --override .ci/overrides.txt --editable "$$1" || \
	$(PIP_INSTALL) --editable "$$1"; \
	}; install

$(RUN):
ifeq ($(PYTHON),)
	@echo "Python 3.10, 3.11, 3.12, 3.13 or 3.14 with its venv module is needed; none was found." >&2; exit 1
endif
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/demo-ready: pyproject.toml | $(RUN)
	@echo "Installing pypaimon and what the demo needs, once: about 200 MB to download, 600 MB on disk"
	@$(INSTALL) '.[cli]'
	@touch $@

$(VENV)/ready: pyproject.toml | $(RUN)
	@echo "Installing all that the tests need, Spark and PyTorch with it, once: about 4 GB to download, 1.3 GB with UV_TORCH_BACKEND=cpu; some minutes"
	@$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/demo-ready
