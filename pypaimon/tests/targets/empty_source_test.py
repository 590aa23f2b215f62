"""The copy of a table that has no rows yet is a table with its columns, which can be queried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import DuckDBTarget, StreamConfigError, replicate, replicate_async
from pypaimon.streaming.targets import RowVersions
from support.tables.copied_table import held, stream
from support.tables.streamed_table import Table
from support.tables.target_places import (
    LOCAL_PLACES,
    DeltaPlace,
    DuckDBPlace,
    IcebergPlace,
    ParquetPlace,
    Place,
    PostgresPlace,
)
from support.waits import until

pytestmark = pytest.mark.slow


def columns(place: Any) -> Sequence[str]:
    """Of a copy that another program reads."""
    match place:
        case DeltaPlace():
            return [field.name for field in DeltaTable(place.directory / "copy").schema().fields]
        case IcebergPlace():
            with place.connected() as catalog:
                return [field.name for field in catalog.load_table("db.copy").schema().fields]
        case ParquetPlace():
            return list(pq.read_table(place.directory / "copy").schema.names)
        case DuckDBPlace():
            with place.connected() as connection:
                return list(connection.sql("FROM copy").columns)
    with place.connected() as connection, connection.cursor() as cursor:
        schema = f'"{place.schema}".' if isinstance(place, PostgresPlace) else ""
        cursor.execute(f"SELECT * FROM {schema}copy")
        return [each[0] for each in cursor.description]


def empty_table(home: Path, kind: str) -> Table:
    table = Table(home, primary_key=kind != "append")
    if kind == "deleted":
        table.commit([("+I", 1, "one")])
        table.commit([("-D", 1, "one")])
    return table


def check_copy(table: Table, place: Place) -> None:
    keys = ["k"] if table.primary_key else []
    assert replicate(stream(table), place.opened(keys)) is None
    assert (columns(place), place.held()) == (["k", "v"], [])
    # A table that has no rows yet changes its columns; nothing of the old ones is left.
    table.catalog.alter_table(table.name, [SchemaChange.rename_column("v", "text")], False)
    table.catalog.alter_table(table.name, [SchemaChange.add_column("n", AtomicType("INT"))], False)
    builder = table.builder().with_projection(["n", "k", "text"]).with_end(latest=True)
    assert replicate(builder, place.opened(keys)) is None
    assert (sorted(columns(place)), place.held()) == (["k", "n", "text"], [])
    table.catalog.alter_table(table.name, [SchemaChange.rename_column("n", "number")], False)
    table.commit([("+I", 2, "two")])
    builder = table.builder().with_projection(["number", "k", "text"]).with_end(latest=True)
    for _ in range(2):
        assert replicate(builder, place.opened(keys)) is not None
        assert place.held() == [{"k": 2, "text": "two", "number": None}]


@pytest.mark.parametrize("name", LOCAL_PLACES)
def test_every_target_makes_its_table(tmp_path: Path, name: str) -> None:
    check_copy(empty_table(tmp_path / "w", "append" if name == "Parquet" else "keyed"), LOCAL_PLACES[name](tmp_path))


def test_a_state_without_rows(tmp_path: Path) -> None:
    check_copy(empty_table(tmp_path / "w", "deleted"), DuckDBPlace(tmp_path))


@pytest.mark.server
@pytest.mark.xdist_group("postgres")
def test_postgres_makes_its_table(tmp_path: Path, address: str) -> None:
    check_copy(empty_table(tmp_path / "w", "keyed"), PostgresPlace(address, "empty"))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_copy_that_follows_makes_it_before_there_are_rows(tmp_path: Path, is_async: bool) -> None:
    table = empty_table(tmp_path / "w", "keyed")
    builder = table.builder(**{"continuous.discovery-interval": "50 ms"}).with_projection(["k", "v"])
    with duckdb.connect() as database:
        seen = database.cursor()

        def is_there() -> bool:
            return bool(seen.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'copy'").fetchall())

        target = DuckDBTarget(database, "copy")
        if is_async:

            async def run() -> None:
                following = asyncio.ensure_future(replicate_async(builder, target))
                await asyncio.to_thread(until, is_there)
                table.commit([("+I", 1, "one")])
                await asyncio.to_thread(until, lambda: held(seen) == [(1, "one")])
                following.cancel()
                await asyncio.wait([following])

            asyncio.run(run())
        else:
            streams: list[Any] = []
            following = Thread(target=replicate, args=(builder, target), kwargs={"on_open": streams.append})
            following.start()
            until(is_there)
            table.commit([("+I", 1, "one")])
            until(lambda: held(seen) == [(1, "one")])
            streams[0].stop()
            following.join()


def test_rows_of_others_stay(tmp_path: Path) -> None:
    """Also if the state may replace them: a table without a snapshot has none."""
    table = empty_table(tmp_path / "w", "keyed")
    with duckdb.connect() as database:
        database.execute("CREATE TABLE copy AS SELECT 7::BIGINT AS k, 'mine' AS v")
        assert replicate(stream(table), DuckDBTarget(database, "copy", replace=True)) is None
        assert held(database) == [(7, "mine")]
        replicate(stream(empty_table(tmp_path / "other", "keyed")), DuckDBTarget(database, "second"))
        database.execute("INSERT INTO second VALUES (7, 'mine')")
        table.commit([("+I", 1, "one")])
        for name in ("copy", "second"):
            with pytest.raises(StreamConfigError, match="rows already that this target has not written"):
                replicate(stream(table), DuckDBTarget(database, name))
        replicate(stream(table), DuckDBTarget(database, "second", replace=True))
        assert database.execute("FROM second").fetchall() == [(1, "one")]


def test_an_empty_table_is_not_bound_to_a_source_or_its_transform(tmp_path: Path) -> None:
    table = empty_table(tmp_path / "w", "keyed")
    with duckdb.connect() as database:
        replicate(stream(table), DuckDBTarget(database, "copy"))
        replicate(stream(table), DuckDBTarget(database, "copy"), transform=RowVersions())
        names = [name for name, *_ in database.execute("DESCRIBE copy").fetchall()]
        assert names == ["k", "v", "is_deleted", "version", "valid_from"]
        other = Table(tmp_path / "other", primary_key=True)
        other.commit([("+I", 2, "two")])
        replicate(stream(other), DuckDBTarget(database, "copy"))
        assert database.execute("FROM copy").fetchall() == [(2, "two")]
