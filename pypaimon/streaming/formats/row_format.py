"""Data files of Paimon's format `row`: rows one after the other in compressed blocks, decoded column by column.

A block has its rows, then the offset of each (int32), then their number (int32). A row has a bit for each field, which
is set where the field is null, then the values of the others. Numbers are little-endian. Texts, bytes and long decimals
begin with their length as a varint; an array with its size, then a bit for each element and the elements; a map is the
array of its keys and the array of its values; a vector is its size and its elements. Timestamps are milliseconds and,
above precision 3, the nanoseconds of the last one as a varint.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.formats.codecs import zstd_frame
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.model.arrow_types import arrow_schema, arrow_type, with_arrow_types
from pypaimon.streaming.model.data_types import root
from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataField, DataType, MapType, RowType, VectorType

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_FIXED = {
    "BOOLEAN": "u1",
    "TINYINT": "i1",
    "SMALLINT": "<i2",
    "INT": "<i4",
    "DATE": "<i4",
    "TIME": "<i4",
    "TIME_WITHOUT_TIME_ZONE": "<i4",
    "BIGINT": "<i8",
    "FLOAT": "<f4",
    "DOUBLE": "<f8",
}
_LONG_DECIMAL = 18
_MOST_BYTES = 1 << 30
"""Most bytes of a decompressed block; writers begin a new one at 64 KB."""
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def decode_block(block: bytes, fields: Sequence[DataField], wanted: Sequence[str]) -> pa.RecordBatch:
    """Decode some fields of a block. Raises ValueError if the block is damaged."""
    if len(block) < 4:
        raise ValueError("a block ends before the number of its rows")
    rows = int.from_bytes(block[-4:], "little")
    start = len(block) - 4 - 4 * rows
    if start < 0:
        raise ValueError(f"a block of {len(block)} bytes says that it has {rows} rows")
    positions = np.frombuffer(block, "<i4", rows, start).astype(np.int64)
    cursor = _BlockCursor(np.frombuffer(block, np.uint8, start), positions)
    arrays = cursor.fields(fields, frozenset(wanted))
    return pa.RecordBatch.from_arrays([arrays[name] for name in wanted], names=list(wanted))


class _BlockCursor:
    """Reads the next value of many rows at once, each from its own position in the block."""

    def __init__(self, data: npt.NDArray[np.uint8], positions: Ints) -> None:
        self._data = data
        self.positions = positions

    def fields(self, fields: Sequence[DataField], wanted: frozenset[str] | None = None) -> dict[str, pa.Array]:
        nulls = self._bits(np.full(len(self.positions), len(fields)))
        found: dict[str, pa.Array] = {}
        left = set(wanted if wanted is not None else ())
        for index, field in enumerate(fields):
            if wanted is not None and not left:
                break
            there = ~self._is_set(nulls, np.full(len(nulls), index))
            array = self._where(there, lambda some, kind=field.type: some.value(kind))  # type: ignore[misc]
            if wanted is None or field.name in wanted:
                found[field.name] = array
                left.discard(field.name)
        return found

    def value(self, kind: DataType) -> pa.Array:
        if isinstance(kind, RowType):
            arrays = self.fields(kind.fields)
            target = arrow_type(kind)
            return pa.StructArray.from_arrays([arrays[field.name] for field in target], fields=list(target))
        if isinstance(kind, MapType):
            offsets, keys = self._elements(kind.key, nullable=True)
            others, items = self._elements(kind.value, nullable=True)
            if not np.array_equal(offsets, others):
                raise ValueError("a map has different numbers of keys and values")
            if keys.null_count:
                raise ValueError("a map has a key that is null, which Arrow's maps cannot have")
            return _nested(arrow_type(kind), offsets, [pa.StructArray.from_arrays([keys, items], fields=_entry(kind))])
        if isinstance(kind, ArrayType):
            offsets, values = self._elements(kind.element, nullable=True)
            return _nested(arrow_type(kind), offsets, [values])
        if isinstance(kind, VectorType):
            offsets, values = self._elements(kind.element, nullable=False)
            return _nested(pa.list_(values.type), offsets, [values]).cast(arrow_type(kind))
        assert isinstance(kind, AtomicType)
        return self._atomic(kind)

    def _atomic(self, kind: AtomicType) -> pa.Array:
        name, target = root(kind), arrow_type(kind)
        if name in _FIXED:
            numbers = pa.array(self._fixed(_FIXED[name]))
            return numbers.cast(target) if name != "BOOLEAN" else pa.array(numbers.to_numpy() != 0)
        if name == "VARIANT":
            columns = {"value": self._bytes(), "metadata": self._bytes()}
            return pa.StructArray.from_arrays([columns[field.name] for field in target], fields=list(target))
        if pa.types.is_decimal(target):
            return self._decimal(target)
        if pa.types.is_timestamp(target):
            return self._timestamp(kind, target)
        if pa.types.is_string(target) or pa.types.is_binary(target) or pa.types.is_large_binary(target):
            return self._bytes().cast(target)
        raise ValueError(f"values of type {kind} cannot be decoded")

    def _fixed(self, dtype: str) -> npt.NDArray[Any]:
        width = np.dtype(dtype).itemsize
        self._check(self.positions, width)
        found = self._data[self.positions[:, np.newaxis] + np.arange(width)].reshape(-1)
        self.positions = self.positions + width
        values: npt.NDArray[Any] = found.view(dtype)
        return values

    def _varint(self) -> Ints:
        value, more = np.zeros(len(self.positions), np.int64), np.ones(len(self.positions), np.bool_)
        positions = self.positions.copy()
        for shift in range(0, 35, 7):
            self._check(positions[more], 1)
            byte = self._data[positions[more]].astype(np.int64)
            value[more] |= (byte & 0x7F) << shift
            positions[more] += 1
            more[more] = byte >= 0x80
            if not more.any():
                self.positions = positions
                return value
        raise ValueError("a number of more than five bytes")

    def _bytes(self) -> pa.Array:
        lengths = self._varint()
        starts = self.positions
        self._check(starts, lengths)
        if lengths.sum() > len(self._data):
            raise ValueError("values of a block overlap")
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        self.positions = starts + lengths
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self._data[places])]
        return pa.Array.from_buffers(pa.binary(), len(starts), buffers)

    def _decimal(self, target: pa.Decimal128Type) -> pa.Array:
        if target.precision <= _LONG_DECIMAL:
            low = self._fixed("<i8")
            words = np.stack([low, low >> 63], axis=1)
            return pa.Array.from_buffers(target, len(low), [None, pa.py_buffer(words)])
        values = self._bytes()
        lengths = np.diff(np.frombuffer(values.buffers()[1], np.int32, len(values) + 1))
        if ((lengths < 1) | (lengths > 16)).any():
            raise ValueError("a decimal has not between 1 and 16 bytes")
        data = np.frombuffer(values.buffers()[2], np.uint8)
        ends = np.cumsum(lengths, dtype=np.int64)
        signs = np.where(data[ends - lengths] >= 0x80, 0xFF, 0).astype(np.uint8) if len(ends) else data
        words = np.repeat(signs[:, np.newaxis], 16, axis=1)
        for place in range(16):
            there = lengths > place
            words[there, place] = data[ends[there] - 1 - place]
        return pa.Array.from_buffers(target, len(values), [None, pa.py_buffer(words)])

    def _timestamp(self, kind: AtomicType, target: pa.TimestampType) -> pa.Array:
        millis = self._fixed("<i8").astype(np.int64)
        nanos = np.zeros(len(millis), np.int64) if target.unit in ("s", "ms") else self._varint()
        per_milli = 10**6 // _NANOS[target.unit] if target.unit != "s" else 1
        if (abs(millis.astype(np.float64)) * per_milli >= 2.0**63).any():
            raise ValueError(f"a timestamp does not fit {target}")
        ticks = millis // 1000 if target.unit == "s" else millis * per_milli + nanos // _NANOS[target.unit]
        return pa.array(ticks).cast(pa.timestamp(target.unit)).cast(target)

    def _elements(self, kind: DataType, *, nullable: bool) -> tuple[Ints, pa.Array]:
        """One array for each position: where the elements of each begin and end, and all elements."""
        width = np.dtype(_FIXED[root(kind)]).itemsize if isinstance(kind, AtomicType) and root(kind) in _FIXED else 0
        if not width:
            return self._elements_one_by_one(kind, nullable)
        sizes = self._varint()
        if sizes.sum() > 8 * len(self._data):
            raise ValueError("arrays of a block have more elements than it has bits")
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        there = np.ones(len(owner), np.bool_)
        if nullable:
            there = ~self._is_set(self._bits(sizes)[owner], np.arange(offsets[-1]) - offsets[:-1][owner])
        before = np.concatenate(([0], np.cumsum(there)))
        places = self.positions[owner] + width * (before[:-1] - before[offsets[:-1]][owner])
        values = _BlockCursor(self._data, places)._where(there, lambda some: some.value(kind))
        self.positions = self.positions + width * (before[offsets[1:]] - before[offsets[:-1]])
        return offsets, values

    def _elements_one_by_one(self, kind: DataType, nullable: bool) -> tuple[Ints, pa.Array]:
        """As `_elements`, if the place of an element is only known once the one before it was read."""
        from pypaimon.streaming.paimon.read_internals import RowDecoder, read_row_array, read_row_vector

        block, values, offsets, ends = self._data.tobytes(), [], [0], []
        for position in self.positions.tolist():
            decoder = RowDecoder(block, position)
            try:
                values += (read_row_array if nullable else read_row_vector)(decoder, kind)
            except (struct.error, LookupError, ArithmeticError) as error:
                raise ValueError(f"an array cannot be decoded: {error}") from error
            if decoder.pos > len(block):
                raise ValueError("an array ends outside of its block")
            offsets.append(len(values))
            ends.append(decoder.pos)
        self.positions = np.array(ends, np.int64)
        try:
            return np.array(offsets), pa.array(values, arrow_type(kind))
        except OverflowError as error:
            raise ValueError(f"an array holds a value that is not of type {kind}: {error}") from error

    def _where(self, there: Mask, read: Callable[[_BlockCursor], pa.Array]) -> pa.Array:
        if there.all():
            return read(self)
        some = _BlockCursor(self._data, self.positions[there])
        values = read(some)
        self.positions = self.positions.copy()
        self.positions[there] = some.positions
        return values.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def _bits(self, counts: Ints) -> Ints:
        """Skip the null bits of each position; returns where they begin."""
        starts = self.positions
        self._check(starts, (counts + 7) // 8)
        self.positions = starts + (counts + 7) // 8
        return starts

    def _is_set(self, starts: Ints, index: Ints) -> Mask:
        bits: Mask = (self._data[starts + index // 8] >> (index % 8).astype(np.uint8) & 1).astype(np.bool_)
        return bits

    def _check(self, starts: Ints, lengths: Ints | int) -> None:
        if len(starts) and ((starts < 0).any() or (starts + lengths > len(self._data)).any()):
            raise ValueError("a value is outside of its block")


def _nested(kind: pa.DataType, offsets: Ints, children: list[pa.Array]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=children)


def _entry(kind: MapType) -> list[pa.Field]:
    target = arrow_type(kind)
    return [target.key_field, target.item_field]


class RowFileReader:
    """One file, of which one block is in memory at a time. pypaimon reads its index. The file does not name its
    columns; `fields` are in stored order.
    """

    def __init__(self, stream: Any, fields: Sequence[DataField]) -> None:
        # Late, because it imports all of pypaimon's readers.
        from pypaimon.streaming.paimon.read_internals import FormatRowReader

        self._stream = stream
        self._fields = with_arrow_types(fields)
        self.schema: pa.Schema = arrow_schema(self._fields)
        self._index = FormatRowReader(_OneFile(stream), "", self.schema.names, self._fields, None)
        self.num_rows: int = self._index._total_row_count

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        if isinstance(self._stream, RemoteFile):
            self._stream.will_read([(0, sum(self._index._block_compressed_sizes))])
        for number in range(self._index._block_count):
            block = decode_block(self._block(number), self._fields, list(columns))
            for start in range(0, block.num_rows, batch_size):
                yield block.slice(start, batch_size)

    def _block(self, number: int) -> bytes:
        size = self._index._block_uncompressed_sizes[number]
        if size > _MOST_BYTES:
            raise ValueError(f"block {number} has {size} bytes according to the index")
        self._stream.seek(self._index._block_offsets[number])
        data = self._stream.read(self._index._block_compressed_sizes[number])
        return zstd_frame(bytes(data), size)


class _OneFile:
    """The part of a FileIO that pypaimon's reader uses, for a file that is already open."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> Any:
        return self._stream

    def __exit__(self, *_: object) -> None:
        pass

    def get_file_size(self, _: str) -> int:
        self._stream.seek(0, io.SEEK_END)
        return int(self._stream.tell())

    def new_input_stream(self, _: str) -> _OneFile:
        return self
