"""Unions of serialized 64-bit bitmaps, byte for byte as Java's `Roaring64Bitmap` makes them.

An empty bitmap is the byte 0. Any other begins with a byte 1. Then come the tree of the upper 48 bits of the values
(`key_tree`), whose leaves are numbers of containers, and the containers of the lower 16 bits: lists, each with its
capacity and that many containers or gaps, then the number of containers and the place of the last one (list, index).

Java appends the containers that only the newer bitmap has, in the order of their keys, and grows a full list by half. A
container that both bitmaps have becomes the smallest of runs, values and bits, as in `_united`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.merge.functions.key_tree import ByteReader, KeyTree

_EMPTY = b"\0"
_LIST = struct.Struct("<Bi")
_CONTAINER = struct.Struct("<BI")
_END = struct.Struct("<qii")
_NOT_TRIMMED = 0xFE
_MOST_VALUES = 4096
"""The most values of a container of values. A larger one is stored as bits."""
_VALUES = 1 << 16

Present = npt.NDArray[np.bool_]


class _Kind(IntEnum):
    RUNS = 0
    BITS = 1
    VALUES = 2


@dataclass(frozen=True, slots=True)
class _Container:
    """Numbers of 16 bits."""

    kind: _Kind
    count: int
    data: bytes

    @staticmethod
    def read(reader: ByteReader) -> _Container:
        kind, count = reader.unpack(_CONTAINER)
        if kind == _Kind.RUNS:
            length = reader.take(2)
            data = length + reader.take(4 * int.from_bytes(length, "little"))
        elif kind == _Kind.BITS:
            data = reader.take(_VALUES // 8)
        elif kind == _Kind.VALUES:
            data = reader.take(2 * count)
        else:
            raise ValueError(f"there is no container of kind {kind}")
        return _Container(_Kind(kind), count, data)

    @staticmethod
    def of(kind: _Kind, present: Present) -> _Container:
        count = int(np.count_nonzero(present))
        if kind is _Kind.BITS:
            return _Container(kind, count, np.packbits(present, bitorder="little").tobytes())
        if kind is _Kind.VALUES:
            return _Container(kind, count, np.flatnonzero(present).astype("<u2").tobytes())
        starts, ends = _runs(present)
        pairs = np.stack([starts, ends - starts - 1], axis=1).astype("<u2")
        return _Container(kind, count, struct.pack("<H", len(starts)) + pairs.tobytes())

    def write(self) -> bytes:
        return b"\1" + _CONTAINER.pack(self.kind, self.count) + self.data

    def present(self) -> Present:
        if self.kind is _Kind.BITS:
            return np.unpackbits(np.frombuffer(self.data, np.uint8), bitorder="little").astype(np.bool_)
        found = np.zeros(_VALUES, dtype=np.bool_)
        if self.kind is _Kind.VALUES:
            found[np.frombuffer(self.data, "<u2")] = True
            return found
        for start, more in np.frombuffer(self.data, "<u2", offset=2).reshape(-1, 2).astype(np.int64):
            found[start : start + more + 1] = True
        return found

    def optimized(self) -> _Container:
        """The same container as runs if that is smaller. Runs stay runs."""
        if self.kind is _Kind.RUNS:
            return self
        present = self.present()
        return _Container.of(_Kind.RUNS, present) if _size_of_runs(present) < len(self.data) else self


def _united(first: _Container, second: _Container) -> _Container:
    """The union of two containers.

    If one is bits, the union is bits. If one is runs, it is the smallest of all kinds. Otherwise it is values, if they
    are few, or bits. At the end it becomes runs if these are smaller.
    """
    present = first.present() | second.present()
    count, kinds = int(np.count_nonzero(present)), {first.kind, second.kind}
    kind = _Kind.VALUES if count <= _MOST_VALUES else _Kind.BITS
    if _Kind.BITS in kinds:
        kind = _Kind.BITS
    elif _Kind.RUNS in kinds and _size_of_runs(present) <= min(_VALUES // 8, 2 * count + 2):
        kind = _Kind.RUNS
    return _Container.of(kind, present).optimized()


def _runs(present: Present) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    changes = np.flatnonzero(np.diff(present, prepend=False, append=False))
    return changes[::2], changes[1::2]


def _size_of_runs(present: Present) -> int:
    return 2 + 4 * len(_runs(present)[0])


class _Bitmap:
    """A bitmap that another one can be merged into."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError if the bytes are not such a bitmap."""
        self.tree = KeyTree()  # The number of each container by the upper bits: list << 32 | index
        self.lists: list[list[_Container | None]] = []  # Containers, and None for gaps
        self.last = (-1, 0)
        self._count = 0
        reader = ByteReader(data)
        if reader.take(1) == _EMPTY:
            return
        self.tree = KeyTree.read(reader)
        (lists,) = reader.unpack(struct.Struct("<i"))
        for _ in range(lists):
            _, capacity = reader.unpack(_LIST)
            self.lists.append([_Container.read(reader) if reader.take(1) == b"\1" else None for _ in range(capacity)])
        self._count, *last = reader.unpack(_END)
        self.last = (last[0], last[1])
        if not 0 <= self.last[0] < lists or self.last[1] < 0:
            raise ValueError(f"there is no list {self.last[0]} of containers")
        for leaf in self.tree.leaves():
            self.container(leaf.number)

    def container(self, number: int) -> _Container:
        place, position = divmod(number, 1 << 32)
        there = 0 <= place < len(self.lists) and position < len(self.lists[place])
        found = self.lists[place][position] if there else None
        if found is None:
            raise ValueError(f"there is no container {number}")
        return found

    def unite(self, other: _Bitmap) -> None:
        for leaf in other.tree.leaves():
            newer, number = other.container(leaf.number), self.tree.find(leaf.key)
            if number is None:
                self.tree.insert(leaf.key, self._add(newer))
            else:
                self.lists[number >> 32][number & 0xFFFFFFFF] = _united(self.container(number), newer)

    def _add(self, container: _Container) -> int:
        place, position = self.last
        if place < 0:
            self.lists.append([None])
            place, position = 0, 0
        else:
            position += 1
        containers = self.lists[place]
        if position >= len(containers):
            capacity = max(position + 1, len(containers) + len(containers) // 2)
            containers += [None] * (capacity - len(containers))
        containers[position] = container
        self.last = (place, position)
        self._count += 1
        return place << 32 | position

    def write(self) -> bytes:
        if not self.tree.size:
            return _EMPTY
        parts = [b"\1", self.tree.write(), struct.pack("<i", len(self.lists))]
        for containers in self.lists:
            parts.append(_LIST.pack(_NOT_TRIMMED, len(containers)))
            parts += [b"\0" if container is None else container.optimized().write() for container in containers]
        return b"".join([*parts, _END.pack(self._count, *self.last)])


def united_bitmaps(accumulated: bytes, value: bytes) -> bytes:
    """The union of two serialized bitmaps.

    Raises:
        ValueError: A value is not such a bitmap.
    """
    bitmap = _Bitmap(accumulated)
    bitmap.unite(_Bitmap(value))
    return bitmap.write()
