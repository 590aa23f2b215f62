"""`materialize_deletion_vectors`: writes the rows of data evolution again without those that were deleted.

As Java's procedure of this name does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from pypaimon.streaming.compaction.blob_rewrite import blob_of, fetched_together, marked
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.compaction_run import Progress
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.evolution import NEVER_FULL
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.reports import CompactionReport
from pypaimon.streaming.compaction.row_ranges import packs_of_weight
from pypaimon.streaming.compaction.tasks import CompactionTask, TaskPicker, Threads, bad_rows_as_damage
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.blob_files import references_of, row_range
from pypaimon.streaming.files.row_id_groups import RowIdGroup, data_file_fields, row_id_groups
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.reading.blob import BlobFetcher
from pypaimon.streaming.writing.files.bucket_writers import AppendBucket
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions


def materialize_deletion_vectors(
    table: WritableTable,
    *,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    threads: int = 1,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> CompactionReport:
    """Drop the deleted rows from the files of a table with data evolution. Blocks.

    Compactions of such a table keep deleted rows in its files, because they keep row ids. This gives the rows of the
    files with deleted rows, and of no others, new row ids and sequence numbers in a COMPACT snapshot, of which streams
    receive nothing. It drops the global indexes of their partitions, which refer to row ids: build them again. Updates
    of columns that were prepared before are refused.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        threads: Number of files that are written at the same time.
        dry_run: Write nothing. The report says which files would be replaced.
        on_progress: As `compact` takes it.

    Returns:
        What was replaced. Partitions whose rows others have updated or deleted meanwhile are conflicts, and stay as
        they were.

    Raises:
        UnsupportedTableError: The table has no data evolution or no deletion vectors, it has files of vectors, or it
            cannot be compacted exactly; nothing was written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        CorruptTableError: A file is damaged or missing. Earlier commits stay; nothing else was committed.
        CommitFailedError: A commit failed (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("materialize_deletion_vectors: table", table))
    chosen = ChosenPartitions(given, partition, where, partition_idle_time)
    compaction = Compaction(given, chosen, workers=Threads(threads), new_picker=MaterializationTaskPicker)
    return compaction.run(dry_run=dry_run, on_progress=on_progress)


class MaterializationTaskPicker(TaskPicker):
    """Writes the rows of files with deleted rows again: those of adjacent row ids to one file, as Java picks them."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        evolution, vectors = option_keys.DATA_EVOLUTION_ENABLED, option_keys.DELETION_VECTORS_ENABLED
        for key in (evolution, vectors):
            if not key.of(table.options):
                raise UnsupportedTableError(
                    f"{table.name} does not have '{key}' = 'true'. Deletion vectors are materialized in tables with "
                    "data evolution; compact(table, full=True) drops the deleted rows of others."
                )
        storage = BlobStorage.of(table.schema)
        self._table = table
        self._reader = reader
        self._options = CompactionOptions.of(table)
        self._blobs = [field for field in table.fields if storage.in_blob_files(field)]
        self._fields = [storage.as_read(field) for field in table.fields]
        inside = {field.name for field in (*data_file_fields(table.schema), *self._blobs)}
        self._apart = [field.name for field in table.fields if field.name not in inside]

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            by_name = {file.name: file for file in bucket.files}
            groups = row_id_groups([file.read for file in bucket.files])
            due = [group for group in groups if any(by_name[file.file_name].deletions for file in group.files)]
            for group in due:
                self._check(group)
            weigh = partial(self._weight, by_name)
            for pack in packs_of_weight(due, self._options.target_bytes, weigh):
                files = {str(file.file_name): file for group in pack for file in (*group.files, *group.blob_files)}
                yield CompactionTask(bucket, [by_name[name] for name in files])

    def _check(self, group: RowIdGroup) -> None:
        if self._apart or group.vector_files:
            raise UnsupportedTableError(
                f"{self._table.name} has vectors in files of their own, next to {group.files[0].file_name}. They are "
                "not written again here, so its deletion vectors are not materialized."
            )
        for file in group.blob_files:
            first, end = row_range(file)
            if first < group.first_row_id or end > group.end:
                raise UnsupportedTableError(f"{file.file_name} holds blobs of the rows of several data files.")

    def _weight(self, by_name: Mapping[str, LiveFile], group: RowIdGroup) -> int:
        """The bytes of its rows that are left."""
        left = max(0.0, 1 - sum(by_name[file.file_name].deleted_ratio for file in group.files))
        sizes = (int(np.ceil(int(file.file_size) * left)) for file in (*group.files, *group.blob_files))
        return sum(max(size, self._options.open_bytes) for size in sizes)

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        by_name = {file.name: file for file in task.files}
        groups = row_id_groups([file.read for file in task.files])
        reader = self._reader.expecting(task.files)
        # As in Java these are appended rows, so that the commit numbers them and gives them ids.
        options = replace(FileOptions.of(self._table, ""), target_bytes=NEVER_FULL)
        options = replace(options, data=replace(options.data, target_rows=None))
        fetcher = BlobFetcher(reader.store, None)
        blobs = {field.name: lambda cell: blob_of(fetcher, cell) for field in self._blobs}
        files = BucketFiles(self._table, options, task.bucket.partition, task.bucket.bucket)
        made = AppendBucket(files, 0, tracked=True, blobs=blobs)
        try:
            with bad_rows_as_damage(self._reader, task):
                for group in groups:
                    for batch in self._left(reader, group, by_name):
                        for piece in self._with_blobs(batch, fetcher):
                            made.add(piece)
                new, _ = made.take()
        except BaseException:
            made.abort()
            raise
        finally:
            fetcher.close()
        return [CompactionResult(task.bucket, task.files, new)]

    def _left(self, reader: FileReader, group: RowIdGroup, by_name: Mapping[str, LiveFile]) -> Iterator[pa.RecordBatch]:
        """The rows of a group that are not deleted, with cells for blobs."""
        kept = np.ones(group.row_count, np.bool_)
        for file in group.files:
            kept[reader.deleted(by_name[file.file_name])] = False
        first = 0
        for batch in reader.joined(group, by_name, self._fields, self._blobs):
            left = batch.filter(pa.array(kept[first : first + batch.num_rows]))
            first += batch.num_rows
            if left.num_rows:
                yield left

    def _with_blobs(self, batch: pa.RecordBatch, fetcher: BlobFetcher) -> Iterator[pa.RecordBatch]:
        """The rows with blobs instead of cells, in pieces whose blobs are fetched together."""
        found = {field.name: references_of(batch.column(field.name)) for field in self._blobs}
        total = sum((np.maximum(each.lengths, 0) for each in found.values()), np.zeros(batch.num_rows, np.int64))
        for start, stop in fetched_together(total):
            piece = batch.slice(start, stop - start)
            for name, references in found.items():
                cells = marked(references.rows(start, stop - start), fetcher)
                place = piece.schema.get_field_index(name)
                piece = piece.set_column(place, piece.schema.field(place), pa.array(cells, pa.large_binary()))
            yield piece
