"""`EvolutionTaskPicker`: compacts tables with data evolution, whose rows are spread over several files by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.row_ranges import Pack, is_as_declared, range_packs
from pypaimon.streaming.compaction.tasks import CompactionTask, bad_rows_as_damage
from pypaimon.streaming.files.row_id_groups import data_file_fields, row_id_groups
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions
from pypaimon.streaming.writing.files.record_facts import RecordFacts
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

if TYPE_CHECKING:
    from pyroaring import BitMap

_NEVER_FULL = 1 << 62


class _GivenFacts:
    """Rows whose sequence numbers are those of other files."""

    key_fields: Sequence[Any] = ()
    deletes = 0

    def __init__(self, files: Iterable[LiveFile]) -> None:
        found = [file.read for file in files]
        self._least = min(int(file.min_sequence_number) for file in found)
        self._greatest = max(int(file.max_sequence_number) for file in found)

    def stored(self, schema: pa.Schema) -> list[str]:
        return list(schema.names)

    def add(self, data: pa.Table) -> None:
        pass

    def sequence_range(self) -> tuple[int, int]:
        return self._least, self._greatest

    def key_range(self) -> tuple[Any, Any]:
        return None, None


class EvolutionRewriter:
    """Merges the data files of consecutive row ids of one table."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._reader = reader
        self._fields = data_file_fields(table.schema)
        self._per_column = option_keys.GLOBAL_INDEX_COLUMN_UPDATE_ACTION.of(table.options).lower() == "ignore"

    def compact(self, bucket: LiveBucket, files: Sequence[LiveFile]) -> CompactionResult:
        """Write the columns of all rows into one file. Deleted rows stay, and stay deleted.

        If it fails, the new file is deleted. Raises FileNotFoundError if a file is missing.
        """
        by_name = {file.name: file for file in files}
        groups = row_id_groups([file.read for file in files])
        reader = self._reader.expecting(files)
        made = self._rolling(bucket, _GivenFacts(files))
        try:
            deleted = self._deleted(reader, groups, by_name)
            for group in groups:
                for batch in reader.joined(group, by_name, self._fields):
                    made.add(pa.Table.from_batches([batch]))
            (new,) = made.take()
        except BaseException:
            made.abort()
            raise
        new = replace(new, first_row_id=groups[0].first_row_id, write_cols_sequences=self._column_numbers(files, new))
        return CompactionResult(bucket, list(files), [new], superseded={new.file_name: deleted} if deleted else {})

    def _rolling(self, bucket: LiveBucket, facts: RecordFacts) -> RollingFiles:
        # One range of row ids is one file, however large, because each file of its blobs belongs to one file.
        options = replace(FileOptions.of_compacted(self._table, 0), target_bytes=_NEVER_FULL)
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
                found.update(int(position) + shift for position in reader.deleted(by_name[file.file_name]))
        return found

    def _column_numbers(self, files: Sequence[LiveFile], new: DataFileMeta) -> list[int] | None:
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
        greatest = int(new.max_sequence_number)
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
    """Data files of consecutive row ids that become one file."""


class EvolutionTaskPicker:
    """The `TaskPicker` of a table with data evolution: files of adjacent row ids, as Java's compaction picks them.

    Files of blobs and of vectors stay as they are.
    """

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._options = CompactionOptions.of(table)
        self._reader = reader
        self._rewriter = EvolutionRewriter(table, reader)

    def by_time(self, *, full: bool) -> bool:
        return False

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
                if is_due:
                    yield RangeTask(bucket, [by_name[file.file_name] for group in pack for file in group.files])

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        with bad_rows_as_damage(self._reader, task):
            return [self._rewriter.compact(task.bucket, task.files)]
