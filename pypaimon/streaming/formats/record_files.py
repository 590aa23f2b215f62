"""Metadata files of records, in Avro, ORC or Parquet.

The format is recognised by the first bytes, because the table's `manifest.format` may change.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet

from pypaimon.streaming.formats import avro_container

Records: TypeAlias = avro_container.Container | pa.Table

# From this many records on polars is faster than fastavro, including the import.
_MANY = 100
_MOST_BYTES = 1 << 30
_TOO_MUCH = "it holds more than 1 GiB"
_ROWS_AT_ONCE = 1 << 12


def parse(data: bytes) -> Records:
    """Open a file. Raises ValueError if the file is damaged, of an unknown format, or holds more than 1 GiB."""
    try:
        if data.startswith(b"PAR1"):
            file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
            groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
            if sum(group.total_byte_size for group in groups) > _MOST_BYTES:
                raise ValueError(_TOO_MUCH)
            batches = file.iter_batches(_ROWS_AT_ONCE, use_threads=False)
            return pa.Table.from_batches(_bounded(batches), file.schema_arrow)
        if data.startswith(b"ORC"):
            return pa.Table.from_batches(_bounded(_orc_stripes(data)))
    except (ValueError, pa.ArrowException, OSError) as error:
        raise ValueError(f"not a sound file of records: {error}") from error
    return avro_container.parse(data)


def _bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        # A value that the file stores once counts in each row.
        size += batch.nbytes
        if size > _MOST_BYTES:
            raise ValueError(_TOO_MUCH)
        yield batch


def _orc_stripes(data: bytes) -> Iterator[pa.RecordBatch]:
    from pypaimon.streaming.formats.orc_reader import OrcFileReader

    source = OrcFileReader(io.BytesIO(data))
    yield pa.RecordBatch.from_pylist([], source.schema)
    yield from source.batches(source.schema.names, _ROWS_AT_ONCE)


def count(records: Records) -> int:
    return records.num_rows if isinstance(records, pa.Table) else records.count


def size(records: Records) -> int:
    return records.nbytes if isinstance(records, pa.Table) else sum(len(block) for _, block in records.blocks)


def to_arrow(records: Records, paths: Collection[str]) -> pa.Table | None:
    """The records as columns; None if `to_records` is faster.

    Args:
        paths: The fields to read, such as `_FILE._FILE_NAME`: each is a column of that name, or within a column with
            the name of an outer record. Missing fields are left out.
    """
    if isinstance(records, pa.Table):
        return records
    return avro_container.to_arrow(records, paths) if records.count >= _MANY else None


def to_records(records: Records) -> list[dict[str, Any]]:
    return records.to_pylist() if isinstance(records, pa.Table) else avro_container.to_records(records)
