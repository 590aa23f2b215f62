"""Merges of very many overlapping files: in stages, few of them open, opened at the same time in a store."""

from __future__ import annotations

import itertools
import logging
import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.table.row.generic_row import GenericRow

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.errors import CorruptTableError, StoreError, UnsupportedTableError
from pypaimon.streaming.merge import MOST_RUNS, Deduplicate, merge_batches, merge_engine, rows_of_batch, stages
from pypaimon.streaming.merge.ordering import stable_order
from pypaimon.streaming.model.plan import SplitMode
from support.memory import peak_memory
from support.models.merging import Record, comparable, merge_columns, merge_rows, sorted_runs_of
from support.samples import examples
from support.stores.fault_file_io import SCHEME, Call, FaultFileIO
from support.tables.handles import create_table, write_by_stream
from support.tables.stream_files import put, reader, records, split

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KEYED = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])
TYPES = {"k": pa.int64(), "v": pa.string()}
ROWS = 50


def overlapping(table: Any, count: int, rows: int = ROWS, value: str = "") -> list[Any]:
    """Files of level 0, each with all keys; the later a file, the newer its records."""
    low, high = (GenericRow([key], table.fields[:1]) for key in (0, rows - 1))
    files = []
    for number in range(count):
        data = pa.table({"id": range(rows), "v": [f"{number}{value}"] * rows}, KEYED)
        stored = records([0] * rows, data).set_column(0, "_SEQUENCE_NUMBER", pa.array([number] * rows, pa.int64()))
        files.append(put(table, f"data-{number:03}.parquet", stored, min_key=low, max_key=high))
    return files


@pytest.fixture
def keyed(warehouse: Any) -> Any:
    return create_table(warehouse, "keyed", KEYED, primary_keys=["id"], options={"bucket": "1"})


def joined(records: list[Record]) -> tuple[int, dict[str, Any]]:
    return 0, {"k": records[-1].values["k"], "v": ",".join(record.values["v"] for record in records)}


@given(
    runs=sorted_runs_of(
        {"k": st.integers(0, 4)}, {"v": st.sampled_from("abcde")}, kinds=st.just(0), max_runs=9, max_size=6
    ),
    most=st.integers(2, 4),
    memory=st.sampled_from([0, 200, 1 << 20]),
)
@settings(max_examples=examples(150))
def test_stages_change_nothing(runs: tuple[list[list[Record]], list[list[int]]], most: int, memory: int) -> None:
    """Also where the order of records of equal age decides: it is that of the runs."""
    found, cuts = runs
    engine = merge_engine(listing())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "MOST_RUNS", most)
        patch.setattr(stages, "STORED_BYTES", memory)
        got = merge_columns(found, TYPES, engine, cuts)
    assert comparable(got) == comparable(merge_rows(found, ["k"], joined))


def listing() -> Any:
    from pypaimon import Schema
    from pypaimon.schema.table_schema import TableSchema

    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
    return TableSchema.from_schema(0, Schema.from_pyarrow_schema(fields, primary_keys=["k"], options=options))


@pytest.mark.parametrize("count", [MOST_RUNS, MOST_RUNS + 1, 5 * MOST_RUNS, MOST_RUNS * MOST_RUNS + 1])
def test_no_more_runs_are_open_than_may_be(count: int) -> None:
    is_open = [0, 0]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        is_open[0] += 1
        is_open[1] = max(is_open)
        for key in (1, 2):
            columns = {"k": [key], "_SEQUENCE_NUMBER": [number], "_VALUE_KIND": pa.array([0], pa.int8())}
            yield pa.RecordBatch.from_pydict(columns)
        is_open[0] -= 1

    merged = list(merge_batches([run(number) for number in range(count)], Deduplicate(("k",))))
    assert sum(batch.num_rows for batch in merged) == 2
    assert is_open[0] == 0
    assert MOST_RUNS - 1 <= is_open[1] <= MOST_RUNS


