"""`EvolutionTaskPicker`: compacts tables with data evolution, whose rows are spread over several files by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.blob_rewrite import BlobRewriter, blob_runs
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.row_ranges import Pack, is_as_declared, range_packs
from pypaimon.streaming.compaction.tasks import CompactionTask, TaskPicker, bad_rows_as_damage
from pypaimon.streaming.files.blob_files import BLOB_FILE, row_range
from pypaimon.streaming.files.row_id_groups import data_file_fields, is_data_file_name, is_written, row_id_groups
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions
from pypaimon.streaming.writing.files.record_facts import GivenFacts
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

if TYPE_CHECKING:
    from pyroaring import BitMap

NEVER_FULL = 1 << 62


class EvolutionRewriter:
    """Merges the data files of consecutive row ids of one table."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._reader = reader
        self._fields = data_file_fields(table.schema)
        self._per_column = option_keys.GLOBAL_INDEX_COLUMN_UPDATE_ACTION.of(table.options).lower() == "ignore"

    def merge(self, bucket: LiveBucket, files: Sequence[LiveFile]) -> CompactionResult:
        """Write the columns of all rows into one file. Deleted rows stay, and stay deleted.

        If it fails, the new file is deleted. Raises FileNotFoundError if a file is missing.
        """
        by_name = {file.name: file for file in files}
        groups = row_id_groups([file.read for file in files])
        reader = self._reader.expecting(files)
        # Before anything is written, because schemas may have to be read for it.
        numbers = self._column_numbers(files)
        made = self._rolling(bucket, GivenFacts([file.read for file in files]))
        try:
            deleted = self._deleted(reader, groups, by_name)
            for group in groups:
                for batch in reader.joined(group, by_name, self._fields):
                    made.add(pa.Table.from_batches([batch]))
            (new,) = made.take()
        except BaseException:
            made.abort()
            raise
        new = replace(new, first_row_id=groups[0].first_row_id, write_cols_sequences=numbers)
        return CompactionResult(bucket, list(files), [new], superseded={new.file_name: deleted} if deleted else {})

    def _rolling(self, bucket: LiveBucket, facts: GivenFacts) -> RollingFiles:
        # One range of row ids is one file, however large, because each file of its blobs belongs to one file.
        options = replace(FileOptions.of_compacted(self._table, 0), target_bytes=NEVER_FULL)
        files = BucketFiles(self._table, options, bucket.partition, bucket.bucket)
        return RollingFiles(files, options.data, lambda: facts)

    @staticmethod
    def _deleted(reader: FileReader, groups: Pack, by_name: dict[str, LiveFile]) -> BitMap:
        """Positions of the deleted rows in the new file."""
        from pyroaring import BitMap

        found = BitMap()
        for group in groups:
            shift = group.first_row_id - groups[0].first_row_id
            for file in group.files:
                found |= BitMap(reader.deleted(by_name[file.file_name]).astype(np.uint32) + np.uint32(shift))
        return found

    def _column_numbers(self, files: Sequence[LiveFile]) -> list[int] | None:
        """The greatest sequence number of each column, if indexes of the table are refreshed by it later; None: that of
        the file.
        """
        if not self._per_column:
            return None
        newest: dict[int, int] = {}
        for each in files:
            file = each.read
            fields = self._written(file)
            numbers = file.write_cols_sequences or ()
            if len(numbers) != len(fields):
                numbers = [file.max_sequence_number] * len(fields)
            for field, number in zip(fields, numbers, strict=True):
                newest[field] = max(newest.get(field, number), number)
        greatest = max(int(file.read.max_sequence_number) for file in files)
        found = [newest.get(field.id, greatest) for field in self._fields]
        return None if all(number == greatest for number in found) else found

    def _written(self, file: DataFileMeta) -> list[int]:
        """Ids of the columns of a file."""
        fields = self._reader.schema(file.schema_id).fields
        if file.write_cols is None:
            return [field.id for field in fields]
        by_name = {field.name: field.id for field in fields}
        return [by_name[name] for name in file.write_cols if name in by_name]


