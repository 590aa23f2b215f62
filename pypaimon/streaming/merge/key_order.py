"""Sorts records in any order into runs, piece by piece, so that few of them are in memory at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa

from pypaimon.streaming.merge.ordering import KeyCodec
from pypaimon.streaming.merge.runs import concat
from pypaimon.streaming.merge.stages import MOST_RUNS, Begin, Run, RunMemory, StoredRun, write_merged

PIECE_BYTES = 32 << 20
"""Bytes that are sorted at once."""

STORED_BYTES = 64 << 20
"""Bytes of sorted pieces that stay in memory. The rest goes to temporary files."""


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
            pieces[-1].write(_sorted(records, keys))
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


def _sorted(records: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    codec = KeyCodec(len(keys))
    columns = [records.column(name) for name in keys]
    codec.fit(columns)
    return records.take(pa.array(np.argsort(codec.encode(columns), kind="stable")))
