"""Runs of files in a store, begun at the same time: a merge gives its first rows after few round trips."""

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


def _from_first(
    pool: IOPool, future: Future[pa.RecordBatch | None], rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    first = pool.result(future)
    if first is not None:
        yield first
        yield from rest
