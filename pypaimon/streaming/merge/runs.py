"""Cuts sorted runs into chunks that hold every record of their keys, with one batch of each run in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.merge.ordering import Codes, Ints, KeyCodec, python_order
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta

T = TypeVar("T")

CHUNK_BYTES = 256 << 20
"""Bytes that are merged at once. One array of Arrow cannot hold more than 2 GB of texts or bytes."""


def sorted_runs(files: Sequence[DataFileMeta]) -> list[list[DataFileMeta]]:
    """The fewest runs of files without overlapping keys, the newest last.

    There are as many runs as files overlap at most, as in the widest section of Java's `IntervalPartition`. The files
    of a run are in key order and can be read one after the other.
    """
    runs = fewest_runs((key_order(file.min_key), key_order(file.max_key), file) for file in files)
    # So a merge mostly finds the records of a key in the order of their numbers, and need not sort them. The file with
    # the most records decides, because a small new file may be in the run of a large old one.
    return sorted(runs, key=lambda run: max(run, key=lambda file: file.row_count).max_sequence_number)


def fewest_runs(ranges: Iterable[tuple[Any, Any, T]]) -> list[list[T]]:
    """As `sorted_runs`, of values with their smallest and largest keys."""
    # In the order of smallest keys, each file is added to the run that ends first, if that ends before the file begins.
    # Otherwise it starts a new run. `ends` is a heap of the runs by their largest key.
    runs: list[list[T]] = []
    ends: list[tuple[Any, int]] = []
    for smallest, largest, file in sorted(ranges, key=lambda each: each[:2]):
        if ends and ends[0][0] < smallest:
            _, run = heapq.heappop(ends)
        else:
            run = len(runs)
            runs.append([])
        runs[run].append(file)
        heapq.heappush(ends, (largest, run))
    return runs


def key_order(row: Any) -> tuple[Any, ...]:
    """A key of a file's metadata as a value that Python compares as Java compares keys."""
    return tuple(python_order(value) for value in row.values)


def stored_key_order(fields: Sequence[DataField], row: bytes) -> list[Any]:
    """As `key_order`, of a serialised row."""
    columns = [decode_column(pa.array([row], pa.binary()), index, field.type) for index, field in enumerate(fields)]
    # Python's datetimes would lose nanoseconds.
    exact = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns)
    return [python_order(column[0].as_py()) for column in exact]


