"""`FileRows`: the rows of data files that are not deleted, and how files are started early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.data_files import constant, read_file
from pypaimon.streaming.files.deletion_vectors import DeletionVector, PlanVectors
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, WRITTEN_NUMBER
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import OptionKey
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta, DeletionFile
from pypaimon.streaming.reading.read_layout import ReadLayout
from pypaimon.streaming.reading.split_files import SplitFiles

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_LOG = StreamLog(__name__)


class FileRows:
    """Reads data files of a table, and skips damaged or missing ones if its options allow that.

    Args:
        layout: The schema to read, with the options of the table.
        batch_size: Rows per batch, at most.
        vectors: The deletion vectors of all files that are read.
    """

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
        """The directory of the branch of a file."""
        branch = files.branch(file)
        return self._directory if branch is None else self._directory.of_branch(branch)

    def vector(self, deletions: DeletionFile | None, row_count: int) -> DeletionVector | None:
        """The deleted rows of a file, or None."""
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

    Raises:
        UnsupportedTableError: The file does not record whether it was appended or compacted.
    """
    if file.file_source not in (_APPENDED, _COMPACTED):
        raise UnsupportedTableError(
            f"{file.file_name} does not record whether it was appended or compacted, so "
            "'sequence.snapshot-ordering' cannot order its records: it is older than the option. Java does not "
            "read such a table either."
        )
    batch = batch.append_column(WRITTEN_NUMBER, batch.column(SEQUENCE_NUMBER))
    if file.file_source == _COMPACTED:
        return batch
    place = batch.schema.get_field_index(SEQUENCE_NUMBER)
    return batch.set_column(place, batch.schema.field(place), constant(file.min_sequence_number, batch.num_rows))


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
