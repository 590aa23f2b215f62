"""Partition columns come from the manifest, whatever the files hold."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import PyarrowFieldParser

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.paimon.internals import GenericRow, GenericRowSerializer
from support.tables.handles import create_table
from support.tables.stream_files import write

pytestmark = pytest.mark.slow

FORMATS = ("parquet", "orc", "avro")
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 250_000)
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), True),
    "int": (pa.int32(), -7),
    "bigint": (pa.int64(), 1 << 40),
    "double": (pa.float64(), 0.25),
    "decimal": (pa.decimal128(10, 2), Decimal("-12.34")),
    "string": (pa.string(), "a/b=c %"),
    "date": (pa.date32(), datetime.date(1969, 12, 31)),
    "millis": (pa.timestamp("ms"), BEFORE_1970),
    "micros": (pa.timestamp("us"), BEFORE_1970),
    "zoned": (pa.timestamp("ms", "UTC"), BEFORE_1970.replace(tzinfo=datetime.timezone.utc)),
    "null": (pa.string(), None),
}
# Of these pypaimon spells the directories otherwise than Java.
SPELLED_OTHERWISE: dict[str, tuple[pa.DataType, Any]] = {
    "binary": (pa.binary(), b"ab"),
    "no text": (pa.binary(), b"\xff\x00'"),
    "empty": (pa.binary(), b""),
    "infinite": (pa.float64(), float("-inf")),
    "no-break space": (pa.string(), "\xa0"),
}


def table_of(warehouse: Any, kind: pa.DataType, file_format: str, **options: str) -> Any:
    schema = pa.schema([("a", pa.int32()), ("p", kind), ("b", pa.string())])
    return create_table(warehouse, "t", schema, partition_keys=["p"], options={"file.format": file_format, **options})


def rows(table: Any, **settings: Any) -> list[dict[str, Any]]:
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True)
    if settings:
        builder.with_projection(settings["projection"])
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        return [row for plan in scan.stream_sync() for row in read.to_arrow(plan.splits()).to_pylist()]


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_of_every_type_are_those_that_were_written(warehouse: Any, name: str, file_format: str) -> None:
    kind, value = VALUES[name]
    table = table_of(warehouse, kind, file_format)
    write(table, pa.table({"a": [1, 2], "p": [value] * 2, "b": ["x", None]}, schema=_schema(table)))
    assert rows(table) == [{"a": 1, "p": value, "b": "x"}, {"a": 2, "p": value, "b": None}]
    assert rows(table, projection=["p"]) == [{"p": value}] * 2


def _schema(table: Any) -> pa.Schema:
    return PyarrowFieldParser.from_paimon_schema(table.fields)


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize("name", sorted(SPELLED_OTHERWISE))
def test_files_are_found_as_java_and_as_pypaimon_spell_their_partition(warehouse: Any, name: str, legacy: str) -> None:
    kind, value = SPELLED_OTHERWISE[name]
    table = table_of(warehouse, kind, "parquet", **{"partition.legacy-name": legacy})
    write(table, pa.table({"a": [1], "p": [value], "b": ["x"]}, schema=_schema(table)))
    expected = [{"a": 1, "p": value, "b": "x"}]
    assert rows(table) == expected
    partition = GenericRowSerializer.to_bytes(GenericRow([value], table.partition_keys_fields))
    paths = FilePaths.of(str(table.table_path), table.table_schema)
    java = Path(paths.partitions(pa.array([partition], pa.binary()))[0], "bucket-0")
    (path,) = Path(str(table.table_path)).glob("p=*/bucket-0/*")
    java.mkdir(parents=True, exist_ok=True)
    path.rename(java / path.name)
    assert rows(table) == expected
    (java / path.name).unlink()
    with pytest.raises(CorruptTableError, match=re.escape(str(java))):
        rows(table)


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_need_not_hold_them(warehouse: Any, file_format: str) -> None:
    """As those of tables that were taken over from Hive."""
    table = table_of(warehouse, pa.int32(), file_format)
    write(table, pa.table({"a": [1], "p": [5], "b": ["x"]}, schema=_schema(table)))
    (path,) = Path(str(table.table_path)).glob("p=5/bucket-0/*")
    _replace(path, pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
    assert rows(table) == [{"a": 1, "p": 5, "b": "x"}]


def _replace(path: Path, content: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(content, path)
    elif path.suffix == ".orc":
        orc.write_table(content, str(path))
    else:
        fields = [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": ["null", "string"]}]
        with path.open("wb") as out:
            fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, content.to_pylist())
