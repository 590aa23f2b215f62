"""Bounds that nobody misreads: pypaimon and pyarrow find every row by filters over our statistics and indexes."""

from __future__ import annotations

import math
import operator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType, DataField

from pypaimon.streaming import stream_read_builder
from support.samples import seeded
from support.tables.handles import batch_table, create_table, read_with
from support.tables.sample_values import EDGES, edge_table, fill
from support.tables.written_rows import commit, stored

OPERATORS = {
    "equal": operator.eq, "not_equal": operator.ne, "less_than": operator.lt, "less_or_equal": operator.le,
    "greater_than": operator.gt, "greater_or_equal": operator.ge,
}  # fmt: skip
SIGNS = {"equal": "=", "less_than": "<", "greater_or_equal": ">="}
INDEXED = {"metadata.stats-mode": "none", "file-index.in-manifest-threshold": "1 mb"}
SAMPLES = 30


def edges(format_: str) -> list[str]:
    """The types of a table; without what is refused in ORC, or pypaimon cannot read of it."""
    left_out = ("FLOAT", "DOUBLE", "TIME") if format_ == "orc" else ()
    return [each for each in EDGES if not each.startswith(left_out)] if left_out else list(EDGES)


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_pypaimon_finds_every_row(warehouse: Any, format_: str) -> None:
    types = edges(format_)
    table = edge_table(warehouse, "t", types, {"file.format": format_})
    fill(table, types)
    check_filters(table, types, f"bounds of {format_}")


@pytest.mark.parametrize("kind", ["bitmap", "bloom-filter"])
def test_pypaimon_finds_every_row_with_file_indexes(warehouse: Any, kind: str) -> None:
    types = edges("avro")
    columns = ",".join(f"c{number}" for number in range(len(types)))
    options = {"file.format": "avro", **INDEXED, f"file-index.{kind}.columns": columns}
    options |= {f"file-index.{kind}.c{number}.items": "100" for number in range(len(types))}
    table = edge_table(warehouse, "t", types, options)
    fill(table, types)
    check_filters(table, types, kind)


def check_filters(table: Any, types: list[str], name: str) -> None:
    """Hold what pypaimon finds by filters against all that it reads."""
    source = seeded(name)
    rows = batch_table(table).sort_by("k")
    for _ in range(SAMPLES):
        number = source.randrange(len(types))
        column, given = f"c{number}", rows[f"c{number}"].to_pylist()
        method, literal = source.choice(list(OPERATORS)), source.choice([each for each in given if each is not None])
        test = OPERATORS[method]
        wanted = {key for key, value in enumerate(given) if value is not None and test(value, literal)}
        builder = table.new_read_builder()
        builder = builder.with_filter(getattr(builder.new_predicate_builder(), method)(column, literal))
        splits = builder.new_scan().plan().splits()
        found = set(builder.new_read().to_arrow(splits)["k"].to_pylist()) if splits else set()
        assert wanted <= found, (types[number], method, literal)


def test_pyarrow_finds_every_row_of_parquet_files(warehouse: Any) -> None:
    types = list(EDGES)
    table = edge_table(warehouse, "t", types, {"file.format": "parquet"})
    rows = fill(table, types)
    files = [file.file_path for split in table.new_read_builder().new_scan().plan().splits() for file in split.files]
    source = seeded("footers")
    for _ in range(SAMPLES // 3):
        number, sign = source.randrange(len(types)), source.choice(list(SIGNS))
        given = rows[f"c{number}"].to_pylist()
        literal = source.choice([each for each in given if each is not None])
        wanted = {key for key, each in enumerate(given) if each is not None and OPERATORS[sign](each, literal)}
        where = [(f"c{number}", SIGNS[sign].replace("=", "==") if sign == "equal" else SIGNS[sign], literal)]
        found = {key for path in files for key in pq.read_table(path, filters=where)["k"].to_pylist()}
        assert wanted <= found, (types[number], sign, literal)


def test_columns_that_readers_would_take_for_null_are_left_out(warehouse: Any) -> None:
    schema = pa.schema([("a", pa.float64()), ("b", pa.date32()), ("c", pa.int32()), ("d", pa.float32())])
    beyond_python = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    columns = [pa.array([math.nan]), beyond_python, pa.array([1], pa.int32()), pa.nulls(1, pa.float32())]
    row = pa.table(columns, schema=schema)
    for dense, told in (("true", ["c", "d"]), ("false", None)):
        table = create_table(warehouse, f"t_{dense}", schema, options={"metadata.stats-dense-store": dense})
        (message,) = commit(table, 1, *row.to_batches())
        assert message.new_files[0].value_stats_cols == told
        for where, count in (("a IS NOT NULL", 1), ("c = 1", 1), ("c = 2", 0), ("d IS NULL", 1)):
            builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_filter(where)
            with builder.open_sync() as stream:
                assert sum(batch.data.num_rows for batch in stream) == count, where


def test_statistics_and_indexes_of_char_in_orc_are_of_what_java_reads(warehouse: Any) -> None:
    options = {"file.format": "orc", "file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 mb"}
    columns = [DataField(0, "v", AtomicType("CHAR(5)"))]
    warehouse.create_table("db.t", Schema(fields=columns, options=options), False)
    table = warehouse.get_table("db.t")
    (message,) = commit(table, 1, pa.record_batch({"v": ["ab   ", "b"]}))
    (file,) = message.new_files
    assert (file.value_stats.min_values.values, file.value_stats.max_values.values) == (["ab"], ["b"])
    assert stored(file.file_path)["v"].to_pylist() == ["ab", "b"]
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_filter("v = 'ab'")
    assert read_with(builder) == [{"v": "ab"}]
