"""`PartitionSpec`: partitions, named by the values of some of their columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.filters import conjunction, mask
from pypaimon.streaming.filtering.partition_text import from_text
from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.internals import DataField, PyarrowFieldParser, TableSchema, Timestamp
from pypaimon.streaming.model.time_zone import TimeZone, zone_of
from pypaimon.streaming.options.option_values import OptionValues

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate

_NANOS_PER_MILLI = 1_000_000


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """Every partition that has the given values.

    Values are equal where Java has one partition for them: null equals null, NaN equals NaN, and 0.0 is not -0.0.

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
            schema: Of the table.
            given: Values of partition columns, all or some. A value is one of the column's type, None for null, or a
                text, read as Java reads that of a partition, in the time zone of the table (option `time-zone`).
                The text that `partition.default-name` names is null.
            what: The argument or option that gave them, for messages.

        Raises:
            StreamConfigError: There is no value, a name is not that of a partition column, or a value does not fit.
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
    """The text that stands for null in names of partitions."""
    return OptionValues(schema.options).text("partition.default-name") or "__DEFAULT_PARTITION__"


def partitions_where(predicate: Predicate, rows: pa.Array, fields: Sequence[DataField]) -> pa.BooleanArray:
    """Which partitions meet a condition.

    Args:
        predicate: It names partition columns alone.
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
        return _literal(from_text(given, field.type, zone) if isinstance(given, str) else _scalar(given, field))
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
    """Whether a value was taken as it is: pyarrow makes a date of a datetime, and a number of a boolean."""
    value = scalar.as_py()
    if isinstance(given, bool) is not isinstance(value, bool):
        return False
    if isinstance(value, float):
        # A FLOAT has fewer digits than the double of Python that names it.
        return pa.types.is_float32(scalar.type) or value == given or math.isnan(value)
    return bool(value == given)


def _literal(scalar: pa.Scalar) -> Any:
    if pa.types.is_timestamp(scalar.type) and scalar.type.unit == "ns":
        millis, nanos = divmod(scalar.value, _NANOS_PER_MILLI)
        return Timestamp.from_epoch_millis(millis, nanos)
    return scalar.as_py()


def _equals(index: int, field: DataField, value: Any) -> list[Predicate]:
    from pypaimon.streaming.filter_internals import Predicate

    if value is None:
        return [Predicate("isNull", index, field.name, None)]
    equal = Predicate("equal", index, field.name, [value])
    if isinstance(value, float) and value == 0:
        return [equal, Predicate("sameBits", index, field.name, [value])]
    return [equal]
