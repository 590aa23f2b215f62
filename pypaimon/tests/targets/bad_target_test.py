"""What others did to a target, and what happens under it, is told; nothing is half applied, and it goes on after."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc_postgres
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pypaimon.streaming import PostgresTarget, StreamConfigError, replicate
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import in_order
from support.process_state import full_disk
from support.samples import some
from support.stores.postgres_server import losing_a_commit
from support.tables.target_places import (
    LOCAL_PLACES,
    DeltaPlace,
    DuckDBPlace,
    IcebergPlace,
    Keys,
    Place,
    PostgresPlace,
    SQLitePlace,
)

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.xdist_group("postgres")]


class Copy:
    def __init__(self, directory: Path, place: Place, keys: Keys) -> None:
        self.place, self.keys = place, keys
        self.source = SmallTable(directory / "w", keys)
        self.source.commit({"id": 1, "name": "one"})

    def replicate(self) -> None:
        """As a program that is started again does."""
        replicate(self.source.builder(), self.place.opened(self.keys))

    def is_refused(self, error: type[Exception], text: str) -> None:
        """Its next run ends with an error."""
        with pytest.raises(error, match=text):
            self.replicate()

    def drop(self) -> None:
        match self.place:
            case DeltaPlace():
                shutil.rmtree(self.place.directory / "copy")
            case IcebergPlace():
                with self.place.connected() as catalog:
                    catalog.drop_table("db.copy")
            case DuckDBPlace() | SQLitePlace() | PostgresPlace():
                self.place.execute("DROP TABLE copy")

    def check(self) -> None:
        assert in_order(self.place.held()) == in_order(self.source.rows())


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    """Of the kind that the test is run with."""
    name = request.param
    if name == "Postgres":
        return Copy(tmp_path, PostgresPlace(request.getfixturevalue("address"), request.node.name), ("id",))
    return Copy(tmp_path, LOCAL_PLACES[name](tmp_path), () if name == "Parquet" else ("id",))


def each(*names: str) -> Any:
    """The kinds that a test is run with: half of them, all in the long form."""
    return pytest.mark.parametrize("copy", some("bad targets", names, (len(names) + 1) // 2), indirect=True)


@each(*LOCAL_PLACES)
@pytest.mark.parametrize("left", [100, 40_000])
def test_a_full_disk(copy: Copy, left: int) -> None:
    copy.replicate()
    before = copy.place.held()
    copy.source.commit(*({"id": key, "name": os.urandom(1000).hex()} for key in range(2, 100)))
    target = copy.place.opened(copy.keys)
    position = target.load_position()
    with copy.source.builder().with_start(position=position).open_sync() as stream:
        batches = list(stream)
        with full_disk(left), pytest.raises(TargetError, match=r"replicate.* continues where"):
            for batch in batches:
                target.apply(batch)
    del target
    assert (copy.place.opened(copy.keys).load_position(), copy.place.held()) == (position, before)
    copy.replicate()
    copy.check()


@each(*LOCAL_PLACES, "Postgres")
def test_what_others_have_saved_meanwhile_stays(copy: Copy) -> None:
    target = copy.place.opened(copy.keys)
    replicate(copy.source.builder(), target)
    copy.source.commit({"id": 2})
    behind = copy.source.builder().with_start(position=target.load_position())
    copy.replicate()
    with behind.open_sync() as stream, pytest.raises(StreamConfigError, match="others write to it"):
        target.apply(next(iter(stream)))
    replicate(copy.source.builder(), target)
    copy.check()


@each("DuckDB", "SQLite", "Postgres", "Delta", "Iceberg")
def test_a_column_that_others_dropped(copy: Copy) -> None:
    copy.replicate()
    match copy.place:
        case DuckDBPlace() | SQLitePlace() | PostgresPlace():
            copy.place.execute("ALTER TABLE copy DROP COLUMN name")
        case DeltaPlace():
            rows = pa.Table.from_pylist(copy.place.held()).drop_columns(["name"])
            write_deltalake(copy.place.directory / "copy", rows, mode="overwrite", schema_mode="overwrite")
        case IcebergPlace():
            with copy.place.connected() as catalog, catalog.load_table("db.copy").update_schema(True) as update:
                update.delete_column("name")
    before = copy.place.held()
    copy.source.commit({"id": 2, "name": "two"})
    is_delta = isinstance(copy.place, DeltaPlace)
    copy.is_refused(StreamConfigError if is_delta else TargetError, "name.*(drop it|delete the table)")
    assert copy.place.held() == before
    copy.drop()
    copy.replicate()
    copy.check()


@each("DuckDB", "SQLite", "Postgres", "Iceberg")
def test_a_table_of_another_schema(copy: Copy) -> None:
    match copy.place:
        case DuckDBPlace() | SQLitePlace() | PostgresPlace():
            if isinstance(copy.place, PostgresPlace):
                copy.place.execute(f'CREATE SCHEMA "{copy.place.schema}"')
            copy.place.execute("CREATE TABLE copy (id BIGINT, theirs BIGINT NOT NULL)")
            copy.place.execute("INSERT INTO copy VALUES (7, 7)")
        case IcebergPlace():
            with copy.place.connected() as catalog:
                catalog.create_namespace("db")
                catalog.create_table("db.copy", pa.schema([("id", pa.string())])).append(pa.table({"id": ["7"]}))
    before = copy.place.held()
    copy.is_refused(StreamConfigError, "holds rows already that this target has not written")
    assert copy.place.held() == before
    replicate(copy.source.builder(), copy.place.opened(copy.keys, replace=True))
    copy.check()


@each("DuckDB", "SQLite", "Postgres", "Iceberg")
@pytest.mark.parametrize("what", ["position", "columns"])
def test_what_is_saved_with_the_rows_is_damaged(copy: Copy, what: str) -> None:
    copy.replicate()
    before = copy.place.held()
    match copy.place:
        case DuckDBPlace() | SQLitePlace() | PostgresPlace():
            copy.place.execute(f"UPDATE _paimon_positions SET {what} = 'x'")
        case IcebergPlace():
            with copy.place.connected() as catalog, catalog.load_table("db.copy").transaction() as transaction:
                transaction.set_properties({f"paimon.{what}": "x"})
    copy.source.commit({"id": 2})
    copy.is_refused(StreamConfigError, "x")
    assert copy.place.held() == before
    copy.drop()
    copy.replicate()
    copy.check()


@each("Postgres")
def test_a_connection_that_is_lost_within_a_plan(copy: Copy) -> None:
    assert isinstance(copy.place, PostgresPlace)
    copy.replicate()
    before = copy.place.held()
    copy.source.commit(*({"id": key} for key in range(2, 50)))
    target = copy.place.opened(copy.keys)
    position = target.load_position()
    with copy.source.builder().with_start(position=position).open_sync(batch_bytes=1) as stream:
        first, second, *_ = stream
    assert not first.is_last
    target.apply(first)
    copy.place.end_others()
    with pytest.raises(TargetError, match="with a new target if a connection was lost"):
        target.apply(second)
    with pytest.raises(TargetError, match="connection"):
        target.load_position()
    assert (copy.place.opened(copy.keys).load_position(), copy.place.held()) == (position, before)
    copy.replicate()
    copy.check()


@pytest.mark.parametrize("keys", [("id",), ()], ids=["keys", "no keys"])
def test_the_answer_to_a_commit_that_is_lost(tmp_path: Path, address: str, keys: Keys) -> None:
    place = PostgresPlace(address, f"lost {len(keys)}")
    copy = Copy(tmp_path, place, keys)
    copy.replicate()
    position = place.opened(keys).load_position()
    copy.source.commit({"id": 2})
    with losing_a_commit(address, '"_paimon_positions" SET') as proxy, adbc_postgres.connect(proxy) as connection:
        target = PostgresTarget(connection, f"{place.schema}.copy", keys)
        with pytest.raises(TargetError, match="as a whole, or not at all"):
            replicate(copy.source.builder(), target)
    copy.check()
    assert place.opened(keys).load_position() != position
    copy.source.commit({"id": 3})
    copy.replicate()
    copy.check()
