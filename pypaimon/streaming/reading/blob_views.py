"""`BlobViews`: blobs of other tables, to which columns of `blob-view-field` refer by table, field and row id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.internals import BlobViewStruct, TableNotExistException
from pypaimon.streaming.metadata.snapshots import catalog_error
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.reading.blob_columns import BlobArray, EitherBlobs, blob_array
from pypaimon.streaming.reading.blob_fetcher import BlobFetcher
from pypaimon.streaming.reading.blob_places import BlobPlaces
from pypaimon.streaming.reading.referred_table import NotThereError, ReferredTable


class BlobViews:
    """Follows references to other tables, as these are when it is asked; for one thread at a time.

    Args:
        directory: The table that holds the references.
    """

    def __init__(self, directory: TableDirectory) -> None:
        self._directory = directory
        self._tables: dict[str, tuple[ReferredTable, BlobFetcher]] = {}

    def close(self) -> None:
        """Let files go. Idempotent."""
        for _, fetcher in self._tables.values():
            fetcher.close()

    def resolve(self, references: pa.Array, column: str) -> BlobArray:
        """What references refer to; null where that is null.

        Args:
            references: They, as serialised by pypaimon and Java.
            column: The column that holds them, for errors.

        Raises:
            CorruptTableError: One is no reference, or refers to a table, a field or a row that is not there.
            UnsupportedTableError: The table was not loaded by a catalog, which would have to find the others, or one of
                these cannot be read so.
            StoreError: The catalog or a store kept failing (retriable).
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
            raise self._wrong(column, f"holds what is no reference to a blob of another table ({error})") from error

    def _of_field(
        self, name: str, field_id: int, pairs: Sequence[tuple[int, int]], length: int, column: str
    ) -> BlobArray:
        """The blobs of one field of one table, null in the rows of others."""
        table, fetcher = self._table(name, column)
        try:
            cells = table.cells(field_id, [row_id for _, row_id in pairs])
        except NotThereError as error:
            raise self._wrong(column, f"refers to a blob of {name} that is not there: {error}") from error
        index = np.zeros(length, np.int64)
        missing = np.ones(length, bool)
        rows = [row for row, _ in pairs]
        index[rows], missing[rows] = np.arange(len(rows)), False
        return blob_array(cells.take(pa.array(index, mask=missing)), pa.large_binary(), None, fetcher, name)

    def _table(self, name: str, column: str) -> tuple[ReferredTable, BlobFetcher]:
        """A table, whose blobs are read as its own readers would."""
        if name not in self._tables:
            loader = self._directory.table.catalog_environment.catalog_loader
            if loader is None:
                raise UnsupportedTableError(
                    f"The column {column} refers to other tables, which only a catalog finds: load the table from one, "
                    "or set 'blob-view.resolve.enabled' to false to get the references themselves."
                )

            def load(name: str) -> object:
                try:
                    return loader.load().get_table(name)
                except TableNotExistException as error:
                    raise self._wrong(column, f"refers to {name}, which is not there") from error
                except Exception as error:
                    raise catalog_error(error) from error

            store = self._directory.store
            table = ReferredTable(store.call("catalog", name, load), store.pool.timeout)
            places = BlobPlaces.of(table.directory.table.table_path, None)
            self._tables[name] = table, BlobFetcher(table.directory.store, places)
        return self._tables[name]

    def _wrong(self, column: str, what: str) -> CorruptTableError:
        return CorruptTableError(str(self._directory.table.table_path), f"the column {column} {what}")