class UnsortedRunError(ValueError):
    """The records of a run are not in key order. Without this error the merge would not end."""

    def __init__(self, run: int) -> None:
        super().__init__(f"the records of run {run} are not in key order")
        self.run = run


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of complete keys: no other chunk holds a record of these keys. Chunks come in key order."""

    batch: pa.RecordBatch
    codes: Codes  # The key of each record, as `KeyCodec` encodes it
    counts: tuple[int, ...]

    def by_key(self) -> tuple[Ints | None, Ints]:
        """The stable order of the records by key (None: unchanged), and where each key starts in it."""
        codes = self.codes
        order = None
        if sum(count > 0 for count in self.counts) > 1:
            # A stable sort is fast here, because it finds the ascending runs and merges them.
            order = np.argsort(codes, kind="stable")
            codes = codes[order]
        # A key starts where a code differs from the one before.
        changes = np.ones(len(codes), dtype=np.bool_)
        changes[1:] = codes[1:] != codes[:-1]
        return order, np.flatnonzero(changes)


class _Run:
    def __init__(self, batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> None:
        self._batches = iter(batches)
        self._keys = keys
        self.batch: pa.RecordBatch | None = None
        self.codes: Codes = np.empty(0)
        self.row_bytes = 0.0
        self.ended = False

    def advance(self, codec: KeyCodec) -> bool:
        """Read the next batch; True if earlier codes cannot be compared with the codes from now on."""
        following = next((batch for batch in self._batches if batch.num_rows), None)
        if following is None:
            self.ended = True
            return False
        self.batch = following if self.batch is None else concat([self.batch, following])
        self.row_bytes = self.batch.nbytes / self.batch.num_rows
        changed = codec.fit(self._key_columns(self.batch))
        self.encode(codec)
        return changed

    def encode(self, codec: KeyCodec) -> None:
        if self.batch is not None:
            self.codes = codec.encode(self._key_columns(self.batch))

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self._keys]

    @property
    def undecided(self) -> bool:
        """Whether the next batch must be read first, because it may continue the only key here."""
        return not self.ended and (self.batch is None or bool(self.codes[0] == self.codes[-1]))

    def count_below(self, limit: Any) -> int:
        if self.batch is None:
            return 0
        return int(np.searchsorted(self.codes, np.array([limit], dtype=self.codes.dtype), side="left")[0])

    def take(self, count: int) -> tuple[pa.RecordBatch, Codes]:
        assert self.batch is not None
        taken = self.batch.slice(0, count), self.codes[:count]
        if count == self.batch.num_rows:
            self.batch, self.codes = None, self.codes[:0]
        else:
            self.batch, self.codes = self.batch.slice(count), self.codes[count:]
        return taken


def chunks(runs: Iterable[Iterable[pa.RecordBatch]], keys: Sequence[str]) -> Iterator[Chunk]:
    """Cut runs, each sorted by `keys`, into chunks of complete keys.

    A chunk has about `CHUNK_BYTES` at most, unless one key has more. Holds one batch of each run and the rest of the
    one before it (usually the records of one key). The next batch of a run is read after all of the one before it,
    except its last key, was handed out. Raises UnsortedRunError if a batch ends with a smaller key than it begins with.
    """
    codec = KeyCodec(len(keys))
    opened = [_Run(run, keys) for run in runs]
    active = opened
    while active:
        changed = False
        for run in active:
            while run.undecided:
                changed |= run.advance(codec)
        if changed:
            for run in active:
                run.encode(codec)
        active = [run for run in active if run.batch is not None]
        for index, run in enumerate(opened):
            if run.batch is not None and run.codes[0] > run.codes[-1]:
                raise UnsortedRunError(index)
        # The next batch of a run may continue its last key, so only keys below the smallest last key are complete.
        limit = min((run.codes[-1] for run in active if not run.ended), default=None)
        counts = _counts(opened, limit)
        parts = [run.take(count) for run, count in zip(opened, counts, strict=True) if count]
        if parts:
            yield _chunk(parts, tuple(counts))


def _counts(runs: Sequence[_Run], limit: Any) -> list[int]:
    counts = [len(run.codes) if limit is None else run.count_below(limit) for run in runs]
    while sum(run.row_bytes * count for run, count in zip(runs, counts, strict=True)) > CHUNK_BYTES:
        # Lower the limit to the middle key of the run with the most records, until the chunk fits or no record is below
        # that key.
        longest = max(range(len(runs)), key=counts.__getitem__)
        middle = runs[longest].codes[counts[longest] // 2]
        fewer = [run.count_below(middle) if count else 0 for run, count in zip(runs, counts, strict=True)]
        if not any(fewer):
            break
        counts = fewer
    return counts


def _chunk(parts: list[tuple[pa.RecordBatch, Codes]], counts: tuple[int, ...]) -> Chunk:
    if len(parts) == 1:
        return Chunk(*parts[0], counts)
    return Chunk(concat([batch for batch, _ in parts]), np.concatenate([codes for _, codes in parts]), counts)


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches with the same columns; metadata is that of the first. Raises UnsupportedTableError if a
    column has more than 2 GB of texts or bytes.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    columns = [_joined(name, [batch.column(name) for batch in batches]) for name in first.schema.names]
    fields = [field.with_nullable(True) for field in first.schema]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _joined(name: str, arrays: list[pa.Array]) -> pa.Array:
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise UnsupportedTableError(
            f"Column '{name}': records of one key together have more than 2 GB, which Arrow's arrays cannot hold "
            f"({error}).",
            advice="Compact the table, or leave the column out with with_projection(...).",
            option="with_projection",
        ) from error
