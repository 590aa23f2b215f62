"""`KeyedRewriter`: the records of a bucket of a primary-key table merged into new files, or moved as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.change_making import ChangeMaking
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_plan import Move, Rewrite, Section, steps
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.compaction.new_files import CompactedFiles
from pypaimon.streaming.compaction.record_expiry import Expired
from pypaimon.streaming.compaction.replaced import Replaced
from pypaimon.streaming.compaction.run_picking import Pick
from pypaimon.streaming.compaction.superseded import Superseded
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.merge import UnsortedRunError, merge_batches, merge_engine, sorted_runs
from pypaimon.streaming.merge.level_changes import ChangeRule, Compacted, merge_levels
from pypaimon.streaming.merge.runs import key_order
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, SYSTEM_TYPES, VALUE_KIND
from pypaimon.streaming.writing.files.file_options import FileOptions
from pypaimon.streaming.writing.files.record_facts import KeyedFacts
from pypaimon.streaming.writing.files.system_columns import numbered

T = TypeVar("T")

_RETRACTS = pa.array([DELETE, UPDATE_BEFORE], pa.int8())


class KeyedRewriter:
    """Carries out picks of one table.

    Args:
        table: pypaimon's table.
        reader: Reads its files.
        options: What its options say about compaction.
    """

    def __init__(self, table: Any, reader: FileReader, options: CompactionOptions) -> None:
        self._table = table
        self._options = options
        self._engine = merge_engine(table.table_schema)
        self._making = ChangeMaking.of(table)
        self._reader = reader
        self._schema = arrow_schema(table.fields)
        for name in (VALUE_KIND, SEQUENCE_NUMBER):
            self._schema = self._schema.append(pa.field(name, SYSTEM_TYPES[name], nullable=False))

    def compact(self, bucket: LiveBucket, pick: Pick, expired: Expired | None = None) -> Replaced:
        """Merge and move what was picked.

        Args:
            bucket: The bucket.
            pick: What is compacted of it.
            expired: Records that go; None: none do.

        Raises:
            FileNotFoundError: A file is missing; nothing is left of what was written.
            CorruptTableError: A file is damaged; likewise.
            StoreError: The store failed; likewise.
        """
        result, made = Replaced(), list[DataFileMeta]()
        options = FileOptions.of_compacted(self._table, pick.level)
        facts = partial(KeyedFacts, self._table.trimmed_primary_keys_fields, options.thin)
        data = CompactedFiles(self._table, options, options.data, bucket, facts)
        changelog = CompactedFiles(self._table, options, options.changelog, bucket, facts)
        superseded = Superseded(file for file in bucket.files if self._making.vectors and file.level > pick.level)
        reader = self._reader.expecting(bucket.files)
        keep_deletes = not self._making.drops_deletes(pick)
        try:
            for step in steps(pick, self._options, partial(self._must_rewrite, reader, pick, expired, options)):
                files = step.files
                result.before += files
                rule = self._making.rule(pick, files, self._options)
                if isinstance(step, Move):
                    result.after.append(step.file.moved(pick.level))
                if rule is not None:
                    for section in _reading_once(bucket, step, rule):
                        for found in self._compacted(reader, section, step, rule, superseded, expired):
                            superseded.add(found.superseded)
                            if isinstance(step, Rewrite):
                                data.write(self._records(_kept(found.records, keep_deletes=keep_deletes)))
                            if self._making.writes:
                                changelog.write(self._records(found.changes))
                elif isinstance(step, Rewrite):
                    for section in step.sections:
                        for batch in self._merged(reader, section, expired, keep_deletes=keep_deletes):
                            data.write(self._records(batch))
                # Files that are moved lie between those of two steps.
                made += data.take()
            result.changelog += changelog.take()
        except BaseException:
            data.abort()
            changelog.abort()
            discard(self._table, [Replaced(after=made).message(bucket)])
            raise
        result.after += made
        result.superseded = superseded.rows
        return result

    def _records(self, batch: pa.RecordBatch) -> pa.Table:
        """The records of a file. Merging does not keep whether columns may be null."""
        arrays = [batch.column(name) for name in self._schema.names]
        return numbered(pa.Table.from_arrays(arrays, schema=self._schema), self._engine.keys)

    def _merged(
        self, reader: FileReader, section: Section, expired: Expired | None, *, keep_deletes: bool
    ) -> Iterator[pa.RecordBatch]:
        runs = _runs(reader, section, levels=self._engine.wants_levels)
        if expired is not None:
            runs = [expired.dropped(run) for run in runs]
        yield from self._in_order(
            section, merge_batches(runs, self._engine, keep_deletes=keep_deletes, keep_sequence=True)
        )

    def _compacted(
        self,
        reader: FileReader,
        files: Section,
        step: Rewrite | Move,
        rule: ChangeRule,
        superseded: Superseded,
        expired: Expired | None,
    ) -> Iterator[Compacted]:
        if isinstance(step, Move) and not self._making.writes and not (superseded.places and len(files) > 1):
            return
        places = superseded.places if self._making.vectors else None

        def keys_only(file: LiveFile) -> bool:
            return rule.replaces and (file.level > rule.level or isinstance(step, Move))

        runs = _runs(reader, files, levels=True, places=places, keys_only=keys_only)
        if expired is not None:
            # The records of a file that moves stay, and count.
            runs = [expired.passed_over(run, above=rule.level, drop=isinstance(step, Rewrite)) for run in runs]
        yield from self._in_order(files, merge_levels(runs, self._engine, rule))

    def _in_order(self, files: Section, merged: Iterator[T]) -> Iterator[T]:
        try:
            yield from merged
        except UnsortedRunError as error:
            path = str(_members(files)[error.run][0].read.file_path)
            raise CorruptTableError(path, "its records are not in the order of their keys") from error

    def _must_rewrite(
        self, reader: FileReader, pick: Pick, expired: Expired | None, target: FileOptions, file: LiveFile
    ) -> bool:
        """Whether a file may not move as it is: it holds what must go, or is merged with what lies above.

        Manifests do not tell of deletes for sure: pypaimon's writer counts none.
        """
        if self._making.must_rewrite(pick, file, self._options, target) or (pick.full and file.deletions is not None):
            return True
        if expired is not None and expired.in_file(file, reader.schema):
            return True
        # Where each compaction drops deletes, they are on level 0 only.
        drops = pick.top or (file.level == 0 and self._making.drops_deletes(pick))
        if not drops or file.level == pick.level:
            return drops and file.read.delete_row_count != 0
        return file.read.delete_row_count != 0 or any(
            pc.any(pc.is_in(kinds, _RETRACTS)).as_py() for kinds in reader.kinds(file)
        )


def _kept(records: pa.RecordBatch, *, keep_deletes: bool) -> pa.RecordBatch:
    return records if keep_deletes else records.filter(pc.invert(pc.is_in(records.column(VALUE_KIND), _RETRACTS)))


def _runs(reader: FileReader, files: Section, **wanted: Any) -> list[Iterator[pa.RecordBatch]]:
    members = _members(files)
    return [reader.records(run, shared_by=len(members), **wanted) for run in members]


def _members(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    """The files as runs, those of a run in key order."""
    of_name = {file.name: file for file in files}
    return [[of_name[meta.file_name] for meta in run] for run in sorted_runs([file.read for file in files])]


def _reading_once(bucket: LiveBucket, step: Rewrite | Move, rule: ChangeRule) -> list[Section]:
    """Sections, each with the files above that it is held against; those that share one are put together."""
    found: list[Section] = []
    shared: set[str] = set()
    for section in step.sections:
        above = _above(bucket, section, rule.level) if rule.by_lookup else ()
        names = {file.name for file in above}
        if found and names & shared:
            found[-1] = (*found[-1], *section, *(file for file in above if file.name not in shared))
            shared |= names
        else:
            found.append((*section, *above))
            shared = names
    return found


def _above(bucket: LiveBucket, section: Section, level: int) -> Section:
    """Files above a level that may hold keys of a section."""
    least = min(key_order(file.read.min_key) for file in section)
    greatest = max(key_order(file.read.max_key) for file in section)
    return tuple(
        file
        for file in bucket.files
        if file.level > level and least <= key_order(file.read.max_key) and key_order(file.read.min_key) <= greatest
    )
