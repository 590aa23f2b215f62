"""`Store`: every request of a stream to the table's store: timed out, retried, counted, its errors translated."""

from __future__ import annotations

import copy
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.errand import not_given_up
from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, StoreError
from pypaimon.streaming.internals import arrow_file_io, object_stream
from pypaimon.streaming.io.conditional_writes import ConditionalWrites, Seen, is_local, is_renamed, left_beside
from pypaimon.streaming.io.exclusive_files import ExclusiveFiles
from pypaimon.streaming.io.fetch_ahead import FetchAhead
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.io_requests import Hanging, one_request
from pypaimon.streaming.io.new_object import NewObject
from pypaimon.streaming.io.object_reads import ObjectReads
from pypaimon.streaming.io.request_errors import place_of, translated
from pypaimon.streaming.io.validated_cache import ValidatedCache
from pypaimon.streaming.logs import StreamLog

T = TypeVar("T")

_LOG = StreamLog(__name__)
_LASTING = frozenset(("write", "delete"))
"""Kinds of requests that change something: who gives one up does not know whether it took effect."""
_IS_AHEAD = ContextVar("_IS_AHEAD", default=False)


@contextmanager
def asked_ahead() -> Iterator[None]:
    """What this thread asks a store for within is wanted later: what hangs is given up after one time limit.

    That counts as the first attempt of whoever asks for it in its turn, so that what hangs is told no later for having
    been asked for ahead.
    """
    token = _IS_AHEAD.set(True)
    try:
        yield
    finally:
        _IS_AHEAD.reset(token)


HUNG_ATTEMPTS = 2
RETRY = Backoff(attempts=5, first_pause=0.1, longest_pause=5.0)
"""How often requests are repeated, unless the caller chooses otherwise."""

CONCURRENCY = 32
"""Requests in flight at the same time, where nothing else is said."""


@dataclass(eq=False)
class _Common:
    """What the stores of all readers of a table handle have in common."""

    retry: Backoff
    sleep: Callable[[float], None]
    rng: random.Random
    cache: ValidatedCache = field(default_factory=ValidatedCache)
    hanging: Hanging = field(default_factory=Hanging)
    counts: Counter[str] = field(default_factory=Counter)
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)


@dataclass(frozen=True, slots=True)
class BegunCall(Generic[T]):
    """A call that was asked for; calling this waits for the answer."""

    _answer: Callable[[], T]
    _future: Future[T]
    requests: ClassVar[int] = 1
    """Each is one request; see `fetch_ahead.Answer`."""

    def __call__(self) -> T:
        """The answer; raises what `Store.call` does."""
        return self._answer()

    def cancel(self) -> None:
        """Nobody wants the answer: what no thread has begun is not asked for."""
        self._future.cancel()

    def when_answered(self, call: Callable[[], object]) -> None:
        """Have something called once the first attempt came to something, or was cancelled."""
        self._future.add_done_callback(lambda _: call())


