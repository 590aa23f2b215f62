"""`Store`: the files of a table, as bytes."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.io.conditional_writes import (
    ConditionalWrites,
    Seen,
    is_local,
    is_renamed,
    not_renamed,
    write_stream,
)
from pypaimon.streaming.io.exclusive_files import ExclusiveFiles
from pypaimon.streaming.io.fetch_ahead import FetchAhead
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.new_object import NewObject
from pypaimon.streaming.io.object_reads import ObjectReads
from pypaimon.streaming.io.retried_requests import BegunCall, RetriedRequests
from pypaimon.streaming.paimon.internals import arrow_file_io, entries_of, input_stream, object_stream

T = TypeVar("T")

HUNG_ATTEMPTS = 2
"""Requests in total that may hang until they time out."""

RETRY = Backoff(attempts=5, first_pause=0.1, longest_pause=5.0)
"""How often requests are repeated, unless the caller chooses otherwise."""

CONCURRENCY = 64
"""Requests in flight at the same time, unless the caller chooses otherwise."""

_ENTRIES = 256
_DELETED_TOGETHER, _BATCHES = 1000, 4
"""Objects in one request, and such requests at the same time."""
_LARGEST = 16 << 10


class ValidatedCache:
    """Bytes of small objects by path, each with the entity tag that the store gave it. Thread-safe.

    Before Arrow reads an object it asks for its size, and gets its tag as well. If the tag of an object that was read
    before is the same, its bytes need no further request.
    """

    def __init__(self) -> None:
        self._entries: LRUCache[str, tuple[bytes, bytes]] = LRUCache(_ENTRIES)
        self._lock = cache_lock(self._entries)

    def read(self, path: str, stream: Any) -> bytes:
        """All bytes of an object.

        Args:
            path: The object.
            stream: The object, just opened.
        """
        tag = _entity_tag(stream)
        if tag is None:
            return bytes(stream.read())
        with self._lock.held:
            known_tag, known = self._entries.get(path, (None, b""))
        if known_tag == tag:
            return known
        data = bytes(stream.read())
        if len(data) <= _LARGEST:
            with self._lock.held:
                self._entries[path] = tag, data
        return data


def _entity_tag(stream: Any) -> bytes | None:
    tag: bytes | None = stream.metadata().get("ETag") if isinstance(stream, pa.NativeFile) else None
    return tag


class Store(RetriedRequests):
    """The files of a table, as bytes.

    A missing object is a `FileNotFoundError` of the read itself; nothing is probed first. Errors that may pass
    (timeouts, 5xx, resets) are retried with back-off, others (forbidden) are raised at once. Neither is ever taken for
    "no data". Thread-safe.

    Args:
        file_io: pypaimon's `FileIO` of the table, or any object with its methods.
        timeout: Seconds that one request may take.
        concurrency: Requests in flight at the same time.
        retry: How often requests are repeated; must limit the attempts.
        hung_attempts: Requests in total that may hang until they time out.
        sleep: Called with the seconds of each pause.
        rng: Source of jitter.

    Attributes:
        file_io: As above.
        objects: Requests that bypass the FileIO, to save some, or because it cannot make them.
    """

    def __init__(
        self,
        file_io: Any,
        timeout: float = 60.0,
        concurrency: int = CONCURRENCY,
        retry: Backoff = RETRY,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        hung_attempts: int = HUNG_ATTEMPTS,
    ) -> None:
        super().__init__(timeout, concurrency, retry, sleep, rng or random.Random(), hung_attempts)
        self.file_io = file_io
        self.objects = ObjectReads(file_io, timeout)
        self._ahead = Lazy(partial(FetchAhead, timeout, concurrency))
        self._writes = ConditionalWrites(file_io, self.objects)
        self._exclusive = ExclusiveFiles(file_io, self.objects)
        self._cache = ValidatedCache()

    def for_reader(self) -> Store:
        """See the base class."""
        store = super().for_reader()
        store._ahead = Lazy(partial(FetchAhead, self.pool.timeout, self.pool.size))
        return store

    @property
    def ahead(self) -> FetchAhead:
        """The prefetched pieces of this reader."""
        return self._ahead.get()

    def read(self, path: str) -> bytes:
        """The bytes of a file. One request unless retried.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptTableError: It may not be read.
            StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
        """
        return self._one("read", path, self._read)

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """The bytes of several files, requested at the same time; None for missing files.

        Raises:
            CorruptTableError: One may not be read.
            StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
        """
        answers = self._ask("read", paths, self._read)
        return [None if isinstance(answer, FileNotFoundError) else answer for answer in answers]

    def begin_read(self, path: str) -> BegunCall[bytes]:
        """Submit a `read`; the returned call waits for the answer, and raises as `read`."""
        return self.begin_call("read", path, self._read)

    def parse(self, path: str, parser: Callable[[bytes], T]) -> T:
        """Read a file and parse it; repeat both a few times if parsing fails, since a writer may not be done with it.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptTableError: The parser kept raising `ValueError`, or `RecursionError` for deeply nested content; or
                the file may not be read.
            StoreError: The store kept failing (retriable).
        """
        return self.parse_data(path, self.read(path), parser)

    def parse_data(self, path: str, data: bytes, parser: Callable[[bytes], T]) -> T:
        """As `parse`, for a file that has been read already."""
        return self._parsed(path, Seen(data), parser, lambda: Seen(self.read(path)))[0]

    def look(self, path: str, parser: Callable[[bytes], T]) -> tuple[T, Seen]:
        """As `parse`, for a small file that is to be replaced: also returns the argument for `replace`. One request."""
        read = partial(self._one, "read", path, self._writes.look)
        return self._parsed(path, read(), parser, read)

    def _parsed(self, path: str, seen: Seen, parser: Callable[[bytes], T], again: Callable[[], Seen]) -> tuple[T, Seen]:
        for attempt in itertools.count(1):
            try:
                return parser(seen.data), seen
            except (ValueError, RecursionError) as error:
                if attempt == self._common.retry.attempts:
                    raise CorruptTableError(path, f"cannot be decoded: {error}") from error
            self._pause(attempt)
            seen = again()
        raise AssertionError("unreachable")

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries of a directory; empty if it does not exist."""
        try:
            entries = self._one("list", directory, partial(entries_of, self.file_io))
        except FileNotFoundError:
            return []
        return list(dict.fromkeys(_name(entry) for entry in entries))

    def list_statuses(self, directory: str) -> list[Any]:
        """Statuses (`path`, `size`, `mtime`) of the entries of a directory; empty if it does not exist."""
        try:
            return self._one("list", directory, self._statuses)
        except FileNotFoundError:
            return []

    def list_written(self, directory: str) -> dict[str, Any]:
        """Statuses by name of a directory whose files were written with `replace` or `write_atomic`.

        On HDFS a file whose writer died during a rename gets its name back.
        """
        found = self.statuses_by_name(directory)
        if left := not_renamed(directory, found):
            for path in left:
                self._one("write", path, self._writes.recover)
            found = self.statuses_by_name(directory)
        return found

    def statuses_by_name(self, directory: str) -> dict[str, Any]:
        """As `list_statuses`, by the names of the entries."""
        return {_name(status): status for status in self.list_statuses(directory)}

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write a file so that readers see the old content or the new one, also after a crash.

        On file systems a hidden temporary file replaces the old one; an object store's PUT is atomic. A write to an
        object store that hung and was given up may still take effect later.
        """
        self._one("write", path, partial(self._write, data=data))

    def begin_write_new(self, path: str, data: bytes) -> BegunCall[None]:
        """Write a file of a unique name that nobody else knows yet; see `begin_call`."""
        return self.begin_call("write", path, partial(self._write_new, data=data))

    def open_new(self, path: str) -> Any:
        """Open a new file of a unique name for writing. For objects that pypaimon's own FileIO serves a `NewObject`.

        Raises:
            OSError: It cannot be written.
        """
        if self.puts(path):
            stream = partial(object_stream, self.file_io, path)
            return NewObject(lambda data: self.begin_write_new(path, data)(), stream)
        return self.file_io.new_output_stream(path)

    def puts(self, path: str) -> bool:
        """Whether a file there is an object, which appears as a whole, in one step."""
        return arrow_file_io(self.file_io, path) is not None

    def write_once(self, path: str, data: bytes) -> None:
        """Write an object in a single attempt.

        Raises:
            OSError: The attempt failed; the object may have been written.
            IOTimeoutError: The request hung.
        """
        self._count("write")
        self.pool.result(self.pool.submit(partial(self._write_new, path, data)))

    def replace(self, path: str, data: bytes, seen: Seen | None) -> None:
        """As `write_atomic`, if the file is unchanged since `look`. One request if the store compares.

        If the store compares (local files, and objects that the extra `fast` serves), a write that hung and was given
        up takes no effect after another write.

        Args:
            path: The file.
            data: The new content. It is fine if the file has it already.
            seen: The content to be replaced; None if there must be no file.

        Raises:
            ChangedFileError: The file has changed; nothing was written.
            CorruptTableError: The file may not be written.
            StoreError: The store kept failing (retriable).
        """
        self._one("write", path, partial(self._writes.replace, data=data, seen=seen))

    def creates(self, path: str) -> bool:
        """Whether the store heeds the condition that an object is created only if there is none.

        The first call for a bucket probes it with four requests, and once more if it refuses one.

        Raises:
            CorruptTableError: Nothing may be written there.
            StoreError: The store kept failing (retriable).
        """
        known = self.objects.known_to_create(path)
        return self._one("write", path, self.objects.creates) if known is None else known

    def create_exclusive(self, path: str, data: bytes, directories: int = 3) -> bool:
        """Create a small file, if there is none of the name: of all processes that try, exactly one succeeds.

        One request if the file is created, another one if the name exists. The first file in a bucket or a local
        directory costs some more, which probe whether the store overwrites. An attempt whose answer was lost is
        recognised, because the existing file is read.

        Args:
            path: The file.
            data: The content, which no other process may write: it holds a random number, for example.
            directories: How many missing directories may be created; 0 for a table that may have been dropped.

        Returns:
            Whether the file has this content; False if it has another one, and nothing was written.

        Raises:
            StreamConfigError: The store cannot create files exclusively, or claims to and overwrites them.
            CorruptTableError: The file may not be written.
            FileNotFoundError: Its directory is missing, and may not be created.
            TableChangedError: More directories are missing than may be created.
            StoreError: The store kept failing (retriable). The file may exist, now or later; another call with the same
                content finds out.
        """
        return self._one("write", path, partial(self._exclusive.create, data=data, directories=directories))

    def check_exclusive(self, path: str) -> None:
        """Refuse a store in which `create_exclusive` would fail, before anything is written. Raises as that."""
        self._one("write", path, self._exclusive.check)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self._one("delete", path, self._writes.delete)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete files, if they exist, several at the same time: up to a thousand objects of a bucket in one request.

        Raises:
            CorruptTableError: One may not be deleted. Some of the others are.
            StoreError: The store kept failing (retriable). As above.
        """
        for start in range(0, len(paths), _BATCHES * _DELETED_TOGETHER):
            left = self._delete_batches(list(dict.fromkeys(paths[start : start + _BATCHES * _DELETED_TOGETHER])))
            self._ask("delete", left, self._writes.delete)

    def _delete_batches(self, paths: Sequence[str]) -> list[str]:
        """Delete the objects that one request can delete together; the other paths."""
        left: list[str] = []
        buckets: dict[str, list[str]] = {}
        for path in paths:
            # By scheme and bucket, because one request deletes objects of one bucket.
            buckets.setdefault("/".join(path.split("/", 3)[:3]) if "://" in path else "", []).append(path)
        batches: dict[str, list[str]] = {}
        for bucket, found in buckets.items():
            if bucket and self.objects.deletes_together(found[0]):
                batches |= {
                    found[start]: found[start : start + _DELETED_TOGETHER]
                    for start in range(0, len(found), _DELETED_TOGETHER)
                }
            else:
                left += found
        answers = self._ask("delete", list(batches), lambda first: self.objects.delete(batches[first]))
        for batch, are_gone in zip(batches.values(), answers, strict=True):
            if are_gone is not True:
                left += batch
        return left

    def begin_delete(self, path: str) -> BegunCall[None]:
        """Submit a delete; the returned call raises FileNotFoundError for a missing file. See `begin_call`."""
        return self.begin_call("delete", path, self._writes.delete)

    def close(self) -> None:
        """End the threads. Idempotent."""
        if (ahead := self._ahead.known) is not None:
            ahead.close()
        self.pool.close()

    def _read(self, path: str) -> bytes:
        return self.objects.read(path, partial(self._read_stream, path))

    def _read_stream(self, path: str) -> bytes:
        # Opening a file is a request of its own in most stores.
        with input_stream(self.file_io, path) as stream, one_request():
            return self._cache.read(path, stream)

    def _statuses(self, directory: str) -> list[Any]:
        return list(self.file_io.list_status(directory))

    def _write(self, path: str, data: bytes) -> None:
        if is_renamed(path):
            self._writes.write_renamed(path, data)
        elif is_local(path):
            self._writes.write_local(path, data, lambda: self.pool.given_up)
        else:
            self.objects.write(path, data, partial(write_stream, self.file_io, path, data))

    def _write_new(self, path: str, data: bytes) -> None:
        if is_local(path) or is_renamed(path):
            write_stream(self.file_io, path, data)
        else:
            self._write(path, data)


def _name(status: Any) -> str:
    return str(status.path.rstrip("/").rsplit("/", 1)[-1])
