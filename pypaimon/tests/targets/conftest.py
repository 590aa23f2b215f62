"""Fixtures of the tests of several targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pypaimon.streaming.targets import Target
from pypaimon.streaming.testing import SmallTable
from support.stores.postgres_server import new_database, postgres
from support.tables.target_places import Place


@pytest.fixture(scope="session")
def _postgres() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest, _postgres: str) -> str:
    """A database of Postgres for the tests of a module. Modules that ask for one are of the group `postgres`."""
    return new_database(_postgres, request.module.__name__)


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    """A table with keys, of one row."""
    table = SmallTable(tmp_path / "w")
    table.commit({"id": 1, "name": "one"})
    return table


@pytest.fixture
def target(place: Place) -> Target:
    """A target with keys in the place of the test."""
    return place.opened(("id",))
