"""Merge engine aggregation, every function against a row-by-row model of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from support.models.merging import (
    DELETES,
    Case,
    Function,
    Record,
    Refused,
    aggregate,
    check,
    engine_of,
    java_key,
    merge_columns,
    unless_null,
)
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Value = Any
CONTEXT = Context(prec=100)


def bounded(bits: int) -> Callable[[int], int]:
    def check(number: int) -> int:
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise Refused(number)
        return number

    return check


def sum_of(check: Callable[[Value], Value]) -> Function:
    def retract(there: Value, new: Value) -> Value:
        if there is None:
            return None if new is None else check(-new)
        return there if new is None else check(there - new)

    return Function(unless_null(lambda there, new: check(there + new)), retract)


def product_of(check: Callable[[Value], Value], divide: Callable[[Value, Value], Value]) -> Function:
    def retract(there: Value, new: Value) -> Value:
        return there if there is None or new is None else check(divide(there, new))

    return Function(unless_null(lambda there, new: check(there * new)), retract)


def int_divide(there: int, new: int) -> int:
    if new == 0:
        raise Refused(new)
    return math.trunc(Decimal(there) / Decimal(new)) if abs(there) < 2**60 else there // new


def float_divide(there: Any, new: Any) -> Any:
    with np.errstate(all="ignore"):
        return there / new


def float32(number: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def decimal_of(precision: int, scale: int) -> Callable[[Decimal], Decimal | None]:
    def check(number: Decimal) -> Decimal | None:
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, CONTEXT)
        return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None

    return check


def blank(text: str | None) -> bool:
    return text is None or not text.strip()


def listagg(delimiter: str) -> Function:
    def add(there: str | None, new: str | None) -> str | None:
        if blank(new):
            return there
        return new if blank(there) else f"{there}{delimiter}{new}"

    return Function(add)


def listagg_distinct(there: str | None, new: str | None) -> str | None:
    if blank(new):
        return there
    if there is None or blank(there):
        return new
    for part in str(new).split(","):
        if not blank(part) and part not in there.split(","):
            there += "," + part
    return there


def collect_retract(there: Value, new: Value) -> Value:
    if there is None or not new:
        return there
    new, left = list(new), []
    for item in there:
        if item in new:
            new.remove(item)
        else:
            left.append(item)
    return left


def distinct(there: Value, new: Value) -> Value:
    return None if there is None and new is None else list(dict.fromkeys([*(there or []), *(new or [])]))


def merge_map(there: Value, new: Value) -> Value:
    return list({**dict(there), **dict(new)}.items())


def map_retract(there: Value, new: Value) -> Value:
    return there if there is None or not new else [(key, value) for key, value in there if key not in dict(new)]


def extreme(choose: Callable[..., Value]) -> Function:
    return Function(unless_null(lambda there, new: choose(there, new, key=java_key)))


SMALL = st.none() | st.integers(-4, 4)
LONG = st.none() | st.integers(-(2**62), 2**62) | st.integers(-3, 3)
FLOATS = st.none() | st.floats(width=32) | st.sampled_from([0.0, -0.0, float(np.float32(0.1)), 2.0**-30, 1e10])
TEXTS = st.none() | st.sampled_from(["", " ", "\t", "a", "b", "a,b", "b,,c", "é"])
LISTS = st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3)
MAPS = st.none() | st.dictionaries(st.integers(0, 3), SMALL, max_size=3).map(lambda value: list(value.items()))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal | None]:
    limit = 10**precision - 1
    return st.none() | (st.integers(-3 * 10**scale, 3 * 10**scale) | st.integers(-limit, limit)).map(
        lambda number: Decimal(number).scaleb(-scale, CONTEXT)
    )


def identity(value: Value) -> Value:
    return value


CASES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any], Function, dict[str, str]]] = {
    "sum of tinyint": ("sum", pa.int8(), st.none() | st.integers(-128, 127), sum_of(bounded(8)), {}),
    "sum of int": ("sum", pa.int32(), SMALL, sum_of(bounded(32)), {}),
    "sum of bigint": ("sum", pa.int64(), LONG, sum_of(bounded(64)), {}),
    "sum of float": ("sum", pa.float32(), FLOATS, sum_of(float32), {}),
    "sum of double": ("sum", pa.float64(), FLOATS, sum_of(identity), {}),
    "sum of wide decimal": ("sum", pa.decimal128(20, 2), decimals(20, 2), sum_of(decimal_of(20, 2)), {}),
    "sum of decimal": ("sum", pa.decimal128(10, 2), decimals(8, 2), sum_of(identity), {}),
    "product of smallint": ("product", pa.int16(), SMALL, product_of(bounded(16), int_divide), {}),
    "product of bigint": ("product", pa.int64(), SMALL, product_of(bounded(64), int_divide), {}),
    "product of double": (
        "product",
        pa.float64(),
        FLOATS,
        product_of(identity, lambda a, b: float(float_divide(np.float64(a), b))),
        {},
    ),
    "max of double": ("max", pa.float64(), FLOATS, extreme(max), {}),
    "min of float": ("min", pa.float32(), FLOATS, extreme(min), {}),
    "max of int": ("max", pa.int32(), SMALL, extreme(max), {}),
    "min of wide decimal": ("min", pa.decimal128(30, 2), decimals(30, 2), extreme(min), {}),
    "max of string": ("max", pa.string(), TEXTS, extreme(max), {}),
    "bool_or": ("bool_or", pa.bool_(), st.none() | st.booleans(), extreme(max), {}),
    "bool_and": ("bool_and", pa.bool_(), st.none() | st.booleans(), extreme(min), {}),
    "last_value": ("last_value", pa.int32(), SMALL, Function(lambda _, new: new, lambda *_: None), {}),
    "last_non_null_value": (
        "last_non_null_value",
        pa.int32(),
        SMALL,
        Function(lambda there, new: there if new is None else new, lambda there, new: there if new is None else None),
        {},
    ),
    "listagg": ("listagg", pa.string(), TEXTS, listagg(","), {}),
    "listagg with a delimiter": ("listagg", pa.string(), TEXTS, listagg(" | "), {"list-agg-delimiter": " | "}),
    "listagg distinct": ("listagg", pa.string(), TEXTS, Function(listagg_distinct), {"distinct": "true"}),
    "collect": ("collect", pa.list_(pa.int32()), LISTS, Function(unless_null(lambda a, b: a + b), collect_retract), {}),
    "collect distinct": (
        "collect",
        pa.list_(pa.int32()),
        LISTS,
        Function(distinct, collect_retract),
        {"distinct": "true"},
    ),
    "merge_map": (
        "merge_map",
        pa.map_(pa.int32(), pa.int32()),
        MAPS,
        Function(unless_null(merge_map), map_retract),
        {},
    ),
}


def in_order(value: Any) -> Any:
    """Maps have no order."""
    return sorted(value) if value and isinstance(value, list) and isinstance(value[0], tuple) else value


@pytest.mark.parametrize("case", CASES)
@given(data=st.data(), deletes=DELETES)
@settings(max_examples=examples(40), deadline=None)
def test_function(case: str, deletes: str, data: st.DataObject) -> None:
    check(Case(*CASES[case]), deletes, data, in_order)


def test_first_values() -> None:
    assert aggregate("first_value", pa.int32(), [None, 1, 2]) is None
    assert aggregate("first_value", pa.int32(), [3, 1, 2]) == 3
    assert aggregate("first_non_null_value", pa.int32(), [None, 1, 2]) == 1
    assert aggregate("first_not_null_value", pa.int32(), [None, None]) is None


@pytest.mark.parametrize("function", ["first_value", "first_non_null_value"])
@given(records=st.lists(st.tuples(st.sampled_from([0, 2, 3]), st.none() | st.integers(0, 5)), min_size=2, max_size=6))
def test_a_delete_that_removes_the_row_leaves_first_values_given(
    function: str, records: list[tuple[int, int | None]]
) -> None:
    """Java's functions are not set back: behind it they keep what the delete holds, unless nothing came before it."""
    kept, is_given = None, False
    for kind, value in records:
        if kind == 3:
            kept = value
        elif not is_given and (function == "first_value" or value is not None):
            kept, is_given = value, True
    engine = engine_of(function, pa.int32(), {}, removes=True)
    run = [Record(kind, number, {"k": 1, "v": value}) for number, (kind, value) in enumerate(records)]
    found = merge_columns([run], {"k": pa.int32(), "v": pa.int32()}, engine, [[]], keep_deletes=True)
    assert found == [("-D" if records[-1][0] == 3 else "+I", {"k": 1, "v": kept})]


