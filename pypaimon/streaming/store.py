"""`Store`: every request of a stream to the table's store: timed out, retried, counted, its errors translated."""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, StoreError
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.io_pool import IOPool
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.object_reads import ObjectReads

T = TypeVar("T")

_LOG = StreamLog(__name__)
_AWS_CODE = re.compile(r"AWS Error ([A-Z_]+)")
_REFUSED_CODES = frozenset(
    (
        "ACCESS_DENIED",
        "INVALID_ACCESS_KEY_ID",
        "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN",
        "NO_SUCH_BUCKET",
        "OPT_IN_REQUIRED",
        "SIGNATURE_DOES_NOT_MATCH",
        "UNRECOGNIZED_CLIENT",
    )
)
_REFUSED = re.compile(
    r"HTTP status:? (?:401|403)\b|\b(?:AccessDenied|InvalidAccessKeyId|NoSuchBucket|SignatureDoesNotMatch)\b", re.I
)
_MISSING_CODES = frozenset(("NO_SUCH_KEY", "RESOURCE_NOT_FOUND"))
_MISSING = re.compile(r"HTTP status:? 404\b|\bNoSuchKey\b", re.I)
_REFUSED_NUMBERS = frozenset(
    (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP)
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a request is repeated.

    Attributes:
        attempts: Requests in all.
        first_delay: Seconds before the second one; doubles from then on.
        max_delay: Longest pause, in seconds.
        hung_attempts: Requests in all that may hang until they time out.
    """

    attempts: int = 5
    first_delay: float = 0.1
    max_delay: float = 5.0
    hung_attempts: int = 2

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to pause after an attempt (from 1); jittered, so that many readers do not come back together."""
        return min(self.max_delay, self.first_delay * 2.0 ** (attempt - 1)) * (0.5 + rng.random() / 2)


class Store:
    """The files of a table, as bytes.

    A missing object is `FileNotFoundError` of the read itself; nothing is probed first. What may pass (time-outs, 5xx,
    resets) is retried with backoff; what will not (forbidden) is an error at once; neither is ever "no data".
    Thread-safe.

    Args:
        file_io: pypaimon's `FileIO` of the table, or anything with its methods.
        timeout: Seconds that one request may take.
        concurrency: Requests in flight at the same time.
        retry: How often requests are repeated.
        sleep: Called with seconds between attempts.
        rng: Source of jitter.

    Attributes:
        file_io: As it was given.
        pool: The threads that requests run on.
        objects: Reads that may go past the FileIO, where that saves requests.
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
        self.objects = ObjectReads(file_io, timeout)
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far by kind: read, list, write, delete; and how many of them were retried or abandoned."""
        with self._lock:
            return {**self._counts, "abandoned": self.pool.abandoned}

    def read(self, path: str) -> bytes:
        """The bytes of a file. One request unless retried.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptTableError: It may not be read.
            StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
        """
        return self._one("read", path, self._read)

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """The bytes of several files, asked for at the same time; None for those that are missing.

        Raises:
            CorruptTableError: One may not be read.
            StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
        """
        answers = self._ask("read", paths, self._read)
        return [None if isinstance(answer, FileNotFoundError) else answer for answer in answers]

    def parse(self, path: str, parser: Callable[[bytes], T]) -> T:
        """Read a file and parse it, again a few times if that fails, since a writer may be in the middle of it.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptTableError: The parser kept raising `ValueError`, or `RecursionError` for what is nested too deeply;
                or the file may not be read.
            StoreError: The store kept failing (retriable).
        """
        return self.parse_data(path, self.read(path), parser)

    def parse_data(self, path: str, data: bytes, parser: Callable[[bytes], T]) -> T:
        """As `parse`, for a file that has been read already."""
        for attempt in range(1, self._retry.attempts + 1):
            try:
                return parser(data)
            except (ValueError, RecursionError) as error:
                if attempt == self._retry.attempts:
                    raise CorruptTableError(path, f"cannot be decoded: {error}") from error
            self._pause(attempt)
            data = self.read(path)
        raise AssertionError("unreachable")

    def list_names(self, directory: str) -> list[str]:
        """Names of the files and directories in a directory; none if it does not exist."""
        return [status.path.rstrip("/").rsplit("/", 1)[-1] for status in self.list_statuses(directory)]

    def list_statuses(self, directory: str) -> list[Any]:
        """Statuses (`path`, `size`, `mtime`) of what is in a directory; none if it does not exist."""
        try:
            return self._one("list", directory, self._statuses)
        except FileNotFoundError:
            return []

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write a file so that a reader, or a crash, sees the old content or the new.

        On file systems a hidden temporary file takes the place of the old one; an object store's PUT is atomic.
        A write to an object store that hung and was given up may still take effect later.
        """
        self._one("write", path, partial(self._write, data=data))

    def delete(self, path: str) -> None:
        """Delete a file; one that does not exist is fine."""
        with suppress(FileNotFoundError):
            self._one("delete", path, self.file_io.delete)

    def call(self, kind: str, subject: str, request: Callable[[str], T]) -> T:
        """Any other request that fails by `OSError`, timed out, retried and counted as those to the store.

        Args:
            kind: What it counts as.
            subject: Its argument, named in errors.
            request: Runs on a thread of the pool.
        """
        return self._one(kind, subject, request)

    def close(self) -> None:
        """End the threads; idempotent."""
        self.pool.close()

    def _one(self, kind: str, path: str, request: Callable[[str], T]) -> T:
        (answer,) = self._ask(kind, (path,), request)
        if isinstance(answer, FileNotFoundError):
            raise answer
        return answer

    def _ask(self, kind: str, paths: Sequence[str], request: Callable[[str], T]) -> list[T | FileNotFoundError]:
        """Ask for all paths at the same time, and again for those that failed; what is missing is no failure."""
        answers = self._round(kind, paths, request)
        for attempt in range(1, self._retry.attempts + 1):
            failed = [place for place, answer in enumerate(answers) if isinstance(answer, StoreError)]
            if not failed:
                break
            errors = [answers[place] for place in failed]
            hung = [error for error in errors if isinstance(error, IOTimeoutError)]
            if hung and attempt >= self._retry.hung_attempts:
                raise hung[0]
            if attempt == self._retry.attempts:
                raise cast("StoreError", errors[0])
            self._count("retried", len(failed))
            cause = errors[0].__cause__ if isinstance(errors[0], StoreError) else None
            text = "%(count)d requests (%(kind)s) failed and are repeated, the first %(path)s: %(error)s"
            fields: dict[str, Any] = {"kind": kind, "count": len(failed), "attempt": attempt, "path": paths[failed[0]]}
            _LOG.warning("retry", text, **fields, error=str(cause or errors[0]))
            self._pause(attempt)
            for place, answer in zip(failed, self._round(kind, [paths[each] for each in failed], request), strict=True):
                answers[place] = answer
        return cast("list[T | FileNotFoundError]", answers)

    def _round(
        self, kind: str, paths: Sequence[str], request: Callable[[str], T]
    ) -> list[T | FileNotFoundError | StoreError]:
        futures: list[Future[T]] = []
        try:
            for path in paths:
                futures.append(self.pool.submit(request, path))
                self._count(kind)
            answers: list[T | FileNotFoundError | StoreError] = []
            for path, future in zip(paths, futures, strict=True):
                answer = self._answer(path, future)
                answers.append(answer)
            return answers
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _answer(self, path: str, future: Future[T]) -> T | FileNotFoundError | StoreError:
        """What a request came to; raises what is wrong for good."""
        try:
            return self.pool.result(future)
        except OSError as error:
            failure = translated(path, error)
            if isinstance(failure, CorruptTableError):
                raise failure from error
            if failure is not error:
                failure.__cause__ = error
            return failure

    def _pause(self, attempt: int) -> None:
        self._sleep(self._retry.delay(attempt, self._rng))

    def _count(self, kind: str, number: int = 1) -> None:
        with self._lock:
            self._counts[kind] += number

    def _read(self, path: str) -> bytes:
        return self.objects.read(path, partial(self._read_stream, path))

    def _read_stream(self, path: str) -> bytes:
        with self.file_io.new_input_stream(path) as stream:
            data: bytes = stream.read()
        return data

    def _statuses(self, directory: str) -> list[Any]:
        return list(self.file_io.list_status(directory))

    def _write(self, path: str, data: bytes) -> None:
        if not is_local(path):
            with self.file_io.new_output_stream(path) as stream:
                stream.write(data)
            return
        directory, name = path.rsplit("/", 1)
        temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            with self.file_io.new_output_stream(temporary) as stream:
                stream.write(data)
            if self.pool.given_up:
                raise IOTimeoutError("the write was given up; a later one must not be undone by it")
            os.replace(local_path(temporary), local_path(path))
        except BaseException:
            # What made the write fail is what counts, not that nothing can be tidied up either.
            with suppress(OSError):
                self.file_io.delete(temporary)
            raise


def is_local(path: str) -> bool:
    """Whether a path lies in a file system of this machine."""
    return "://" not in path or path.lower().startswith("file:")


def translated(path: str, error: OSError) -> FileNotFoundError | StoreError | CorruptTableError:
    """Our error for a failed request: missing, refused for good, timed out, or failing for now."""
    if isinstance(error, FileNotFoundError):
        return error
    if isinstance(error, IOTimeoutError):
        return IOTimeoutError(f"{path}: {error}")
    if isinstance(error, (StoreError, CorruptTableError)):
        return error
    message = str(error)
    code = _AWS_CODE.search(message)
    if (code is not None and code[1] in _MISSING_CODES) or _MISSING.search(message):
        return FileNotFoundError(errno.ENOENT, message, path)
    refused = isinstance(error, PermissionError) or error.errno in _REFUSED_NUMBERS
    if refused or (code is not None and code[1] in _REFUSED_CODES) or _REFUSED.search(message):
        return CorruptTableError(path, f"may not be read or written ({error}); check the credentials and permissions")
    return StoreError(f"{path}: the store failed repeatedly: {error}")
