"""Timestamps of ORC files in the time zone of their writer, which the footers of the stripes name.

ORC stores a TIMESTAMP without zone as the moment at which clocks of the writer show it, in seconds since 2015-01-01
00:00 of those clocks. Java's Paimon stores TIMESTAMP WITH LOCAL TIME ZONE in this way too, as if clocks of the writer
showed the time that the value has in UTC. Both follow `java.util.TimeZone`, which knows no offsets before 1900.
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
from pypaimon.streaming.model.arrow_types import leaf_types, map_entries
from pypaimon.streaming.model.time_zone import PER_SECOND, TimeZone

ORC_EPOCH = 1_420_070_400
"""2015-01-01 in seconds since 1970, from which ORC counts timestamps."""
_1900 = -2_208_988_800
# January and July of 2040: the lesser of their offsets is the zone's without daylight saving.
_SEASONS = np.array([2_208_988_800, 2_224_713_600])
Seconds = npt.NDArray[np.int64]


def shown_by_java(zone: TimeZone, moments: Seconds) -> Seconds:
    """The local times that a zone has at moments, both in seconds since 1970."""
    return moments + _offsets(zone, moments)


def meant_by_java(zone: TimeZone, clocks: Seconds) -> Seconds:
    """The moments of local times; times that clocks skip are moved."""
    kind = pa.timestamp("s")
    moments = zone.moments(pa.array(clocks).cast(kind)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    early = clocks - _standard(zone)
    return np.where(early < _1900, early, moments)


def _offsets(zone: TimeZone, moments: Seconds) -> Seconds:
    return np.where(moments < _1900, _standard(zone), zone.offsets(moments))


def _standard(zone: TimeZone) -> int:
    return int(zone.offsets(_SEASONS).min())


def in_zones(array: pa.Array, kind: pa.DataType, clocks: TimeZone | None, local: TimeZone | None) -> pa.Array:
    """Correct a column for the zone of its writer: timestamps without zone by `clocks`, which were read as if they were
    moments, those with local time zone by `local`. None: they are right.
    """

    def meant(leaf: pa.Array, has_zone: bool) -> pa.Array:
        if not has_zone:
            return leaf if clocks is None else _clocks(leaf, clocks)
        return leaf if local is None else moved(leaf, _offsets(local, split(leaf)[0]))

    return with_timestamps(array, kind, meant)


def with_timestamps(array: pa.Array, kind: pa.DataType, turned: Callable[[pa.Array, bool], pa.Array]) -> pa.Array:
    """Replace the timestamps in a column, at any depth. `turned` makes the new ones of the old ones, given whether they
    have a zone.
    """
    if pa.types.is_timestamp(kind):
        return turned(array, kind.tz is not None)
    if not any(map(pa.types.is_timestamp, leaf_types(kind))):
        return array
    if pa.types.is_map(kind):
        kinds = [kind.key_type, kind.item_type]
    else:
        kinds = [field.type for field in kind] if pa.types.is_struct(kind) else [kind.value_type]
    pairs = zip(children(array), kinds, strict=True)
    return with_children(array, kind, [with_timestamps(*pair, turned) for pair in pairs])


def children(array: pa.Array) -> list[pa.Array]:
    """The fields of rows, the keys and values of maps, or the elements of lists; none if the array is not nested."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    return [array.values] if pa.types.is_list(array.type) else []


def with_children(array: pa.Array, kind: pa.DataType, parts: list[pa.Array]) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    values = map_entries(kind, *parts) if pa.types.is_map(kind) else parts[0]
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children=[values])


def _clocks(array: pa.Array, zone: TimeZone) -> pa.Array:
    seconds, is_late = split(array)
    # Before 1970 ORC rounds the second of a fraction up, towards 1970. Arrow has undone that for UTC.
    stored = seconds + (is_late & (seconds < 0))
    moments = stored - ORC_EPOCH + base_of(zone)
    moments -= is_late & (moments < 0)
    found = moved(array, shown_by_java(zone, moments) - seconds)
    return found.cast(pa.timestamp(array.type.unit))


def base_of(zone: TimeZone) -> int:
    """The beginning of 2015 in a zone, from which writers there count."""
    return int(meant_by_java(zone, np.array([ORC_EPOCH]))[0])


def split(array: pa.Array) -> tuple[Seconds, npt.NDArray[np.bool_]]:
    """Seconds of timestamps, and whether they have a fraction (of 1 ms or more) that ORC rounds up before 1970."""
    per_second = PER_SECOND[array.type.unit]
    ticks = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    seconds, fraction = np.divmod(ticks, per_second)
    return seconds, fraction * 1000 >= per_second


def moved(array: pa.Array, seconds: Seconds) -> pa.Array:
    return pc.add_checked(array.cast(pa.int64()), pa.array(seconds * PER_SECOND[array.type.unit])).cast(array.type)


class WithEnd(BinaryFile):
    """A file with some of its bytes replaced, without a copy of it: its end, and `parts`, by the position at which a
    read of exactly that piece begins.
    """

    def __init__(self, stream: Any, start: int, end: bytes, parts: Mapping[int, bytes] | None = None) -> None:
        self._stream = stream
        self._start = start
        self._end = end
        self._parts = parts or {}
        self._position = 0
        super().__init__()

    def read(self, size: int | None = -1) -> bytes:
        """Bytes from the position on, fewer than asked for only at the end; all bytes without a size."""
        whole = self._start + len(self._end)
        length = whole if size is None or size < 0 else size
        data = self._parts.get(self._position, b"")
        if length > len(data):
            # A read of more bytes is not a read of this piece.
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
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._start + len(self._end)}
        self._position = offset + before[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """The underlying file stays open."""
        self.closed = True
