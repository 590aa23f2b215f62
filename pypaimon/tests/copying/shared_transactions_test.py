"""Plans that share a transaction are there together or not at all, and come exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    BlockingBatch,
    BlockingBatchStream,
    ConsumerManager,
    DeltaTarget,
    DictTarget,
    DuckDBTarget,
    ParquetTarget,
    Replication,
    StreamConfigError,
    StreamReadBuilder,
    replicate,
    replicate_async,
    stream_read_builder,
)
from pypaimon.streaming.copying.copy_loop import SharedCommits
from pypaimon.streaming.errors import EndOfScan, TargetError
from pypaimon.streaming.targets.changes import AnyBatch
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import check_killed, in_order
from support.samples import SOAK
from support.tables.copied_table import batches
from support.tables.handles import batch_read
from support.tables.target_places import DeltaPlace, DuckDBPlace, IcebergPlace, ParquetPlace, Place, SQLitePlace

pytestmark = pytest.mark.slow

LONG = 1e6
PLACES = {"DuckDB": DuckDBPlace, "SQLite": SQLitePlace, "Delta": DeltaPlace, "Iceberg": IcebergPlace}


def source_of(home: Path, keys: tuple[str, ...] = ("id",), snapshots: int = 5) -> SmallTable:
    """A table of some snapshots; with keys, each commit after the first changes and deletes rows."""
    source = SmallTable(home / "w", keys)
    source.commit({"id": 0, "name": "a"}, {"id": 1, "name": "b"}, {"id": 2, "name": "c"})
    for number in range(3, 2 + snapshots):
        rows: list[Any] = [{"id": number, "name": "new"}]
        if keys:
            rows += [("+U", {"id": 0, "name": f"at {number}"}), ("-D", {"id": number - 2, "name": "gone"})]
        source.commit(*rows)
    return source


def every_plan(source: SmallTable) -> StreamReadBuilder:
    return source.builder().with_start(snapshot_id=1, full=True).with_catch_up("replay")


def read_ahead(target: Any) -> Callable[[BlockingBatchStream], None]:
    """Have a target apply each batch once the next one is read, or the stream is at its end."""
    applied = target.apply

    def opened(stream: BlockingBatchStream) -> None:
        def apply(batch: AnyBatch) -> None:
            with suppress(EndOfScan):
                stream._ahead.ready().result()
            applied(batch)

        target.apply = apply

    return opened


@pytest.mark.parametrize("name", PLACES)
def test_plans_that_wait_make_one_commit(tmp_path: Path, name: str) -> None:
    source, place = source_of(tmp_path), PLACES[name](tmp_path)
    target: Any = place.opened(None)
    saved: list[Any] = []
    note = target._plans._table.save
    target._plans._table.save = lambda position, before: saved.append(position) or note(position, before)
    replicate(every_plan(source), target, on_open=read_ahead(target), commit_interval=LONG)
    assert len(saved) == 1
    assert in_order(place.held()) == in_order(batch_read(source.table))
    source.commit({"id": 9})
    position = replicate(source.builder(), target, commit_interval=LONG)
    assert in_order(place.held()) == in_order(batch_read(source.table))
    assert position == target.load_position()


@pytest.mark.parametrize(("seconds", "files"), [(None, 5), (0.0, 5), (LONG, 1)])
def test_the_interval_bounds_a_commit(tmp_path: Path, seconds: float | None, files: int) -> None:
    source = source_of(tmp_path, ())
    target = ParquetTarget(tmp_path / "copy")
    replicate(every_plan(source), target, on_open=read_ahead(target), commit_interval=seconds)
    assert len(list((tmp_path / "copy").glob("*.parquet"))) == files
    assert in_order(ParquetPlace(tmp_path).held()) == in_order(batch_read(source.table))


def test_new_columns_begin_a_transaction(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    source.alter(SchemaChange.add_column("more", AtomicType("INT")))
    source.commit({"id": 20})
    target: Any = DeltaTarget(tmp_path / "copy")
    replicate(every_plan(source), target, on_open=read_ahead(target), commit_interval=LONG)
    assert in_order(DeltaPlace(tmp_path).held()) == in_order(batch_read(source.table))


@pytest.mark.parametrize("is_option", [False, True])
def test_a_consumer_does_not_pass_what_is_not_committed(tmp_path: Path, is_option: bool) -> None:
    source, seen = source_of(tmp_path), list[Any]()
    consumers = ConsumerManager(source.table.file_io, str(source.table.table_path))
    with duckdb.connect() as connection:
        target: Any = DuckDBTarget(connection, "copy")
        ahead = read_ahead(target)

        def opened(stream: BlockingBatchStream) -> None:
            ahead(stream)
            applied = target.apply
            target.apply = lambda batch: (seen.append(consumers.consumers().get("copy")), applied(batch))

        builder = every_plan(source).with_consumer_id("copy")
        if is_option:
            table = source.table.copy({"consumer-id": "copy"})
            builder = stream_read_builder(table).with_start(snapshot_id=1, full=True).with_catch_up("replay")
            builder.with_end(latest=True)
        position = replicate(builder, target, on_open=opened, commit_interval=LONG)
        assert set(seen) <= {None, 1}
        assert position is not None and consumers.consumers() == {"copy": position.snapshot}


def test_a_stream_that_is_stopped_commits_what_it_has_applied(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with duckdb.connect() as connection:
        target: Any = DuckDBTarget(connection, "copy")
        ahead, count = read_ahead(target), 0

        def opened(stream: BlockingBatchStream) -> None:
            ahead(stream)
            applied = target.apply

            def apply(batch: AnyBatch) -> None:
                nonlocal count
                count += 1
                applied(batch)
                if count == 3:
                    stream.stop()

            target.apply = apply

        position = replicate(every_plan(source), target, on_open=opened, commit_interval=LONG)
        assert count == 3 and position is not None and position.snapshot == 4


def test_a_stream_that_is_stopped_between_two_batches_commits_what_it_has_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next plan is read already, so the transaction is still open when the loop asks for it."""
    confirms_now = SharedCommits.confirms_now.fget
    streams: list[BlockingBatchStream] = []

    def stop(commits: SharedCommits) -> bool:
        streams[0].stop()
        return bool(confirms_now(commits))  # type: ignore[misc]

    monkeypatch.setattr(SharedCommits, "confirms_now", property(stop))
    with duckdb.connect() as connection:
        target: Any = DuckDBTarget(connection, "copy")
        ahead = read_ahead(target)

        def opened(stream: BlockingBatchStream) -> None:
            ahead(stream)
            streams.append(stream)

        builder = every_plan(source_of(tmp_path))
        position = replicate(builder, target, on_open=opened, commit_interval=LONG)
        assert position is not None and position.snapshot == 2


