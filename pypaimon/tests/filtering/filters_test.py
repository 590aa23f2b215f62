"""Filters over Arrow batches, against a row-by-row evaluation and against literal examples."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.common.predicate import Predicate
from pypaimon.data.timestamp import Timestamp

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.filters import check, columns_of, mask, split_and
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

NAN = math.nan


def leaf(method: str, *literals: Any, field: str = "c") -> Predicate:
    return Predicate(method, None, field, list(literals))


def both(*parts: Predicate) -> Predicate:
    return Predicate("and", None, None, list(parts))


def either(*parts: Predicate) -> Predicate:
    return Predicate("or", None, None, list(parts))


def kept(predicate: Predicate, values: list[Any], kind: pa.DataType) -> list[Any]:
    column = pa.array(values, kind)
    keep = mask(predicate, pa.RecordBatch.from_arrays([column], names=["c"]))
    assert keep.null_count == 0
    return [value for value, yes in zip(values, keep.to_pylist(), strict=True) if yes]


# Row by row: a value and a literal become keys that Python orders, and None means unknown.


def order(value: Any) -> Any:
    return (True, 0) if value != value else (False, value)


def compare(value: Any, literal: Any, method: str) -> bool | None:
    if value is None or literal is None:
        return None
    left, right = order(value), order(literal)
    return {
        "equal": left == right,
        "notEqual": left != right,
        "lessThan": left < right,
        "lessOrEqual": left <= right,
        "greaterThan": left > right,
        "greaterOrEqual": left >= right,
    }[method]


def kleene_and(*parts: bool | None) -> bool | None:
    if False in parts:
        return False
    return None if None in parts else True


def row_matches(predicate: Predicate, value: Any) -> bool | None:
    method, literals = predicate.method, predicate.literals or []
    if method == "and":
        return kleene_and(*(row_matches(part, value) for part in literals))
    if method == "or":
        results = [row_matches(part, value) for part in literals]
        return True if True in results else None if None in results else False
    if method == "isNull":
        return value is None
    if method == "isNotNull":
        return value is not None
    if value is None:
        return None
    if method == "in":
        return True in [compare(value, literal, "equal") for literal in literals]
    if method == "notIn":
        return kleene_and(*(compare(value, literal, "notEqual") for literal in literals))
    if method in ("between", "notBetween"):
        inside = kleene_and(compare(value, literals[0], "greaterOrEqual"), compare(value, literals[1], "lessOrEqual"))
        return inside if method == "between" or inside is None else not inside
    return compare(value, literals[0], method)


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "tinyint": (pa.int8(), st.integers(-128, 127), st.integers(-200, 200)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**64), 2**64)),
    "int against fractions": (
        pa.int32(),
        st.integers(-4, 4),
        st.one_of(st.sampled_from([-2.5, 2.0, 2.5, math.inf, -math.inf]), st.decimals(-5, 5, places=2)),
    ),
    "double": (
        pa.float64(),
        st.sampled_from([NAN, math.inf, -math.inf, -0.0, 0.0, 1.5]),
        st.sampled_from([NAN, 0.0, 1.5]),
    ),
    "decimal": (pa.decimal128(5, 2), st.decimals("-999.99", "999.99", places=2), st.decimals(-1500, 1500, places=3)),
    "boolean": (pa.bool_(), st.booleans(), st.booleans()),
    "string": (pa.string(), st.text("aé😀", max_size=2), st.text("aé😀", max_size=2)),
    "binary": (pa.binary(), st.binary(max_size=2), st.binary(max_size=2)),
    "date": (pa.date32(), st.dates(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes(), st.datetimes()),
    "time": (
        pa.time32("ms"),
        st.integers(0, 86_399_999).map(lambda ms: (datetime.min + timedelta(milliseconds=ms)).time()),
        st.integers(0, 86_399_999).map(lambda ms: (datetime.min + timedelta(milliseconds=ms)).time()),
    ),
}
UNARY = ["equal", "notEqual", "lessThan", "lessOrEqual", "greaterThan", "greaterOrEqual"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], Predicate]:
    kind, values, literals = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    column = draw(st.lists(st.one_of(st.none(), values), max_size=6))
    # Literals that are also values make equality likely.
    literal = st.one_of(literals, values, st.none(), *([st.sampled_from(column)] if column else []))
    leaves = st.one_of(
        st.builds(leaf, st.sampled_from(UNARY), literal),
        st.builds(leaf, st.sampled_from(["between", "notBetween"]), literal, literal),
        st.lists(literal, max_size=3).map(lambda many: leaf("in", *many)),
        st.lists(literal, max_size=3).map(lambda many: leaf("notIn", *many)),
        st.sampled_from([leaf("isNull"), leaf("isNotNull")]),
    )
    trees = st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda method, parts: Predicate(method, None, None, parts),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        max_leaves=4,
    )
    return kind, column, draw(trees)


@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_mask_is_the_evaluation_row_by_row(case: tuple[pa.DataType, list[Any], Predicate]) -> None:
    kind, values, predicate = case
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["c"])
    assert mask(predicate, batch).to_pylist() == [row_matches(predicate, value) is True for value in values]


def test_null_never_matches_but_for_is_null() -> None:
    values = [1, None]
    assert kept(leaf("isNull"), values, pa.int32()) == [None]
    assert kept(leaf("notEqual", 2), values, pa.int32()) == [1]
    assert kept(leaf("notIn", 2), values, pa.int32()) == [1]
    assert kept(leaf("notIn"), values, pa.int32()) == [1]
    assert kept(leaf("notIn", 2, None), values, pa.int32()) == []
    assert kept(leaf("in", None), values, pa.int32()) == []
    assert kept(leaf("equal", None), values, pa.int32()) == []
    assert kept(leaf("notBetween", None, 0), values, pa.int32()) == [1]


def test_nan_is_the_greatest_number() -> None:
    values = [1.0, NAN, math.inf]
    assert [str(value) for value in kept(leaf("greaterThan", math.inf), values, pa.float64())] == ["nan"]
    assert [str(value) for value in kept(leaf("equal", NAN), values, pa.float32())] == ["nan"]
    assert kept(leaf("lessThan", NAN), values, pa.float64()) == [1.0, math.inf]
    assert kept(leaf("equal", 0.0), [-0.0], pa.float64()) == [-0.0]


def test_a_float_literal_is_rounded_to_the_field() -> None:
    assert len(kept(leaf("equal", 0.1), [0.1], pa.float32())) == 1
    assert len(kept(leaf("in", 0.1), [0.1], pa.float32())) == 1


def test_a_literal_outside_of_the_type() -> None:
    values = [-128, 127]
    assert kept(leaf("lessThan", 1000), values, pa.int8()) == values
    assert kept(leaf("equal", 1000), values, pa.int8()) == []
    assert kept(leaf("notEqual", 1000), values, pa.int8()) == values
    assert kept(leaf("greaterThan", Decimal("-1e30")), values, pa.int8()) == values
    assert kept(leaf("greaterOrEqual", Decimal("1e30")), [Decimal("9.9")], pa.decimal128(2, 1)) == []


def test_timestamp_literals_are_cut_to_the_precision_of_the_field() -> None:
    second = datetime(1969, 12, 31, 23, 59, 59)
    assert kept(leaf("equal", second.replace(microsecond=999_999)), [second], pa.timestamp("s")) == [second]
    nanos = Timestamp(-1, 999_500)
    last = datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert kept(leaf("lessThan", nanos), [last, datetime(1970, 1, 1)], pa.timestamp("us")) == []
    assert kept(leaf("lessOrEqual", nanos), [last, datetime(1970, 1, 1)], pa.timestamp("us")) == [last]


def test_aware_and_naive_literals() -> None:
    noon = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
    berlin = noon.astimezone(timezone(timedelta(hours=1)))
    for literal in (noon, berlin, noon.replace(tzinfo=None)):
        assert kept(leaf("equal", literal), [noon], pa.timestamp("ms", "UTC")) == [noon]
        assert len(kept(leaf("in", literal), [noon.replace(tzinfo=None)], pa.timestamp("ns"))) == 1
    assert kept(leaf("greaterThan", date(2024, 2, 29)), [noon], pa.timestamp("ms", "UTC")) == [noon]


def test_pandas_and_numpy_literals() -> None:
    import numpy as np
    import pandas as pd

    moment = datetime(2024, 2, 29, 12, 0, 0, 1)
    assert kept(leaf("equal", pd.Timestamp(moment)), [moment], pa.timestamp("us")) == [moment]
    assert kept(leaf("equal", np.datetime64(moment)), [moment], pa.timestamp("us")) == [moment]
    assert kept(leaf("equal", np.int64(3)), [3], pa.int8()) == [3]


def test_dates_and_times() -> None:
    day = date(2024, 2, 29)
    assert kept(leaf("equal", day), [day], pa.date32()) == [day]
    assert kept(leaf("equal", (day - date(1970, 1, 1)).days), [day], pa.date32()) == [day]
    assert kept(leaf("lessThan", datetime(2024, 2, 29, 1)), [day], pa.date32()) == [day]
    assert kept(leaf("equal", datetime(2024, 2, 29, 1)), [day], pa.date32()) == []
    assert kept(leaf("lessThan", time(12)), [time(11, 59), time(12)], pa.time32("ms")) == [time(11, 59)]


@pytest.mark.parametrize(
    ("predicate", "matching"),
    [
        (leaf("startsWith", "a"), ["abc", "a\nc", "a%_"]),
        (leaf("endsWith", "c"), ["abc", "a\nc"]),
        (leaf("contains", "b"), ["abc"]),
        (leaf("like", "a_c"), ["abc", "a\nc"]),
        (leaf("like", "%"), ["abc", "a\nc", "a%_", "", "é.😀"]),
        (leaf("like", r"a\%\_"), ["a%_"]),
        (leaf("like", "_._"), ["é.😀"]),
        (leaf("like", None), []),
        (leaf("notLike", "a%"), ["", "é.😀"]),
        (leaf("notLike", None), []),
    ],
)
def test_patterns(predicate: Predicate, matching: list[str]) -> None:
    assert kept(predicate, ["abc", "a\nc", "a%_", "", "é.😀", None], pa.string()) == matching


def test_fields_of_rows() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"r": {"x": 1}, "r.x": 5}, {"r": None, "r.x": 5}, {"r": {"x": 2}, "r.x": 5}],
        pa.schema([("r", pa.struct([("x", pa.int32())])), ("r.x", pa.int32())]),
    )
    nested = batch.select(["r"])
    assert mask(leaf("equal", 2, field="r.x"), nested).to_pylist() == [False, False, True]
    assert mask(leaf("isNull", field="r.x"), nested).to_pylist() == [False, True, False]
    assert mask(leaf("equal", 5, field="r.x"), batch).to_pylist() == [True, True, True]


@pytest.mark.parametrize(
    "predicate",
    [
        leaf("equal", "one"),
        leaf("equal", True),
        leaf("like", "%"),
        leaf("sounds like", 1),
        leaf("equal", 1, field="absent"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_the_column(predicate: Predicate) -> None:
    with pytest.raises(StreamConfigError, match=re.escape(str(predicate.field))):
        check(predicate, pa.schema([("c", pa.int32())]))


def test_arrays_are_only_tested_for_null() -> None:
    kind = pa.list_(pa.int32())
    assert kept(leaf("isNotNull"), [[1], None], kind) == [[1]]
    with pytest.raises(StreamConfigError, match="only tested for null"):
        kept(leaf("equal", [1]), [[1]], kind)


def test_split_and() -> None:
    key, value, mixed = (
        leaf("equal", 1, field="k"),
        leaf("equal", 2, field="v"),
        either(leaf("equal", 1, field="k"), leaf("equal", 2, field="v")),
    )
    assert split_and(None, ["k"]) == (None, None)
    assert split_and(key, ["k"]) == (key, None)
    assert split_and(value, ["k"]) == (None, value)
    inside, rest = split_and(both(key, both(value, mixed)), ["k"])
    assert inside == key
    assert rest == both(value, mixed)
    assert columns_of(both(key, mixed)) == {"k", "v"}
