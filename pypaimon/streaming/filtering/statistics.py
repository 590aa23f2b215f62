"""Evaluates predicates on bounds and null counts of files: `False` only if no row can match."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.filters import mask
from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.model.data_types import INTEGER_BITS, root
from pypaimon.streaming.paimon.internals import AtomicType, DataField, DataType, PyarrowFieldParser

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

Mask = npt.NDArray[np.bool_]

# Formats pad, trim or compare these differently, so only their null counts are used.
_UNORDERED = frozenset({"CHAR", "BINARY", "VARBINARY", "BLOB", "VARIANT"})
_MAX_VARCHAR = 2**31 - 1
_FLOATS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column over many files (or manifests, or partitions), one entry each."""

    minimum: pa.Array | None  # Lower bounds, null if unknown; None: all are unknown
    maximum: pa.Array | None  # Upper bounds, as `minimum`
    nulls: pa.Array  # Numbers of nulls, int64, null if unknown
    rows: pa.Array  # Numbers of rows, int64


def evaluate(predicate: Predicate, length: int, leaf: Callable[[Predicate], Mask | bool]) -> Mask:
    """Where `predicate`, of `and`, `or` and leaves, may hold, given where each of its leaves may hold."""
    if predicate.method not in ("and", "or"):
        return np.broadcast_to(np.asarray(leaf(predicate), dtype=bool), length)
    combine = np.logical_and if predicate.method == "and" else np.logical_or
    result = np.full(length, predicate.method == "and")
    for child in predicate.literals or ():
        result = combine(result, evaluate(child, length, leaf))
    return result


def may_hold(leaf: Predicate, stats: ColumnStats, data_type: DataType) -> Mask:
    """Where a leaf may hold for at least one row.

    Only `isNull` matches null. Missing statistics, and literals that are not of the column's type, keep the file.
    """
    all_null = _mask(pc.equal(stats.nulls, stats.rows), unknown=False)
    if leaf.method == "isNull":
        return _mask(pc.not_equal(stats.nulls, 0), unknown=True)
    if leaf.method == "isNotNull" or stats.minimum is None or stats.maximum is None:
        return ~all_null
    literals = [literal(value, data_type) for value in leaf.literals or () if value is not None]
    if leaf.method not in _TESTS or any(each is None for each in literals):
        return ~all_null
    try:
        between = _TESTS[leaf.method](stats.minimum, stats.maximum, [each for each in literals if each is not None])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, IndexError):
        return ~all_null  # no common type (a timestamp beyond nanoseconds), or a null where one literal must be
    # By Arrow's three-valued logic a result is null if an unknown bound leaves it open. The file is kept then.
    return _mask(between, unknown=True) & ~all_null


