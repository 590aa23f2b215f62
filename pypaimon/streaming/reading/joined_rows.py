"""Rows of data evolution: the columns of a group of files, including blobs and vectors in files of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.files.blob_files import BlobColumn
from pypaimon.streaming.files.data_files import constant, row_ids
from pypaimon.streaming.files.row_id_groups import (
    ColumnPart,
    ReadFields,
    RowIdGroup,
    files_of_vectors,
    join,
    owners,
    vector_columns,
)
from pypaimon.streaming.model.system_columns import ROW_ID
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta, TableSchema
from pypaimon.streaming.reading.read_layout import ReadLayout

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory


def joined_rows(
    group: RowIdGroup,
    layout: ReadLayout,
    directory: TableDirectory,
    read: ReadFields,
    *,
    constants: Mapping[str, pa.Scalar],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """All rows of a group, in the order of their ids.

    Args:
        group: The files.
        layout: The columns that are read.
        read: Reads columns of a data file or a vector file.
        constants: Values of columns that are equal in all rows, by name.
        batch_size: Rows per batch, at most.

    Raises:
        CorruptTableError: A file has fewer or more rows than the group.
    """
    storage = BlobStorage.of(layout.schema)
    others: dict[str, ColumnPart] = {
        field.name: BlobColumn(field, group.first_row_id, group.row_count, group.blob_files, directory)
        for field in blob_fields(layout)
    }
    fields = [storage.as_read(field) for field in layout.fields]
    stored = [field for field in fields if field.name not in others and field.name not in constants]
    others |= vector_columns(group, stored, directory.schema, read)
    position, newest = group.first_row_id, group.newest
    for batch in join(group, fields, directory.schema, read, constants, batch_size, others):
        for name in layout.system_columns:
            column = row_ids(position, batch.num_rows) if name == ROW_ID else constant(newest, batch.num_rows)
            batch = batch.append_column(name, column)
        position += batch.num_rows
        yield batch


def blob_fields(layout: ReadLayout) -> list[DataField]:
    """The fields whose values are in blob files."""
    storage = BlobStorage.of(layout.schema)
    return [field for field in layout.fields if storage.in_blob_files(field)]


def files_joined(group: RowIdGroup, layout: ReadLayout, schema_of: Callable[[int], TableSchema]) -> list[DataFileMeta]:
    """The data files and vector files that `joined_rows` reads of a group, in the order in which it opens them."""
    apart = {*layout.schema.partition_keys, *(field.name for field in blob_fields(layout))}
    stored = [field for field in layout.fields if field.name not in apart]
    of_vectors = {field.name: files for field in stored if (files := files_of_vectors(field, group, schema_of))}
    joined = owners(group, [field for field in stored if field.name not in of_vectors], schema_of)
    return [*(file for file, _ in joined), *(file for files in of_vectors.values() for file in files)]
