"""`column_of`: values as in JSON become a column of a table's type. Nothing is cut, rounded or guessed."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.cdc.change_records import Declared
from pypaimon.streaming.cdc.change_times import day, moment, time_of_day
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.data_types import bounded, root
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataType, MapType, MultisetType, RowType

Convert = Callable[[Any], Any]

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_BEYOND = 10**20
_ARE_ALREADY = {**dict.fromkeys(_INTEGERS, int), "VARCHAR": str, "CHAR": str, "BOOLEAN": bool}
_READ_BY_ARROW = (*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP")
_NANOSECONDS = pa.timestamp("ns")
_GREATEST = {"FLOAT": 3.4028235677973366e38, "DOUBLE": math.inf}
_TRUTHS = {True: True, False: False, "1": True, "0": False, "true": True, "false": False, "t": True, "f": False}
_NO_NUMBERS = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")


class BadValueError(ValueError):
    def __init__(self, index: int, detail: str, cause: Exception) -> None:
        self.index = index
        self.advice: str | None = None
        self.option: str | None = None
        what: object = cause
        if isinstance(cause, PaimonStreamError):
            what, self.advice, self.option = cause.message, cause.advice, cause.option
        super().__init__(f"{detail}: {what}")


@dataclass(frozen=True, slots=True)
class Reading:
    unit: str | None = None
    zone: TimeZone | None = None


def column_of(values: Sequence[Any], kind: DataType, declared: Declared, reading: Reading) -> pa.Array:
    """A column.

    Args:
        values: Values as in JSON, with fractions as `Decimal`, and None for null.

    Raises:
        BadValueError: A value does not fit the type.
    """
    target = arrow_type(kind)
    if (found := _in_bulk(values, kind, declared, target)) is not None:
        return found
    convert = converter(kind, declared, reading)
    try:
        return pa.array([None if value is None else convert(value) for value in values], target)
    except (ValueError, OverflowError, TypeError, ArithmeticError):
        return pa.array(_one_by_one(values, convert, kind, target), target)


def _in_bulk(values: Sequence[Any], kind: DataType, declared: Declared, target: pa.DataType) -> pa.Array | None:
    """The column, if Arrow converts all values, and exactly as the converters would; otherwise None."""
    name = root(kind) if isinstance(kind, AtomicType) else ""
    types = set(map(type, values)) - {type(None)}
    if len(types) != 1:
        return None
    (given,) = types
    if given is str and declared.scale is not None:
        # Base64, which may look like text or a number.
        return None
    try:
        if given is _ARE_ALREADY.get(name):
            return pa.array(values, target)
        # In nanoseconds, Arrow lets timestamps beyond their range overflow.
        if given is not str or name not in _READ_BY_ARROW or target == _NANOSECONDS:
            return None
        text = pa.array(values, pa.string())
        if name == "DECIMAL" and pc.any(pc.match_substring(text, "e", ignore_case=True)).as_py():
            return None
        found = text.cast(target)
    except (ValueError, OverflowError):
        return None
    if name in _INTEGERS:
        return None if pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py() else found
    # A number that is out of range has become an infinity.
    return None if name in _GREATEST and pc.any(pc.is_inf(found)).as_py() else found


def _one_by_one(values: Sequence[Any], convert: Convert, kind: DataType, target: pa.DataType) -> list[Any]:
    found: list[Any] = []
    try:
        for value in values:
            each = None if value is None else convert(value)
            pa.array([each], target)
            found.append(each)
    except (ValueError, OverflowError, TypeError, ArithmeticError) as error:
        raise BadValueError(len(found), f"{_shown(value)} does not fit {kind}", error) from error
    return found


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def converter(kind: DataType, declared: Declared, reading: Reading) -> Convert:
    """A function that converts a value to one that Arrow accepts for a type of Paimon. It may raise ValueError."""
    inner = partial(converter, declared=Declared(latin=declared.latin, clock=declared.clock), reading=reading)
    if isinstance(kind, ArrayType):
        return partial(_list, _null_safe(inner(kind.element)))
    if isinstance(kind, MapType):
        return partial(_map, inner(kind.key), _null_safe(inner(kind.value)))
    if isinstance(kind, MultisetType):
        return partial(_map, inner(kind.element), _integer)
    if isinstance(kind, RowType):
        return partial(_struct, {field.name: _null_safe(inner(field.type)) for field in kind.fields})
    return _atomic(kind, declared, reading)


def _atomic(kind: DataType, declared: Declared, reading: Reading) -> Convert:
    name = root(kind) if isinstance(kind, AtomicType) else ""
    unit = declared.unit or reading.unit
    if name in _INTEGERS:
        return _out_of_unscaled(_integer, declared)
    if name == "BOOLEAN":
        return _out_of_unscaled(_boolean, declared)
    if name in _GREATEST:
        return _out_of_unscaled(partial(_float, _GREATEST[name]), declared)
    if name == "DECIMAL":
        return _decimal if declared.scale is None else partial(_unscaled, declared.scale)
    if name in ("VARCHAR", "CHAR"):
        return _text if declared.scale is None else lambda value: f"{_unscaled(declared.scale or 0, value):f}"
    if name in ("VARBINARY", "BINARY"):
        return _latin if declared.latin else _base64
    if name == "DATE":
        return _of_clock(partial(day, unit=declared.unit), declared)
    if name == "TIME":
        return _of_clock(partial(time_of_day, unit=unit), declared)
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        of_moment = partial(
            moment,
            unit=unit,
            target=arrow_type(kind).unit,
            local=name == "TIMESTAMP_LTZ",
            zone=reading.zone,
            is_clock=declared.clock is not None,
        )
        return _of_clock(of_moment, declared)
    raise ValueError(f"change records cannot fill a column of type {kind}")


def _out_of_unscaled(convert: Convert, declared: Declared) -> Convert:
    """A converter of numbers that may be written as base64 of an unscaled value, which can look like a number."""
    scale = declared.scale
    return convert if scale is None else lambda value: convert(_unscaled(scale, value))


def _of_clock(convert: Convert, declared: Declared) -> Convert:
    """A converter of times whose text may end with a Z that does not mean UTC."""
    if declared.clock != "all":
        return convert
    return lambda value: convert(value.removesuffix("Z") if isinstance(value, str) else value)


def _null_safe(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    # The range is checked first, because int(1E+999999999) would fill the memory.
    if isinstance(value, (Decimal, float)) and -_BEYOND < value < _BEYOND and value == (whole := int(value)):
        return whole
    raise ValueError("expected a whole number")


def _boolean(value: Any) -> bool:
    found = _TRUTHS.get(value.lower() if isinstance(value, str) else value) if _is_scalar(value) else None
    if found is None:
        raise ValueError("expected true, false, 0 or 1")
    return found


def _float(greatest: float, value: Any) -> float:
    if isinstance(value, bool) or not _is_scalar(value):
        raise ValueError("expected a number")
    _check_plain(value)
    found = float(value)
    if abs(found) >= greatest and str(value).lower() not in _NO_NUMBERS:
        raise ValueError("it is out of range")
    return found


def _check_plain(value: Any) -> None:
    """Refuse text that only Python reads as a number, such as 1_0 and digits of other scripts."""
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError("expected a number")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Mapping) and set(value) == {"scale", "value"}:
        return _unscaled(_integer(value["scale"]), value["value"])
    if isinstance(value, bool) or not _is_scalar(value):
        raise ValueError("expected a number")
    _check_plain(value)
    try:
        found = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError(
            "expected a number (base64 comes with the schema, or as text with 'decimal.handling.mode' = 'string')"
        ) from None
    if not found.is_finite():
        raise ValueError("expected a finite number")
    return bounded(found)


def _unscaled(scale: int, value: Any) -> Decimal:
    if not isinstance(value, (str, bytes)):
        return _decimal(value)
    number = int.from_bytes(value if isinstance(value, bytes) else _base64(value), "big", signed=True)
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return bounded(Decimal((sign, digits, -scale)))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number_of_json)


def _number_of_json(value: Any) -> float:
    """A number inside of JSON, as a double if that keeps all its digits."""
    if isinstance(value, Decimal) and Decimal(repr(number := float(value))) == value:
        return number
    raise ValueError("a number in it has more digits than a double")


def _latin(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError("expected bytes as text")
    return value.encode("latin-1")


def _base64(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError("expected bytes as base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"expected bytes as base64 ({error})") from None


def _list(item: Convert, value: Any) -> list[Any]:
    found = _of_json(value)
    if not isinstance(found, list):
        raise ValueError("expected a list")
    return [item(each) for each in found]


def _map(key: Convert, item: Convert, value: Any) -> list[tuple[Any, Any]]:
    found = _of_json(value)
    pairs = list(found.items()) if isinstance(found, Mapping) else found
    if not isinstance(pairs, list) or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise ValueError("expected an object, or a list of pairs")
    return [(key(left), item(right)) for left, right in pairs]


def _struct(fields: Mapping[str, Convert], value: Any) -> dict[str, Any]:
    found = _of_json(value)
    if not isinstance(found, Mapping):
        raise ValueError("expected an object")
    if unknown := [name for name in found if name not in fields]:
        raise ValueError(f"the type has no field {', '.join(map(repr, unknown))}")
    return {name: convert(found.get(name)) for name, convert in fields.items()}


def _of_json(value: Any) -> Any:
    """A nested value, which may be written as JSON in a text, because some formats have only text."""
    return json.loads(value, parse_float=Decimal) if isinstance(value, str) else value


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (str, int, float, Decimal))
