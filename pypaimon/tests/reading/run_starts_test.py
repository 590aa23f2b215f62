"""Files of a local disk are begun while the one before them is read; rows and errors come as if they were not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pypaimon.streaming import CorruptTableError, stream_write_builder
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.reading.file_rows import one_ahead
from pypaimon.streaming.testing import SmallTable

COUNTS = [20_000, 5_000, 12_000]
"""Small files are not begun ahead."""


def batch(value: int) -> pa.RecordBatch:
    return pa.record_batch({"id": [value]})


def written(directory: Path) -> SmallTable:
    """A table of one file for each number of `COUNTS`, with as many rows."""
    table = SmallTable(directory, keys=(), columns=pa.schema([("id", pa.int64())]), options={"bucket": "1"})
    first = 0
    with stream_write_builder(table.table).open_sync() as writer:
        for count in COUNTS:
            writer.write(pa.table({"id": range(first, first + count)}))
            writer.commit()
            first += count
    return table


def test_the_next_run_is_begun_while_one_is_read() -> None:
    began = threading.Event()

    def runs() -> Iterator[Iterator[pa.RecordBatch]]:
        yield iter([batch(0), batch(1)])
        yield second()
        yield iter([batch(4)])

    def second() -> Iterator[pa.RecordBatch]:
        began.set()
        yield from (batch(2), batch(3))

    read = one_ahead(IOPool(2, 60, marked=True), runs())
    rows = [next(read)["id"][0].as_py()]
    assert began.wait(60)
    rows += [each["id"][0].as_py() for each in read]
    assert rows == [0, 1, 2, 3, 4]


def test_no_run_and_runs_without_rows_have_no_starts() -> None:
    pool = IOPool(2, 60, marked=True)
    assert list(one_ahead(pool, [])) == []
    assert list(one_ahead(pool, [iter([]), iter([]), iter([])])) == []


def test_files_are_read_in_order(tmp_path: Path) -> None:
    builder = written(tmp_path).builder()
    with builder.new_streaming_scan() as scan:
        plan = next(scan.stream_sync())
    assert len(plan.splits()) == 1
    assert builder.new_read().to_arrow(plan.splits())["id"].to_pylist() == list(range(sum(COUNTS)))


@pytest.mark.parametrize("missing", range(len(COUNTS)))
def test_rows_of_the_files_before_a_missing_one_come_first(missing: int, tmp_path: Path) -> None:
    builder = written(tmp_path).builder()
    with builder.new_streaming_scan() as scan:
        plan = next(scan.stream_sync())
    Path(plan.splits()[0].files[missing].file_path).unlink()
    rows: list[int] = []
    with pytest.raises(CorruptTableError):
        for each in builder.new_read().iter_batches(plan.splits()):
            rows += each["id"].to_pylist()
    assert rows == list(range(sum(COUNTS[:missing])))
