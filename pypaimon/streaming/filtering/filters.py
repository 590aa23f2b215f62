"""Evaluates pypaimon's predicates on Arrow batches, and splits them by columns.

SQL's logic: null matches `is null` only. NaN equals itself and is greater than any other number, as in Java;
-0.0 equals 0.0. A literal is compared exactly, even if the column's type cannot hold it (`i < 2.5`), with two
exceptions that follow Java: a timestamp is first cut to the precision of the field, a number compared with a FLOAT or
DOUBLE is first rounded to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import ROUND_FLOOR, Context, Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.paimon.internals import Timestamp

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

_EPOCH = datetime(1970, 1, 1)
_WIDE = Context(prec=200)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def columns_of(predicate: Predicate) -> set[str]:
    if predicate.method in ("and", "or"):
        return set().union(*(columns_of(part) for part in predicate.literals or []))
    return {str(predicate.field)}


def compares(predicate: Predicate, column: str) -> bool:
    """Whether a predicate tests a column for anything but null."""
    if predicate.method in ("and", "or"):
        return any(compares(part, column) for part in predicate.literals or [])
    return predicate.field == column and predicate.method not in ("isNull", "isNotNull")


def and_parts(predicate: Predicate) -> Iterator[Predicate]:
    """The parts that must all hold."""
    if predicate.method == "and":
        for part in predicate.literals or []:
            yield from and_parts(part)
    else:
        yield predicate


def conjunction(parts: Sequence[Predicate]) -> Predicate | None:
    """Combine parts with AND; None if there are no parts."""
    if len(parts) < 2:
        return parts[0] if parts else None
    from pypaimon.streaming.paimon.filter_internals import Predicate

    return Predicate("and", None, None, list(parts))


def split_and(predicate: Predicate | None, columns: Sequence[str]) -> tuple[Predicate | None, Predicate | None]:
    """Split a filter into the AND-parts on some columns only, and the rest. Returns a filter on these columns only, and
    the rest; None for an empty one. A row matches if it matches both.
    """
    inside: list[Predicate] = []
    rest: list[Predicate] = []
    for part in and_parts(predicate) if predicate is not None else ():
        (inside if columns_of(part) <= set(columns) else rest).append(part)
    return conjunction(inside), conjunction(rest)


def renamed(predicate: Predicate, name: Callable[[str], str]) -> Predicate:
    if predicate.method in ("and", "or"):
        return replace(predicate, literals=[renamed(part, name) for part in predicate.literals or []])
    return replace(predicate, field=name(str(predicate.field)))


def mask(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows match: True or False for every row, never null. Columns are found by name, fields of rows by
    `row.field`. Raises StreamConfigError if a column is missing, a literal does not fit it, or an operator is unknown.
    """
    if predicate.method in ("and", "or"):
        combine = pc.and_ if predicate.method == "and" else pc.or_
        start = pa.repeat(predicate.method == "and", batch.num_rows)
        return reduce(combine, (mask(part, batch) for part in predicate.literals or []), start)
    column = _column(batch, str(predicate.field))
    if predicate.method == "isNull":
        return pc.is_null(column)
    if predicate.method == "isNotNull":
        return pc.is_valid(column)
    test = _TESTS.get(predicate.method)
    if test is None:
        raise StreamConfigError(f"unknown operator {predicate.method!r} in a filter on {predicate.field}")
    try:
        return pc.fill_null(test(column, list(predicate.literals or [])), False)
    except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
        raise StreamConfigError(
            f"filter {predicate.method} on {predicate.field} ({column.type}) with {predicate.literals!r}: {error}"
        ) from error


