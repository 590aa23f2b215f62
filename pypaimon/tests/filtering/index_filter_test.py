"""File indexes of Java: no row that matches is ruled out, what cannot match is, and damage is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.filtering.filters import mask
from pypaimon.streaming.filtering.index_filter import IndexFilter
from pypaimon.streaming.indexes.container import IndexPart, index_parts
from pypaimon.streaming.paimon.filter_internals import Predicate
from support.java.indexes import COLUMN, JavaIndex, java_indexes, schema_of
from support.samples import SOAK, examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

INDEXES = java_indexes()
SMALL = [each for each in INDEXES if each.given is not None]
SETTINGS = settings(max_examples=examples(400), deadline=None)
RANGES = ("lessThan", "lessOrEqual", "greaterThan", "greaterOrEqual", "between", "notBetween")
NEGATED = ("notEqual", "notIn")
DECIDED = {
    "bloom-filter": (),
    "bitmap": ("equal", "in", "isNull", "isNotNull", *NEGATED),
    "bsi": ("equal", "in", "isNull", "isNotNull", *NEGATED, *RANGES),
}
DECIDED["bitmap-1"], DECIDED["range-bitmap"] = DECIDED["bitmap"], DECIDED["bsi"]
"""Operators that an index decides exactly."""
EXACT = [
    number
    for number, index in enumerate(INDEXES)
    if DECIDED[index.index] and "(0)" not in index.type and "(9)" not in index.type
]
"""Indexes that decide something exactly."""


def may_match(index: JavaIndex, predicate: Predicate, data: bytes | None = None, sql: str | None = None) -> bool:
    data = index.data if data is None else data

    def content(part: IndexPart) -> bytes:
        return data[part.start : part.start + part.length]

    read = index.schema if sql is None else schema_of(sql)
    found = IndexFilter(predicate, index.schema, read)
    return found.may_match(index_parts(data), content, len(index.values))


def matches(index: JavaIndex, predicate: Predicate) -> bool:
    batch = pa.RecordBatch.from_arrays([index.values], names=[COLUMN])
    return bool(mask(predicate, batch).true_count)


def literals_of(values: pa.Array) -> st.SearchStrategy[Any]:
    """Values of the column, and others near by and far away."""
    kind = values.type
    there = [each for each in values.unique().to_pylist() if each is not None] if kind != pa.timestamp("ns") else []
    if pa.types.is_timestamp(kind):
        zone = timezone.utc if kind.tz else None
        moments = [
            datetime(1970, 1, 1),
            datetime(1969, 12, 31, 23, 59, 59, 7001),
            datetime(2024, 2, 29, 12, 34, 56, 7001),
        ]
        moments += [each.replace(microsecond=7000) for each in moments] + [datetime(1970, 1, 1, 0, 0, 0, 7001)]
        near = [each.replace(tzinfo=zone) + timedelta(microseconds=step) for each in moments for step in (-1, 0, 1)]
        return st.sampled_from([*near, *there])
    near: list[Any] = {
        pa.types.is_boolean: [True, False],
        pa.types.is_integer: [-(2**63), -129, -1, 0, 1, 2, 4, 2**31, 2**63 - 1, Decimal("2.5"), 10**30],
        pa.types.is_floating: [0.0, -0.0, float("nan"), float("inf"), 0.1, 1.5, -3.0, 1e300, 2],
        pa.types.is_decimal: [Decimal("0.005"), Decimal("-1.505"), Decimal("1e12"), 0, 1],
        pa.types.is_string: ["", "a", "aa", "b", "c", "name 2", "name 20", "\U0001f601"],
        pa.types.is_binary: [b"", b"\x01", b"\0" * 40],
        pa.types.is_date: [date(1970, 1, 1), datetime(1970, 1, 1, 12), 30_000_000],
        pa.types.is_time: [time(0), time(12), time(23, 59, 59, 999_999), 2],
    }[next(test for test in KINDS if test(kind))]
    if pa.types.is_date(kind):
        there = values.drop_null().cast(pa.int32()).to_pylist()
    return st.sampled_from([*near, *there])


KINDS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_time,
)
COUNTS = {"isNull": 0, "isNotNull": 0, "between": 2, "notBetween": 2, "in": 3, "notIn": 3}
METHODS = ("isNull", "isNotNull", "equal", "in", *NEGATED, *RANGES)


@st.composite
def leaves(draw: st.DrawFn, number: int) -> Predicate:
    index = INDEXES[number]
    method = draw(st.sampled_from(METHODS))
    count = COUNTS.get(method, 1)
    literals = draw(st.lists(literals_of(index.values), min_size=count, max_size=count))
    return Predicate(method, 0, COLUMN, literals)


def predicates(number: int) -> st.SearchStrategy[Predicate]:
    def joined(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        several = st.lists(parts, min_size=1, max_size=3)
        return st.builds(Predicate, st.sampled_from(["and", "or"]), st.none(), st.none(), several)

    return st.recursive(leaves(number), joined, max_leaves=4)


@SETTINGS
@given(st.data())
def test_an_index_never_rules_out_a_file_with_a_matching_row(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(range(len(INDEXES))))
    index, predicate = INDEXES[number], data.draw(predicates(number))
    assert may_match(index, predicate) or not matches(index, predicate)


@SETTINGS
@given(st.data())
def test_what_an_index_decides_it_decides_exactly(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(EXACT))
    index = INDEXES[number]
    predicate = data.draw(leaves(number).filter(lambda leaf: leaf.method in DECIDED[index.index]))
    assert may_match(index, predicate) == matches(index, predicate)


def missing_values() -> Iterator[tuple[JavaIndex, Any]]:
    """Literals that are in no row."""
    found: dict[str, list[Any]] = {
        "INT": [4, 77, -1],
        "TINYINT": [4, 77, -1],
        "BIGINT": [4, 77, -1],
        "STRING": ["never", "written", "a longer text of 37 letters, and less."],
        "DOUBLE": [2.5, 7.0, 1e-300],
        "FLOAT": [2.5, 7.0, -8.25],
        "DATE": [date(2000, 1, 1), date(2001, 1, 1), date(2002, 1, 1)],
        "BYTES": [b"\x01", b"\0" * 39, b"x" * 100],
        "TIMESTAMP(3)": [datetime(2000, 1, day) for day in (1, 2, 3)],
        "TIMESTAMP(6)": [datetime(2000, 1, day) for day in (1, 2, 3)],
    }
    for index in SMALL:
        for literal in found.get(index.type, ()):
            yield index, literal


def test_a_bloom_filter_rules_out_most_values_that_are_not_there() -> None:
    tried = [
        may_match(index, Predicate("equal", 0, COLUMN, [literal]))
        for index, literal in missing_values()
        if index.index == "bloom-filter"
    ]
    assert len(tried) > 25 and sum(tried) < len(tried) / 4


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap", "bitmap-1", "range-bitmap"])
def test_zeros_of_both_signs_are_one_value(kind: str, zero: float) -> None:
    """The sample of DOUBLE has a negative zero and no positive one."""
    index = next(each for each in SMALL if each.index == kind and each.type == "DOUBLE")
    for method, literals in (("equal", [zero]), ("between", [zero, zero])):
        assert may_match(index, Predicate(method, 0, COLUMN, literals))


def test_parts_of_a_filter_are_joined_row_by_row() -> None:
    """No row has both values, though the file has a row of each."""
    index = next(each for each in SMALL if each.index == "range-bitmap" and each.type == "INT")
    parts = [Predicate("equal", 0, COLUMN, [literal]) for literal in (0, 30_000_000)]
    assert all(may_match(index, part) for part in parts)
    assert not may_match(index, Predicate("and", None, None, parts))
    assert may_match(index, Predicate("or", None, None, parts))


@pytest.mark.parametrize(
    ("written", "read"),
    [("INT", "STRING"), ("STRING", "VARCHAR(3)"), ("FLOAT", "DOUBLE"), ("TIMESTAMP(3)", "TIMESTAMP(6)")],
)
def test_an_index_says_nothing_of_a_column_that_is_read_as_something_else(written: str, read: str) -> None:
    for index in SMALL:
        if index.type == written:
            literal = {"STRING": "x", "VARCHAR(3)": "x", "DOUBLE": 77.0}.get(read, datetime(2000, 1, 1))
            assert may_match(index, Predicate("equal", 0, COLUMN, [literal]), sql=read)


@pytest.mark.parametrize("index", [each for each in SMALL if each.type == "INT" and len(each.values) > 2], ids=str)
def test_an_index_serves_a_column_that_became_wider(index: JavaIndex) -> None:
    for literal in (0, 30_000_000, 120_000_000):
        assert may_match(index, Predicate("equal", 0, COLUMN, [literal]), sql="BIGINT")
    found = [may_match(index, Predicate("equal", 0, COLUMN, [literal]), sql="BIGINT") for literal in range(1, 30)]
    assert sum(found) < 15


@pytest.mark.parametrize("index", SMALL, ids=str)
def test_a_damaged_index_is_an_error_or_says_that_any_row_may_match(index: JavaIndex) -> None:
    """Whatever is cut off: never an exception of another kind, nor an answer from half of it."""
    predicate = Predicate("isNotNull", 0, COLUMN, [])
    for end in range(0, len(index.data), 1 + len(index.data) // (150 if SOAK else 40)):
        with suppress(ValueError):
            assert may_match(index, predicate, index.data[:end]) or not matches(index, predicate)


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_a_changed_byte_ends_nothing(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from([number for number, each in enumerate(INDEXES) if each.given is not None]))
    index = INDEXES[number]
    changed = bytearray(index.data)
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        may_match(index, data.draw(leaves(number)), bytes(changed))


def test_an_index_of_another_version_is_an_error() -> None:
    index = SMALL[0]
    newer = index.data[:11] + b"\x02" + index.data[12:]
    with pytest.raises(ValueError, match="it is of version 2, known is 1"):
        may_match(index, Predicate("equal", 0, COLUMN, [1]), newer)
    for kind, version in (("bitmap", 3), ("bsi", 2)):
        index = next(each for each in SMALL if each.index == kind)
        start = index_parts(index.data)[COLUMN][0].start
        changed = index.data[:start] + bytes([version]) + index.data[start + 1 :]
        with pytest.raises(ValueError, match=f"it is of version {version}"):
            may_match(index, Predicate("isNull", 0, COLUMN, []), changed)


def test_an_index_of_a_file_with_other_rows_is_an_error() -> None:
    index = next(each for each in SMALL if each.index == "bitmap")
    found = IndexFilter(Predicate("isNull", 0, COLUMN, []), index.schema, index.schema)
    with pytest.raises(ValueError, match="it is an index of 16 rows, the file has 17"):
        found.may_match(index_parts(index.data), lambda part: index.data[part.start :][: part.length], 17)
