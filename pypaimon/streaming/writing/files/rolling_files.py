"""`RollingFiles`: rows into one file after the other; each file is closed once it is large enough.

Columns of blobs go to files of their own. Each file of rows is followed by the files of its blobs, as many of each
column as are needed, which together hold the same rows. So the commit gives all of them the same row ids.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.errors import BadRowError, PaimonStreamError, StoreError
from pypaimon.streaming.formats.file_format import FormatWriter, WriteSettings
from pypaimon.streaming.formats.registry import FORMATS, new_file
from pypaimon.streaming.indexes.column_index import kind_of
from pypaimon.streaming.indexes.container import INDEX_FILE, encode_container
from pypaimon.streaming.indexes.file_index import FileIndex
from pypaimon.streaming.io.new_object import NewObject
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.model.normal_form import UnfitValueError, normal_table
from pypaimon.streaming.model.system_columns import KEY_PREFIX, ROW_ID, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import DataFileMeta, GenericRow, PaimonBlob, Timestamp
from pypaimon.streaming.paimon.write_internals import BlobFormatWriter
from pypaimon.streaming.writing.files.blob_references import SIDECAR, BlobReferences
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileKind, FileOptions
from pypaimon.streaming.writing.files.record_facts import RecordFacts
from pypaimon.streaming.writing.files.statistics import FileStatistics

BlobSource = Callable[[bytes], PaimonBlob]
"""Makes pypaimon's blob of given bytes."""

_COPIED_AT_ONCE = 1 << 20


class BlobEncoder:
    """One blob file that is being written."""

    def __init__(self, stream: Any, schema: pa.Schema, field: Any, source: BlobSource) -> None:
        self.schema = schema
        self._field = field
        self._source = source
        self._writer = BlobFormatWriter(_Unclosed(stream), copy_buffer_size=_COPIED_AT_ONCE)

    def write(self, data: pa.Table) -> None:
        """Add the values of the only column. Raises BadRowError if a value cannot be in a blob file."""
        for chunk in data.column(0).chunks:
            for value in chunk:
                row = GenericRow([self._blobs(value.as_py(), value.type)], [self._field])
                try:
                    self._writer.add_element(row)
                except ValueError as error:
                    raise BadRowError(f"Column '{self._field.name}' is {self._field.type}: {error}") from error

    def size(self) -> int:
        return int(self._writer.position)

    def close(self) -> None:
        """Write the index. The stream stays open."""
        self._writer.close()

    def _blobs(self, value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_map(kind):
            return [(key, self._blobs(each, kind.item_type)) for key, each in value]
        if pa.types.is_nested(kind):
            return [self._blobs(each, kind.value_type) for each in value]
        return self._source(value)


class _Unclosed:
    def __init__(self, stream: Any) -> None:
        # pypaimon's writer closes a stream that has `close`, and the size of the file is asked for
        # afterwards.
        self.write = stream.write


_ARROW_DATA_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowCapacityError)
_DATA_ERRORS = (ValueError, TypeError, ArithmeticError, *_ARROW_DATA_ERRORS)
"""What encoders raise because of values. Streams raise `OSError`."""


