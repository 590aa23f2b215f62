"""Splits over real files, for tests of reading: files that pypaimon wrote, or that a test wrote beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.generic_row import GenericRow

from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.reading.read import StreamRead
from pypaimon.streaming.reading.read_layout import ReadSettings
from pypaimon.streaming.reading.read_parts import ReadParts
from support.tables.handles import current_files, write_by_pypaimon


def write(table: Any, rows: pa.Table) -> list[DataFileMeta]:
    """Commit rows with pypaimon; the new files."""
    known = {file.file_name for file in current_files(table)}
    write_by_pypaimon(table, rows)
    return [file for file in current_files(table) if file.file_name not in known]


def put(table: Any, name: str, rows: pa.Table, **changes: Any) -> DataFileMeta:
    """Put a file into bucket 0 of a table, without a commit: Parquet or ORC by its name."""
    path = Path(str(table.table_path)) / "bucket-0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".orc"):
        orc.write_table(rows, str(path), compression=changes.pop("compression", "zstd"))
    else:
        pq.write_table(rows, path, use_deprecated_int96_timestamps=changes.pop("int96", False))
    return meta(path, rows.num_rows, **changes)


def meta(path: Path, row_count: int, **changes: Any) -> DataFileMeta:
    """The manifest's view of a file."""
    key, stats = GenericRow([], []), SimpleStats.empty_stats()
    values: dict[str, Any] = {
        "file_name": path.name,
        "file_size": path.stat().st_size if path.exists() else 0,
        "row_count": row_count,
        "min_key": key,
        "max_key": key,
        "key_stats": stats,
        "value_stats": stats,
        "min_sequence_number": 0,
        "max_sequence_number": 0,
        "schema_id": 0,
        "level": 0,
        "extra_files": [],
        "delete_row_count": 0,
        "file_path": str(path),
    }
    return DataFileMeta(**(values | changes))


def records(kinds: Sequence[int], rows: pa.Table) -> pa.Table:
    """Rows as a primary-key data file holds them."""
    count = rows.num_rows
    system = {"_SEQUENCE_NUMBER": pa.array(range(count), pa.int64()), "_VALUE_KIND": pa.array(kinds, pa.int8())}
    return pa.table(system | {name: rows[name] for name in rows.column_names})


def split(mode: SplitMode, files: Sequence[DataFileMeta], **arguments: Any) -> StreamSplit:
    """A split of bucket 0 of a table without partitions."""
    return StreamSplit(mode, list(files), GenericRow([], []), 0, snapshot_id=1, **arguments)


def read_of(directory: TableDirectory, settings: ReadSettings) -> StreamRead:
    return StreamRead(directory.table, directory.store.pool.timeout, Lazy.of(ReadParts.of(directory, settings)))


def reader(table: Any, **settings: Any) -> StreamRead:
    """A read of a table with its own schema."""
    settings.setdefault("schema", table.table_schema)
    return read_of(TableDirectory.of(table), ReadSettings(**settings))
