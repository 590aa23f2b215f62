"""Data files in a store: each read is a request, timed out, retried and counted."""

from __future__ import annotations

import io
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

from pypaimon.streaming.io.binary_file import BinaryFile
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.retried_requests import BegunCall
from pypaimon.streaming.io.store import Store

WHOLE_BYTES = 4 << 20
"""Files up to this size are read whole: a round trip costs more than the columns that are not needed."""

_AHEAD = 1 << 20
"""The least number of bytes per request, since the columns of a row group are adjacent."""

_PIECE = 4 << 20
"""Most bytes of one request of several at the same time."""

_GAP = 256 << 10
"""Ranges with a gap of at most this many bytes are fetched together."""

_TAIL = 256 << 10
"""Bytes of the end that are read with the size. They hold the footer, unless there are very many columns."""

_OPEN = -1
"""The rank of open files: their bytes are fetched before those of files that are read later."""

_NOTHING = Part(b"", 0, 0)


def is_read_whole(size: int) -> bool:
    """Whether a file of this size is read by one request."""
    return size <= WHOLE_BYTES


def open_remote(store: Store, path: str, size: int | None) -> Any:
    """Open a data file for reading.

    Args:
        store: The store of the file.
        path: The file.
        size: Its size in the manifest, None if only a part is needed; decides only how the file is read.

    Returns:
        A binary file that can seek.

    Raises:
        FileNotFoundError: The file is missing.
        CorruptTableError: The file may not be read.
        StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
    """
    if size is None or not is_read_whole(size):
        return RemoteFile(store, path)
    on_its_way = store.ahead.take(Piece(path, None, size))
    return io.BytesIO(store.read(path) if on_its_way is None else on_its_way())


def read_part(store: Store, path: str, start: int, length: int) -> bytes:
    """Some bytes of a file, perhaps prefetched; fewer at its end. Raises as `open_remote`."""
    on_its_way = store.ahead.take(Piece(path, start, length)) if is_read_whole(length) else None
    if on_its_way is not None:
        return bytes(on_its_way().data)
    with closing(RemoteFile(store, path)) as file:
        if not is_read_whole(length):
            file.will_read([(start, length)])
        file.seek(start)
        return bytes(file.read(length))


def begin_fetch(store: Store, piece: Piece) -> BegunCall[Part] | BegunCall[bytes]:
    """Request a piece of a file. The answer is `bytes` for a whole file, otherwise a `Part`."""
    if piece.start is None:
        return store.begin_read(piece.path)

    def fetch(path: str) -> Part:
        with closing(RemoteFile(store, path)) as file:
            return file._fetch(piece.start, piece.length)

    return store.begin_call("read", piece.path, fetch)


