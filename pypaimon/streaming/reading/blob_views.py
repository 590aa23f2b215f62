"""`BlobViews`: blobs of other tables, to which columns of `blob-view-field` refer by table, field and row id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, UnsupportedTableError
from pypaimon.streaming.internals import BlobViewLookup, BlobViewStruct
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.reading.blob_columns import BlobArray, EitherBlobs, blob_array
from pypaimon.streaming.reading.blob_fetcher import BlobFetcher
from pypaimon.streaming.reading.blob_places import BlobPlaces


class BlobViews:
    """Follows references to other tables, as these are when it is asked; for one thread at a time.

    Args:
        directory: The table that holds the references.
    """

    def __init__(self, directory: TableDirectory) -> None:
        self._directory = directory
        self._fetchers: dict[str, BlobFetcher] = {}

    def close(self) -> None:
        """Let files go. Idempotent."""
        for fetcher in self._fetchers.values():
            fetcher.close()

    def resolve(self, references: pa.Array, column: str) -> BlobArray:
        """What references refer to; null where that is null.

        Args:
            references: They, as serialised by pypaimon and Java.
            column: The column that holds them, for errors.

        Raises:
            CorruptTableError: One is no reference, or refers to a table, a field or a row that is not there.
            UnsupportedTableError: The table was not loaded by a catalog, which would have to find the others.
            StoreError: The catalog or a store kept failing (retriable).
        """
        structs = [self._parsed(each, column) for each in references.to_pylist()]
        names = list(dict.fromkeys(each.identifier.get_full_name() for each in structs if each is not None))
        if not names:
            return EitherBlobs([], len(structs))
        cells = self._directory.store.call("read", column, lambda _: self._descriptors(structs, column))
        found: list[BlobArray] = []
        for name in names:
            of_table = [
                cell if each is not None and each.identifier.get_full_name() == name else None
                for each, cell in zip(structs, cells, strict=True)
            ]
            found.append(
                blob_array(pa.array(of_table, pa.large_binary()), pa.large_binary(), None, self._fetcher(name), name)
            )
        return found[0] if len(found) == 1 else EitherBlobs(found, len(structs))

    def _parsed(self, reference: bytes | None, column: str) -> BlobViewStruct | None:
        if reference is None:
            return None
        try:
            return BlobViewStruct.deserialize(reference)
        except ValueError as error:
            raise self._wrong(column, f"holds what is no reference to a blob of another table ({error})") from error

    def _descriptors(self, structs: Sequence[BlobViewStruct | None], column: str) -> list[bytes | None]:
        wanted = [each for each in structs if each is not None]
        if self._directory.table.catalog_environment.catalog_loader is None:
            raise UnsupportedTableError(
                f"The column {column} refers to other tables, which only a catalog finds: load the table from one, or "
                "set 'blob-view.resolve.enabled' to false to get the references themselves."
            )
        lookup = BlobViewLookup(self._directory.table)
        try:
            lookup.preload(wanted)
            return [
                None if each is None or lookup.resolve_to_null(each) else lookup.resolve_descriptor(each).serialize()
                for each in structs
            ]
        except (OSError, PaimonStreamError):
            raise
        except Exception as error:
            cause: BaseException = error.__cause__ or error
            if isinstance(cause, OSError):
                raise cause from error
            raise self._wrong(column, f"refers to a blob of another table that is not there: {cause}") from error

    def _fetcher(self, name: str) -> BlobFetcher:
        """Reads the files of a table that is referred to, as that table's own readers would."""
        if name not in self._fetchers:
            environment = self._directory.table.catalog_environment
            table: Any = environment.catalog_loader.load().get_table(name)
            store = TableDirectory.of(table, self._directory.store.pool.timeout).store
            self._fetchers[name] = BlobFetcher(store, BlobPlaces.of(table.table_path, None))
        return self._fetchers[name]

    def _wrong(self, column: str, what: str) -> CorruptTableError:
        return CorruptTableError(str(self._directory.table.table_path), f"the column {column} {what}")
