"""Fixtures that any test may use: a warehouse of its own, and a clock that stands in UTC."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from commit_seed import how_to_repeat
from hypothesis import HealthCheck, settings
from pypaimon import CatalogFactory

# Local time zones differ between machines; values that depend on one are tested with an explicit one.
os.environ["TZ"] = "UTC"
time.tzset()

FIRST = ("spark", "packaging", "notebooks", "docs", "corpus", "differential", "concurrency")

# How long an example takes says nothing on a machine that does other things beside.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: many tests wait for programs that they have started."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits long for other programs comes first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: not item.path.name.startswith(FIRST))


def pytest_report_header() -> str:
    """Which samples are drawn."""
    return how_to_repeat()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After a failure, how its samples are drawn again."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(how_to_repeat())


@pytest.fixture
def warehouse(tmp_path: Path) -> Any:
    """A filesystem catalog of pypaimon over an empty warehouse, with a database `db`."""
    catalog = CatalogFactory.create({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("db", True)
    return catalog


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One Spark session for all tests of a run."""
    from spark_session import new_session

    session = new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