def literal(value: Any, data_type: DataType) -> pa.Scalar | None:
    """The literal as a scalar that compares exactly with a column of `data_type`; None: it is of another type.

    Timestamps and times are cut to the unit of the column, as `filters` does.
    """
    kind = root(data_type)
    if isinstance(value, bool) or kind == "BOOLEAN":
        return pa.scalar(value) if isinstance(value, bool) and kind == "BOOLEAN" else None
    if kind in INTEGER_BITS:
        return pa.scalar(value) if isinstance(value, int) and -(2**63) <= value < 2**63 else None
    if kind in _FLOATS:
        # A double holds every integer up to 2^53.
        number = value if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**53) else math.nan
        return None if math.isnan(number) else pa.scalar(float(number))
    if kind == "DECIMAL":
        return pa.scalar(Decimal(value)) if isinstance(value, (int, Decimal)) else None
    if kind == "VARCHAR":
        return pa.scalar(value) if isinstance(value, str) else None
    if kind == "DATE":
        return pa.scalar(value) if isinstance(value, date) and not isinstance(value, datetime) else None
    if kind == "TIME" and isinstance(value, time):
        return pa.scalar(value.replace(microsecond=value.microsecond // 1000 * 1000), pa.time32("ms"))
    if kind.startswith("TIMESTAMP") and type(value) is datetime:  # those of pandas have nanoseconds
        return _timestamp(value, data_type, local=kind != "TIMESTAMP")
    return None


def _timestamp(value: datetime, data_type: DataType, local: bool) -> pa.Scalar | None:
    if value.tzinfo is not None:
        if not local:
            return None
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    precision = _parameters(data_type, (6,))[0]
    unit = 1 if precision > 3 else 1_000 if precision > 0 else 1_000_000  # that of Arrow's type, as `filters` cuts
    cut = value.replace(microsecond=value.microsecond // unit * unit)
    return pa.scalar(cut, pa.timestamp("us", "UTC" if local else None))


def _mask(array: pa.Array, unknown: bool) -> Mask:
    result: Mask = np.asarray(pc.fill_null(array, unknown), dtype=bool)
    return result


# ---------------------------------------------------------------------------------------------- leaves against bounds

_Bounds = Callable[[pa.Array, pa.Array, Sequence[pa.Scalar]], pa.Array]


def _covers(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return pc.and_kleene(pc.less_equal(low, value), pc.greater_equal(high, value))


def _differs(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    # All values equal this one only if both bounds do.
    return pc.or_kleene(pc.not_equal(low, value), pc.not_equal(high, value))


def _any(low: pa.Array, high: pa.Array, values: Sequence[pa.Scalar]) -> pa.Array:
    result = pa.array(np.zeros(len(low), dtype=bool))
    for value in values:
        result = pc.or_kleene(result, _covers(low, high, value))
    return result


def _none(low: pa.Array, high: pa.Array, values: Sequence[pa.Scalar]) -> pa.Array:
    result = pa.array(np.ones(len(low), dtype=bool))
    for value in values:
        result = pc.and_kleene(result, _differs(low, high, value))
    return result


def _prefix(low: pa.Array, high: pa.Array, prefix: str) -> pa.Array:
    # Texts with the prefix sort from the prefix itself up to the last text that starts with it.
    begins = pc.or_kleene(pc.less_equal(low, prefix), pc.starts_with(low, prefix))
    return pc.and_kleene(begins, pc.greater_equal(high, prefix))


def _above(high: pa.Array, test: pa.Array) -> pa.Array:
    """Floats may have NaN, the greatest value in Java, which statistics made by Arrow leave out."""
    return pa.array(np.ones(len(high), dtype=bool)) if pa.types.is_floating(high.type) else test


_TESTS: Mapping[str, _Bounds] = {
    "equal": lambda low, high, values: _covers(low, high, values[0]),
    "notEqual": lambda low, high, values: _differs(low, high, values[0]),
    "lessThan": lambda low, high, values: pc.less(low, values[0]),
    "lessOrEqual": lambda low, high, values: pc.less_equal(low, values[0]),
    "greaterThan": lambda low, high, values: _above(high, pc.greater(high, values[0])),
    "greaterOrEqual": lambda low, high, values: _above(high, pc.greater_equal(high, values[0])),
    "in": _any,
    "notIn": _none,
    "between": lambda low, high, values: pc.and_kleene(
        pc.greater_equal(high, values[0]), pc.less_equal(low, values[1])
    ),
    "notBetween": lambda low, high, values: pc.or_kleene(
        pc.less(low, values[0]), _above(high, pc.greater(high, values[1]))
    ),
    "startsWith": lambda low, high, values: _prefix(low, high, values[0].as_py()),
    "like": lambda low, high, values: _prefix(low, high, re.split(r"[%_\\]", values[0].as_py(), maxsplit=1)[0]),
}


# ------------------------------------------------------------------------------------------ columns of encoded records


@dataclass(frozen=True, slots=True)
class EncodedStats:
    """Statistics of files of one layout, as manifests hold them."""

    minimum: pa.Array
    maximum: pa.Array
    nulls: pa.Array
    rows: pa.Array  # Numbers of rows, int64
    arity: int
    slots: Mapping[int, int]
    # The columns of the files, by field id. Other columns were added later and are null.
    fields: Mapping[int, DataField]

    def may_hold(self, leaf: Predicate, field: DataField) -> Mask | bool:
        """Where a leaf on `field` may hold for at least one row."""
        stats = self.column(field)
        return True if stats is None else may_hold(leaf, stats, field.type)

    def column(self, field: DataField) -> ColumnStats | None:
        """Statistics of `field` in its type, evolved from the type in the files; None: nothing is known."""
        stored = self.fields.get(field.id)
        if stored is None:
            return ColumnStats(None, None, nulls=self.rows, rows=self.rows)
        slot = self.slots.get(field.id)
        if slot is None or not evolves(stored.type, field.type):
            return None
        nulls = _element(self.nulls, self.arity, slot)
        if root(field.type) in _UNORDERED:
            return ColumnStats(None, None, nulls, self.rows)
        try:
            minimum, maximum = self._bound(self.minimum, slot, stored), self._bound(self.maximum, slot, stored)
        except OverflowError:
            return ColumnStats(None, None, nulls, self.rows)  # a timestamp beyond what nanoseconds can hold
        target = PyarrowFieldParser.from_paimon_type(field.type)
        return ColumnStats(_evolved(minimum, target, -np.inf), _evolved(maximum, target, np.inf), nulls, self.rows)

    def _bound(self, rows: pa.Array, slot: int, stored: DataField) -> pa.Array:
        fits = pc.equal(pc.binary_slice(rows, 0, 4), struct.pack(">i", self.arity))  # else: no statistics were kept
        return decode_column(pc.if_else(fits, rows, pa.scalar(None, rows.type)), slot, stored.type)


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """The partitions of many files, by which a leaf on a partition column is decided exactly."""

    partitions: pa.Array
    indices: pa.Array
    columns: Sequence[str]

    @classmethod
    def of(cls, partitions: pa.Array, columns: Sequence[str]) -> PartitionValues:
        encoded = partitions.dictionary_encode()
        return cls(encoded.dictionary, encoded.indices, columns)

    def may_hold(self, leaf: Predicate, field: DataField) -> Mask:
        """Where a leaf on a partition column holds, exactly."""
        values = decode_column(self.partitions, list(self.columns).index(field.name), field.type)
        values = values.cast(PyarrowFieldParser.from_paimon_type(field.type), safe=False)
        # Decided once for each distinct partition.
        holds = mask(leaf, pa.RecordBatch.from_arrays([values], names=[field.name]))
        return _mask(pc.take(holds, self.indices), unknown=True)


def _element(lists: pa.Array, arity: int, slot: int) -> pa.Array:
    fits = pc.fill_null(pc.equal(pc.list_value_length(lists), arity), False).to_numpy(zero_copy_only=False)
    # Indices into the values of all lists; lists of another length give null.
    positions = np.where(fits, lists.offsets.to_numpy()[:-1] + slot, 0)
    return pc.take(lists.values, pa.array(positions, mask=~fits)).cast(pa.int64())


def _evolved(bounds: pa.Array, target: pa.DataType, outwards: float) -> pa.Array:
    """Bounds in the read type, widened if a file may hold values beyond them.

    Floats by one step, because of -0.0, of literals between two floats, and of NaN next to a single value. Nanoseconds
    to the end of their microsecond, because writers in Python keep statistics in microseconds.
    """
    if pa.types.is_timestamp(bounds.type) and bounds.type.unit == "ns" and outwards > 0:
        return pc.add(bounds, pa.scalar(999, pa.duration("ns")))
    if pa.types.is_floating(bounds.type):
        bounds = _step(bounds, outwards)
    if bounds.type != target and not pa.types.is_timestamp(target):
        was_floating = pa.types.is_floating(bounds.type)
        bounds = bounds.cast(target, safe=False)
        # Integers are rounded to the nearest float, which may narrow the bounds.
        if pa.types.is_floating(target) and not was_floating:
            bounds = _step(bounds, outwards)
    return bounds


def _step(bounds: pa.Array, outwards: float) -> pa.Array:
    # Nulls go through as NaN.
    numbers = pc.fill_null(bounds, float("nan")).to_numpy()
    with np.errstate(over="ignore"):  # from the greatest number to infinity
        moved = np.nextafter(numbers, numbers.dtype.type(outwards))
    return pa.array(moved, bounds.type, mask=np.isnan(moved))


def evolves(stored: DataType, read: DataType) -> bool:
    """Whether a cast keeps order, nulls and all values, so that bounds in the old type are bounds in the new one."""
    if not isinstance(stored, AtomicType) or not isinstance(read, AtomicType):
        return False
    old, new = root(stored), root(read)
    if stored.type == read.type:
        return True
    if old in INTEGER_BITS:
        return new in _FLOATS or INTEGER_BITS.get(new, 0) >= INTEGER_BITS[old]
    if old == "FLOAT":
        return new == "DOUBLE"
    if old == new == "VARCHAR":
        return _parameters(read, (_MAX_VARCHAR,)) >= _parameters(stored, (_MAX_VARCHAR,))
    if old == new == "DECIMAL":
        (precision, scale), (wider, finer) = _parameters(stored, (10, 0)), _parameters(read, (10, 0))
        return finer >= scale and wider - finer >= precision - scale
    if old == new and old.startswith("TIMESTAMP"):
        return _parameters(read, (6,)) >= _parameters(stored, (6,))
    return False


def _parameters(data_type: DataType, default: tuple[int, ...]) -> tuple[int, ...]:
    found = re.search(r"\(([\d\s,]+)\)", str(data_type))
    given = tuple(int(each) for each in found.group(1).split(",")) if found else ()
    return given + default[len(given) :]
