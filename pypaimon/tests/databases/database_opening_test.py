"""How tables of a database are opened: what that asks for, what waits for it, and which errors stay with a table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import CorruptTableError, TableChangedError, TableFailed, UnsupportedTableError
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from support.tables.databases import Database, Doors, keys

pytestmark = pytest.mark.slow


class Requests(LocalFileIO):
    """Notes what it is asked for, and lets a test hold a request up."""

    def __init__(self, hold_up: Callable[[str], object] = lambda _: None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._hold_up = hold_up

    def _note(self, path: str) -> None:
        self.asked.append(path)
        self._hold_up(path)

    def new_input_stream(self, path: str) -> Any:
        self._note(path)
        return super().new_input_stream(path)

    def list_status(self, path: str) -> Any:
        self._note(path)
        return super().list_status(path)

    def exists(self, path: str) -> bool:
        self._note(path)
        return bool(super().exists(path))


def through(database: Database, files: Requests) -> Database:
    """The database, whose catalog and tables ask through this FileIO."""
    database.catalog.file_io = files
    return database


def test_to_open_a_table_is_a_listing_and_its_schema(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    files = Requests()
    builder = TablesOfDatabase(through(database, files).catalog, "db").builder("t")
    assert builder is not None and builder.table.identifier.get_full_name() == "db.t"
    assert [Path(path).name for path in files.asked] == ["schema", "schema-0"]


def test_a_table_takes_few_requests_to_its_first_rows(tmp_path: Path) -> None:
    database, count = Database(tmp_path), 8
    for number in range(count):
        database.create(f"t{number}", number)
    files = Requests()
    with through(database, files).stream().with_poll_interval_ms(60_000).open_sync() as stream:
        assert sorted(key for _ in range(count) for key in keys(next(stream))) == list(range(count))
    assert len(files.asked) <= 12 * count + 2


def test_rows_come_while_other_tables_are_still_opened(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for number in range(12):
        database.create(f"t{number:02}", number)
    first = threading.Event()

    def hold_up(path: str) -> None:
        if "/schema" in path and "/t00/" not in path:
            assert first.wait(60), "the rows of the first table wait for the other tables"

    with through(database, Requests(hold_up)).stream().open_sync() as stream:
        assert next(stream).table == "t00"
        first.set()
        assert {next(stream).table for _ in range(11)} == {f"t{number:02}" for number in range(1, 12)}


@pytest.mark.parametrize("by_name", [False, True])
def test_a_broken_schema_is_an_error_of_its_table(tmp_path: Path, by_name: bool) -> None:
    database = Database(tmp_path)
    database.create("bad", 1)
    database.create("good", 2)
    (database.home / "bad" / "schema" / "schema-0").write_text('{"version": 3, "id": 0')
    told: list[Any] = []
    catalog = Doors(database.catalog) if by_name else None
    with database.stream(catalog).on_event(told.append).open_sync() as stream:
        assert keys(next(stream)) == [2]
        while not any(isinstance(event, TableFailed) for event in told):
            database.write("good", 3)
            next(stream)
        (failed,) = (event for event in told if isinstance(event, TableFailed))
    assert failed.table == "bad" and isinstance(failed.error, CorruptTableError) and "bad" in str(failed.error)


def test_a_column_of_an_unknown_type_is_refused_by_name(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    schema = database.home / "t" / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"BIGINT"', '"GEOMETRY"'))
    with pytest.raises(UnsupportedTableError, match="GEOMETRY"):
        TablesOfDatabase(database.catalog, "db").builder("t")


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_database_that_is_dropped_ends_the_stream_and_its_lag_is_unknown(tmp_path: Path, is_bounded: bool) -> None:
    database = Database(tmp_path)
    for name in ("a", "b", "c"):
        database.create(name, 1)
        database.write(name, 2)
    builder = database.stream().for_each(lambda each: each.with_limits(max_rows=1))
    if is_bounded:
        builder.with_end(latest=True)
    with builder.open_sync(read_ahead_bytes=0) as stream:
        next(stream)
        database.catalog.drop_database("db", False, True)
        with pytest.raises(TableChangedError, match="The database 'db' was dropped"):
            list(stream)
        lag = stream.lag()
        assert lag.snapshots is None and lag.rows is None and lag.seconds is None
        assert stream.lag(fresh=True).snapshots is None
