"""`mode=files`: the files of a batch as rows, for Spark's own reader (`native_foreach_batch`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from pypaimon.spark.read.file_columns import column_of, row_kind_column, unsupported
from pypaimon.streaming.files.data_files import column_names, located
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.reading.query_auth import QueryAuth
from pypaimon.streaming.reading.split_files import partition_values
from pypaimon.streaming.spec.resolve import ResolvedStream

_FOOTERS_AT_ONCE = 16
_HIDDEN = ("_", ".")
_PLAIN_MODES = (SplitMode.ROWS, SplitMode.RECORDS, SplitMode.CHANGELOG)


def check_natively_readable(stream: ResolvedStream, splits: Iterable[StreamSplit]) -> None:
    """Check that Spark's reader gives exactly the rows of these splits.

    Raises:
        UnsupportedTableError: Files must be merged, hold deleted rows, share a file, or are no Parquet; or the catalog
            says which rows may be seen.
    """
    if QueryAuth.of(stream.directory) is not None:
        raise unsupported("the catalog restricts what may be seen of the table (query-auth.enabled)")
    for split in splits:
        if split.mode not in _PLAIN_MODES:
            raise unsupported(f"bucket {split.bucket} of snapshot {split.snapshot_id} is merged when it is read")
        if split.data_deletion_files is not None and any(split.data_deletion_files):
            raise unsupported(f"files of snapshot {split.snapshot_id} have deleted rows (deletion vectors)")
        for file in split.files:
            if not file.file_name.endswith(".parquet"):
                raise unsupported(f"{file.file_name} is not a plain Parquet file")
            if file.file_name.startswith(_HIDDEN):
                raise unsupported(f"{file.file_name} is hidden, by its name, from Spark")


def columns_of(
    stream: ResolvedStream,
    schema_id: int,
    *,
    kinds: bool,
    constants: Mapping[str, pa.Scalar] = MappingProxyType({}),
) -> str:
    """How the columns of the read schema come from a file of a schema, as JSON: the fields of `FileColumn` of each.

    Args:
        stream: The read.
        schema_id: The schema that the file was written with.
        kinds: Whether the file holds row kinds.
        constants: Partition columns that the file does not hold.

    Raises:
        UnsupportedTableError: Spark's Parquet reader does not read a column as Paimon does.
    """
    stored = {field.id: field for field in stream.directory.schema(schema_id).fields}
    columns = [row_kind_column(ROW_KIND, kinds)] if stream.includes_row_kind else []
    columns += [column_of(field, stored.get(field.id), constants) for field in stream.output_fields()]
    return json.dumps([asdict(column) for column in columns])


def file_rows(stream: ResolvedStream, splits: Iterable[StreamSplit]) -> list[dict[str, Any]]:
    """The rows of all files of splits. Footers of files that may lack partition columns are read, several at a time.

    Raises:
        PositionExpiredError: A file has expired.
        CorruptTableError: A file is missing or damaged.
        UnsupportedTableError: Spark's Parquet reader does not read a column as Paimon does.
    """
    uncertain = _uncertain_columns(stream)

    @cache
    def columns(schema_id: int, kinds: bool, constants: tuple[tuple[str, pa.Scalar], ...]) -> str:
        _refuse_shredded_maps(stream, schema_id)
        return columns_of(stream, schema_id, kinds=kinds, constants=dict(constants))

    def row(split: StreamSplit, file: DataFileMeta) -> dict[str, Any]:
        missing = _missing_columns(stream, split, file, uncertain)
        return {
            "path": for_spark(located(stream.directory, file.file_path)),
            "columns": columns(file.schema_id, split.mode is not SplitMode.ROWS, tuple(missing.items())),
            "snapshot_id": split.snapshot_id,
            "row_count": file.row_count,
            "file_size": file.file_size,
        }

    files = [(split, file) for split in splits for file in split.files]
    if not uncertain:
        return [row(*each) for each in files]
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "paimon-footers") as pool:
        return list(pool.map(lambda each: row(*each), files))


def _refuse_shredded_maps(stream: ResolvedStream, schema_id: int) -> None:
    """Maps that the schema stores as columns. Only the file knows of others, for which Spark reports what it finds."""
    schema = stream.directory.schema(schema_id)
    stored = {field.id: field.name for field in schema.fields}
    for name in (stored[field.id] for field in stream.output_fields() if field.id in stored):
        layout = option_keys.FIELDS_MAP_STORAGE_LAYOUT.of_field(name).of(schema.options)
        if layout.lower() == "shared-shredding":
            raise unsupported(f"column '{name}' is stored in the layout 'shared-shredding'")


def _uncertain_columns(stream: ResolvedStream) -> frozenset[str]:
    """Columns that files may be without: partition columns of append tables, whose files may have come from Hive."""
    if stream.traits.primary_key or not stream.schema.partition_keys:
        return frozenset()
    return frozenset(field.name for field in stream.output_fields()).intersection(stream.schema.partition_keys)


def _missing_columns(
    stream: ResolvedStream, split: StreamSplit, file: DataFileMeta, uncertain: frozenset[str]
) -> dict[str, pa.Scalar]:
    """Those of the uncertain columns that a file does not hold, and their values."""
    if not uncertain:
        return {}
    try:
        held = column_names(stream.directory, file)
    except FileNotFoundError as error:
        raise SnapshotRangeValidator(stream.directory, False).missing_file(split.snapshot_id, error) from error
    values = partition_values(split, stream.schema)
    return {name: value for name, value in values.items() if name in uncertain and name not in held}


def file_batches(stream: ResolvedStream, splits: Iterable[StreamSplit], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of all files of a task."""
    rows = file_rows(stream, splits)
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=target)


def for_spark(path: str) -> str:
    """A path as Hadoop's file systems spell it."""
    return "s3a://" + path[len("s3://") :] if path.startswith("s3://") else path
