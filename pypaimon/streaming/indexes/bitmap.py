"""Bitmap indexes, versions 1 and 2: for each value of a column the rows that have it."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.indexes.column_index import ColumnIndex, Key, KeyType
from pypaimon.streaming.indexes.container import BytesReader
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_OFFSETS_FROM = 4
"""From this many containers on, a bitmap with runs has their offsets."""

_MOST_IN_ARRAY = 4096
_BITSET_BYTES = 8192
_MOST_CONTAINERS = 1 << 16
_Numbers = npt.NDArray[np.int64]
_CODES = {pa.int8(): ">b", pa.int16(): ">h", pa.int32(): ">i", pa.int64(): ">q"}
_BLOCK_BYTES = 16 << 10
_NO_LENGTH = -1


def read_bitmap(reader: BytesReader) -> BitMap:
    """Read a bitmap in Roaring's portable format. It is checked here: pyroaring trusts its bytes. Raises ValueError if
    the bitmap is damaged.
    """
    start = reader.position
    cookie = int.from_bytes(reader.take(4), "little")
    runs = np.zeros(0, dtype=np.bool_)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(reader.take((count + 7) // 8), dtype=np.uint8)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(np.bool_)
    elif cookie == _WITHOUT_RUNS:
        count = int.from_bytes(reader.take(4), "little")
        if count > _MOST_CONTAINERS:
            raise ValueError(f"a bitmap has {count} containers")
        runs = np.zeros(count, dtype=np.bool_)
    else:
        raise ValueError(f"a bitmap starts with {cookie}, an unknown format")
    keys, sizes = _shorts(reader, 2 * count).reshape(count, 2).T
    _check_ascending(keys)
    if cookie == _WITHOUT_RUNS or count >= _OFFSETS_FROM:
        reader.take(4 * count)
    for size, is_run in zip((sizes + 1).tolist(), runs.tolist(), strict=True):
        _check_container(reader, size, is_run)
    return BitMap.deserialize(reader.data[start : reader.position])


def _check_container(reader: BytesReader, size: int, is_run: bool) -> None:
    if is_run:
        pairs = _shorts(reader, 2 * int(_shorts(reader, 1)[0])).reshape(-1, 2)
        starts, ends = pairs[:, 0], pairs.sum(axis=1)
        if np.any(starts[1:] <= ends[:-1]) or np.any(ends > 0xFFFF) or int((ends - starts + 1).sum()) != size:
            raise ValueError("the runs of a bitmap overlap, or have a wrong number of rows")
    elif size <= _MOST_IN_ARRAY:
        _check_ascending(_shorts(reader, size))
    elif int(np.unpackbits(np.frombuffer(reader.take(_BITSET_BYTES), dtype=np.uint8)).sum()) != size:
        raise ValueError("a bitmap has a wrong number of rows")


def _check_ascending(numbers: _Numbers) -> None:
    if np.any(numbers[1:] <= numbers[:-1]):
        raise ValueError("the rows of a bitmap are not ascending")


def _shorts(reader: BytesReader, count: int) -> _Numbers:
    return np.frombuffer(reader.take(2 * count), dtype="<u2").astype(np.int64)


class BitmapIndex(ColumnIndex):
    """Knows nulls, and the rows of each value.

    Version 1 lists all values with the offsets of their bitmaps. Version 2 lists them in sorted blocks, of which only
    the ones that can hold a key are read.
    """

    row_count: int

    def __init__(self, data: bytes, keys: KeyType) -> None:
        self._data = data
        self._keys = keys
        reader = BytesReader(data)
        version = reader.version(1, 2)
        self.row_count = reader.length()
        values = reader.length()
        self._null_offset = None
        if reader.flag():
            self._null_offset = reader.int32()
            if version == 2:
                reader.length()
        self._blocks: list[tuple[Key, int]] = []
        self._offsets: dict[Key, int] = {}
        if version == 1:
            self._offsets = {_named(keys.read(reader)): reader.int32() for _ in range(values)}
            self._body = reader.position
            return
        self._blocks = [(keys.read(reader), reader.length()) for _ in range(reader.length())]
        length = reader.length()
        self._first_block = reader.position
        self._body = self._first_block + length

    def valid(self) -> BitMap | None:
        nulls = BitMap() if self._null_offset is None else self._bitmap(self._null_offset)
        return BitMap(range(self.row_count)) - nulls

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        offsets = (self._offset(key) for key in keys)
        return BitMap.union(BitMap(), *(self._bitmap(offset) for offset in offsets if offset is not None))

    def _offset(self, key: Key) -> int | None:
        order = self._keys.order
        starts = [start for first, start in self._blocks if order(first) <= order(key)]
        if not starts:
            return self._offsets.get(_named(key))
        reader = BytesReader(self._data[: self._body], self._first_block + starts[-1])
        for _ in range(reader.length()):
            found, offset = self._keys.read(reader), reader.int32()
            reader.int32()
            if _named(found) == _named(key):
                return offset
        return None

    def _bitmap(self, offset: int) -> BitMap:
        """The rows at an offset. A negative offset is itself the number of a single row."""
        return BitMap([-1 - offset]) if offset < 0 else read_bitmap(BytesReader(self._data, self._body + offset))


def _named(key: Key) -> Key:
    # As a key of a dict NaN differs from itself, and -0.0 equals 0.0.
    return str(key).encode() if isinstance(key, float) else key


@dataclass(frozen=True, slots=True)
class _Entry:
    """The rows of a value: an offset in the body, or a negative number for a single row."""

    key: bytes
    offset: int
    length: int

    def written(self, version: int) -> bytes:
        return self.key + (struct.pack(">i", self.offset) if version == 1 else self._with_length())

    def _with_length(self) -> bytes:
        return struct.pack(">ii", self.offset, self.length)


class BitmapIndexWriter:
    """Makes the index of one column of one file, by the options `version` and `index-block-size`. Raises
    StreamConfigError if an option is invalid.
    """

    def __init__(self, options: TableOptions, floats: bool) -> None:
        self._version = option_keys.FILE_INDEX_BITMAP_VERSION.last.of(options)
        if self._version not in (1, 2):
            raise StreamConfigError(f"'file-index.bitmap': expected version 1 or 2, got {self._version}.")
        self._block_bytes = option_keys.FILE_INDEX_BITMAP_INDEX_BLOCK_SIZE.last.of(options)
        self._floats = floats
        self._keys: list[pa.Array] = []

    def add(self, keys: pa.Array) -> None:
        self._keys.append(keys)

    def data(self) -> bytes:
        found = pa.chunked_array(self._keys).combine_chunks().dictionary_encode()
        distinct: pa.Array = found.dictionary
        nulls = np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))
        body: list[bytes] = []
        null_data = serialized(nulls)
        if len(nulls) > 1:
            body.append(null_data)
        place = sum(map(len, body))
        entries = []
        for key, rows in zip(serialized_keys(distinct), self._rows(found, distinct), strict=True):
            if len(rows) == 1:
                entries.append(_Entry(key, -1 - int(rows[0]), _NO_LENGTH))
                continue
            body.append(serialized(rows))
            entries.append(_Entry(key, place, len(body[-1])))
            place += len(body[-1])
        head = struct.pack(">bii?", self._version, len(found), len(entries), len(nulls) > 0)
        if len(nulls):
            head += struct.pack(">i", -1 - int(nulls[0]) if len(nulls) == 1 else 0)
            head += struct.pack(">i", len(null_data)) if self._version == 2 else b""
        ordered = [entries[number] for number in places_in_order(distinct, floats=self._floats).tolist()]
        listed = b"".join(entry.written(1) for entry in ordered) if self._version == 1 else self._blocks(ordered)
        return head + listed + b"".join(body)

    def _rows(self, found: pa.DictionaryArray, distinct: pa.Array) -> Iterator[npt.NDArray[np.int64]]:
        codes = pc.fill_null(found.indices, len(distinct)).to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(distinct)), side="right")
        return (order[first:end] for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False))

    def _blocks(self, entries: list[_Entry]) -> bytes:
        blocks: list[list[_Entry]] = []
        size = self._block_bytes
        for entry in entries:
            more = len(entry.key) + 8
            if not blocks or size + more > self._block_bytes:
                blocks.append([])
                size = 4
            blocks[-1].append(entry)
            size += more
        written = [struct.pack(">i", len(block)) + b"".join(entry.written(2) for entry in block) for block in blocks]
        offsets = np.cumsum([0, *map(len, written)]).tolist()
        firsts = [block[0].key + struct.pack(">i", offset) for block, offset in zip(blocks, offsets, strict=False)]
        head = struct.pack(">i", len(blocks)) + b"".join(firsts) + struct.pack(">i", offsets[-1])
        return head + b"".join(written)


def places_in_order(distinct: pa.Array, *, floats: bool) -> npt.NDArray[np.int64]:
    """The places of values (as of `keys_of`), as Java sorts them: texts by their bytes, -0.0 before 0.0, NaN last."""
    if floats:
        bits = distinct.to_numpy()
        distinct = pa.array(np.where(bits >= 0, bits, ~bits ^ np.iinfo(bits.dtype).min))
    order: npt.NDArray[np.int64] = pc.sort_indices(distinct).to_numpy().astype(np.int64)
    return order


def serialized_keys(distinct: pa.Array) -> Iterator[bytes]:
    """The bytes of keys, as `KeyType.read` reads them."""
    code = _CODES.get(distinct.type)
    pack: Callable[..., bytes] = struct.Struct(code).pack if code else _text_bytes
    return (pack(key) for key in distinct.to_pylist())


def _text_bytes(key: bytes) -> bytes:
    return struct.pack(">i", len(key)) + key


def serialized(rows: npt.NDArray[np.int64]) -> bytes:
    """A bitmap of rows in Roaring's portable format, as Java's writers make it."""
    found = BitMap(array("I", rows.astype(np.uint32).tobytes()))
    found.run_optimize()
    data: bytes = found.serialize()
    return data
