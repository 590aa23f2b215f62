"""The bucket of each row, as Paimon computes it from the hash or the remainder of its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.formats.binary_row_encoding import RowColumn, layouts, row_column, serialised
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import BucketFunctionType
from pypaimon.streaming.paimon.internals import PyarrowFieldParser

_Words = npt.NDArray[np.uint32]
_Longs = npt.NDArray[np.int64]

_SEED = 42


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The bucket key of a table with a fixed number of buckets.

    Attributes:
        fields: pypaimon's fields of the key.
        buckets: Number of buckets.
        by_remainder: Whether the bucket is the remainder of an INT or BIGINT key (`bucket-function.type` = mod).
    """

    fields: tuple[Any, ...]
    buckets: int
    by_remainder: bool = False

    @staticmethod
    def of(table: PaimonTable) -> BucketKeys | None:
        """The bucket key of a table; None if its number of buckets is not fixed."""
        if table.total_buckets <= 0:
            return None
        by_remainder = option_keys.BUCKET_FUNCTION_TYPE.of(table.options) is BucketFunctionType.MOD
        return BucketKeys(tuple(table.schema.logical_bucket_key_fields), table.total_buckets, by_remainder)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def buckets_of(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
        """The bucket of each row.

        Args:
            columns: The bucket key, in order of `names`; of the table's types, or castable to them.
        """
        if self.by_remainder:
            (column,) = _typed(columns, self.fields)
            # A null counts as 0, which is how Java's rows store it.
            numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
            remainders: npt.NDArray[np.int32] = np.mod(numbers, self.buckets).astype(np.int32)
            return remainders
        # Java's `Math.abs(hash % buckets)`: the remainder has the sign of the hash.
        hashes = key_hashes(columns, self.fields).astype(np.int64)
        return np.abs(np.fmod(hashes, self.buckets)).astype(np.int32)


def key_hashes(columns: Sequence[pa.Array], fields: Sequence[Any]) -> npt.NDArray[np.int32]:
    """The hash of each key, as Java's `BinaryRow.hashCode` computes it.

    Args:
        columns: The key; of the table's types, or castable to them.
        fields: pypaimon's fields of the key.
    """
    return _hashes([row_column(column) for column in _typed(columns, fields)]).view(np.int32)


def _typed(columns: Sequence[pa.Array], fields: Sequence[Any]) -> list[pa.Array]:
    return [
        column.cast(PyarrowFieldParser.from_paimon_type(field.type))
        for column, field in zip(columns, fields, strict=True)
    ]


def _hashes(columns: Sequence[RowColumn]) -> _Words:
    """Hash of each row. Rows with the same layout of words are serialised and hashed together."""
    result = np.empty(len(columns[0].null), dtype=np.uint32)
    for rows in layouts(columns):
        result[rows] = _murmur(serialised(columns, rows))
    return result


def _murmur(data: npt.NDArray[np.uint8]) -> _Words:
    """Murmur3 of each row of bytes, by words, with Paimon's seed. Arithmetic wraps."""
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
