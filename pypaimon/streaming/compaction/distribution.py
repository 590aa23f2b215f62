"""`Distributor`: divides records over the buckets of a partition, and compacts those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from pypaimon.streaming.commit.changes import data_changes
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_clustering import keyed_task_picker
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.formats.binary_row import decode_rows
from pypaimon.streaming.formats.binary_row_encoding import StoredRow
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.system_columns import SYSTEM_TYPES, VALUE_KIND
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import NO_SEQUENCE, WriteState


class Distributor:
    """Divides records of a table with a primary key over a number of buckets.

    Args:
        table: The table, with that number as its fixed number of buckets.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, now: Callable[[], datetime]) -> None:
        self._table = table
        self.picker = keyed_task_picker(table, reader, now)
        self._schema = arrow_schema(table.fields).append(pa.field(VALUE_KIND, SYSTEM_TYPES[VALUE_KIND], nullable=False))

    def distribute(
        self, records: Iterable[pa.RecordBatch], partition: StoredRow, there: Sequence[LiveBucket], *, full: bool
    ) -> list[CompactionResult]:
        """Write records of a partition, oldest first, to new files of its buckets, and compact what is due.

        If it fails, the new files are deleted.

        Args:
            there: The buckets that the partition has. They are compacted too.
            full: Compact all of each bucket.
        """
        messages = self._written(records, there)
        results: list[CompactionResult] = []
        try:
            for bucket, message in self._buckets(partition, there, messages):
                result = self.picker.compact(bucket, full=full)
                results.append(_with_new_files(result, message))
                discard(self._table, [_intermediate(result, message)])
        except BaseException:
            discard(self._table, [*messages, *(result.message() for result in results)])
            raise
        return [result for result in results if not result.is_empty]

    def _written(self, records: Iterable[pa.RecordBatch], there: Sequence[LiveBucket]) -> list[CommitMessage]:
        """New files of level 0, whose records are numbered after all that are there."""
        numbers = [file.read.max_sequence_number for bucket in there for file in bucket.files]
        writer = RecordWriter(self._table, "", False, WriteState(max(numbers, default=NO_SEQUENCE)))
        try:
            for batch in records:
                columns = [batch.column(name) for name in self._schema.names]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            return writer.prepare()
        except BaseException:
            writer.abort()
            raise

    def _buckets(
        self, partition: StoredRow, there: Sequence[LiveBucket], messages: Sequence[CommitMessage]
    ) -> Iterator[tuple[LiveBucket, CommitMessage]]:
        """All buckets, with their new files, and the message that has these."""
        former = {bucket.bucket: bucket for bucket in there}
        new = {int(message.bucket): message for message in messages}
        for number in sorted(former.keys() | new.keys()):
            bucket = former.get(number) or LiveBucket(partition, number, self._table.total_buckets, ())
            message = new.get(number) or CommitMessage(partition, number, [])
            yield replace(bucket, files=(*bucket.files, *self._live(message))), message

    def _live(self, message: CommitMessage) -> Iterator[LiveFile]:
        for file, change in zip(message.new_files, data_changes(self._table, [message]).files, strict=True):
            bounds = pa.array([change.file["_MIN_KEY"], change.file["_MAX_KEY"]], pa.binary())
            least, greatest = decode_rows(bounds, self._table.key_fields)
            yield LiveFile(replace(file, min_key=least, max_key=greatest), change)


def _with_new_files(result: CompactionResult, message: CommitMessage) -> CompactionResult:
    """What becomes of the files that were there before: new files that were compacted at once never existed."""
    new = {str(file.file_name) for file in message.new_files}
    compacted = {file.name for file in result.before}
    return replace(
        result,
        before=[file for file in result.before if file.name not in new],
        after=[*(file for file in message.new_files if file.file_name not in compacted), *result.after],
        changelog=[*message.changelog_files, *result.changelog],
    )


def _intermediate(result: CompactionResult, message: CommitMessage) -> CommitMessage:
    """The new files that were compacted at once."""
    gone = [each for each in message.new_files if each.file_name in result.rewritten]
    return replace(message, new_files=gone, changelog_files=[])
