"""`BucketMerge`: the current rows of a bucket, merged on read from the sorted runs of its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.merge import (
    MOST_RUNS,
    MergeEngine,
    UnsortedRunError,
    in_key_order,
    merge_batches,
    merge_engine,
    sorted_runs,
)
from pypaimon.streaming.merge.stages import Begin
from pypaimon.streaming.model.system_columns import LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.reading.file_rows import FileRows, begun
from pypaimon.streaming.reading.read_layout import ReadLayout
from pypaimon.streaming.reading.split_files import SplitFiles

_MERGED_ROWS = 65_536
"""Rows per batch of a file in a merge, at most, because batches of all its files are in memory at once."""
_LARGE_RUNS = 4
"""The batches of all runs of a merge together hold as many rows as those of this many single files."""


class BucketMerge:
    """Merges files of buckets, in one layout."""

    def __init__(self, layout: ReadLayout, rows: FileRows, clustered: bool, batch_size: int, openers: IOPool) -> None:
        self._layout = layout
        self._rows = rows
        self._clustered = clustered
        self._batch_size = min(batch_size, _MERGED_ROWS)
        self._openers = openers

    @property
    def keys(self) -> Sequence[str]:
        return self._merge_engine.keys

    @cached_property
    def _merge_engine(self) -> MergeEngine:
        return merge_engine(self._layout.schema)

    def merged(self, files: SplitFiles, *, keep_deletes: bool, in_order: bool = False) -> Iterator[pa.RecordBatch]:
        """The current rows of the files of a bucket, with their kinds in `_VALUE_KIND`, in key order.

        Args:
            in_order: Whether the files are of several partitions, older ones first. The order decides between records
                of a key that are otherwise equally new.
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

        # Files that are clustered by other columns are sorted by key here, so each is a run of its own.
        partitions = files.by_directory() if in_order else [files.metas]
        runs = [run for each in partitions for run in sorted_runs(each)]
        if self._clustered:
            runs = [[file] for file in files.metas]
        # The more runs there are, the fewer rows each may hold in memory.
        length = max(1, self._batch_size * min(_LARGE_RUNS, len(runs)) // min(MOST_RUNS, len(runs)))

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
                    yield batch

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
