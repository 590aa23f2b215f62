"""What every target of `copy_database` promises, in DuckDB and in Paimon: its tables equal those of the source."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pytest

from pypaimon.streaming import DuckDBDatabase, PaimonDatabase, StreamConfigError, TablesFailedError, copy_database
from pypaimon.streaming.databases import DatabaseTarget
from support.tables.databases import Database, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]


class Copies(Protocol):
    """The tables that are copied to."""

    def target(self, **settings: Any) -> DatabaseTarget: ...
    def names(self) -> set[str]: ...
    def rows(self, name: str) -> list[tuple[Any, ...]]: ...
    def create(self, name: str, key: int) -> None: ...


class InDuckDB:
    def __init__(self, _: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("CREATE SCHEMA copy")

    def target(self, **settings: Any) -> DatabaseTarget:
        return DuckDBDatabase(self._connection, "copy", **settings)

    def names(self) -> set[str]:
        query = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'copy' AND table_name NOT LIKE '_paimon%'"
        return {name for (name,) in self._connection.execute(query).fetchall()}

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self._connection.execute(f'SELECT * FROM "copy"."{name}"').fetchall(), key=str)

    def create(self, name: str, key: int) -> None:
        self._connection.execute(f"CREATE TABLE copy.{name} AS SELECT {key} AS k")


class InPaimon:
    def __init__(self, directory: Path) -> None:
        self._database = Database(directory)

    def target(self, **settings: Any) -> DatabaseTarget:
        return PaimonDatabase(self._database.catalog, "db", **settings)

    def names(self) -> set[str]:
        return set(self._database.catalog.list_tables("db"))

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return rows_of(self._database, name)

    def create(self, name: str, key: int) -> None:
        self._database.create(name, key)


@pytest.fixture(params=[InDuckDB, InPaimon])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Copies:
    made: Copies = request.param(tmp_path / "copies")
    return made


def copied(database: Database, copies: Copies, **settings: Any) -> None:
    target = copies.target(**settings)
    copy_database(database.catalog, database.name, target, configure=lambda stream: stream.with_end(latest=True))


def test_added_changed_renamed_and_dropped_tables(database: Database, copies: Copies) -> None:
    database.create("plain", 1, 2)
    database.create("keyed", 1, 2, keyed=True, bucket="1")
    database.create("gone", 3)
    database.create("old", 4)
    copied(database, copies)
    assert copies.names() == {"plain", "keyed", "gone", "old"}
    database.write("plain", 3)
    database.write("keyed", 2, 9)
    database.rename("old", "new")
    database.write("new", 5)
    database.drop("gone")
    database.drop("plain")
    database.create("plain", 7)
    copied(database, copies)
    for name in ("plain", "keyed", "new"):
        assert copies.rows(name) == rows_of(database, name)
    assert copies.names() == {"plain", "keyed", "gone", "new"}
    assert copies.rows("gone") == [(3,)]
    database.create("gone", 8)
    database.rename("new", "newer")
    database.drop("keyed")
    copied(database, copies, on_drop="drop")
    assert copies.names() == {"plain", "gone", "newer"}
    assert (copies.rows("plain"), copies.rows("gone"), copies.rows("newer")) == ([(7,)], [(8,)], [(4,), (5,)])


def test_another_warehouse_is_refused_and_a_moved_one_continues(
    database: Database, copies: Copies, tmp_path: Path
) -> None:
    for name in ("orders", "only"):
        database.create(name, 1)
    other = Database(tmp_path / "other")
    other.create("orders", 1000)
    copied(database, copies)
    with pytest.raises(
        StreamConfigError, match=r"a copy of database 'db' of warehouse .*/w, but this database is in .*/other"
    ):
        copied(other, copies, on_drop="drop")
    assert copies.names() == {"orders", "only"}
    assert (copies.rows("orders"), copies.rows("only")) == ([(1,)], [(1,)])
    shutil.move(tmp_path / "w", tmp_path / "moved")
    moved = Database(tmp_path / "moved")
    moved.write("orders", 2)
    copied(moved, copies)
    assert copies.rows("orders") == [(1,), (2,)]


def test_a_table_that_is_not_a_copy_is_never_touched(database: Database, copies: Copies) -> None:
    copies.create("mine", 42)
    for name in ("mine", "other"):
        database.create(name, 1)
    with pytest.raises(TablesFailedError, match="not copied here") as raised:
        copied(database, copies)
    assert set(raised.value.errors) == {"mine"} and isinstance(raised.value.errors["mine"], StreamConfigError)
    database.drop("mine")
    database.rename("other", "mine")
    for _ in range(2):
        with pytest.raises(TablesFailedError, match="not copied here"):
            copied(database, copies)
    assert (copies.rows("mine"), copies.rows("other")) == ([(42,)], [(1,)])
    second = Database(database.home.parent, name="second")
    second.create("other", 7)
    assert copies.target().load_position("second").tables == {}
    with pytest.raises(TablesFailedError, match="copy of a table of database 'db'"):
        copied(second, copies)
    assert copies.rows("other") == [(1,)]
