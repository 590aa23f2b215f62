"""`Router`: which rows of a batch belong to which partition and bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.writing.bucket_hash import BucketKeys

_UNAWARE_BUCKET = 0


class Router:
    """Divides batches of a table's rows; rows of a bucket stay in their order.

    Args:
        table: pypaimon's table: with a fixed number of buckets, without buckets, or with postponed ones.
    """

    def __init__(self, table: Any) -> None:
        self._partition_keys: Sequence[str] = tuple(table.partition_keys)
        self._buckets = BucketKeys.of(table)
        self._bucket = POSTPONE_BUCKET if table.is_primary_key_table else _UNAWARE_BUCKET

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], int, pa.RecordBatch]]:
        """Partition, bucket, and the rows that belong there."""
        if not batch.num_rows:
            return
        codes, partitions = self._partition_codes(batch)
        if self._buckets is not None:
            buckets = self._buckets.buckets_of([batch.column(name) for name in self._buckets.names])
            codes = codes * self._buckets.buckets + buckets
        order = None if (codes == codes[0]).all() else np.argsort(codes, kind="stable")
        firsts = [0] if order is None else np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
        for first, end in zip(firsts, [*firsts[1:], batch.num_rows], strict=True):
            rows = None if order is None else order[first:end]
            number = int(codes[0] if rows is None else codes[rows[0]])
            which, bucket = divmod(number, self._buckets.buckets) if self._buckets else (number, self._bucket)
            yield partitions[which], bucket, batch if rows is None else batch.take(pa.array(rows))

    def _partition_codes(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
        """The number of each row's partition, and the values of the partitions by number."""
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        partitions: list[tuple[Any, ...]] = [()]
        for name in self._partition_keys:
            column = batch.column(name)
            encoded = _bits(column).dictionary_encode(null_encoding="encode")
            indices = encoded.indices.to_numpy().astype(np.int64)
            distinct, firsts, codes = np.unique(
                codes * len(encoded.dictionary) + indices, return_index=True, return_inverse=True
            )
            values = column.take(pa.array(firsts)).to_pylist()
            before = [partitions[number // len(encoded.dictionary)] for number in distinct.tolist()]
            partitions = [(*found, value) for found, value in zip(before, values, strict=True)]
            codes = codes.reshape(-1)
        return codes, partitions


def _bits(column: pa.Array) -> pa.Array:
    """Floats as their bits, so that zeros differ in their sign, as partitions do."""
    if pa.types.is_floating(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column
