"""Data files of Paimon's format `row`, encoded column by column and then put together row by row.

`row_format` describes the layout of a block. A block ends with the row with which it reaches 64 KB. After the blocks
come three lists, with the compressed size, the size and the first row of each, and a footer of 32 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.formats.codecs import varint
from pypaimon.streaming.formats.file_format import WriteSettings

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_BLOCK_BYTES = 64 << 10
_VERSION, _MAGIC = 1, 0x524F5753
_ENCODED_BYTES = 1 << 20
"""Bytes that are encoded at once, about."""
_SHORT = 32
"""Average size of a value up to which values are copied together, which takes 16 bytes for each of theirs."""
_LONG_DECIMAL = 18
_DECIMAL_BYTES = 16
_PER_MILLI = {"us": 10**3, "ns": 10**6}


class RowFileWriter:
    """One file that is being written; see `FormatWriter`. Its compression is always Zstandard, as in Java."""

    def __init__(self, stream: Any, schema: pa.Schema, settings: WriteSettings) -> None:
        import zstandard

        self.schema = schema
        self._stream = stream
        self._compressor = zstandard.ZstdCompressor(level=settings.zstd_level)
        self._open = _NO_ROWS  # The rows of the unfinished block
        self._rows = self._written = 0
        self._stored: list[int] = []
        self._sizes: list[int] = []
        self._firsts: list[int] = []

    def write(self, data: pa.Table) -> None:
        """Add rows."""
        step = max(1, data.num_rows * _ENCODED_BYTES // max(1, data.nbytes))
        for batch in data.to_batches(max_chunksize=step):
            self._add(encoded_rows(batch.columns, batch.num_rows))

    def _add(self, new: _Encoded) -> None:
        sizes = np.concatenate([self._open.sizes, new.sizes])
        content = np.concatenate([self._open.content, new.content])
        ends = np.concatenate(([0], np.cumsum(sizes)))
        # Each row also takes four bytes at the end of its block.
        reached = ends + 4 * np.arange(len(ends))
        first = 0
        while True:
            end = int(np.searchsorted(reached, reached[first] + _BLOCK_BYTES - 4))
            block = _Encoded(sizes[first:end], content[ends[first] : ends[min(end, len(sizes))]])
            if end > len(sizes):
                self._open = block
                return
            self._write_block(block)
            first = end

    def size(self) -> int:
        return self._written + len(self._open.content)

    def close(self) -> None:
        if len(self._open.sizes):
            self._write_block(self._open)
            self._open = _NO_ROWS
        lists = (self._stored, self._sizes, self._firsts)
        index = b"".join(varint(len(each)) + each for each in map(_differences, lists))
        footer = struct.pack("<qiqi", self._rows, len(self._sizes), self._written, len(index))
        self._stream.write(index + footer + struct.pack("<b3xI", _VERSION, _MAGIC))

    def _write_block(self, rows: _Encoded) -> None:
        starts = (np.cumsum(rows.sizes) - rows.sizes).astype("<i4")
        block = b"".join((rows.content.tobytes(), starts.tobytes(), len(starts).to_bytes(4, "little")))
        stored = self._compressor.compress(block)
        self._stream.write(stored)
        self._stored.append(len(stored))
        self._sizes.append(len(block))
        self._firsts.append(self._rows)
        self._rows += len(starts)
        self._written += len(stored)


def _differences(numbers: Sequence[int]) -> bytes:
    """Each number less the one before, whose sign becomes the lowest bit, as a varint."""
    steps = (number - before for before, number in zip([0, *numbers], numbers, strict=False))
    return b"".join(varint(step << 1 if step >= 0 else (-step << 1) - 1) for step in steps)


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The bytes of several values, one after the other."""

    sizes: _Ints
    content: _Bytes

    def spread(self, there: npt.NDArray[np.bool_]) -> _Encoded:
        """With nothing for each value that is not there."""
        sizes = np.zeros(len(there), np.int64)
        sizes[there] = self.sizes
        return _Encoded(sizes, self.content)

    def grouped(self, counts: _Ints) -> _Encoded:
        """With this many values as one."""
        ends = np.concatenate(([0], np.cumsum(self.sizes)))[np.concatenate(([0], np.cumsum(counts)))]
        return _Encoded(np.diff(ends), self.content)


_NO_ROWS = _Encoded(np.empty(0, np.int64), np.empty(0, np.uint8))


def _side_by_side(parts: Sequence[_Encoded]) -> _Encoded:
    """The first values of all parts as one, then the second ones, and so on."""
    sizes = np.array([part.sizes for part in parts]).sum(axis=0)
    content = np.empty(int(sizes.sum()), np.uint8)
    starts = np.cumsum(sizes) - sizes
    for part in parts:
        own = np.cumsum(part.sizes) - part.sizes
        if len(part.content) > _SHORT * len(starts):
            for start, begin, size in zip(starts.tolist(), own.tolist(), part.sizes.tolist(), strict=True):
                content[start : start + size] = part.content[begin : begin + size]
        else:
            content[np.repeat(starts - own, part.sizes) + np.arange(len(part.content))] = part.content
        starts = starts + part.sizes
    return _Encoded(sizes, content)


