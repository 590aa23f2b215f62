"""Partitions named by the values of their columns, in an argument or in the option `scan.partitions`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import conjunction, mask
from pypaimon.streaming.filtering.partition_texts import partition_values
from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.model.data_types import bounded, parameter, root
from pypaimon.streaming.model.time_zone import TimeZone, zone_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import AtomicType, DataField, PyarrowFieldParser, TableSchema, Timestamp

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

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
    """Parse the text of a value; a TIMESTAMP_LTZ without an offset is in the time zone `zone`. Raises ValueError if the
    text is not a value of the type; the message says what is expected.
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


_NANOS_PER_MILLI = 1_000_000
_OPTION = option_keys.SCAN_PARTITIONS


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """All partitions that have the given values.

    Values are equal if Java has one partition for them: null equals null, NaN equals NaN, and 0.0 differs from -0.0.
    """

    given: Mapping[str, Any]
    predicate: Predicate

    @staticmethod
    def of(schema: TableSchema, given: Mapping[str, Any], what: str) -> PartitionSpec:
        """Read the values. Raises StreamConfigError if there is no value, a name is not a partition column, or a value
        does not fit.

        Args:
            given: Values of all or some partition columns: of the column's type, None for null, or a text, which is
                parsed as Java parses it, in the time zone of the table (option `time-zone`). The text of the option
                `partition.default-name` is null.
        """
        keys = schema.partition_keys
        if unknown := sorted(set(given) - set(keys)):
            columns = f"the partition columns are {', '.join(keys)}" if keys else "the table has no partitions"
            raise StreamConfigError(f"{what}: {', '.join(map(repr, unknown))} is not a partition column; {columns}.")
        if not given:
            raise StreamConfigError(f"{what}: expected values of partition columns, got {dict(given)}.")
        default, zone = default_partition(schema), zone_of(schema.options)
        parts = [
            _equals(index, field, _value(field, given[field.name], default, zone, what))
            for index, field in enumerate(schema.fields)
            if field.name in given
        ]
        predicate = conjunction([leaf for part in parts for leaf in part])
        assert predicate is not None
        return PartitionSpec(dict(given), predicate)

    def matches(self, rows: pa.Array, fields: Sequence[DataField]) -> pa.BooleanArray:
        return partitions_where(self.predicate, rows, fields)


def partition_row(schema: TableSchema, given: Mapping[str, Any], what: str) -> bytes:
    """The serialised row of the one partition with these values. Raises StreamConfigError as `PartitionSpec.of`, and if
    a partition column has no value.
    """
    PartitionSpec.of(schema, given, what)
    if missing := [name for name in schema.partition_keys if name not in given]:
        raise StreamConfigError(f"{what}: {dict(given)} has no value of {', '.join(missing)}; give all of them.")
    default, zone = default_partition(schema), zone_of(schema.options)
    of_name = {field.name: field for field in schema.fields}
    fields = [of_name[name] for name in schema.partition_keys]
    return encoded_row([_value(field, given[field.name], default, zone, what) for field in fields], fields)


def default_partition(schema: TableSchema) -> str:
    """The text for null in names of partitions."""
    return option_keys.PARTITION_DEFAULT_NAME.of(schema.options)


def partitions_where(predicate: Predicate, rows: pa.Array, fields: Sequence[DataField]) -> pa.BooleanArray:
    columns = [
        decode_column(rows, index, field.type).cast(PyarrowFieldParser.from_paimon_type(field.type), safe=False)
        for index, field in enumerate(fields)
    ]
    return mask(predicate, pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields]))


def _value(field: DataField, given: Any, default: str, zone: TimeZone, what: str) -> Any:
    if given is None or (isinstance(given, str) and given == default):
        return None
    try:
        return _literal(
            from_text(given, cast(AtomicType, field.type), zone) if isinstance(given, str) else _scalar(given, field)
        )
    except (ValueError, OverflowError) as error:
        raise StreamConfigError(
            f"{what}: invalid value {given!r} of partition column '{field.name}' ({field.type}): {error}."
        ) from error


def _scalar(given: Any, field: DataField) -> pa.Scalar:
    wrong = ValueError("expected a value of the column's type, or a text")
    try:
        scalar = pa.scalar(given, PyarrowFieldParser.from_paimon_type(field.type))
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise wrong from error
    if not _is_same(scalar, given):
        raise wrong
    return scalar


def _is_same(scalar: pa.Scalar, given: Any) -> bool:
    """Whether pyarrow kept the value: it turns a datetime into a date, and a boolean into a number."""
    value = scalar.as_py()
    if isinstance(given, bool) is not isinstance(value, bool):
        return False
    if isinstance(value, float):
        # A FLOAT has fewer digits than Python's double.
        return pa.types.is_float32(scalar.type) or value == given or math.isnan(value)
    return bool(value == given)


def _literal(scalar: pa.Scalar) -> Any:
    if pa.types.is_timestamp(scalar.type) and scalar.type.unit == "ns":
        millis, nanos = divmod(scalar.value, _NANOS_PER_MILLI)
        return Timestamp.from_epoch_millis(millis, nanos)
    return scalar.as_py()


def _equals(index: int, field: DataField, value: Any) -> list[Predicate]:
    from pypaimon.streaming.paimon.filter_internals import Predicate

    if value is None:
        return [Predicate("isNull", index, field.name, None)]
    equal = Predicate("equal", index, field.name, [value])
    if isinstance(value, float) and value == 0:
        return [equal, Predicate("sameBits", index, field.name, [value])]
    return [equal]


def chosen_partitions(schema: TableSchema) -> Predicate | None:
    """The filter of the option `scan.partitions`; None: all partitions are read.

    As in Flink's `PartitionLoader`, partitions are `key=value,key=value`, separated by semicolons; a missing key has
    the value of the default partition, null. The option is ignored for tables without partitions. Raises
    UnsupportedTableError if the value names the greatest partition, which may change by the next start.
    """
    value = _OPTION.of(schema.options)
    if value is None or not schema.partition_keys:
        return None
    if "max_pt()" in value.lower() or "max_two_pt()" in value.lower():
        raise UnsupportedTableError(
            f"Option '{_OPTION}' = '{value}': which partition is the greatest changes while a stream runs.",
            advice="Name the partitions, or remove the option and filter with with_filter(...).",
            option="with_filter",
        )
    parts = [_one(part, value, schema) for part in value.split(";") if part.strip()]
    if not parts:
        raise _unreadable(value)
    from pypaimon.streaming.paimon.filter_internals import Predicate

    return parts[0] if len(parts) == 1 else Predicate("or", None, None, parts)


def _one(part: str, value: str, schema: TableSchema) -> Predicate:
    named: dict[str, Any] = dict.fromkeys(schema.partition_keys, default_partition(schema))
    try:
        given = partition_values(part.strip(), schema.partition_keys)
    except ValueError as error:
        raise _unreadable(value) from error
    named |= {key: text.strip() if isinstance(text, str) else text for key, text in given.items()}
    return PartitionSpec.of(schema, named, f"Option '{_OPTION}' = '{value}'").predicate


def _unreadable(value: str) -> StreamConfigError:
    return StreamConfigError(f"Could not parse value '{value}' for key '{_OPTION}'. Set 'key=value,key=value'.")
