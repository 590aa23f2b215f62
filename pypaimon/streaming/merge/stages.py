"""Many sorted runs as few: merged in stages, so that only so many are open, and in memory, at the same time."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.merge.runs import Chunk, UnsortedRunError, chunks

MOST_RUNS = 32
"""Runs that are read at the same time; each holds a file open, and a few batches of it."""

STORED_BYTES = 64 << 20
"""Bytes of what stages have made that stay in memory; what is more goes to temporary files."""

_STORED_ROWS = 8192

Run = Iterable[pa.RecordBatch]
Begin = Callable[[list[Run]], list[Run]]
"""Takes runs that are about to be read, and gives the same: may have their first batches read at the same time."""

_LOG = StreamLog(__name__)


@contextmanager
def few_runs(runs: Iterable[Run], keys: Sequence[str], begin: Begin) -> Iterator[list[Run]]:
    """The same records in no more than `MOST_RUNS` runs, those of one key in the order of the given runs.

    Neighbouring runs become one that holds all their records, sorted and not merged: that is left to the engine, which
    must see all records of a key at once. As few are put together as must be, and those at the end, which are the
    smallest as `sorted_runs` makes them. Temporary files have no names, and end with the context.

    Args:
        runs: Batches of each, sorted by `keys`.
        keys: What they are sorted by.
        begin: Called with runs before they are read.

    Raises:
        UnsortedRunError: The records of a run are not in order.
        StoreError: A temporary file cannot be written.
    """
    few = list(runs)
    given = len(few)
    with ExitStack() as stack:
        memory = _Memory(STORED_BYTES)
        while len(few) > MOST_RUNS:
            few = _next_stage(few, keys, begin, lambda: stack.enter_context(_StoredRun(memory)))
        if len(few) < given:
            text = (
                "a bucket has %(runs)d files or more over the same keys: they are merged in stages of %(most)d, with "
                "%(spilled)d bytes in temporary files; compaction makes them fewer"
            )
            _LOG.warning("merge_staged", text, runs=given, most=MOST_RUNS, spilled=memory.spilled)
        yield begin(few)


def _next_stage(runs: list[Run], keys: Sequence[str], begin: Begin, store: Callable[[], _StoredRun]) -> list[Run]:
    """Fewer runs, each of at most `MOST_RUNS`: as many as wanted, or the fewest that one stage can make."""
    surplus, end = len(runs) - MOST_RUNS, len(runs)
    made: list[Run] = []
    while surplus > 0 and end > 1:
        start = max(0, end - min(MOST_RUNS, surplus + 1))
        stored = store()
        try:
            for chunk in chunks(begin(runs[start:end]), keys):
                stored.write(_in_order(chunk))
        except UnsortedRunError as error:
            # Runs that were made are in order, and behind all others, which so have kept their places.
            raise UnsortedRunError(start + error.run) from error
        made.append(stored.read())
        surplus, end = surplus - (end - start - 1), start
    return [*runs[:end], *reversed(made)]


def _in_order(chunk: Chunk) -> pa.RecordBatch:
    order, _ = chunk.by_key()
    return chunk.batch if order is None else chunk.batch.take(pa.array(order))


@dataclass(slots=True)
class _Memory:
    """What may stay in memory.

    Attributes:
        left: Bytes.
        spilled: Bytes that had to go to files.
    """

    left: int
    spilled: int = 0


class _StoredRun:
    """A run that was made: the first part of it in memory, the rest in a temporary file."""

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self._batches: deque[pa.RecordBatch] = deque()
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> _StoredRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.clear()
        if self._file is not None:
            # What could not be written cannot be on closing either; nobody wants it any more.
            with suppress(OSError):
                self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Put records behind those that there are."""
        if self._writer is None and batch.nbytes <= self._memory.left:
            self._memory.left -= batch.nbytes
            self._batches.append(batch)
            return
        self._memory.spilled += batch.nbytes
        with _writing():
            self._spill(batch)

    def _spill(self, batch: pa.RecordBatch) -> None:
        schema = pa.schema([pa.field(field.name, field.type) for field in batch.schema])
        if self._writer is None:
            self._file = tempfile.TemporaryFile(prefix="pypaimon-merge-")  # noqa: SIM115 - `__exit__` closes it
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._file, schema, options=options)
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        for start in range(0, batch.num_rows, _STORED_ROWS):
            self._writer.write_batch(batch.slice(start, _STORED_ROWS))

    def read(self) -> Iterator[pa.RecordBatch]:
        """All of it, once: what was given out is let go."""
        while self._batches:
            batch = self._batches.popleft()
            for start in range(0, batch.num_rows, _STORED_ROWS):
                yield batch.slice(start, _STORED_ROWS)
        if self._writer is not None:
            with _writing():
                self._writer.close()
                # What was buffered is written now.
                self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            "A bucket with many files over the same keys is merged in temporary files, and one in "
            f"{tempfile.gettempdir()} cannot be written: {error}. Free space there, have TMPDIR name another "
            "directory, or compact the table."
        ) from error
