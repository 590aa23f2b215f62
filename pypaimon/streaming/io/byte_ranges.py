"""`ByteRanges`: ranges of many files, read into existing memory; adjacent ranges share a request."""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.io.binary_file import read_fully
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Answer, Piece
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.io.retried_requests import BegunCall
from pypaimon.streaming.io.store import Store

GAP = 16
"""Ranges with a gap of at most this many bytes are read at once."""

_LARGEST = 8 << 20
"""The most bytes of one request; a larger range is read by several requests at the same time."""

# With the gaps between them these are fewer buffers than the 1024 that `preadv` takes on Linux.
_MOST = 512
"""The most ranges of one request."""

_MOST_OPEN = 16
"""Idle files that are kept open."""

_CAN_SCATTER = hasattr(os, "preadv")


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a file, and the memory for it.

    Attributes:
        path: The file.
        start: Offset of the first byte.
        target: Receives the bytes; its length is that of the range.
    """

    path: str
    start: int
    target: memoryview

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.start + len(self.target)


class ByteRanges:
    """Reads ranges of files, in a store several at the same time. For one thread at a time.

    Some files are kept open until the object is closed, or no longer referenced.

    Args:
        store: The store of the files.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._idle: list[tuple[str, Any]] = []
        self._lock = ForkSafeLock()
        # Programs that keep blobs never close them.
        weakref.finalize(self, _close_all, self._idle)

    def __enter__(self) -> ByteRanges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Idempotent."""
        with self._lock.held:
            _close_all(self._idle)

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read one range.

        Raises:
            FileNotFoundError: The file is missing.
            CorruptTableError: The file ends within the range, or may not be read.
            StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
        """
        data = bytearray(length)
        self.fill([Range(path, start, memoryview(data))])
        return bytes(data)

    def size(self, path: str) -> int:
        """The size of a file. One request; raises as `read`."""
        with _named(path):
            return int(self._store.call("read", path, self._store.file_io.get_file_size))

    def fill(self, ranges: Sequence[Range], *, prefetched: bool = False) -> None:
        """Read ranges. Raises as `read`; some of the ranges may be filled then, and other requests are cancelled.

        Args:
            ranges: The ranges and the memory for them.
            prefetched: Whether some of them may have been prefetched.
        """
        begun: list[tuple[list[Range], Answer]] = []
        try:
            for run in _runs(_cut(ranges)):
                if is_local(run[0].path):
                    with _named(run[0].path):
                        self._fill_local(run)
                else:
                    taken = self._store.ahead.take(_piece(run)) if prefetched else None
                    begun.append((run, taken or self._begin(run)))
            for run, answer in begun:
                with _named(run[0].path):
                    _distribute(run, answer().data)
        except BaseException:
            for _, answer in begun:
                answer.cancel()
            raise

    def _begin(self, run: Sequence[Range]) -> BegunCall[Part]:
        start, length = run[0].start, run[-1].end - run[0].start

        def part(path: str) -> Part:
            return self._store.objects.part(path, start, length, partial(self._from_stream, path, start, length))

        return self._store.begin_call("read", run[0].path, part)

    def _fill_local(self, run: Sequence[Range]) -> None:
        path, start = run[0].path, run[0].start
        try:
            with one_request(), self._stream(path) as stream:
                if _CAN_SCATTER and isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO):
                    _scatter(stream.raw.fileno(), run)
                    return
                stream.seek(start)
                _distribute(run, read_fully(stream, run[-1].end - start))
        except (FileNotFoundError, CorruptTableError):
            raise
        except OSError as error:
            raise translated(path, error) from error

    def _from_stream(self, path: str, start: int, length: int) -> Part:
        with self._stream(path) as stream, one_request():
            end = stream.seek(0, io.SEEK_END)
            size = int(stream.tell() if end is None else end)
            if start + length > size:
                return Part(b"", start, size)
            stream.seek(start)
            return Part(read_fully(stream, length), start, size)

    def _stream(self, path: str) -> _Borrowed:
        with self._lock.held:
            index = next((index for index, (name, _) in enumerate(self._idle) if name == path), None)
            stream = None if index is None else self._idle.pop(index)[1]
        return _Borrowed(stream or self._store.file_io.new_input_stream(path), partial(self._give_back, path))

    def _give_back(self, path: str, stream: Any) -> None:
        with self._lock.held:
            self._idle.append((path, stream))
            oldest = self._idle.pop(0)[1] if len(self._idle) > _MOST_OPEN else None
        if oldest is not None:
            _close(oldest)


class _Borrowed:
    """A file of the pool; it returns to the pool unless an error was raised."""

    def __init__(self, stream: Any, give_back: Callable[[Any], None]) -> None:
        self._stream = stream
        self._give_back = give_back

    def __enter__(self) -> Any:
        return self._stream

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self._give_back(self._stream)
        else:
            _close(self._stream)


def _close_all(idle: list[tuple[str, Any]]) -> None:
    while idle:
        _close(idle.pop()[1])


def _close(stream: Any) -> None:
    with suppress(OSError):
        stream.close()


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Name the file as the caller does in the error for a missing file."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, str(error), path) from error


def _cut(ranges: Sequence[Range]) -> Iterator[Range]:
    for each in ranges:
        length = len(each.target)
        # The throughput of one connection to a store is limited.
        if length <= _LARGEST or is_local(each.path):
            yield each
            continue
        for start in range(0, length, _LARGEST):
            yield Range(each.path, each.start + start, each.target[start : start + _LARGEST])


def _runs(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Groups of adjacent ranges of a file, in the order of their bytes."""
    run: list[Range] = []
    for each in sorted(ranges, key=lambda each: (each.path, each.start)):
        if not len(each.target):
            continue
        if run and not _joins(run, each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _piece(run: Sequence[Range]) -> Piece:
    return Piece(run[0].path, run[0].start, run[-1].end - run[0].start)


def _joins(run: Sequence[Range], each: Range) -> bool:
    near = run[-1].path == each.path and 0 <= each.start - run[-1].end <= GAP
    return near and len(run) < _MOST and each.end - run[0].start <= _LARGEST


def _distribute(run: Sequence[Range], data: Any) -> None:
    view, start = memoryview(data).cast("B"), run[0].start
    for each in run:
        part = view[each.start - start : each.end - start]
        if len(part) != len(each.target):
            raise _too_short(each)
        each.target[:] = part


def _scatter(file: int, run: Sequence[Range]) -> None:
    between = memoryview(bytearray(GAP))
    buffers: list[memoryview] = []
    position = run[0].start
    for each in run:
        if each.start > position:
            buffers.append(between[: each.start - position])
        buffers.append(each.target)
        position = each.end
    offset = run[0].start
    while buffers:
        # Straight into the caller's memory, without a copy in between.
        count = os.preadv(file, buffers, offset)
        if not count:
            raise _too_short(next(each for each in run if each.end > offset))
        offset += count
        while buffers and count >= len(buffers[0]):
            count -= len(buffers.pop(0))
        if buffers:
            buffers[0] = buffers[0][count:]


def _too_short(each: Range) -> CorruptTableError:
    return CorruptTableError(each.path, f"it ends before byte {each.end}, the end of one of its blobs")
