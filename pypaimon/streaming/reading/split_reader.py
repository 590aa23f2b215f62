"""`SplitReader`: the records of one split: which records of its files come out, and with which row kinds.

Java's rules: docs/java-semantics.md#changelog-producers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.files.deletion_vectors import DeletionVector, PlanVectors
from pypaimon.streaming.files.row_id_groups import row_id_groups
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.merge import differing_rows, net_changes
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.read_scope import LOGS
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.paimon.internals import DataFileMeta, DeletionFile
from pypaimon.streaming.reading.file_rows import BucketMerge, FileRows, joined_rows, one_ahead
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings
from pypaimon.streaming.reading.records import RecordFilter, Records, adding
from pypaimon.streaming.reading.split_files import SplitFiles

if TYPE_CHECKING:
    from pypaimon.streaming.files.index_files import FileIndexes
    from pypaimon.streaming.files.row_id_groups import RowIdGroup
    from pypaimon.streaming.metadata.table_directory import TableDirectory
    from pypaimon.streaming.paimon.filter_internals import Predicate

_FEW_ROWS = 10_000
"""Files of this many rows are decoded about as fast as they are passed to another thread."""


class SplitReader:
    """Reads splits in one layout."""

    def __init__(
        self,
        directory: TableDirectory,
        layout: ReadLayout,
        settings: ReadSettings,
        openers: IOPool,
        vectors: PlanVectors,
    ) -> None:
        self._directory = directory
        self._layout = layout
        self._keep_deletes = settings.view in LOGS
        # Whether a difference of states has rows for deletes, because a column shows their row kind
        self._with_deletes = self._keep_deletes or settings.include_row_kind
        unmatched, batch_size = settings.unmatched, settings.batch_size
        self._batch_size = batch_size
        self._openers = openers
        self._index_filter = FileIndexFilter(directory, layout, unmatched)
        self._traits = layout.traits
        self._filter = RecordFilter(layout, unmatched)
        self._files = FileRows(directory, layout, batch_size, vectors)
        self._merge = BucketMerge(layout, self._files, batch_size, openers)

    def read(self, split: StreamSplit) -> Iterator[Records]:
        """The records of a split, in order, filtered. Raises FileNotFoundError if a data file is missing."""
        return self._filter.kept(self._records(split), upserts=self.is_upserts(split))

    def _records(self, split: StreamSplit) -> Iterator[Records]:
        if split.mode is SplitMode.ROWS:
            return self._rows(split)
        if split.mode in (SplitMode.RECORDS, SplitMode.CHANGELOG):
            return self._stored(self._now(split), upserts=self.is_upserts(split))
        if split.mode is SplitMode.EVOLUTION:
            return self._evolution(split)
        if split.mode is SplitMode.NET:
            return self._net(split) if self._traits.primary_key else self._removed_and_added(split)
        if split.mode is SplitMode.DIFF:
            return self._diff(split)
        return self._merged_records(split)

    def is_upserts(self, split: StreamSplit) -> bool:
        """Whether records replace the row before without a record that retracts it."""
        incomplete = split.mode is SplitMode.CHANGELOG and not self._traits.producer.complete
        return incomplete or split.mode in (SplitMode.RECORDS, SplitMode.OVERWRITE)

    def _now(self, split: StreamSplit) -> SplitFiles:
        return SplitFiles.of(split, self._layout.schema)

    def _before(self, split: StreamSplit) -> SplitFiles:
        return SplitFiles.before(split, self._layout.schema)

    def _rows(self, split: StreamSplit) -> Iterator[Records]:
        for batch in self._batches(self._now(split), self._layout.system_columns, upserts=False):
            yield Records(batch)

    def _stored(self, files: SplitFiles, *, upserts: bool = False) -> Iterator[Records]:
        for batch in self._batches(files, (*self._layout.system_columns, VALUE_KIND), upserts=upserts):
            yield Records(batch, batch.column(VALUE_KIND))

    def _batches(self, files: SplitFiles, columns: Sequence[str], *, upserts: bool) -> Iterator[pa.RecordBatch]:
        def rows(file: DataFileMeta, deletions: DeletionFile | None) -> Iterator[pa.RecordBatch]:
            # Schema ids of another branch's files belong to that branch, so the filter cannot judge such
            # files.
            if files.branch(file) or self._index_filter.may_match(file, upserts=upserts):
                directory = self._files.directory_of(files, file)
                fields, constants = self._layout.fields, files.constants
                yield from self._files.read(file, deletions, fields, columns, constants, directory=directory)

        runs = [rows(file, deletions) for file, deletions in files.files]
        return one_ahead(self._openers, runs) if _are_begun_ahead(files.metas) else chain.from_iterable(runs)

    def _replaced_records(self, split: StreamSplit) -> Iterator[Records]:
        # Records of bucket -2 are neither sorted nor merged, so they are retracted one by one.
        for records in self._stored(self._before(split), upserts=True):
            added = records.keep(adding(records.kinds))
            yield Records(added.batch, pa.repeat(pa.scalar(row_kinds.DELETE, pa.int8()), added.batch.num_rows))
        yield from self._stored(self._now(split), upserts=True)

    def _merged_records(self, split: StreamSplit) -> Iterator[Records]:
        if split.mode is SplitMode.OVERWRITE and split.bucket == POSTPONE_BUCKET:
            yield from self._replaced_records(split)
            return
        if split.mode is SplitMode.MERGE and self._is_clustered(split.files):
            yield from (self._stored if self._keep_deletes else self._added)(self._now(split))
            return
        if split.mode is SplitMode.MERGE and self._is_merged_already(split.files):
            yield from self._added(self._now(split))
            return
        for batch in self._merge.merged(self._before(split), keep_deletes=False):
            yield Records(batch, pa.repeat(pa.scalar(row_kinds.DELETE, pa.int8()), batch.num_rows))
        in_order = split.mode is SplitMode.CHAIN
        keep_deletes = self._keep_deletes and split.mode in (SplitMode.MERGE, SplitMode.CHAIN)
        for batch in self._merge.merged(self._now(split), keep_deletes=keep_deletes, in_order=in_order):
            yield Records(batch, batch.column(VALUE_KIND))

    def _added(self, files: SplitFiles) -> Iterator[Records]:
        """Rows of files that need no merging, all +I as in Java's "raw" files, without the deletes in them."""
        # The count of deletes in a manifest is not reliable: pypaimon 2.1.0 records none, and a compaction
        # that moves such a file to a higher level keeps the count.
        for records in self._stored(files):
            yield Records(records.keep(adding(records.kinds)).batch)

    def _is_clustered(self, files: Sequence[DataFileMeta]) -> bool:
        """Whether files are sorted by other columns than the key, so that they cannot be merged."""
        # They need no merge: such tables have deletion vectors, which leave each key once above level 0.
        return self._traits.clustered and all(file.level for file in files)

    def _is_merged_already(self, files: Sequence[DataFileMeta]) -> bool:
        if self._keep_deletes or any(file.delete_row_count != 0 for file in files):
            return False
        if len(files) == 1:
            return True
        # Above level 0, deletion vectors and `first-row` leave each key once on all levels together,
        # otherwise it is once on each level.
        once = self._traits.deletion_vectors or self._traits.merge_engine.keeps_oldest
        return all(file.level for file in files) and (once or len({file.level for file in files}) == 1)

    def _net(self, split: StreamSplit) -> Iterator[Records]:
        # Filter both sides before they are compared, so that a row that no longer matches comes out as -D.
        before = self._merge.merged(self._before(split), keep_deletes=False)
        after = self._merge.merged(self._now(split), keep_deletes=False)
        names = [field.name for field in self._layout.fields]
        for batch in net_changes(self._filter.matching(before), self._filter.matching(after), self._merge.keys, names):
            yield Records(batch, batch.column(VALUE_KIND))

    def _removed_and_added(self, split: StreamSplit) -> Iterator[Records]:
        before, after = self._before(split), self._now(split)
        vectors_of = [{file.file_name: each for file, each in side.files} for side in (before, after)]
        fields, columns = self._layout.fields, self._layout.system_columns
        # In the order of the plan: files of the earlier state alone, those of both, those of the later state.
        for file in {each.file_name: each for each in (*before.metas, *after.metas)}.values():
            vectors = [self._files.vector(side.get(file.file_name), file.row_count) for side in vectors_of]
            position = 0
            for batch in self._files.read(file, None, fields, columns, after.constants):
                was, is_now = (
                    _rows_there(file.file_name in side, vector, position, batch.num_rows)
                    for side, vector in zip(vectors_of, vectors, strict=True)
                )
                position += batch.num_rows
                for mask, kind in ((pc.and_not(was, is_now), row_kinds.DELETE), (pc.and_not(is_now, was), None)):
                    rows = batch.filter(mask)
                    yield Records(rows, None if kind is None else pa.repeat(pa.scalar(kind, pa.int8()), rows.num_rows))

    def _diff(self, split: StreamSplit) -> Iterator[Records]:
        before = self._merge.merged(self._before(split), keep_deletes=True)
        after = self._merge.merged(self._now(split), keep_deletes=True)
        # Filter the difference, not the states that are compared, as if the output were filtered.
        for batch in differing_rows(before, after, self._merge.keys):
            records = Records(batch, batch.column(VALUE_KIND))
            yield records if self._with_deletes else records.keep(adding(records.kinds))

    def _evolution(self, split: StreamSplit) -> Iterator[Records]:
        files = self._now(split)
        deletions = {file.file_name: each for file, each in files.files}
        for group in row_id_groups(files.metas):
            if not self._index_filter.group_may_match(group):
                continue
            vectors = [self._files.vector(deletions[file.file_name], file.row_count) for file in group.files]
            position = 0
            rows = joined_rows(
                group,
                self._layout,
                self._directory,
                lambda file, fields: self._files.read(file, None, fields, (), {}),
                constants=files.constants,
                batch_size=self._batch_size,
            )
            for batch in rows:
                masks = [each.keep_mask(position, batch.num_rows) for each in vectors if each is not None]
                position += batch.num_rows
                yield Records(batch.filter(reduce(pc.and_, masks)) if masks else batch)


