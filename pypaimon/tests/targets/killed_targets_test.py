"""Each target goes on exactly once after its process was killed, at whatever moment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.crash.killed_target import check_killed
from support.samples import SOAK, some
from support.stores.postgres_server import postgres
from support.tables.target_places import (
    DeltaPlace,
    DuckDBPlace,
    IcebergPlace,
    Keys,
    ParquetPlace,
    Place,
    PostgresPlace,
    SQLitePlace,
)

pytestmark = [pytest.mark.server, pytest.mark.soak]

KEYED, APPENDED = ("id",), ()
LOCAL = {
    "DuckDB": DuckDBPlace,
    "SQLite": SQLitePlace,
    "Parquet": ParquetPlace,
    "Delta": DeltaPlace,
    "Iceberg": IcebergPlace,
}
CASES = [
    (name, keys) for name in (*LOCAL, "Postgres") for keys in (KEYED, APPENDED) if (name, keys) != ("Parquet", KEYED)
]
KILLS = 200 if SOAK else 4


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of Postgres."""
    with postgres() as found:
        yield found


@pytest.mark.parametrize(("name", "keys"), some("killed targets", CASES, 1))
def test_whoever_is_killed_at_any_moment_goes_on_exactly_once(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, keys: Keys
) -> None:
    place: Place
    if name == "Postgres":
        place = PostgresPlace(request.getfixturevalue("address"), f"killed {len(keys)}", alone=True)
    else:
        place = LOCAL[name](tmp_path)
    check_killed(tmp_path / "w", keys, partial(place.opened, keys), place.held, KILLS)
