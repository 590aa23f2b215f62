"""Manifest entries as pypaimon's `DataFileMeta`, built only for the files that survived pruning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.internals import DataField, DataFileMeta, GenericRow, SimpleStats, Timestamp
from pypaimon.streaming.metadata.binary_row import decode_rows
from pypaimon.streaming.metadata.file_paths import FilePaths

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
]


def data_files(entries: pa.Table, paths: FilePaths, key_fields: Sequence[DataField] = ()) -> list[DataFileMeta]:
    """Value objects for manifest entries, in their order.

    Statistics are left out (they are in the entries) and `value_stats_cols` is empty, as in plans of pypaimon.
    `file_path` is the full path of the file as recorded, which is the external path if it has one.

    Args:
        entries: Rows of `ENTRY_SCHEMA`.
        paths: Where the table keeps its files.
        key_fields: The trimmed primary key (without partition columns); empty for a table without primary key.

    Raises:
        ValueError: A key or a partition cannot be decoded.
    """
    count = entries.num_rows
    columns = _python_columns(entries, [*_AS_STORED, "creation_time", "partition", "bucket"])
    columns["creation_time"] = [
        None if millis is None else Timestamp.from_epoch_millis(millis) for millis in columns["creation_time"]
    ]
    columns["file_path"] = list(
        map(
            paths.data_file,
            columns.pop("partition"),
            columns.pop("bucket"),
            columns["file_name"],
            columns["external_path"],
        )
    )
    columns["min_key"] = decode_rows(entries["min_key"], key_fields)
    columns["max_key"] = decode_rows(entries["max_key"], key_fields)
    columns["key_stats"] = columns["value_stats"] = [SimpleStats.empty_stats()] * count
    columns["value_stats_cols"] = [[] for _ in range(count)]
    return list(map(DataFileMeta, *(columns[field.name] for field in dataclasses.fields(DataFileMeta))))


def _python_columns(entries: pa.Table, names: Sequence[str]) -> dict[str, list[Any]]:
    # polars makes Python values several times faster than pyarrow does.
    import polars

    frame = polars.from_arrow(entries.select(names))
    assert isinstance(frame, polars.DataFrame)
    return {name: frame.get_column(name).to_list() for name in names}


def partitions(entries: pa.Table, partition_fields: Sequence[DataField]) -> list[GenericRow]:
    """The partition of each entry, typed; equal partitions share one object.

    Raises:
        ValueError: A partition cannot be decoded.
    """
    return decode_rows(entries["partition"], partition_fields)