def test_a_retraction_takes_as_many_elements_as_it_holds() -> None:
    lists = pa.list_(pa.int32())
    assert aggregate("collect", lists, [[1, 2, 1], [1, 3], None, []], [0, 3, 3, 3]) == [2, 1]
    assert aggregate("collect", lists, [[1, 2], [1, 3], [2]], [0, 0, 3], distinct="true") == [1, 3]


def test_decimals_of_18_digits_may_outgrow_their_precision_as_in_java() -> None:
    nines = Decimal("99.99")
    assert aggregate("sum", pa.decimal128(4, 2), [nines, nines]) == Decimal("199.98")
    widest = Decimal(10**18 - 1)
    assert aggregate("sum", pa.decimal128(18, 0), [widest] * 10) is None
    assert aggregate("sum", pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)]) is None


def test_products_of_decimals_are_rounded_half_up() -> None:
    values = [Decimal("1.05"), Decimal("-0.10")]
    assert aggregate("product", pa.decimal128(6, 2), values) == Decimal("-0.11")
    assert aggregate("product", pa.decimal128(4, 2), [Decimal("99.00"), Decimal("99.00")]) is None
    assert aggregate("product", pa.decimal128(4, 2), [Decimal("9.00"), Decimal("2.00")], [0, 1]) == Decimal("4.50")
    with pytest.raises(UnsupportedTableError, match="exact"):
        aggregate("product", pa.decimal128(4, 2), [Decimal("1.00"), Decimal("3.00")], [0, 1])


