"""What files have in common that a library of their own format reads: its package, a path for it, its errors."""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pyarrow as pa

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats import row_pace
from pypaimon.streaming.io.local_files import written_temporarily
from pypaimon.streaming.io.remote_files import RemoteFile

_MOST_ROWS = 65_536
_PROBE = 1024
"""Rows that are decoded first, to see how wide they are: these libraries count rows alone."""

_CHUNK_BYTES = 1 << 20


def library(module: str, file_format: str) -> Any:
    """The module that reads files of a format.

    Raises:
        UnsupportedTableError: Its package, the extra of the format's name, is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedTableError(
            f"Files of the format '{file_format}' need the extra of that name: "
            f"pip install 'pypaimon-streaming[{file_format}]' ({error})."
        ) from error


def rows_at_once(rows: int, batch_size: int, read: Callable[[int], Iterable[pa.RecordBatch]]) -> int:
    """How many rows a library is asked for at once, so that a batch has about `row_pace.DECODED_BYTES`.

    Args:
        rows: Of the file.
        batch_size: Rows of a batch, at most.
        read: Reads the first rows of the file.
    """
    most = min(batch_size, _MOST_ROWS)
    if min(rows, most) <= _PROBE:
        return most
    size = sum(batch.nbytes for batch in read(_PROBE))
    return max(1, min(most, row_pace.DECODED_BYTES * _PROBE // max(int(size), 1)))


def local_copy(stream: Any, owner: object) -> Any:
    """A copy of a file in the temporary directory, for libraries that take paths.

    So requests to a store stay those of the stream, with its time limits, retries and credentials.

    Args:
        stream: The file, which can seek.
        owner: Who reads the copy, which goes with it.

    Raises:
        StoreError: The copy cannot be written.
    """
    what = "The library for files of this format reads a copy of each"
    with written_temporarily(what):
        copy = tempfile.NamedTemporaryFile(prefix="pypaimon-file-", delete=False)  # noqa: SIM115 - lives as its owner
    weakref.finalize(owner, _remove, copy, Origin())
    if isinstance(stream, RemoteFile):
        stream.will_read([(0, stream.seek(0, io.SEEK_END))])
    stream.seek(0, io.SEEK_SET)
    while chunk := stream.read(_CHUNK_BYTES):
        with written_temporarily(what):
            copy.write(chunk)
    with written_temporarily(what):
        copy.flush()
    return copy


def _remove(copy: Any, origin: Origin) -> None:
    """Let a copy go; a process that was forked has the owner too, and leaves the file to its parent."""
    with suppress(OSError):
        # What could not be written cannot be now either.
        copy.close()
    if origin.is_here:
        with suppress(OSError):
            os.unlink(copy.name)


@contextmanager
def decoding() -> Iterator[None]:
    """Makes a `ValueError` of whatever a library says of a file that it cannot read; those in Rust may panic.

    What fails for the machine's sake, such as too many open files, has an errno, and says nothing of the file.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(str(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from error