class RemoteFile(BinaryFile):
    """A binary file in a store, for one thread at a time.

    If the store's client can read the end of a file without its size, the size comes with the end, which readers need
    first. The stream of a request is given up with it: a request that hung is repeated on a new stream.

    Args:
        store: The store of the file.
        path: The file.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._idle: list[Any] = []
        self._position = 0
        self._block = _NOTHING
        self._size: int | None = None
        self._pieces: list[Piece] = []
        self._lane = store.ahead.lane(self._begin, _OPEN)
        super().__init__()

    def will_read(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Prefetch ranges, in the order of their bytes, as far as the limits allow.

        Args:
            ranges: First byte and length of each, in order, without overlaps. Bytes after the end of the file, which a
                damaged file may name, are left out.
        """
        size = sys.maxsize if self._size is None else self._size
        inside = [(start, min(length, size - start)) for start, length in ranges if start < size]
        self._pieces = list(_cut(self._path, inside))
        if len(self._pieces) > 1:
            self._lane.expect(self._pieces)

    def read(self, size: int | None = -1) -> Any:
        """Read bytes at the position: this many, as a buffer, fewer only at the end; or all, as `bytes`."""
        if size is None or size < 0:
            return bytes(self.read(max(0, self._end() - self._position)))
        wanted = size if self._size is None else min(size, max(0, self._size - self._position))
        if not wanted:
            return b""
        skipped = self._position - self._block.start
        if not 0 <= skipped <= len(self._block.data) - wanted:
            if pieces := self._pieces_of(wanted):
                return self._join(pieces, wanted)
            if self._size is not None and wanted > 2 * _PIECE:
                self.will_read([(self._position, wanted)])
                return self._join(self._pieces, wanted)
            self._load_ahead(wanted)
            skipped = 0
        block = self._block.data
        data = block if not skipped and wanted >= len(block) else block[skipped : skipped + wanted]
        self._position += len(data)
        return data

    def _pieces_of(self, wanted: int) -> list[Piece]:
        """The pieces that contain this many bytes at the position; empty if some bytes are in no piece."""
        first = bisect_right(self._pieces, self._position, key=_start) - 1
        if first < 0:
            return []
        found: list[Piece] = []
        end = _start(self._pieces[first])
        for piece in self._pieces[first:]:
            if _start(piece) != end:
                break
            found.append(piece)
            end += piece.length
            if end >= self._position + wanted:
                return found
        return []

    def _join(self, pieces: Sequence[Piece], wanted: int) -> Any:
        """Read bytes at the position from pieces, fewer at the end of the file."""
        found: list[Any] = []
        while wanted and len(found) < len(pieces):
            piece = pieces[len(found)]
            if self._block.start != piece.start or len(self._block.data) != piece.length:
                answer = self._store.ahead.take(piece)
                if answer is None:
                    self._load_ahead(max(wanted, _start(piece) + piece.length - self._position))
                else:
                    # Kept, because it may contain the next bytes too.
                    self._block = answer()
            skipped = self._position - self._block.start
            data = self._block.data[skipped : skipped + wanted]
            found.append(data)
            self._position += len(data)
            wanted -= len(data)
        return found[0] if len(found) == 1 else b"".join(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: lambda: 0, io.SEEK_CUR: self.tell, io.SEEK_END: self._end}[whence]()
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """Close the streams, and cancel what was prefetched."""
        self.closed = True
        self._lane.close()
        self._block = _NOTHING
        while self._idle:
            self._idle.pop().close()

    def _end(self) -> int:
        return self._load(None, _TAIL).size if self._size is None else self._size

    def _load_ahead(self, wanted: int) -> None:
        """Load a block with the bytes at the position, and some that follow."""
        size = self._size
        self._load(self._position, wanted if size is None else min(max(wanted, _AHEAD), size - self._position))

    def _load(self, start: int | None, length: int) -> Part:
        """Load a block: bytes at an offset, or the last ones."""
        part = self._store.call("read", self._path, lambda _: self._fetch(start, length))
        self._block, self._size = part, part.size
        return part

    def _begin(self, piece: Piece) -> BegunCall[Part]:
        return self._store.begin_call("read", self._path, lambda _: self._fetch(piece.start, piece.length))

    def _fetch(self, start: int | None, length: int) -> Part:
        part = self._store.objects.part(self._path, start, length, lambda: self._from_stream(start, length))
        if start is not None and len(part.data) != max(0, min(length, part.size - start)):
            raise OSError(f"it ends after {start + len(part.data)} bytes, although its size is {part.size}")
        return part

    def _from_stream(self, start: int | None, length: int) -> Part:
        stream = self._idle.pop() if self._idle else self._store.file_io.new_input_stream(self._path)
        size = self._size
        if size is None:
            with one_request():
                end = stream.seek(0, io.SEEK_END)
                size = int(stream.tell() if end is None else end)
        data = b""
        if start is not None and start < size:
            with one_request():
                stream.seek(start)
                data = bytes(stream.read(length))
        self._idle.append(stream)
        # It was closed while this request was under way, so its stream would stay open otherwise.
        if self.closed:
            self.close()
        return Part(data, size if start is None else start, size)


def _cut(path: str, ranges: Iterable[tuple[int, int]]) -> Iterator[Piece]:
    """The pieces of ranges, one request each: near ranges share a piece, long ones are divided evenly, because the
    longest piece is waited for.
    """
    begin = end = 0
    for start, length in [*ranges, (sys.maxsize, 0)]:
        if not begin <= start <= end + _GAP or begin == end:
            count = -((begin - end) // _PIECE)
            bounds = [begin, *(begin + (end - begin) * number // count for number in range(1, count + 1))]
            for first, last in pairwise(bounds):
                yield Piece(path, first, last - first)
            begin = end = start
        end = max(end, start + length)


def _start(piece: Piece) -> int:
    assert piece.start is not None
    return piece.start