class Store:
    """The files of a table, as bytes.

    A missing object is `FileNotFoundError` of the read itself; nothing is probed first. What may pass (time-outs, 5xx,
    resets) is retried with backoff; what will not (forbidden) is an error at once; neither is ever "no data".
    Thread-safe.

    Args:
        file_io: pypaimon's `FileIO` of the table, or anything with its methods.
        timeout: Seconds that one request may take.
        concurrency: Requests in flight at the same time.
        retry: How often requests are repeated; must limit the attempts.
        hung_attempts: Requests in total that may hang until they time out.
        sleep: Called with seconds between attempts.
        rng: Source of jitter.

    Attributes:
        file_io: As it was given.
        hung_attempts: As it was given.
        pool: The threads that requests run on.
        objects: Requests that may go past the FileIO, where that saves some, or where it cannot put them.
        ahead: What this reader has on its way before it is asked for.
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
        self.file_io = file_io
        self.hung_attempts = hung_attempts
        self._common = _Common(retry, sleep, rng or random.Random())
        self.pool = IOPool(concurrency, timeout, hanging=self._common.hanging)
        self.objects = ObjectReads(file_io, timeout)
        self.ahead = FetchAhead(timeout)
        self._writes = ConditionalWrites(file_io, self.objects)
        self._exclusive = ExclusiveFiles(file_io, self.objects)
        self._hung_ahead: set[str] = set()

    def for_reader(self) -> Store:
        """The same files for one more reader, on threads of its own: what hangs there holds up nobody else.

        Requests of all of them are counted together.
        """
        store = copy.copy(self)
        store.pool = IOPool(self.pool.size, self.pool.timeout, hanging=self._common.hanging)
        store.ahead = FetchAhead(self.pool.timeout)
        store._hung_ahead = set()
        return store

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far by kind: read, list, write, delete; and how many of them were retried or abandoned."""
        with self._common.lock.held:
            return {**self._common.counts, "abandoned": self._common.hanging.abandoned}

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

    def begin_read(self, path: str) -> BegunCall[bytes]:
        """As `read`, asked for at once: the call that is returned waits for the answer, and raises what `read` does."""
        return self.begin_call("read", path, self._read)

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
        return self._parsed(path, Seen(data), parser, lambda: Seen(self.read(path)))[0]

    def look(self, path: str, parser: Callable[[bytes], T]) -> tuple[T, Seen]:
        """As `parse`, of a small file that is to be replaced: also what `replace` has to know of it. One request."""
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
        """Names of the files and directories in a directory; none if it does not exist."""
        return list(self._by_name(directory))

    def list_statuses(self, directory: str) -> list[Any]:
        """Statuses (`path`, `size`, `mtime`) of what is in a directory; none if it does not exist."""
        try:
            return self._one("list", directory, self._statuses)
        except FileNotFoundError:
            return []

    def list_written(self, directory: str) -> dict[str, Any]:
        """Statuses by name of a directory whose files were written with `replace` or `write_atomic`.

        On HDFS a file whose writer died in the midst of a rename gets its name back.
        """
        found = self._by_name(directory)
        if left := left_beside(directory, found):
            for path in left:
                self._one("write", path, self._writes.recover)
            found = self._by_name(directory)
        return found

    def _by_name(self, directory: str) -> dict[str, Any]:
        return {status.path.rstrip("/").rsplit("/", 1)[-1]: status for status in self.list_statuses(directory)}

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write a file so that a reader, or a crash, sees the old content or the new.

        On file systems a hidden temporary file takes the place of the old one; an object store's PUT is atomic.
        A write to an object store that hung and was given up may still take effect later.
        """
        self._one("write", path, partial(self._write, data=data))

    def begin_write_new(self, path: str, data: bytes) -> BegunCall[None]:
        """Write a file of a unique name, which nobody reads before it is told of; as `begin_call`."""
        return self.begin_call("write", path, partial(self._write_new, data=data))

    def open_new(self, path: str) -> Any:
        """A stream into a file of a unique name, which nobody reads before it is told of.

        What the FileIO opens; of objects that Arrow or the client of the extra `fast` serve a `NewObject`.

        Raises:
            OSError: It cannot be written.
        """
        if self.puts(path):
            stream = partial(object_stream, self.file_io, path)
            return NewObject(lambda data: self.begin_write_new(path, data)(), stream)
        return self.file_io.new_output_stream(path)

    def puts(self, path: str) -> bool:
        """Whether a file there is an object that comes into being whole, in one step."""
        return arrow_file_io(self.file_io, path) is not None

    def write_once(self, path: str, data: bytes) -> None:
        """Write an object, in one attempt: where it fails, it may have been written.

        Raises:
            OSError: It failed.
            IOTimeoutError: It hung.
        """
        self._count("write")
        self.pool.result(self.pool.submit(partial(self._write_new, path, data)))

    def replace(self, path: str, data: bytes, seen: Seen | None) -> None:
        """As `write_atomic`, if the file still is what `look` has found. One request where the store compares.

        A write that hung and was given up takes no effect once another one has come, where the store compares: local
        files, and objects that the extra `fast` serves.

        Args:
            path: Of the file.
            data: Its new content; to have written it already is no error.
            seen: What it replaces; None: nothing.

        Raises:
            ChangedFileError: It is another one by now; nothing was written.
            CorruptTableError: It may not be written.
            StoreError: The store kept failing (retriable).
        """
        self._one("write", path, partial(self._writes.replace, data=data, seen=seen))

    def creates(self, path: str) -> bool:
        """Whether an object there is created only where there is none, by a condition that the store heeds.

        The first question about a bucket costs this process four requests, which find it out.

        Raises:
            CorruptTableError: Nothing may be written there.
            StoreError: The store kept failing (retriable).
        """
        known = self.objects.known_to_create(path)
        return self._one("write", path, self.objects.creates) if known is None else known

    def create_exclusive(self, path: str, data: bytes, directories: int = 3) -> bool:
        """Make a small file where none of the name is: of all who try, in whatever processes, one does.

        One request where it is made, another one where the name exists. The first file in a bucket or a local directory
        costs some more: the store is tried whether it overwrites. A try whose answer was lost is found, as what exists
        is read.

        Args:
            path: Of the file.
            directories: How many directories may be made for it where a file needs one: none for a table that is gone.
            data: Its content, which nobody else writes: it holds a number that was drawn for it, say.

        Returns:
            Whether the file has this content; False: another one, and nothing was written.

        Raises:
            StreamConfigError: The store cannot promise that one makes it, or does not keep the promise.
            CorruptTableError: It may not be written.
            FileNotFoundError: Its directory is missing, and may not be made.
            TableChangedError: More directories are missing than may be made.
            StoreError: The store kept failing (retriable): the file may be there, now or later. Who asks again with the
                same content finds out.
        """
        return self._one("write", path, partial(self._exclusive.create, data=data, directories=directories))

    def delete(self, path: str) -> None:
        """Delete a file; one that does not exist is fine."""
        with suppress(FileNotFoundError):
            self._one("delete", path, self._writes.delete)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files of one directory, in one request where the store can; those that do not exist are fine."""

        def each() -> None:
            for path in paths:
                with suppress(FileNotFoundError):
                    self._writes.delete(path)

        if paths:
            self._one("delete", paths[0], lambda _: self.objects.delete(paths, each))

    def begin_delete(self, path: str) -> BegunCall[None]:
        """As `delete`, asked for at once, and if there is no such file the call says so: see `begin_call`."""
        return self.begin_call("delete", path, self._writes.delete)

    def call(self, kind: str, subject: str, request: Callable[[str], T]) -> T:
        """Any other request that fails by `OSError`, timed out, retried and counted as those to the store.

        Args:
            kind: What it counts as.
            subject: Its argument, named in errors.
            request: Runs on a thread of the pool.
        """
        return self._one(kind, subject, request)

    def begin_call(self, kind: str, subject: str, request: Callable[[str], T]) -> BegunCall[T]:
        """As `call`, asked for at once: the call that is returned waits for the answer."""
        future = self.pool.submit(request, subject)
        self._count(kind)

        def answer() -> T:
            first: T | FileNotFoundError | StoreError = self._answer(subject, future)
            return self._found(self._repeated(kind, (subject,), request, [first]))

        return BegunCall(answer, future)

    def close(self) -> None:
        """End the threads; idempotent."""
        self.ahead.close()
        self.pool.close()

    def _one(self, kind: str, path: str, request: Callable[[str], T]) -> T:
        return self._found(self._ask(kind, (path,), request))

    @staticmethod
    def _found(answers: list[T | FileNotFoundError]) -> T:
        (answer,) = answers
        if isinstance(answer, FileNotFoundError):
            raise answer
        return answer

    def _ask(self, kind: str, paths: Sequence[str], request: Callable[[str], T]) -> list[T | FileNotFoundError]:
        """Ask for all paths at the same time, and again for those that failed; what is missing is no failure."""
        with not_given_up() if kind in _LASTING else nullcontext():
            return self._repeated(kind, paths, request, self._round(kind, paths, request))

    def _repeated(
        self,
        kind: str,
        paths: Sequence[str],
        request: Callable[[str], T],
        answers: list[T | FileNotFoundError | StoreError],
    ) -> list[T | FileNotFoundError]:
        """Ask again for those that failed."""
        hung_attempts = self._hung_attempts(paths)
        for attempt in itertools.count(1):
            failed = [index for index, answer in enumerate(answers) if isinstance(answer, StoreError)]
            if not failed:
                break
            errors = [answers[index] for index in failed]
            hung = {paths[index]: error for index in failed if isinstance(error := answers[index], IOTimeoutError)}
            if hung and attempt >= hung_attempts:
                if _IS_AHEAD.get():
                    self._hung_ahead.update(hung)
                raise next(iter(hung.values()))
            if attempt == self._common.retry.attempts:
                raise cast("StoreError", errors[0])
            self._count("retried", len(failed))
            cause = errors[0].__cause__ if isinstance(errors[0], StoreError) else None
            text = "%(count)d requests (%(kind)s) failed and are repeated, the first %(path)s: %(error)s"
            fields: dict[str, Any] = {"kind": kind, "count": len(failed), "attempt": attempt, "path": paths[failed[0]]}
            _LOG.outage("retry", text, place_of(paths[failed[0]]), **fields, error=str(cause or errors[0]))
            self._pause(attempt)
            for index, answer in zip(failed, self._round(kind, [paths[each] for each in failed], request), strict=True):
                answers[index] = answer
        return cast("list[T | FileNotFoundError]", answers)

    def _hung_attempts(self, paths: Sequence[str]) -> int:
        """How often these may be asked for while they hang."""
        had_one = self._hung_ahead.intersection(paths)
        self._hung_ahead.difference_update(had_one)
        return 1 if _IS_AHEAD.get() else max(1, self.hung_attempts - bool(had_one))

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
        self._common.sleep(self._common.retry.pause(attempt, self._common.rng.random))

    def _count(self, kind: str, number: int = 1) -> None:
        with self._common.lock.held:
            self._common.counts[kind] += number

    def _read(self, path: str) -> bytes:
        return self.objects.read(path, partial(self._read_stream, path))

    def _read_stream(self, path: str) -> bytes:
        # To open a file is a request too, in most stores.
        with self.file_io.new_input_stream(path) as stream, one_request():
            return self._common.cache.read(path, stream)

    def _statuses(self, directory: str) -> list[Any]:
        return list(self.file_io.list_status(directory))

    def _write(self, path: str, data: bytes) -> None:
        if is_renamed(path):
            self._writes.write_renamed(path, data)
        elif is_local(path):
            self._writes.write_local(path, data, lambda: self.pool.given_up)
        else:
            self.objects.write(path, data, partial(self._write_stream, path, data))

    def _write_new(self, path: str, data: bytes) -> None:
        if is_local(path) or is_renamed(path):
            self._write_stream(path, data)
        else:
            self._write(path, data)

    def _write_stream(self, path: str, data: bytes) -> None:
        with object_stream(self.file_io, path) or self.file_io.new_output_stream(path) as stream, one_request():
            stream.write(data)
