"""Merges many sorted runs to few, in stages, to bound the open files and the memory."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.io.local_files import written_temporarily
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.merge.ordering import KeyCodec, stable_order
from pypaimon.streaming.merge.runs import Chunk, UnsortedRunError, chunks, concat

_BATCH_ROWS, _BATCH_BYTES = 8192, 2 << 20
"""Size of a batch that is read back. A merge has one batch of each run in memory."""


_MERGED = "A bucket with many files over the same keys is merged in temporary files", ", or compact the table"


@dataclass(slots=True)
class RunMemory:
    """The memory that runs share."""

    left: int
    spilled: int = 0
    batch_bytes: int = _BATCH_BYTES  # Size of a batch that is read back
    purpose: tuple[str, str] = _MERGED  # What the temporary files are for, and other advice if they cannot be written


class StoredRun:
    """An intermediate run: its first part in memory, the rest in a temporary file without a name."""

    def __init__(self, memory: RunMemory) -> None:
        self._memory = memory
        self._batches: deque[pa.RecordBatch] = deque()
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> StoredRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release memory and file. Idempotent."""
        self._batches.clear()
        if self._file is not None:
            # Closing flushes buffered bytes, which may fail as the write before it did. They are not needed any more.
            with suppress(OSError):
                self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None and batch.nbytes <= self._memory.left:
            self._memory.left -= batch.nbytes
            self._batches.append(batch)
            return
        self._memory.spilled += batch.nbytes
        with self._writing():
            self._spill(batch)

    def _spill(self, batch: pa.RecordBatch) -> None:
        schema = pa.schema([pa.field(field.name, field.type) for field in batch.schema])
        if self._writer is None:
            self._file = tempfile.TemporaryFile(prefix="pypaimon-merge-")  # noqa: SIM115 - `__exit__` closes it
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._file, schema, options=options)
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        for part in parts(batch, self._memory.batch_bytes, _BATCH_ROWS):
            self._writer.write_batch(part)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read all records once, and release them on the way."""
        while self._batches:
            yield from parts(self._batches.popleft(), self._memory.batch_bytes, _BATCH_ROWS)
        if self._writer is not None:
            with self._writing():
                self._writer.close()
                # Seeking writes the buffered bytes, so it may fail.
                self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)

    def _writing(self) -> AbstractContextManager[None]:
        return written_temporarily(*self._memory.purpose)


MOST_RUNS = 32
"""Runs that are read at the same time. Each holds an open file and a few of its batches."""

MERGED_ROWS = 65_536
"""Rows of a batch in a merge, at most, because batches of all its runs are in memory at once."""
_LARGE_RUNS = 4
"""The batches of all runs of a merge together hold as many rows as those of this many single runs."""
_MOST_MERGED_BYTES, _CUT_BYTES = 64 << 20, 16 << 20
"""Of the batches of all runs of a merge together, which it copies: if they may have more, they are cut to about the
second. Smaller batches take longer. What they are cut from is held in addition."""


def rows_of_batch(runs: int, most: int = MERGED_ROWS) -> int:
    """How many rows a batch of each of these runs may hold: the more runs, the fewer."""
    return max(1, most * min(_LARGE_RUNS, runs) // min(MOST_RUNS, runs))


def parts_of_run(batch: pa.RecordBatch, runs: int) -> Iterator[pa.RecordBatch]:
    """A batch of one of these runs of a merge, in parts if it is large. No part is empty."""
    runs = min(MOST_RUNS, runs)
    if batch.nbytes > _MOST_MERGED_BYTES // runs:
        yield from parts(batch, _CUT_BYTES // runs)
    elif batch.num_rows:
        yield batch


def parts(batch: pa.RecordBatch, size: int, most: int = MERGED_ROWS) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about `size` bytes, by its average row, and of at most `most` rows, but at least one."""
    rows = max(1, min(most, size * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


STORED_BYTES = 64 << 20
"""Bytes of the results of stages that stay in memory. The rest goes to temporary files."""

Run = Iterable[pa.RecordBatch]
Begin = Callable[[list[Run]], list[Run]]
"""Takes runs before they are read and returns them. May read their first batches at the same time."""

_LOG = StreamLog(__name__)


@contextmanager
def few_runs(runs: Iterable[Run], keys: Sequence[str], begin: Begin) -> Iterator[list[Run]]:
    """The same records in at most `MOST_RUNS` runs; records of one key stay in the order of the given runs.

    Adjacent runs become one run with all their records, sorted but not merged, because the engine must see all records
    of a key at once. As few runs as possible are joined, beginning at the end, where `sorted_runs` has the newest.
    Temporary files have no names and end with the context. Raises UnsortedRunError if the records of a run are not in
    order.
    """
    few = list(runs)
    given = len(few)
    with ExitStack() as stack:
        memory = RunMemory(STORED_BYTES)
        while len(few) > MOST_RUNS:
            few = _next_stage(few, keys, begin, lambda: stack.enter_context(StoredRun(memory)))
        if len(few) < given:
            text = (
                "a bucket has %(runs)d files or more over the same keys: they are merged in stages of %(most)d, with "
                "%(spilled)d bytes in temporary files; compaction makes them fewer"
            )
            _LOG.warning("merge_staged", text, runs=given, most=MOST_RUNS, spilled=memory.spilled)
        yield begin(few)


def _next_stage(runs: list[Run], keys: Sequence[str], begin: Begin, store: Callable[[], StoredRun]) -> list[Run]:
    """Fewer runs, each made from at most `MOST_RUNS`: `MOST_RUNS` runs, or the fewest that one stage can make."""
    surplus, end = len(runs) - MOST_RUNS, len(runs)
    made: list[Run] = []
    while surplus > 0 and end > 1:
        start = max(0, end - min(MOST_RUNS, surplus + 1))
        stored = store()
        try:
            write_merged(stored, begin(runs[start:end]), keys)
        except UnsortedRunError as error:
            # Only given runs can be unsorted, and these are at their original index, because made runs come after them.
            raise UnsortedRunError(start + error.run) from error
        made.append(stored.read())
        surplus, end = surplus - (end - start - 1), start
    return [*runs[:end], *reversed(made)]


def write_merged(stored: StoredRun, runs: Iterable[Run], keys: Sequence[str]) -> None:
    for chunk in chunks(runs, keys):
        stored.write(in_order(chunk))


def in_order(chunk: Chunk) -> pa.RecordBatch:
    """The records of a chunk, sorted by key; those of one key in the order of their runs."""
    order, _ = chunk.by_key()
    return chunk.batch if order is None else chunk.batch.take(pa.array(order))


PIECE_BYTES = 32 << 20
"""Bytes that are sorted at once."""


@contextmanager
def in_key_order(files: Sequence[Run], keys: Sequence[str], begin: Begin) -> Iterator[list[Run]]:
    """The same records as sorted runs; records of one key stay in the given order.

    All records are read when the context is entered. Temporary files have no names and end with it.
    """
    with ExitStack() as stack:
        memory = RunMemory(STORED_BYTES)
        merged: list[StoredRun] = []
        pieces: list[StoredRun] = []
        for records in _pieces(files, begin):
            pieces.append(stack.enter_context(StoredRun(memory)))
            pieces[-1].write(sorted_by(records, keys))
            if len(pieces) == MOST_RUNS:
                # Each piece may hold a file open.
                merged.append(stack.enter_context(StoredRun(memory)))
                write_merged(merged[-1], [piece.read() for piece in pieces], keys)
                while pieces:
                    pieces.pop().close()
        yield [run.read() for run in (*merged, *pieces)]


def _pieces(files: Sequence[Run], begin: Begin) -> Iterator[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    size = 0
    for start in range(0, len(files), MOST_RUNS):
        for file in begin(list(files[start : start + MOST_RUNS])):
            for batch in file:
                if found and size + batch.nbytes > PIECE_BYTES:
                    yield concat(found)
                    found, size = [], 0
                found.append(batch)
                size += batch.nbytes
    if found:
        yield concat(found)


def sorted_by(records: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Records in the order of their keys; those of one key stay in their order."""
    codec = KeyCodec(len(keys))
    columns = [records.column(name) for name in keys]
    codec.fit(columns)
    return records.take(pa.array(stable_order(codec.encode(columns))))
