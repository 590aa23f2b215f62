"""Columns of blob cells, given out with their blobs or with descriptors: blobs, and lists and maps of blobs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.blob_files import References, cells_of
from pypaimon.streaming.formats.blob_format import Elements, Fetch, Numbers, array_elements, map_elements
from pypaimon.streaming.paimon.internals import DataType
from pypaimon.streaming.reading.blob import BlobFetcher


class BlobArray(Protocol):
    """A column of cells."""

    def sizes(self) -> Numbers:
        """Bytes of the blobs of each row."""

    def values(self, start: int, length: int) -> pa.Array:
        """The blobs of some rows."""

    def descriptors(self) -> pa.Array:
        """All rows as descriptors of pypaimon's current version. Fetches no blob."""


def blob_array(
    array: pa.Array, target: pa.DataType, map_key: DataType | None, fetcher: BlobFetcher, holder: str
) -> BlobArray:
    """Wrap a column of cells. A collection that is stored as one blob has cells of another type than `target`. Raises
    CorruptTableError if a cell is not a descriptor, or points to nothing, UnsupportedTableError if a descriptor points
    outside of the allowed places.
    """
    if not pa.types.is_large_binary(array.type):
        return _Lists(array, blob_array(_flat(array), _value_type(target), None, fetcher, holder))
    found = fetcher.references(array, holder)
    if pa.types.is_large_binary(target):
        return _Blobs(found, fetcher)
    return _Collections(found, target, map_key, fetcher)


class _Blobs:
    def __init__(self, found: References, fetcher: BlobFetcher) -> None:
        self._found = found
        self._fetcher = fetcher

    def sizes(self) -> Numbers:
        return self._found.lengths

    def values(self, start: int, length: int) -> pa.Array:
        return self._fetcher.fetch(self._found.rows(start, length))

    def descriptors(self) -> pa.Array:
        return cells_of(self._found)


class EitherBlobs:
    """Blobs in several stores, with one column per store that is null for the blobs of the others."""

    def __init__(self, arrays: Sequence[BlobArray], length: int) -> None:
        self._arrays = arrays
        self._length = length

    def sizes(self) -> Numbers:
        total: Numbers = np.zeros(self._length, np.int64)
        for each in self._arrays:
            total = total + each.sizes()
        return total

    def values(self, start: int, length: int) -> pa.Array:
        return pc.coalesce(pa.nulls(length, pa.large_binary()), *(each.values(start, length) for each in self._arrays))

    def descriptors(self) -> pa.Array:
        nulls = pa.nulls(self._length, pa.large_binary())
        return pc.coalesce(nulls, *(each.descriptors() for each in self._arrays))


class _Lists:
    def __init__(self, array: pa.Array, elements: BlobArray) -> None:
        self._array = array
        self._elements = elements
        offsets = np.asarray(array.offsets.to_numpy(), np.int64)
        self._offsets = offsets - offsets[0]

    def sizes(self) -> Numbers:
        totals = np.concatenate(([0], np.cumsum(self._elements.sizes())))
        sizes: Numbers = totals[self._offsets[1:]] - totals[self._offsets[:-1]]
        return sizes

    def values(self, start: int, length: int) -> pa.Array:
        first, end = (int(self._offsets[index]) for index in (start, start + length))
        return self._over(start, length, self._elements.values(first, end - first))

    def descriptors(self) -> pa.Array:
        return self._over(0, len(self._array), self._elements.descriptors())

    def _over(self, start: int, length: int, elements: pa.Array) -> pa.Array:
        rows = self._array.slice(start, length)
        first, end = (int(self._offsets[index]) for index in (start, start + length))
        if pa.types.is_map(rows.type):
            keys = _entries(self._array).field(0).slice(first, end - first)
            kind = pa.map_(rows.type.key_type, rows.type.item_field.with_type(elements.type))
            elements = pa.StructArray.from_arrays([keys, elements], fields=[kind.key_field, kind.item_field])
        else:
            kind = pa.list_(rows.type.value_field.with_type(elements.type))
        offsets = pa.py_buffer((self._offsets[start : start + length + 1] - first).astype(np.int32))
        validity = rows.is_valid().buffers()[1] if rows.null_count else None
        return pa.Array.from_buffers(kind, length, [validity, offsets], rows.null_count, children=[elements])


class _Collections:
    """One array or map per row, stored as one blob."""

    def __init__(self, found: References, target: pa.DataType, map_key: DataType | None, fetcher: BlobFetcher) -> None:
        self._found = found
        self._target = target
        self._map_key = map_key
        self._fetcher = fetcher

    def sizes(self) -> Numbers:
        return self._found.lengths

    def values(self, start: int, length: int) -> pa.Array:
        found = self._found.rows(start, length)
        payloads = self._fetcher.fetch(found)
        return self._built(found, lambda row: partial(_part, payloads[row].as_buffer()), _blobs)

    def descriptors(self) -> pa.Array:
        """All rows as descriptors. Fetches the index of each collection, which names the places of its elements."""
        found = self._found

        def fetch(row: int) -> Fetch:
            return partial(self._part, found.places[found.place[row]], int(found.offsets[row]))

        def cells(row: int, elements: Elements, _: Fetch) -> list[bytes | None]:
            place = np.where(elements.lengths < 0, -1, 0)
            start = elements.offsets + found.offsets[row]
            held: list[bytes | None] = cells_of(
                References((found.places[found.place[row]],), place, start, elements.lengths)
            ).to_pylist()
            return held

        return self._built(found, fetch, cells)

    def _part(self, place: str, start: int, offset: int, length: int) -> bytes:
        return self._fetcher.part(place, start + offset, length)

    def _built(
        self,
        found: References,
        fetch_of: Callable[[int], Fetch],
        blobs_of: Callable[[int, Elements, Fetch], list[bytes | None]],
    ) -> pa.Array:
        rows: list[Any] = []
        for row, place in enumerate(found.place.tolist()):
            if place < 0:
                rows.append(None)
                continue
            fetch = fetch_of(row)
            elements = self._elements(found, row, fetch)
            blobs = blobs_of(row, elements, fetch)
            rows.append(blobs if self._map_key is None else list(zip(elements.keys, blobs, strict=True)))
        return pa.array(rows, self._target)

    def _elements(self, found: References, row: int, fetch: Fetch) -> Elements:
        try:
            if self._map_key is None:
                return array_elements(int(found.lengths[row]), fetch)
            return map_elements(int(found.lengths[row]), fetch, self._map_key)
        except (ValueError, struct.error) as error:
            place = found.places[found.place[row]]
            raise CorruptTableError(place, f"the blobs at byte {found.offsets[row]} are damaged: {error}") from error


def _part(payload: pa.Buffer, offset: int, length: int) -> bytes:
    return bytes(payload[offset : offset + length])


def _blobs(_: int, elements: Elements, fetch: Fetch) -> list[bytes | None]:
    spans = zip(elements.offsets.tolist(), elements.lengths.tolist(), strict=True)
    return [None if length < 0 else fetch(offset, length) for offset, length in spans]


def _entries(array: pa.Array) -> pa.Array:
    values = (
        array.values
        if not pa.types.is_map(array.type)
        else pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    )
    offsets = array.offsets
    first = offsets[0].as_py()
    return values.slice(first, offsets[len(offsets) - 1].as_py() - first)


def _flat(array: pa.Array) -> pa.Array:
    entries = _entries(array)
    return entries.field(1) if pa.types.is_map(array.type) else entries


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.item_type if pa.types.is_map(kind) else kind.value_type
