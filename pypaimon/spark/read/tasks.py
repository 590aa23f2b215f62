"""Tasks of a batch: splits packed by size; a bucket of an ordered table stays in one task, in order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

import pypaimon.spark.lean_imports  # noqa: F401
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.reading.split_files import in_reading_order
from pypaimon.streaming.spec.resolve import ResolvedStream

SNAPSHOT_ID = "_snapshot_id"
"""The snapshot that the row came with."""
ORDINAL = "_ordinal"
"""Grows with the order of the rows of one key, and of one (partition, bucket), of one snapshot."""
METADATA = (ROW_KIND, SNAPSHOT_ID, ORDINAL)
FILES_SCHEMA = StructType(
    [
        StructField("path", StringType(), False),
        StructField("columns", StringType(), False),
        StructField("snapshot_id", LongType(), False),
        StructField("row_count", LongType(), False),
        StructField("file_size", LongType(), False),
    ]
)
"""One row per file (`mode=files`); `columns` is JSON: how each column comes out of the file (`FileColumn`)."""


def data_columns(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in METADATA]


_ROWS_OF_A_FILE = 1 << 32
_LISTED_FILES = 1000
_BucketKey = tuple[Any, int]


@dataclass(frozen=True, slots=True)
class Part:
    split: StreamSplit
    ordinal: int


class Task(InputPartition):
    """The splits that one Spark task reads, in order. Holds no options of the catalog, which may be secret."""

    def __init__(self, parts: Sequence[Part], table: str, schema_id: int) -> None:
        super().__init__(None)
        self.parts = tuple(parts)
        self.table = table
        self.schema_id = schema_id

    def __repr__(self) -> str:
        return f"Task({len(self.parts)} splits)"


def tasks(
    splits: Iterable[StreamSplit], stream: ResolvedStream, parallelism: int | None, start: Position | None = None
) -> list[Task]:
    """Pack the splits of a batch into tasks of similar size, as many as Spark's rule for files makes of their bytes.

    A task takes `source.split.target-size` bytes, or less if there would be fewer tasks than `parallelism`. Each file
    counts as at least `source.split.open-file-cost`. Filling one task after the other would leave a small last one that
    runs alone when all others have ended, so tasks get equal shares. Several tasks may read the independent files of a
    split.

    Args:
        parallelism: Number of tasks to aim at; None: the processors of this machine.
        start: Where the batch begins; None: at the beginning of the table.
    """
    options, ordered = stream.options, not stream.traits.unaware_bucket
    splits = list(in_reading_order(list(splits)))
    weights = [_weight(split, options.split_open_bytes) for split in splits]
    total = max(sum(weights), 1)
    share = total / (parallelism or os.cpu_count() or 1)
    count = math.ceil(total / min(options.split_target_bytes, max(options.split_open_bytes, share, 1)))

    def task_of(before: int, weight: int) -> int:
        # The task whose share of all bytes contains the middle.
        return min((2 * before + weight) * count // (2 * total), count - 1)

    if not ordered:
        placed = zip(splits, weights, accumulate(weights), strict=True)
        cut = (_cut(split, end - weight, task_of, options.split_open_bytes) for split, weight, end in placed)
        splits = list(chain.from_iterable(cut))
    packed: dict[int, list[Part]] = {}
    before = 0
    for group in _groups(_numbered(splits, start), ordered=ordered):
        weight = sum(_weight(part.split, options.split_open_bytes) for part in group)
        packed.setdefault(task_of(before, weight), []).extend(group)
        before += weight
    table, schema_id = stream.identity, stream.schema.id
    return [Task(parts, table, schema_id) for parts in packed.values()]


def listing_tasks(splits: Iterable[StreamSplit], stream: ResolvedStream) -> list[Task]:
    """Pack the splits of a batch whose tasks return the paths of files and read only their footers."""
    table, schema_id = stream.identity, stream.schema.id
    packed: list[list[Part]] = []
    files = _LISTED_FILES
    for split in splits:
        if files >= _LISTED_FILES:
            packed.append([])
            files = 0
        packed[-1].append(Part(split, 0))
        files += len(split.files)
    return [Task(parts, table, schema_id) for parts in packed]


def _cut(split: StreamSplit, before: int, task_of: Callable[[int, int], int], open_bytes: int) -> Iterable[StreamSplit]:
    if split.mode is not SplitMode.ROWS:
        return [split]
    weights = [max(file.file_size, open_bytes) for file in split.files]
    of_files = [
        task_of(before + end - weight, weight) for weight, end in zip(weights, accumulate(weights), strict=True)
    ]
    begins = [index for index in range(1, len(weights)) if of_files[index] != of_files[index - 1]]
    if not begins:
        return [split]
    return [split.of_files(range(*bounds)) for bounds in pairwise([0, *begins, len(weights)])]


def _groups(parts: Iterable[Part], ordered: bool) -> list[list[Part]]:
    if not ordered:
        return [[part] for part in parts]
    groups: dict[_BucketKey, list[Part]] = {}
    for part in parts:
        groups.setdefault(_bucket(part.split), []).append(part)
    return list(groups.values())


def _numbered(splits: Iterable[StreamSplit], start: Position | None) -> Iterable[Part]:
    """Give each split the ordinal of its first row.

    If an OVERWRITE may move keys to other buckets, what comes has greater ordinals than all that goes.
    """
    following: dict[tuple[_BucketKey, int], int] = {}
    after_retractions: dict[int, int] = {}
    if start is not None and start.unit is not None:
        bucket = start.unit.partition, start.unit.bucket
        # An earlier batch has read files of this bucket. Ordinals continue above all that those can have
        # used.
        following[bucket, start.snapshot] = (start.unit.index + 1) * _ROWS_OF_A_FILE
    for split in splits:
        key = _bucket(split), split.snapshot_id
        first = following.get(key, 0)
        if split.keys_move and not split.retracts:
            first = max(first, after_retractions.get(split.snapshot_id, 0))
        following[key] = first + sum(file.row_count for file in (*split.before_files, *split.files))
        if split.keys_move and split.retracts:
            most = max(following[key], after_retractions.get(split.snapshot_id, 0))
            after_retractions[split.snapshot_id] = most
        yield Part(split, first)


def _bucket(split: StreamSplit) -> _BucketKey:
    values = split.partition.values
    return tuple(None if value is None else str(value) for value in values), split.bucket


def _weight(split: StreamSplit, open_bytes: int) -> int:
    return sum(max(file.file_size, open_bytes) for file in (*split.before_files, *split.files))
