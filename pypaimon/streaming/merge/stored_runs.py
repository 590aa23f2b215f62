"""Runs that were made in the course of a merge: in memory as far as that may hold them, else in temporary files."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.io.local_files import written_temporarily

_BATCH_ROWS, _BATCH_BYTES = 8192, 2 << 20
"""What a batch holds that is read back: a merge has one of each run in memory."""


@dataclass(slots=True)
class RunMemory:
    """What runs may keep in memory together.

    Attributes:
        left: Bytes.
        spilled: Bytes that had to go to files.
    """

    left: int
    spilled: int = 0


class StoredRun:
    """A run that was made: the first part of it in memory, the rest in a temporary file, which has no name.

    Args:
        memory: What may stay in memory.
    """

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
        """Let go of it. Idempotent."""
        self._batches.clear()
        if self._file is not None:
            # What could not be written cannot be on closing either; nobody wants it any more.
            with suppress(OSError):
                self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Put records behind those that there are.

        Raises:
            StoreError: A temporary file cannot be written.
        """
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
        for part in _parts(pa.RecordBatch.from_arrays(batch.columns, schema=schema)):
            self._writer.write_batch(part)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All of it, once: what was given out is let go.

        Raises:
            StoreError: A temporary file cannot be written.
        """
        while self._batches:
            yield from _parts(self._batches.popleft())
        if self._writer is not None:
            with _writing():
                self._writer.close()
                # What was buffered is written now.
                self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _writing() -> Any:
    what = "A bucket with many files over the same keys is merged in temporary files"
    return written_temporarily(what, ", or compact the table")
