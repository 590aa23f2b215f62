"""A copy begins the full state again only where rows went that its changes do not name, and then of the latest one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    DictTarget,
    StreamReadBuilder,
    TableChangedError,
    compact,
    replicate,
    stream_write_builder,
)
from pypaimon.streaming.stream_types import PlanKind
from support.stores.counting_file_io import CountingFileIO
from support.tables.copied_table import at, batches, copying
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("k", pa.int64()), ("p", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, columns=COLUMNS, partition_keys=["p"])
    table.commit([(1, "a"), (2, "b")])
    return table


def kinds(table: Table, builder: StreamReadBuilder | None = None) -> list[PlanKind]:
    """The kinds of the plans after the first snapshot."""
    builder = (builder or table.builder()).with_end(latest=True)
    return [batch.kind for batch in batches(copying(builder, at(table, 2)))]


def overwritten(table: Table, partition: str, *keys: int) -> None:
    with stream_write_builder(table.handle()).with_overwrite({"p": partition}).open_sync() as writer:
        writer.write(table.arrow_rows([(key, partition) for key in keys]))
        writer.commit()


def test_neither_rows_that_are_added_nor_compactions_bring_a_new_state(table: Table) -> None:
    table.commit([(3, "a")])
    compact(table.handle(), full=True)
    overwritten(table, "c", 4)
    table.commit([(5, "a")])
    assert kinds(table) == [PlanKind.DELTA, PlanKind.OVERWRITE, PlanKind.DELTA]


def test_added_rows_cost_a_copy_no_more_requests(table: Table) -> None:
    for key in range(3, 8):
        table.commit([(key, "a")])
    makers: list[Callable[[StreamReadBuilder], StreamReadBuilder]] = [
        lambda builder: builder.with_start(position=at(table, 2)),
        lambda builder: copying(builder, at(table, 2)),
    ]
    reads = []
    for made in makers:
        file_io = CountingFileIO()
        batches(made(table.builder(file_io).with_end(latest=True).with_catch_up("replay")))
        reads.append(sum(file_io.reads.values()))
    assert reads[0] == reads[1]


def test_a_partition_that_is_not_read_brings_none(table: Table) -> None:
    overwritten(table, "b", 3)
    assert kinds(table, table.builder().with_filter("p = 'a'")) == []
    assert kinds(table, table.builder().with_filter("p = 'b'")) == [PlanKind.FULL]


@pytest.mark.parametrize("shards", [None, 2])
def test_of_several_overwrites_one_state_comes_unless_shards_have_to_agree(table: Table, shards: int | None) -> None:
    for key in (3, 4, 5):
        overwritten(table, "a", key)
    builder = table.builder()
    if shards:
        builder.with_shard(0, shards)
    assert kinds(table, builder) == [PlanKind.FULL] * (3 if shards else 1)


def test_an_empty_state_comes_as_a_batch_without_rows(table: Table) -> None:
    commit = table.handle().new_batch_write_builder().new_commit()
    commit.truncate_table()
    commit.close()
    (batch,) = batches(copying(table.builder().with_end(latest=True), at(table, 2)))
    assert batch.begins_state and batch.is_last and not batch.num_rows


def test_a_compaction_that_java_commits_with_an_overwrite_brings_one(tmp_path: Path) -> None:
    """Java writes no changelog of it, so that what it moves up from level 0 is in no change."""
    table = key_value_table(tmp_path, "keyed", **{"bucket": "1", "changelog-producer": "lookup"})
    written(table, rows(1, 2))
    compact(table.handle(), full=True)
    target = DictTarget()
    replicate(table.builder().with_end(latest=True), target)
    table.write(rows(3), overwrite=True)
    overwrite = table.snapshot(table.latest())
    assert overwrite["commitKind"] == "OVERWRITE"
    replicate(table.builder().with_end(latest=True), target)
    assert target.rows == {}, "what is at level 0 comes with a compaction"
    compact(table.handle(), full=True)
    as_java = {key: value for key, value in table.snapshot(table.latest()).items() if "hangelog" not in key}
    as_java |= {key: overwrite[key] for key in ("commitUser", "commitIdentifier")}
    table.snapshot_path(table.latest()).write_text(json.dumps(as_java))
    replicate(table.builder().with_end(latest=True), target)
    assert target.rows == {3: {"k": 3, "v": "v3"}}


def written(table: Table, given: pa.Table) -> None:
    write_with(table.writer(), given)


# ---- rows that a COMPACT deletes ----


def test_deletion_vectors_that_paimon_before_1_3_commits_as_a_compaction_bring_one(tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path)
    table.numbered(4)
    target = DictTarget("id")
    replicate(table.at.builder().with_end(latest=True), target)
    for row_id in (1, 2):
        table.delete(row_id)
        deleted = table.at.snapshot(table.at.latest())
        table.at.snapshot_path(table.at.latest()).write_text(json.dumps({**deleted, "commitKind": "COMPACT"}))
        replicate(table.at.builder().with_end(latest=True), target)
        assert sorted(target.rows) == sorted(row["id"] for row in table.model.values())


def test_a_compaction_that_moves_deletion_vectors_brings_none(tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path)
    for _ in range(6):
        table.numbered(2)
    table.delete(1, 5)
    before = table.at.latest()
    compact(table.handle, full=True)
    assert table.at.snapshot(before)["indexManifest"] != table.at.snapshot(table.at.latest())["indexManifest"]
    table.numbered(1)
    stream = copying(table.at.builder().with_end(latest=True), at(table.at, before + 1))
    assert [batch.kind for batch in batches(stream)] == [PlanKind.DELTA]


# ---- another changelog producer ----


@pytest.mark.parametrize("compacted", ["", "before", "after"])
def test_another_changelog_producer_brings_one(tmp_path: Path, compacted: str) -> None:
    """What was written under the former one may be in no change that the other one makes."""
    table = key_value_table(tmp_path, "keyed", bucket="1")
    target = DictTarget()
    written(table, changes(("+I", 1, "a"), ("+I", 2, "a")))
    follow(table, target)
    written(table, changes(("+I", 3, "a"), ("-D", 2, "a")))
    if compacted == "before":
        compact(table.handle(), full=True)
    altered(table, "lookup")
    written(table, changes(("+I", 4, "a"), ("-D", 1, "a")))
    if compacted == "after":
        compact(table.handle(), full=True)
    follow(table, target)
    written(table, changes(("+I", 5, "a")))
    follow(table, target)
    compact(table.handle(), full=True)
    follow(table, target)
    assert sorted(target.rows) == [3, 4, 5]


def test_what_waits_for_a_compaction_that_makes_no_change_of_it_is_read(tmp_path: Path) -> None:
    options = {"bucket": "1", "changelog-producer": "lookup"}
    table = Table(tmp_path, columns=COLUMNS, primary_keys=["k", "p"], partition_keys=["p"], **options)
    target = DictTarget()
    table.commit([(1, "a"), (1, "b")])
    compact(table.handle(), full=True)
    follow(table, target)
    table.commit([(2, "a"), (2, "b")])
    compact(table.handle(), full=True, partition={"p": "a"})
    follow(table, target)
    altered(table, "none")
    table.commit([(3, "a")], table=table.handle())
    compact(table.handle(), full=True)
    follow(table, target)
    assert sorted(target.rows) == [(1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a")]


def follow(table: Table, target: DictTarget) -> None:
    replicate(table.builder().with_end(latest=True), target)


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_stream_ends_where_the_changelog_that_it_reads_does(tmp_path: Path, is_copy: bool) -> None:
    table = key_value_table(tmp_path, "keyed", **{"bucket": "1", "changelog-producer": "lookup"})
    written(table, rows(1))
    compact(table.handle(), full=True)
    builder = table.builder()
    with (copying(builder, None) if is_copy else builder).open_sync() as stream:
        assert next(stream).kind is PlanKind.FULL
        altered(table, "none")
        assert stream.poll(0) is None
        written(table, rows(2))
        with pytest.raises(TableChangedError, match="changed 'changelog-producer' from lookup to none"):
            stream.poll(10)


def altered(table: Table, producer: str) -> None:
    table.catalog.alter_table(table.name, [SchemaChange.set_option("changelog-producer", producer)], False)
