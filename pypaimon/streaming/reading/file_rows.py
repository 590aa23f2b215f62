"""`FileRows`: the rows of data files that are not deleted, and how files are started early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.blob_files import BlobColumn
from pypaimon.streaming.files.data_files import constant, read_file, row_ids
from pypaimon.streaming.files.deletion_vectors import DeletionVector, PlanVectors
from pypaimon.streaming.files.row_id_groups import (
    ColumnPart,
    ReadFields,
    RowIdGroup,
    files_of_vectors,
    join,
    owners,
    vector_columns,
)
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.merge import (
    MERGED_ROWS,
    MergeEngine,
    UnsortedRunError,
    in_key_order,
    merge_batches,
    merge_engine,
    parts_of_run,
    rows_of_batch,
    sorted_runs,
)
from pypaimon.streaming.merge.stages import Begin
from pypaimon.streaming.model.system_columns import LEVEL, ROW_ID, SEQUENCE_NUMBER, VALUE_KIND, WRITTEN_NUMBER
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import OptionKey
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta, DeletionFile, TableSchema
from pypaimon.streaming.reading.read_layout import ReadLayout
from pypaimon.streaming.reading.split_files import SplitFiles

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_LOG = StreamLog(__name__)


class FileRows:
    """Reads data files of a table, and skips damaged or missing ones if its options allow that."""

    def __init__(self, directory: TableDirectory, layout: ReadLayout, batch_size: int, vectors: PlanVectors) -> None:
        self._directory = directory
        self._schema_id = layout.schema.id
        self._batch_size = batch_size
        self._vectors = vectors
        self._by_snapshot = layout.traits.primary_key and layout.traits.snapshot_ordering
        options = layout.schema.options
        self._ignore_lost = option_keys.SCAN_IGNORE_LOST_FILES.of(options)
        self._ignore_corrupt = option_keys.SCAN_IGNORE_CORRUPT_FILES.of(options)

    def read(
        self,
        file: DataFileMeta,
        deletions: DeletionFile | None,
        fields: Sequence[DataField],
        system_columns: Sequence[str],
        constants: Mapping[str, pa.Scalar],
        batch_size: int | None = None,
        directory: TableDirectory | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted; `directory` is the one of its branch."""
        by_snapshot = self._by_snapshot and SEQUENCE_NUMBER in system_columns
        # The options do not allow to skip a missing or damaged schema, so load it outside of the `try`.
        (directory or self._directory).schema(file.schema_id)
        try:
            vector = self.vector(deletions, file.row_count)
            position = 0
            for batch in read_file(
                directory or self._directory,
                file,
                fields,
                schema_id=self._schema_id,
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
            _skipped("a data file", file, option_keys.SCAN_IGNORE_LOST_FILES, error)
        except CorruptTableError as error:
            if not self._ignore_corrupt:
                raise
            _skipped("the rest of a data file", file, option_keys.SCAN_IGNORE_CORRUPT_FILES, error)

    def directory_of(self, files: SplitFiles, file: DataFileMeta) -> TableDirectory:
        branch = files.branch(file)
        return self._directory if branch is None else self._directory.of_branch(branch)

    def vector(self, deletions: DeletionFile | None, row_count: int) -> DeletionVector | None:
        return None if deletions is None else self._vectors.read(deletions, row_count)

    def load(self, files: SplitFiles) -> None:
        """Load the schemas and deletion vectors of files, before several threads need them."""
        for file in {(files.branch(file), file.schema_id): file for file in files.metas}.values():
            self.directory_of(files, file).schema(file.schema_id)
        self._vectors.load(deletions for _, deletions in files.files)


def _skipped(what: str, file: DataFileMeta, option: OptionKey[bool, bool], error: Exception) -> None:
    text = f"skipping {what} because of %(option)s: %(error)s"
    _LOG.warning("file_skipped", text, file=file.file_name, option=option.name, error=str(error))


_APPENDED, _COMPACTED = 0, 1


def numbered_by_snapshot(file: DataFileMeta, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records with the number of their snapshot as `_SEQUENCE_NUMBER`, for `sequence.snapshot-ordering`.

    A commit records its snapshot as the smallest sequence number of the files that it adds, which replaces the numbers
    in them. A compaction writes the snapshots of its records into the file itself. Java's rules:
    docs/java-semantics.md#merge-engines.

    Java leaves open which of two records of one snapshot is the newer one. Here the numbers that they were written
    with (`_WRITTEN_NUMBER`) decide, so that a filter cannot change the result.
    """
    check_source(file)
    batch = batch.append_column(WRITTEN_NUMBER, batch.column(SEQUENCE_NUMBER))
    if file.file_source == _COMPACTED:
        return batch
    place = batch.schema.get_field_index(SEQUENCE_NUMBER)
    return batch.set_column(place, batch.schema.field(place), constant(file.min_sequence_number, batch.num_rows))


def check_source(file: DataFileMeta) -> None:
    """Check that `numbered_by_snapshot` can number the records of a file. Raises UnsupportedTableError otherwise."""
    if file.file_source not in (_APPENDED, _COMPACTED):
        raise UnsupportedTableError(
            f"{file.file_name} does not record whether it was appended or compacted, so "
            "'sequence.snapshot-ordering' cannot order its records: it is older than the option. Java does not "
            "read such a table either."
        )


def begun(pool: IOPool, runs: Iterable[Iterable[pa.RecordBatch]]) -> list[Iterable[pa.RecordBatch]]:
    """Start runs of files early: the first batch of each is read now, on the threads of a pool.

    A merge of files in a remote store so gives its first rows after few round trips. A run is read by one thread at a
    time. An error is raised in place of the batch.
    """
    iterators = [iter(run) for run in runs]
    return [_from_first(pool, pool.submit(next, run, None), run) for run in iterators]


def one_ahead(pool: IOPool, runs: Iterable[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """All batches of runs in order, while the first batch of the next run is read on a thread.

    An error is raised in place of the batch.
    """
    run: Iterable[pa.RecordBatch] = ()
    for following in runs:
        (begun_run,) = begun(pool, [following])
        yield from run
        run = begun_run
    yield from run


def _from_first(
    pool: IOPool, future: Future[pa.RecordBatch | None], rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    first = pool.result(future)
    if first is not None:
        yield first
        yield from rest


def joined_rows(
    group: RowIdGroup,
    layout: ReadLayout,
    directory: TableDirectory,
    read: ReadFields,
    *,
    constants: Mapping[str, pa.Scalar],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """All rows of a group, in the order of their ids. Raises CorruptTableError if a file has fewer or more rows than
    the group.
    """
    storage = BlobStorage.of(layout.schema)
    others: dict[str, ColumnPart] = {
        field.name: BlobColumn(field, group.first_row_id, group.row_count, group.blob_files, directory)
        for field in blob_fields(layout)
    }
    fields = [storage.as_read(field) for field in layout.fields]
    stored = [field for field in fields if field.name not in others and field.name not in constants]
    others |= vector_columns(group, stored, directory.schema, read)
    position, newest = group.first_row_id, group.newest
    for batch in join(group, fields, directory.schema, read, constants, batch_size, others):
        for name in layout.system_columns:
            column = row_ids(position, batch.num_rows) if name == ROW_ID else constant(newest, batch.num_rows)
            batch = batch.append_column(name, column)
        position += batch.num_rows
        yield batch


def blob_fields(layout: ReadLayout) -> list[DataField]:
    storage = BlobStorage.of(layout.schema)
    return [field for field in layout.fields if storage.in_blob_files(field)]


def files_joined(group: RowIdGroup, layout: ReadLayout, schema_of: Callable[[int], TableSchema]) -> list[DataFileMeta]:
    """The data files and vector files that `joined_rows` reads of a group, in the order in which it opens them."""
    apart = {*layout.schema.partition_keys, *(field.name for field in blob_fields(layout))}
    stored = [field for field in layout.fields if field.name not in apart]
    of_vectors = {field.name: files for field in stored if (files := files_of_vectors(field, group, schema_of))}
    joined = owners(group, [field for field in stored if field.name not in of_vectors], schema_of)
    return [*(file for file, _ in joined), *(file for files in of_vectors.values() for file in files)]


class BucketMerge:
    """Merges files of buckets, in one layout."""

    def __init__(self, layout: ReadLayout, rows: FileRows, batch_size: int, openers: IOPool) -> None:
        self._layout = layout
        self._rows = rows
        self._clustered = layout.traits.clustered
        self._batch_size = min(batch_size, MERGED_ROWS)
        self._openers = openers

    @property
    def keys(self) -> Sequence[str]:
        return self._merge_engine.keys

    @cached_property
    def _merge_engine(self) -> MergeEngine:
        return merge_engine(self._layout.schema)

    def merged(self, files: SplitFiles, *, keep_deletes: bool, in_order: bool = False) -> Iterator[pa.RecordBatch]:
        """The current rows of the files of a bucket, with their kinds in `_VALUE_KIND`, in key order.

        `in_order`: The files are of several partitions, older ones first. The order decides between records of a key
        that are otherwise equally new.
        """
        if not files.files:
            return
        numbered = SEQUENCE_NUMBER in self._layout.system_columns
        if len(self._layout.system_columns) > numbered:
            raise UnsupportedTableError("Rows that are merged on read have no row ids.")
        engine = self._merge_engine
        needed = engine.needs(field.name for field in self._layout.fields)
        by_name = {field.name: field for field in self._layout.schema.fields}
        fields = [*self._layout.fields, *(by_name[name] for name in needed)]
        columns = (SEQUENCE_NUMBER, VALUE_KIND)
        deletion_of = {file.file_name: each for file, each in files.files}

        if self._clustered:
            # Files that are clustered by other columns are sorted by key here, so each is a run of its own.
            runs = [[file] for file in files.metas]
        else:
            partitions = files.by_directory() if in_order else [files.metas]
            runs = [run for each in partitions for run in sorted_runs(each)]
        length = rows_of_batch(len(runs), self._batch_size)

        def run(members: Sequence[DataFileMeta]) -> Iterator[pa.RecordBatch]:
            for file in members:
                deletions = deletion_of[file.file_name]
                directory = self._rows.directory_of(files, file)
                batches = self._rows.read(file, deletions, fields, columns, files.constants, length, directory)
                for batch in batches:
                    if self._layout.on_keys is not None:
                        batch = batch.filter(filters.mask(self._layout.on_keys, batch))
                    if engine.wants_levels:
                        level = pa.repeat(pa.scalar(file.level, pa.int32()), batch.num_rows)
                        batch = batch.append_column(LEVEL, level)
                    yield from parts_of_run(batch, len(runs))

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
        if all(is_local(str(file.file_path)) for file in files.metas):
            return list
        self._rows.load(files)
        return partial(begun, self._openers)
