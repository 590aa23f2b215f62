"""`ReadAhead`: prefetches chunks of data on a thread, in order, bounded in bytes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk, ChunkReader
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.scanning.metrics import ScanMetrics


class ReadingThread(ABC):
    """A daemon thread that reads ahead for a stream, and the future that the stream waits for. Thread-safe.

    It starts when it is first needed, and again after an error, which the stream has to take first.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The lock is taken, not the condition: a signal handler cannot interrupt the `with` of an RLock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._error: BaseException | None = None
        self._is_running = False
        self._closed = False
        self._waiting: Future[None] | None = None
        self._origin = Origin()

    def ready(self) -> Future[None]:
        """See `Source.ready`."""
        with self._lock:
            if self._waiting is None:
                self._waiting = Future()
            waiting = self._waiting
            if self._has_answer():
                self._wake()
            elif not self._is_running:
                # It notes itself that it runs, because a signal handler may raise before it was started.
                BackgroundThread(self._run, self._name, self.close).start()
            return waiting

    @abstractmethod
    def close(self) -> None:
        """See `Source.close`."""

    @abstractmethod
    def _has_answer(self) -> bool:
        """Whether the stream need not wait. The lock is held."""

    @abstractmethod
    def _read(self) -> None:
        """Read until the stream is closed. Called by the thread."""

    def _wake(self) -> None:
        """Have the thread, and the stream if there is an answer, look again. The lock is held."""
        self._changed.notify_all()
        if self._waiting is not None and self._has_answer():
            waiting, self._waiting = self._waiting, None
            waiting.set_result(None)

    def _raise_error(self) -> None:
        """Raise the error of the thread, if there is one, once. The lock is held."""
        error, self._error = self._error, None
        if error is not None:
            self._changed.notify_all()
            raise error

    def _run(self) -> None:
        with self._lock:
            if self._is_running:
                return
            self._is_running = True
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - raised by the next `peek`
            with self._lock:
                self._error = error
                self._is_running = False
                self._wake()


class ReadAhead(ReadingThread):
    """Prefetches the chunks of a table.

    An error is raised by the next call after all chunks before it were taken; the call after that retries.

    Args:
        max_bytes: Reading pauses while this many bytes wait; one chunk is always read.
    """

    def __init__(self, reader: ChunkReader, max_bytes: int) -> None:
        super().__init__("paimon-read-ahead")
        self._reader = reader
        self._max_bytes = max_bytes
        # Each with the bytes read up to its end: updating a separate counter could be interrupted by a signal.
        self._chunks: deque[tuple[BatchChunk, int]] = deque()
        self._read_bytes = 0

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows by the table's schema when the stream was built; reads it if it is not known."""
        return self._reader.schema

    @property
    def metrics(self) -> ScanMetrics:
        """See `Source.metrics`."""
        return self._reader.metrics

    @property
    def waiting_bytes(self) -> int:
        """See `Source.waiting_bytes`."""
        with self._lock:
            if not self._chunks:
                return 0
            first, first_end = self._chunks[0]
            _, last_end = self._chunks[-1]
            return last_end - first_end + first.size

    def peek(self) -> BatchChunk | None:
        """See `Source.peek`."""
        with self._lock:
            if self._closed:
                raise EndOfScan("the stream is closed")
            if self._chunks:
                return self._chunks[0][0]
            self._raise_error()
            return None

    def has_rows(self) -> bool:
        """Whether rows wait to be taken."""
        with self._lock:
            return any(chunk.data is not None for chunk, _ in self._chunks)

    def is_idle(self) -> bool:
        """Whether there is nothing to take: no rows, no error, and no end."""
        with self._lock:
            return not (self._closed or self._error is not None or self.has_rows())

    def drop(self, item: BatchChunk) -> None:
        """See `Source.drop`."""
        with self._lock:
            if self._chunks and self._chunks[0][0] is item:
                self._chunks.popleft()
                self._changed.notify_all()

    def close(self) -> None:
        """See `Source.close`."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            self._chunks.clear()
            self._wake()
        self._reader.close()

    def _has_answer(self) -> bool:
        return bool(self._chunks) or self._error is not None or self._closed

    def _read(self) -> None:
        while not self._closed:
            chunk = self._reader.next()
            with self._lock:
                if self._closed:
                    return
                self._read_bytes += chunk.size
                self._chunks.append((chunk, self._read_bytes))
                self._wake()
                self._changed.wait_for(self._may_read)

    def _may_read(self) -> bool:
        return self._closed or not self._chunks or self.waiting_bytes < self._max_bytes
