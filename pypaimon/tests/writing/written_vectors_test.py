"""Columns of VECTOR in Parquet: lists, as Java has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction.compactor import compact
from support.tables.handles import create_table, current_files

VECTOR = pa.list_(pa.float32(), 2)
COLUMNS = pa.schema(
    [pa.field("k", pa.int32(), False), ("v", VECTOR), ("a", pa.list_(VECTOR)), ("s", pa.struct([("v", VECTOR)]))]
)
ROWS = [(1, [1.0, 2.0], [[3.0, 4.0], None], {"v": [5.0, 6.0]}), (2, None, None, None), (3, [7.0, 8.0], [], {"v": None})]


def table(rows: list[Any]) -> pa.Table:
    columns = zip(zip(*rows, strict=True), COLUMNS, strict=True)
    return pa.table([pa.array(list(column), field.type) for column, field in columns], schema=COLUMNS)


def test_they_are_lists_in_parquet_files(warehouse: Any) -> None:
    made = create_table(warehouse, "v", COLUMNS, primary_keys=["k"], options={"bucket": "1", "file.format": "parquet"})
    with stream_write_builder(made).open_sync() as writer:
        for rows in (ROWS[1:], ROWS[:1]):
            writer.write(table(rows))
            writer.commit()
    files = current_files(made)
    schema = pq.read_schema(files[0].file_path)
    # Of vectors Arrow would write, and read, none that is null.
    assert schema.field("v").type == pa.list_(pa.field("element", pa.float32()))
    columns = pq.ParquetFile(files[0].file_path).schema
    assert [columns.column(number).path for number in range(4, 6)] == ["v.list.element", "a.list.element.list.element"]
    for _ in range(2):
        builder = stream_read_builder(made).with_start("latest-full").with_end(latest=True)
        with builder.new_streaming_scan() as scan:
            (plan,) = scan.stream_sync()
        found = builder.new_read().to_arrow(plan.splits())
        assert found.select(COLUMNS.names).sort_by("k").to_pylist() == table(ROWS).to_pylist()
        assert found.schema.field("v").type == VECTOR
        compact(made, full=True)
