"""Partitions named by the values of their columns, in an argument or in the option `scan.partitions`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import conjunction, mask
from pypaimon.streaming.filtering.partition_text import from_text
from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.model.time_zone import TimeZone, zone_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import AtomicType, DataField, PyarrowFieldParser, TableSchema, Timestamp

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

_NANOS_PER_MILLI = 1_000_000
_OPTION = option_keys.SCAN_PARTITIONS


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """All partitions that have the given values.

    Values are equal if Java has one partition for them: null equals null, NaN equals NaN, and 0.0 differs from -0.0.

    Attributes:
        given: The values as the caller gave them, by column.
        predicate: The condition on the partition columns.
    """

    given: Mapping[str, Any]
    predicate: Predicate

    @staticmethod
    def of(schema: TableSchema, given: Mapping[str, Any], what: str) -> PartitionSpec:
        """Read the values.

        Args:
            schema: Schema of the table.
            given: Values of all or some partition columns: of the column's type, None for null, or a text, which is
                parsed as Java parses it, in the time zone of the table (option `time-zone`). The text of the option
                `partition.default-name` is null.
            what: The argument or option that gave the values, for messages.

        Raises:
            StreamConfigError: There is no value, a name is not a partition column, or a value does not fit.
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
        """Which partitions have the values; see `partitions_where`."""
        return partitions_where(self.predicate, rows, fields)


def default_partition(schema: TableSchema) -> str:
    """The text for null in names of partitions."""
    return option_keys.PARTITION_DEFAULT_NAME.of(schema.options)


def partitions_where(predicate: Predicate, rows: pa.Array, fields: Sequence[DataField]) -> pa.BooleanArray:
    """Which partitions match a predicate.

    Args:
        predicate: A predicate on partition columns only.
        rows: The partitions, as serialised rows.
        fields: The partition columns, in the order of the partition keys.
    """
    columns = [
        decode_column(rows, index, field.type).cast(PyarrowFieldParser.from_paimon_type(field.type), safe=False)
        for index, field in enumerate(fields)
    ]
    return mask(predicate, pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields]))


def _value(field: DataField, given: Any, default: str, zone: TimeZone, what: str) -> Any:
    """The value of a column, as predicates take it; None for null."""
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
    the value of the default partition, null. The option is ignored for tables without partitions.

    Raises:
        StreamConfigError: The value is invalid, or names a column that is not a partition column.
        UnsupportedTableError: The value names the greatest partition, which may change by the next start.
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
    named = dict.fromkeys(schema.partition_keys, default_partition(schema))
    for pair in part.split(","):
        key, equals, text = pair.partition("=")
        if not equals:
            raise _unreadable(value)
        named[key.strip()] = text.strip()
    return PartitionSpec.of(schema, named, f"Option '{_OPTION}' = '{value}'").predicate


def _unreadable(value: str) -> StreamConfigError:
    return StreamConfigError(f"Could not parse value '{value}' for key '{_OPTION}'. Set 'key=value,key=value'.")
