"""Which partitions are compacted, by values of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.internals import AtomicType


def partition_values(table: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values as partitions have them; texts are read as values of their column.

    Raises:
        StreamConfigError: There is no such partition column, or a text is no value of it.
    """
    fields = {field.name: field for field in table.partition_keys_fields}
    unknown = sorted(set(given) - set(fields))
    if unknown:
        among = f"one of {', '.join(fields)}" if fields else "none, for the table has no partitions"
        raise StreamConfigError(f"Partition column: expected {among}, got {', '.join(map(repr, unknown))}.")
    return {name: _value(fields[name], value) for name, value in given.items()}


def _value(field: Any, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return cast(AtomicType("STRING"), field.type, exact=True)(pa.array([given]))[0].as_py()
    except CastError as error:
        raise StreamConfigError(f"Partition column '{field.name}' ({field.type}): {error}.") from error
