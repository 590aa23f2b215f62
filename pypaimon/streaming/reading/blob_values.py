"""`BlobValues`: replaces cells by their blobs, as the last step of a read, when it is known which rows come out.

A batch is cut so that its blobs take bounded memory, and the blobs of a batch are requested together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pypaimon.streaming.formats.blob_format import Numbers
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import DataType, MapType
from pypaimon.streaming.reading.blob_columns import BlobArray, blob_array
from pypaimon.streaming.reading.blob_fetcher import BlobFetcher, BlobPlaces
from pypaimon.streaming.reading.blob_views import BlobViews
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory
    from pypaimon.streaming.model.plan import StreamSplit

BATCH_BYTES = 16 << 20
"""Bytes of blobs in a batch, at most; a single row may have more."""


class BlobValues:
    """Puts blobs into the batches of one split.

    Args:
        layout: The output columns, some of them blobs.
        settings: Whether descriptors come out, and where they may point.
    """

    def __init__(
        self, directory: TableDirectory, layout: ReadLayout, split: StreamSplit, settings: ReadSettings
    ) -> None:
        self._as_descriptors = settings.gives_descriptors
        self._types = layout.blobs
        views = BlobStorage.of(layout.schema).views
        self._referring = {output.name for output in layout.outputs if output.path[0] in views}
        self._holder = directory.table.table_path
        places = BlobPlaces.of(directory.table.table_path, settings.blob_places)
        self._fetcher = BlobFetcher(directory.store, places, _own_files(split))
        self._views = BlobViews(directory)

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._fetcher.close()
        self._views.close()

    def batches(self, columns: Sequence[pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a batch, as one batch or several.

        Args:
            columns: Its columns, with cells in place of blobs.
            schema: The columns with blobs.

        Raises:
            FileNotFoundError: A blob file of the table is missing.
            CorruptTableError: A blob file is damaged, or a descriptor is wrong.
            UnsupportedTableError: A descriptor points outside of the allowed places.
            StoreError: The store kept failing (retriable).
        """
        blobs = {
            index: self._blobs(column, field)
            for index, (column, field) in enumerate(zip(columns, schema, strict=True))
            if field.name in self._types
        }
        if self._as_descriptors:
            given = {index: array.descriptors() for index, array in blobs.items()}
            yield _batch(columns, given, schema)
            return
        total: Numbers = np.sum([array.sizes() for array in blobs.values()], axis=0)
        for start, length in _cuts(total, BATCH_BYTES):
            part = [column.slice(start, length) for column in columns]
            yield _batch(part, {index: array.values(start, length) for index, array in blobs.items()}, schema)

    def _blobs(self, column: pa.Array, field: pa.Field) -> BlobArray:
        if field.name in self._referring and pa.types.is_large_binary(column.type):
            return self._views.resolve(column, field.name)
        return blob_array(column, field.type, _key_type(self._types[field.name]), self._fetcher, self._holder)


def _batch(columns: Sequence[pa.Array], blobs: Mapping[int, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        blobs[index].cast(schema.field(index).type) if index in blobs else each for index, each in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cuts(sizes: Numbers, limit: int) -> Iterator[tuple[int, int]]:
    """Start and length of runs of rows of at most `limit` bytes, or of one row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield start, end - start
        start = end


def _key_type(data_type: DataType) -> DataType | None:
    return data_type.key if isinstance(data_type, MapType) else None


def _own_files(split: StreamSplit) -> set[str]:
    paths = {file.file_path for file in (*split.files, *split.before_files)}
    return {str(path) for path in paths} | {str(getattr(path, "other", path)) for path in paths}
