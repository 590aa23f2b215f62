"""The tree of keys in a serialized 64-bit bitmap: an adaptive radix tree with Java's growth and layout.

Java's `Roaring64Bitmap` writes the shape of its tree, which depends on the order in which keys were added. So the tree
is kept here as it was read and grows by Java's rules, which makes the bytes equal.

A node is a kind (uint8), its number of children (uint16), the length of its prefix (uint8) and the prefix, then the
index of its children by the next byte of a key: 4 or 16 sorted bytes or 256 places of children, in reversed groups of
up to 8 bytes, or a mask of 256 bits. The children follow in the order of their bytes. A leaf is its key, 6 bytes
big-endian, and a number (int64). Other numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

KEY_BYTES = 6

_NODE_4, _NODE_16, _NODE_48, _NODE_256, _LEAF = range(5)
_CAPACITY = {_NODE_4: 4, _NODE_16: 16, _NODE_48: 48, _NODE_256: 256}
_HEADER = struct.Struct("<BHB")
_LEAF_BODY = struct.Struct("<6sq")
_INDEX_SIZE = {_NODE_4: 4, _NODE_16: 16, _NODE_48: 256, _NODE_256: 32}
_NO_PLACE = 0xFF


class ByteReader:
    """Reads bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if not 0 <= count <= len(self._data) - self._position:
            raise ValueError(f"expected {count} bytes at {self._position} of {len(self._data)}")
        self._position += count
        return self._data[self._position - count : self._position]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next numbers."""
        return layout.unpack(self.take(layout.size))


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
    def read(reader: ByteReader) -> KeyTree:
        """Read a serialized tree, which begins with its number of keys."""
        tree = KeyTree()
        (tree.size,) = reader.unpack(struct.Struct("<q"))
        tree._root = _read(reader, b"")
        if sum(1 for _ in tree.leaves()) != tree.size:
            raise ValueError(f"a tree of {tree.size} keys holds another number of them")
        return tree

    def write(self) -> bytes:
        """The serialized tree."""
        assert self._root is not None
        return struct.pack("<q", self.size) + b"".join(_written(self._root))

    def leaves(self) -> Iterator[KeyLeaf]:
        """All keys, in order."""
        return iter(()) if self._root is None else _leaves(self._root)

    def find(self, key: bytes) -> int | None:
        """The number of a key, or None."""
        node, depth = self._root, 0
        while isinstance(node, _Branch):
            depth += len(node.prefix)
            node = node.children.get(key[depth])
            depth += 1
        return node.number if node is not None and node.key == key else None

    def insert(self, key: bytes, number: int) -> None:
        """Add a new key."""
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


def _read(reader: ByteReader, path: bytes) -> KeyLeaf | _Branch:
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
