"""Columns cast to Spark's types, nested ones with nulls and slices."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.spark.arrow_types import cast

MICROS = pa.timestamp("us")
NOT_NULL = pa.list_(pa.field("item", pa.int32(), nullable=False))
OLD = -1_500
CUT = datetime(1969, 12, 31, 23, 59, 59, 999998)


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array([OLD, None], pa.timestamp("ns")), MICROS, [CUT, None]),
        (
            pa.array([[OLD], None, [], [None]], pa.list_(pa.timestamp("ns"))),
            pa.list_(MICROS),
            [[CUT], None, [], [None]],
        ),
        (
            pa.array([[("a", OLD)], None, [], [("b", None)]], pa.map_(pa.string(), pa.timestamp("ns"))),
            pa.map_(pa.string(), MICROS),
            [[("a", CUT)], None, [], [("b", None)]],
        ),
        (
            pa.array([{"x": OLD}, None, {"x": None}], pa.struct([("x", pa.timestamp("ns"))])),
            pa.struct([("x", MICROS)]),
            [{"x": CUT}, None, {"x": None}],
        ),
        (
            pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
            pa.list_(pa.field("element", pa.float32())),
            [[1.0, 2.0], None, [3.0, 4.0]],
        ),
        (pa.array([b"x", None], pa.large_binary()), pa.binary(), [b"x", None]),
        (
            pa.array([[1], None], pa.list_(pa.field("item", pa.int32(), nullable=False))),
            pa.list_(pa.int32()),
            [[1], None],
        ),
    ],
    ids=["nanos", "list", "map", "struct", "vector", "blob", "nullability"],
)
def test_casts_keep_values_nulls_and_slices(array: pa.Array, target: pa.DataType, expected: list[Any]) -> None:
    for start in range(len(expected) + 1):
        found = cast(array.slice(start), target)
        found.validate(full=True)
        assert found.type.equals(target)
        assert found.to_pylist() == expected[start:]