def _are_begun_ahead(files: Sequence[DataFileMeta]) -> bool:
    are_large = sum(file.row_count for file in files) > len(files) * _FEW_ROWS
    # Files of a remote store are prefetched anyway.
    return len(files) > 1 and are_large and all(is_local(str(file.file_path)) for file in files)


def _rows_there(file_is_there: bool, vector: DeletionVector | None, position: int, count: int) -> pa.Array:
    if file_is_there and vector is not None:
        return vector.keep_mask(position, count)
    return pa.repeat(pa.scalar(file_is_there), count)


class FileIndexFilter:
    """Rules out files by their indexes. Only for files that are read one by one, record by record.

    If versions of a key are merged, a file without a matching row must be read, because it may hold the newest version.
    """

    def __init__(self, directory: TableDirectory, layout: ReadLayout, unmatched: Unmatched) -> None:
        self._directory = directory
        self._layout = layout
        self._drops = unmatched is Unmatched.DROP
        self._enabled = option_keys.FILE_INDEX_READ_ENABLED.of(layout.schema.options)

    def may_match(self, file: DataFileMeta, *, upserts: bool) -> bool:
        if not self._enabled or (file.embedded_index is None and not file.extra_files):
            return True
        indexes = self._on_keys if upserts and not self._drops else self._on_all
        return indexes is None or indexes.may_match(file)

    def group_may_match(self, group: RowIdGroup) -> bool:
        """Whether a row of files that are joined by row id can come out."""
        if len(group.files) == 1:
            return self.may_match(group.files[0], upserts=False)
        indexed = any(file.embedded_index is not None or file.extra_files for file in group.files)
        return not (self._enabled and indexed) or self._on_all is None or self._on_all.group_may_match(group)

    @cached_property
    def _on_keys(self) -> FileIndexes | None:
        return self._indexes(self._layout.on_keys)

    @cached_property
    def _on_all(self) -> FileIndexes | None:
        return self._indexes(self._layout.predicate)

    def _indexes(self, predicate: Predicate | None) -> FileIndexes | None:
        if predicate is None:
            return None
        # Imported here because pyroaring is slow to import and few tables have indexes.
        from pypaimon.streaming.files.index_files import FileIndexes

        return FileIndexes(self._directory, self._layout.schema, predicate)
