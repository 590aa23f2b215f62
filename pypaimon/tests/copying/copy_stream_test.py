"""A stream into another Paimon table: run after run the copy is what its source is, each plan by one commit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError, StreamReadBuilder, TableChangedError, copy_stream, copy_stream_async
from pypaimon.streaming.errors import SchemaMismatchError
from support.tables.handles import sorted_rows
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows

pytestmark = pytest.mark.slow

USER = "copy"


@pytest.fixture
def source(tmp_path: Path) -> Table:
    table = key_value_table(tmp_path, "source")
    grown(table, rows(1, 2, 3))
    return table


@pytest.fixture
def target(source: Table, tmp_path: Path) -> Table:
    return key_value_table(tmp_path, "target")


def grown(table: Table, *commits: pa.Table) -> None:
    with table.writer("maker").open_sync() as writer:
        for each in commits:
            writer.write(each)
            writer.commit()


def stream(table: Table) -> StreamReadBuilder:
    return table.builder().with_catch_up("replay").with_end(latest=True)


def copy(table: Table, target: Table) -> None:
    with target.writer(USER).open_sync() as writer:
        assert copy_stream(stream(table), writer) == writer.position


def copy_async(table: Table, target: Table) -> None:
    async def run() -> None:
        async with target.writer(USER).open() as writer:
            assert await copy_stream_async(stream(table), writer) == writer.position

    asyncio.run(run())


@pytest.mark.parametrize("run", [copy, copy_async])
def test_each_run_continues_where_the_last_one_ended(source: Table, target: Table, run: Any) -> None:
    for number in range(3):
        run(source, target)
        assert target.rows() == source.rows()
        run(source, target)
        grown(source, changes(("-D", number, f"v{number}"), ("+I", 9, "new")), rows(10 + number))
    run(source, target)
    assert target.rows() == source.rows()
    identifiers = [target.snapshot(each)["commitIdentifier"] for each in target.ids()]
    assert identifiers == list(range(len(source.ids()))), "one commit for each of the source, counted by one"


def test_rows_of_an_append_table_come_once(tmp_path: Path) -> None:
    source, target = key_value_table(tmp_path, "source", keyed=False), key_value_table(tmp_path, "target", keyed=False)
    for key in range(3):
        grown(source, rows(key, key + 10))
        for run in (copy, copy_async):
            run(source, target)
    assert target.rows() == source.rows()
    assert len(target.ids()) == 3


def test_a_stream_that_is_open_continues_where_the_copy_stands(source: Table, target: Table) -> None:
    grown(source, rows(4), rows(5))
    with target.writer(USER).open_sync() as writer:
        for _ in range(2):
            # The second time it holds all of it, and passes over it.
            with stream(source).with_start(snapshot_id=1, full=True).open_sync() as opened:
                copy_stream(opened, writer)
        assert target.rows() == source.rows()
        grown(source, rows(6), rows(7))
        gap = stream(source).with_start(snapshot_id=5)
        with gap.open_sync() as opened, pytest.raises(StreamConfigError, match="would be missing"):
            copy_stream(opened, writer)
        copy_stream(stream(source), writer)
    assert target.rows() == source.rows()
    assert len(target.ids()) == 5


def test_a_full_state_replaces_what_the_copy_holds(source: Table, target: Table) -> None:
    grown(target, rows(77))
    with pytest.raises(StreamConfigError, match="holds rows already that this target has not written"):
        copy(source, target)
    with target.writer(USER).open_sync() as writer:
        copy_stream(stream(source), writer, replace=True)
    assert target.rows() == source.rows(), "at the start"
    grown(source, changes(("-D", 1, "v1")), changes(("-D", 2, "v2"), ("+I", 8, "v8")))
    source.expire(source.latest())
    with target.writer(USER).open_sync() as writer:
        copy_stream(stream(source).with_on_expired("full"), writer)
    assert target.rows() == source.rows() == [(3, "v3"), (8, "v8")]
    kinds = [target.snapshot(each)["commitKind"] for each in target.ids()]
    assert kinds == ["APPEND", "OVERWRITE", "OVERWRITE"]


def test_plans_of_several_batches_are_one_commit(source: Table, target: Table) -> None:
    with stream(source).open_sync(batch_bytes=1) as opened, target.writer(USER).open_sync() as writer:
        copy_stream(opened, writer)
    assert len(target.ids()) == 1
    assert target.rows() == source.rows()


def test_row_kinds_go_where_the_target_wants_them(source: Table, tmp_path: Path) -> None:
    grown(source, changes(("-D", 1, "v1")))
    target = Table(tmp_path, "kinds", primary_key=True)
    from pypaimon.streaming import stream_write_builder

    with stream_write_builder(target.handle()).open_sync() as writer:
        copy_stream(stream(source).with_start(snapshot_id=1, full=True), writer)
    assert sorted_rows(target.handle(), ["k", "v"]) == source.rows()


# ---- what does not go ----


def test_a_column_that_the_target_lacks(source: Table, target: Table) -> None:
    from pypaimon.schema.schema_change import SchemaChange

    target.catalog.alter_table(target.name, [SchemaChange.drop_column("v")], False)
    with target.writer(USER).open_sync() as writer:
        with pytest.raises(SchemaMismatchError, match="no column 'v'"):
            copy_stream(stream(source), writer)
        copy_stream(stream(source).with_projection(["k"]), writer)
    assert target.rows() == [(1,), (2,), (3,)]


def test_a_source_that_was_rolled_back_or_is_another_one(source: Table, target: Table, tmp_path: Path) -> None:
    grown(source, rows(4))
    copy(source, target)
    source.rollback(1)
    grown(source, rows(5))
    with pytest.raises(TableChangedError):
        copy(source, target)
    other = key_value_table(tmp_path, "other")
    grown(other, rows(1))
    with pytest.raises((TableChangedError, StreamConfigError)):
        copy(other, target)


def test_a_table_with_a_key_into_one_without(source: Table, tmp_path: Path) -> None:
    target = key_value_table(tmp_path, "append", keyed=False)
    with target.writer(USER).open_sync() as writer:
        with pytest.raises(StreamConfigError, match=r"primary key \['k'\], and the target has no keys"):
            copy_stream(stream(source), writer)
        writer.commit()
    assert target.data_files() == []


def test_a_table_is_not_copied_into_itself(source: Table) -> None:
    """Each commit would be a change to be copied."""
    before = source.rows()
    for run in (copy, copy_async):
        with pytest.raises(StreamConfigError, match="the source and the target of the copy"):
            run(source, source)
    assert source.rows() == before


def test_a_writer_in_which_rows_wait(source: Table, target: Table) -> None:
    with target.writer(USER).open_sync() as writer:
        writer.write(rows(1))
        with pytest.raises(StreamConfigError, match="rows wait in the writer"):
            copy_stream(stream(source), writer)


def test_a_copy_that_is_cancelled_in_the_middle_of_a_plan(target: Table, tmp_path: Path) -> None:
    """Of the plan nothing stays, and the next run has all of it."""
    source = key_value_table(tmp_path, "wide", bucket="8")
    grown(source, rows(*range(40)))
    with stream(source).open_sync(batch_bytes=1) as opened:
        assert [batch.is_last for batch in opened].index(True) > 2, "the second batch is in the midst"
    given = 0

    async def run() -> None:
        def at_the_second_batch(_: object) -> None:
            nonlocal given
            given += 1
            if given == 2:
                copying.cancel()

        opening = stream(source).open(batch_bytes=1, on_progress=at_the_second_batch)
        async with target.writer(USER).with_memory_limit(1).open() as writer, opening as opened:
            copying = asyncio.create_task(copy_stream_async(opened, writer))
            with pytest.raises(asyncio.CancelledError):
                await copying

    asyncio.run(run())
    assert given == 2
    assert target.ids() == []
    assert target.data_files() == []
    copy_async(source, target)
    assert target.rows() == source.rows()
