"""`rewrite_file_index`: gives data files the file indexes that the options of their table ask for by now.

As Java's procedure of this name does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.compaction_run import Progress
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.reports import CompactionReport
from pypaimon.streaming.compaction.tasks import CompactionTask, TaskPicker, Threads
from pypaimon.streaming.files.row_id_groups import is_data_file_name, is_written
from pypaimon.streaming.indexes.container import INDEX_FILE, encode_container, index_parts
from pypaimon.streaming.indexes.file_index import FileIndex, IndexedColumn, IndexOptions
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta

_READ_TOGETHER = 32
"""Index files to be requested at the same time."""


def rewrite_file_index(
    table: WritableTable,
    *,
    full: bool = False,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    threads: int = 1,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> CompactionReport:
    """Give data files the file indexes that the table's options ask for (`file-index.<kind>.columns`). Blocks.

    No data is written again. Files that lack an index get it, and lose those that the options do not have any more,
    in a COMPACT snapshot, of which streams receive nothing.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        full: Make the indexes of all files again, because other options of an index have changed, such as `fpp`. False:
            of files with other kinds of indexes, or of other columns, than they should have.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        threads: Number of groups of files whose indexes are made at the same time.
        dry_run: Write nothing. The report says which files would get other indexes. It may also count files that would
            not change, because an index that they lack cannot hold their values.
        on_progress: As `compact` takes it.

    Returns:
        Which files have got other indexes; their sizes are those of the data. Files that others have compacted or
        deleted meanwhile are conflicts.

    Raises:
        UnsupportedTableError: An index cannot be made here, or the table cannot be compacted exactly; nothing was
            written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        CorruptTableError: A data file is damaged or missing. Earlier commits stay; nothing else was committed.
        CommitFailedError: A commit failed (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("rewrite_file_index: table", table))
    chosen = ChosenPartitions(given, partition, where, partition_idle_time)
    compaction = Compaction(given, chosen, full=full, workers=Threads(threads), new_picker=IndexTaskPicker)
    return compaction.run(dry_run=dry_run, on_progress=on_progress)


class IndexTaskPicker(TaskPicker):
    """Makes the file indexes of data files that have others than they should."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._reader = reader
        self._options = IndexOptions.of(table.options, table.fields)
        self._target_bytes = CompactionOptions.of(table).target_bytes
        # Raises if the options of the indexes cannot be used.
        FileIndex(self._options.written, arrow_schema(table.fields))

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            # Records of the postponed bucket have no indexes. They get them when they are distributed.
            if bucket.bucket == POSTPONE_BUCKET:
                continue
            files: list[LiveFile] = []
            for file in self._due(bucket.files, full=full):
                files.append(file)
                if sum(each.size for each in files) >= self._target_bytes:
                    yield CompactionTask(bucket, files)
                    files = []
            if files:
                yield CompactionTask(bucket, files)

    def _due(self, files: Iterable[LiveFile], *, full: bool) -> Iterator[LiveFile]:
        following = (file for file in files if is_data_file_name(file.name))
        while some := list(islice(following, _READ_TOGETHER)):
            for file, data in zip(some, self._present(some), strict=True):
                wanted = {(each.column, each.kind) for each in self._wanted(file)[0]}
                there = {(column, kind) for column, found in _parts(data).items() for kind in found}
                if there != wanted or (full and wanted):
                    yield file

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        result = CompactionResult(task.bucket)
        try:
            for file in task.files:
                changed = self._rewritten(file)
                if changed is not None:
                    result.before.append(file)
                    result.after.append(changed)
        except BaseException:
            discard(self._table, [result.message()])
            raise
        return [] if result.is_empty else [result]

    def _rewritten(self, file: LiveFile) -> DataFileMeta | None:
        """Its metadata with other indexes; None: it has these already."""
        columns, fields = self._wanted(file)
        meta = file.replaced()
        others = [name for name in meta.extra_files or () if not name.endswith(INDEX_FILE)]
        index = FileIndex(columns, arrow_schema(fields))
        for batch in self._reader.stored(file, fields) if columns else ():
            index.add(pa.Table.from_batches([batch]))
        parts = index.parts()
        # Readers leave out every file that an entry deletes, wherever that entry is. The indexes are a part of what
        # names a file, so if it got some that it had before, or none again, it would be gone.
        data = encode_container(parts, uuid4().bytes)
        is_embedded = self._options.are_embedded(parts, data)
        (present,) = self._present([file])
        if _parts(present) == parts and (not parts or is_embedded == (meta.embedded_index is not None)):
            return None
        if is_embedded:
            return replace(meta, extra_files=others, embedded_index=data)
        # Under a name that nobody else uses: if another job wrote the same name, the one that fails would delete the
        # index of the other one.
        name = f"{file.name}-{uuid4()}{INDEX_FILE}"
        self._reader.store.begin_write_new(self._beside(file, name), data)()
        return replace(meta, extra_files=[*others, name], embedded_index=None)

    def _wanted(self, file: LiveFile) -> tuple[tuple[IndexedColumn, ...], list[DataField]]:
        """The indexes that it should have, and the columns that these are made of."""
        schema_of = self._reader.schema
        stored = [field for field in schema_of(file.read.schema_id).fields if is_written(field, file.read, schema_of)]
        columns = self._options.of_file(self._table.fields, stored)
        names = {each.field for each in columns}
        return columns, [field for field in stored if field.name in names]

    def _present(self, files: Sequence[LiveFile]) -> list[bytes | None]:
        """The indexes of files; None: a file has none, or they are missing."""
        names = {
            file.name: [name for name in file.read.extra_files or () if name.endswith(INDEX_FILE)] for file in files
        }
        there = [file for file in files if file.read.embedded_index is None and len(names[file.name]) == 1]
        read = self._reader.store.read_many([self._beside(file, names[file.name][0]) for file in there])
        found = {file.name: data for file, data in zip(there, read, strict=True)}
        return [found.get(file.name) if (data := file.read.embedded_index) is None else bytes(data) for file in files]

    def _beside(self, file: LiveFile, name: str) -> str:
        return f"{self._reader.located(file).rpartition('/')[0]}/{name}"


def _parts(data: bytes | None) -> dict[str, dict[str, bytes]]:
    """The indexes of a container, by column and kind; none if it is missing or cannot be read."""
    try:
        parts = {} if data is None else index_parts(data)
    except ValueError:
        return {}
    return {
        column: {each.kind: data[each.start : each.start + each.length] for each in found}
        for column, found in parts.items()
        if data is not None
    }
