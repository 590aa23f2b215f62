"""`ByteRanges`: parts of many files, read into memory that is there already, those that lie side by side at once."""

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
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Answer, Piece
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.io.store import BegunCall, Store

GAP = 16
"""Bytes between two ranges up to which they are read at once."""

_LARGEST = 8 << 20
"""Bytes that one request reads at once; a range that is larger is read by several, at the same time."""

_MOST = 512
"""Ranges that one request reads at once."""

_MOST_OPEN = 16
"""Files that are kept open though nothing is read from them now."""

_CAN_SCATTER = hasattr(os, "preadv")


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file, and where it belongs.

    Attributes:
        path: The file.
        start: Its first byte.
        target: Where its bytes go; as many as this has room for.
    """

    path: str
    start: int
    target: memoryview

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.start + len(self.target)


class ByteRanges:
    """Reads parts of files, several at the same time where they lie in a store; for one thread at a time.

    It keeps some files open until it is closed, or nobody has it any more.

    Args:
        store: Where the files lie.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._idle: list[tuple[str, Any]] = []
        self._lock = ForkSafeLock()
        # Of blobs that somebody keeps nobody says when they are done with.
        weakref.finalize(self, _close_all, self._idle)

    def __enter__(self) -> ByteRanges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the files go. Idempotent."""
        with self._lock.held:
            _close_all(self._idle)

    def read(self, path: str, start: int, length: int) -> bytes:
        """One range.

        Raises:
            FileNotFoundError: The file is missing.
            CorruptTableError: It ends within the range, or may not be read.
            StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
        """
        data = bytearray(length)
        self.fill([Range(path, start, memoryview(data))])
        return bytes(data)

    def size(self, path: str) -> int:
        """The bytes of a file. One request; raises what `read` does."""
        with _named(path):
            return int(self._store.call("read", path, self._store.file_io.get_file_size))

    def fill(self, ranges: Sequence[Range], *, may_be_on_their_way: bool = False) -> None:
        """Read ranges. Raises what `read` does, may have filled some of them then, and asks for no more.

        Args:
            ranges: They.
            may_be_on_their_way: Whether they may have been asked for before they are needed.
        """
        begun: list[tuple[list[Range], Answer]] = []
        try:
            for run in _runs(_cut(ranges)):
                if is_local(run[0].path):
                    with _named(run[0].path):
                        self._fill_local(run)
                else:
                    taken = self._store.ahead.take(_piece(run)) if may_be_on_their_way else None
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
                _distribute(run, stream.read(run[-1].end - start))
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
            return Part(bytes(stream.read(length)), start, size)

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
    """An open file; one at which something failed is not used again."""

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
    """A file that is missing is named as it was asked for."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, str(error), path) from error


def _cut(ranges: Sequence[Range]) -> Iterator[Range]:
    """The same, large ones of files in a store in several pieces: one connection carries no more than its share."""
    for each in ranges:
        length = len(each.target)
        if length <= _LARGEST or is_local(each.path):
            yield each
            continue
        for start in range(0, length, _LARGEST):
            yield Range(each.path, each.start + start, each.target[start : start + _LARGEST])


def _runs(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Ranges that lie side by side in a file, in the order of their bytes."""
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
    """Copy what was read for a run to where it belongs."""
    view, start = memoryview(data).cast("B"), run[0].start
    for each in run:
        part = view[each.start - start : each.end - start]
        if len(part) != len(each.target):
            raise _too_short(each)
        each.target[:] = part


def _scatter(file: int, run: Sequence[Range]) -> None:
    """Read a run of a local file without a copy in between."""
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
        count = os.preadv(file, buffers, offset)
        if not count:
            raise _too_short(next(each for each in run if each.end > offset))
        offset += count
        while buffers and count >= len(buffers[0]):
            count -= len(buffers.pop(0))
        if buffers:
            buffers[0] = buffers[0][count:]


def _too_short(each: Range) -> CorruptTableError:
    return CorruptTableError(each.path, f"it ends before byte {each.end}, up to which a blob of it lies")
