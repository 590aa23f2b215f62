"""Formats that a library of their own reads, which an extra installs: Lance, Vortex and Mosaic.

The libraries are imported when a file is opened; `Format.open` names the extra if one is missing.
"""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pyarrow as pa

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.formats import file_format
from pypaimon.streaming.io.local_files import written_temporarily
from pypaimon.streaming.io.remote_files import RemoteFile

_MOST_ROWS = 65_536
_PROBE = 1024
"""Rows to decode first, to see how wide they are: these libraries bound batches by rows only."""

_CHUNK_BYTES = 1 << 20


def rows_at_once(rows: int, batch_size: int, read: Callable[[int], Iterable[pa.RecordBatch]]) -> int:
    """How many rows make a batch of about `file_format.DECODED_BYTES`."""
    most = min(batch_size, _MOST_ROWS)
    if min(rows, most) <= _PROBE:
        return most
    size = sum(batch.nbytes for batch in read(_PROBE))
    return max(1, min(most, file_format.DECODED_BYTES * _PROBE // max(int(size), 1)))


def local_copy(stream: Any, owner: object) -> Any:
    """Copy a file into the temporary directory, for libraries that take paths.

    Requests to a store are then those of the stream, with its time limits, retries and credentials. Raises StoreError
    if the copy cannot be written.
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
    with suppress(OSError):
        # Closing flushes, which fails again if the disk is full.
        copy.close()
    # A forked process has the owner too, and leaves the file to its parent.
    if origin.is_here:
        with suppress(OSError):
            os.unlink(copy.name)


@contextmanager
def decoding() -> Iterator[None]:
    """Turn the errors of a library into `ValueError`; libraries in Rust may panic.

    Errors with an errno, such as too many open files, are raised as they are: the file may be sound.
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


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; errors of the library are raised as `decoding` does, those of the caller are not touched."""
    while True:
        with decoding():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


class LanceFileReader:
    """One Lance file, copied for the library `pylance`, which takes paths."""

    def __init__(self, stream: Any) -> None:
        self._open = import_module("lance.file").LanceFileReader
        self._copy = local_copy(stream, self)
        with decoding():
            reader = self._open(self._copy.name)
            self.schema: pa.Schema = reader.metadata().schema
            self.num_rows: int = reader.num_rows()

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        with decoding():
            reader = self._open(self._copy.name, columns=list(columns))
            rows = rows_at_once(self.num_rows, batch_size, lambda most: reader.read_range(0, most).to_batches())
            batches = iter(reader.read_all(batch_size=rows).to_batches())
        yield from _decoded(batches)


class VortexFileReader:
    """One Vortex file, copied for the library `vortex-data`, which takes paths.

    The library returns texts and bytes as views, which are cast to ordinary ones.
    """

    def __init__(self, stream: Any) -> None:
        opened = import_module("vortex").open
        self._copy = local_copy(stream, self)
        with decoding():
            self._file = opened(self._copy.name)
            self.num_rows: int = len(self._file)
            stored: pa.Schema = self._file.dtype.to_arrow_schema()
        self.schema = pa.schema([field.with_type(_without_views(field.type)) for field in stored])

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        with decoding():
            rows = rows_at_once(self.num_rows, batch_size, lambda most: self._scan(schema, limit=most))
            batches = self._scan(schema, batch_size=rows)
        yield from _decoded(batches)

    def _scan(self, schema: pa.Schema, **options: int) -> Iterator[pa.RecordBatch]:
        reader = self._file.scan(schema.names, **options).to_arrow()
        return (batch.select(schema.names).cast(schema) for batch in reader)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    return kind


class MosaicFileReader:
    """One Mosaic file, of which one row group is in memory at a time.

    The library `paimon-mosaic` reads from several threads and hides errors of a read, so it reads a copy.
    """

    def __init__(self, stream: Any) -> None:
        self._open = import_module("mosaic").MosaicReader.from_input_file
        self._copy = local_copy(stream, self)
        with decoding():
            reader = self._reader()
            self.schema: pa.Schema = reader.schema
            self.num_rows: int = sum(map(reader.row_group_num_rows, range(reader.num_row_groups)))

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        with decoding():
            reader = self._reader()
            reader.project(list(columns))
        for group in range(reader.num_row_groups):
            with decoding():
                batch = reader.read_row_group(group)
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)

    def _reader(self) -> Any:
        descriptor = self._copy.fileno()
        return self._open(lambda offset, length: os.pread(descriptor, length, offset), os.fstat(descriptor).st_size)
