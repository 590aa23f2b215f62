"""`check_years`: dates and times of keys that Python cannot hold; refused before the first row is taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import BadRowError

_DAYS = (-719_162, 2_932_896)
_SECONDS = (-62_135_596_800, 253_402_300_799)
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}


def keys_with_years(table: Any) -> list[str]:
    """Columns of a table whose values decide where rows lie, and which hold dates or times."""
    bucket_key = table.options.options.to_map().get("bucket-key", "").split(",")
    keys = {*table.primary_keys, *table.partition_keys, *(name.strip() for name in bucket_key)}
    return [
        field.name for field in table.fields if field.name in keys and str(field.type).startswith(("DATE", "TIMES"))
    ]


def check_years(batch: pa.RecordBatch, names: Iterable[str], table: str) -> None:
    """Check that columns hold years from 1 to 9999.

    Raises:
        BadRowError: One does not; the message names the column.
    """
    for name in names:
        column = batch.column(name)
        bounds = _bounds(column.type)
        if bounds is None:
            continue
        found = pc.min_max(column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()))
        least, greatest = found["min"].as_py(), found["max"].as_py()
        if least is not None and (least < bounds[0] or greatest > bounds[1]):
            raise BadRowError(
                f"Column '{name}' of {table} decides where rows lie, and a row holds a time outside of the years 1 to "
                "9999 in it: such ones are not written here."
            )


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    """The least and the greatest number of a type; None: all can be held."""
    if pa.types.is_date32(kind):
        return _DAYS
    if not pa.types.is_timestamp(kind) or kind.unit not in _UNITS:
        return None
    unit = _UNITS[kind.unit]
    return _SECONDS[0] * unit, _SECONDS[1] * unit + unit - 1
