"""Files bucket by bucket: what is looked at, and not taken, is let go."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, live_buckets
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.spark.sink_world import World

pytestmark = pytest.mark.slow


def many(world: World, count: int) -> pa.Table:
    """Entries of so many files, in buckets of one to nine, in an order of chance."""
    directory = TableDirectory.of(world.table())
    one = LiveEntries().look(directory, directory.snapshots.get(1)).slice(0, 1)
    random = np.random.default_rng(7)
    buckets = pa.array(random.integers(0, count // 5, count), pa.int32())
    found = pa.concat_tables([one] * count).combine_chunks()
    for name, values in (
        ("bucket", buckets),
        ("file_name", pa.array(f"data-{number}.parquet" for number in range(count))),
    ):
        place = found.schema.get_field_index(name)
        found = found.set_column(place, name, values.cast(found.schema.field(place).type))
    return found


def peak(table: Any, entries: pa.Table) -> int:
    tracemalloc.start()
    try:
        assert sum(len(bucket.files) for bucket in live_buckets(PaimonTable(table), entries)) == entries.num_rows
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_files_that_are_not_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    assert peak(world.table(), many(world, 7200)) < 1.5 * peak(world.table(), many(world, 2400))


def test_each_bucket_comes_once_with_its_files_as_the_manifests_have_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    entries = many(world, 1500)
    found: list[LiveBucket] = list(live_buckets(PaimonTable(world.table()), entries))
    assert [each.bucket for each in found] == sorted(set(entries["bucket"].to_pylist()))
    expected: dict[int, list[str]] = {}
    for bucket, name in zip(entries["bucket"].to_pylist(), entries["file_name"].to_pylist(), strict=True):
        expected.setdefault(bucket, []).append(name)
    assert {each.bucket: [file.name for file in each.files] for each in found} == expected
    assert not list(live_buckets(PaimonTable(world.table()), entries.slice(0, 0)))
