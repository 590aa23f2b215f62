"""`sequence.snapshot-ordering`: the record of the later snapshot is the newer one, whatever its sequence number."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pypaimon.table.row.generic_row import GenericRow

from pypaimon.streaming import UnsupportedTableError
from pypaimon.streaming.model.plan import SplitMode
from support.tables.handles import create_table
from support.tables.stream_files import put, reader, records, split

KEYED = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])
APPENDED, COMPACTED = 0, 1


@pytest.fixture
def table(warehouse: Any) -> Any:
    options = {"bucket": "1", "write-only": "true", "sequence.snapshot-ordering": "true"}
    options["table-read.sequence-number.enabled"] = "true"
    return create_table(warehouse, "keyed", KEYED, primary_keys=["id"], options=options)


def file(table: Any, rows: list[tuple[int, str]], numbers: list[int], snapshot: int, source: int | None) -> Any:
    """A file with these rows and stored sequence numbers, whose manifest entry says this snapshot and source."""
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), KEYED.types, strict=True)]
    stored = records([0] * len(rows), pa.Table.from_arrays(columns, schema=KEYED))
    stored = stored.set_column(0, "_SEQUENCE_NUMBER", pa.array(numbers, pa.int64()))
    bounds = {name: GenericRow([rows[place][0]], table.fields[:1]) for name, place in (("min_key", 0), ("max_key", -1))}
    name = f"data-{snapshot}-{source}-{numbers[0]}.parquet"
    return put(
        table, name, stored, min_sequence_number=snapshot, max_sequence_number=snapshot, file_source=source, **bounds
    )


def merged(table: Any, files: list[Any], **settings: Any) -> list[tuple[Any, ...]]:
    read = reader(table, **settings).to_arrow([split(SplitMode.MERGE, files)])
    return [tuple(row.values()) for row in read.to_pylist()]


def test_the_record_of_the_later_snapshot_is_the_newer_one(table: Any) -> None:
    first = file(table, [(1, "a1"), (2, "b1")], [1000, 1001], snapshot=1, source=APPENDED)
    later = file(table, [(2, "b2"), (3, "c2")], [0, 1], snapshot=2, source=APPENDED)
    assert merged(table, [later, first]) == [("+I", 1, "a1"), ("+I", 2, "b2"), ("+I", 3, "c2")]


def test_a_compacted_file_holds_the_snapshots_of_its_records(table: Any) -> None:
    """Its own snapshot, or that of its newest record, says nothing of the others."""
    compacted = file(table, [(1, "a5"), (2, "b1")], [5, 1], snapshot=5, source=COMPACTED)
    between = file(table, [(1, "a3"), (2, "b3")], [70, 71], snapshot=3, source=APPENDED)
    assert merged(table, [compacted, between]) == [("+I", 1, "a5"), ("+I", 2, "b3")]


@pytest.mark.parametrize("names", [("low", "high"), ("high", "low")])
def test_within_a_snapshot_the_number_decides_with_which_a_record_was_written(table: Any, names: Any) -> None:
    """Also where other keys in the files, or a filter, change the order in which they are merged."""
    files = {
        "low": file(table, [(2, "low")], [10], snapshot=4, source=APPENDED),
        "high": file(table, [(1, "a"), (2, "high")], [11, 12], snapshot=4, source=APPENDED),
    }
    assert merged(table, [files[name] for name in names]) == [("+I", 1, "a"), ("+I", 2, "high")]


def test_an_audit_log_shows_the_snapshots_as_sequence_numbers(table: Any) -> None:
    """As Java: the numbers that decided."""
    first = file(table, [(1, "a1")], [1000], snapshot=1, source=APPENDED)
    later = file(table, [(1, "a2"), (2, "b2")], [0, 1], snapshot=2, source=APPENDED)
    shown = reader(table, view="audit_log", include_row_kind=False)
    for mode, wanted in ((SplitMode.MERGE, [(1, 2), (2, 2)]), (SplitMode.RECORDS, [(1, 1), (1, 2), (2, 2)])):
        found = shown.to_arrow([split(mode, [first, later])]).select(["id", "_SEQUENCE_NUMBER"])
        assert [tuple(row.values()) for row in found.to_pylist()] == wanted


def test_a_file_older_than_the_option_is_refused(table: Any) -> None:
    """Its smallest sequence number is no snapshot."""
    old = file(table, [(1, "a1")], [1000], snapshot=1000, source=None)
    new = file(table, [(1, "a2")], [0], snapshot=2, source=APPENDED)
    with pytest.raises(UnsupportedTableError, match=r"data-1000-.*'sequence\.snapshot-ordering'"):
        merged(table, [old, new])
