"""A format is one entry of the registry: tables are written, compacted and read in it, and messages name it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction.compactor import compact
from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.formats.file_format import FileContext, Format, WriteSettings
from pypaimon.streaming.formats.registry import FORMATS, WRITABLE
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.record_writer import RecordWriter
from support.tables.handles import create_table, current_files, read_with

COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string())])
OPTIONS = {"file.format": "feather", "bucket": "-1", "compaction.min.file-num": "2"}


class FeatherReader:
    def __init__(self, stream: Any, context: FileContext) -> None:
        self._table = pa.ipc.open_file(pa.BufferReader(stream.read())).read_all()
        self.schema = self._table.schema
        self.num_rows = self._table.num_rows

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(columns)).to_batches(batch_size)


class FeatherWriter:
    def __init__(self, stream: Any, schema: pa.Schema, settings: WriteSettings) -> None:
        self.schema = schema
        self._stream = stream
        self._writer = pa.ipc.new_file(pa.PythonFile(stream, "w"), schema)

    def write(self, data: pa.Table) -> None:
        self._writer.write_table(data)

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def feather(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Format("feather", FeatherReader, FeatherWriter, nanoseconds=False)
    for registry in (FORMATS, WRITABLE):
        monkeypatch.setitem(registry, "feather", added)


@pytest.mark.slow
@pytest.mark.usefixtures("feather")
def test_a_table_is_written_compacted_and_read_in_a_format_that_was_added(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options=OPTIONS)
    with stream_write_builder(table).open_sync() as writer:
        for number in range(3):
            writer.write(pa.table({"k": [number], "s": [f"text {number}"]}, schema=COLUMNS))
            writer.commit()
    assert {Path(file.file_path).suffix for file in current_files(table)} == {".feather"}
    assert compact(table, full=True).new_snapshot_ids
    (file,) = current_files(table)
    rows = [row["k"] for row in read_with(stream_read_builder(table).with_start("latest-full").with_end(latest=True))]
    assert sorted(rows) == [0, 1, 2]
    Path(file.file_path).write_bytes(b"damaged")
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    with pytest.raises(CorruptTableError, match=file.file_name), builder.open_sync() as stream:
        list(stream)


@pytest.mark.usefixtures("feather")
def test_what_a_format_that_was_added_cannot_hold_is_refused(warehouse: Any) -> None:
    columns = pa.schema([("t", pa.timestamp("ns"))])
    table = create_table(warehouse, "t", columns, options=OPTIONS)
    with pytest.raises(UnsupportedTableError, match=r"Feather holds no nanoseconds.* Set it to parquet or orc"):
        RecordWriter(PaimonTable(table), "user", False)


def test_a_format_that_is_read_only_is_not_written(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options={"file.format": "lance"})
    with pytest.raises(UnsupportedTableError, match=r"'lance' cannot be written\. Set one of parquet, orc, avro, row"):
        RecordWriter(PaimonTable(table), "user", False)
