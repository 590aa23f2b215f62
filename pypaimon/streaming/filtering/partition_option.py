"""Which partitions the option `scan.partitions` lets a stream read, as a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import DataField, PyarrowFieldParser, TableSchema
from pypaimon.streaming.options.option_values import OptionValues

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate

_OPTION = "scan.partitions"
_DEFAULT_NAME = "__DEFAULT_PARTITION__"


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
            f"Option '{_OPTION}' = '{value}': which partition is the greatest changes while a stream runs. Name the "
            "partitions, or remove the option and filter with with_filter(...)."
        )
    default = options.text("partition.default-name") or _DEFAULT_NAME
    parts = [_one(part, value, schema, default) for part in value.split(";") if part.strip()]
    if not parts:
        raise _unreadable(value)
    from pypaimon.streaming.filter_internals import Predicate

    return parts[0] if len(parts) == 1 else Predicate("or", None, None, parts)


def _one(part: str, value: str, schema: TableSchema, default: str) -> Predicate:
    from pypaimon.streaming.filter_internals import Predicate

    named: dict[str, str] = {}
    for pair in part.split(","):
        key, equals, text = pair.partition("=")
        if not equals or key.strip() not in schema.partition_keys:
            raise _unreadable(value, f" Partition columns: {', '.join(schema.partition_keys)}.")
        named[key.strip()] = text.strip()
    leaves = []
    for index, field in enumerate(schema.fields):
        if field.name in schema.partition_keys:
            text = named.get(field.name, default)
            if text == default:
                leaves.append(Predicate("isNull", index, field.name, None))
            else:
                leaves.append(Predicate("equal", index, field.name, [_literal(text, field, value)]))
    return leaves[0] if len(leaves) == 1 else Predicate("and", None, None, leaves)


def _literal(text: str, field: DataField, value: str) -> Any:
    try:
        return pa.scalar(text).cast(PyarrowFieldParser.from_paimon_type(field.type)).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _unreadable(value, f" '{text}' is no {field.type}.") from error


def _unreadable(value: str, detail: str = "") -> StreamConfigError:
    return StreamConfigError(f"Could not parse value '{value}' for key '{_OPTION}'. Set 'key=value,key=value'.{detail}")
