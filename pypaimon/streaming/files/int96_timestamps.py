"""INT96 of Parquet as timestamps: nanoseconds of a day, and the day's number.

Java's rules: docs/java-semantics.md#files.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError

BEYOND_NANOSECONDS = (
    "a timestamp of precision 7 to 9 lies before 1677 or after 2262, where Arrow's nanoseconds end: read without the "
    "column, or alter its type to TIMESTAMP(6)"
)

_SIZE = 12
_PARTS = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_EPOCH = 2_440_588
"""Julian day of 1970-01-01."""
_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6}
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3}
_MOST = (1 << 63) - 1
_DAYS_OF_NANOS = 106_752
"""Days that the nanoseconds may add, whatever they should be."""


def is_int96(stored: pa.DataType, arrow: pa.DataType) -> bool:
    """Whether a column of a file, which is read as a timestamp, is stored as INT96."""
    is_stored_so = pa.types.is_fixed_size_binary(stored) and stored.byte_width == _SIZE
    return bool(is_stored_so and pa.types.is_timestamp(arrow))


def timestamps_of_int96(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """The timestamps, cut towards the past.

    The nanoseconds may be negative, as Java writes them before 1970, or more than those of a day.

    Raises:
        UnsupportedTableError: One is beyond what the type holds.
    """
    if array.null_count == len(array):
        return pa.nulls(len(array), arrow)
    start = array.offset * _SIZE
    content = np.frombuffer(array.buffers()[1] or b"", np.uint8)[start : start + len(array) * _SIZE]
    parts = content.view(_PARTS)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    nanos = np.where(missing, 0, parts["nanos"])
    days = np.where(missing, _EPOCH, parts["day"]).astype(np.int64) - _EPOCH
    unit = "us" if arrow.unit == "ns" else arrow.unit
    per_day = _PER_DAY[unit]
    ticks, rest = np.divmod(nanos, _NANOS[unit])
    fits = np.abs(days) < _MOST // per_day - _DAYS_OF_NANOS
    ticks = np.where(fits, days, 0) * per_day + ticks
    if arrow.unit == "ns":
        # The last microseconds that nanoseconds hold they do not hold whole.
        whole, last = divmod(_MOST, 10**3)
        fits &= (ticks < whole) & (ticks >= -whole) | (ticks == whole) & (rest <= last)
        ticks = np.where(fits, ticks, 0) * 1000 + rest
    if not fits.all():
        raise UnsupportedTableError(BEYOND_NANOSECONDS)
    return pa.array(ticks, pa.int64(), mask=missing).cast(arrow)
