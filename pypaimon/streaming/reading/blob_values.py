"""`BlobValues`: replaces cells by their blobs, as the last step of a read, when it is known which rows come out.

A batch is cut so that its blobs take bounded memory, and the blobs of a batch are requested together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import CorruptTableError, StoreError, UnsupportedTableError
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.files.row_id_groups import row_id_groups
from pypaimon.streaming.formats.blob_format import Numbers
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.snapshots import catalog_error
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.data_types import is_blob
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.system_columns import ROW_ID
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions, Unmatched
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import BlobViewStruct, DataField, DataType, MapType, TableNotExistException
from pypaimon.streaming.reading.blob import BlobFetcher, BlobPlaces
from pypaimon.streaming.reading.blob_columns import BlobArray, EitherBlobs, blob_array
from pypaimon.streaming.reading.query_auth import QueryAuth
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings, layout
from pypaimon.streaming.reading.split_files import deletion_files
from pypaimon.streaming.reading.split_reader import SplitReader

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory
    from pypaimon.streaming.model.plan import StreamSplit


class NotThereError(LookupError):
    """A reference names a column or a row that does not exist."""


class ReferredTable:
    """A table that references name, as it is at the first request."""

    def __init__(self, table: ReadableTable, io_timeout: float) -> None:
        self.directory = TableDirectory.of(table, io_timeout)
        self._schema = table.table_schema
        self._splits: list[StreamSplit] | None = None

    def cells(self, field_id: int, wanted: Sequence[int]) -> pa.LargeBinaryArray:
        """The blobs of some rows as descriptors; null for null values. Raises NotThereError if there is no such column
        or row, UnsupportedTableError if the column holds no blobs itself, or the catalog's rules cannot be enforced.
        """
        field = self._field(field_id)
        asked = pa.array(wanted, pa.int64())
        ids, cells = [pa.array([], pa.int64())], [pa.array([], pa.large_binary())]
        try:
            for batch in self._rows(field, np.unique(asked.to_numpy())):
                batch = batch.filter(pc.is_in(batch.column(ROW_ID), asked))
                ids.append(batch.column(ROW_ID))
                cells.append(batch.column(field.name))
        except FileNotFoundError as error:
            raise StoreError(f"{error.filename}: the file expired while its rows were looked up") from error
        index = pc.index_in(asked, pa.concat_arrays(ids))
        if index.null_count:
            raise NotThereError(f"it has no row {asked.filter(index.is_null())[0]}")
        return pa.concat_arrays(cells).take(index)

    def _field(self, field_id: int) -> DataField:
        field = next((field for field in self._schema.fields if field.id == field_id), None)
        if field is None:
            raise NotThereError(f"it has no column with the id {field_id}")
        if not is_blob(field.type) or field.name in BlobStorage.of(self._schema).views:
            raise UnsupportedTableError(f"{field.name} {field.type} of {self._schema_name} holds no blobs itself")
        return field

    @property
    def _schema_name(self) -> str:
        return str(self.directory.table.identifier.get_full_name())

    def _rows(self, field: DataField, ids: Numbers) -> Iterator[pa.RecordBatch]:
        settings = ReadSettings(
            self._schema,
            projection=(field.name, ROW_ID),
            unmatched=Unmatched.DROP,
            include_row_kind=False,
            view="row_tracking",
        )
        bound = layout(settings)
        auth = QueryAuth.of(self.directory)
        rules = None if auth is None else auth.rules(bound)
        if rules is not None:
            bound = bound.reading(rules.needed)
        splits = list(filter(None, (_holding(split, ids) for split in self._planned())))
        # Not the pool of the store, because reading a file waits for that pool.
        with closing(IOPool(1, self.directory.store.pool.timeout, "paimon-open", marked=True)) as openers:
            vectors = PlanVectors(IndexBlocks(self.directory.store), deletion_files(splits))
            reader = SplitReader(self.directory, bound, settings, openers, vectors)
            for split in splits:
                records = reader.read(split)
                for each in records if rules is None else rules.enforced(records, bound.fields):
                    yield each.batch

    def _planned(self) -> list[StreamSplit]:
        if self._splits is None:
            from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans

            snapshot = self.directory.snapshots.get_latest_snapshot()
            plans = SnapshotPlans(self.directory, self._schema, StreamOptions(Start(StartMode.LATEST_FULL)))
            self._splits = [] if snapshot is None else plans.full(snapshot).splits
        return self._splits


def _holding(split: StreamSplit, ids: Numbers) -> StreamSplit | None:
    if split.mode is not SplitMode.EVOLUTION:
        return split
    names = set()
    for group in row_id_groups(split.files):
        if np.searchsorted(ids, group.first_row_id) < np.searchsorted(ids, group.end):
            names |= {file.file_name for file in (*group.files, *group.blob_files, *group.vector_files)}
    deletions = split.data_deletion_files or [None] * len(split.files)
    kept = [each for each in zip(split.files, deletions, strict=True) if each[0].file_name in names]
    if not kept:
        return None
    return StreamSplit(
        split.mode,
        [file for file, _ in kept],
        split.partition,
        split.bucket,
        snapshot_id=split.snapshot_id,
        deletion_files=[deletion for _, deletion in kept],
    )


class BlobViews:
    """Resolves references to other tables, as these are now; for one thread at a time."""

    def __init__(self, directory: TableDirectory) -> None:
        self._directory = directory
        self._tables: dict[str, tuple[ReferredTable, BlobFetcher]] = {}

    def close(self) -> None:
        for _, fetcher in self._tables.values():
            fetcher.close()

    def resolve(self, references: pa.Array, column: str) -> BlobArray:
        """The blobs that references refer to; null for null blobs. Raises CorruptTableError if a value is not a
        reference, or refers to a table, a field or a row that does not exist, UnsupportedTableError if the table was
        not loaded by a catalog, which is needed to find the other tables, or another table cannot be read this way.
        """
        rows: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for index, reference in enumerate(references.to_pylist()):
            if reference is not None:
                struct = self._parsed(reference, column)
                of_field = rows.setdefault((struct.identifier.get_full_name(), struct.field_id), [])
                of_field.append((index, struct.row_id))
        arrays = [
            self._of_field(name, field_id, pairs, len(references), column) for (name, field_id), pairs in rows.items()
        ]
        return arrays[0] if len(arrays) == 1 else EitherBlobs(arrays, len(references))

    def _parsed(self, reference: bytes, column: str) -> BlobViewStruct:
        try:
            return BlobViewStruct.deserialize(reference)
        except ValueError as error:
            raise self._wrong(column, f"holds a value that does not refer to a blob ({error})") from error

    def _of_field(
        self, name: str, field_id: int, pairs: Sequence[tuple[int, int]], length: int, column: str
    ) -> BlobArray:
        table, fetcher = self._table(name, column)
        try:
            cells = table.cells(field_id, [row_id for _, row_id in pairs])
        except NotThereError as error:
            raise self._wrong(column, f"refers to a blob of {name} that does not exist: {error}") from error
        index = np.zeros(length, np.int64)
        missing = np.ones(length, bool)
        rows = [row for row, _ in pairs]
        index[rows], missing[rows] = np.arange(len(rows)), False
        return blob_array(cells.take(pa.array(index, mask=missing)), pa.large_binary(), None, fetcher, name)

    def _table(self, name: str, column: str) -> tuple[ReferredTable, BlobFetcher]:
        """A table that references name. Its blobs are read as its own readers read them."""
        if name not in self._tables:
            loader = self._directory.table.catalog_environment.catalog_loader
            if loader is None:
                raise UnsupportedTableError(
                    f"The column {column} refers to other tables, which only a catalog finds: load the table from one, "
                    "or set 'blob-view.resolve.enabled' to false to get the references themselves."
                )

            def load(name: str) -> ReadableTable:
                try:
                    found: ReadableTable = loader.load().get_table(name)
                    return found
                except TableNotExistException as error:
                    raise self._wrong(column, f"refers to {name}, which does not exist") from error
                except Exception as error:
                    raise catalog_error(error) from error

            store = self._directory.store
            table = ReferredTable(store.call("catalog", name, load), store.pool.timeout)
            places = BlobPlaces.of(table.directory.table.table_path, None)
            self._tables[name] = table, BlobFetcher(table.directory.store, places)
        return self._tables[name]

    def _wrong(self, column: str, what: str) -> CorruptTableError:
        return CorruptTableError(str(self._directory.table.table_path), f"the column {column} {what}")


BATCH_BYTES = 16 << 20
"""Bytes of blobs in a batch, at most; a single row may have more."""


class BlobValues:
    """Puts blobs into the batches of one split."""

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
        self._fetcher.close()
        self._views.close()

    def batches(self, columns: Sequence[pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a batch, as one batch or several. Raises FileNotFoundError if a blob file of the table is
        missing.
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
