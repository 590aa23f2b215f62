"""`Router`: which rows of a batch belong to which partition and bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.filters import float_bits
from pypaimon.streaming.formats.binary_row_encoding import RowColumn, layouts, row_column, serialised
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import BucketFunctionType
from pypaimon.streaming.paimon.internals import PyarrowFieldParser
from pypaimon.streaming.writing.dynamic_buckets import BucketAssigner

_Words = npt.NDArray[np.uint32]
_Longs = npt.NDArray[np.int64]

# That of Java's `MurmurHashUtils`.
_SEED = 42


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The bucket key of a table with a fixed number of buckets."""

    fields: tuple[Any, ...]
    buckets: int
    # Whether the bucket is the remainder of an INT or BIGINT key (`bucket-function.type` = mod)
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
        if self.buckets == 1:
            return np.zeros(len(columns[0]), np.int32)
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
    """The hash of each key, as Java's `BinaryRow.hashCode` computes it."""
    return _hashes([row_column(column) for column in _typed(columns, fields)]).view(np.int32)


def _typed(columns: Sequence[pa.Array], fields: Sequence[Any]) -> list[pa.Array]:
    return [
        column.cast(PyarrowFieldParser.from_paimon_type(field.type))
        for column, field in zip(columns, fields, strict=True)
    ]


def _hashes(columns: Sequence[RowColumn]) -> _Words:
    result = np.empty(len(columns[0].null), dtype=np.uint32)
    for rows in layouts(columns):
        result[rows] = _murmur(serialised(columns, rows))
    return result


def _murmur(data: npt.NDArray[np.uint8]) -> _Words:
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


_Codes = npt.NDArray[np.int64]

_UNAWARE_BUCKET = 0
_MOST_NUMBERS = 1 << 40


class Router:
    """Divides the rows of batches, for a table with a fixed number of buckets, without buckets, or with postponed or
    dynamic ones. Rows of a bucket stay in their order.
    """

    def __init__(self, table: PaimonTable, assigner: BucketAssigner | None = None) -> None:
        self._assigner = assigner
        self._key_fields = tuple(table.key_fields)
        self._partition_keys: Sequence[str] = tuple(table.partition_keys)
        self._buckets = BucketKeys.of(table)
        self._bucket = POSTPONE_BUCKET if table.is_primary_key_table else _UNAWARE_BUCKET

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], int, pa.RecordBatch]]:
        """Partition, bucket, and the rows that belong there, copied."""
        if not batch.num_rows:
            return
        partitions = _Partitions([batch.column(name) for name in self._partition_keys], batch.num_rows)
        codes = partitions.codes
        buckets = self._buckets_of(partitions, batch)
        if buckets is not None:
            codes = codes * (int(buckets.max()) + 1) + buckets
        for rows in _groups(codes):
            row = 0 if rows is None else int(rows[0])
            bucket = self._bucket if buckets is None else int(buckets[row])
            yield partitions.of_row(row), bucket, _copied(batch) if rows is None else batch.take(pa.array(rows))

    def _buckets_of(self, partitions: _Partitions, batch: pa.RecordBatch) -> npt.NDArray[np.integer[Any]] | None:
        """The bucket of each row; None: it is the same for all."""
        if self._buckets is not None:
            return self._buckets.buckets_of([batch.column(name) for name in self._buckets.names])
        if self._assigner is None:
            return None
        hashes = key_hashes([batch.column(field.name) for field in self._key_fields], self._key_fields)
        buckets = np.empty(batch.num_rows, dtype=np.int16)
        for rows in _groups(partitions.codes):
            if rows is None:
                return self._assigner.buckets_of(partitions.of_row(0), hashes)
            buckets[rows] = self._assigner.buckets_of(partitions.of_row(int(rows[0])), hashes[rows])
        return buckets


class _Partitions:
    """The partitions of a batch as numbers."""

    def __init__(self, columns: Sequence[pa.Array], count: int) -> None:
        self.codes: _Codes = np.zeros(count, dtype=np.int64)
        self._columns = columns
        size = 1
        for column in columns:
            encoded = float_bits(column).dictionary_encode(null_encoding="encode")
            size *= len(encoded.dictionary)
            self.codes = self.codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            if size > _MOST_NUMBERS:
                distinct, self.codes = np.unique(self.codes, return_inverse=True)
                self.codes, size = self.codes.reshape(-1), len(distinct)

    def of_row(self, row: int) -> tuple[Any, ...]:
        return tuple(column[row].as_py() for column in self._columns)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Memory of numpy or pandas may change later, and that of a slice may be much larger than the slice.
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _groups(codes: _Codes) -> Iterator[_Codes | None]:
    """The rows of each number, in their order; None: all rows have the same one."""
    if (codes == codes[0]).all():
        yield None
        return
    order = _stable_order(codes)
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
    yield from (order[first:end] for first, end in zip(firsts, [*firsts[1:], len(codes)], strict=True))


def _stable_order(codes: _Codes) -> _Codes:
    # Numpy sorts small integers without comparing them.
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes
    return np.argsort(small, kind="stable")
