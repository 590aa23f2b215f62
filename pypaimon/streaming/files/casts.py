"""Column-wise casts between atomic types, for files written before (or after) a column changed its type.

The results are those of Java's `CastExecutors` if the value fits: fractions are rounded half up (decimals) or cut (to
integers, timestamps, shorter texts), because the ALTER TABLE that changed the type asked for it. Where Java wraps an
integer or turns an overflowing decimal into null, a `CastError` is raised. With `exact`, for files newer than the
schema that is read, any loss is an error. TIMESTAMP WITH LOCAL TIME ZONE is cast to and from other types in local time
of the stream's zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.metadata.file_paths import java_float_text
from pypaimon.streaming.model.data_types import bounded, parameter, root
from pypaimon.streaming.model.time_zone import PER_SECOND, TimeZone
from pypaimon.streaming.paimon.internals import AtomicType, PyarrowFieldParser

Convert = Callable[[pa.Array], pa.Array]

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FLOATS = ("FLOAT", "DOUBLE")
_TEXTS = ("CHAR", "VARCHAR")
_BYTES = ("BINARY", "VARBINARY")
_STAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_DAY_MILLIS = 86_400_000
_PART = r"\s*([0-9]{1,9})\s*"
_TIME = re.compile(
    rf"([0-9]{{1,9}})|{_PART}(?::{_PART}(?::{_PART}(?:\.\s*([0-9]*)\s*)?)?)?(?:([+-]){_PART}(?::{_PART})?)?"
)
"""Milliseconds; or hours, minutes, seconds, a fraction, and the sign, hours and minutes of an offset."""


class CastError(ValueError):
    """A value does not fit the type that is read, or there is no cast to it."""


def cast(source: AtomicType, target: AtomicType, exact: bool, zone: TimeZone) -> Convert:
    """The cast from one type to another. Raises CastError if there is no cast. The returned function raises it for
    values that do not fit.
    """
    arrow = PyarrowFieldParser.from_paimon_type(target)
    convert = _rule(source, target, arrow, exact, zone)
    if convert is None:
        raise CastError(f"{source.type} cannot be read as {target.type}")

    def checked(array: pa.Array) -> pa.Array:
        try:
            return convert(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidOperation, ValueError, OverflowError) as error:
            raise CastError(f"a value of type {source.type} does not fit {target.type}: {error}") from error

    return checked


def _rule(source: AtomicType, target: AtomicType, arrow: pa.DataType, exact: bool, zone: TimeZone) -> Convert | None:
    old, new = root(source), root(target)
    if new in _TEXTS and (to_text := _to_text(source, zone)) is not None:
        return lambda array: _fit_text(to_text(array), target, exact)
    if old in _TEXTS:
        return _from_text(target, arrow, exact, zone)
    if old in _BYTES and new in _BYTES:
        return lambda array: _fit_bytes(array, target, exact)
    if new == "BOOLEAN" and old in _INTEGERS:
        return lambda array: pc.not_equal(array, 0)
    if old == "BOOLEAN" and new in (*_INTEGERS, *_FLOATS, "DECIMAL"):
        return lambda array: _to_number(array.cast(pa.int8()), arrow, exact)
    if old in (*_INTEGERS, *_FLOATS, "DECIMAL") and new in (*_INTEGERS, *_FLOATS, "DECIMAL"):
        return lambda array: _to_number(array, arrow, exact)
    return _time_rule(old, new, arrow, exact, zone)


def _to_number(array: pa.Array, arrow: pa.DataType, exact: bool) -> pa.Array:
    fractional = not pa.types.is_integer(array.type)
    if pa.types.is_integer(arrow):
        return (array if exact or not fractional else pc.trunc(array)).cast(arrow)
    if pa.types.is_floating(arrow):
        return _to_float(array, arrow, exact)
    if pa.types.is_floating(array.type):
        # Java goes through the shortest decimal text of the double.
        values = [None if value is None else Decimal(repr(value)) for value in array.cast(pa.float64()).to_pylist()]
        return pa.array([_quantized(value, arrow, exact) for value in values], arrow)
    wide = array.cast(pa.decimal256(76, max(arrow.scale, getattr(array.type, "scale", 0))))
    return (wide if exact else pc.round(wide, arrow.scale, "half_towards_infinity")).cast(arrow)


def _to_float(array: pa.Array, arrow: pa.DataType, exact: bool) -> pa.Array:
    result = array.cast(arrow, safe=exact and pa.types.is_integer(array.type))
    if exact and pa.types.is_floating(array.type):
        same = pc.or_(pc.equal(result.cast(array.type), array), pc.is_nan(array))
        if not pc.all(same, min_count=0).as_py():
            raise CastError("it would lose digits")
    return result


def _quantized(value: Decimal | None, arrow: pa.DataType, exact: bool) -> Decimal | None:
    if value is None:
        return None
    rounded = value.quantize(Decimal(1).scaleb(-arrow.scale), ROUND_HALF_UP)
    if exact and rounded != value:
        raise CastError("it would lose digits")
    return rounded


def _time_rule(old: str, new: str, arrow: pa.DataType, exact: bool, zone: TimeZone) -> Convert | None:
    if new in _STAMPS:
        if old == new:
            return lambda array: to_unit(array, arrow, exact)
        if old in _STAMPS:
            turned = zone.wall_clocks if new == "TIMESTAMP" else zone.moments
            return lambda array: to_unit(turned(array), arrow, exact)
        if old == "DATE":
            days = pa.timestamp("s")
            if new == "TIMESTAMP_LTZ":
                return lambda array: to_unit(zone.moments(array.cast(days)), arrow, exact)
            return lambda array: to_unit(array.cast(days), arrow, exact)
        if old == "TIME":
            return lambda array: array.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms")).cast(arrow)
        if old in ("INT", "BIGINT"):
            return lambda array: _from_seconds(array, new, arrow, exact, zone)
    if old in _STAMPS:
        shown = zone.wall_clocks if old == "TIMESTAMP_LTZ" else _unchanged
        if new == "DATE":
            return lambda array: to_unit(shown(array), pa.timestamp("s"), exact).cast(pa.date32(), safe=exact)
        if new == "TIME":
            return lambda array: to_unit(shown(array), pa.timestamp("ms"), exact).cast(pa.time32("ms"))
        if new in ("INT", "BIGINT"):
            return lambda array: to_unit(array, pa.timestamp("s"), exact).cast(pa.int64()).cast(arrow)
    if old == new == "TIME":
        return _unchanged
    return None


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _from_seconds(array: pa.Array, new: str, arrow: pa.DataType, exact: bool, zone: TimeZone) -> pa.Array:
    seconds = array.cast(pa.int64()).cast(pa.timestamp("s"))
    if new == "TIMESTAMP_LTZ":
        # The local time as if it were UTC: this is what Java does (`NumericPrimitiveToTimestamp`).
        seconds = zone.wall_clocks(seconds)
    return to_unit(seconds, arrow, exact)


def to_unit(array: pa.Array, arrow: pa.DataType, exact: bool) -> pa.Array:
    """Timestamps in another unit, cut towards the past."""
    divisor = PER_SECOND[array.type.unit] // PER_SECOND[arrow.unit]
    if divisor > 1 and not exact:
        ticks = array.cast(pa.int64())
        whole = pc.divide(ticks, divisor)
        rounded_up = pc.less(ticks, pc.multiply(whole, divisor))
        array = pc.subtract(whole, rounded_up.cast(pa.int64())).cast(pa.timestamp(arrow.unit, array.type.tz))
    ticks = array.cast(pa.timestamp(arrow.unit, array.type.tz)).cast(pa.int64())
    return ticks.cast(arrow)


def _to_text(source: AtomicType, zone: TimeZone) -> Convert | None:
    old = root(source)
    if old in (*_INTEGERS, *_TEXTS, "BOOLEAN", "DATE", *_BYTES):
        return lambda array: array.cast(pa.string())
    if old in _FLOATS:
        return lambda array: _texts(array, lambda value: java_float_text(value, old == "FLOAT"))
    if old == "DECIMAL":
        return lambda array: _texts(array, lambda value: format(value, "f"))
    if old in _STAMPS:
        digits = 6 if parameter(source) is None else parameter(source)
        shown = zone.wall_clocks if old == "TIMESTAMP_LTZ" else _unchanged
        return lambda array: _timestamp_text(shown(array), digits or 0)
    if old == "TIME":
        return lambda array: _time_text(array, parameter(source) or 0)
    return None


def _texts(array: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in array.to_pylist()], pa.string())


def _timestamp_text(array: pa.Array, digits: int) -> pa.Array:
    text = pc.strftime(array, "%Y-%m-%d %H:%M:%S")
    shown = {"s": 0, "ms": 3, "us": 6, "ns": 9}[array.type.unit]
    if digits < shown:
        text = pc.utf8_slice_codeunits(text, 0, 19 + (1 + digits if digits else 0))
    return text


def _time_text(array: pa.Array, digits: int) -> pa.Array:
    text = array.cast(pa.string())
    return pc.utf8_slice_codeunits(text, 0, 8 + (1 + min(digits, 3) if digits else 0))


def _fit_text(array: pa.Array, target: AtomicType, exact: bool) -> pa.Array:
    length = parameter(target)
    if length is None:
        return array
    longest = pc.max(pc.utf8_length(array)).as_py() or 0
    if longest > length:
        if exact:
            raise CastError(f"a text of {longest} characters is longer than {length}")
        array = pc.utf8_slice_codeunits(array, 0, length)
    return pc.utf8_rpad(array, length) if root(target) == "CHAR" else array


def _fit_bytes(array: pa.Array, target: AtomicType, exact: bool) -> pa.Array:
    array = array.cast(pa.binary())
    length = parameter(target)
    if length is None:
        return array
    longest = pc.max(pc.binary_length(array)).as_py() or 0
    if exact and longest > length:
        raise CastError(f"{longest} bytes are more than {length}")
    if root(target) == "BINARY":
        values = [None if value is None else value[:length].ljust(length, b"\0") for value in array.to_pylist()]
        return pa.array(values, pa.binary())
    return pc.binary_slice(array, 0, length) if longest > length else array


def _from_text(target: AtomicType, arrow: pa.DataType, exact: bool, zone: TimeZone) -> Convert | None:
    new = root(target)
    if new in _BYTES:
        return lambda array: _fit_bytes(array.cast(pa.binary()), target, exact)
    if new == "BOOLEAN":
        return _text_to_boolean
    if new == "DECIMAL":
        return lambda array: _text_to_decimal(array, arrow, exact)
    if new in (*_INTEGERS, *_FLOATS, "DATE"):
        return lambda array: pc.utf8_trim_whitespace(array).cast(arrow)
    if new in _STAMPS:
        meant = zone.moments if new == "TIMESTAMP_LTZ" else _unchanged
        return lambda array: to_unit(meant(_text_to_timestamp(array)), arrow, exact)
    if new == "TIME":
        return lambda array: _text_to_time(array, arrow, exact)
    return None


def _text_to_time(array: pa.Array, arrow: pa.DataType, exact: bool) -> pa.Array:
    """As Java's `BinaryStringUtils.toTime`, which also accepts times beyond a day."""
    millis = (None if text is None else _millis_of_day(text, exact) for text in array.to_pylist())
    return pa.array(millis, pa.int32()).cast(arrow)


