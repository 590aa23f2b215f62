"""Values of partition columns from text, as Java's `TypeUtils.castFromString` reads them.

One difference: a value that does not fit the type without loss (digits, the time of a date) is an error, where Java
rounds or cuts. Otherwise a text could name another partition than the one that it spells.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import c_float
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from pypaimon.streaming.model.data_types import bounded, parameter, root
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.paimon.internals import AtomicType, PyarrowFieldParser

_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_EPOCH = date(1970, 1, 1)
_MILLIS_OF_DAY = 86_400_000
_NUMERIC = re.compile(r"-?\d+", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FLOAT = re.compile(rf"({_DECIMAL.pattern}|NaN|[+-]?Infinity)", re.ASCII)
_DATE = re.compile(r"(\d+)-(\d+)(?:-(\d+))?", re.ASCII)
_TIME = re.compile(r"(\d+)(?::(\d+)(?::(\d+)(?:\.(\d+))?)?)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?"
    r"(?P<offset>Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)


def from_text(text: str, kind: AtomicType, zone: TimeZone) -> pa.Scalar:
    """Parse the text of a value; a TIMESTAMP_LTZ without an offset is in the time zone `zone`.

    Raises:
        ValueError: The text is not a value of the type; the message says what is expected.
    """
    read = partial(_timestamp, zone=zone) if root(kind) in _TIMESTAMPS else _READERS.get(root(kind))
    if read is None:
        raise ValueError(f"{kind.type} cannot be read from text")
    try:
        return pa.scalar(read(text, kind), PyarrowFieldParser.from_paimon_type(kind))
    except pa.ArrowInvalid as error:
        raise ValueError(f"expected a value that {kind.type} holds without loss") from error


def _matched(pattern: re.Pattern[str], text: str, expected: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"expected {expected}")
    return found


def _fitting(value: str | bytes, kind: AtomicType) -> str | bytes:
    length = parameter(kind)
    if length is not None and len(value) > length:
        raise ValueError(f"expected a length of {length} at most")
    return value


def _integer(text: str, kind: AtomicType) -> int:
    return int(_matched(_INTEGER, text, "a whole number")[0])


def _boolean(text: str, kind: AtomicType) -> bool:
    word = text.lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError("expected true or false")
    return word in _TRUE


def _decimal(text: str, kind: AtomicType) -> Decimal:
    return bounded(Decimal(_matched(_DECIMAL, text, "a number")[0]))


def _double(text: str, kind: AtomicType) -> float:
    return float(_matched(_FLOAT, text.strip(), "a number, NaN or Infinity")[0])


def _float(text: str, kind: AtomicType) -> float:
    number = _double(text, kind)
    nearest = c_float(number).value
    # Accept the text that Java prints for a float, and any other one that is a float exactly.
    if nearest != number and number == number and float(str(np.float32(nearest))) != number:
        raise ValueError("expected a number that a FLOAT holds without loss")
    return nearest


def _date(text: str, kind: AtomicType) -> date:
    if _NUMERIC.fullmatch(text):
        return _EPOCH + timedelta(int(text))
    found = _matched(_DATE, text, "a date as 2026-11-21, or days since 1970-01-01")
    return date(*(int(part or 1) for part in found.groups()))


def _time(text: str, kind: AtomicType) -> int:
    expected = "a time as 08:30:00, or milliseconds of the day"
    if _NUMERIC.fullmatch(text):
        millis = int(text)
    else:
        found = _matched(_TIME, text, expected)
        hour, minute, second = (int(part or 0) for part in found.groups()[:3])
        millis = 1000 * (3600 * hour + 60 * minute + second) + _digits(found[4], 3)
    if not 0 <= millis < _MILLIS_OF_DAY:
        raise ValueError(f"expected {expected}")
    return millis


def _timestamp(text: str, kind: AtomicType, zone: TimeZone) -> int:
    """Returns ticks in the unit of the Arrow type."""
    precision = 6 if (given := parameter(kind)) is None else given
    zoned = root(kind) != "TIMESTAMP"
    if _NUMERIC.fullmatch(text) and not zoned:
        if precision not in (0, 3, 6, 9):
            raise ValueError(f"expected a date and time: Java reads no number for precision {precision}")
        return int(text)
    expected = "a date and time as 2026-11-21 08:30:00" + (", with or without an offset as +02:00" if zoned else "")
    found = _matched(_TIMESTAMP, text, expected)
    has_seconds = found[6] is not None or " " not in text
    if (found["offset"] is not None and not zoned) or not has_seconds:
        raise ValueError(f"expected {expected}")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    if found["offset"] not in (None, "Z"):
        moment -= _offset(found["offset"])
    elif zoned and found["offset"] is None:
        moment = zone.moment(moment.replace(tzinfo=None))
    nanos = _digits(found[7], 9)
    if nanos % 10 ** (9 - precision):
        raise ValueError(f"expected {precision} digits of a second at most")
    seconds = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(seconds=1)
    per_second = 1000 ** -(-precision // 3)
    return int(seconds * per_second + nanos * per_second // 10**9)


def _offset(text: str) -> timedelta:
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[4:6]))
    return -offset if text[0] == "-" else offset


def _digits(fraction: str | None, count: int) -> int:
    digits = (fraction or "").rstrip("0")
    if len(digits) > count:
        raise ValueError(f"expected {count} digits of a second at most")
    return int(digits.ljust(count, "0"))


_READERS: dict[str, Callable[[str, AtomicType], Any]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _integer),
    **dict.fromkeys(("CHAR", "VARCHAR"), _fitting),
    **dict.fromkeys(("BINARY", "VARBINARY"), lambda text, kind: _fitting(text.encode(), kind)),
    "BOOLEAN": _boolean,
    "DECIMAL": _decimal,
    "DOUBLE": _double,
    "FLOAT": _float,
    "DATE": _date,
    "TIME": _time,
}
