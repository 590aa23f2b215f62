"""`BucketKeys` and `key_hashes`: the bucket of each row as Paimon computes it: of its key's hash, or its remainder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filter_internals import hash_words
from pypaimon.streaming.internals import GenericRow, GenericRowSerializer, PyarrowFieldParser
from pypaimon.streaming.options.table_traits import BucketFunctionType, bucket_function_of

_Words = npt.NDArray[np.uint32]
_Longs = npt.NDArray[np.int64]

_FIXED: dict[str, type[np.generic]] = {
    "BOOLEAN": np.uint8,
    "TINYINT": np.uint8,
    "SMALLINT": np.uint16,
    "INT": np.uint32,
    "BIGINT": np.uint64,
    "DATE": np.uint32,
}
_TEXTS = ("CHAR", "VARCHAR", "STRING")
_SEED = 42
_ARITY_SIZE = 4
_INLINE = 7


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The bucket key of a table with a fixed number of buckets.

    Attributes:
        fields: Its fields, pypaimon's.
        buckets: Number of buckets.
        by_remainder: Whether the bucket is the remainder of the key, one INT or BIGINT (`bucket-function.type` = mod).
    """

    fields: tuple[Any, ...]
    buckets: int
    by_remainder: bool = False

    @staticmethod
    def of(table: Any) -> BucketKeys | None:
        """The bucket key of a table; None if it has no fixed number of buckets."""
        schema = table.table_schema
        buckets = int(table.options.bucket())
        if buckets <= 0:
            return None
        by_remainder = bucket_function_of(table.options.options.to_map()) is BucketFunctionType.MOD
        return BucketKeys(tuple(schema.logical_bucket_key_fields), buckets, by_remainder)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(field.name for field in self.fields)

    def buckets_of(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
        """The bucket of each row.

        Args:
            columns: The bucket key, in order of `names`; of the table's types, or castable to them.
        """
        if self.by_remainder:
            (column,) = _typed(columns, self.fields)
            # A null counts as 0, as it lies in Java's rows.
            numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
            remainders: npt.NDArray[np.int32] = np.mod(numbers, self.buckets).astype(np.int32)
            return remainders
        # Java's `Math.abs(hash % buckets)`: the remainder has the sign of the hash.
        hashes = key_hashes(columns, self.fields).astype(np.int64)
        return np.abs(np.fmod(hashes, self.buckets)).astype(np.int32)


def key_hashes(columns: Sequence[pa.Array], fields: Sequence[Any]) -> npt.NDArray[np.int32]:
    """The hash of each key, as Java's `BinaryRow.hashCode` has it.

    Args:
        columns: The key; of the table's types, or castable to them.
        fields: Their fields, pypaimon's.
    """
    typed = _typed(columns, fields)
    kinds = [str(field.type).partition("(")[0].partition(" ")[0].upper() for field in fields]
    if all(kind in _FIXED or kind in _TEXTS for kind in kinds):
        return _hashes(typed, kinds).view(np.int32)
    rows = (GenericRow(list(row), list(fields)) for row in zip(*(each.to_pylist() for each in typed), strict=True))
    words = [hash_words(GenericRowSerializer.to_bytes(row)[_ARITY_SIZE:]) for row in rows]
    return np.array(words, dtype=np.int64).astype(np.int32)


def _typed(columns: Sequence[pa.Array], fields: Sequence[Any]) -> list[pa.Array]:
    return [
        column.cast(PyarrowFieldParser.from_paimon_type(field.type))
        for column, field in zip(columns, fields, strict=True)
    ]


def _hashes(columns: Sequence[pa.Array], kinds: Sequence[str]) -> _Words:
    """Hash of each row. Rows whose texts take as many words are serialised and hashed together."""
    count = len(columns[0])
    texts = {index: _Text(columns[index]) for index, kind in enumerate(kinds) if kind in _TEXTS}
    result = np.empty(count, dtype=np.uint32)
    for rows, sizes in _layouts(texts, len(columns), count):
        result[rows] = _murmur(_serialised(columns, kinds, texts, rows, sizes))
    return result


def _layouts(texts: dict[int, _Text], width: int, count: int) -> Iterator[tuple[_Longs, _Longs]]:
    """Rows that are serialised alike, and the bytes of the variable part that each of their columns takes."""
    same = np.zeros(count, dtype=np.int64)
    parts = {}
    for index, text in texts.items():
        parts[index] = np.where(text.lengths > _INLINE, (text.lengths + 7) // 8 * 8, 0)
        # One number for the sizes of all columns so far; numbered anew each time, so that it stays small.
        _, same = np.unique(same * (parts[index].max(initial=0) + 1) + parts[index], return_inverse=True)
    order = np.argsort(same, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(same[order])) + 1) if count else ():
        sizes = np.zeros(width, dtype=np.int64)
        for index, part in parts.items():
            sizes[index] = part[rows[0]]
        yield rows, sizes


def _serialised(
    columns: Sequence[pa.Array], kinds: Sequence[str], texts: dict[int, _Text], rows: _Longs, sizes: _Longs
) -> npt.NDArray[np.uint8]:
    """Rows of one layout: header and null bits, a slot of eight bytes per field, then the long texts."""
    # Eight bits of header and a null bit per field, in whole words of eight bytes.
    header = (len(columns) + 63 + 8) // 64 * 8
    fixed = header + 8 * len(columns)
    data = np.zeros((len(rows), fixed + int(sizes.sum())), dtype=np.uint8)
    offset = fixed
    for index, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
        slot = slice(header + 8 * index, header + 8 * index + 8)
        null = column.is_null().to_numpy(zero_copy_only=False)[rows]
        # A bit that is set says null; the slot of a null is zero.
        data[null, (index + 8) // 8] |= np.uint8(1 << (index + 8) % 8)
        if kind in _FIXED:
            data[:, slot] = _slots(column, kind)[rows]
            data[null, slot] = 0
            continue
        text = texts[index]
        lengths = text.lengths[rows]
        size = int(sizes[index])
        if size:
            # The slot of a long text holds its offset in the row (upper half) and its length (lower half).
            data[:, offset : offset + size] = text.padded(rows, size)
            data[:, slot] = ((offset << 32) | lengths).astype("<u8").view(np.uint8).reshape(-1, 8)
            offset += size
            continue
        # Short texts lie in the slot itself; its last byte is 0x80 and their length.
        data[:, slot.start : slot.stop - 1] = text.padded(rows, _INLINE)
        data[:, slot.stop - 1] = np.where(null, 0, lengths | 0x80)
    return data


def _slots(column: pa.Array, kind: str) -> npt.NDArray[np.uint8]:
    """The slot of each row, for a type of fixed width."""
    plain = column.cast(pa.int32()) if kind == "DATE" else column
    zeros = pc.fill_null(plain, False if kind == "BOOLEAN" else 0)
    numbers = zeros.to_numpy(zero_copy_only=False)
    # The bytes behind the value are zero, also for negative numbers.
    unsigned = numbers.astype(np.uint8) if kind == "BOOLEAN" else numbers.view(_FIXED[kind])
    slots: npt.NDArray[np.uint8] = unsigned.astype("<u8").view(np.uint8).reshape(-1, 8)
    return slots


class _Text:
    """The bytes of a text column."""

    def __init__(self, column: pa.Array) -> None:
        binary = pc.fill_null(column.cast(pa.large_binary()), b"")
        _, offsets, data = binary.buffers()
        starts = np.frombuffer(offsets, dtype=np.int64)[binary.offset : binary.offset + len(binary) + 1]
        self._bytes = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, np.uint8)
        self._starts: _Longs = starts[:-1]
        self.lengths: _Longs = np.diff(starts)

    def padded(self, rows: _Longs, size: int) -> npt.NDArray[np.uint8]:
        """The bytes of these rows, filled up with zeros."""
        # A matrix with a row of `size` bytes for each text; `inside` marks the bytes that the text has.
        offsets = np.arange(size)
        inside = offsets < self.lengths[rows][:, None]
        result = np.zeros((len(rows), size), dtype=np.uint8)
        result[inside] = self._bytes[(self._starts[rows][:, None] + offsets)[inside]]
        return result


def _murmur(data: npt.NDArray[np.uint8]) -> _Words:
    """Murmur3 of each row of bytes, by words, as Paimon seeds it. Arithmetic wraps."""
    # All rows of a layout are equally long: each step mixes the same word of every row into its hash.
    words = np.ascontiguousarray(data).view("<u4")
    state = np.full(len(data), _SEED, dtype=np.uint32)
    for column in range(words.shape[1]):
        word = words[:, column] * np.uint32(0xCC9E2D51)
        word = _rotated(word, 15) * np.uint32(0x1B873593)
        state = _rotated(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    # Murmur3's end: the length in bytes, then the bits of the hash spread over all of it.
    state ^= np.uint32(data.shape[1])
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(words: _Words, bits: int) -> _Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
