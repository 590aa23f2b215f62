"""Fixtures that any test may use: a warehouse or an object store of its own, and a clock that stands in UTC."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pypaimon import CatalogFactory

from support.repository import ROOT, TESTS
from support.samples import how_to_repeat, is_drawn

# Local time zones differ between machines; values that depend on one are tested with an explicit one.
os.environ["TZ"] = "UTC"
time.tzset()
# Of JVMs that tests start: they end before the best code that compilers can make would pay, and Spark's classes, whose
# verification is an eighth of what a session and its first query cost, are those that were released.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

ON_SPARK = [
    f"spark_{name}_test.py"
    for name in (
        "docs",
        "batch",
        "stream",
        "kill",
        "sink_write",
        "sink_types",
        "compaction",
        "corpus",
        "native",
        "types",
    )
]
"""Files with tests that take the fixture `spark`."""
ON_JAVA = [
    *("differential_test.py", "java_files_test.py", "java_twins_test.py", "java_race_test.py", "commit_java_test.py"),
    *("compaction_java_test.py", "dynamic_buckets_java_test.py", "spark_sink_java_test.py"),
    *("vectors_compaction_test.py", "record_expiry_java_test.py", "partition_rows_java_test.py", "group_java_test.py"),
    "float_order_java_test.py",
]
"""Files with tests that take the fixture `java`."""
ON_TORCH = [
    f"{name}_test.py" for name in ("torch_feed", "ray_feed", "train_example", "imports", "public_face", "type_hints")
]
"""Files that import torch or ray, which takes seconds of each process."""
_SHARED = {"spark": ON_SPARK, "java": ON_JAVA, "torch": ON_TORCH}
LONG = [
    f"{name}_test.py"
    for name in (
        *("spark_sink_kill", "spark_installed", "spark_example", "packaging", "corpus", "notebooks"),
        *("docs", "concurrency", "manifests", "faults", "cancellation", "spark_sink_exactly_once"),
        *("interrupts", "s3_requests", "ranges_model", "crash", "long_run", "corpus_batch", "progress_machine"),
        *("group_model", "check_target", "adbc_targets", "live_table", "keyed_vectors", "cli_tail", "group_processes"),
    )
]
"""Files that take long, or wait long for other programs."""
_ORDER = {name: number for number, name in enumerate((*ON_SPARK, *ON_JAVA, *LONG))}

# How long an example takes says nothing on a machine that does other things beside.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three workers more than cores: many tests wait for programs that they have started."""
    return (os.cpu_count() or 1) + 3


def pytest_configure(config: pytest.Config) -> None:
    """Each worker imports the folders from another one on, so that few files are compiled by several of them.

    Until all tests are collected nothing is garbage.
    """
    gc.disable()
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args == config.getini("testpaths"):
        number = int(worker["workerid"].removeprefix("gw"))
        folders = [str(path) for path in sorted(TESTS.iterdir()) if path.is_dir()]
        first = len(folders) * number // worker["workercount"]
        config.args[:] = folders[first:] + folders[:first]


def pytest_collection_finish() -> None:
    """What is there once the tests are collected stays: nobody looks whether it is garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` one worker has the session of Spark, and one the JVM: others take long to start."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return next((name for name, files in _SHARED.items() if Path(file).name in files), file)

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker is left with it at the end; what the commit has not drawn is left.

    Raises:
        pytest.UsageError: A test takes the session of Spark outside the files of `ON_SPARK`, or Java outside `ON_JAVA`.
    """
    for item in items:
        for name, files in _SHARED.items():
            if name in getattr(item, "fixturenames", ()) and item.path.name not in files:
                raise pytest.UsageError(f"{item.path.name} takes `{name}`: name it in ON_{name.upper()} of conftest.py")
    asked = config.option.keyword or config.option.markexpr or any("::" in each for each in config.args)
    chosen = bool(os.environ.get("SOAK") or asked)
    left = [] if chosen else [item for item in items if not _is_drawn(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: (_ORDER.get(item.path.name, len(_ORDER)), item.path))


def _is_drawn(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("by_commit")
    if mark is None:
        return True
    drawn = {"of": f"{item.path.name} {item.name}", **mark.kwargs}
    return is_drawn(drawn["of"], drawn["one_in"])


def pytest_report_header() -> str:
    """Which samples are drawn."""
    return how_to_repeat()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After a failure, how its samples are drawn again."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(how_to_repeat())


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_young() -> None:
    """What is there before the tests of a file stays: whoever collects garbage looks at what came since."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """What a page of the docs or the command line's `--verbose` sets of the library's log ends with its test."""
    levels = {log: log.level for log in map(logging.getLogger, ("pypaimon", "pypaimon.streaming"))}
    yield
    for log, level in levels.items():
        log.setLevel(level)


@pytest.fixture
def warehouse(tmp_path: Path) -> Any:
    """A filesystem catalog of pypaimon over an empty warehouse, with a database `db`."""
    catalog = CatalogFactory.create({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("db", True)
    return catalog


@pytest.fixture(scope="module")
def server() -> Any:
    """An object store for the tests of a module."""
    from support.stores.s3_server import S3Server

    found = S3Server()
    found.start()
    yield found
    found.stop()


@pytest.fixture(params=["fast", "file_io"])
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the client of the extra `fast` asks an object store: with it, and without."""
    from pypaimon.streaming.io.object_reads import SWITCH

    monkeypatch.setenv(SWITCH, "on" if request.param == "fast" else "off")
    return bool(request.param == "fast")


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a source distribution and the wheel that was built from it: once for all workers of a run."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    shared = tmp_path_factory.mktemp("built") if alone else tmp_path_factory.getbasetemp().parent
    directory = shared / "distributions"
    with (shared / "distributions.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            draft = tmp_path_factory.mktemp("draft")
            build = (sys.executable, "-m", "build", "--outdir", draft, ROOT)
            # By uv in a part of the time, where it is there and its settings tell an index.
            if subprocess.run((*build, "--installer", "uv"), check=False, capture_output=True).returncode:
                shutil.rmtree(draft)
                subprocess.run(build, check=True, capture_output=True)
            draft.rename(directory)
    return directory


@pytest.fixture(scope="session")
def java() -> Any:
    """One JVM of live Java for all tests of a run; it fails where Maven or a JDK is missing."""
    from support.java.live import LiveJava, missing_commands

    if missing := missing_commands():
        pytest.fail(f"no live Java: {', '.join(missing)} not found")
    with LiveJava() as found:
        yield found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One Spark session for all tests of a run."""
    from support.spark.session import new_session

    session = new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
