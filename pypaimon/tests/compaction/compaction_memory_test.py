"""What a compaction holds in memory does not grow with the bucket."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming import compact, stream_write_builder
from pypaimon.streaming.compaction import file_reading
from support.tables.handles import catalog_with_database, create_table

pytestmark = pytest.mark.slow

ROWS = 20_000
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.float64())])
VECTORS = {"deletion-vectors.enabled": "true"}
POOLS: list[pa.MemoryPool] = []
"""They must outlive what was allocated from them, some of which is cached."""


@pytest.mark.parametrize(
    ("options", "full"),
    [
        ({}, True),
        (VECTORS, False),
        pytest.param(VECTORS | {"changelog-producer": "lookup"}, True, marks=pytest.mark.nightly),
    ],
)
def test_four_times_as_many_rows_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], full: bool
) -> None:
    monkeypatch.setattr(file_reading, "_BATCH_ROWS", 2048)
    few, many = (peak(tmp_path / str(rows), rows, options, full=full) for rows in (ROWS, 4 * ROWS))
    assert many < 1.25 * few


def peak(directory: Path, rows: int, options: dict[str, str], *, full: bool) -> int:
    """The most bytes of Arrow and of Python that the second compaction takes: a quarter of the keys is there again."""
    catalog = catalog_with_database(directory, "d")
    # With small files, for a file is written and read in pieces of a row group.
    common = {"bucket": "1", "target-file-size": "64 kb", "num-sorted-run.compaction-trigger": "20"}
    table = create_table(catalog, "t", COLUMNS, primary_keys=["id"], options={**common, **options}, database="d")
    numbers = np.random.default_rng(1)
    for ids in (np.arange(rows), np.arange(0, rows, 4)):
        with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
            writer.write(pa.table({"id": ids, "a": numbers.random(len(ids))}))
            writer.commit()
        if len(ids) == rows:
            compact(table, full=True)
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        assert compact(table, full=full).before.rows >= rows // 4
        return counted.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
