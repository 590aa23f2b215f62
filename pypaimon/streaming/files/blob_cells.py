"""Cells: what stands for a blob until its bytes are needed, its serialised descriptor (place, offset, length).

Batches carry cells through filters, merges and joins, so that of rows that are left out no blob is ever fetched.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.formats.blob_format import Numbers
from pypaimon.streaming.internals import BlobDescriptor

_NUMBERS = 16
"""Bytes of offset and length, at the end of a cell that is made here."""

_FILES = 16
"""Files whose cells are told together; those of more are parsed one by one."""


@dataclass(frozen=True, slots=True)
class References:
    """What cells refer to, as columns.

    Attributes:
        places: Distinct URIs.
        place: Index into `places` of each cell; -1 where there is no blob.
        offsets: First byte of each blob in its place.
        lengths: Bytes of each blob, -1 up to the end of its place; 0 where there is none.
    """

    places: tuple[str, ...]
    place: Numbers
    offsets: Numbers
    lengths: Numbers

    def rows(self, start: int, length: int) -> References:
        """Some of them."""
        part = slice(start, start + length)
        return References(self.places, self.place[part], self.offsets[part], self.lengths[part])


def cells_of(references: References) -> pa.LargeBinaryArray:
    """Cells as descriptors of pypaimon's current version, null where there is no blob."""
    prefixes = [np.frombuffer(_prefix(place), np.uint8) for place in references.places]
    sizes = np.array([*(len(prefix) + _NUMBERS for prefix in prefixes), 0], np.int64)[references.place]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    data = np.empty(int(offsets[-1]), np.uint8)
    numbers = np.stack([references.offsets, references.lengths], axis=1).astype("<i8").view(np.uint8)
    for index, prefix in enumerate(prefixes):
        rows = np.flatnonzero(references.place == index)
        starts = offsets[rows][:, np.newaxis]
        data[starts + np.arange(len(prefix))] = prefix
        data[starts + len(prefix) + np.arange(_NUMBERS)] = numbers[rows]
    missing = references.place < 0
    validity = pa.array(~missing).buffers()[1] if missing.any() else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(missing), buffers, int(missing.sum()))


def references_of(cells: pa.Array) -> References:
    """What cells refer to.

    Raises:
        ValueError: One of them is no descriptor.
    """
    missing = cells.is_null().to_numpy(zero_copy_only=False)
    place = np.where(missing, -1, 0)
    offsets, lengths = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int64)
    known: dict[str, int] = {}
    starts, sizes, content = _contents(cells)
    for size in np.unique(sizes[~missing]).tolist():
        rows = np.flatnonzero((sizes == size) & ~missing)
        # Cells of one file differ in their numbers only: all of them are told by the first one.
        for _ in range(_FILES):
            if not len(rows):
                break
            first = content[starts[rows[0]] : starts[rows[0]] + size]
            descriptor = _parsed(bytes(first))
            alike = np.zeros(len(rows), bool)
            alike[0] = True
            if descriptor.serialize() == bytes(first):
                prefix = starts[rows][:, np.newaxis] + np.arange(size - _NUMBERS)
                alike = (content[prefix] == first[: size - _NUMBERS]).all(axis=1)
            found = rows[alike]
            place[found] = known.setdefault(descriptor.uri, len(known))
            if alike.sum() == 1:
                offsets[found], lengths[found] = descriptor.offset, descriptor.length
            else:
                numbers = content[starts[found][:, np.newaxis] + np.arange(size - _NUMBERS, size)]
                offsets[found], lengths[found] = numbers.view("<i8").T
            rows = rows[~alike]
        for row in rows.tolist():
            descriptor = _parsed(bytes(content[starts[row] : starts[row] + size]))
            place[row] = known.setdefault(descriptor.uri, len(known))
            offsets[row], lengths[row] = descriptor.offset, descriptor.length
    if (offsets < 0).any() or (lengths < -1).any():
        raise ValueError("a descriptor of a blob has a negative offset or length")
    return References(tuple(known), place, offsets, lengths)


def _contents(cells: pa.Array) -> tuple[Numbers, Numbers, npt.NDArray[np.uint8]]:
    """Where each cell begins, its bytes, and what both are about."""
    ends = np.frombuffer(cells.buffers()[1], np.int64)[cells.offset : cells.offset + len(cells) + 1]
    return ends[:-1], np.diff(ends), np.frombuffer(cells.buffers()[2] or b"", np.uint8)


def _parsed(cell: bytes) -> BlobDescriptor:
    try:
        descriptor = BlobDescriptor.deserialize(cell)
    except (ValueError, struct.error) as error:
        raise ValueError(f"what is stored of a blob is no descriptor ({error})") from error
    if type(descriptor) is not BlobDescriptor:
        raise ValueError(f"what is stored of a blob is a {type(descriptor).__name__}, which cannot be read")
    return descriptor


def _prefix(place: str) -> bytes:
    return bytes(BlobDescriptor(place, 0, 0).serialize()[:-_NUMBERS])
