"""`Store`: every request of a stream to the table's store: timed out, retried, counted, its errors translated."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, StoreError
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.io_pool import IOPool

T = TypeVar("T")
_FORBIDDEN_WORDS = ("ACCESS_DENIED", "ACCESSDENIED", "ACCESS DENIED", "FORBIDDEN", "STATUS: 403", "INVALID_ACCESS_KEY")
_MISSING_WORDS = ("NO_SUCH_KEY", "NOSUCHKEY", "RESOURCE_NOT_FOUND", "HTTP STATUS: 404")
_UNCHANGING = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EROFS)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a request is repeated.

    Attributes:
        attempts: Requests in all.
        first_delay: Seconds before the second one; doubles from then on.
        max_delay: Longest pause, in seconds.
    """

    attempts: int = 5
    first_delay: float = 0.1
    max_delay: float = 5.0

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to pause after the given attempt (from 1); jittered, so that many readers do not come back together."""
        return min(self.max_delay, self.first_delay * 2.0 ** (attempt - 1)) * (0.5 + rng.random() / 2)


class Store:
    """The files of a table, as bytes.

    A missing object is `FileNotFoundError` of the read itself; nothing is probed first. What may pass (time-outs, 5xx,
    resets) is retried with backoff. What will not (forbidden) is an error at once. Thread-safe.

    Args:
        file_io: pypaimon's `FileIO` of the table, or anything with its methods.
        timeout: Seconds that one request may take.
        concurrency: Requests in flight at the same time.
        retry: How often requests are repeated.
        sleep: Called with seconds between attempts.
        rng: Source of jitter.
    """

    def __init__(
        self,
        file_io: Any,
        timeout: float = 60.0,
        concurrency: int = 32,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.file_io = file_io
        self.pool = IOPool(concurrency, timeout)
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def requests(self) -> Mapping[str, int]:
        """Calls so far by kind: read, list, write, delete; and retried."""
        with self._lock:
            return dict(self._counts)

    def read(self, path: str) -> bytes:
        """The bytes of a file. One request unless retried.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptTableError: It may not be read.
            StoreError: The store kept failing (retriable).
        """
        return self._retried("read", path, lambda: self.pool.run(self._read, path))

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """The bytes of several files, asked for at the same time; None for those that are missing.

        Raises:
            CorruptTableError: One may not be read.
            StoreError: The store kept failing (retriable).
        """
        if len(paths) == 1:
            return [self._read_or_none(paths[0], None)]
        futures = [self._submit(path) for path in paths]
        try:
            return [self._read_or_none(path, future) for path, future in zip(paths, futures, strict=True)]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def parse(self, path: str, parser: Callable[[bytes], T]) -> T:
        """Read a file and parse it, again a few times if that fails, since a writer may be in the middle of it.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptTableError: The parser kept raising `ValueError`, or the file may not be read.
            StoreError: The store kept failing (retriable).
        """
        return self.parse_data(path, self.read(path), parser)

    def parse_data(self, path: str, data: bytes, parser: Callable[[bytes], T]) -> T:
        """As `parse`, for a file that has been read already."""
        for attempt in range(1, self._retry.attempts + 1):
            try:
                return parser(data)
            except ValueError as error:
                if attempt == self._retry.attempts:
                    raise CorruptTableError(path, f"cannot be decoded: {error}") from error
            self._pause(attempt)
            data = self.read(path)
        raise AssertionError("unreachable")

    def list_names(self, directory: str) -> list[str]:
        """Names of the files and directories in a directory; none if it does not exist."""
        return self._retried("list", directory, lambda: self.pool.run(self._list, directory))

    def list_statuses(self, directory: str) -> list[Any]:
        """Statuses (`path`, `size`, `mtime`) of what is in a directory; none if it does not exist."""
        return self._retried("list", directory, lambda: self.pool.run(self._statuses, directory))

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write a file so that a reader, or a crash, sees the old content or the new.

        On file systems a hidden temporary file takes the place of the old one; an object store's PUT is atomic.
        """
        self._retried("write", path, lambda: self.pool.run(self._write, path, data))

    def delete(self, path: str) -> None:
        """Delete a file; one that does not exist is fine."""
        self._retried("delete", path, lambda: self.pool.run(self._delete, path))

    def close(self) -> None:
        """End the threads; idempotent."""
        self.pool.close()

    def _submit(self, path: str) -> Future[bytes]:
        self._count("read")
        return self.pool.submit(self._read, path)

    def _read_or_none(self, path: str, future: Future[bytes] | None) -> bytes | None:
        first = future

        def attempt() -> bytes:
            nonlocal first
            pending, first = first, None
            return self.pool.run(self._read, path) if pending is None else self.pool.result(pending)

        try:
            return self._retried("read", path, attempt, counted=future is not None)
        except FileNotFoundError:
            return None

    def _retried(self, kind: str, path: str, request: Callable[[], T], counted: bool = False) -> T:
        for attempt in range(1, self._retry.attempts + 1):
            if not counted or attempt > 1:
                self._count(kind)
            try:
                return request()
            except (OSError, IOTimeoutError) as error:
                failure = _translated(path, error)
                if not isinstance(failure, StoreError):
                    raise failure from error
                if attempt == self._retry.attempts:
                    raise failure from error
            self._count("retried")
            self._pause(attempt)
        raise AssertionError("unreachable")

    def _pause(self, attempt: int) -> None:
        self._sleep(self._retry.delay(attempt, self._rng))

    def _count(self, kind: str) -> None:
        with self._lock:
            self._counts[kind] += 1

    def _read(self, path: str) -> bytes:
        with self.file_io.new_input_stream(path) as stream:
            data: bytes = stream.read()
        return data

    def _statuses(self, directory: str) -> list[Any]:
        try:
            return list(self.file_io.list_status(directory))
        except FileNotFoundError:
            return []

    def _list(self, directory: str) -> list[str]:
        return [status.path.rstrip("/").rsplit("/", 1)[-1] for status in self._statuses(directory)]

    def _write(self, path: str, data: bytes) -> None:
        if _scheme(path) not in ("", "file"):
            with self.file_io.new_output_stream(path) as stream:
                stream.write(data)
            return
        directory, name = path.rsplit("/", 1)
        temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            with self.file_io.new_output_stream(temporary) as stream:
                stream.write(data)
            os.replace(local_path(temporary), local_path(path))
        except BaseException:
            self._delete(temporary)
            raise

    def _delete(self, path: str) -> None:
        try:
            self.file_io.delete(path)
        except FileNotFoundError:
            return


def _scheme(path: str) -> str:
    return path.split(":", 1)[0].lower() if "://" in path or path.startswith("file:") else ""


def _translated(path: str, error: OSError) -> Exception:
    """Our error for a failed request: missing, forbidden, timed out, or failing for now."""
    if isinstance(error, (FileNotFoundError, IOTimeoutError)):
        return IOTimeoutError(f"{path}: {error}") if isinstance(error, IOTimeoutError) else error
    if isinstance(error, StoreError):
        return error
    message = str(error).upper()
    if isinstance(error, PermissionError) or error.errno in _UNCHANGING or any(w in message for w in _FORBIDDEN_WORDS):
        return CorruptTableError(path, f"may not be read or written ({error}); check the credentials and permissions")
    if any(word in message for word in _MISSING_WORDS):
        return FileNotFoundError(errno.ENOENT, str(error), path)
    return StoreError(f"{path}: the store failed repeatedly: {error}")
