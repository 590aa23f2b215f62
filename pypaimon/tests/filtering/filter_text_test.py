"""Filters written as text."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.filtering.filter_text import parse_filter
from pypaimon.streaming.paimon.internals import AtomicType, DataField, RowType

FIELDS = [
    DataField(0, "id", AtomicType("BIGINT")),
    DataField(1, "name", AtomicType("STRING")),
    DataField(2, "day", AtomicType("DATE")),
    DataField(3, "at", AtomicType("TIMESTAMP(6)")),
    DataField(4, "zoned", AtomicType("TIMESTAMP_LTZ(3)")),
    DataField(5, "price", AtomicType("DECIMAL(9, 2)")),
    DataField(6, "ok", AtomicType("BOOLEAN")),
    DataField(7, "odd name", AtomicType("INT")),
    DataField(8, "inner", RowType(True, [DataField(9, "x", AtomicType("INT"))])),
    DataField(10, "clock", AtomicType("TIME(3)")),
]


def said(text: str) -> Any:
    """The filter as nested tuples."""

    def shown(predicate: Any) -> Any:
        if predicate.method in ("and", "or"):
            return (predicate.method, *(shown(part) for part in predicate.literals))
        return (predicate.method, predicate.field, *(predicate.literals or ()))

    return shown(parse_filter(text, FIELDS))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("id = 3", ("equal", "id", 3)),
        ("id<>-3", ("notEqual", "id", -3)),
        ("id != 3", ("notEqual", "id", 3)),
        ("id >= 2.5", ("greaterOrEqual", "id", Decimal("2.5"))),
        ("price < 1e2", ("lessThan", "price", Decimal("1e2"))),
        ("name = 'it''s'", ("equal", "name", "it's")),
        ("name > ''", ("greaterThan", "name", "")),
        ("day <= '2026-11-21'", ("lessOrEqual", "day", date(2026, 11, 21))),
        ("at = '2026-11-21 08:30:00.500'", ("equal", "at", datetime(2026, 11, 21, 8, 30, 0, 500000))),
        ("clock = '08:30:00'", ("equal", "clock", time(8, 30))),
        ("ok = TRUE", ("equal", "ok", True)),
        ("`odd name` = 1", ("equal", "odd name", 1)),
        ("inner.x = 1", ("equal", "inner.x", 1)),
        ("id in (1, 2)", ("in", "id", 1, 2)),
        ("name NOT IN ('a','b')", ("notIn", "name", "a", "b")),
        ("name is null", ("isNull", "name")),
        ("name like 'a_%'", ("like", "name", "a_%")),
        ("name NOT LIKE 'a_%'", ("notLike", "name", "a_%")),
        ("name IS NOT NULL", ("isNotNull", "name")),
        ("id=1 or id=2 and ok=false", ("or", ("equal", "id", 1), ("and", ("equal", "id", 2), ("equal", "ok", False)))),
        ("(id=1 or id=2) and id=3", ("and", ("or", ("equal", "id", 1), ("equal", "id", 2)), ("equal", "id", 3))),
    ],
)
def test_what_a_filter_says(text: str, meaning: Any) -> None:
    assert said(text) == meaning


def test_a_time_with_an_offset_is_aware() -> None:
    expected = datetime(2026, 11, 21, 8, 30, tzinfo=timezone(timedelta(hours=2)))
    assert said("zoned = '2026-11-21T08:30:00+02:00'") == ("equal", "zoned", expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column, got the end"),
        ("id", "expected a comparison, IN, LIKE or IS, got the end"),
        ("id = ", "got the end"),
        ("id == 3", "expected a number, a text in single quotes, TRUE or FALSE, got '='"),
        ("id = 3 id = 4", "expected AND, OR or the end, got 'id' at character 8"),
        ("(id = 3", r"expected \), got the end"),
        ("missing = 3", "there is no column 'missing'; columns: id, name"),
        ("name = 3", "3 does not fit name .*single quotes"),
        ("id = 'x'", "'x' does not fit id"),
        ("day = 'yesterday'", "'yesterday' does not fit day"),
        ("name = NULL", "write IS NULL"),
        ('name = "a"', "cannot read '\"a\"' at character 8"),
        ("name = 'open", "cannot read"),
        ("id like '1%'", "LIKE is for text, and id is"),
        ("id not 3", "expected IN or LIKE, got '3'"),
        ("id not like '1%'", "LIKE is for text, and id is"),
        ("id = 3x", "cannot read '3x'"),
        ("and = 3", "expected a column, got 'and'"),
    ],
)
def test_an_invalid_filter_says_why(text: str, message: str) -> None:
    with pytest.raises(StreamConfigError, match=message):
        parse_filter(text, FIELDS)
