"""`RollingRows`: rows into files, and their blobs into files of their own beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from pypaimon.streaming.formats.format import FormatWriter
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.writing.files.blob_encoder import BlobEncoder, BlobSource
from pypaimon.streaming.writing.files.bucket_files import BucketFiles
from pypaimon.streaming.writing.files.file_options import FileKind, FileOptions
from pypaimon.streaming.writing.files.new_file import NewFile
from pypaimon.streaming.writing.files.record_facts import RecordFacts
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

Facts = Callable[[], RecordFacts]


class RollingRows(RollingFiles):
    """Files of rows of one bucket, each followed by the files of its blobs: as many of each column as are needed, which
    hold the same rows together. So the commit gives all of them the same row ids. Owns them until `take`.

    Args:
        files: Where they belong.
        kind: How files of rows are made.
        facts: Makes what finds out about the records of one file.
        blobs: Columns of blobs, and how their values are taken.
    """

    def __init__(self, files: BucketFiles, kind: FileKind, facts: Facts, blobs: Mapping[str, BlobSource]) -> None:
        super().__init__(files, kind, facts)
        options = FileOptions.of_blobs(files.table)
        self._beside = BucketFiles(files.table, options, files.partition, files.bucket)
        self._blobs = blobs

    def _opened(self, schema: pa.Schema) -> _NewRows:
        names = [name for name in schema.names if name not in self._blobs]
        rows = NewFile(self._files, self._kind, pa.schema([schema.field(name) for name in names]), self._facts())
        blobs = {name: _BlobFiles(self._beside, self._facts, source) for name, source in self._blobs.items()}
        return _NewRows(rows, names, blobs)


class _NewRows:
    """A file of rows that is being written, and those of its blobs."""

    def __init__(self, rows: NewFile, names: list[str], blobs: Mapping[str, RollingFiles]) -> None:
        self._rows = rows
        self._names = names
        self._blobs = blobs

    @property
    def count(self) -> int:
        return self._rows.count + sum(blobs.open_files for blobs in self._blobs.values())

    @property
    def full(self) -> bool:
        return self._rows.full

    @property
    def rows_left(self) -> int | None:
        return self._rows.rows_left

    def write(self, data: pa.Table) -> None:
        self._rows.write(data.select(self._names))
        for name, blobs in self._blobs.items():
            blobs.write(data.select([name]))

    def close(self) -> list[DataFileMeta]:
        found = self._rows.close()
        for blobs in self._blobs.values():
            blobs.end_file()
        return found + [file for blobs in self._blobs.values() for file in blobs.take()]

    def abort(self) -> None:
        self._rows.abort()
        for blobs in self._blobs.values():
            blobs.abort()


class _BlobFiles(RollingFiles):
    """Blob files of one column."""

    def __init__(self, files: BucketFiles, facts: Facts, source: BlobSource) -> None:
        super().__init__(files, files.options.data, facts)
        self._source = source

    def _opened(self, schema: pa.Schema) -> _NewBlobs:
        return _NewBlobs(self._files, self._kind, schema, self._facts(), self._source)


class _NewBlobs(NewFile):
    """A blob file that is being written."""

    def __init__(
        self, files: BucketFiles, kind: FileKind, schema: pa.Schema, facts: RecordFacts, source: BlobSource
    ) -> None:
        self._source = source
        super().__init__(files, kind, schema, facts)

    def _encoding(self, stream: Any, schema: pa.Schema) -> FormatWriter:
        field: Any = next(field for field in self._files.table.fields if field.name == schema.names[0])
        return BlobEncoder(stream, schema, field, self._source)
