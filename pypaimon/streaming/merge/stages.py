"""Many sorted runs as few: merged in stages, so that only so many are open, and in memory, at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.merge.runs import Chunk, UnsortedRunError, chunks
from pypaimon.streaming.merge.stored_runs import RunMemory, StoredRun

MOST_RUNS = 32
"""Runs that are read at the same time; each holds a file open, and a few batches of it."""

STORED_BYTES = 64 << 20
"""Bytes of what stages have made that stay in memory; what is more goes to temporary files."""

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
    """Fewer runs, each of at most `MOST_RUNS`: as many as wanted, or the fewest that one stage can make."""
    surplus, end = len(runs) - MOST_RUNS, len(runs)
    made: list[Run] = []
    while surplus > 0 and end > 1:
        start = max(0, end - min(MOST_RUNS, surplus + 1))
        stored = store()
        try:
            write_merged(stored, begin(runs[start:end]), keys)
        except UnsortedRunError as error:
            # Runs that were made are in order, and behind all others, which so have kept their places.
            raise UnsortedRunError(start + error.run) from error
        made.append(stored.read())
        surplus, end = surplus - (end - start - 1), start
    return [*runs[:end], *reversed(made)]


def write_merged(stored: StoredRun, runs: Iterable[Run], keys: Sequence[str]) -> None:
    """Write the records of several runs as one.

    Raises:
        UnsortedRunError: The records of a run are not in order.
        StoreError: A temporary file cannot be written.
    """
    for chunk in chunks(runs, keys):
        stored.write(_in_order(chunk))


def _in_order(chunk: Chunk) -> pa.RecordBatch:
    order, _ = chunk.by_key()
    return chunk.batch if order is None else chunk.batch.take(pa.array(order))
