"""`StoredRun`: an intermediate run of a merge, in memory up to a bound and then in a temporary file."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.io.temporary_files import written_temporarily

_BATCH_ROWS, _BATCH_BYTES = 8192, 2 << 20
"""Size of a batch that is read back. A merge has one batch of each run in memory."""


@dataclass(slots=True)
class RunMemory:
    """The memory that runs share.

    Attributes:
        left: Bytes that may still be used.
        spilled: Bytes that went to files.
    """

    left: int
    spilled: int = 0


class StoredRun:
    """An intermediate run: its first part in memory, the rest in a temporary file without a name.

    Args:
        memory: The memory that it shares with other runs.
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
        """Release memory and file. Idempotent."""
        self._batches.clear()
        if self._file is not None:
            # Closing flushes buffered bytes, which may fail as the write before it did. They are not needed any more.
            with suppress(OSError):
                self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append records.

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
        """Read all records once, and release them on the way.

        Raises:
            StoreError: A temporary file cannot be written.
        """
        while self._batches:
            yield from _parts(self._batches.popleft())
        if self._writer is not None:
            with _writing():
                self._writer.close()
                # Seeking writes the buffered bytes, so it may fail.
                self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _writing() -> Any:
    what = "A bucket with many files over the same keys is merged in temporary files"
    return written_temporarily(what, ", or compact the table")
