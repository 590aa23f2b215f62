"""Values of columns as indexes hold them: whole numbers, or bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.internals import AtomicType
from pypaimon.streaming.model.data_types import root

TEXTS, BYTES = frozenset(("CHAR", "VARCHAR")), frozenset(("BINARY", "VARBINARY"))
NUMBERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME"))
MOMENTS = frozenset(("TIMESTAMP", "TIMESTAMP_LTZ"))
BOOLEAN = frozenset(("BOOLEAN",))


def kind_of(data_type: Any) -> str:
    """The name of a type without its parameters; empty for nested types."""
    return root(data_type) if isinstance(data_type, AtomicType) else ""


def keys_of(values: pa.Array) -> pa.Array:
    """Values of a column as keys: integers, or large binary; null where the value is.

    Moments are milliseconds up to a precision of 3, else microseconds; floats are their bits, with one NaN.

    Args:
        values: They, of an atomic type.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            ticks = values.cast(pa.int64())
            whole = np.floor_divide(pc.fill_null(ticks, 0).to_numpy(), 1000)
            return pa.array(whole, mask=ticks.is_null().to_numpy(zero_copy_only=False))
        return values.cast(pa.timestamp("us" if kind.unit == "us" else "ms", kind.tz)).cast(pa.int64())
    if pa.types.is_floating(kind):
        one = pc.if_else(pc.is_nan(values), pa.scalar(np.nan, kind), values)
        return one.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_time(kind):
        return values.cast(pa.time32("ms")).cast(pa.int32())
    if pa.types.is_date(kind):
        return values.cast(pa.int32())
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    return values if pa.types.is_integer(kind) else values.cast(pa.large_binary())
