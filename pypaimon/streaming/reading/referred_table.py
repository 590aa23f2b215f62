"""`ReferredTable`: a table to whose rows another one refers, and where their blobs lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StoreError, UnsupportedTableError
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.files.row_id_groups import row_id_groups
from pypaimon.streaming.formats.blob_format import Numbers
from pypaimon.streaming.internals import DataField
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.blob_types import is_blob
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.system_columns import ROW_ID
from pypaimon.streaming.options.blob_storage import BlobStorage
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions, Unmatched
from pypaimon.streaming.reading.query_auth import QueryAuth
from pypaimon.streaming.reading.read_layout import ReadSettings, layout
from pypaimon.streaming.reading.split_files import deletion_files
from pypaimon.streaming.reading.split_reader import SplitReader


class NotThereError(LookupError):
    """A column or a row to which somebody refers is not there."""


class ReferredTable:
    """A table as it is when it is first asked.

    Args:
        table: pypaimon's table.
        io_timeout: Seconds that one request may take.

    Attributes:
        directory: What lies in its directory.
    """

    def __init__(self, table: Any, io_timeout: float) -> None:
        self.directory = TableDirectory.of(table, io_timeout)
        self._schema = table.table_schema
        self._splits: list[StreamSplit] | None = None

    def cells(self, field_id: int, wanted: Sequence[int]) -> pa.LargeBinaryArray:
        """Where the blobs of some rows lie, as descriptors; null where the value is.

        Args:
            field_id: The column.
            wanted: Row ids.

        Raises:
            NotThereError: There is no such column, or no such row.
            UnsupportedTableError: The column has no blobs of its own, or the catalog's rules cannot be enforced.
            CorruptTableError: A file of the table is damaged.
            StoreError: The store kept failing, or a file has expired just now (retriable).
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
            raise StoreError(f"{error.filename}: the file expired while rows of it were looked up") from error
        index = pc.index_in(asked, pa.concat_arrays(ids))
        if index.null_count:
            raise NotThereError(f"it has no row {asked.filter(index.is_null())[0]}")
        return pa.concat_arrays(cells).take(index)

    def _field(self, field_id: int) -> DataField:
        field = next((field for field in self._schema.fields if field.id == field_id), None)
        if field is None:
            raise NotThereError(f"it has no column with the id {field_id}")
        if not is_blob(field.type) or field.name in BlobStorage.of(self._schema).views:
            raise UnsupportedTableError(f"{field.name} {field.type} of {self._schema_name} has no blobs of its own")
        return field

    @property
    def _schema_name(self) -> str:
        return str(self.directory.table.identifier.get_full_name())

    def _rows(self, field: DataField, ids: Numbers) -> Iterator[pa.RecordBatch]:
        """Rows, some of which are wanted, as the catalog's rules allow."""
        settings = ReadSettings(self._schema, projection=(field.name, ROW_ID), view="row_tracking")
        bound = layout(settings)
        auth = QueryAuth.of(self.directory)
        rules = None if auth is None else auth.rules(bound)
        if rules is not None:
            bound = bound.reading(rules.needed)
        splits = list(filter(None, (_holding(split, ids) for split in self._planned())))
        # Not the pool of the store, which reading a file asks.
        with closing(IOPool(1, self.directory.store.pool.timeout, "paimon-open", marked=True)) as openers:
            reader = SplitReader(
                self.directory,
                bound,
                unmatched=Unmatched.DROP,
                keep_deletes=False,
                tell_deletes=False,
                batch_size=settings.batch_size,
                openers=openers,
                vectors=PlanVectors(IndexBlocks(self.directory.store), deletion_files(splits)),
            )
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
    """The files of a split that hold rows of these ids; None if none does."""
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