@dataclass(frozen=True, slots=True)
class RangeTask(CompactionTask):
    """Data files of consecutive row ids that become one file, and files of their blobs.

    They are committed together, because each file of blobs belongs to one data file.
    """

    # Files of one column of blobs that become one file each; they are part of `files`
    blobs: tuple[tuple[DataField, tuple[LiveFile, ...]], ...] = ()

    @property
    def data_files(self) -> list[LiveFile]:
        return [file for file in self.files if is_data_file_name(file.name)]

    def lean(self) -> RangeTask:
        return replace(self, bucket=replace(self.bucket, files=()))


class EvolutionTaskPicker(TaskPicker):
    """The `TaskPicker` of a table with data evolution: files of adjacent row ids, as Java's compaction picks them.

    Files of vectors stay as they are, and files of blobs too unless `blob-compaction.enabled` is set.
    """

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._options = CompactionOptions.of(table)
        self._reader = reader
        self._rewriter = EvolutionRewriter(table, reader)
        self._blob_rewriter = BlobRewriter(table, reader)
        self._blob_fields: list[DataField] = []
        if option_keys.BLOB_COMPACTION_ENABLED.of(table.options):
            storage = BlobStorage.of(table.schema)
            self._blob_fields = [field for field in table.fields if storage.in_blob_files(field)]
        self._blob_bytes = FileOptions.of_blobs(table).target_bytes

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        inside = data_file_fields(self._table.schema)
        names = {field.name for field in inside}
        apart = [field for field in self._table.fields if field.name not in names]
        if not inside:
            return
        for bucket in buckets:
            by_name = {file.name: file for file in bucket.files}
            groups = row_id_groups([file.read for file in bucket.files])
            for pack, is_due in range_packs(
                groups,
                self._options,
                full=full,
                is_merged=lambda group: is_as_declared(group, inside, apart, self._reader.schema),
            ):
                yield from self._tasks_of(bucket, by_name, pack, is_due)

    def _tasks_of(
        self, bucket: LiveBucket, by_name: dict[str, LiveFile], pack: Pack, is_due: bool
    ) -> Iterator[CompactionTask]:
        """A pack that is due is one task. Otherwise the files of blobs of each of its groups are one."""
        for groups in [pack] if is_due else [[group] for group in pack]:
            blobs = [
                (field, tuple(by_name[file.file_name] for file in run))
                for field in self._blob_fields
                for run in blob_runs(self._files_of(field, groups), self._blob_bytes)
            ]
            data = [by_name[file.file_name] for group in groups for file in group.files] if is_due else []
            files = [*data, *(file for _, run in blobs for file in run)]
            if files:
                yield RangeTask(bucket, files, blobs=tuple(blobs))

    def _files_of(self, field: DataField, groups: Pack) -> list[DataFileMeta]:
        """The files of a column of blobs; none if one of them cannot be copied (frames of a video)."""
        first, end = groups[0].first_row_id, groups[-1].end
        inside = (
            file
            for group in groups
            for file in group.blob_files
            if first <= row_range(file)[0] < row_range(file)[1] <= end
        )
        files = {str(file.file_name): file for file in inside}
        found = [file for file in files.values() if is_written(field, file, self._reader.schema)]
        return found if all(str(file.file_name).endswith(BLOB_FILE) for file in found) else []

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        assert isinstance(task, RangeTask)
        result = CompactionResult(task.bucket)
        with bad_rows_as_damage(self._reader, task):
            try:
                if task.data_files:
                    result = self._rewriter.merge(task.bucket, task.data_files)
                for field, files in task.blobs:
                    result.after.append(self._blob_rewriter.compact(task.bucket, field, files))
                    result.before += files
            except BaseException:
                discard(self._table, [result.message()])
                raise
        return [result]
