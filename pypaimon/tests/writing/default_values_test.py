"""Nulls and missing columns become the default values that a table has for them."""

from __future__ import annotations

import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import ArrayType, AtomicType, DataField

from pypaimon.streaming.errors import BadRowError, UnsupportedTableError
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.time_zone import time_zone
from pypaimon.streaming.writing.row_layout import KindRules, TargetTable, row_layout

APPEND = KindRules(False, frozenset(), "deduplicate", False, False)


def _filled(type_: str, default: str | None, given: Any, *, nullable: bool = True) -> list[Any]:
    fields = [
        DataField(0, "id", AtomicType("BIGINT")),
        DataField(1, "v", AtomicType(type_, nullable), default_value=default),
    ]
    batch = pa.record_batch({"id": [1, 2]} if given is None else {"id": [1, 2], "v": given})
    layout = pickle.loads(pickle.dumps(row_layout(batch.schema, TargetTable("db.t", fields, APPEND, time_zone("UTC")))))
    return list(layout.align(batch).column(1).to_pylist())


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("INT", "7", 7),
        ("STRING", "'a b'", "a b"),
        ("STRING", "a", "a"),
        ("BOOLEAN", "true", True),
        ("DECIMAL(10, 2)", "1.5", Decimal("1.50")),
        ("DATE", "2024-02-29", date(2024, 2, 29)),
        ("TIMESTAMP(3)", "2024-02-29 12:00:00.5", datetime(2024, 2, 29, 12, 0, 0, 500000)),
        ("DOUBLE", "-1.5", -1.5),
    ],
)
def test_a_missing_column_and_a_null_become_the_default_value(type_: str, text: str, value: Any) -> None:
    assert _filled(type_, text, None) == [value, value]
    assert _filled(type_, text, None, nullable=False) == [value, value]
    kind = arrow_type(AtomicType(type_))
    assert _filled(type_, text, pa.array([None, value], kind)) == [value, value]


def test_without_a_default_value_they_stay_null() -> None:
    assert _filled("INT", None, None) == [None, None]


def test_a_null_in_a_not_null_column_is_refused_as_in_java() -> None:
    with pytest.raises(BadRowError, match="holds null"):
        _filled("INT", "7", pa.array([None, 1], pa.int32()), nullable=False)


def test_a_default_value_that_does_not_fit_the_type_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match=r"Column 'v' \(INT\) has the default value 'x'"):
        _filled("INT", "x", None)
    nested = DataField(0, "v", ArrayType(True, AtomicType("INT")), default_value="[1]")
    with pytest.raises(UnsupportedTableError, match="only plain types"):
        row_layout(pa.schema([]), TargetTable("db.t", [nested], APPEND, time_zone("UTC")))
