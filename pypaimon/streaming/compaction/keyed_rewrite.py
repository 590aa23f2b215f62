"""`KeyedRewriter`: merges the records of a bucket of a primary-key table into new files, or moves its files.

Which files are merged and which only move is decided as by Java's `MergeTreeCompactTask`. Java's rules:
docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.record_expiry import Expired
from pypaimon.streaming.compaction.run_picking import ChangelogMode, Pick
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.merge import UnsortedRunError, merge_batches, merge_engine, sorted_runs
from pypaimon.streaming.merge.level_changes import ChangeRule, Compacted, merge_levels
from pypaimon.streaming.merge.ordering import Ints
from pypaimon.streaming.merge.runs import key_order
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, SYSTEM_TYPES, VALUE_KIND
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions
from pypaimon.streaming.writing.files.record_facts import KeyedFacts, numbered
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

if TYPE_CHECKING:
    from pyroaring import BitMap

T = TypeVar("T")

_RETRACTS = pa.array([DELETE, UPDATE_BEFORE], pa.int8())

Section = tuple[LiveFile, ...]
"""Files whose keys overlap, directly or through other files. Files of different sections share no key."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections, in key order, that are merged one after the other into new files."""

    sections: tuple[Section, ...]

    @property
    def files(self) -> list[LiveFile]:
        return [file for section in self.sections for file in section]


@dataclass(frozen=True, slots=True)
class Move:
    """A file that moves to the level of the pick unchanged."""

    file: LiveFile

    @property
    def files(self) -> list[LiveFile]:
        return [self.file]

    @property
    def sections(self) -> tuple[Section, ...]:
        return ((self.file,),)


Step = Rewrite | Move


class KeyedRewriter:
    """Executes picks of one table."""

    def __init__(self, table: PaimonTable, reader: FileReader, options: CompactionOptions) -> None:
        self._table = table
        self._options = options
        self._engine = merge_engine(table.schema)
        self._mode = ChangelogMode.of(table)
        self._reader = reader
        self._schema = file_schema(table)

    def compact(self, bucket: LiveBucket, pick: Pick, expired: Expired | None = None) -> CompactionResult:
        """Merge and move the files of a pick, without `expired` records. If it fails, the new files are deleted. Raises
        FileNotFoundError if a file is missing.
        """
        result, made = CompactionResult(bucket), list[DataFileMeta]()
        options = FileOptions.of_compacted(self._table, pick.level)
        facts = partial(KeyedFacts, self._table.key_fields, options.thin)
        new = BucketFiles(self._table, options, bucket.partition, bucket.bucket)
        data, changelog = RollingFiles(new, options.data, facts), RollingFiles(new, options.changelog, facts)
        superseded = Superseded(file for file in bucket.files if self._mode.vectors and file.level > pick.level)
        reader = self._reader.expecting(bucket.files)
        keep_deletes = not self._mode.drops_deletes(pick)
        try:
            for step in steps(pick, self._options, partial(self._must_rewrite, reader, pick, expired, options)):
                files = step.files
                result.before += files
                rule = self._mode.rule(pick, files, self._options)
                if isinstance(step, Move):
                    result.after.append(step.file.moved(pick.level))
                if rule is not None:
                    for section in _reading_once(bucket, step, rule):
                        for found in self._compacted(reader, section, step, rule, superseded, expired):
                            superseded.add(found.superseded)
                            if isinstance(step, Rewrite):
                                records = found.records if keep_deletes else without_deletes(found.records)
                                data.add(self._records(records))
                            if self._mode.writes:
                                changelog.add(self._records(found.changes))
                elif isinstance(step, Rewrite):
                    for section in step.sections:
                        for batch in self._merged(reader, section, expired, keep_deletes=keep_deletes):
                            data.add(self._records(batch))
                # Files end with each step: the keys of a moved file may be between those of two steps.
                made += data.take()
            result.changelog += changelog.take()
        except BaseException:
            data.abort()
            changelog.abort()
            discard(self._table, [CompactionResult(bucket, after=made).message()])
            raise
        result.after += made
        result.superseded = superseded.rows
        return result

    def rows(self, bucket: LiveBucket) -> Iterator[pa.RecordBatch]:
        """The rows of a bucket: its merged records without deletes, in the order of their keys."""
        reader = self._reader.expecting(bucket.files)
        for section in sections(bucket.files):
            yield from self._merged(reader, section, None, keep_deletes=False)

    def _records(self, batch: pa.RecordBatch) -> pa.Table:
        return file_records(batch, self._schema, self._engine.keys)

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
        if isinstance(step, Move) and not self._mode.writes and not (superseded.places and len(files) > 1):
            return
        places = superseded.places if self._mode.vectors else None

        def keys_only(file: LiveFile) -> bool:
            return rule.replaces and (file.level > rule.level or isinstance(step, Move))

        runs = _runs(reader, files, levels=True, places=places, keys_only=keys_only)
        if expired is not None:
            # A file that moves keeps its expired records, so they count as rows.
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
        """Whether a file must be rewritten: it holds records to be dropped, or is merged with files above."""
        if self._mode.must_rewrite(pick, file, self._options, target) or (pick.full and file.deletions is not None):
            return True
        if expired is not None and expired.in_file(file, reader.schema):
            return True
        # If every compaction drops deletes, only level 0 holds some.
        drops = self._mode.drops_deletes(pick) and (pick.top or file.level == 0)
        if not drops or file.level == pick.level:
            return drops and file.read.delete_row_count != 0
        # A count of 0 proves nothing, because pypaimon's writer does not count deletes.
        return file.read.delete_row_count != 0 or any(
            pc.any(pc.is_in(kinds, _RETRACTS)).as_py() for kinds in reader.kinds(file)
        )


