"""Columns of MULTISET: maps from elements to how many times they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction.compactor import compact
from pypaimon.streaming.errors import BadRowError, SchemaMismatchError
from support.tables.handles import create_table

pytestmark = pytest.mark.slow

COUNT = pa.field("value", pa.int32(), nullable=False)
COLUMNS = pa.schema(
    [("k", pa.int32()), ("t", pa.map_(pa.string(), COUNT)), ("n", pa.list_(pa.map_(pa.int64(), COUNT)))]
)
ROWS = [(1, [("a", 2), ("b", 1)], [[(7, 1)], []]), (2, None, None), (3, [], [None])]


def multisets(catalog: Any, **options: str) -> Any:
    """A table of (k, t MULTISET<STRING>, n ARRAY<MULTISET<BIGINT>>), with key k."""
    columns = pa.schema([pa.field("k", pa.int32(), False), ("t", pa.string()), ("n", pa.string())])
    table = create_table(catalog, "m", columns, primary_keys=["k"], options={"bucket": "1", **options})
    path = Path(str(table.table_path)) / "schema" / "schema-0"
    # pypaimon makes no such columns.
    schema = json.loads(path.read_text())
    schema["fields"][1]["type"] = {"type": "MULTISET", "element": "STRING"}
    schema["fields"][2]["type"] = {"type": "ARRAY", "element": {"type": "MULTISET", "element": "BIGINT"}}
    path.write_text(json.dumps(schema))
    return CatalogFactory.create({"warehouse": str(path.parents[3])}).get_table("db.m")


def read(table: Any) -> list[tuple[Any, ...]]:
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    with builder.new_streaming_scan() as scan:
        (plan,) = scan.stream_sync()
    found = builder.new_read().to_arrow(plan.splits())
    assert found.schema.field("t").type == COLUMNS.field("t").type
    return sorted(zip(*(found[name].to_pylist() for name in COLUMNS.names), strict=True))


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_they_are_written_and_compacted(warehouse: Any, format_: str) -> None:
    table = multisets(warehouse, **{"file.format": format_})
    with stream_write_builder(table).open_sync() as writer:
        for rows in (ROWS, [(2, [("c", 3)], [])]):
            columns = zip(zip(*rows, strict=True), COLUMNS, strict=True)
            writer.write(pa.table([pa.array(list(column), field.type) for column, field in columns], schema=COLUMNS))
            writer.commit()
    expected = [ROWS[0], (2, [("c", 3)], []), ROWS[2]]
    assert read(table) == expected
    assert compact(table, full=True).new_snapshot_ids
    assert read(table) == expected


def test_counts_may_be_of_a_type_with_null_and_not_null(warehouse: Any) -> None:
    kind = pa.map_(pa.string(), pa.int32())
    counts = pa.table({"k": [1, 2], "t": pa.array([[("a", None)], [("a", 1)]], kind)})
    table = multisets(warehouse)
    with stream_write_builder(table).open_sync() as writer:
        with pytest.raises(BadRowError, match=r"'t' .* holds null in it \('t\.value'\)"):
            writer.write(counts)
        writer.write(counts.slice(1))
        writer.commit()
    assert read(table) == [(2, [("a", 1)], None)]
    with (
        stream_write_builder(table).open_sync() as writer,
        pytest.raises(SchemaMismatchError, match="MULTISET<STRING>"),
    ):
        writer.write(pa.table({"k": [1], "t": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))}))


def test_change_records_bring_them(warehouse: Any) -> None:
    table = multisets(warehouse)
    record = json.dumps({"op": "c", "before": None, "after": {"k": 1, "t": {"a": 2}, "n": [{"7": 1}]}})
    with stream_write_builder(table).open_sync() as writer:
        writer.write_changes([record], "debezium-json")
        writer.commit()
    assert read(table) == [(1, [("a", 2)], [[(7, 1)]])]
