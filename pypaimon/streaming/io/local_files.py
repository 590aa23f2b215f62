"""Files on this machine: data files, whose reads have a time limit, and temporary files."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io.binary_file import BinaryFile, read_fully
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.paimon.internals import input_stream

T = TypeVar("T")

_SMALL = 256 << 10
"""Files up to this size are read at once: another file object and its reads cost more than columns not needed."""


@contextmanager
def open_local(file_io: Any, path: str, size: int | None = None) -> Iterator[Any]:
    """Open a data file for reading. Arrow reads a plain file without Python, so without the interpreter's lock.

    Args:
        file_io: The table's FileIO.
        path: The file.
        size: Its size by a manifest, which may be wrong.
    """
    with one_request():
        stream = input_stream(file_io, path)
    with stream:
        if size is not None and size <= _SMALL:
            with one_request():
                content = stream.read(_SMALL + 1)
            # A stream may give less than it has.
            if size <= len(content) <= _SMALL:
                yield pa.BufferReader(content)
                return
            with one_request():
                stream.seek(0)
        if not (isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)):
            yield stream if isinstance(stream, pa.NativeFile) else MarkedStream(stream)
            return
        with one_request():
            local = pa.OSFile(os.fspath(stream.name), "rb")
        with local:
            yield local


def read_local(file_io: Any, path: str) -> bytes | pa.Buffer:
    """All bytes of a file, in Arrow's memory if Arrow can read the file. Arguments as for `open_local`."""
    with open_local(file_io, path) as stream:
        if not isinstance(stream, pa.NativeFile):
            return bytes(stream.read())
        with one_request():
            return stream.read_buffer()


def step_by_step(batches: Iterator[T]) -> Iterator[T]:
    """The same batches; each is made as one request, since Arrow's reads and its decoding cannot be separated."""
    while True:
        with one_request(decodes=True):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


class MarkedStream(BinaryFile):
    """A binary file whose reads are requests, each with a time limit.

    Args:
        stream: The file; must be able to seek.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        super().__init__()

    def read(self, size: int | None = -1) -> bytes:
        """Read this many bytes, or fewer at the end of the file; None or a negative number reads all."""
        return read_fully(self._stream, size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with one_request():
            self._stream.seek(offset, whence)
            return int(self._stream.tell())

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        """The underlying file stays open; its owner closes it."""
        self.closed = True


@contextmanager
def written_temporarily(what: str, advice: str = "") -> Iterator[None]:
    """Raise StoreError if a temporary file cannot be written, for example on a full disk.

    Args:
        what: What is being done, as the beginning of the message.
        advice: What else helps, apart from space and another directory.

    Raises:
        StoreError: An `OSError` was raised. It is retriable, since other programs may free space.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{what}, and a temporary file in {tempfile.gettempdir()} cannot be written: {error}.",
            advice=f"Free space there, or set TMPDIR to another directory{advice}.",
        ) from error