def check(predicate: Predicate, schema: pa.Schema) -> None:
    """Check that a filter can be applied to rows of a schema; raises StreamConfigError if not."""
    mask(predicate, pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    head, _, tail = name.partition(".")
    if tail and head in batch.schema.names and pa.types.is_struct(batch.column(head).type):
        struct = batch.column(head)
        inner = pa.RecordBatch.from_arrays(struct.flatten(), names=[field.name for field in struct.type])
        return _column(inner, tail)
    raise StreamConfigError(f"the filter names {name!r}, which does not exist; columns are {batch.schema.names}")


# Every comparison is made of two: whether a value is less than a literal, and whether it equals it.


class Bound:
    """A literal, placed among the values that a column can hold."""

    __slots__ = ("above", "exact", "scalar")

    def __init__(self, scalar: pa.Scalar | None, exact: bool = True, above: bool = False) -> None:
        # The greatest value of the column's type up to the literal; None if the literal is less than all values, or
        # greater
        self.scalar = scalar
        self.exact = exact  # Whether `scalar` is the literal itself
        self.above = above  # Whether a literal without `scalar` is greater than all values


def _none(column: pa.Array) -> pa.Array:
    return pa.repeat(False, len(column))


def _equal(column: pa.Array, literal: Any) -> pa.Array:
    bound = bound_of(literal, column.type)
    if bound is None or bound.scalar is None or not bound.exact:
        return _none(column)
    if pa.types.is_floating(column.type) and bound.scalar.as_py() != bound.scalar.as_py():
        return pc.is_nan(column)
    return pc.equal(column, bound.scalar)


def _same_bits(column: pa.Array, literal: Any) -> pa.Array:
    bits = float_bits(column)
    return pc.equal(bits, float_bits(pa.array([literal], column.type))[0])


def float_bits(column: pa.Array) -> pa.Array:
    """Floats as their bits, in which the two zeros differ; other columns unchanged."""
    if pa.types.is_floating(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column


def _below(column: pa.Array, literal: Any, inclusive: bool) -> pa.Array:
    """Whether values are less than a literal, or equal to it if `inclusive`; null for null."""
    bound = bound_of(literal, column.type)
    if bound is None:
        return pa.nulls(len(column), pa.bool_())
    if bound.scalar is None:
        constant = pa.repeat(bound.above, len(column))
        return pc.if_else(pc.is_valid(column), constant, pa.scalar(None, pa.bool_()))
    inclusive = inclusive or not bound.exact
    if pa.types.is_floating(column.type):
        return _float_below(column, bound.scalar, inclusive)
    if pa.types.is_boolean(column.type):
        column, bound = column.cast(pa.int8()), Bound(bound.scalar.cast(pa.int8()))
    return (pc.less_equal if inclusive else pc.less)(column, bound.scalar)


def _float_below(column: pa.Array, scalar: pa.Scalar, inclusive: bool) -> pa.Array:
    if scalar.as_py() != scalar.as_py():
        return pc.or_(pc.is_nan(column), pc.is_valid(column)) if inclusive else pc.invert(pc.is_nan(column))
    return (pc.less_equal if inclusive else pc.less)(column, scalar)


def _not_equal(column: pa.Array, literal: Any) -> pa.Array:
    if literal is None:
        return _none(column)
    return pc.and_(pc.is_valid(column), pc.invert(pc.fill_null(_equal(column, literal), False)))


def _in(column: pa.Array, literals: list[Any]) -> pa.Array:
    if pa.types.is_floating(column.type):
        return reduce(pc.or_, (pc.fill_null(_equal(column, literal), False) for literal in literals), _none(column))
    bounds = (bound_of(literal, column.type) for literal in literals)
    values = [bound.scalar for bound in bounds if bound is not None and bound.scalar is not None and bound.exact]
    return pc.is_in(column, value_set=pa.array(values, column.type))


def _not_in(column: pa.Array, literals: list[Any]) -> pa.Array:
    if any(literal is None for literal in literals):
        return _none(column)
    return pc.and_(pc.is_valid(column), pc.invert(pc.fill_null(_in(column, literals), False)))


def _between(column: pa.Array, low: Any, high: Any) -> pa.Array:
    return pc.and_kleene(pc.invert(_below(column, low, False)), _below(column, high, True))


def _like(column: pa.Array, pattern: str) -> pa.Array:
    return pc.match_substring_regex(_text(column), r"(?s)\A" + _like_regex(pattern) + r"\z")


def _like_regex(pattern: str) -> str:
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, "")
            if escaped not in ("_", "%", "\\"):
                raise ValueError(f"'\\' must be followed by '_', '%' or '\\' in the pattern {pattern!r}")
            parts.append(re.escape(escaped))
        else:
            parts.append({"_": ".", "%": ".*"}.get(letter) or re.escape(letter))
    return "".join(parts)


def _text(column: pa.Array) -> pa.Array:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or _is_binary(column.type)):
        raise TypeError("only texts can be matched with a pattern")
    return column


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _pattern(function: Callable[..., pa.Array]) -> Callable[[pa.Array, list[Any]], pa.Array]:
    return lambda column, literals: _none(column) if literals[0] is None else function(_text(column), literals[0])


_TESTS: dict[str, Callable[[pa.Array, list[Any]], pa.Array]] = {
    "equal": lambda column, literals: _equal(column, literals[0]),
    # For partitions only: Java has different ones for 0.0 and -0.0.
    "sameBits": lambda column, literals: _same_bits(column, literals[0]),
    "notEqual": lambda column, literals: _not_equal(column, literals[0]),
    "lessThan": lambda column, literals: _below(column, literals[0], False),
    "lessOrEqual": lambda column, literals: _below(column, literals[0], True),
    "greaterThan": lambda column, literals: pc.invert(_below(column, literals[0], True)),
    "greaterOrEqual": lambda column, literals: pc.invert(_below(column, literals[0], False)),
    "in": _in,
    "notIn": _not_in,
    "between": lambda column, literals: _between(column, literals[0], literals[1]),
    "notBetween": lambda column, literals: pc.invert(_between(column, literals[0], literals[1])),
    "startsWith": _pattern(lambda column, text: pc.starts_with(column, text)),
    "endsWith": _pattern(lambda column, text: pc.ends_with(column, text)),
    "contains": _pattern(lambda column, text: pc.match_substring(column, text)),
    "like": _pattern(_like),
    "notLike": _pattern(lambda column, text: pc.invert(_like(column, text))),
}


