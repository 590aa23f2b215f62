"""Runs of files that are begun before it is their turn.

In a store a merge gives its first rows after few round trips; on a local disk one file is decoded while the rows of the
one before it are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future

import pyarrow as pa

from pypaimon.streaming.io.io_pool import IOPool


def begun(pool: IOPool, runs: Iterable[Iterable[pa.RecordBatch]]) -> list[Iterable[pa.RecordBatch]]:
    """The same runs, the first batch of each asked for now, on threads of a pool, as many at a time as that has.

    A run is read by one thread at a time. Errors come where the batch would.
    """
    iterators = [iter(run) for run in runs]
    return [_from_first(pool, pool.submit(next, run, None), run) for run in iterators]


def one_ahead(pool: IOPool, runs: Iterable[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """All batches of runs, one run after the other; the first batch of the next one is made meanwhile, on a thread.

    Errors come where the batch would.
    """
    run: Iterable[pa.RecordBatch] = ()
    for following in runs:
        (begun_run,) = begun(pool, [following])
        yield from run
        run = begun_run
    yield from run


def _from_first(
    pool: IOPool, future: Future[pa.RecordBatch | None], rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    first = pool.result(future)
    if first is not None:
        yield first
        yield from rest
