"""Over random histories of every kind of table each follower equals a batch read, or refuses the table."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Protocol

import duckdb
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import (
    DictTarget,
    DuckDBDatabase,
    PaimonDatabase,
    PaimonTarget,
    StreamReadBuilder,
    UnsupportedTableError,
    compact,
    copy_database,
    copy_stream,
    replicate,
    stream_write_builder,
)
from pypaimon.streaming.databases import DatabaseEvent, TableSkipped
from pypaimon.streaming.targets import Target
from support.models.followed_tables import KINDS, REFUSED, FollowedTable
from support.samples import SOAK, seeded, some
from support.tables.copied_table import copying
from support.tables.handles import batch_read, catalog_with_database
from support.tables.live_tables import in_order, often
from support.tables.target_places import DeltaPlace, DuckDBPlace, IcebergPlace, ParquetPlace, Place, SQLitePlace

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Rows = list[dict[str, Any]]


class Follower(Protocol):
    """What follows a table."""

    def follow(self) -> None:
        """Come up to its latest snapshot, perhaps after a restart."""

    def rows(self) -> Rows:
        """What it holds."""

    def close(self) -> None:
        """End."""


class _OfTarget:
    """A target that is sometimes left inside a plan and opened again.

    Args:
        connected: Whether it has a connection, which another one may have to wait for.
    """

    def __init__(
        self, source: FollowedTable, random: Random, opened: Callable[[], Target], held: Any, connected: bool = False
    ) -> None:
        self._source, self._random, self._opened, self._held = source, random, opened, held
        self._connected = connected
        self._target: Target | None = opened()

    def follow(self) -> None:
        if self._random.random() < 0.4:
            self._begin()
        if self._random.random() < 0.4:
            self._open_again()
        assert self._target is not None
        replicate(self._builder(), self._target)

    def _begin(self) -> None:
        """Read a part, perhaps with plans that are cut, and end there as a program that is killed does."""
        assert self._target is not None
        with copying(self._builder(), self._target.load_position()).open_sync(batch_bytes=1) as stream:
            for batch in islice(stream, self._random.randint(1, 3)):
                self._target.apply(batch)
        self._open_again()

    def _builder(self) -> StreamReadBuilder:
        builder = self._source.builder()
        return builder.with_limits(max_splits=1) if self._random.random() < 0.5 else builder

    def _open_again(self) -> None:
        self._target = None
        if self._connected:
            # Its connection ends with it, and errors that a stream has kept may still hold the frames of `replicate`.
            gc.collect()
        self._target = self._opened()

    def rows(self) -> Rows:
        return self._held(self._target)

    def close(self) -> None:
        close = getattr(self._target, "close", None)
        if close is not None:
            close()


def _in_place(source: FollowedTable, random: Random, place: Place) -> Follower:
    connected = isinstance(place, DuckDBPlace | SQLitePlace)
    return _OfTarget(source, random, lambda: place.opened(None), lambda _: place.held(), connected)


def _dict(source: FollowedTable, random: Random, _: Path) -> Follower:
    """It ends with its program, so that the same one goes on."""
    target = DictTarget(None if source.kind.keys else "id")
    return _OfTarget(source, random, lambda: target, lambda _: list(target.rows.values()))


def _copied_table(source: FollowedTable, directory: Path) -> Any:
    """An empty Paimon table like the source."""
    from pypaimon.streaming.targets.paimon_target import copied_schema

    catalog = catalog_with_database(directory)
    schema = source.table.handle().table_schema
    catalog.create_table("db.copy", copied_schema(schema, schema.fields, {}), True)
    return catalog.get_table("db.copy")


def _held(handle: Any) -> Rows:
    """The rows of a Paimon table that is a copy."""
    if handle.snapshot_manager().get_latest_snapshot() is None:
        return []
    if handle.primary_keys and handle.options.deletion_vectors_enabled(False):
        # Batch reads pass over what no compaction has looked at.
        compact(handle, full=True)
    return batch_read(handle)


def _paimon(source: FollowedTable, random: Random, directory: Path) -> Follower:
    def opened() -> Target:
        return PaimonTarget(_copied_table(source, directory))

    return _OfTarget(source, random, opened, lambda _: _held(_copied_table(source, directory)))


class _Copied:
    """`copy_stream`."""

    def __init__(self, source: FollowedTable, _: Random, directory: Path) -> None:
        self._source, self._directory = source, directory
        _copied_table(source, directory)

    def follow(self) -> None:
        builder = stream_write_builder(_copied_table(self._source, self._directory)).with_commit_user("copy")
        with builder.open_sync() as writer:
            copy_stream(self._source.builder(), writer)

    def rows(self) -> Rows:
        return _held(_copied_table(self._source, self._directory))

    def close(self) -> None:
        """Nothing is open."""


class _Live:
    """A live table, in memory or on disk."""

    def __init__(self, source: FollowedTable, random: Random, memory_limit: int) -> None:
        self._source, self._random, self._memory_limit = source, random, memory_limit
        self._live = self._opened()

    def _opened(self) -> Any:
        return often(self._source.table.handle()).open_live_sync(memory_limit_bytes=self._memory_limit)

    def follow(self) -> None:
        if self._random.random() < 0.3:
            self._live.close()
            self._live = self._opened()
        if self._source.latest:
            self._live.wait_for(self._source.latest)

    def rows(self) -> Rows:
        return self._live.to_arrow().to_pylist()

    def close(self) -> None:
        self._live.close()


class _Database:
    """`copy_database`."""

    def __init__(self, source: FollowedTable, target: Any, held: Callable[[], Rows], close: Callable[[], None]) -> None:
        self._source, self._target, self.rows, self.close = source, target, held, close

    def follow(self) -> None:
        skipped: list[str] = []

        def on_event(event: DatabaseEvent) -> None:
            if isinstance(event, TableSkipped):
                skipped.append(event.reason)

        catalog = self._source.table.catalog
        copy_database(
            catalog, "db", self._target, configure=lambda stream: stream.with_end(latest=True).with_on_event(on_event)
        )
        if skipped:
            raise UnsupportedTableError(skipped[0])


def _duckdb_database(source: FollowedTable, _: Random, directory: Path) -> Follower:
    database = duckdb.connect(str(directory / "database.duckdb"))

    def held() -> Rows:
        there = database.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'followed'").fetchall()
        return database.sql("FROM copies.followed").to_arrow_table().to_pylist() if there else []

    return _Database(source, DuckDBDatabase(database, "copies"), held, database.close)


def _paimon_database(source: FollowedTable, _: Random, directory: Path) -> Follower:
    catalog = CatalogFactory.create({"warehouse": str(directory)})

    def held() -> Rows:
        there = "followed" in catalog.list_tables("copies")
        return _held(catalog.get_table("copies.followed")) if there else []

    return _Database(source, PaimonDatabase(catalog, "copies"), held, lambda: None)


FOLLOWERS: dict[str, Callable[[FollowedTable, Random, Path], Follower]] = {
    "dict": _dict,
    "duckdb": lambda source, random, directory: _in_place(source, random, DuckDBPlace(directory)),
    "sqlite": lambda source, random, directory: _in_place(source, random, SQLitePlace(directory)),
    "delta": lambda source, random, directory: _in_place(source, random, DeltaPlace(directory)),
    "iceberg": lambda source, random, directory: _in_place(source, random, IcebergPlace(directory)),
    "parquet": lambda source, random, directory: _in_place(source, random, ParquetPlace(directory)),
    "paimon": _paimon,
    "copy_stream": _Copied,
    "live in memory": lambda source, random, _: _Live(source, random, 1 << 30),
    "live on disk": lambda source, random, _: _Live(source, random, 0),
    "database in duckdb": _duckdb_database,
    "database in paimon": _paimon_database,
}


def takes(name: str, source: FollowedTable) -> bool:
    """Whether a follower is for tables of that kind at all: live tables have keys, files of rows have none."""
    return not (name == "parquet" and source.kind.keys) and not (name.startswith("live") and not source.kind.keys)


STEPS = 40 if SOAK else 4
ONE_IN = 2
"""Chance of a follower to catch up after a step, one in this number. All catch up after the last step."""


def followers_of(kind: str, source: FollowedTable, count: int) -> list[str]:
    """`count` followers, drawn for each kind of table; all of them in the long form."""
    return some(f"followers of {kind}", [name for name in FOLLOWERS if takes(name, source)], count)


@pytest.mark.parametrize("kind", KINDS)
def test_each_follower_equals_its_table(tmp_path: Path, kind: str) -> None:
    random = seeded(f"history of {kind}")
    source = FollowedTable(tmp_path / "source", KINDS[kind], random)
    steps: list[str] = []
    followers: dict[str, Follower] = {}
    with ExitStack() as stack:
        for name in followers_of(kind, source, 2):
            (directory := tmp_path / name).mkdir()
            followers[name] = FOLLOWERS[name](source, random, directory)
            stack.callback(followers[name].close)
        # What followers have imported is not looked at for garbage again and again.
        gc.collect()
        gc.freeze()
        for step in range(STEPS):
            steps.append(source.change())
            expected = in_order(source.rows())
            for name, follower in followers.items():
                if random.randrange(ONE_IN) and step < STEPS - 1:
                    continue
                steps.append(name)
                follower.follow()
                assert in_order(follower.rows()) == expected, steps


@pytest.mark.parametrize("kind", REFUSED)
def test_a_table_whose_changes_do_not_make_its_rows_is_refused(tmp_path: Path, kind: str) -> None:
    refused, word = REFUSED[kind]
    source = FollowedTable(tmp_path / "source", refused, seeded(kind))
    source.write()
    for name in followers_of(kind, source, 2):
        (directory := tmp_path / name).mkdir()
        with ExitStack() as stack, pytest.raises(UnsupportedTableError, match=word):
            follower = FOLLOWERS[name](source, seeded(name), directory)
            stack.callback(follower.close)
            follower.follow()