def test_more_files_than_may_be_open_are_merged(keyed: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With descriptors for what is open at once, and not for all files."""
    files = overlapping(keyed, 200)
    plan = [split(SplitMode.MERGE, files)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = int(max(os.listdir("/dev/fd"), key=int)) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, used + 2 * MOST_RUNS + 32), hard))
    try:
        with caplog.at_level(logging.WARNING):
            found = reader(keyed).to_arrow(plan)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found["id"].to_pylist() == list(range(ROWS))
    assert set(found["v"].to_pylist()) == {"199"}
    [told] = [record.paimon for record in caplog.records if hasattr(record, "paimon")]
    assert told == {"event": "merge_staged", "runs": 200, "most": MOST_RUNS, "spilled": 0}


def test_what_does_not_fit_into_memory_is_spilled_and_leaves_nothing(
    keyed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = overlapping(keyed, 3 * MOST_RUNS)
    # What a stage makes of as many files as may be open takes about 32,000 bytes; there are two.
    monkeypatch.setattr(stages, "STORED_BYTES", 45_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(os.listdir("/dev/fd"))
    with caplog.at_level(logging.WARNING):
        batches = reader(keyed).iter_batches([split(SplitMode.MERGE, files)])
        first = next(batches)
        assert first["v"].to_pylist()[0] == f"{len(files) - 1}"
        batches.close()
    [told] = [record.paimon for record in caplog.records if hasattr(record, "paimon")]
    assert told["spilled"] > 1000
    assert len(os.listdir("/dev/fd")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["warehouse"]


def test_a_temporary_file_that_cannot_be_written_is_an_error_that_says_so(
    keyed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = overlapping(keyed, MOST_RUNS + 1)
    monkeypatch.setattr(stages, "STORED_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match="TMPDIR"):
        reader(keyed).to_arrow([split(SplitMode.MERGE, files)])


def test_a_disk_that_is_full_when_the_last_of_a_temporary_file_is_written_is_an_error_that_says_so(
    keyed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = overlapping(keyed, MOST_RUNS + 1)
    monkeypatch.setattr(stages, "STORED_BYTES", 0)
    most, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, highest))
    try:
        with pytest.raises(StoreError, match="TMPDIR"):
            reader(keyed).to_arrow([split(SplitMode.MERGE, files)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, highest))


@pytest.mark.parametrize("place", [0, MOST_RUNS - 1, MOST_RUNS, 2 * MOST_RUNS - 1])
def test_a_file_out_of_order_is_named_in_whatever_stage(keyed: Any, place: int) -> None:
    files = overlapping(keyed, 2 * MOST_RUNS)
    stored = records([0, 0], pa.table({"id": [7, 3], "v": ["a", "b"]}, KEYED))
    low, high = files[0].min_key, files[0].max_key
    files[place] = put(keyed, f"data-{place:03}.parquet", stored, min_key=low, max_key=high)
    with pytest.raises(CorruptTableError, match="not in the order") as caught:
        reader(keyed).to_arrow([split(SplitMode.MERGE, files)])
    assert caught.value.path == files[place].file_path


@pytest.mark.parametrize("together", [[12], [MOST_RUNS, MOST_RUNS, MOST_RUNS - 2]], ids=["merge", "stages"])
def test_files_in_a_store_are_opened_at_the_same_time(keyed: Any, together: list[int]) -> None:
    """None of a stage is answered before all were asked for: the first rows wait for a request of each stage."""
    files = overlapping(keyed, sum(together))
    file_io = FaultFileIO()
    keyed.file_io = file_io
    for file in files:
        file.file_path = SCHEME + file.file_path
    barriers = [barrier for size in together for barrier in [threading.Barrier(size, timeout=60)] * size]
    order = itertools.count()

    def answered(call: Call) -> Any:
        if "/bucket-0/" in call.path:
            barriers[next(order)].wait()
        return call.answer()

    file_io.wherever(answered)
    found = reader(keyed).to_arrow([split(SplitMode.MERGE, files)])
    assert found["v"].to_pylist() == [f"{len(files) - 1}"] * ROWS
    assert sorted(file_io.names()) == [*(file.file_name for file in files), "schema-0"]


def test_an_error_of_a_file_that_was_opened_ahead_comes_in_its_place(keyed: Any) -> None:
    files = overlapping(keyed, 3)
    keyed.file_io = FaultFileIO()
    for file in files:
        file.file_path = SCHEME + file.file_path
    Path(files[1].file_path.removeprefix(SCHEME)).write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(CorruptTableError) as caught:
        reader(keyed).to_arrow([split(SplitMode.MERGE, files)])
    assert caught.value.path == files[1].file_path


def test_the_more_files_are_merged_the_less_of_each_is_in_memory(keyed: Any) -> None:
    def most_bytes(count: int) -> int:
        plan = [split(SplitMode.MERGE, overlapping(keyed, count, rows=4096, value="x" * 200))]
        before = pa.total_allocated_bytes()
        batches = reader(keyed, batch_size=512).iter_batches(plan)
        return max(pa.total_allocated_bytes() - before for _ in batches)

    few, many = most_bytes(4), most_bytes(MOST_RUNS)
    assert many < 2 * few


@pytest.mark.parametrize(
    ("runs", "rows"), [(1, 65_536), (4, 65_536), (8, 32_768), (MOST_RUNS, 8192), (10 * MOST_RUNS, 8192)]
)
def test_few_runs_are_merged_in_large_batches(runs: int, rows: int) -> None:
    assert rows_of_batch(runs) == rows
    assert rows_of_batch(runs, 1) == 1


def test_records_of_one_key_that_arrow_cannot_hold_together_are_an_error_that_says_so() -> None:
    length = 3 << 29
    offsets = np.array([0, length], np.int32)
    # Nothing is written to this memory, so that the machine gives none.
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.empty(length, np.uint8))]
    )
    columns = {"k": [1], "v": text, "_SEQUENCE_NUMBER": [1], "_VALUE_KIND": pa.array([0], pa.int8())}
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(UnsupportedTableError, match=r"Column 'v'.*more than 2 GB"):
        list(merge_batches([[batch], [batch]], Deduplicate(("k",))))


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint64", "float64", "S3"])
def test_equal_codes_stay_in_their_order(kind: str) -> None:
    source = np.random.default_rng(0)
    for values in ([], [3], source.integers(-128, 128, 500), [2**63 - 1, -(2**63), 0, -(2**63)]):
        codes = np.array(values, np.int64).astype(kind)
        assert stable_order(codes).tolist() == np.argsort(codes, kind="stable").tolist()


def test_wide_rows_are_merged_a_few_at_a_time(warehouse: Any) -> None:
    """The batches of all runs are copied into one chunk, unless they are cut."""
    runs, rows, width = 8, 1500, 20_000
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "20"}
    table = create_table(warehouse, "wide", KEYED, primary_keys=["id"], options=options)
    for number in range(runs):
        write_by_stream(table, pa.table({"id": range(rows), "v": pa.repeat(str(number) * width, rows)}, schema=KEYED))
    with stream_read_builder(table).with_end(latest=True).open_sync() as stream:
        read, most = peak_memory(stream.to_arrow)
    assert read["v"].unique().to_pylist() == [str(runs - 1) * width]
    assert most < 1.6 * runs * rows * width