def _millis_of_day(text: str, exact: bool) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise CastError(f"{text!r} is not a time")
    number, hour, minute, second, fraction, sign, offset_hour, offset_minute = found.groups()
    if number is not None:
        # A text of digits is a number of milliseconds.
        millis = int(number)
    else:
        digits = f"{fraction or ''}0000"
        if exact and digits[3:].strip("0"):
            raise CastError("it would lose digits")
        # Java adds the offset instead of subtracting it.
        minutes = int(offset_hour or 0) * 60 + int(offset_minute or 0)
        minutes = int(hour) * 60 + int(minute or 0) + (-minutes if sign == "-" else minutes)
        millis = (minutes * 60 + int(second or 0)) * 1000 + int(digits[:3]) + (digits[3] >= "5")
    if not 0 <= millis < _DAY_MILLIS:
        raise CastError(f"{text!r} is not a time of a day")
    return millis


def _text_to_timestamp(array: pa.Array) -> pa.Array:
    """In microseconds, or in nanoseconds if a text has more than six digits of a second."""
    text = pc.utf8_trim_whitespace(array)
    try:
        return text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        found = text.cast(pa.timestamp("ns"))
    # Nanoseconds wrap in Arrow: the year 9999 becomes 1816.
    years = pc.utf8_slice_codeunits(text, 0, 4).cast(pa.int64())
    if not pc.all(pc.equal(pc.year(found), years), min_count=0).as_py():
        raise CastError("a text with nanoseconds is a time before 1677 or after 2262")
    return found


def _text_to_decimal(array: pa.Array, arrow: pa.DataType, exact: bool) -> pa.Array:
    numbers = (None if text is None else bounded(Decimal(text.strip())) for text in array.to_pylist())
    return pa.array([_quantized(number, arrow, exact) for number in numbers], arrow)


def _text_to_boolean(array: pa.Array) -> pa.Array:
    text = pc.utf8_lower(pc.utf8_trim_whitespace(array))
    yes = pc.is_in(text, pa.array(_TRUE))
    known = pc.or_(yes, pc.is_in(text, pa.array(_FALSE)))
    if not pc.all(pc.or_(known, pc.is_null(text)), min_count=0).as_py():
        raise CastError("a text is neither true nor false")
    return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), yes)
