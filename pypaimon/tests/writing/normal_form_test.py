"""One normal form of Arrow data: rows come out of every format as they went in, whatever layout they had."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction.compactor import compact
from pypaimon.streaming.errors import BadRowError
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.registry import new_file
from pypaimon.streaming.model.normal_form import normal_array, normal_table
from pypaimon.streaming.targets.lakes.lake_table import fitted_to_delta, fitted_to_iceberg
from support.samples import seeded
from support.tables.handles import create_table
from support.tables.sample_values import ArrowRows

SAMPLES = 150
READERS = {"parquet": pq.read_table, "orc": orc.read_table}


def samples(name: str) -> Iterator[tuple[pa.Field, list[Any], list[pa.Array]]]:
    """Fields, rows, and these in some layouts."""
    source = seeded(name)
    drawn = ArrowRows(source)
    for _ in range(SAMPLES):
        field = drawn.field(source.randint(1, 4))
        chunks = [drawn.rows(field) for _ in range(source.randint(1, 2))]
        arrays = [drawn.laid_out(rows, field) for rows in chunks]
        yield field, [row for rows in chunks for row in rows], arrays


def check_normal(array: pa.Array, field: pa.Field, seen: list[bool]) -> None:
    """What the docstring of the module says."""
    kind = array.type
    valid = array.is_valid().to_pylist()
    held = [shown and there for shown, there in zip(seen, valid, strict=True)]
    if field.nullable:
        assert held == valid
    else:
        assert all(valid)
    if pa.types.is_nested(kind) or (field.nullable and not all(seen)):
        assert array.offset == 0
    if pa.types.is_struct(kind):
        for number, part in enumerate(kind):
            check_normal(array.field(number), part, held)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        sizes = [len(row) if shown else 0 for row, shown in zip(array.to_pylist(), held, strict=True)]
        assert array.offsets.to_pylist() == [sum(sizes[:row]) for row in range(len(array) + 1)]
        assert len(array.values) == sum(sizes)
        if pa.types.is_map(kind):
            check_normal(array.items, kind.item_field, [True] * sum(sizes))
        else:
            check_normal(array.values, kind.value_field, [True] * sum(sizes))


def test_any_layout_becomes_the_normal_one() -> None:
    for field, rows, chunks in samples("normal form"):
        found = []
        for chunk in chunks:
            normal = normal_array(chunk, field)
            normal.validate(full=True)
            assert normal.type == field.type
            check_normal(normal, field, [True] * len(normal))
            assert normal_array(normal, field) is normal
            found += normal.to_pylist()
        assert found == rows, field


@pytest.mark.parametrize("format_", READERS)
def test_pyarrow_reads_what_was_written(format_: str) -> None:
    for field, rows, chunks in samples(f"normal form in {format_}"):
        stream, schema = io.BytesIO(), pa.schema([field])
        made = new_file(format_, stream, schema, WriteSettings("none"))
        for chunk in chunks:
            given = pa.Table.from_arrays([chunk], names=["c"])
            made.write(normal_table(given, made.schema))
        made.close()
        stored = READERS[format_](io.BytesIO(stream.getvalue()))
        # ORC has times as numbers.
        found = normal_table(stored, made.schema).column(0).cast(made.schema.field(0).type)
        expected = pa.chunked_array([pa.array(rows, field.type)]) if rows else pa.chunked_array([], field.type)
        assert found.to_pylist() == normal_table(pa.table([expected], names=["c"]), made.schema).column(0).to_pylist()


@pytest.mark.parametrize("fitted", [fitted_to_delta, fitted_to_iceberg])
def test_tables_of_others_get_it_too(fitted: Callable[[pa.Table], pa.Table]) -> None:
    leaves = [pa.int32(), pa.string(), pa.decimal128(20, 2), pa.timestamp("us")]
    drawn = ArrowRows(seeded(fitted.__name__), leaves, null_types=False)
    for depth in range(40):
        field = drawn.field(1 + depth % 4)
        rows = drawn.rows(field)
        (column,) = fitted(pa.table([drawn.laid_out(rows, field)], names=["c"])).columns
        assert column.to_pylist() == rows
        for chunk in column.chunks:
            check_normal(chunk, pa.field("c", column.type), [True] * len(chunk))


@pytest.mark.parametrize("keys", [[], ["k"]], ids=["append", "keyed"])
@pytest.mark.parametrize("format_", ["parquet", "orc", "avro", "row"])
def test_tables_hold_what_was_written(warehouse: Any, format_: str, keys: list[str]) -> None:
    source = seeded(f"{format_} {keys}")
    drawn = ArrowRows(source)
    columns = [drawn.field(source.randint(1, 4), f"c{number}") for number in range(12)]
    schema = pa.schema([pa.field("k", pa.int64(), False), *columns])
    options = {
        "file.format": format_,
        "bucket": "1" if keys else "-1",
        "changelog-producer": "input" if keys else "none",
    }
    table = create_table(warehouse, "t", schema, primary_keys=keys, options=options)
    rows = list[dict[str, Any]]()
    with stream_write_builder(table).open_sync() as writer:
        for first in (0, 10):
            new = [{"k": key, **{each.name: drawn.value(each) for each in columns}} for key in range(first, first + 8)]
            arrays = [drawn.laid_out([row[field.name] for row in new], field) for field in columns]
            writer.write(pa.table([pa.array([row["k"] for row in new]), *arrays], names=schema.names))
            writer.commit()
            rows += new
    changes = stream_read_builder(table).with_start("earliest").with_end(latest=True)
    state = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    assert found_by(changes, schema) == rows
    assert found_by(state, schema) == rows
    compact(table, full=True)
    assert found_by(state, schema) == rows


def found_by(builder: Any, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows that a stream hands out, by their keys."""
    with builder.open_sync() as stream:
        rows = [row for batch in stream for row in batch.data.select(schema.names).to_pylist()]
    return sorted(rows, key=lambda row: int(row["k"]))


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (pa.struct([pa.field("x", pa.int32(), False)]), [{"x": 1}, {"x": None}], r"null in it \('v\.x'\)"),
        (pa.list_(pa.field("element", pa.int32(), False)), [[1], [None]], r"null in it \('v\.element'\)"),
        (pa.int32(), [1, 2**40], "is INT, and a row does not fit: Integer value 1099511627776"),
    ],
    ids=["row", "list", "number"],
)
def test_a_value_that_may_not_be_is_an_error_of_the_row(
    warehouse: Any, format_: str, kind: pa.DataType, values: list[Any], message: str
) -> None:
    table = create_table(warehouse, "t", pa.schema([("v", kind)]), options={"file.format": format_})
    given = pa.array(values, pa.int64() if kind == pa.int32() else kind)
    with stream_write_builder(table).open_sync() as writer:
        with pytest.raises(BadRowError, match=f"Column 'v' of db.t .*{message}") as caught:
            writer.write(pa.table({"v": given}))
        assert not caught.value.retriable
        writer.write(pa.table({"v": given.slice(0, 1)}))
        assert writer.commit().written.rows == 1


