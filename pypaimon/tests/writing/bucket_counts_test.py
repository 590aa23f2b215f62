"""All files of a partition are divided into one number of buckets, whoever commits while `bucket` is altered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.spark.write.batch_writer import PaimonBatchWriter
from pypaimon.spark.write.sink import Sink
from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_batch
from pypaimon.streaming.errors import CommitConflictError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.writing.record_writer import RecordWriter
from support.samples import seeded
from support.tables.handles import read_with

COLUMNS = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int32(), nullable=False), ("n", pa.int32())]
)
KEYS = range(8)


class Rescaled:
    """`db.t` of (p, k, n), partitioned by `p`, whose number of buckets changes."""

    def __init__(self, directory: Path, keyed: bool) -> None:
        self.warehouse = str(directory)
        self.catalog = CatalogFactory.create({"warehouse": self.warehouse})
        self.catalog.create_database("db", True)
        keys = ["p", "k"] if keyed else []
        options = {"bucket": "1", "bucket-key": "k"}
        self.catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS, ["p"], keys, options), False)

    @property
    def table(self) -> Any:
        return self.catalog.get_table("db.t")

    def alter(self, buckets: int) -> None:
        self.catalog.alter_table("db.t", [SchemaChange.set_option("bucket", str(buckets))], False)

    def counts(self) -> dict[int, set[int]]:
        """Numbers of buckets of the live files of each partition."""
        directory = TableDirectory.of(self.table)
        state = TableState(directory, directory.snapshots.get_latest_snapshot())
        found: dict[int, set[int]] = {}
        for each in state.files(None):
            found.setdefault(state.values_of(each.partition)["p"], set()).add(each.total_buckets)
        return found

    def keys(self) -> list[tuple[int, int]]:
        return sorted((row["p"], row["k"]) for row in read_with(stream_read_builder(self.table).with_end(latest=True)))

    def files(self) -> int:
        return len(list(Path(str(self.table.table_path)).rglob("data-*")))


def rows(partition: int, value: int = 0) -> pa.Table:
    return pa.table({"p": [partition] * len(KEYS), "k": list(KEYS), "n": [value] * len(KEYS)}, schema=COLUMNS)


def streams(world: Rescaled, partition: int, *, overwrite: bool = False) -> Callable[[], Any]:
    builder = stream_write_builder(world.table)
    writer = (builder.with_overwrite() if overwrite else builder).open_sync().__enter__()
    writer.write(rows(partition))

    def commit() -> None:
        with closing(writer):
            writer.commit()

    return commit


overwrites = partial(streams, overwrite=True)


def batch(world: Rescaled, partition: int) -> Callable[[], Any]:
    """Messages of which nobody says by which snapshot they were divided."""
    table = world.table
    writer = RecordWriter(PaimonTable(table), "batch", False)
    writer.write(aligned(table, partition))
    messages = writer.prepare()
    return lambda: commit_batch(PaimonTable(table), messages, overwrite=False)


def aligned(table: Any, partition: int) -> pa.RecordBatch:
    (found,) = rows(partition).combine_chunks().to_batches()
    if not table.is_primary_key_table:
        return found
    kinds = pa.array([0] * len(KEYS), pa.int8())
    return found.append_column(pa.field(VALUE_KIND, pa.int8(), nullable=False), kinds)


def sink(world: Rescaled, partition: int) -> Callable[[], Any]:
    from pyspark.sql.types import IntegerType, StructField, StructType

    fields = [StructField(name, IntegerType(), name == "n") for name in COLUMNS.names]
    options = {"warehouse": world.warehouse, "table": "db.t"}
    writer = PaimonBatchWriter(Sink.of(options, StructType(fields), False, streaming=False))
    message = writer.write(iter(rows(partition).to_batches()))
    return lambda: writer.commit([message])


WRITERS = {"stream": streams, "batch": batch, "sink": sink}


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("late", WRITERS)
@pytest.mark.parametrize("early", [*WRITERS, "overwrite"])
def test_the_second_commit_into_a_new_partition_finds_its_number_of_buckets(
    tmp_path: Path, early: str, late: str, keyed: bool
) -> None:
    world = Rescaled(tmp_path, keyed)
    commit = WRITERS[late](world, 1)
    world.alter(3)
    {**WRITERS, "overwrite": overwrites}[early](world, 1)()
    files = world.files()
    with pytest.raises(CommitConflictError, match=r"divided into 3 buckets, and data-.* into 1"):
        commit()
    assert world.counts() == {1: {3}}
    assert world.keys() == [(1, key) for key in KEYS]
    assert world.files() <= files


def test_other_partitions_and_equal_numbers_are_not_a_conflict(tmp_path: Path) -> None:
    world = Rescaled(tmp_path, True)
    commits = [writer(world, partition) for partition in (1, 2) for writer in WRITERS.values()]
    for commit in commits:
        commit()
    old = streams(world, 3)
    world.alter(3)
    streams(world, 4)()
    old()
    assert world.counts() == {1: {1}, 2: {1}, 3: {1}, 4: {3}}
    assert world.keys() == [(partition, key) for partition in (1, 2, 3, 4) for key in KEYS]


def test_rows_of_one_commit_under_two_numbers_are_a_conflict(tmp_path: Path) -> None:
    """A writer that follows columns goes on under the newest schema, with what it has written before."""
    world = Rescaled(tmp_path, True)
    records = [{"type": "insert", "data": {"p": 1, "k": key, "n": 0}} for key in KEYS]
    wider = [{"type": "insert", "data": {"p": 1, "k": key, "n": 0, "more": 1}} for key in KEYS]
    with stream_write_builder(world.table).open_sync() as writer:
        writer.write_changes(records, "maxwell-json")
        world.alter(3)
        writer.write_changes(wider, "maxwell-json", on_new_column="add")
        with pytest.raises(CommitConflictError, match="divided into"):
            writer.commit()
    assert world.counts() == {}


def test_through_random_histories_a_partition_has_one_number_and_each_key_once(tmp_path: Path) -> None:
    world, chance = Rescaled(tmp_path, True), seeded("bucket counts")
    waiting: list[Callable[[], Any]] = []
    conflicts: list[str] = []
    for _ in range(24):
        step = chance.choice(["alter", "write", "write", "commit", "commit", "overwrite"])
        try:
            if step == "alter":
                world.alter(chance.randint(1, 3))
            elif step == "commit" and waiting:
                waiting.pop(chance.randrange(len(waiting)))()
            elif step != "commit":
                writer = overwrites if step == "overwrite" else chance.choice([streams, batch])
                waiting.append(writer(world, chance.randint(1, 4)))
        except (CommitConflictError, UnsupportedTableError) as error:
            conflicts.append(str(error))
        found = world.counts()
        assert all(len(each) == 1 for each in found.values())
    assert world.keys() == [(partition, key) for partition in sorted(found) for key in KEYS]
    assert all("divided into" in each for each in conflicts)