def without_deletes(records: pa.RecordBatch) -> pa.RecordBatch:
    return records.filter(pc.invert(pc.is_in(records.column(VALUE_KIND), _RETRACTS)))


def file_schema(table: PaimonTable) -> pa.Schema:
    """The columns of a table with a primary key, and the system columns of its records."""
    schema = arrow_schema(table.fields)
    for name in (VALUE_KIND, SEQUENCE_NUMBER):
        schema = schema.append(pa.field(name, SYSTEM_TYPES[name], nullable=False))
    return schema


def file_records(batch: pa.RecordBatch, schema: pa.Schema, keys: Sequence[str]) -> pa.Table:
    """Records as they are written to files. `schema`: The `file_schema` of the table."""
    # Merging loses which columns are NOT NULL, so the records get the schema of files again.
    arrays = [batch.column(name) for name in schema.names]
    return numbered(pa.Table.from_arrays(arrays, schema=schema), keys)


def _runs(reader: FileReader, files: Section, **wanted: Any) -> list[Iterator[pa.RecordBatch]]:
    members = _members(files)
    return [reader.records(run, shared_by=len(members), **wanted) for run in members]


def _members(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    of_name = {file.name: file for file in files}
    return [[of_name[meta.file_name] for meta in run] for run in sorted_runs([file.read for file in files])]


def _reading_once(bucket: LiveBucket, step: Rewrite | Move, rule: ChangeRule) -> list[Section]:
    """Sections with the files above that they are compared with. Sections that share such a file are joined."""
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
    least = min(key_order(file.read.min_key) for file in section)
    greatest = max(key_order(file.read.max_key) for file in section)
    return tuple(
        file
        for file in bucket.files
        if file.level > level and least <= key_order(file.read.max_key) and key_order(file.read.min_key) <= greatest
    )


# Which files are merged, and which only move


def steps(pick: Pick, options: CompactionOptions, must_rewrite: Callable[[LiveFile], bool]) -> Iterator[Step]:
    """The steps of a pick. A file that is large enough and is on the right level is in no step. `must_rewrite` is
    called right before the step of a file, and says whether it must be rewritten instead of moved.
    """
    small: list[Section] = []

    def one(file: LiveFile) -> Iterator[Step]:
        if options.force_rewrite or must_rewrite(file):
            yield Rewrite(((file,),))
        elif file.level != pick.level:
            yield Move(file)

    def flush() -> Iterator[Step]:
        # A single file is not worth a rewrite.
        if len(small) == 1 and len(small[0]) == 1:
            yield from one(small[0][0])
        elif small:
            yield Rewrite(tuple(small))
        small.clear()

    for section in sections(pick.files):
        if len(section) > 1 or section[0].size < options.small_bytes:
            small.append(section)
        else:
            yield from flush()
            yield from one(section[0])
    yield from flush()


def sections(files: Sequence[LiveFile]) -> Iterator[Section]:
    bounds = [(key_order(file.read.min_key), key_order(file.read.max_key), file) for file in files]
    bounds.sort(key=lambda bound: bound[:2])
    section: list[LiveFile] = []
    end: tuple[object, ...] = ()
    for smallest, largest, file in bounds:
        if section and smallest > end:
            yield tuple(section)
            section = []
        end = max(end, largest) if section else largest
        section.append(file)
    if section:
        yield tuple(section)


class Superseded:
    """The records above the output level that newer ones have replaced.

    Records are numbered file after file. Memory: a compressed bitmap for each file with such records.
    """

    def __init__(self, files: Iterable[LiveFile]) -> None:
        files = list(files)
        starts = np.cumsum([0, *(int(file.read.row_count) for file in files)])
        self._names = [file.name for file in files]
        self._starts = starts[:-1]
        self.places: Mapping[str, int] = dict(zip(self._names, map(int, starts), strict=False))
        self.rows: dict[str, BitMap] = {}

    def add(self, numbers: Ints) -> None:
        from pyroaring import BitMap

        if not len(numbers):
            return
        numbers = np.sort(numbers)
        files = np.searchsorted(self._starts, numbers, side="right") - 1
        for file in np.unique(files):
            there = (numbers[files == file] - self._starts[file]).astype(np.uint32)
            self.rows.setdefault(self._names[file], BitMap()).update(BitMap(there))
