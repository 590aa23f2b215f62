"""Thrift's compact protocol, as far as Parquet's footers and page headers need it: bytes to fields, and back.

Fields are known by their numbers in `parquet.thrift`; unknown ones are kept.
"""

from __future__ import annotations

from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
"""Numbers of the types."""

Struct: TypeAlias = dict[int, tuple[int, Any]]
"""Type and value by field number. A list is the type of its items and the items; a map is its types and pairs."""

_SIZES = {BYTE: 1, DOUBLE: 8, UUID: 16}
_INTEGERS = (I16, I32, I64)
_LONGEST_SHORT_LIST = 14
_MOST_SHIFT = 63


def decode(data: bytes, position: int = 0) -> tuple[Struct, int]:
    """Decode a struct; returns it and the position after it.

    Raises:
        ValueError: It is damaged.
    """
    reader = _Reader(data, position)
    try:
        return reader.struct(), reader.position
    except (IndexError, RecursionError) as error:
        raise ValueError("a Thrift struct is cut off, or nested too deeply") from error


def encode(fields: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while header := self._byte():
            # The upper half is the difference from the number before; 0: the number follows.
            delta, kind = header >> 4, header & 15
            number = number + delta if delta else _signed(self._varint())
            fields[number] = kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return _signed(self._varint())
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self._list()
        if kind == MAP:
            return self._map()
        if kind in (TRUE, FALSE):  # inside of a list
            return self._byte()
        if kind in _SIZES:
            return self._bytes(_SIZES[kind])
        raise ValueError(f"unknown Thrift type {kind}")

    def _list(self) -> tuple[int, list[Any]]:
        header = self._byte()
        size, kind = header >> 4, header & 15
        if size > _LONGEST_SHORT_LIST:
            size = self._varint()
        return kind, [self._value(kind) for _ in range(self._checked(size))]

    def _map(self) -> tuple[int, list[tuple[Any, Any]]]:
        size = self._checked(self._varint())
        kinds = self._byte() if size else 0
        return kinds, [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]

    def _checked(self, size: int) -> int:
        # Every item takes at least one byte.
        if size > len(self._data) - self.position:
            raise ValueError("a Thrift list is longer than its struct")
        return size

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _bytes(self, size: int) -> bytes:
        start = self.position
        self.position += self._checked(size)
        return self._data[start : self.position]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > _MOST_SHIFT:
                raise ValueError("a Thrift number is longer than 64 bits")
        return value | byte << shift


def _signed(value: int) -> int:
    """Zigzag: signed numbers alternate around 0, so that small ones stay short."""
    return (value >> 1) ^ -(value & 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(fields.items()):
        delta = number - last
        if 0 < delta < 16:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _unsigned(number))
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_varint(out, _unsigned(value))
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        item_kind, items = value
        short = len(items) <= _LONGEST_SHORT_LIST
        out.append((len(items) if short else 15) << 4 | item_kind)
        if not short:
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, item_kind, item)
    elif kind == MAP:
        kinds, pairs = value
        _write_varint(out, len(pairs))
        if pairs:
            out.append(kinds)
        for key, item in pairs:
            _write_value(out, kinds >> 4, key)
            _write_value(out, kinds & 15, item)
    elif kind in (TRUE, FALSE):
        out.append(value)
    else:
        out += value


def _unsigned(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
