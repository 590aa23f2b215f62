"""Tests of `$binlog`: which records are packed into one row, wherever batches end, and what the columns are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypaimon.common.predicate import Predicate

from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.reading.records import Packing, Records, unbroken
from support.tables.handles import create_table
from support.tables.stream_files import put, reader, records, split

KINDS = ("+I", "-U", "+U", "-D")


def in_batches(codes: list[int], cuts: list[int]) -> list[Records]:
    batch = pa.record_batch({"v": pa.array(range(len(codes)), pa.int64())})
    kinds = pa.array(codes, pa.int8())
    edges = sorted({0, len(codes), *(cut for cut in cuts if cut < len(codes))})
    return [Records(batch.slice(a, b - a), kinds.slice(a, b - a)) for a, b in pairwise(edges)]


def packed_one_by_one(codes: list[int]) -> list[tuple[int, list[int]]]:
    rows: list[tuple[int, list[int]]] = []
    for index, code in enumerate(codes):
        if code == 2 and rows and rows[-1] == (1, [index - 1]):
            rows[-1] = 2, [index - 1, index]
        else:
            rows.append((code, [index]))
    return rows


@given(codes=st.lists(st.integers(0, 3), max_size=30), cuts=st.lists(st.integers(0, 29)))
def test_packing_is_that_of_one_record_after_the_other(codes: list[int], cuts: list[int]) -> None:
    rows: list[tuple[int, list[int]]] = []
    for part in unbroken(in_batches(codes, cuts)):
        packing = Packing.of(part)
        arrays = packing.arrays(part.batch.column("v"), pa.list_(pa.int64()))
        assert packing.last(part.batch.column("v")).to_pylist() == [array[-1] for array in arrays.to_pylist()]
        rows += zip(packing.kinds.tolist(), arrays.to_pylist(), strict=True)
    assert rows == packed_one_by_one(codes)


def test_records_without_kinds_are_inserts() -> None:
    (part,) = unbroken([Records(pa.record_batch({"v": [1, 2]}))])
    assert Packing.of(part).kinds.tolist() == [0, 0]


@pytest.fixture
def changed(warehouse: Any) -> Any:
    """A table, and the split of a changelog file: id 1 came, was updated, 2 went."""
    schema = pa.schema([pa.field("id", pa.int32(), False), ("v", pa.string()), ("r", pa.struct([("x", pa.int32())]))])
    options = {"bucket": "1", "changelog-producer": "lookup", "table-read.sequence-number.enabled": "true"}
    table = create_table(warehouse, "t", schema, primary_keys=["id"], options=options)
    rows = pa.table(
        {"id": [1, 1, 1, 2], "v": ["a", "a", "b", None], "r": [{"x": 1}, {"x": 1}, None, {"x": 4}]}, schema=schema
    )
    return table, [split(SplitMode.CHANGELOG, [put(table, "changelog-1.parquet", records([0, 1, 2, 3], rows))])]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_retractions_of_two_rows_are_two_rows(warehouse: Any, batch_size: int) -> None:
    """Java makes one row of the first two records, of kind -U, and one of the last two, of kind +I."""
    schema = pa.schema([pa.field("id", pa.int32(), False), ("v", pa.string())])
    table = create_table(
        warehouse, "t", schema, primary_keys=["id"], options={"bucket": "1", "changelog-producer": "input"}
    )
    rows = pa.table({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]}, schema=schema)
    splits = [split(SplitMode.CHANGELOG, [put(table, "changelog-1.parquet", records([1, 1, 1, 0], rows))])]
    read = reader(table, view="binlog", include_row_kind=False, batch_size=batch_size)
    assert read.to_arrow(splits).to_pylist() == [
        {"rowkind": "-U", "id": [1], "v": ["a"]},
        {"rowkind": "-U", "id": [2], "v": ["b"]},
        {"rowkind": "-U", "id": [3], "v": ["c"]},
        {"rowkind": "+I", "id": [4], "v": ["d"]},
    ]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_columns_are_arrays_and_updates_one_row(changed: Any, batch_size: int) -> None:
    table, splits = changed
    read = reader(table, view="binlog", include_row_kind=False, batch_size=batch_size)
    assert read.schema.field("v").type == pa.list_(pa.string())
    assert read.to_arrow(splits).to_pylist() == [
        {"rowkind": "+I", "_SEQUENCE_NUMBER": 0, "id": [1], "v": ["a"], "r": [{"x": 1}]},
        {"rowkind": "+U", "_SEQUENCE_NUMBER": 2, "id": [1, 1], "v": ["a", "b"], "r": [{"x": 1}, None]},
        {"rowkind": "-D", "_SEQUENCE_NUMBER": 3, "id": [2], "v": [None], "r": [{"x": 4}]},
    ]


def test_projection_and_row_kind(changed: Any) -> None:
    table, splits = changed
    read = reader(table, view="binlog", projection=("r.x", "id"))
    assert read.to_arrow(splits).to_pylist() == [
        {"_row_kind": "+I", "r_x": [1], "id": [1]},
        {"_row_kind": "+I", "r_x": [1, None], "id": [1, 1]},
        {"_row_kind": "+I", "r_x": [4], "id": [2]},
    ]


def test_a_filter_looks_at_records_but_for_the_kind_of_rows(changed: Any) -> None:
    table, splits = changed

    def found(column: str, value: object) -> list[Any]:
        predicate = Predicate("equal", None, column, [value])
        rows = reader(table, view="binlog", projection=("rowkind", "v"), predicate=predicate).to_arrow(splits)
        return [(row["rowkind"], row["v"]) for row in rows.to_pylist()]

    assert found("rowkind", "+U") == [("+U", ["a", "b"])]
    assert found("rowkind", "-U") == []
    assert found("v", "a") == [("+I", ["a"]), ("-U", ["a"])]
