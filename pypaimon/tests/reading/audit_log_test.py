"""`$audit_log` with sequence numbers: of stored records, and of rows that several records were merged into."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pypaimon.table.row.generic_row import GenericRow

from pypaimon.streaming import UnsupportedTableError
from pypaimon.streaming.model.plan import SplitMode
from support.tables.handles import create_table
from support.tables.stream_files import put, reader, records, split

SCHEMA = pa.schema([pa.field("id", pa.int32(), False), ("v", pa.int32()), ("w", pa.int32())])
NUMBERED = {"bucket": "1", "table-read.sequence-number.enabled": "true"}
ENGINES: dict[str, tuple[dict[str, str], list[tuple[str, int, int, int | None, int | None]]]] = {
    "deduplicate": ({}, [("-D", 11, 1, 2, None), ("+I", 1, 2, 5, 5), ("+U", 12, 3, 7, None)]),
    "partial-update": (
        {"merge-engine": "partial-update", "ignore-delete": "true"},
        [("+I", 0, 1, 4, 4), ("+I", 1, 2, 5, 5), ("+I", 12, 3, 7, 8)],
    ),
    "aggregation": (
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "max", "fields.v.ignore-retract": "true"}
        | {"fields.w.ignore-retract": "true"},
        [("+I", 11, 1, 4, 4), ("+I", 1, 2, 5, 5), ("+I", 12, 3, 7, 8)],
    ),
}


def table_and_split(warehouse: Any, options: dict[str, str]) -> tuple[Any, list[Any]]:
    """Keys 1 (overwritten by a -D), 2 (alone) and 3 (updated), in two files of overlapping keys."""
    table = create_table(warehouse, "t", SCHEMA, primary_keys=["id"], options=NUMBERED | options)
    older = records([0, 0, 0], pa.table({"id": [1, 2, 3], "v": [4, 5, 6], "w": [4, 5, 8]}, schema=SCHEMA))
    newer = records([3, 2], pa.table({"id": [1, 3], "v": [2, 7], "w": [None, None]}, schema=SCHEMA))
    newer = newer.set_column(0, "_SEQUENCE_NUMBER", pa.array([11, 12], pa.int64()))
    files = [
        put(table, f"data-{name}.parquet", rows, min_key=_key(table, 1), max_key=_key(table, 3), delete_row_count=count)
        for name, rows, count in (("a", older, 0), ("b", newer, 1))
    ]
    return table, [split(SplitMode.MERGE, files)]


def _key(table: Any, value: int) -> GenericRow:
    return GenericRow([value], table.trimmed_primary_keys_fields)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_merged_row_has_the_number_of_its_newest_record(warehouse: Any, engine: str) -> None:
    options, expected = ENGINES[engine]
    table, splits = table_and_split(warehouse, options)
    read = reader(table, view="audit_log", include_row_kind=False)
    found = [tuple(row.values()) for row in read.to_arrow(splits).to_pylist()]
    assert found == expected


def test_the_same_rows_come_without_it(warehouse: Any) -> None:
    table, splits = table_and_split(warehouse, {})
    numbered = reader(table, view="audit_log", include_row_kind=False).to_arrow(splits)
    plain = reader(table, view="audit_log", include_row_kind=False, projection=("rowkind", "id", "v", "w"))
    assert plain.to_arrow(splits) == numbered.drop_columns(["_SEQUENCE_NUMBER"])


def test_merged_rows_have_no_row_ids(warehouse: Any) -> None:
    table, splits = table_and_split(warehouse, {})
    with pytest.raises(UnsupportedTableError, match="no row ids"):
        reader(table, view="row_tracking").to_arrow(splits)