class _CreationTimes:
    """Creation times of files: local time of a zone, later for each file of this process than for the one before.

    Java's compaction of a postponed bucket takes files in the order of their creation times, which are milliseconds.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._last: dict[TimeZone, int] = {}

    def next(self, zone: TimeZone) -> Timestamp:
        with self._lock.held:
            now = zone.wall_millis(time.time_ns() // 10**6)
            last = self._last[zone] = max(self._last.get(zone, 0) + 1, now)
            return Timestamp.from_epoch_millis(last)


_CREATION_TIMES = _CreationTimes()


class NewFile:
    """A file that is being written. Its owner must call `close` or `abort`. Raises StoreError if it cannot be written.
    What was written of it is deleted. The file may have fewer columns than `schema`, and the rows fewer than the table.
    """

    def __init__(
        self, files: BucketFiles, kind: FileKind, schema: pa.Schema, facts: RecordFacts, blob: BlobSource | None = None
    ) -> None:
        self._files = files
        self._kind = kind
        self._facts = facts
        self._blob = blob
        self._name, self.path = files.new_path(kind)
        self._columns = facts.stored(schema)
        fields = [field for field in files.table.fields if field.name in schema.names]
        # Rows of append tables that keep their ids and sequence numbers.
        is_keyed = VALUE_KIND in schema.names
        kept = [] if is_keyed else [name for name in schema.names if name in (ROW_ID, SEQUENCE_NUMBER)]
        self._fields = [field.name for field in fields]
        names = [*self._fields, *kept]
        self._written = None if names == [field.name for field in files.table.fields] else names
        self._values = FileStatistics(fields, schema, kind.stats)
        # Without names, statistics would be those of all columns that are written.
        self._without_stats = kept
        self._keys = FileStatistics.of_keys(facts.key_fields, schema)
        self._index = FileIndex(kind.indexes.written, schema) if kind.indexes else None
        self._references = BlobReferences(kind.managed_blobs) if kind.managed_blobs else None
        # Java reads CHAR from such files without trailing blanks, so statistics and indexes must be of what it reads.
        # Files of blobs are not of a format of the registry.
        is_padded = kind.format in FORMATS and FORMATS[kind.format].pads_char
        chars = [field.name for field in fields if is_padded and kind_of(field.type) == "CHAR"]
        self._padded = [name for each in chars for name in (each, KEY_PREFIX + each) if name in schema.names]
        self._paths = [self.path]
        self.rows = 0
        stored = pa.schema([schema.field(name) for name in self._columns])
        self._stream: Any = None
        self._encoder: Any = None
        with self._guarded():
            self._stream = files.table.new_directory().store.open_new(self.path)
        with self._guarded():
            self._encoder = self._encoding(self._stream, stored)

    @property
    def full(self) -> bool:
        options = self._files.options
        return self._encoder.size() >= options.target_bytes or self.rows_left == 0

    @property
    def rows_left(self) -> int | None:
        """Number of rows that it can still take; None: any number."""
        most = self._kind.target_rows
        return None if most is None else most - self.rows

    def write(self, data: pa.Table) -> None:
        """Add rows. Raises BadRowError if a value cannot be in its column, UnsupportedTableError if the format cannot
        hold it, StoreError if the store failed. Then the file is deleted.
        """
        for name in self._padded:
            position = data.schema.get_field_index(name)
            data = data.set_column(position, data.schema.field(name), pc.utf8_rtrim(data.column(position), " "))
        with self._guarded():
            self._encode(data.select(self._columns))
        self.rows += data.num_rows
        self._facts.add(data)
        if self._index is not None:
            self._index.add(data)
        if self._references is not None:
            self._references.add(data)
        self._values.add(data)
        self._keys.add(data)

    def close(self) -> DataFileMeta:
        with self._guarded():
            self._encoder.close()
            size = int(self._stream.tell())
            self._stream.close()
            embedded, extra_files = self._indexed()
            if self._references is not None:
                extra_files.append(self._extra_file(SIDECAR, self._references.data()))
        first, last = self._facts.sequence_range()
        key_fields = list(self._facts.key_fields)
        least, greatest = self._facts.key_range()
        bounded = self._values.names
        return DataFileMeta.create(
            file_name=self._name,
            file_size=size,
            row_count=self.rows,
            min_key=least or GenericRow([], key_fields),
            max_key=greatest or GenericRow([], key_fields),
            key_stats=self._keys.result(),
            value_stats=self._values.result(),
            min_sequence_number=first,
            max_sequence_number=last,
            schema_id=self._files.table.schema.id,
            level=self._files.options.level,
            extra_files=extra_files,
            creation_time=_CREATION_TIMES.next(self._files.table.zone),
            delete_row_count=self._facts.deletes,
            file_source=self._kind.source,
            value_stats_cols=self._fields if bounded is None and self._without_stats else bounded,
            external_path=self.path if self._files.external else None,
            write_cols=self._written,
            embedded_index=embedded,
            file_path=self.path,
        )

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            self._encoder.close()
        with contextlib.suppress(Exception):
            if isinstance(self._stream, NewObject):
                # Nothing of the object was uploaded, so there is nothing to delete.
                if not self._stream.abandon():
                    return
            else:
                self._stream.close()
        for path in self._paths:
            self._files.table.file_io.delete_quietly(path)

    def _indexed(self) -> tuple[bytes | None, list[str]]:
        """Its indexes if they are small; otherwise the names of the files that hold them. Neither if there are none."""
        if self._index is None or self._kind.indexes is None:
            return None, []
        parts = self._index.parts()
        if not parts:
            return None, []
        data = encode_container(parts)
        if self._kind.indexes.are_embedded(parts, data):
            return data, []
        return None, [self._extra_file(INDEX_FILE, data)]

    def _extra_file(self, ending: str, data: bytes) -> str:
        self._paths.append(self.path + ending)
        stream = self._files.table.new_directory().store.open_new(self._paths[-1])
        stream.write(data)
        stream.close()
        return self._name + ending

    def _encode(self, data: pa.Table) -> None:
        try:
            self._encoder.write(normal_table(data, self._encoder.schema))
            return
        except UnfitValueError as error:
            unfit = error
        except (PaimonStreamError, OSError):
            raise
        except _DATA_ERRORS as error:
            unfit = self._unfit(data, error)
        # The data are at fault, so this must not look like an error of the store, which may be retried.
        raise BadRowError(f"Column '{unfit.column}' cannot be written to {self.path}: {unfit.problem}.") from unfit

    def _unfit(self, data: pa.Table, error: Exception) -> UnfitValueError:
        names = data.schema.names
        # The encoder does not say which column it refuses, so each is encoded alone.
        found = next((name for name in names[:-1] if not self._is_encodable(data.select([name]))), names[-1])
        return UnfitValueError((found,), f"a row does not fit: {error}")

    def _is_encodable(self, data: pa.Table) -> bool:
        try:
            alone = self._encoding(io.BytesIO(), data.schema)
            alone.write(normal_table(data, alone.schema))
            alone.close()
        except _DATA_ERRORS:
            return False
        return True

    def _encoding(self, stream: Any, schema: pa.Schema) -> FormatWriter:
        if self._blob is not None:
            field: Any = next(field for field in self._files.table.fields if field.name == schema.names[0])
            if pa.types.is_large_binary(schema.types[0]):
                # A collection that is copied whole.
                field = BlobStorage.of(self._files.table.schema).as_read(field)
            return BlobEncoder(stream, schema, field, self._blob)
        kind, options = self._kind, self._files.options
        settings = WriteSettings(
            kind.compression, options.zstd_level, options.page_index, options.block_bytes, options.orc_zone
        )
        return new_file(kind.format, stream, schema, settings)

    @contextlib.contextmanager
    def _guarded(self) -> Any:
        try:
            yield
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                raise translated(self.path, error) from error
            if isinstance(error, _ARROW_DATA_ERRORS):
                raise BadRowError(f"{self.path} cannot be encoded: {error}.") from error
            if isinstance(error, RuntimeError | pa.ArrowException):
                raise StoreError(f"{self.path} cannot be written: {error}") from error
            raise


MOST_PIECE_BYTES = 32 << 20
"""Bytes of rows, as Arrow counts them, after which a file is checked for its size, unless `file.block-size` says it. A
row group of Parquet."""


class RollingFiles:
    """Files of one kind of one bucket. Owns them until `take`."""

    def __init__(
        self,
        files: BucketFiles,
        kind: FileKind,
        facts: Callable[[], RecordFacts],
        blobs: Mapping[str, BlobSource] | None = None,
        *,
        blob: BlobSource | None = None,
    ) -> None:
        self._files = files
        self._kind = kind
        self._facts = facts
        self._blob = blob
        self._blobs: dict[str, RollingFiles] = {}
        if blobs:
            options = FileOptions.of_blobs(files.table)
            of_blobs = BucketFiles(files.table, options, files.partition, files.bucket)
            self._blobs = {
                name: RollingFiles(of_blobs, options.data, facts, blob=source) for name, source in blobs.items()
            }
        self._open: NewFile | None = None
        self._done: list[DataFileMeta] = []
        self._piece_bytes = min(files.options.block_bytes or MOST_PIECE_BYTES, files.options.target_bytes)
        self._pending: list[pa.Table] = []
        self.pending_bytes = 0  # Of rows that are not in a file yet

    @property
    def open_files(self) -> int:
        return (self._open is not None) + sum(blobs.open_files for blobs in self._blobs.values())

    def write(self, data: pa.Table) -> None:
        most = max(1, int(self._piece_bytes * data.num_rows / max(1, data.nbytes)))
        names = [name for name in data.schema.names if name not in self._blobs]
        while data.num_rows:
            if self._open is None:
                schema = pa.schema([data.schema.field(name) for name in names])
                self._open = NewFile(self._files, self._kind, schema, self._facts(), self._blob)
            left = self._open.rows_left
            count = most if left is None else min(most, left)
            piece = data.slice(0, count)
            self._open.write(piece.select(names))
            for name, blobs in self._blobs.items():
                blobs.write(piece.select([name]))
            data = data.slice(count)
            if self._open.full:
                self.end_file()

    def add(self, rows: pa.Table) -> None:
        """As `write`, but rows are held until there are as many as a row group, or until `end_file`."""
        self._pending.append(rows)
        self.pending_bytes += rows.nbytes
        if self.pending_bytes >= self._piece_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are held."""
        pending, self._pending, self.pending_bytes = self._pending, [], 0
        if pending:
            self.write(pa.concat_tables(pending))

    def end_file(self) -> None:
        """Close the open file, if there is one, and those of its blobs."""
        self.flush()
        if self._open is None:
            return
        closed = [self._open.close()]
        for blobs in self._blobs.values():
            blobs.end_file()
        # Nothing can fail from here on. Until here `_open` stays set, so that `abort` deletes this file and its blobs.
        for blobs in self._blobs.values():
            closed += blobs.take()
        self._done += closed
        self._open = None

    def take(self) -> list[DataFileMeta]:
        """Metadata of all files, which belong to the caller from now on."""
        self.end_file()
        taken, self._done = self._done, []
        return taken

    def abort(self) -> None:
        self._pending, self.pending_bytes = [], 0
        if self._open is not None:
            self._open.abort()
            self._open = None
        for blobs in self._blobs.values():
            blobs.abort()
        for file in self._done:
            path = file.physical_path()
            for each in (path, *(f"{path.rpartition('/')[0]}/{name}" for name in file.extra_files)):
                self._files.table.file_io.delete_quietly(each)
        self._done = []
