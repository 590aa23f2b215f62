"""A copy of a database that is killed again and again, while tables and columns come, go and are renamed."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pypaimon.catalog.catalog_exception import TableNotExistException

from pypaimon.streaming import copy_database
from pypaimon.streaming.databases import DatabaseTarget
from support.crash import crashing_copy as dying_copy
from support.samples import SOAK, sample_seed
from support.tables.databases import Database, DatabaseChanges, as_dicts

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS, BETWEEN = (200, 10) if SOAK else (1, 1)
MOST_CHANGES = 400


def in_duckdb(file: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table of the schema `copy`, but of those whose source is gone."""
    with duckdb.connect(str(file)) as connection:
        query = "SELECT name FROM copy._paimon_tables WHERE NOT is_dropped"
        names = [name for (name,) in connection.execute(query).fetchall()]
        return {name: as_dicts(rows_in(connection.execute(f'SELECT * FROM copy."{name}"'))) for name in names}


def rows_in(result: Any) -> list[dict[str, Any]]:
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def in_warehouse(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    database, found = Database(warehouse), {}
    for name in database.catalog.list_tables("db"):
        # A process that dies in the midst of making a table leaves a directory without one.
        with suppress(TableNotExistException):
            found[name] = as_dicts(database.rows(name))
    return found


@pytest.mark.parametrize(
    ("target", "held", "steps"),
    [
        pytest.param(dying_copy.to_duckdb, in_duckdb, 90, id="duckdb"),
        pytest.param(dying_copy.to_warehouse, in_warehouse, 140, id="warehouse"),
    ],
)
def test_a_copy_that_is_killed_at_any_step_is_equal_to_its_source(
    tmp_path: Path,
    target: Callable[..., DatabaseTarget],
    held: Callable[[Path], dict[str, list[dict[str, Any]]]],
    steps: int,
) -> None:
    seed = sample_seed()
    source, place, chance = Database(tmp_path / "w"), tmp_path / "copies", random.Random(seed)
    changes = DatabaseChanges(source, seed)
    for number in range(1, KILLS + 1):
        step = chance.randrange(1, steps)
        process = dying_copy.start(tmp_path / "w", target, place, step)
        made = 0
        while process.is_alive():
            assert made < MOST_CHANGES, (number, step)
            changes.change()
            made += 1
            process.join(0.05)
        assert process.exitcode == -signal.SIGKILL, (number, step)
        if number % BETWEEN == 0:
            copy_database(source.catalog, "db", target(place), configure=lambda stream: stream.with_end(latest=True))
            expected = {name: as_dicts(source.rows(name)) for name in changes.tables}
            assert held(place) == {name: rows for name, rows in expected.items() if rows}, number