def bound_of(literal: Any, kind: pa.DataType) -> Bound | None:
    """The `Bound` of a literal; None for the literal null."""
    if literal is None:
        return None
    if pa.types.is_boolean(kind):
        return Bound(pa.scalar(_expect(literal, bool), kind))
    if pa.types.is_integer(kind):
        return _integer_bound(_number(literal), kind)
    if pa.types.is_floating(kind):
        return Bound(pa.scalar(float(_expect(literal, int, float, Decimal)), pa.float64()).cast(kind, safe=False))
    if pa.types.is_decimal(kind):
        return _decimal_bound(_number(literal), kind)
    if pa.types.is_date(kind):
        return _date_bound(literal, kind)
    if pa.types.is_timestamp(kind):
        return _ticks_bound(_nanos(literal) * _PER_SECOND[kind.unit] // 10**9, kind)
    if pa.types.is_time(kind):
        return Bound(pa.scalar(_millis_of_day(literal), pa.int32()).cast(kind))
    if _is_binary(kind):
        return Bound(pa.scalar(bytes(_expect(literal, bytes, bytearray, memoryview)), kind))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Bound(pa.scalar(_expect(literal, str), kind))
    raise TypeError("values of this type cannot be compared, only tested for null")


def _expect(literal: Any, *kinds: type) -> Any:
    item = getattr(literal, "item", None)
    value = item() if callable(item) else literal  # NumPy's numbers
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"expected {expected}, got {literal!r} ({type(literal).__name__})")
    return value


def _number(literal: Any) -> Decimal:
    return Decimal(_expect(literal, int, float, Decimal))


def _integer_bound(number: Decimal, kind: pa.DataType) -> Bound:
    highest = (1 << (kind.bit_width - 1)) - 1
    return _grid_bound(number, 0, Decimal(highest), Decimal(-highest - 1), kind)


def _decimal_bound(number: Decimal, kind: pa.DataType) -> Bound:
    highest = Decimal((0, (9,) * kind.precision, -kind.scale))
    return _grid_bound(number, kind.scale, highest, -highest, kind)


def _grid_bound(number: Decimal, scale: int, highest: Decimal, lowest: Decimal, kind: pa.DataType) -> Bound:
    if number.is_nan() or number > highest:
        return Bound(None, above=True)
    if number < lowest:
        return Bound(None, above=False)
    floor = number.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _WIDE)
    if floor < lowest:
        return Bound(None, above=False)
    return Bound(pa.scalar(floor if scale or pa.types.is_decimal(kind) else int(floor), kind), floor == number)


def _date_bound(literal: Any, kind: pa.DataType) -> Bound:
    if isinstance(literal, int) and not isinstance(literal, bool):
        return Bound(pa.scalar(literal, pa.int32()).cast(kind))
    day = _nanos(literal) // (86_400 * 10**9)
    return Bound(pa.scalar(day, pa.int32()).cast(kind), _nanos(literal) % (86_400 * 10**9) == 0)


def _ticks_bound(ticks: int, kind: pa.DataType) -> Bound:
    if not -(1 << 63) <= ticks < 1 << 63:
        return Bound(None, above=ticks > 0)
    return Bound(pa.scalar(ticks, pa.int64()).cast(kind))


def _nanos(literal: Any) -> int:
    """Nanoseconds since the epoch; aware times in UTC, others as they are."""
    if isinstance(literal, Timestamp):
        return int(literal.get_millisecond()) * 10**6 + int(literal.get_nano_of_millisecond())
    if hasattr(literal, "to_datetime64"):
        return int(literal.value) if getattr(literal, "unit", "ns") == "ns" else int(literal.as_unit("ns").value)
    if isinstance(literal, datetime):
        naive = literal.astimezone(timezone.utc).replace(tzinfo=None) if literal.tzinfo else literal
        since = naive - _EPOCH
        return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    if isinstance(literal, date):
        return (literal - _EPOCH.date()).days * 86_400 * 10**9
    if type(literal).__name__ == "datetime64":
        return int(pa.scalar(literal.astype("datetime64[ns]")).value)
    raise TypeError(f"expected datetime, got {literal!r} ({type(literal).__name__})")


def _millis_of_day(literal: Any) -> int:
    if isinstance(literal, time):
        return ((literal.hour * 60 + literal.minute) * 60 + literal.second) * 1000 + literal.microsecond // 1000
    return int(_expect(literal, int))