def encoded_rows(columns: Sequence[pa.Array], count: int) -> _Encoded:
    """The rows of some columns: the bits of their nulls, then their other values."""
    there = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
    missing = np.array([~each for each in there]).reshape(len(columns), count).T
    bits = np.packbits(missing, axis=1, bitorder="little")
    values = [_values(column).spread(each) for column, each in zip(columns, there, strict=True)]
    return _side_by_side([_fixed(bits), *values])


def _values(array: pa.Array) -> _Encoded:
    """The values of an array that are not null."""
    if array.null_count:
        array = array.filter(array.is_valid())
    kind = array.type
    if pa.types.is_struct(kind):
        return encoded_rows([array.field(index) for index in range(kind.num_fields)], len(array))
    if pa.types.is_map(kind):
        sizes, entries = _elements(array)
        return _side_by_side([_list(sizes, entries.field(index)) for index in (0, 1)])
    if pa.types.is_fixed_size_list(kind):
        sizes = np.full(len(array), kind.list_size, np.int64)
        if array.flatten().null_count:
            raise ValueError("a vector holds null")
        return _side_by_side([_varints(sizes), _values(array.flatten()).grouped(sizes)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(*_elements(array))
    return _atoms(array)


def _elements(array: pa.Array) -> tuple[_Ints, pa.Array]:
    offsets = array.offsets.to_numpy().astype(np.int64)
    return np.diff(offsets), array.values.slice(offsets[0], offsets[-1] - offsets[0])


def _list(sizes: _Ints, elements: pa.Array) -> _Encoded:
    """Of each list its size, the bits of its nulls, and its other elements."""
    there = elements.is_valid().to_numpy(zero_copy_only=False)
    lengths = (sizes + 7) // 8
    bits = np.zeros(int(lengths.sum()), np.uint8)
    starts = np.repeat(np.cumsum(lengths) - lengths, sizes)
    places = np.arange(len(there)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    np.bitwise_or.at(bits, (starts + places // 8)[~there], (1 << places[~there] % 8).astype(np.uint8))
    values = _values(elements).spread(there).grouped(sizes)
    return _side_by_side([_varints(sizes), _Encoded(lengths, bits), values])


def _atoms(array: pa.Array) -> _Encoded:
    kind = array.type
    if pa.types.is_boolean(kind):
        return _fixed(array.cast(pa.uint8()).to_numpy())
    if pa.types.is_timestamp(kind):
        return _timestamps(array)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _fixed(array.cast(pa.int32()).to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _fixed(array.to_numpy())
    array = array.cast(pa.large_binary())
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
    content = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    sizes = np.diff(offsets)
    return _side_by_side([_varints(sizes), _Encoded(sizes, content)])


def _fixed(values: npt.NDArray[Any]) -> _Encoded:
    """Numbers, or rows of numbers."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    width = little.dtype.itemsize * (little.shape[1] if little.ndim > 1 else 1)
    return _Encoded(np.full(len(little), width, np.int64), little.reshape(-1).view(np.uint8))


def _varints(values: _Ints) -> _Encoded:
    sizes = np.ones(len(values), np.int64)
    for shift in range(7, 35, 7):
        sizes += values >> shift > 0
    content = np.empty(int(sizes.sum()), np.uint8)
    starts = np.cumsum(sizes) - sizes
    for place in range(5):
        there = sizes > place
        more = np.where(sizes[there] > place + 1, 0x80, 0)
        content[starts[there] + place] = values[there] >> 7 * place & 0x7F | more
    return _Encoded(sizes, content)


def _timestamps(array: pa.TimestampArray) -> _Encoded:
    ticks = array.cast(pa.int64()).to_numpy()
    unit = array.type.unit
    if unit not in _PER_MILLI:
        return _fixed(ticks * (1000 if unit == "s" else 1))
    millis, rest = np.divmod(ticks, _PER_MILLI[unit])
    return _side_by_side([_fixed(millis), _varints(rest * (10**6 // _PER_MILLI[unit]))])


def _decimals(array: pa.Decimal128Array) -> _Encoded:
    start, end = _DECIMAL_BYTES * array.offset, _DECIMAL_BYTES * (array.offset + len(array))
    words = np.frombuffer(array.buffers()[1] or b"", np.uint8)[start:end].reshape(-1, _DECIMAL_BYTES)
    if array.type.precision <= _LONG_DECIMAL:
        return _fixed(words[:, :8])
    # The fewest bytes whose first bit is the sign, the highest byte first.
    sign = np.where(words[:, -1:] >= 0x80, 0xFF, 0)
    places = np.arange(_DECIMAL_BYTES)
    used = np.where(words != sign, places, -1).max(axis=1, keepdims=True, initial=-1)
    highest = np.take_along_axis(words, np.maximum(used, 0), axis=1)
    sizes = np.maximum(used + 1 + ((used >= 0) & ((highest ^ sign) >= 0x80)), 1)
    kept = (places < sizes)[:, ::-1]
    sizes = sizes[:, 0]
    return _side_by_side([_varints(sizes), _Encoded(sizes, words[:, ::-1][kept])])
