"""`KeyedClusteringTaskPicker`: compacts primary-key tables whose files are sorted by other columns than the key.

As Java's `ClusteringCompactManager`, with the option `pk-clustering-override`: records of level 0 go to level 1, where
each key is once, so that readers need not merge. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_rewrite import Superseded, file_records, file_schema, without_deletes
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.run_picking import LevelRun, Pick
from pypaimon.streaming.compaction.sort_order import SortOrder
from pypaimon.streaming.compaction.tasks import BucketTaskPicker, KeyedTaskPicker
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.merge import Deduplicate, UnsortedRunError, merge_engine
from pypaimon.streaming.merge.external_sort import sorted_records
from pypaimon.streaming.merge.level_changes import ChangeRule, merge_levels
from pypaimon.streaming.merge.runs import fewest_runs, stored_key_order
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.system_columns import PLACE
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions
from pypaimon.streaming.writing.files.record_facts import KeyedFacts
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

_SORTED_LEVEL = 1
_GREATEST = [(2,)]
"""Greater than what `stored_key_order` returns."""


@dataclass(frozen=True, slots=True)
class _Ranged:
    """A sorted file, and the values of its first and last record by which it is sorted, as Python compares them."""

    least: list[Any]
    greatest: list[Any]
    file: LiveFile


class KeyedClusteringTaskPicker(BucketTaskPicker):
    """The `TaskPicker` of such a table: one task for each bucket that is due."""

    def __init__(self, table: PaimonTable, reader: FileReader, order: SortOrder) -> None:
        super().__init__(reader)
        self._table = table
        self._order = order
        self._options = CompactionOptions.of(table)
        self._engine = merge_engine(table.schema)
        self._keeps_oldest = table.traits.merge_engine.keeps_oldest
        self._schema = file_schema(table)
        fields = {field.name: field for field in table.fields}
        self._sort_fields = [fields[name] for name in order.columns]

    def pick(self, bucket: LiveBucket, *, full: bool) -> Pick | None:
        """All of level 0, because readers do not see it there, and groups of sorted files, each as a run of the pick.
        If `full`, all files, if anything is due or a row was deleted. None: nothing.
        """
        new, there = _by_level(bucket)
        groups = list(self._groups(there, 2 if full else max(2, self._options.trigger)))
        if full and (new or groups or self._options.force_rewrite or any(map(_has_deleted, there))):
            groups = [there] if there else []
        runs = [LevelRun(0, (file,)) for file in new]
        runs += [LevelRun(_SORTED_LEVEL, tuple(group)) for group in groups]
        return Pick(_SORTED_LEVEL, tuple(runs), top=True, full=full) if runs else None

    def rewrite(self, bucket: LiveBucket, pick: Pick) -> CompactionResult:
        """Sort the records of level 0, and those of each group; all together if the pick is `full`."""
        made = list[DataFileMeta]()
        options = FileOptions.of_compacted(self._table, pick.level)
        facts = partial(KeyedFacts, self._table.key_fields, options.thin, self._sort_fields)
        data = RollingFiles(BucketFiles(self._table, options, bucket.partition, bucket.bucket), options.data, facts)
        reader, superseded = self._reader.expecting(bucket.files), _superseded(bucket)
        # Which sorted rows are replaced is known once all new records were read, so these are the first ones.
        parts = [self._new(reader, bucket, superseded)]
        parts += [self._sorted(reader, run.files, superseded) for run in pick.runs if run.level]
        try:
            for rows in [chain(*parts)] if pick.full else parts:
                for batch in sorted_records(rows, self._order.columns, self._order.memory_bytes):
                    data.add(file_records(batch, self._schema, self._engine.keys))
                made += data.take()
        except BaseException:
            data.abort()
            discard(self._table, [CompactionResult(bucket, after=made).message()])
            raise
        gone = {file.name for file in pick.files}
        marked = {name: rows for name, rows in superseded.rows.items() if name not in gone}
        return CompactionResult(bucket, pick.files, made, superseded=marked)

    def rows(self, bucket: LiveBucket) -> Iterator[pa.RecordBatch]:
        reader, superseded = self._reader.expecting(bucket.files), _superseded(bucket)
        yield from self._new(reader, bucket, superseded)
        yield from self._sorted(reader, _by_level(bucket)[1], superseded)

    def _new(self, reader: FileReader, bucket: LiveBucket, superseded: Superseded) -> Iterator[pa.RecordBatch]:
        """The rows of level 0, in the order of their keys. Notes the sorted rows that they replace. If the first row of
        a key stays, rows whose keys are in sorted files are left out instead.
        """
        new, there = _by_level(bucket)
        if not new:
            return
        places = superseded.places
        # A row above level 0 either stays or is replaced as a whole, so only its key matters.
        rule = ChangeRule(0, by_lookup=True, keeps_first=self._keeps_oldest, replaces=not self._keeps_oldest)
        keys = chain.from_iterable(reader.keys(file, places) for file in there)
        in_key_order = sorted_records(keys, self._engine.keys, self._order.memory_bytes)
        members = fewest_runs((*self._bounds(file, self._table.key_fields), file) for file in new)
        runs: list[Iterator[pa.RecordBatch]] = [
            reader.records(run, levels=True, shared_by=len(members), places=places) for run in members
        ]
        if isinstance(self._engine, Deduplicate) and self._engine.ignore_delete:
            runs = [map(without_deletes, run) for run in runs]
        try:
            for found in merge_levels([*runs, map(reader.padded, in_key_order)], self._engine, rule):
                superseded.add(found.superseded)
                yield without_deletes(found.records)
        except UnsortedRunError as error:
            path = str(members[error.run][0].read.file_path)
            raise CorruptTableError(path, "its records are not in the order of their keys") from error

    @staticmethod
    def _sorted(reader: FileReader, files: Iterable[LiveFile], superseded: Superseded) -> Iterator[pa.RecordBatch]:
        """The rows of sorted files that are not superseded, without the deletes that Java leaves in them."""
        for file in files:
            marked = superseded.rows.get(file.name, ())
            gone = np.fromiter(marked, np.int64, len(marked))
            for batch in reader.records([file], levels=False, places={file.name: 0}):
                kept = np.isin(batch.column(PLACE).to_numpy(), gone, invert=True)
                yield without_deletes(batch.filter(pa.array(kept)).drop_columns([PLACE]))

    # Which sorted files are merged

    def _groups(self, files: Sequence[LiveFile], trigger: int) -> Iterator[list[LiveFile]]:
        """Neighbouring sections of sorted files that are merged: those in which `trigger` files overlap, and small
        ones, if fewer files come out.

        Java merges any two files that overlap, which may rewrite all of a bucket after each commit. There, two files
        overlap that share one value, as neighbours may that one sort has made.
        """
        group, is_due = list[LiveFile](), False
        for section in self._sections(files):
            members = [each.file for each in section]
            is_deep = _depth(section) >= trigger
            if is_deep or 2 * sum(file.size for file in members) < self._options.target_bytes:
                group += members
                is_due = is_due or is_deep
                continue
            if is_due or self._are_too_many(group):
                yield group
            group, is_due = [], False
        if is_due or self._are_too_many(group):
            yield group

    def _are_too_many(self, files: Sequence[LiveFile]) -> bool:
        return len(files) > 1 + sum(file.size for file in files) // max(1, self._options.target_bytes)

    def _sections(self, files: Sequence[LiveFile]) -> Iterator[list[_Ranged]]:
        """Files that overlap, directly or through other files."""
        section, end = list[_Ranged](), list[Any]()
        for each in sorted(map(self._ranged, files), key=lambda each: (each.least, each.greatest)):
            if section and each.least >= end:
                yield section
                section = []
            end = max(end, each.greatest) if section else each.greatest
            section.append(each)
        if section:
            yield section

    def _ranged(self, file: LiveFile) -> _Ranged:
        then = {field.id: field.type for field in self._reader.schema(int(file.read.schema_id)).fields}
        if any(str(then.get(field.id)) != str(field.type) for field in self._sort_fields):
            # Values of another type cannot be compared, and such a file may overlap with all others.
            return _Ranged([], _GREATEST, file)
        return _Ranged(*self._bounds(file, self._sort_fields), file)

    @staticmethod
    def _bounds(file: LiveFile, fields: Sequence[DataField]) -> tuple[list[Any], list[Any]]:
        stored = file.stored.file
        return stored_key_order(fields, stored["_MIN_KEY"]), stored_key_order(fields, stored["_MAX_KEY"])


def keyed_task_picker(table: PaimonTable, reader: FileReader, now: Callable[[], datetime]) -> BucketTaskPicker:
    """The `TaskPicker` of a table with a primary key, without what its postponed buckets need."""
    order = SortOrder.of_keyed_files(table)
    return KeyedTaskPicker(table, reader, now) if order is None else KeyedClusteringTaskPicker(table, reader, order)


def _by_level(bucket: LiveBucket) -> tuple[list[LiveFile], list[LiveFile]]:
    """The files of level 0, older ones first, and the sorted ones."""
    return [file for file in bucket.files if not file.level], [file for file in bucket.files if file.level]


def _superseded(bucket: LiveBucket) -> Superseded:
    return Superseded(_by_level(bucket)[1])


def _has_deleted(file: LiveFile) -> bool:
    return file.deletions is not None or bool(file.read.delete_row_count)


def _depth(section: Iterable[_Ranged]) -> int:
    """How many of the files overlap at most."""
    ends: list[list[Any]] = []
    for each in section:
        if ends and ends[0] <= each.least:
            heapq.heapreplace(ends, each.greatest)
        else:
            heapq.heappush(ends, each.greatest)
    return len(ends)
