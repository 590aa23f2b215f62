"""`KeyedRewriter`: the records of a bucket of a primary-key table merged into new files, or moved as they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_plan import Move, Rewrite, Section, steps
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.compaction.new_files import CompactedFiles
from pypaimon.streaming.compaction.replaced import Replaced
from pypaimon.streaming.compaction.run_picking import Pick
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.merge import UnsortedRunError, merge_batches, merge_engine, sorted_runs
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, SYSTEM_TYPES, VALUE_KIND
from pypaimon.streaming.writing.files.file_options import FileOptions
from pypaimon.streaming.writing.files.record_facts import KeyedFacts
from pypaimon.streaming.writing.files.system_columns import numbered

_RETRACTS = pa.array([DELETE, UPDATE_BEFORE], pa.int8())


class KeyedRewriter:
    """Carries out picks of one table.

    Args:
        table: pypaimon's table.
        directory: Where it lies.
        options: What its options say about compaction.
    """

    def __init__(self, table: Any, directory: TableDirectory, options: CompactionOptions) -> None:
        self._table = table
        self._options = options
        self._engine = merge_engine(table.table_schema)
        self._reader = FileReader(table, directory)
        self._schema = arrow_schema(table.fields)
        for name in (VALUE_KIND, SEQUENCE_NUMBER):
            self._schema = self._schema.append(pa.field(name, SYSTEM_TYPES[name], nullable=False))

    def compact(self, bucket: LiveBucket, pick: Pick) -> Replaced:
        """Merge and move what was picked.

        Raises:
            CorruptTableError: A file is damaged; nothing is left of what was written.
            StoreError: The store failed; likewise.
        """
        result, made = Replaced(), list[DataFileMeta]()
        files = FileOptions.of_compacted(self._table, pick.level)
        facts = partial(KeyedFacts, self._table.trimmed_primary_keys_fields, files.thin)
        new = CompactedFiles(self._table, files, files.data, bucket, facts)
        try:
            for step in steps(pick, self._options, partial(self._must_rewrite, pick)):
                if isinstance(step, Move):
                    result.before.append(step.file)
                    result.after.append(step.file.moved(pick.level))
                    continue
                result.before += step.files
                for batch in self._merged(step, keep_deletes=not pick.top):
                    new.write(self._records(batch))
                made += new.take()
        except BaseException:
            new.abort()
            for file in made:
                self._table.file_io.delete_quietly(file.file_path)
            raise
        result.after += made
        return result

    def _records(self, batch: pa.RecordBatch) -> pa.Table:
        """The records of a file. Merging does not keep whether columns may be null."""
        arrays = [batch.column(name) for name in self._schema.names]
        return numbered(pa.Table.from_arrays(arrays, schema=self._schema), self._engine.keys)

    def _merged(self, step: Rewrite, *, keep_deletes: bool) -> Iterator[pa.RecordBatch]:
        for section in step.sections:
            yield from self._section(section, keep_deletes)

    def _section(self, section: Section, keep_deletes: bool) -> Iterator[pa.RecordBatch]:
        of_name = {file.name: file for file in section}
        members = [[of_name[meta.file_name] for meta in run] for run in sorted_runs([file.read for file in section])]
        levels = self._engine.wants_levels
        runs = [self._reader.records(run, levels=levels, shared_by=len(members)) for run in members]
        try:
            yield from merge_batches(runs, self._engine, keep_deletes=keep_deletes, keep_sequence=True)
        except UnsortedRunError as error:
            path = str(members[error.run][0].read.file_path)
            raise CorruptTableError(path, "its records are not in the order of their keys") from error

    def _must_rewrite(self, pick: Pick, file: LiveFile) -> bool:
        """Whether a file may not move as it is: it holds deletes that must go.

        Manifests do not tell of deletes for sure: pypaimon's writer counts none.
        """
        if not pick.top or file.level == pick.level:
            return pick.top and file.read.delete_row_count != 0
        return file.read.delete_row_count != 0 or any(
            pc.any(pc.is_in(kinds, _RETRACTS)).as_py() for kinds in self._reader.kinds(file)
        )
