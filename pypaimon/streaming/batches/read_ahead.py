"""`ReadAhead`: chunks of data read on a thread before they are asked for, in order, bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk, ChunkReader
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import EndOfScan


class ReadAhead:
    """Reads chunks on a daemon thread of its own, which begins when it is first needed. Thread-safe.

    An error reaches the one who takes next, after all that was read before it; the one who then takes again gets
    another try.

    Args:
        reader: Reads them.
        max_bytes: Reading pauses while so many bytes wait to be taken; one chunk always may.
    """

    def __init__(self, reader: ChunkReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        # The lock itself is taken, not the condition: its `with` is one step, which no signal handler can cut in two.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # With the bytes that were read up to the end of each: a count of those that wait could be cut in two.
        self._chunks: deque[tuple[BatchChunk, int]] = deque()
        self._read_bytes = 0
        self._error: BaseException | None = None
        self._reading = False
        self._closed = False
        self._waiting: Future[None] | None = None
        self._origin = Origin()

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, with the table's schema that the stream was built with; asks the table where it is not known."""
        return self._reader.schema

    def waiting_bytes(self, taken: BatchChunk | None = None) -> int:
        """Bytes that were read and not yet taken; without this chunk."""
        with self._lock:
            if not self._chunks:
                return 0
            first, first_end = self._chunks[0]
            _, last_end = self._chunks[-1]
            return last_end - first_end + (0 if first is taken else _size(first))

    def ready(self) -> Future[None]:
        """Done as soon as `peek` has an answer; begins to read if nothing does."""
        with self._lock:
            if self._has_answer():
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._waiting is None:
                self._waiting = Future()
            if not self._reading:
                threading.Thread(target=self._run, name="paimon-read-ahead", daemon=True).start()
            return self._waiting

    def peek(self) -> BatchChunk | None:
        """The next chunk, if there is one by now; it stays here until `drop`.

        Raises:
            EndOfScan: The stream has ended, or is closed.
            PaimonStreamError: Reading failed.
        """
        with self._lock:
            if self._closed:
                raise EndOfScan("the stream is closed")
            if self._chunks:
                return self._chunks[0][0]
            error, self._error = self._error, None
            if error is not None:
                raise error
            return None

    def has_rows(self) -> bool:
        """Whether rows wait to be taken."""
        with self._lock:
            return any(chunk.data is not None for chunk, _ in self._chunks)

    def is_idle(self) -> bool:
        """Whether there is nothing to take: no rows, no error, and no end."""
        with self._lock:
            return not (self._closed or self._error is not None or self.has_rows())

    def drop(self, chunk: BatchChunk | None) -> None:
        """A chunk that was seen is the caller's now. Idempotent."""
        with self._lock:
            if self._chunks and self._chunks[0][0] is chunk:
                self._chunks.popleft()
                self._changed.notify_all()

    def close(self) -> None:
        """End at once; what was read is thrown away. Idempotent; does nothing in a process that was forked."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            self._chunks.clear()
            self._tell()
        self._reader.close()

    def _has_answer(self) -> bool:
        return bool(self._chunks) or self._error is not None or self._closed

    def _run(self) -> None:
        with self._lock:
            if self._reading:
                return
            self._reading = True
        while True:
            try:
                chunk = self._reader.next()
                size = _size(chunk)
            except BaseException as error:  # noqa: BLE001 - it belongs to the one who takes next
                with self._lock:
                    self._error = error
                    self._reading = False
                    self._tell()
                return
            with self._lock:
                if self._closed:
                    return
                self._read_bytes += size
                self._chunks.append((chunk, self._read_bytes))
                self._tell()
                self._changed.wait_for(self._may_read)
                if self._closed:
                    return

    def _may_read(self) -> bool:
        return self._closed or not self._chunks or self.waiting_bytes() < self._max_bytes

    def _tell(self) -> None:
        """Wake who waits; called with the lock held."""
        self._changed.notify_all()
        if self._waiting is not None:
            self._waiting.set_result(None)
            self._waiting = None


def _size(chunk: BatchChunk) -> int:
    return 0 if chunk.data is None else int(chunk.data.nbytes)
