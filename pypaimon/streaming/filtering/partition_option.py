"""Which partitions the option `scan.partitions` lets a stream read, as a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec, default_partition
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.options.option_values import OptionValues

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate

_OPTION = "scan.partitions"


def chosen_partitions(schema: TableSchema) -> Predicate | None:
    """The filter that a table's options put on its partitions; None: all are read.

    Follows Flink's source (`PartitionLoader`): partitions are `key=value,key=value`, with semicolons between them; a
    key that is not named has the default partition's value, null. On tables without partitions it means nothing.

    Raises:
        StreamConfigError: The value cannot be read, or names what is no partition column.
        UnsupportedTableError: It names the greatest partition, which is another one by the next start.
    """
    options = OptionValues(schema.options)
    value = options.text(_OPTION)
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
    from pypaimon.streaming.filter_internals import Predicate

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
