"""Whatever stands in the place of a table, a builder, a catalog, a connection or a path, is named in one line."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pypaimon.streaming as ours
from pypaimon.streaming import DictTarget, StreamConfigError, UnsupportedTableError, targets
from pypaimon.streaming.testing import SmallTable


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return SmallTable(tmp_path)


Call = Callable[[SmallTable], Any]
TARGET = DictTarget("id")
WRONG: dict[str, tuple[Call, str]] = {
    "SQLiteTarget, a path": (lambda _: ours.SQLiteTarget("x.db", "t"), "a connection of adbc_driver_sqlite"),
    "PostgresTarget, an address": (
        lambda _: ours.PostgresTarget("postgresql://me:secret@host/x", "t"),
        r"a connection of adbc_driver_postgresql.dbapi, got 'postgresql://\.\.\.@host/x'",
    ),
    "DuckDBTarget, a path": (lambda _: ours.DuckDBTarget("x.db", "t"), "a connection of duckdb, got 'x.db'"),
    "DuckDBTarget, no name": (lambda _: ours.DuckDBTarget(duckdb.connect(), None), "expected a name"),
    "IcebergTarget, a name": (lambda _: ours.IcebergTarget("it", "db.t"), "a catalog of pyiceberg"),
    "DeltaTarget, nothing": (lambda _: ours.DeltaTarget(None), "expected a path, got None"),
    "MySQLTarget, an address": (lambda _: ours.MySQLTarget("mysql://me:secret@host/x", "t"), "a connection of pymysql"),
    "ParquetTarget, a number": (lambda _: ours.ParquetTarget(3), "expected a path, got 3"),
    "PaimonTarget, a name": (lambda _: ours.PaimonTarget("db.t"), "expected a table"),
    "DuckDBDatabase, a path": (lambda _: ours.DuckDBDatabase("x.db"), "a connection of duckdb"),
    "PaimonDatabase, a path": (lambda _: ours.PaimonDatabase("w", "db"), "a catalog of pypaimon"),
    "replicate, swapped": (lambda of: ours.replicate(TARGET, of.builder()), "the builder of a stream"),
    "replicate, a table": (lambda of: ours.replicate(of.table, TARGET), "the builder of a stream"),
    "replicate, a class": (lambda of: ours.replicate(of.builder(), DictTarget), "got the class DictTarget"),
    "replicate_async": (lambda of: asyncio.run(ours.replicate_async(of.table, TARGET)), "the builder of a stream"),
    "copy_stream_async": (lambda of: asyncio.run(ours.copy_stream_async(of.builder(), TARGET)), "an open StreamWriter"),
    "copy_stream": (lambda of: ours.copy_stream(of.builder(), "w"), "an open BlockingStreamWriter"),
    "copy_database, a target": (lambda of: ours.copy_database(of.catalog, "db", TARGET), "a target of a database"),
    "copy_database, swapped": (lambda of: ours.copy_database("db", of.catalog, TARGET), "a catalog of pypaimon"),
    "database_stream_builder": (lambda of: ours.database_stream_builder(of.catalog, 3), "expected a name"),
    "stream_read_builder": (lambda _: ours.stream_read_builder("db.t"), "str cannot be streamed"),
    "stream_write_builder": (lambda _: ours.stream_write_builder("db.t"), "expected a table, as catalog.get_table"),
    "compact": (lambda _: ours.compact("db.t"), r"expected a table, .* got 'db.t' \(str\)"),
    "Compactor": (lambda _: ours.Compactor("db.t", full=True), "expected a table"),
    "table_files": (lambda _: ours.table_files("db.t"), "expected a table"),
    "is_to_apply": (lambda _: targets.is_to_apply("x", None), "is_to_apply: batch: expected a batch"),
    "last_changes": (lambda _: targets.last_changes("x", ["id"]), "last_changes: batch: expected a batch"),
    "last_changes, keys": (lambda of: targets.last_changes(a_batch(of), 5), "'keys': expected a column or a sequence"),
    "is_to_apply, a text": (
        lambda of: targets.is_to_apply(a_batch(of), "1"),
        r"is_to_apply: saved: expected a position",
    ),
    "apply_to_dict": (lambda of: targets.apply_to_dict(a_batch(of), 5, "id"), "apply_to_dict: state: expected a dict"),
    "DictTarget": (lambda _: DictTarget(5), "'keys': expected a column or a sequence of columns, got 5"),
    "DictTarget.apply": (lambda _: DictTarget().apply("x"), "expected a batch, as a stream gives it, got 'x'"),
    "ParquetTarget.apply": (lambda of: ours.ParquetTarget(of.table.table_path).apply("x"), "expected a batch"),
    "PaimonTarget.apply": (lambda of: ours.PaimonTarget(of.table).apply("x"), "expected a batch"),
    "run_forever": (lambda _: ours.run_forever("x", print), "run_forever: stream: expected an open stream"),
    "run_forever, a builder": (lambda of: ours.run_forever(of.builder(), print), r"as open_sync\(\) gives it"),
    "run_forever, handle": (lambda of: run_with(of, handle="x"), "run_forever: handle: expected a function"),
    "run_forever, dead_letter": (lambda of: run_with(of, dead_letter=1), "run_forever: dead_letter: expected a func"),
    "run_forever, a pause": (lambda of: run_with(of, first_pause="1"), "first_pause: expected seconds"),
    "run_forever_async": (lambda _: asyncio.run(ours.run_forever_async("x", print)), r"as open\(\) gives it"),
    "Replication": (lambda _: ours.Replication("x", TARGET), "Replication: builder: expected the builder of a stream"),
    "Replication, target": (lambda of: ours.Replication(of.builder(), "x"), "Replication: target: expected a target"),
    "Replication, interval": (
        lambda of: ours.Replication(of.builder(), TARGET, commit_interval=1),
        "Replication: commit_interval: DictTarget commits each plan by itself",
    ),
    "replicate, on_open": (lambda of: ours.replicate(of.builder(), TARGET, on_open=1), "on_open: expected a function"),
    "open_live, directory": (lambda of: of.builder().open_live_sync(directory=5), "directory: expected a path, got 5"),
    "open_live, limit": (
        lambda of: of.builder().open_live_sync(memory_limit_bytes="1"),
        "memory_limit_bytes: expected int, got '1'",
    ),
    "list_consumers": (lambda _: ours.list_consumers("db.t"), "expected a table"),
}


def a_batch(table: SmallTable) -> Any:
    table.commit({"id": 1})
    with table.builder().open_sync() as stream:
        return next(stream)


def run_with(table: SmallTable, **given: Any) -> None:
    with table.builder().open_sync() as stream:
        ours.run_forever(stream, **{"handle": print, **given})


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_argument_is_named(table: SmallTable, call: str) -> None:
    make, text = WRONG[call]
    with pytest.raises((StreamConfigError, UnsupportedTableError), match=text) as caught:
        make(table)
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_connection_of_another_library_is_named() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(StreamConfigError, match=r"adbc_driver_sqlite\.dbapi, got sqlite3\.Connection"),
    ):
        ours.SQLiteTarget(connection, "t")
