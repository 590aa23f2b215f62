"""Arrow columns as encoded Avro records, a column at a time: no Python object is made of a row or a value.

All values of a column have the same kind of encoding, so byte k of every value is computed at once. Such bytes are held
as `_Bytes`, texts as Arrow has them, and the bytes of each row are brought together at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

_Mask = npt.NDArray[np.bool_]
_OTHER_BRANCH = 2
"""The second branch of the union of a nullable field, as Avro counts it: the first one is null."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A byte of each row, and which rows have it; None: all."""

    values: npt.NDArray[np.uint8]
    held: _Mask | None = None

    def of(self, rows: _Mask) -> _Bytes:
        return _Bytes(self.values, rows if self.held is None else self.held & rows)


_Part = Any
"""A part of each row: `_Bytes`, or an array of bytes, null where it has nothing."""


def encoded_records(columns: list[pa.Array], fields: list[pa.Field], rows: int) -> pa.LargeBinaryArray:
    """The Avro record of each row, in the order of the fields. Arrays must be in the normal form, and have integers for
    dates and times.
    """
    if not rows:
        return pa.array([], pa.large_binary())
    parts: list[_Part] = []
    for column, field in zip(columns, fields, strict=True):
        parts += _field(column, field)
    arrays = list(_arrays(parts, rows))
    if len(arrays) == 1:
        return arrays[0]
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.large_binary()), null_handling="replace")


def _field(column: pa.Array, field: pa.Field) -> Iterator[_Part]:
    if not field.nullable:
        yield from _values(column)
        return
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    yield _Bytes(valid.astype(np.uint8) * _OTHER_BRANCH)
    if not column.null_count:
        yield from _values(column)
        return
    for part in _values(column):
        if isinstance(part, _Bytes):
            yield part.of(valid)
        elif part.null_count:
            yield part  # Texts, which are null in the same rows
        else:
            # pyarrow's `if_else` spoils arrays that do not begin with their memory.
            _, ends, data = part.buffers()
            yield pa.Array.from_buffers(part.type, len(part), [pa.array(valid).buffers()[1], ends, data])


def _values(column: pa.Array) -> Iterator[_Part]:
    """Parts of null rows may hold anything."""
    kind = column.type
    if types.is_boolean(kind):
        yield _Bytes(column.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8))
    elif types.is_integer(kind):
        yield from _long(column.fill_null(0).to_numpy())
    elif types.is_floating(kind):
        numbers = column.fill_null(0).to_numpy()
        yield from map(_Bytes, numbers.view(np.uint8).reshape(len(numbers), -1).T)
    elif types.is_decimal(kind):
        yield from _decimal(column)
    elif types.is_struct(kind):
        yield encoded_records([column.field(at) for at in range(kind.num_fields)], list(kind), len(column))
    elif types.is_list(kind) or types.is_map(kind):
        yield from _items(column)
    else:
        # Refuses texts that are not UTF-8, whose bytes Java would replace.
        column.validate(full=True)
        yield from _long(pc.binary_length(column).fill_null(0).to_numpy())
        yield column.cast(pa.large_binary())


def _long(values: npt.NDArray[Any]) -> Iterator[_Bytes]:
    """Numbers as `avro_container.encoded_long` encodes them."""
    sign_alone = values >> (8 * values.itemsize - 1)
    left = ((values << 1) ^ sign_alone).view(f"u{values.itemsize}")
    held = None
    while True:
        rest = left >> 7
        goes_on = rest != 0
        yield _Bytes(left.astype(np.uint8) & np.uint8(0x7F) | goes_on.view(np.uint8) << 7, held)
        if not goes_on.any():
            return
        left, held = rest, goes_on


def _decimal(column: pa.Array) -> Iterator[_Bytes]:
    """The shortest two's complement of the digits, its highest byte first, after its length."""
    width = column.type.bit_width // 8
    stored = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, width)
    digits = stored[column.offset : column.offset + len(column)].T[::-1]
    negative = digits[0] >> 7
    left_out = np.ones(len(column), np.bool_)
    held: list[_Mask] = []
    for byte, next_one in pairwise(digits):
        # A byte of nothing but the sign, which the byte after it shows too.
        left_out = left_out & (byte == np.uint8(0xFF) * negative) & (next_one >> 7 == negative)
        held.append(~left_out)
    held.append(np.ones(len(column), np.bool_))
    yield from _long(np.asarray(np.sum(held, axis=0, dtype=np.int64)))
    yield from (_Bytes(byte, rows) for byte, rows in zip(digits, held, strict=True) if rows.any())


def _items(column: pa.Array) -> Iterator[_Part]:
    """A list is a block of its elements, a map one of its entries; then, or if there are none, comes an empty block."""
    starts = column.offsets.to_numpy().astype(np.int64)
    first, count = int(starts[0]), int(starts[-1] - starts[0])
    kind = column.type
    if types.is_map(kind):
        parts, fields = [column.keys, column.items], [kind.key_field, kind.item_field]
    else:
        parts, fields = [column.values], [kind.value_field]
    # Elements are encoded next to each other in the order of the lists, so a list ends where its last one does.
    encoded = encoded_records([part.slice(first, count) for part in parts], fields, count)
    ends, data = record_bounds(encoded)
    counts = np.diff(starts)
    yield from _long(counts)
    yield pa.Array.from_buffers(pa.large_binary(), len(column), [None, pa.py_buffer(ends[starts - first]), data])
    yield _Bytes(np.zeros(len(column), np.uint8), counts > 0)


def record_bounds(records: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], Any]:
    """Where each record begins in a buffer, and the last one ends; and that buffer."""
    _, offsets, data = records.buffers()
    return np.frombuffer(offsets, np.int64)[: len(records) + 1], data


def _arrays(parts: list[_Part], rows: int) -> Iterator[pa.LargeBinaryArray]:
    together: list[_Bytes] = []
    for part in parts:
        if isinstance(part, _Bytes):
            together.append(part)
            continue
        if together:
            yield _joined(together, rows)
            together = []
        yield part
    if together or not parts:
        yield _joined(together, rows)


def _joined(parts: list[_Bytes], rows: int) -> pa.LargeBinaryArray:
    values = np.empty((rows, len(parts)), np.uint8)
    held = np.ones((rows, len(parts)), np.bool_)
    sizes = np.zeros(rows, np.int64)
    for at, part in enumerate(parts):
        values[:, at] = part.values
        if part.held is None:
            sizes += 1
        else:
            held[:, at] = part.held
            sizes += part.held
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    data = values.ravel()
    if ends[-1] < data.size:
        data = data[np.flatnonzero(held)]
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])
