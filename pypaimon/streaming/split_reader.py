"""One split as record batches: which records of its files come out, and with which row kind."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming import deletion_vectors, filters, row_kinds
from pypaimon.streaming.data_files import VALUE_KIND, read_file
from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.internals import DataFileMeta, DeletionFile
from pypaimon.streaming.option_values import OptionValues
from pypaimon.streaming.plan import SplitMode, StreamSplit
from pypaimon.streaming.read_layout import Layout, Unmatched
from pypaimon.streaming.table_traits import TableTraits

if TYPE_CHECKING:
    from pypaimon.streaming.table_directory import TableDirectory

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Records:
    """Records with their row kinds.

    Attributes:
        batch: The fields that were read (and system columns that were asked for).
        kinds: Their row kinds as int8 codes; None: all +I.
    """

    batch: pa.RecordBatch
    kinds: pa.Array | None = None

    def keep(self, mask: pa.Array) -> Records:
        """Those for which the mask is true."""
        if mask.true_count == len(mask):
            return self
        return Records(self.batch.filter(mask), None if self.kinds is None else self.kinds.filter(mask))


class SplitReader:
    """Reads splits in one layout.

    Args:
        directory: The table.
        layout: What to read and give out.
        unmatched: What becomes of records of an upsert stream that do not match the filter.
        keep_deletes: Whether first plans show stored deletes (audit log).
        batch_size: Rows per batch read, at most.
    """

    def __init__(
        self,
        directory: TableDirectory,
        layout: Layout,
        *,
        unmatched: Unmatched,
        keep_deletes: bool,
        batch_size: int,
    ) -> None:
        self._directory = directory
        self._layout = layout
        self._unmatched = unmatched
        self._keep_deletes = keep_deletes
        self._batch_size = batch_size
        self._traits = TableTraits.of(layout.schema)
        options = OptionValues(layout.schema.options)
        self._ignore_lost = options.boolean("scan.ignore-lost-files", False)
        self._ignore_corrupt = options.boolean("scan.ignore-corrupt-files", False)

    def read(self, split: StreamSplit) -> Iterator[Records]:
        """The records of a split, in order, filtered.

        Raises:
            FileNotFoundError: A data file is missing.
            CorruptTableError: A data file is damaged.
            SchemaChangedError: A value does not fit the type that is read.
        """
        if split.mode is SplitMode.ROWS:
            records = self._rows(split)
        elif split.mode in (SplitMode.RECORDS, SplitMode.CHANGELOG):
            records = self._stored_records(split)
        else:
            raise UnsupportedTableError(f"splits of mode {split.mode.value} cannot be read yet")
        upserts = split.mode is SplitMode.RECORDS or (
            split.mode is SplitMode.CHANGELOG and not self._traits.producer.complete
        )
        for each in records:
            kept = self._upserts(each) if upserts else self._exact(each)
            if kept.batch.num_rows:
                yield kept

    def _exact(self, records: Records) -> Records:
        if self._layout.predicate is None:
            return records
        return records.keep(filters.mask(self._layout.predicate, records.batch))

    def _upserts(self, records: Records) -> Records:
        """Filter records that replace what was there: one that does not match must take it away, not leave it."""
        if self._layout.on_keys is not None:
            records = records.keep(filters.mask(self._layout.on_keys, records.batch))
        if self._layout.on_values is None:
            return records
        matches = filters.mask(self._layout.on_values, records.batch)
        if self._unmatched == "drop":
            return records.keep(matches)
        kinds = records.kinds
        if kinds is None:
            kinds = pa.repeat(pa.scalar(row_kinds.INSERT, pa.int8()), records.batch.num_rows)
        return Records(records.batch, pc.if_else(matches, kinds, pa.scalar(row_kinds.DELETE, pa.int8())))

    def _rows(self, split: StreamSplit) -> Iterator[Records]:
        for file, deletions in _with_deletions(split.files, split.data_deletion_files):
            for batch in self._file(file, deletions, self._layout.system_columns):
                yield Records(batch)

    def _stored_records(self, split: StreamSplit) -> Iterator[Records]:
        for file, deletions in _with_deletions(split.files, split.data_deletion_files):
            for batch in self._file(file, deletions, (*self._layout.system_columns, VALUE_KIND)):
                yield Records(batch, batch.column(VALUE_KIND))

    def _file(
        self, file: DataFileMeta, deletions: DeletionFile | None, system_columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted."""
        try:
            vector = None if deletions is None else deletion_vectors.read(self._directory.store, deletions)
            position = 0
            for batch in read_file(
                self._directory,
                file,
                self._layout.fields,
                schema_id=self._layout.schema.id,
                system_columns=system_columns,
                batch_size=self._batch_size,
            ):
                if vector is None:
                    yield batch
                    continue
                yield batch.filter(vector.keep_mask(position, batch.num_rows))
                position += batch.num_rows
        except FileNotFoundError as error:
            if not self._ignore_lost:
                raise
            _LOG.warning("skipping what is left of a data file, as scan.ignore-lost-files asks: %s", error)
        except CorruptTableError as error:
            if not self._ignore_corrupt:
                raise
            _LOG.warning("skipping what is left of a data file, as scan.ignore-corrupt-files asks: %s", error)


def _with_deletions(
    files: Sequence[DataFileMeta], deletions: Sequence[DeletionFile | None] | None
) -> Iterator[tuple[DataFileMeta, DeletionFile | None]]:
    return zip(files, deletions or [None] * len(files), strict=True)
