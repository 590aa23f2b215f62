"""Rows as programs hand them to a writer: in memory that changes, under other names, of many partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError, stream_write_builder
from pypaimon.streaming.errors import BadRowError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing import pending_rows, record_writer
from pypaimon.streaming.writing.row_layout import TargetTable, row_layout
from support.process_state import descriptors
from support.tables.handles import batch_read, create_table, write_by_stream
from support.tables.written_tables import key_value_table

pytestmark = pytest.mark.slow

CASES = pa.schema([("a", pa.int32()), ("A", pa.int32())])


@pytest.mark.parametrize("options", [{"primary_keys": ["k"], "options": {"bucket": "1"}}, {}], ids=["keyed", "append"])
def test_memory_of_the_program_may_change_after_a_write(warehouse: Any, options: dict[str, Any]) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.float64())])
    table = create_table(warehouse, "t", columns, **options)
    keys, values = np.array([1, 2]), np.array([0.5, 1.5])
    frame = pandas.DataFrame({"k": [5, 6], "v": [4.5, 5.5]})
    with stream_write_builder(table).open_sync() as writer:
        for _ in range(2):
            writer.write(pa.table({"k": keys, "v": values}))
            keys += 2
            values += 2
        writer.write(frame)
        frame.loc[:, "k"] = 0
        writer.commit()
    assert batch_read(table) == [{"k": key, "v": key - 0.5} for key in range(1, 7)]


def test_little_of_a_large_table_does_not_keep_it_in_memory(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, keyed=False)
    before = pa.total_allocated_bytes()
    with table.writer().open_sync() as writer:
        for number in range(4):
            large = pa.array(range(1 << 19), pa.int64())
            writer.write(pa.table({"k": large}).slice(number, 1))
            del large
        assert pa.total_allocated_bytes() - before < 1 << 20
        writer.commit()
    assert [row[0] for row in table.rows()] == [0, 1, 2, 3]


def test_lists_of_polars_that_are_null_over_elements_are_null(warehouse: Any) -> None:
    table = create_table(warehouse, "t", pa.schema([("n", pa.int64()), ("l", pa.list_(pa.string()))]))
    frame = polars.DataFrame({"n": [1, 2, 3], "l": [["a"], ["b", "c"], ["d"]]})
    write_by_stream(table, frame.with_columns(l=polars.when(polars.col("n") != 2).then(polars.col("l"))))
    assert batch_read(table) == [{"n": 1, "l": ["a"]}, {"n": 2, "l": None}, {"n": 3, "l": ["d"]}]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()], ids=str)
def test_many_bytes_at_once_are_taken_in_pieces(
    warehouse: Any, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    monkeypatch.setattr(pending_rows, "_CHUNK_BYTES", 200)
    table = create_table(warehouse, "t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    texts = [str(number) * 40 for number in range(20)]
    rows = pa.table({"n": range(20), "s": pa.array(texts, kind)})
    assert len(list(pending_rows.arrow_input(rows).batches)) > 5
    write_by_stream(table, rows)
    assert batch_read(table) == [{"n": number, "s": text} for number, text in enumerate(texts)]


@pytest.mark.parametrize("given", [["a"], ["A"], ["A", "a"]], ids="".join)
def test_a_column_goes_to_the_one_of_its_name_and_to_no_other(warehouse: Any, given: list[str]) -> None:
    table = create_table(warehouse, "t", CASES)
    write_by_stream(table, pa.table({name: pa.array([ord(name)], pa.int32()) for name in given}))
    assert batch_read(table) == [{name: ord(name) if name in given else None for name in "aA"}]


def test_a_name_that_differs_in_case_only_is_taken_with_wider_numbers(warehouse: Any) -> None:
    table = create_table(warehouse, "t", pa.schema([("id", pa.int32())]))
    write_by_stream(table, pandas.DataFrame({"ID": [7]}))
    assert batch_read(table) == [{"id": 7}]


@pytest.mark.parametrize(
    "frame",
    [pandas.DataFrame([[1, 2]], columns=["k", "k"]), pandas.DataFrame({"k": [2**70]})],
    ids=["one name twice", "too large a number"],
)
def test_a_frame_that_is_not_a_table_is_refused_and_the_writer_continues(
    tmp_path: Path, frame: pandas.DataFrame
) -> None:
    table = key_value_table(tmp_path)
    with table.writer().open_sync() as writer:
        with pytest.raises(StreamConfigError, match="the DataFrame cannot be converted to Arrow"):
            writer.write(frame)
        writer.write(pa.table({"k": [1]}))
        writer.commit()
    assert table.rows() == [(1, None)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC")], ids=str)
@pytest.mark.parametrize("part", ["key", "partition", "bucket key"])
def test_years_that_python_lacks_are_refused_in_keys_and_the_writer_continues(
    warehouse: Any, kind: pa.DataType, part: str
) -> None:
    columns = pa.schema([pa.field("at", kind, nullable=part == "partition"), ("v", kind)])
    of_part: dict[str, dict[str, Any]] = {
        "key": {"primary_keys": ["at"], "options": {"bucket": "2"}},
        "partition": {"partition_keys": ["at"]},
        "bucket key": {"options": {"bucket": "2", "bucket-key": "at"}},
    }
    table = create_table(warehouse, "t", columns, **of_part[part])
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    late, soon = pa.array([2**31 - 1 if number == pa.int32() else 2**58], number).cast(kind), pa.array([5], kind)
    with stream_write_builder(table).open_sync() as writer:
        with pytest.raises(BadRowError, match=r"Column 'at' of db\.t decides the partition or bucket"):
            writer.write(pa.table({"at": late, "v": soon}))
        writer.write(pa.table({"at": soon, "v": late}))
        assert writer.commit().written.rows == 1
    # The tasks of Spark have the layout alone.
    layout = row_layout(pa.schema([("at", kind)]), TargetTable.of(PaimonTable(table)))
    with pytest.raises(BadRowError, match=r"Column 'at' of db\.t decides the partition or bucket"):
        layout.align(pa.record_batch({"at": late}))


def test_files_of_many_partitions_are_open_a_bounded_number_at_a_time(
    warehouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_writer, "_MOST_OPEN_FILES", 10)
    columns = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    table = create_table(warehouse, "t", columns, partition_keys=["p"])
    rows = pa.table({"p": [*range(120)] * 2, "n": range(240)}, schema=columns)
    with stream_write_builder(table).with_memory_limit(100).open_sync() as writer:
        with descriptors(30):
            writer.write(rows)
        writer.commit()
    assert sorted(row["n"] for row in batch_read(table)) == list(range(240))