def test_what_an_encoder_refuses_names_column_and_file_and_leaves_nothing(warehouse: Any) -> None:
    schema = pa.schema([("k", pa.int32()), ("v", pa.string()), ("w", pa.string())])
    table = create_table(warehouse, "t", schema, options={"file.format": "avro"})
    no_text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    with stream_write_builder(table).open_sync() as writer:
        writer.write(pa.table([[1], no_text, ["a"]], schema=schema))
        with pytest.raises(BadRowError, match=r"Column 'v' cannot be written to .*data-.*\.avro: a row does not fit"):
            writer.commit()
    assert not list(Path(str(table.table_path)).rglob("*.avro"))
    assert not list(Path(str(table.table_path)).glob("snapshot/snapshot-*"))


def test_entries_of_a_map_may_begin_anywhere_in_their_arrays() -> None:
    """Arrays that other libraries hand over have an offset in the entries, and not in the map."""
    entries = pa.array([{"key": key, "value": at} for at, key in enumerate("abc")], PAIRS)[1:]
    arrow = pa.map_(pa.string(), pa.int64())
    given = pa.Array.from_buffers(arrow, 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1]], children=[entries])
    wanted = pa.map_(pa.string(), pa.int32())
    assert normal_array(given, pa.field("m", wanted)).to_pylist() == [[("b", 1)], [("c", 2)]]


PAIRS = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.int64())])
