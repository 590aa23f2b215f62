"""Data files on this machine, with a time limit for what may hang while they are read on a thread of a pool."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from pypaimon.streaming.io.binary_file import BinaryFile
from pypaimon.streaming.io.io_requests import one_request

T = TypeVar("T")


@contextmanager
def open_local(file_io: Any, path: str) -> Iterator[Any]:
    """Open a data file for reading. Arrow reads a plain file without Python, and so without the interpreter's lock.

    Args:
        file_io: The table's FileIO.
        path: The file.
    """
    with one_request():
        stream = file_io.new_input_stream(path)
    with stream:
        if not (isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)):
            yield stream if isinstance(stream, pa.NativeFile) else MarkedStream(stream)
            return
        with one_request():
            local = pa.OSFile(os.fspath(stream.name), "rb")
        with local:
            yield local


def read_local(file_io: Any, path: str) -> bytes | pa.Buffer:
    """All bytes of a file, in memory of Arrow's where it can read the file. Arguments as `open_local`."""
    with open_local(file_io, path) as stream:
        if not isinstance(stream, pa.NativeFile):
            return bytes(stream.read())
        with one_request():
            return stream.read_buffer()


def step_by_step(batches: Iterator[T]) -> Iterator[T]:
    """The same, each of them made as one request: Arrow's own reads cannot be told apart from its decoding."""
    while True:
        with one_request(decodes=True):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


class MarkedStream(BinaryFile):
    """A binary file each of whose reads is a request.

    Args:
        stream: The file, which can seek.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        super().__init__()

    def read(self, size: int | None = -1) -> Any:
        """So many bytes from the position on, fewer only at the end; without a number all."""
        with one_request():
            return self._stream.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns it."""
        with one_request():
            self._stream.seek(offset, whence)
            return int(self._stream.tell())

    def tell(self) -> int:
        """The position."""
        return int(self._stream.tell())

    def close(self) -> None:
        """The file itself stays open, for whoever opened it."""
        self.closed = True
