"""What a compaction holds in memory does not grow with the bucket."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming import compact, stream_write_builder
from pypaimon.streaming.compaction import file_reading
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.files import rolling_files
from support.memory import peak_memory
from support.tables.handles import catalog_with_database, create_table, write_by_stream

pytestmark = pytest.mark.slow

ROWS = 20_000
PIECE = 1 << 16
BOUND = 5 << 20
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.float64())])
VECTORS = {"deletion-vectors.enabled": "true"}


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
    # The names and statistics of four times as many files are a fifth; the rows would be more than the whole.
    assert many < 1.5 * few


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
    found, most = peak_memory(lambda: compact(table, full=full))
    assert found.before.rows >= rows // 4
    return most


@pytest.mark.parametrize(("runs", "width", "rows"), [(8, 1, 32_768), (8, 200, 32_768), (32, 1000, 514), (99, 1, 8192)])
def test_runs_share_the_rows_and_the_bytes_of_a_merge(tmp_path: Path, runs: int, width: int, rows: int) -> None:
    """Of narrow rows as many are merged at once as bring speed, of wide ones as many as memory is for."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.string())])
    catalog = catalog_with_database(tmp_path, "d")
    table = create_table(catalog, "t", columns, primary_keys=["id"], options={"bucket": "1"}, database="d")
    write_by_stream(table, pa.table({"id": range(40_000), "a": pa.repeat("x" * width, 40_000)}, schema=columns))
    directory = TableDirectory.of(table)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    (bucket,) = live_buckets(PaimonTable(table), LiveEntries().look(directory, snapshot))
    reader = FileReader(PaimonTable(table), directory, lambda: None)
    batches = list(reader.records(bucket.files, levels=False, shared_by=runs))
    assert 0.8 * rows < batches[0].num_rows <= rows
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(40_000))


EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "file.block-size": str(PIECE)}


@pytest.mark.parametrize(
    ("key", "options"),
    [
        (["id"], {"bucket": "1", "num-sorted-run.compaction-trigger": "20"}),
        ([], {"bucket": "1", "bucket-key": "id"}),
        ([], EVOLVING),
    ],
    ids=["keyed", "append", "evolution"],
)
def test_a_bucket_many_times_as_large_as_what_is_held_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: list[str], options: dict[str, str]
) -> None:
    """The limits on what is read and written at once are small here, and the bucket becomes one file."""
    monkeypatch.setattr(file_reading, "_BATCH_ROWS", 1024)
    monkeypatch.setattr(rolling_files, "MOST_PIECE_BYTES", PIECE)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.binary())])
    catalog = catalog_with_database(tmp_path, "d")
    common = {"target-file-size": str(PIECE), "source.split.open-file-cost": "1 b"}
    table = create_table(catalog, "t", columns, primary_keys=key, options=common | options, database="d")
    rows, width, commits = 220_000, 96, 4
    numbers = np.random.default_rng(1)

    def values(count: int) -> pa.Array:
        return pa.array(np.frombuffer(numbers.bytes(count * width), f"V{width}").tolist(), pa.binary())

    for number in range(commits):
        ids = np.arange(number, rows, commits)
        write_by_stream(table, pa.table({"id": ids, "a": values(len(ids))}, schema=columns))
    if options is EVOLVING:
        builder = table.new_batch_write_builder()
        update = builder.new_update().with_update_type(["a"])
        commit = builder.new_commit()
        commit.commit(update.update_by_arrow_with_row_id(pa.table({"_ROW_ID": range(rows), "a": values(rows)})))
        commit.close()
    # All of it becomes one file.
    report, most = peak_memory(lambda: compact(table.copy({"target-file-size": "1 gb"}), full=True))
    assert report.after.files == 1 and report.after.rows == rows
    assert most < BOUND < report.before.bytes / 4
