"""`ReadAhead`: prefetches chunks of data on a thread, in order, bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk, ChunkReader
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import EndOfScan


class ReadAhead:
    """Prefetches chunks on a daemon thread, which starts when it is first needed. Thread-safe.

    An error is raised by the next call after all chunks before it were taken; the call after that retries.

    Args:
        reader: Reads the chunks.
        max_bytes: Reading pauses while this many bytes wait; one chunk is always read.
    """

    def __init__(self, reader: ChunkReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        # The lock is taken, not the condition: a signal handler cannot interrupt the `with` of an RLock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Each with the bytes read up to its end: updating a separate counter could be interrupted by a signal.
        self._chunks: deque[tuple[BatchChunk, int]] = deque()
        self._read_bytes = 0
        self._error: BaseException | None = None
        self._reading = False
        self._closed = False
        self._waiting: Future[None] | None = None
        self._origin = Origin()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows by the table's schema when the stream was built; reads it if it is not known."""
        return self._reader.schema

    def waiting_bytes(self, taken: BatchChunk | None = None) -> int:
        """Bytes that wait to be taken, without this chunk."""
        with self._lock:
            if not self._chunks:
                return 0
            first, first_end = self._chunks[0]
            _, last_end = self._chunks[-1]
            return last_end - first_end + (0 if first is taken else _size(first))

    def ready(self) -> Future[None]:
        """Done as soon as `peek` has an answer. Starts the thread if needed."""
        with self._lock:
            if self._has_answer():
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._waiting is None:
                self._waiting = Future()
            if not self._reading:
                BackgroundThread(self._run, "paimon-read-ahead", self.close).start()
            return self._waiting

    def peek(self) -> BatchChunk | None:
        """The next chunk if it was read; it stays here until `drop`.

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
        """Remove a chunk that the caller has taken. Idempotent."""
        with self._lock:
            if self._chunks and self._chunks[0][0] is chunk:
                self._chunks.popleft()
                self._changed.notify_all()

    def close(self) -> None:
        """End at once and drop prefetched chunks. Idempotent; does nothing in a forked process."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            self._chunks.clear()
            self._notify()
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
            except BaseException as error:  # noqa: BLE001 - raised by the next call
                with self._lock:
                    self._error = error
                    self._reading = False
                    self._notify()
                return
            with self._lock:
                if self._closed:
                    return
                self._read_bytes += size
                self._chunks.append((chunk, self._read_bytes))
                self._notify()
                self._changed.wait_for(self._may_read)
                if self._closed:
                    return

    def _may_read(self) -> bool:
        return self._closed or not self._chunks or self.waiting_bytes() < self._max_bytes

    def _notify(self) -> None:
        """Wake waiting calls. The lock is held."""
        self._changed.notify_all()
        if self._waiting is not None:
            self._waiting.set_result(None)
            self._waiting = None


def _size(chunk: BatchChunk) -> int:
    return 0 if chunk.data is None else int(chunk.data.nbytes)
