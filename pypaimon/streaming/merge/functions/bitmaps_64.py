"""Unions of serialized 64-bit bitmaps, byte for byte as Java's `Roaring64Bitmap` makes them.

An empty bitmap is the byte 0. Any other begins with a byte 1. Then come the tree of the upper 48 bits of the values
(`KeyTree`), whose leaves are numbers of containers, and the containers of the lower 16 bits: lists, each with its
capacity and that many containers or gaps, then the number of containers and the place of the last one (list, index).

Java appends the containers that only the newer bitmap has, in the order of their keys, and grows a full list by half. A
container that both bitmaps have becomes the smallest of runs, values and bits, as in `_united`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.indexes.container import BytesReader

KEY_BYTES = 6

_NODE_4, _NODE_16, _NODE_48, _NODE_256, _LEAF = range(5)
_CAPACITY = {_NODE_4: 4, _NODE_16: 16, _NODE_48: 48, _NODE_256: 256}
_HEADER = struct.Struct("<BHB")
_LEAF_BODY = struct.Struct("<6sq")
_INDEX_SIZE = {_NODE_4: 4, _NODE_16: 16, _NODE_48: 256, _NODE_256: 32}
_NO_PLACE = 0xFF


@dataclass(slots=True)
class KeyLeaf:
    """A key and its number."""

    key: bytes
    number: int


class _Branch:
    """A node with children."""

    __slots__ = ("children", "index", "kind", "prefix")

    def __init__(self, kind: int, prefix: bytes, index: bytearray | None = None) -> None:
        self.kind = kind
        self.prefix = prefix  # Bytes that the keys below have in common, after those of the path to this node
        self.children: dict[int, KeyLeaf | _Branch] = {}
        empty = _NO_PLACE if kind == _NODE_48 else 0
        # With 4 or 16 places: the sorted bytes and the unused rest. With 48: the place of each byte's child.
        self.index = bytearray([empty] * _INDEX_SIZE[kind]) if index is None else index

    def grown(self) -> _Branch:
        if len(self.children) < _CAPACITY[self.kind]:
            return self
        larger = _Branch(self.kind + 1, self.prefix)
        larger.children = self.children
        if larger.kind == _NODE_16:
            larger.index[: len(self.index)] = self.index
        elif larger.kind == _NODE_48:
            for place, byte in enumerate(self.index):
                larger.index[byte] = place
        return larger

    def put(self, byte: int, child: KeyLeaf | _Branch) -> None:
        count = len(self.children)
        if self.kind in (_NODE_4, _NODE_16):
            self.index[count] = byte
            self.index[: count + 1] = sorted(self.index[: count + 1])
        elif self.kind == _NODE_48:
            taken = set(self.index) - {_NO_PLACE}
            self.index[byte] = count if count not in taken else min(set(range(48)) - taken)
        self.children[byte] = child

    def stored_index(self) -> bytes:
        if self.kind == _NODE_256:
            mask = sum(1 << byte for byte in self.children)
            return mask.to_bytes(32, "little")
        return _reversed_groups(bytes(self.index))


class KeyTree:
    """Keys of 6 bytes with a number each."""

    def __init__(self) -> None:
        self.size = 0
        self._root: KeyLeaf | _Branch | None = None

    @staticmethod
    def read(reader: BytesReader) -> KeyTree:
        tree = KeyTree()
        (tree.size,) = reader.unpack(struct.Struct("<q"))
        tree._root = _read(reader, b"")
        if sum(1 for _ in tree.leaves()) != tree.size:
            raise ValueError(f"a tree of {tree.size} keys holds another number of them")
        return tree

    def write(self) -> bytes:
        assert self._root is not None
        return struct.pack("<q", self.size) + b"".join(_written(self._root))

    def leaves(self) -> Iterator[KeyLeaf]:
        return iter(()) if self._root is None else _leaves(self._root)

    def find(self, key: bytes) -> int | None:
        node, depth = self._root, 0
        while isinstance(node, _Branch):
            depth += len(node.prefix)
            node = node.children.get(key[depth])
            depth += 1
        return node.number if node is not None and node.key == key else None

    def insert(self, key: bytes, number: int) -> None:
        self._root = KeyLeaf(key, number) if self._root is None else _inserted(self._root, KeyLeaf(key, number), 0)
        self.size += 1


def _inserted(node: KeyLeaf | _Branch, leaf: KeyLeaf, depth: int) -> _Branch:
    key = leaf.key
    prefix = node.key[depth:] if isinstance(node, KeyLeaf) else node.prefix
    common = next((place for place, byte in enumerate(prefix) if byte != key[depth + place]), len(prefix))
    if isinstance(node, KeyLeaf) or common < len(prefix):
        above = _Branch(_NODE_4, prefix[:common])
        above.put(prefix[common], node)
        above.put(key[depth + common], leaf)
        if isinstance(node, _Branch):
            node.prefix = prefix[common + 1 :]
        return above
    depth += common
    child = node.children.get(key[depth])
    if child is None:
        node = node.grown()
        node.put(key[depth], leaf)
    else:
        node.children[key[depth]] = _inserted(child, leaf, depth + 1)
    return node


def _read(reader: BytesReader, path: bytes) -> KeyLeaf | _Branch:
    kind, count, length = reader.unpack(_HEADER)
    prefix = reader.take(length)
    if kind == _LEAF:
        leaf = KeyLeaf(*_LEAF_BODY.unpack(reader.take(_LEAF_BODY.size)))
        if not leaf.key.startswith(path):
            raise ValueError(f"the key {leaf.key.hex()} is below {path.hex()}")
        return leaf
    if kind not in _CAPACITY or not 0 < count <= _CAPACITY[kind] or len(path) + length >= KEY_BYTES:
        raise ValueError(f"a node of kind {kind} has {count} children and a prefix of {length} bytes")
    stored = reader.take(_INDEX_SIZE[kind])
    index = bytearray(stored if kind == _NODE_256 else _reversed_groups(stored))
    branch = _Branch(kind, prefix, index)
    bytes_of_children = _bytes_of_children(kind, index, count)
    if len(set(bytes_of_children)) != count:
        raise ValueError(f"a node of {count} children has {len(set(bytes_of_children))} of their bytes")
    for byte in bytes_of_children:
        branch.children[byte] = _read(reader, path + prefix + bytes([byte]))
    return branch


def _bytes_of_children(kind: int, index: bytearray, count: int) -> list[int]:
    if kind in (_NODE_4, _NODE_16):
        return list(index[:count])
    if kind == _NODE_48:
        return [byte for byte, place in enumerate(index) if place != _NO_PLACE]
    return [byte for byte in range(256) if index[byte // 8] >> byte % 8 & 1]


def _written(node: KeyLeaf | _Branch) -> Iterator[bytes]:
    if isinstance(node, KeyLeaf):
        yield _HEADER.pack(_LEAF, 0, 0) + _LEAF_BODY.pack(node.key, node.number)
        return
    yield _HEADER.pack(node.kind, len(node.children), len(node.prefix)) + node.prefix + node.stored_index()
    for byte in sorted(node.children):
        yield from _written(node.children[byte])


def _leaves(node: KeyLeaf | _Branch) -> Iterator[KeyLeaf]:
    if isinstance(node, KeyLeaf):
        yield node
        return
    for byte in sorted(node.children):
        yield from _leaves(node.children[byte])


def _reversed_groups(index: bytes) -> bytes:
    """Bytes in reversed groups of eight, or of four for four bytes."""
    size = min(8, len(index))
    return b"".join(index[start : start + size][::-1] for start in range(0, len(index), size))


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
    def read(reader: BytesReader) -> _Container:
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
    """The union of two containers, of the kind that Java's `Roaring64Bitmap` gives it."""
    present = first.present() | second.present()
    count, kinds = int(np.count_nonzero(present)), {first.kind, second.kind}
    kind = _Kind.VALUES if count <= _MOST_VALUES else _Kind.BITS
    # Bits stay bits. With runs it is the smallest of all kinds, otherwise values if they are few.
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
        reader = BytesReader(data)
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
    """The union of two serialized bitmaps. Raises ValueError if a value is not such a bitmap."""
    bitmap = _Bitmap(accumulated)
    bitmap.unite(_Bitmap(value))
    return bitmap.write()
