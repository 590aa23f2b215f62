"""Range bitmaps: a sorted dictionary of the values of a column, and the bit-sliced places of the rows in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from pypaimon.streaming.indexes.bitmap import read_bitmap
from pypaimon.streaming.indexes.column_index import ColumnIndex, Key, KeyType
from pypaimon.streaming.indexes.container import BytesReader

_MOST_SLICES = 64


class BitSlices:
    """Compares the numbers of all rows with one number, bit by bit. `slices` returns the rows in whose number a bit is
    set; bit 0 is the lowest.
    """

    def __init__(self, rows: BitMap, slices: Callable[[int], BitMap], width: int) -> None:
        self.rows = rows
        self._slices = slices
        self._width = width

    def equal(self, number: int) -> BitMap:
        return self._compared(number)[0]

    def above(self, number: int, inclusive: bool) -> BitMap:
        equal, greater = self._compared(number)
        return greater | equal if inclusive else greater

    def below(self, number: int, inclusive: bool) -> BitMap:
        return self.rows - self.above(number, not inclusive)

    def _compared(self, number: int) -> tuple[BitMap, BitMap]:
        """Rows with this number, and with a greater one."""
        if number < 0:
            return BitMap(), BitMap(self.rows)
        if number >> self._width:
            return BitMap(), BitMap()
        equal, greater = BitMap(self.rows), BitMap()
        for bit in reversed(range(self._width)):
            if not equal:
                break
            rows = self._slices(bit)
            if number >> bit & 1:
                equal &= rows
            else:
                greater |= equal & rows
                equal -= rows
        return equal, greater


class BsiIndex(ColumnIndex):
    """Knows nulls, equal values and ranges of integers; those below zero are held by their absolute values."""

    def __init__(self, data: bytes, keys: KeyType) -> None:
        if keys.is_floating or keys.code is None:
            raise ValueError("a bit-sliced index of values that are not integers")
        reader = BytesReader(data)
        reader.version(1)
        self.row_count = reader.length()
        self._positive = _Side(reader if reader.flag() else None)
        self._negative = _Side(reader if reader.flag() else None)

    def valid(self) -> BitMap | None:
        return self._positive.slices.rows | self._negative.slices.rows

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        return BitMap.union(BitMap(), *(self._equal(int(key)) for key in keys))

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        number = int(key)
        if number < 0:
            return self._positive.slices.rows | self._negative.below(-number, inclusive)
        return self._positive.above(number, inclusive)

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        number = int(key)
        if number < 0:
            return self._negative.above(-number, inclusive)
        return self._negative.slices.rows | self._positive.below(number, inclusive)

    def _equal(self, number: int) -> BitMap:
        return self._negative.equal(-number) if number < 0 else self._positive.equal(number)


class _Side:
    """The absolute values of the numbers of one sign, minus the smallest of them."""

    def __init__(self, reader: BytesReader | None) -> None:
        self._base = 0
        slices: list[BitMap] = []
        rows = BitMap()
        if reader is not None:
            reader.version(1)
            self._base = reader.number("q")
            reader.number("q")
            rows = read_bitmap(reader)
            count = reader.length()
            if count > _MOST_SLICES:
                raise ValueError(f"a bit-sliced index has {count} slices")
            slices = [read_bitmap(reader) for _ in range(count)]
        self.slices = BitSlices(rows, slices.__getitem__, len(slices))

    def equal(self, number: int) -> BitMap:
        return self.slices.equal(number - self._base)

    def above(self, number: int, inclusive: bool) -> BitMap:
        return self.slices.above(number - self._base, inclusive)

    def below(self, number: int, inclusive: bool) -> BitMap:
        return self.slices.below(number - self._base, inclusive)


_ENTRY_BYTES = 8


class RangeBitmapIndex(ColumnIndex):
    """Knows nulls, equal values and ranges."""

    def __init__(self, data: bytes, keys: KeyType) -> None:
        self._keys = keys
        reader, header_end = _header(data, 0)
        reader.version(1)
        self.row_count = reader.length()
        self._slices = BitSlices(BitMap(), lambda _: BitMap(), 0)
        self._chunks: list[_Chunk] = []
        if reader.length():
            # The smallest and the greatest key, which the dictionary knows too.
            keys.read(reader), keys.read(reader)
            slices_start = header_end + reader.length()
            self._chunks = _chunks(data, header_end, keys)
            self._slices = _bit_slices(data, slices_start)

    def valid(self) -> BitMap | None:
        return BitMap(self._slices.rows)

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        places = (self._place(key) for key in keys)
        return BitMap.union(BitMap(), *(self._slices.equal(place) for place, is_there in places if is_there))

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        place, is_there = self._place(key)
        return self._slices.above(place, inclusive or not is_there)

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        place, is_there = self._place(key)
        return self._slices.below(place, inclusive and is_there)

    def _place(self, key: Key) -> tuple[int, bool]:
        """The place of the first key that is not less than this one, and whether it is this one."""
        order = self._keys.order
        index = bisect_right(self._chunks, order(key), key=lambda chunk: order(chunk.first)) - 1
        if index < 0:
            return 0, False
        chunk = self._chunks[index]
        known = [order(each) for each in chunk.keys(self._keys)]
        within = bisect_left(known, order(key))
        return chunk.place + within, within < len(known) and known[within] == order(key)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Consecutive keys of a dictionary."""

    first: Key
    place: int
    content: BytesReader
    count: int
    offsets: int  # Bytes before the other keys for their offsets; 0 for keys of fixed length

    def keys(self, keys: KeyType) -> list[Key]:
        reader = BytesReader(self.content.data, self.content.position + self.offsets)
        return [self.first, *(keys.read(reader) for _ in range(self.count))]


def _header(data: bytes, start: int) -> tuple[BytesReader, int]:
    reader = BytesReader(data, start)
    length = reader.length()
    end = reader.position + length
    reader.take(length)
    return BytesReader(data[:end], start + 4), end


def _chunks(data: bytes, start: int, keys: KeyType) -> list[_Chunk]:
    header, body = _header(data, start)
    header.version(1)
    count, offsets_length, chunks_length = header.length(), header.length(), header.length()
    content = body + offsets_length + chunks_length
    reader = BytesReader(data[:content], body + offsets_length)
    return [_chunk(reader, data, content, keys) for _ in range(count)]


def _chunk(reader: BytesReader, data: bytes, content: int, keys: KeyType) -> _Chunk:
    reader.version(1)
    first, place, start, count = keys.read(reader), reader.length(), reader.length(), reader.length()
    # The length of the keys, before it the length of their offsets if they are not of fixed length.
    lengths = reader.length(), reader.length()
    return _Chunk(first, place, BytesReader(data, content + start), count, lengths[0] if keys.code is None else 0)


def _bit_slices(data: bytes, start: int) -> BitSlices:
    header, body = _header(data, start)
    header.version(1)
    width, rows_length, entries_length = header.number("B"), header.length(), header.length()
    if entries_length != width * _ENTRY_BYTES:
        raise ValueError(f"{width} slices have {entries_length} bytes of offsets")
    offsets = [(header.length(), header.length())[0] for _ in range(width)]

    def rows_of(bit: int) -> BitMap:
        return read_bitmap(BytesReader(data, body + rows_length + offsets[bit]))

    return BitSlices(read_bitmap(BytesReader(data, body)), rows_of, width)
