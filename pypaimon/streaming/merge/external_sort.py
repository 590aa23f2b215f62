"""`sorted_records`: sorts records that do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from pypaimon.streaming.merge.runs import chunks, concat
from pypaimon.streaming.merge.stages import MOST_RUNS, RunMemory, StoredRun, in_order, sorted_by, write_merged

_POSITION = "\0position"
"""The position of a record among all, in a column that no table has. It makes keys unique, because a merge holds all
records of a key in memory."""
_LEAST_BATCH_BYTES = 8 << 10
_PURPOSE = "Rows are sorted in temporary files", ", or raise 'sort-spill-buffer-size'"


def sorted_records(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The same records in the order of their keys, as `KeyCodec` orders them.

    Records with equal keys stay in their order. Pieces of the records are sorted in memory. All but the first bytes of
    them go to temporary files without names, from which they are merged.

    Args:
        batches: Batches with the same columns. One batch is sorted at a time, however large it is.
        memory_bytes: About as many bytes are in memory.
    """
    with ExitStack() as stack:
        batch_bytes = max(_LEAST_BATCH_BYTES, memory_bytes // (16 * MOST_RUNS))
        memory = RunMemory(memory_bytes // 8, batch_bytes=batch_bytes, purpose=_PURPOSE)
        runs: list[tuple[int, StoredRun]] = []

        def stored(generation: int) -> StoredRun:
            runs.append((generation, stack.enter_context(StoredRun(memory))))
            return runs[-1][1]

        unique = [*keys, _POSITION]

        def merge_smallest(count: int) -> None:
            """Merge the runs of the lowest generations."""
            runs.sort(key=lambda run: -run[0])
            smallest = [runs.pop() for _ in range(count)]
            merged = stored(1 + max(generation for generation, _ in smallest))
            write_merged(merged, [run.read() for _, run in smallest], unique)
            for _, run in smallest:
                run.close()

        for piece in _pieces(batches, memory_bytes // 4):
            stored(0).write(sorted_by(piece, keys))
            if sum(generation == 0 for generation, _ in runs) == MOST_RUNS:
                merge_smallest(MOST_RUNS)
        while len(runs) > MOST_RUNS:
            merge_smallest(min(MOST_RUNS, len(runs) - MOST_RUNS + 1))
        for chunk in chunks([run.read() for _, run in runs], unique):
            yield in_order(chunk).drop_columns([_POSITION])


def _pieces(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The records, numbered, in pieces of about a size."""
    position, held, found = 0, 0, list[pa.RecordBatch]()
    for batch in batches:
        positions = np.arange(position, position + batch.num_rows)
        position += batch.num_rows
        numbered = batch.append_column(_POSITION, pa.array(positions, pa.int64()))
        if found and held + numbered.nbytes > size:
            yield concat(found)
            held, found = 0, []
        found.append(numbered)
        held += numbered.nbytes
    if found:
        yield concat(found)
