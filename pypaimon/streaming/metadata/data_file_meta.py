"""`DataFiles`: manifest entries as pypaimon's `DataFileMeta`, made only for files that survived pruning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.concurrency.forking import polars_works
from pypaimon.streaming.formats.binary_row import decode_columns, decode_rows, rows_of
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifest_tables import BOUNDS
from pypaimon.streaming.options.table_traits import is_clustered
from pypaimon.streaming.paimon.internals import (
    BinaryRow,
    DataField,
    DataFileMeta,
    ManifestEntry,
    SimpleStats,
    TableSchema,
    Timestamp,
)

if TYPE_CHECKING:
    import polars

_AS_STORED = (
    "file_name file_size row_count min_sequence_number max_sequence_number schema_id level extra_files "
    "delete_row_count embedded_index file_source external_path first_row_id write_cols write_cols_sequences"
).split()
OWN_PARTITION = "own_partition"
"""The partition that holds the files of entries which are read as files of another one (`partition`)."""
# From this number of files on polars makes Python values faster than pyarrow, despite its start-up cost.
_MANY = 100
# Objects of this many files are made at once. Fewer take longer each, more delay a caller that needs a few.
_BLOCK = 1024
_FIELDS = [field.name for field in dataclasses.fields(DataFileMeta)]


class DataFiles:
    """Manifest entries as files, in their order. They stay columns until value objects are needed.

    A plan may hold a million files. One object per file, made at once, would have the garbage collector stop every
    thread for hundreds of milliseconds, and take many times the memory of the columns.

    The value objects have no statistics (these are in the entries) and an empty `value_stats_cols`, as in plans of
    pypaimon. Files share their empty lists. Only ORC files keep the bounds of their values, if the entries have them.

    `file_path` is the full recorded path of the file: its external path, if it has one.

    Args:
        entries: Rows of `ENTRY_SCHEMA`, perhaps with `OWN_PARTITION`.
        key_fields: The `bound_fields` of the table.
    """

    def __init__(self, entries: pa.Table, paths: FilePaths, key_fields: Sequence[DataField] = ()) -> None:
        self._columns = entries.select([*_AS_STORED, "creation_time", "bucket"])
        self._keys = entries.select(["min_key", "max_key"])
        self._bounds = entries.select(BOUNDS) if {*BOUNDS} <= {*entries.schema.names} else None
        self._count: int = entries.num_rows
        self._paths = paths
        own = OWN_PARTITION if OWN_PARTITION in entries.schema.names else "partition"
        self._partitions = entries[own].combine_chunks().dictionary_encode()
        self._key_fields = list(key_fields)
        # Rows and bytes of all files before each file.
        self._rows, self._bytes = (
            np.concatenate([[0], np.cumsum(entries[name].to_numpy())]) for name in ("row_count", "file_size")
        )
        self._made: tuple[int, list[DataFileMeta]] = 0, []

    def __len__(self) -> int:
        return self._count

    def some(self, start: int, stop: int) -> FileRange:
        return FileRange(self, start, stop)

    def row_count(self, start: int, stop: int) -> int:
        return int(self._rows[stop] - self._rows[start])

    def file_size(self, start: int, stop: int) -> int:
        return int(self._bytes[stop] - self._bytes[start])

    def make(self, start: int, stop: int) -> list[DataFileMeta]:
        """Value objects of the files from one place up to another. Those of adjacent files are made with them. Raises
        ValueError if a partition or a key cannot be decoded.
        """
        found: list[DataFileMeta] = []
        while start < stop:
            first = start // _BLOCK * _BLOCK
            begin, made = self._made
            if begin != first or not made:
                made = self._block(first, min(_BLOCK, self._count - first))
                self._made = first, made
            end = min(stop, first + _BLOCK)
            found += made[start - first : end - first]
            start = end
        return found

    def _block(self, start: int, count: int) -> list[DataFileMeta]:
        part = self._columns.slice(start, count)
        # Few files have extra ones. An empty list of each file would double the objects that garbage collection visits.
        extra = part["extra_files"]
        without_extra = count >= _MANY and not extra.null_count and not len(pc.list_flatten(extra))
        if without_extra:
            part = part.drop_columns(["extra_files"])
        columns: dict[str, list[Any]] = (
            polars_frame(part).to_dict(as_series=False) if count >= _MANY and polars_works() else part.to_pydict()
        )
        if without_extra:
            columns["extra_files"] = [[]] * count
        times = {millis: Timestamp.from_epoch_millis(millis) for millis in set(columns["creation_time"]) - {None}}
        columns["creation_time"] = list(map(times.get, columns["creation_time"]))
        indices = self._partitions.indices.slice(start, count).to_pylist()
        location = (columns[name] for name in ("bucket", "file_name", "external_path"))
        columns["file_path"] = list(map(self._paths.data_file, map(self._homes.__getitem__, indices), *location))
        for name in ("min_key", "max_key"):
            keys = decode_columns(self._keys[name].slice(start, count), self._key_fields)
            columns[name] = rows_of(keys, self._key_fields, count)
        columns["key_stats"] = columns["value_stats"] = [SimpleStats.empty_stats()] * count
        columns["value_stats_cols"] = [[]] * count
        if self._bounds is not None:
            self._bound(columns, self._bounds.slice(start, count))
        return list(map(DataFileMeta, *(columns[name] for name in _FIELDS)))

    @staticmethod
    def _bound(columns: dict[str, list[Any]], bounds: pa.Table) -> None:
        stats, names = list(columns["value_stats"]), list(columns["value_stats_cols"])
        of_files = zip(columns["file_name"], *(bounds[name].to_pylist() for name in BOUNDS), strict=True)
        for index, (file, least, greatest, of_columns) in enumerate(of_files):
            if file.endswith("orc") and least and greatest:
                stats[index] = SimpleStats(BinaryRow(least, []), BinaryRow(greatest, []), [])
                names[index] = of_columns
        columns["value_stats"], columns["value_stats_cols"] = stats, names

    @cached_property
    def _homes(self) -> list[str]:
        return self._paths.partitions(self._partitions.dictionary)


def bound_fields(schema: TableSchema) -> list[DataField]:
    """The fields of `min_key` and `max_key` in all files of a table: those of the primary key without the partition
    columns. Empty if a table has no primary key, or if only its files of level 0 have such bounds.
    """
    if is_clustered(schema):
        return []
    fields = {field.name: field for field in schema.fields}
    return [fields[name] for name in schema.primary_keys if name not in schema.partition_keys]


@dataclasses.dataclass(frozen=True, slots=True)
class FileRange:
    """A range of files, as a split holds them: see `model.plan.FileColumns`."""

    files: DataFiles
    start: int
    stop: int

    @property
    def row_count(self) -> int:
        return self.files.row_count(self.start, self.stop)

    @property
    def file_size(self) -> int:
        return self.files.file_size(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def make(self) -> list[DataFileMeta]:
        return self.files.make(self.start, self.stop)


def manifest_entries(entries: pa.Table, paths: FilePaths, schema: TableSchema) -> list[ManifestEntry]:
    """Entries as pypaimon's `ManifestEntry`, in their order. For their files see `DataFiles`."""
    fields = {field.name: field for field in schema.fields}
    partitions = entries["partition"].combine_chunks().dictionary_encode()
    rows = decode_rows(partitions.dictionary, [fields[name] for name in schema.partition_keys])
    files = DataFiles(entries, paths, bound_fields(schema)).make(0, entries.num_rows)
    places = ([rows[index] for index in partitions.indices.to_pylist()], *_columns(entries, "bucket", "total_buckets"))
    return list(map(ManifestEntry, *_columns(entries, "kind"), *places, files))


def _columns(entries: pa.Table, *names: str) -> list[list[Any]]:
    return [entries[name].to_pylist() for name in names]


def polars_frame(table: pa.Table) -> polars.DataFrame:
    import polars

    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return frame
