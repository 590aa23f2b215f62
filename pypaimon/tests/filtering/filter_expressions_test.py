"""Filters as expressions of pyarrow, compared with what pyarrow itself makes of them."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming import StreamConfigError, stream_read_builder
from pypaimon.streaming.filtering.filter_expressions import parse_expression
from pypaimon.streaming.filtering.filters import mask
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.paimon.internals import AtomicType, DataField, RowType
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.testing import SmallTable
from support.samples import examples

pytestmark = pytest.mark.slow

FIELDS = [
    DataField(0, "id", AtomicType("BIGINT")),
    DataField(1, "name", AtomicType("STRING")),
    DataField(2, "day", AtomicType("DATE")),
    DataField(3, "zoned", AtomicType("TIMESTAMP_LTZ(3)")),
    DataField(4, "price", AtomicType("DECIMAL(9, 2)")),
    DataField(5, "ok", AtomicType("BOOLEAN")),
    DataField(6, "inner", RowType(True, [DataField(7, "x", AtomicType("INT"))])),
    DataField(8, "v", AtomicType("DOUBLE")),
    DataField(9, "a.b", AtomicType("INT")),
    DataField(10, "data", AtomicType("BYTES")),
]
C = pc.field


def said(expression: pc.Expression) -> Any:
    """The filter as nested tuples."""

    def shown(predicate: Any) -> Any:
        if predicate.method in ("and", "or"):
            return (predicate.method, *(shown(part) for part in predicate.literals))
        return (predicate.method, predicate.field, *(predicate.literals or ()))

    return shown(parse_expression(expression, FIELDS))


NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("expression", "meaning"),
    [
        (C("id") == 3, ("equal", "id", 3)),
        (pc.scalar(3) < C("id"), ("greaterThan", "id", 3)),
        (~(C("id") >= 3), ("lessThan", "id", 3)),
        (C("id") > 2.5, ("greaterThan", "id", 2.5)),
        (C("name") != "it's \n \0 é", ("notEqual", "name", "it's \n \0 é")),
        (C("day") <= date(2026, 11, 21), ("lessOrEqual", "day", date(2026, 11, 21))),
        (C("zoned") == NOON, ("equal", "zoned", NOON)),
        (C("price") < Decimal("1.50"), ("lessThan", "price", Decimal("1.50"))),
        (C("data") == b"\xff", ("equal", "data", b"\xff")),
        (C("ok"), ("equal", "ok", True)),
        (~C("ok"), ("equal", "ok", False)),
        (C("inner", "x") == 1, ("equal", "inner.x", 1)),
        (C("a.b") == 1, ("equal", "a.b", 1)),
        (C("id").isin([1, 2]), ("in", "id", 1, 2)),
        (C("id").isin([1, None]), ("or", ("in", "id", 1), ("isNull", "id"))),
        (~C("id").isin([1, None]), ("notIn", "id", 1)),
        (~C("name").isin(["a"]), ("or", ("notIn", "name", "a"), ("isNull", "name"))),
        (pc.is_in(C("id"), pa.array([1, None]), skip_nulls=True), ("in", "id", 1)),
        (C("id").isin([]), ("in", "id")),
        (C("name").is_null(), ("isNull", "name")),
        (~C("name").is_null(), ("isNotNull", "name")),
        (C("name").is_valid(), ("isNotNull", "name")),
        (C("id").is_null(nan_is_null=True), ("isNull", "id")),
        (pc.starts_with(C("name"), "a_"), ("startsWith", "name", "a_")),
        (~pc.starts_with(C("name"), "a_"), ("notLike", "name", r"a\_%")),
        (pc.ends_with(C("name"), "b"), ("endsWith", "name", "b")),
        (~pc.match_substring(C("name"), "b%"), ("notLike", "name", r"%b\%%")),
        (pc.match_like(C("name"), "a_%"), ("like", "name", "a_%")),
        (~pc.match_like(C("name"), "a_%"), ("notLike", "name", "a_%")),
        (
            (C("id") == 1) | (C("id") == 2) & ~(C("ok") & (C("v") < 1)),
            (
                "or",
                ("equal", "id", 1),
                ("and", ("equal", "id", 2), ("or", ("equal", "ok", False), ("greaterOrEqual", "v", 1))),
            ),
        ),
    ],
)
def test_what_an_expression_says(expression: pc.Expression, meaning: Any) -> None:
    assert said(expression) == meaning


def test_long_expressions_are_read_whole() -> None:
    """The text of an expression leaves out what is in the middle of a long list, and a chain nests deeply."""
    values = list(range(10_000))
    assert said(C("id").isin(values)) == ("in", "id", *values)
    chain = said(reduce(operator.or_, (C("id") == value for value in range(500))))
    assert chain == ("or", *(("equal", "id", value) for value in range(500)))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (C("missing") == 3, "there is no column 'missing'; columns: id, name"),
        (C("inner.x") == 3, r"there is no column 'inner.x'.*pc.field\('row', 'f'\)"),
        (C(0) == 3, "Name the columns"),
        (C("id") == C("a.b"), "with a value only"),
        (C("id") + 1 == 3, "add.* cannot be compared; compare a column"),
        (C("id").cast("int32") == 3, "cast cannot be compared; compare the column without cast"),
        (pc.utf8_lower(C("name")) == "a", "utf8_lower cannot be compared"),
        (C("id") == None, "write is_null"),  # noqa: E711 - makes an expression
        (pc.scalar(True), "not a condition on a column"),
        (pc.and_(C("ok"), C("ok")), "and_ cannot be used; write &"),
        (pc.xor(C("ok"), C("ok")), "xor cannot be used; a filter has ==, "),
        (pc.match_substring_regex(C("name"), "a"), "use pc.match_like"),
        (pc.starts_with(C("name"), "a", ignore_case=True), "ignore_case cannot be used"),
        (pc.starts_with(C("data"), "a"), "starts_with is for text, and data is BYTES"),
        (pc.match_like(C("name"), "\\a"), "must be followed by"),
        (C("name") == 3, "no kernel|match"),
        (C("id"), "id"),
        (C("zoned") == datetime(2026, 11, 21), "zone"),
        (C("inner") == 3, "inner"),
    ],
)
def test_what_cannot_be_translated_exactly_is_refused(expression: pc.Expression, message: str) -> None:
    with pytest.raises(StreamConfigError, match=message):
        parse_expression(expression, FIELDS)


ROWS = pa.Table.from_pylist(
    [
        {"id": number, "name": name, "ok": ok, "price": price, "inner": inner}
        for number, name, ok, price, inner in zip(
            [None, -1, 0, 1, 2**62, 1, 2, None],
            ["a", None, "", "ab", "a%b", "a_\nb", "é😀", None],
            [True, None, False, True, False, None, True, None],
            [None, *map(Decimal, ("-1.00", "0.00", "1.25", "9999999.99", "2.50", "1.25")), None],
            [None, {"x": None}, *({"x": value} for value in (0, 1, 2, 3, 4, 5))],
            strict=True,
        )
    ],
    arrow_schema([field for field in FIELDS if field.name in ("id", "name", "ok", "price", "inner")]),
)
COMPARE: list[Callable[[Any, Any], Any]] = [
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
VALUES: dict[tuple[str, ...], st.SearchStrategy[Any]] = {
    ("id",): st.sampled_from([-1, 0, 1, 2, 2**62]),
    ("name",): st.sampled_from(["", "a", "ab", "a%b", "é😀"]),
    ("price",): st.sampled_from([Decimal("0.00"), Decimal("1.25"), Decimal("2.50")]),
    ("ok",): st.booleans(),
    ("inner", "x"): st.integers(-1, 6),
}
PATTERNS = [pc.starts_with, pc.ends_with, pc.match_substring, pc.match_like]


@st.composite
def leaves(draw: Any) -> pc.Expression:
    names = draw(st.sampled_from(list(VALUES)))
    column, values = C(*names), VALUES[names]
    choices: list[st.SearchStrategy[pc.Expression]] = [
        st.sampled_from([column.is_null(), column.is_valid()]),
        st.builds(lambda compare, value: compare(column, pc.scalar(value)), st.sampled_from(COMPARE), values),
    ]
    if names in (("id",), ("name",)):
        wanted = pa.array(draw(st.lists(st.one_of(st.none(), values), max_size=3)), ROWS.schema.field(names[0]).type)
        choices.append(st.just(pc.is_in(column, wanted, skip_nulls=draw(st.booleans()))))
    if names == ("ok",):
        choices.append(st.just(column))
    if names == ("name",):
        choices.append(
            st.builds(
                lambda function, pattern: function(column, pattern),
                st.sampled_from(PATTERNS),
                st.sampled_from(["", "a", "b", "%", "_", "a_", "%b", "a%b", "a\\%b", "é_"]).filter(bool),
            )
        )
    return draw(st.one_of(choices))


EXPRESSIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(operator.invert),
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(expression=EXPRESSIONS)
def test_a_filter_keeps_the_rows_that_pyarrow_keeps(expression: pc.Expression) -> None:
    (batch,) = ROWS.to_batches()
    ours = batch.filter(mask(parse_expression(expression, FIELDS), batch))
    assert ours.to_pylist() == ROWS.filter(expression).to_pylist(), str(expression)


def test_a_stream_with_an_expression(tmp_path: Path) -> None:
    small = SmallTable(tmp_path, keys=["id"])
    small.commit(*({"id": number, "name": name} for number, name in enumerate(["a", "ab", None, "b"])))
    builder = stream_read_builder(small.table).with_end("latest")
    builder.with_filter((C("id") > 0) & ~pc.starts_with(C("name"), "a"))
    assert "starts_with" in builder._repr_html_()
    assert builder.open_sync().to_arrow()["id"].to_pylist() == [3]
    assert pickle.loads(pickle.dumps(resolved(builder))).filter == resolved(builder).filter
    with pytest.raises(StreamConfigError, match="there is no column 'nme'"):
        builder.with_filter(C("nme") == "a")