def test_an_overflow_on_the_way_is_an_error() -> None:
    with pytest.raises(UnsupportedTableError, match="sum of field 'v' overflows"):
        aggregate("sum", pa.int32(), [2**31 - 1, 1, -5])
    with pytest.raises(UnsupportedTableError, match="product of field 'v' overflows"):
        aggregate("product", pa.int64(), [2**62, 2])


ITEMS = pa.list_(pa.struct([("id", pa.int32()), ("seq", pa.int32()), ("v", pa.string())]))


def item(number: int | None, seq: int | None, value: str | None) -> dict[str, Any]:
    return {"id": number, "seq": seq, "v": value}


def test_nested_update() -> None:
    a, b, newer = item(1, 1, "a"), item(2, 1, "b"), item(1, 0, "newer")
    assert aggregate("nested_update", ITEMS, [[a], None, [b, a]]) == [a, b, a]
    assert aggregate("nested_update", ITEMS, [[a], [b, a]], count_limit="2") == [a, b]
    assert aggregate("nested_update", ITEMS, [[a, b], [newer]], nested_key="id") == [newer, b]
    assert aggregate("nested_update", ITEMS, [[a, b], [newer]], nested_key="id", nested_sequence_field="seq") == [a, b]
    assert aggregate("nested_update", ITEMS, [[a, b], [newer]], [0, 1], nested_key="id") == [b]
    assert aggregate("nested_update", ITEMS, [[a, b, a], [a]], [0, 3]) == [b]
    no_key = item(None, 1, "none")
    strategy = {"nested_key": "id", "nested_key_null_strategy": "ignore"}
    assert aggregate("nested_update", ITEMS, [[a], [no_key]], **strategy) == [a]
    with pytest.raises(StreamConfigError, match="nested-key-null-strategy"):
        aggregate("nested_update", ITEMS, [[a], [no_key]], **(strategy | {"nested_key_null_strategy": "error"}))


def test_nested_partial_update() -> None:
    values = [[item(1, 1, None)], [item(1, None, "a"), item(2, None, None)]]
    assert aggregate("nested_partial_update", ITEMS, values, nested_key="id") == [item(1, 1, "a"), item(2, None, None)]


def test_merge_map_with_keytime() -> None:
    kind = pa.map_(pa.int32(), pa.struct([("v", pa.int32()), ("ts", pa.string())]))

    def at(value: int, ts: str | None) -> dict[str, Any]:
        return {"v": value, "ts": ts}

    values = [[(1, at(1, "b")), (2, at(2, "b")), (3, at(3, None))], [(1, at(9, "a")), (2, at(9, "c")), (3, at(9, "a"))]]
    assert aggregate("merge_map_with_keytime", kind, values) == [(1, at(1, "b")), (2, at(9, "c")), (3, at(9, "a"))]
    assert aggregate("merge_map_with_keytime", kind, [[(1, at(1, "b"))], [(1, None)]]) == []


def test_roaring_bitmaps_are_united() -> None:
    from pyroaring import BitMap

    united = aggregate("rbm32", pa.binary(), [BitMap([1, 5]).serialize(), None, BitMap([5, 70_000]).serialize()])
    assert BitMap.deserialize(united) == BitMap([1, 5, 70_000])


@pytest.mark.parametrize("function", ["max", "first_value", "listagg", "sum_of_squares"])
def test_what_is_not_supported_is_refused_by_its_name(function: str) -> None:
    with pytest.raises(UnsupportedTableError, match=f"'{function}' of field 'v'"):
        aggregate(function, pa.string(), ["a", "b"], [0, 3])
