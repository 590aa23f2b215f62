"""Rows that a record writer takes, and the files that come of them, counted anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.writing.record_writer import RecordWriter

KINDS = ("+I", "-U", "+U", "-D")


def rows_of(schema: pa.Schema, rows: Sequence[Sequence[Any]], kinds: Sequence[int] | None = None) -> pa.RecordBatch:
    """A batch as the writer takes it."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if kinds is None:
        return batch
    return batch.append_column(pa.field(VALUE_KIND, pa.int8(), nullable=False), pa.array(kinds, pa.int8()))


def write(table: Any, *batches: pa.RecordBatch, user: str = "user", **settings: Any) -> list[Any]:
    """Commit messages of a writer that takes these batches."""
    writer = RecordWriter(PaimonTable(table), user, settings.pop("overwrite", False), **settings)
    for batch in batches:
        writer.write(batch)
    messages = writer.prepare()
    writer.close()
    return messages


def commit(table: Any, identifier: int, *batches: pa.RecordBatch, user: str = "user", **settings: Any) -> list[Any]:
    messages = write(table, *batches, user=user, **settings)
    overwrite = bool(settings.get("overwrite", False))
    commit_once(CommitRequest(PaimonTable(table), user, identifier, messages, overwrite=overwrite))
    return messages


def stored(path: Any) -> pa.Table:
    """The columns of a file, whatever its format."""
    name = str(path)
    if name.endswith(".parquet"):
        return pq.read_table(name, partitioning=None)
    if name.endswith(".orc"):
        return orc.read_table(name)
    with open(name, "rb") as file:
        return pa.Table.from_pylist(list(fastavro.reader(file)))


def recount(table: Any, file: Any) -> None:
    """Hold the metadata of a file against the file."""
    data = stored(file.file_path)
    size = TableDirectory.of(table).table.file_io.get_file_size(file.file_path)
    assert file.file_size == size
    assert file.row_count == data.num_rows > 0
    assert (file.level, file.file_source, file.schema_id) == (0, 0, table.table_schema.id)
    keys = table.trimmed_primary_keys
    if keys:
        numbers = data[SEQUENCE_NUMBER].to_pylist()
        assert (file.min_sequence_number, file.max_sequence_number) == (min(numbers), max(numbers))
        assert file.delete_row_count == sum(kind in (1, 3) for kind in data[VALUE_KIND].to_pylist())
        first, last = data.slice(0, 1).to_pylist()[0], data.slice(data.num_rows - 1).to_pylist()[0]
        assert list(file.min_key.values) == [first[key] for key in keys]
        assert list(file.max_key.values) == [last[key] for key in keys]
    else:
        assert file.max_sequence_number - file.min_sequence_number + 1 == data.num_rows
        assert file.delete_row_count == 0
    told = [field.name for field in table.fields] if file.value_stats_cols is None else file.value_stats_cols
    for position, name in enumerate(told):
        column = _typed(data[name], next(field.type for field in table.fields if field.name == name))
        assert file.value_stats.null_counts[position] == column.null_count
        least, greatest = (row.values[position] for row in (file.value_stats.min_values, file.value_stats.max_values))
        there = [value for value in column.to_pylist() if value is not None]
        if least is not None:
            assert all(least <= value <= greatest for value in there)


def _typed(column: pa.ChunkedArray, kind: Any) -> pa.ChunkedArray:
    """A column as the table has it: ORC files have no times, Avro's are read as Python has them."""
    wanted = arrow_type(kind)
    return column if pa.types.is_nested(wanted) else column.cast(wanted)
