"""Data files in a store: every read of them is a request of the store's, timed out, retried and counted."""

from __future__ import annotations

import io
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from pypaimon.streaming.io.binary_file import BinaryFile
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.store import BegunCall, Store

WHOLE_BYTES = 4 << 20
"""Bytes up to which a file is read at once: a round trip costs more than the columns that are not needed."""

_AHEAD = 1 << 20
"""Bytes that are read at least: columns of a row group lie side by side."""

_PIECE = 4 << 20
"""Bytes of one request where many are on their way at once."""

_GAP = 256 << 10
"""Bytes between two ranges up to which they are fetched together."""

_TAIL = 256 << 10
"""Bytes of the end that are read with the size: the footer, but of very many columns or row groups."""

_OPEN = -1
"""The rank of files that are being read: their bytes are fetched before those of files behind them."""

_NOTHING = Part(b"", 0, 0)


def is_read_whole(size: int) -> bool:
    """Whether a file of so many bytes is read by one request."""
    return size <= WHOLE_BYTES


def open_remote(store: Store, path: str, size: int | None) -> Any:
    """Open a data file for reading.

    Args:
        store: Where it lies.
        path: The file.
        size: Its size as the manifest has it, None if only a part is wanted; decides only how it is read.

    Returns:
        A binary file that can seek.

    Raises:
        FileNotFoundError: It is missing.
        CorruptTableError: It may not be read.
        StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
    """
    if size is None or not is_read_whole(size):
        return RemoteFile(store, path)
    on_its_way = store.ahead.take(Piece(path, None, size))
    return io.BytesIO(store.read(path) if on_its_way is None else on_its_way())


def read_part(store: Store, path: str, start: int, length: int) -> bytes:
    """Some bytes of a file, which may be on their way already; fewer where it ends. Raises what `open_remote` does."""
    on_its_way = store.ahead.take(Piece(path, start, length)) if is_read_whole(length) else None
    if on_its_way is not None:
        return bytes(on_its_way().data)
    with closing(RemoteFile(store, path)) as file:
        if not is_read_whole(length):
            file.will_read([(start, length)])
        file.seek(start)
        return bytes(file.read(length))


def begin_fetch(store: Store, piece: Piece) -> BegunCall[Part] | BegunCall[bytes]:
    """Ask for a piece of a file: gives its bytes, as such of a whole file, else as a `Part`."""
    if piece.start is None:
        return store.begin_read(piece.path)

    def fetch(path: str) -> Part:
        with closing(RemoteFile(store, path)) as file:
            return file._fetch(piece.start, piece.length)

    return store.begin_call("read", piece.path, fetch)


class RemoteFile(BinaryFile):
    """A binary file in a store, for one thread at a time.

    Where the store's client needs no size to read, the end of the file, which readers want first, tells it. What a
    request holds, its stream, is given up with it: a request that hung is asked again on a stream of its own.

    Args:
        store: Where it lies.
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
        """Have ranges on their way, in the order of their bytes, as far as bounds allow.

        Args:
            ranges: First byte and length of each, in order; they do not overlap. What lies behind the end of the file,
                as one that is damaged may say, is left out.
        """
        size = sys.maxsize if self._size is None else self._size
        inside = [(start, min(length, size - start)) for start, length in ranges if start < size]
        self._pieces = list(_cut(self._path, inside))
        if len(self._pieces) > 1:
            self._lane.expect(self._pieces)

    def read(self, size: int | None = -1) -> Any:
        """So many bytes from the position on, as a buffer, fewer only at the end; without a number all, as `bytes`."""
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
        """The pieces that hold so many bytes from the position on; none if some of these are in none."""
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
        """Bytes from the position on that lie in pieces; the last one is kept, for the next bytes may lie in it.

        Fewer than are wanted where the file ends.
        """
        found: list[Any] = []
        while wanted and len(found) < len(pieces):
            piece = pieces[len(found)]
            if self._block.start != piece.start or len(self._block.data) != piece.length:
                answer = self._store.ahead.take(piece)
                if answer is None:
                    self._load_ahead(max(wanted, _start(piece) + piece.length - self._position))
                else:
                    self._block = answer()
            skipped = self._position - self._block.start
            data = self._block.data[skipped : skipped + wanted]
            found.append(data)
            self._position += len(data)
            wanted -= len(data)
        return found[0] if len(found) == 1 else b"".join(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns it."""
        start = {io.SEEK_SET: lambda: 0, io.SEEK_CUR: self.tell, io.SEEK_END: self._end}[whence]()
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def close(self) -> None:
        """Let the streams go, and what is on its way."""
        self.closed = True
        self._lane.close()
        self._block = _NOTHING
        while self._idle:
            self._idle.pop().close()

    def _end(self) -> int:
        return self._load(None, _TAIL).size if self._size is None else self._size

    def _load_ahead(self, wanted: int) -> None:
        """Make bytes from the position on the block that is at hand: these, and some behind them."""
        size = self._size
        self._load(self._position, wanted if size is None else min(max(wanted, _AHEAD), size - self._position))

    def _load(self, start: int | None, length: int) -> Part:
        """Make bytes from a place on, or the last ones, the block that is at hand."""
        part = self._store.call("read", self._path, lambda _: self._fetch(start, length))
        self._block, self._size = part, part.size
        return part

    def _begin(self, piece: Piece) -> BegunCall[Part]:
        return self._store.begin_call("read", self._path, lambda _: self._fetch(piece.start, piece.length))

    def _fetch(self, start: int | None, length: int) -> Part:
        part = self._store.objects.part(self._path, start, length, lambda: self._from_stream(start, length))
        if start is not None and len(part.data) != max(0, min(length, part.size - start)):
            raise OSError(f"it ends after {start + len(part.data)} bytes, it should have {part.size}")
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
        if self.closed:
            self.close()
        return Part(data, size if start is None else start, size)


def _cut(path: str, ranges: Iterable[tuple[int, int]]) -> Iterator[Piece]:
    """Pieces that hold ranges, each a request: near ranges together, long ones in several pieces."""
    begin = end = 0
    for start, length in [*ranges, (sys.maxsize, 0)]:
        if not begin <= start <= end + _GAP or begin == end:
            for first in range(begin, end, _PIECE):
                yield Piece(path, first, min(_PIECE, end - first))
            begin = end = start
        end = max(end, start + length)


def _start(piece: Piece) -> int:
    assert piece.start is not None
    return piece.start
