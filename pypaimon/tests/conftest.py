"""How the tests run: in which order and on which worker, with which seed, and the fixtures that any test may use."""

from __future__ import annotations

import fcntl
import gc
import itertools
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pypaimon import CatalogFactory

from pypaimon.streaming import logs
from support.repository import ROOT, TESTS
from support.samples import SOAK, VARIABLE, how_to_repeat, sample_seed, seeded
from support.tables import kept_commits

# Local time zones differ between machines; values that depend on one are tested with an explicit one.
os.environ["TZ"] = "UTC"
time.tzset()
# Spark's JVMs end before code that the best compilers made would pay. Their classes are those that were released, and
# verifying them is an eighth of what a session and its first query cost. No JVM looks at `TMPDIR`, and Spark leaves
# files in its directory of temporary files when it is killed.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    f"-Djava.io.tmpdir={tempfile.gettempdir()}",
)
os.environ.setdefault("SPARK_LOCAL_DIRS", tempfile.gettempdir())

SHARED = ("spark", "java", "flink", "ray")
"""Fixtures that take long to start: the tests that take one share a worker, so that a run starts it once."""
LONG = ("spark", "java", "flink", "torch", "ray", "server", "slow")
"""Marks of what takes long: such tests come first, so that no worker is left with one at the end."""
NEEDS_MARK = ("spark", "java", "flink", "server", "ray")
"""Fixtures whose tests must have the mark of the same name."""
MEMORY, MEMORY_NEEDED = Path("/dev/shm"), 8 << 30
"""A file system in memory, and the room that a run wants there."""

# An example takes longer on a busy machine, and examples that an earlier run kept would make this one differ.
settings.register_profile(
    "tests",
    deadline=None,
    database=None,
    max_examples=100 if SOAK else 30,
    derandomize=not os.environ.get(VARIABLE),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--files", choices=("usual", "reversed", "random"), default="usual", help="the order in which test files run"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores: many tests wait for programs that they have started. Each more imports all anew."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Each worker imports the folders from another one on, so that few files are compiled by several of them.

    Nothing is garbage until all tests are collected.
    """
    gc.disable()
    if os.environ.get(VARIABLE):
        config.option.hypothesis_seed = str(sample_seed())
    if config.getoption("numprocesses", None) and not config.option.basetemp and MEMORY.is_dir():
        _keep_files_in_memory(config)
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args == config.getini("testpaths"):
        number = int(worker["workerid"].removeprefix("gw"))
        folders = [str(path) for path in sorted(TESTS.iterdir()) if path.is_dir()]
        first = len(folders) * number // worker["workercount"]
        config.args[:] = folders[first:] + folders[:first]


def _keep_files_in_memory(config: pytest.Config) -> None:
    """Make the tests' directories in memory, if it has room: a disk takes three times as long for many small files."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED:
        config.option.basetemp = tempfile.mkdtemp(prefix="pypaimon-streaming-tests-", dir=MEMORY)
        config.add_cleanup(partial(shutil.rmtree, config.option.basetemp, ignore_errors=True))


def pytest_collection_finish() -> None:
    """What is there once the tests are collected stays: it is not looked at again for garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, and tell xdist which share a worker: those of a file, of a fixture of `SHARED`, or marked so.

    Raises:
        pytest.UsageError: A test lacks the mark that its fixture asks for.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for name in NEEDS_MARK:
            if name in fixtures and item.get_closest_marker(name) is None:
                raise pytest.UsageError(f"{item.nodeid} takes the fixture `{name}`: mark it with pytest.mark.{name}")
        if item.get_closest_marker("xdist_group") is None:
            group = next((name for name in SHARED if name in fixtures), item.path.stem)
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (_rank(item), item.path))
    order = config.getoption("files")
    if order != "usual":
        files = sorted({item.path for item in items}, reverse=True)
        if order == "random":
            seeded("order of the files").shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


def _rank(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    return next((rank for rank, mark in enumerate(LONG) if mark in marks), len(LONG))


def pytest_report_header() -> str:
    """The seed of the samples."""
    return how_to_repeat()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After a failure, how its samples are drawn again."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(how_to_repeat())


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_young() -> None:
    """What is there before the tests of a file stays, so that collecting garbage looks only at what came since."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """What a page of the docs or the command line's `--verbose` sets of the library's log ends with its test.

    Nor does an outage of one test keep the WARNING of another one from being written.
    """
    logs.outages = logs.Outages()
    levels = {log: log.level for log in map(logging.getLogger, ("pypaimon", "pypaimon.streaming"))}
    yield
    for log, level in levels.items():
        log.setLevel(level)


@pytest.fixture(autouse=True)
def _commits_once(request: pytest.FixtureRequest) -> None:
    """No two tables of a test hold the same snapshot."""
    kept_commits.begin_test(anew=request.node.get_closest_marker("new_files") is not None)


_paths = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory. pytest's own fixture looks through those of all earlier tests each time."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}-{next(_paths)}", numbered=False)


@pytest.fixture
def warehouse(tmp_path: Path) -> Any:
    """A filesystem catalog of pypaimon over an empty warehouse, with a database `db`."""
    catalog = CatalogFactory.create({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("db", True)
    return catalog


@pytest.fixture
def hanging() -> Any:
    """A FileIO whose calls hang where a test says so, until its end."""
    from support.stores.fault_file_io import HangingFileIO

    file_io = HangingFileIO()
    yield file_io
    file_io.go_on.set()


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


@pytest.fixture
def few_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_target` kills targets that are right at fewer lines than those of users, but for the long form."""
    if not SOAK:
        # The package has a function of the module's name.
        monkeypatch.setattr(import_module("pypaimon.streaming.testing.check_target"), "_KILLS", 3)


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
            build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", draft, ROOT)
            # By uv in a part of the time, where it is there and its settings tell an index.
            if subprocess.run((*build, "--installer", "uv"), check=False, capture_output=True).returncode:
                shutil.rmtree(draft)
                subprocess.run(build, check=True, capture_output=True)
            draft.rename(directory)
    return directory


@pytest.fixture(scope="session")
def java() -> Any:
    """One JVM of live Java for all tests of a run; it fails where Maven or a JDK is missing."""
    from support.java.live import LiveJava

    _need_maven("live Java")
    with LiveJava() as found:
        yield found


@pytest.fixture(scope="session")
def flink() -> Any:
    """One JVM of a live Flink for all tests of a run; it fails where Maven or a JDK is missing."""
    from support.java.flink import LiveFlink

    _need_maven("a live Flink")
    with LiveFlink() as found:
        yield found


def _need_maven(what: str) -> None:
    from support.java.live import missing_commands

    if missing := missing_commands():
        pytest.fail(f"{what} needs Maven and a JDK 17 or newer; not found: {', '.join(missing)}", pytrace=False)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One Spark session for all tests of a run."""
    from support.spark.session import new_session

    session = new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
