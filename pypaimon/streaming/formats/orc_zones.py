"""Timestamps of ORC files as their writer meant them, whose time zone is in the footers of the stripes.

ORC stores a TIMESTAMP without zone as the moment at which clocks of the writer show it, in seconds from the beginning
of 2015 there. Java's Paimon makes a TIMESTAMP WITH LOCAL TIME ZONE such a moment too, as if clocks of the writer showed
the time that it has in UTC. Both are read here by `java.util.TimeZone`, which knows no offsets before 1900.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.io.binary_file import BinaryFile
from pypaimon.streaming.model.arrow_types import map_entries
from pypaimon.streaming.model.time_zone import PER_SECOND, TimeZone

ORC_EPOCH = 1_420_070_400
"""2015-01-01 in seconds: what ORC counts timestamps from."""
_1900 = -2_208_988_800
# Moments of winter and summer, whose lesser offset is that of the zone without daylight saving.
_SEASONS = np.array([2_208_988_800, 2_224_713_600])
Seconds = npt.NDArray[np.int64]


def shown_by_java(zone: TimeZone, moments: Seconds) -> Seconds:
    """What clocks of a zone show at moments, both in seconds since 1970."""
    return moments + _offsets(zone, moments)


def meant_by_java(zone: TimeZone, clocks: Seconds) -> Seconds:
    """The other way round; times that clocks skip are moved."""
    kind = pa.timestamp("s")
    moments = zone.moments(pa.array(clocks).cast(kind)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    early = clocks - _standard(zone)
    return np.where(early < _1900, early, moments)


def _offsets(zone: TimeZone, moments: Seconds) -> Seconds:
    return np.where(moments < _1900, _standard(zone), zone.offsets(moments))


def _standard(zone: TimeZone) -> int:
    return int(zone.offsets(_SEASONS).min())


def in_zones(array: pa.Array, kind: pa.DataType, clocks: TimeZone | None, local: TimeZone | None) -> pa.Array:
    """A column as its writer meant it.

    Args:
        array: The column, its timestamps without zone read as if they were moments, where `clocks` is given.
        kind: The type that it comes to have.
        clocks: The writer's zone, for timestamps without zone; None: they are right.
        local: Likewise for those with local time zone.
    """

    def meant(leaf: pa.Array, has_zone: bool) -> pa.Array:
        if not has_zone:
            return leaf if clocks is None else _clocks(leaf, clocks)
        return leaf if local is None else moved(leaf, _offsets(local, split(leaf)[0]))

    return with_timestamps(array, kind, meant)


def holds_timestamps(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, one of timestamps."""
    if pa.types.is_nested(kind):
        return any(holds_timestamps(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind))


def with_timestamps(array: pa.Array, kind: pa.DataType, turned: Callable[[pa.Array, bool], pa.Array]) -> pa.Array:
    """A column with other timestamps in it.

    Args:
        array: The column.
        kind: The type that it comes to have.
        turned: From timestamps, and whether they have a zone, to those in their place.
    """
    if pa.types.is_timestamp(kind):
        return turned(array, kind.tz is not None)
    if not holds_timestamps(kind):
        return array
    if pa.types.is_struct(kind):
        children = [with_timestamps(*each, turned) for each in zip(array.flatten(), _types(kind), strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        keys = with_timestamps(array.keys, kind.key_type, turned)
        values = map_entries(kind, keys, with_timestamps(array.items, kind.item_type, turned))
    else:
        values = with_timestamps(array.values, kind.value_type, turned)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children=[values])


def _types(kind: pa.StructType) -> list[pa.DataType]:
    return [field.type for field in kind]


def _clocks(array: pa.Array, zone: TimeZone) -> pa.Array:
    seconds, is_late = split(array)
    # As they are stored: of a fraction before 1970 the second is the one after it, and Arrow has undone that for UTC.
    stored = seconds + (is_late & (seconds < 0))
    moments = stored - ORC_EPOCH + base_of(zone)
    moments -= is_late & (moments < 0)
    found = moved(array, shown_by_java(zone, moments) - seconds)
    return found.cast(pa.timestamp(array.type.unit))


def base_of(zone: TimeZone) -> int:
    """The beginning of 2015 in a zone, from which its writers count."""
    return int(meant_by_java(zone, np.array([ORC_EPOCH]))[0])


def split(array: pa.Array) -> tuple[Seconds, npt.NDArray[np.bool_]]:
    """Seconds of timestamps, and whether their fraction is one that ORC moves before 1970: of a millisecond or more."""
    per_second = PER_SECOND[array.type.unit]
    ticks = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    seconds, fraction = np.divmod(ticks, per_second)
    return seconds, fraction * 1000 >= per_second


def moved(array: pa.Array, seconds: Seconds) -> pa.Array:
    """Timestamps so many seconds later."""
    return pc.add_checked(array.cast(pa.int64()), pa.array(seconds * PER_SECOND[array.type.unit])).cast(array.type)


class WithEnd(BinaryFile):
    """A file whose end is another one, and parts of which are read otherwise.

    Args:
        stream: The file, which can seek.
        start: Where the other end begins.
        end: It.
        parts: What reads give that begin at a place, by the place.
    """

    def __init__(self, stream: Any, start: int, end: bytes, parts: Mapping[int, bytes] | None = None) -> None:
        self._stream = stream
        self._start = start
        self._end = end
        self._parts = parts or {}
        self._position = 0
        super().__init__()

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes from the position on, fewer only at the end; without a number all."""
        whole = self._start + len(self._end)
        length = whole if size is None or size < 0 else size
        data = self._parts.get(self._position, b"")
        if length > len(data):
            # Whoever asks for more does not ask for this part.
            data = self._read(self._position, min(whole, self._position + length))
        data = data[:length]
        self._position += len(data)
        return data

    def _read(self, start: int, stop: int) -> bytes:
        data = b""
        if start < min(stop, self._start):
            self._stream.seek(start)
            data = bytes(self._stream.read(min(stop, self._start) - start))
        if stop > self._start:
            data += self._end[max(0, start - self._start) : stop - self._start]
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns it."""
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._start + len(self._end)}
        self._position = offset + before[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def close(self) -> None:
        """The file stays open, for whoever opened it."""
        self.closed = True
