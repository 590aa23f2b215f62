"""One split as record batches: which records of its files come out, and with which row kind.

Java's rules: docs/java-semantics.md#changelog-producers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.files.deletion_vectors import DeletionVector
from pypaimon.streaming.files.index_blocks import PlanVectors
from pypaimon.streaming.files.row_id_groups import row_id_groups
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.internals import DataField, DataFileMeta, DeletionFile
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.merge import (
    MOST_RUNS,
    MergeEngine,
    UnsortedRunError,
    differing_rows,
    in_key_order,
    merge_batches,
    merge_engine,
    net_changes,
    sorted_runs,
)
from pypaimon.streaming.merge.stages import Begin
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.blob_types import holds_blobs
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.system_columns import LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.reading.joined_rows import joined_rows
from pypaimon.streaming.reading.read_layout import Layout
from pypaimon.streaming.reading.run_starts import begun
from pypaimon.streaming.reading.snapshot_ordering import numbered_by_snapshot
from pypaimon.streaming.reading.split_files import SplitFiles
from pypaimon.streaming.reading.wanted_files import WantedFiles

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_LOG = StreamLog(__name__)

_LARGE_RUNS = 4
"""Runs of a merge whose batches together are as large as those of so many files read alone."""


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


Filter = Callable[[Records], Records]


class SplitReader:
    """Reads splits in one layout.

    Args:
        directory: The table.
        layout: What to read and give out.
        unmatched: What becomes of records of an upsert stream that do not match the filter.
        keep_deletes: Whether first plans show stored deletes (audit log).
        tell_deletes: Whether a difference of states shows what is gone: rows have a column that says so.
        batch_size: Rows per batch read, at most.
        openers: Threads that files of a merge are opened on, at the same time.
        vectors: The deletion vectors of all splits that are read.
    """

    def __init__(
        self,
        directory: TableDirectory,
        layout: Layout,
        *,
        unmatched: Unmatched,
        keep_deletes: bool,
        tell_deletes: bool,
        batch_size: int,
        openers: IOPool,
        vectors: PlanVectors,
    ) -> None:
        self._directory = directory
        self._layout = layout
        self._unmatched = unmatched
        self._keep_deletes = keep_deletes
        self._tell_deletes = tell_deletes
        self._batch_size = batch_size
        self._openers = openers
        self._vectors = vectors
        self._wanted = WantedFiles(directory, layout, unmatched)
        self._traits = layout.traits
        options = OptionValues(layout.schema.options)
        self._ignore_lost = options.boolean("scan.ignore-lost-files", False)
        self._ignore_corrupt = options.boolean("scan.ignore-corrupt-files", False)
        self._clustered = options.boolean("pk-clustering-override", False)

    def read(self, split: StreamSplit) -> Iterator[Records]:
        """The records of a split, in order, filtered.

        Raises:
            FileNotFoundError: A data file is missing.
            CorruptTableError: A data file is damaged.
            SchemaChangedError: A value does not fit the type that is read.
        """
        return _filtered(self._records(split), self._filter_of(split))

    def _records(self, split: StreamSplit) -> Iterator[Records]:
        if split.mode is SplitMode.ROWS:
            return self._rows(split)
        if split.mode in (SplitMode.RECORDS, SplitMode.CHANGELOG):
            return self._stored(self._files(split), upserts=self.is_upserts(split))
        if split.mode is SplitMode.EVOLUTION:
            return self._evolution(split)
        if split.mode is SplitMode.NET:
            return self._net(split) if self._traits.primary_key else self._gone_and_came(split)
        if split.mode is SplitMode.DIFF:
            return self._diff(split)
        return self._merges(split)

    def is_upserts(self, split: StreamSplit) -> bool:
        """Whether records replace what was there before, without a record of their own that takes it away."""
        incomplete = split.mode is SplitMode.CHANGELOG and not self._traits.producer.complete
        return incomplete or split.mode in (SplitMode.RECORDS, SplitMode.OVERWRITE)

    def _filter_of(self, split: StreamSplit) -> Filter:
        return self._upserts if self.is_upserts(split) else self._exact

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
        if self._unmatched is Unmatched.DROP:
            return records.keep(matches)
        kinds = records.kinds
        if kinds is None:
            kinds = pa.repeat(pa.scalar(row_kinds.INSERT, pa.int8()), records.batch.num_rows)
        kinds = pc.if_else(matches, kinds, pa.scalar(row_kinds.DELETE, pa.int8()))
        return Records(self._without_blobs(records.batch, pc.invert(matches)), kinds)

    def _without_blobs(self, batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
        """The same with null for the blobs of some rows, as deletes that are stored have them."""
        for field in self._layout.fields:
            if holds_blobs(field.type):
                index = batch.schema.get_field_index(field.name)
                column = batch.column(index)
                cleared = pc.if_else(rows, pa.scalar(None, column.type), column)
                batch = batch.set_column(index, batch.schema.field(index), cleared)
        return batch

    def _files(self, split: StreamSplit) -> SplitFiles:
        return SplitFiles.of(split, self._layout.schema)

    def _files_before(self, split: StreamSplit) -> SplitFiles:
        return SplitFiles.before(split, self._layout.schema)

    def _rows(self, split: StreamSplit) -> Iterator[Records]:
        columns, files = self._layout.system_columns, self._files(split)
        for file, deletions in self._wanted.of(files, upserts=False):
            for batch in self._file(file, deletions, self._layout.fields, columns, files.constants):
                yield Records(batch)

    def _stored(self, files: SplitFiles, *, upserts: bool = False) -> Iterator[Records]:
        columns = (*self._layout.system_columns, VALUE_KIND)
        for file, deletions in self._wanted.of(files, upserts=upserts):
            directory = self._directory_of(files, file)
            for batch in self._file(
                file, deletions, self._layout.fields, columns, files.constants, directory=directory
            ):
                yield Records(batch, batch.column(VALUE_KIND))

    def _replaced_records(self, split: StreamSplit) -> Iterator[Records]:
        """Records that were pending are taken back one by one, for they are neither sorted nor merged."""
        for records in self._stored(self._files_before(split), upserts=True):
            added = records.keep(_adding(records.kinds))
            yield Records(added.batch, pa.repeat(pa.scalar(row_kinds.DELETE, pa.int8()), added.batch.num_rows))
        yield from self._stored(self._files(split), upserts=True)

    def _merges(self, split: StreamSplit) -> Iterator[Records]:
        if split.mode is SplitMode.OVERWRITE and split.bucket == POSTPONE_BUCKET:
            yield from self._replaced_records(split)
            return
        if split.mode is SplitMode.MERGE and self._is_clustered(split.files):
            yield from (self._stored if self._keep_deletes else self._added)(self._files(split))
            return
        if split.mode is SplitMode.MERGE and self._is_merged_already(split.files):
            yield from self._added(self._files(split))
            return
        for batch in self._merged(self._files_before(split), keep_deletes=False):
            yield Records(batch, pa.repeat(pa.scalar(row_kinds.DELETE, pa.int8()), batch.num_rows))
        in_order = split.mode is SplitMode.CHAIN
        keep_deletes = self._keep_deletes and split.mode in (SplitMode.MERGE, SplitMode.CHAIN)
        for batch in self._merged(self._files(split), keep_deletes=keep_deletes, in_order=in_order):
            yield Records(batch, batch.column(VALUE_KIND))

    def _added(self, files: SplitFiles) -> Iterator[Records]:
        """Rows of files that need no merging, all +I as where Java reads "raw" files; deletes in them are no rows.

        What a manifest says of deletes does not tell: pypaimon 2.1.0 counts none, and a compaction that moves such a
        file to a higher level keeps what was said.
        """
        for records in self._stored(files):
            yield Records(records.keep(_adding(records.kinds)).batch)

    def _is_clustered(self, files: Sequence[DataFileMeta]) -> bool:
        """Whether files are sorted by other columns than the key, so that they cannot be merged.

        Nor need they be: deletion vectors, which such tables have, leave each key once above level 0.
        """
        return self._clustered and all(file.level for file in files)

    def _is_merged_already(self, files: Sequence[DataFileMeta]) -> bool:
        """Whether files hold each key once and, as far as is known, no deletes."""
        if self._keep_deletes or any(file.delete_row_count != 0 for file in files):
            return False
        if len(files) == 1:
            return True
        once = self._traits.deletion_vectors or self._traits.merge_engine.keeps_oldest
        return all(file.level for file in files) and (once or len({file.level for file in files}) == 1)

    def _net(self, split: StreamSplit) -> Iterator[Records]:
        # Both sides are filtered before they are compared: a row that ceased to match comes out as -D.
        before = self._merged(self._files_before(split), keep_deletes=False)
        after = self._merged(self._files(split), keep_deletes=False)
        names = [field.name for field in self._layout.fields]
        for batch in net_changes(self._matching(before), self._matching(after), self._merge_engine.keys, names):
            yield Records(batch, batch.column(VALUE_KIND))

    def _gone_and_came(self, split: StreamSplit) -> Iterator[Records]:
        """Rows of files without keys: those of the earlier state that are gone as -D, those that came as +I."""
        before, after = self._files_before(split), self._files(split)
        vectors_of = [{file.file_name: each for file, each in side.files} for side in (before, after)]
        fields, columns = self._layout.fields, self._layout.system_columns
        # Those of the earlier state alone first, then those of both, as they were planned.
        for file in {each.file_name: each for each in (*before.metas, *after.metas)}.values():
            vectors = [self._vector(side.get(file.file_name), file.row_count) for side in vectors_of]
            position = 0
            for batch in self._file(file, None, fields, columns, after.constants):
                was, is_now = (
                    _rows_there(file.file_name in side, vector, position, batch.num_rows)
                    for side, vector in zip(vectors_of, vectors, strict=True)
                )
                position += batch.num_rows
                for mask, kind in ((pc.and_not(was, is_now), row_kinds.DELETE), (pc.and_not(is_now, was), None)):
                    rows = batch.filter(mask)
                    yield Records(rows, None if kind is None else pa.repeat(pa.scalar(kind, pa.int8()), rows.num_rows))

    def _diff(self, split: StreamSplit) -> Iterator[Records]:
        before = self._merged(self._files_before(split), keep_deletes=True)
        after = self._merged(self._files(split), keep_deletes=True)
        # What differs is filtered, not what is compared: as if somebody else filtered the rows that come out.
        for batch in differing_rows(before, after, self._merge_engine.keys):
            records = Records(batch, batch.column(VALUE_KIND))
            yield records if self._tell_deletes else records.keep(_adding(records.kinds))

    def _matching(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in _filtered((Records(batch) for batch in batches), self._exact):
            yield records.batch

    def _evolution(self, split: StreamSplit) -> Iterator[Records]:
        files = self._files(split)
        deletions = {file.file_name: each for file, each in files.files}
        for group in row_id_groups(files.metas):
            if not self._wanted.wants_group(group):
                continue
            vectors = [self._vector(deletions[file.file_name], file.row_count) for file in group.files]
            position = 0
            rows = joined_rows(
                group,
                self._layout,
                self._directory,
                lambda file, fields: self._file(file, None, fields, (), {}),
                constants=files.constants,
                batch_size=self._batch_size,
            )
            for batch in rows:
                masks = [each.keep_mask(position, batch.num_rows) for each in vectors if each is not None]
                position += batch.num_rows
                yield Records(batch.filter(reduce(pc.and_, masks)) if masks else batch)

    @cached_property
    def _merge_engine(self) -> MergeEngine:
        return merge_engine(self._layout.schema)

    def _merged(self, files: SplitFiles, *, keep_deletes: bool, in_order: bool = False) -> Iterator[pa.RecordBatch]:
        """The current rows of the files of a bucket, with their kinds in `_VALUE_KIND`, in key order.

        Args:
            files: The files.
            keep_deletes: Whether deletes come out too.
            in_order: They are those of several partitions, older ones first, which decides between records of a key
                that are equally new otherwise.
        """
        if not files.files:
            return
        numbered = SEQUENCE_NUMBER in self._layout.system_columns
        if len(self._layout.system_columns) > numbered:
            raise UnsupportedTableError("Rows that are merged on read have no row ids to show.")
        engine = self._merge_engine
        needed = engine.needs(field.name for field in self._layout.fields)
        by_name = {field.name: field for field in self._layout.schema.fields}
        fields = [*self._layout.fields, *(by_name[name] for name in needed)]
        columns = (SEQUENCE_NUMBER, VALUE_KIND)
        deletion_of = {file.file_name: each for file, each in files.files}

        # Files that are clustered by other columns are sorted by the key here.
        partitions = files.by_directory() if in_order else [files.metas]
        runs = [run for each in partitions for run in sorted_runs(each)]
        if self._clustered:
            runs = [[file] for file in files.metas]
        # The more runs there are, the less each may hold in memory.
        rows = max(1, self._batch_size * min(_LARGE_RUNS, len(runs)) // min(MOST_RUNS, len(runs)))

        def run(members: Sequence[DataFileMeta]) -> Iterator[pa.RecordBatch]:
            for file in members:
                deletions = deletion_of[file.file_name]
                directory = self._directory_of(files, file)
                batches = self._file(file, deletions, fields, columns, files.constants, rows, directory)
                for batch in batches:
                    if self._layout.on_keys is not None:
                        batch = batch.filter(filters.mask(self._layout.on_keys, batch))
                    if engine.wants_levels:
                        level = pa.repeat(pa.scalar(file.level, pa.int32()), batch.num_rows)
                        batch = batch.append_column(LEVEL, level)
                    yield batch

        merging, begin = [run(members) for members in runs], self._begin(files)
        if self._clustered:
            with in_key_order(merging, engine.keys, begin) as ordered:
                yield from merge_batches(ordered, engine, keep_deletes=keep_deletes, keep_sequence=numbered)
            return
        try:
            yield from merge_batches(merging, engine, keep_deletes=keep_deletes, keep_sequence=numbered, begin=begin)
        except UnsortedRunError as error:
            path = runs[error.run][0].file_path
            raise CorruptTableError(path, "its records are not in the order of their keys") from error

    def _begin(self, files: SplitFiles) -> Begin:
        """How runs of these files are begun: those of a store at the same time."""
        if all(is_local(str(file.file_path)) for file in files.metas):
            return list
        for branch, schema_id in {(files.branch(file), file.schema_id) for file in files.metas}:
            # Else each of them asked for it.
            (self._directory if branch is None else self._directory.of_branch(branch)).schema(schema_id)
        self._vectors.load(deletions for _, deletions in files.files)
        return partial(begun, self._openers)

    def _directory_of(self, files: SplitFiles, file: DataFileMeta) -> TableDirectory:
        branch = files.branch(file)
        return self._directory if branch is None else self._directory.of_branch(branch)

    def _vector(self, deletions: DeletionFile | None, row_count: int) -> DeletionVector | None:
        return None if deletions is None else self._vectors.read(deletions, row_count)

    def _file(
        self,
        file: DataFileMeta,
        deletions: DeletionFile | None,
        fields: Sequence[DataField],
        system_columns: Sequence[str],
        constants: Mapping[str, pa.Scalar],
        batch_size: int | None = None,
        directory: TableDirectory | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted; `directory` is that of its branch."""
        by_snapshot = self._traits.primary_key and self._traits.snapshot_ordering and SEQUENCE_NUMBER in system_columns
        try:
            vector = self._vector(deletions, file.row_count)
            position = 0
            for batch in read_file(
                directory or self._directory,
                file,
                fields,
                schema_id=self._layout.schema.id,
                system_columns=system_columns,
                batch_size=batch_size or self._batch_size,
                constants=constants,
            ):
                kept = batch if vector is None else batch.filter(vector.keep_mask(position, batch.num_rows))
                yield numbered_by_snapshot(file, kept) if by_snapshot else kept
                position += batch.num_rows
        except FileNotFoundError as error:
            if not self._ignore_lost:
                raise
            _skipped("a data file", file, "scan.ignore-lost-files", error)
        except CorruptTableError as error:
            if not self._ignore_corrupt:
                raise
            _skipped("what is left of a data file", file, "scan.ignore-corrupt-files", error)


def _rows_there(file_is_there: bool, vector: DeletionVector | None, position: int, count: int) -> pa.Array:
    """Which rows of a file, from a position on, are rows of a state."""
    if file_is_there and vector is not None:
        return vector.keep_mask(position, count)
    return pa.repeat(pa.scalar(file_is_there), count)


def _adding(kinds: pa.Array) -> pa.Array:
    """Which records add a row, or set it."""
    return pc.is_in(kinds, value_set=pa.array([row_kinds.INSERT, row_kinds.UPDATE_AFTER], pa.int8()))


def _skipped(what: str, file: DataFileMeta, option: str, error: Exception) -> None:
    text = f"skipping {what}, as %(option)s asks: %(error)s"
    _LOG.warning("file_skipped", text, file=file.file_name, option=option, error=str(error))


def _filtered(records: Iterable[Records], keep: Filter) -> Iterator[Records]:
    for each in records:
        kept = keep(each)
        if kept.batch.num_rows:
            yield kept