def test_the_other_calls_share_transactions_too(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with duckdb.connect() as one, duckdb.connect() as two:
        asyncio.run(replicate_async(every_plan(source), DuckDBTarget(one, "copy"), commit_interval=LONG))
        Replication(every_plan(source), DuckDBTarget(two, "copy"), commit_interval=LONG).run()
        for each in (one, two):
            assert rows_in(each) == in_order(batch_read(source.table))


def test_a_target_that_commits_each_plan_by_itself_is_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with pytest.raises(StreamConfigError, match="commit_interval: DictTarget commits each plan by itself"):
        replicate(source.builder(), DictTarget(), commit_interval=1)
    with pytest.raises(StreamConfigError, match="commit_interval: expected seconds from 0, got -1"):
        replicate(source.builder(), ParquetTarget(tmp_path / "copy"), commit_interval=-1)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "keys"), [("SQLite", ("id",)), ("Parquet", ())])
def test_a_killed_process_continues_exactly_once(tmp_path: Path, name: str, keys: tuple[str, ...]) -> None:
    place: Place = {**PLACES, "Parquet": ParquetPlace}[name](tmp_path)
    check_killed(tmp_path / "w", keys, partial(place.opened, keys), place.held, 2, commit_interval=LONG)


class Failing:
    """A connection of DuckDB that fails at one of its statements."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.left = 0

    def execute(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise duckdb.IOException("the disk is full")
        return self._connection.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.soak
def test_an_error_at_any_statement_takes_back_all_plans_of_a_transaction(tmp_path: Path) -> None:
    source, at, failed = source_of(tmp_path), 0, True
    whole = in_order(batch_read(source.table))
    plans = batches(every_plan(source))
    while failed:
        at += 1 if SOAK else 3
        with duckdb.connect() as connection:
            failing: Any = Failing(connection)
            target: Any = DuckDBTarget(failing, "copy")
            failing.left = at
            failed = False
            try:
                apply_together(plans, target)
            except TargetError:
                failed = True
                # The rest of its stream would leave a gap.
                with pytest.raises(StreamConfigError, match="was not applied"):
                    target.apply(plans[-1])
            failing.left = 0
            assert target.load_position() == (None if failed else plans[-1].plan_after), at
            apply_together(plans, target)
            assert rows_in(connection) == whole, at
    assert at > 15


def apply_together(plans: list[BlockingBatch], target: Any) -> None:
    with target._plans.sharing():
        for batch in plans:
            target.apply(batch)
        target._plans.flush()


def rows_in(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    return in_order(connection.sql("FROM copy").to_arrow_table().to_pylist())
