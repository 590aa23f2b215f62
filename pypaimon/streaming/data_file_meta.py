"""Manifest entries as pypaimon's `DataFileMeta`, built only for the files that survived pruning."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pypaimon.streaming.binary_row import decode_rows
from pypaimon.streaming.file_paths import FilePaths
from pypaimon.streaming.internals import DataField, DataFileMeta, GenericRow, SimpleStats, Timestamp

_AS_STORED = [
    "file_name",
    "file_size",
    "row_count",
    "min_sequence_number",
    "max_sequence_number",
    "schema_id",
    "level",
    "extra_files",
    "delete_row_count",
    "embedded_index",
    "file_source",
    "external_path",
    "first_row_id",
    "write_cols",
    "write_cols_sequences",
    "key_nulls",
    "creation_time",
]


def data_files(entries: pa.Table, paths: FilePaths, key_fields: Sequence[DataField] = ()) -> list[DataFileMeta]:
    """Value objects for manifest entries, in their order.

    As in pypaimon's plans, value statistics are left out (they are in the entries) and `value_stats_cols` is empty;
    `file_path` is the full path of the file as recorded, with an external path if it has one.

    Args:
        entries: Rows of `ENTRY_SCHEMA`.
        paths: Where the table keeps its files.
        key_fields: The trimmed primary key (without partition columns); empty for a table without primary key.

    Raises:
        ValueError: A key or a partition cannot be decoded.
    """
    paths_of = entries.select(["partition", "bucket", "file_name", "external_path"]).to_pylist()
    keys = [decode_rows(entries[column], key_fields) for column in ("min_key", "max_key", "key_min", "key_max")]
    files = []
    for stored, place, *key in zip(entries.select(_AS_STORED).to_pylist(), paths_of, *keys, strict=True):
        key_nulls, created = stored.pop("key_nulls"), stored.pop("creation_time")
        file = DataFileMeta(
            **stored,
            min_key=key[0],
            max_key=key[1],
            key_stats=SimpleStats(key[2], key[3], key_nulls),
            value_stats=SimpleStats.empty_stats(),
            value_stats_cols=[],
            creation_time=None if created is None else Timestamp.from_epoch_millis(created),
            file_path=paths.data_file(**place),
        )
        files.append(file)
    return files


def partitions(entries: pa.Table, partition_fields: Sequence[DataField]) -> list[GenericRow]:
    """The partition of each entry, typed; equal partitions share one object.

    Raises:
        ValueError: A partition cannot be decoded.
    """
    return decode_rows(entries["partition"], partition_fields)
