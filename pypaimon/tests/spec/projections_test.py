"""`with_projection({...})`, `with_read_type` and the constructor of `StreamTableRead`, beside what pypaimon gives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.predicate import Predicate
from pypaimon.read.table_read import TableRead
from pypaimon.schema.data_types import AtomicType, DataField, RowType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    SchemaChangedError,
    StreamConfigError,
    StreamReadBuilder,
    StreamTableRead,
    stream_read_builder,
)
from support.tables.streamed_table import Table, available, rows

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
ROW = pa.struct([("a", pa.int64()), ("b", INNER), ("c", pa.string())])
COLUMNS = pa.schema([("k", pa.int64()), ("r", ROW), ("v", pa.string())])
VALUES = [
    {"k": 1, "r": {"a": 10, "b": {"x": 100, "y": "p"}, "c": "c1"}, "v": "v1"},
    {"k": 2, "r": None, "v": "v2"},
    {"k": 3, "r": {"a": None, "b": None, "c": "c3"}, "v": None},
    {"k": 4, "r": {"a": 40, "b": {"x": None, "y": "q"}, "c": None}, "v": "v4"},
]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    made = Table(tmp_path, columns=COLUMNS)
    made.write(pa.Table.from_pylist(VALUES, schema=COLUMNS))
    return made.handle()


def field(table: Any, name: str) -> DataField:
    return next(each for each in table.fields if each.name == name)


def part_of_r(table: Any, *names: str) -> DataField:
    """The column r with these fields alone."""
    whole = field(table, "r")
    inside = {each.name: each for each in whole.type.fields}
    return DataField(whole.id, "r", RowType(True, [inside[name] for name in names]))


def ours(builder: StreamReadBuilder) -> pa.Table:
    with builder.new_streaming_scan() as scan:
        return builder.new_read().to_arrow(scan.plan().splits())  # type: ignore[union-attr]


def theirs(builder: Any) -> pa.Table:
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


@pytest.mark.parametrize(
    "projection",
    [
        {"key": "k"},
        {"value": "v", "key": "k"},
        {"key": "k", "again": "k"},
        {"x": "r.b.x", "c": "r.c", "k": "k"},
        {"row": "r", "a": "r.a"},
        ["v", "k"],
        ["r.c", "r.b.x", "v"],
        ["r"],
    ],
)
def test_columns_come_out_as_from_pypaimon(table: Any, projection: Any) -> None:
    wanted = theirs(table.new_read_builder().with_projection(projection))
    found = ours(stream_read_builder(table).with_projection(projection))
    assert found.schema.names == wanted.schema.names
    assert found.to_pylist() == wanted.to_pylist()


def test_a_read_type_keeps_rows_and_their_order(table: Any) -> None:
    found = ours(stream_read_builder(table).with_read_type([field(table, "v"), part_of_r(table, "c", "a")]))
    assert found.schema.names == ["v", "r"]
    assert [each.name for each in found.schema.field("r").type] == ["c", "a"]
    assert found.to_pylist() == [
        {"v": row["v"], "r": None if row["r"] is None else {"c": row["r"]["c"], "a": row["r"]["a"]}} for row in VALUES
    ]


@pytest.mark.parametrize("names", [("k",), ("v", "k"), ("r", "k"), ("k", "r", "v")])
def test_a_read_type_of_whole_columns_is_as_from_pypaimon(table: Any, names: tuple[str, ...]) -> None:
    read_type = [field(table, name) for name in names]
    wanted = theirs(table.new_read_builder().with_read_type(read_type))
    found = ours(stream_read_builder(table).with_read_type(read_type))
    assert found.schema.names == wanted.schema.names == list(names)
    assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("projection", [None, ["v", "k"], ["r.c", "k", "r.b.x"], {"z": "r.a", "k2": "k"}])
def test_the_read_type_is_pypaimons(table: Any, projection: Any) -> None:
    mine, other = stream_read_builder(table), table.new_read_builder()
    if projection is not None:
        mine, other = mine.with_projection(projection), other.with_projection(projection)
    told = [(each.id, each.name) for each in other.read_type()]
    assert [(each.id, each.name) for each in mine.read_type()] == told
    assert list(map(str, mine.read_type()[-1:])) == list(map(str, mine.new_read().read_type[-1:]))
    predicate = mine.new_predicate_builder().greater_than("k", 1)
    assert [each.name for each in mine.with_filter(predicate).read_type()] == [name for _, name in told]


def test_what_a_builder_reads_another_takes(table: Any) -> None:
    builder = stream_read_builder(table).with_projection(["r.c", "k", "r.b.y"])
    again = stream_read_builder(table).with_read_type(builder.read_type())
    assert again.read_type() == builder.read_type()
    assert ours(again).to_pylist()[0] == {"r": {"c": "c1", "b": {"y": "p"}}, "k": 1}


def test_a_filter_looks_at_fields_that_do_not_come_out(table: Any) -> None:
    builder = stream_read_builder(table).with_read_type([part_of_r(table, "c")])
    parts = [Predicate("greaterThan", None, "r.a", [10]), Predicate("equal", None, "v", ["v4"])]
    builder.with_filter(Predicate("and", None, None, parts))
    assert ours(builder).to_pylist() == [{"r": {"c": None}}]


def test_the_last_of_both_setters_counts(table: Any) -> None:
    builder = stream_read_builder(table).with_projection({"a": "k"}).with_read_type([field(table, "v")])
    assert ours(builder).schema.names == ["v"]
    assert ours(builder.with_projection({"a": "k"})).schema.names == ["a"]
    assert ours(builder.with_projection(["k"])).schema.names == ["k"]
    assert ours(builder.with_projection(None)).schema.names == ["k", "r", "v"]


WRONG: dict[str, Any] = {
    "empty mapping": lambda b: b.with_projection({}),
    "no column": lambda b: b.with_projection({"a": "nope"}),
    "no name": lambda b: b.with_projection({"": "k"}),
    "number as name": lambda b: b.with_projection({1: "k"}),
    "number as column": lambda b: b.with_projection({"a": 1}),
    "reserved": lambda b: b.with_projection({"_row_kind": "k"}),
    "expression": lambda b: b.with_projection({"a": "variant_get(v, '$.x', 'float')"}),
    "read type of names": lambda b: b.with_read_type(["k"]),
    "read type of nothing": lambda b: b.with_read_type(None),
    "read type twice": lambda b: b.with_read_type([DataField(0, "k", AtomicType("BIGINT"))] * 2),
    "read type elsewhere": lambda b: b.with_read_type([DataField(0, "nope", AtomicType("BIGINT"))]),
    "read type of another type": lambda b: b.with_read_type([DataField(0, "k", AtomicType("INT"))]),
    "read type with another field": lambda b: b.with_read_type(
        [DataField(1, "r", RowType(True, [DataField(9, "nope", AtomicType("INT"))]))]
    ),
    "read type with a field of another type": lambda b: b.with_read_type(
        [DataField(1, "r", RowType(True, [DataField(2, "a", AtomicType("STRING"))]))]
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_refused(table: Any, case: str) -> None:
    with pytest.raises(StreamConfigError, match=r"with_projection|with_read_type"):
        WRONG[case](stream_read_builder(table))


async def test_on_an_event_loop_the_first_plan_refuses_it(table: Any) -> None:
    builder = stream_read_builder(table).with_read_type([DataField(0, "k", AtomicType("INT"))])
    with pytest.raises(StreamConfigError, match="'k' is BIGINT, not INT"):
        await builder.new_streaming_scan().plan_async()


def test_names_stay_where_a_column_is_renamed(tmp_path: Path) -> None:
    table = Table(tmp_path / "s").commit_each([1])
    builder = table.builder().with_projection({"value": "v"}).with_on_schema_change("follow").with_start("earliest")
    dropped = table.builder().with_projection({"key": "k"}).with_on_schema_change("follow").with_start("earliest")
    table.catalog.alter_table(table.name, [SchemaChange.rename_column("v", "w")], False)
    table.write(pa.table({"k": [2], "w": ["v2"]}), table=table.handle())
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        found = [row for plan in available(scan) for row in read.to_arrow(plan.splits()).to_pylist()]
    assert found == [{"value": "v1"}, {"value": "v2"}]
    table.catalog.alter_table(table.name, [SchemaChange.drop_column("k")], False)
    table.write(pa.table({"w": ["v3"]}), table=table.handle())
    with pytest.raises(SchemaChangedError), dropped.new_streaming_scan() as scan:
        available(scan)


@pytest.mark.parametrize("view", ["audit_log", "binlog"])
def test_in_a_log_the_row_kind_and_columns_go_by_any_name(table: Any, view: Any) -> None:
    renamed = ours(stream_read_builder(table, view).with_projection({"kind": "rowkind", "key": "k"}))
    assert renamed.column_names == ["kind", "key"]
    keys = [row["k"] if view == "audit_log" else [row["k"]] for row in VALUES]
    assert renamed.to_pylist() == [{"kind": "+I", "key": key} for key in keys]
    taken = ours(stream_read_builder(table, view).with_projection({"rowkind": "k", "_ROW_ID": "k"}))
    assert taken.to_pylist() == [{"rowkind": key, "_ROW_ID": key} for key in keys]


def test_a_column_of_the_table_may_be_called_as_that_of_a_log(tmp_path: Path) -> None:
    table = Table(tmp_path, columns=pa.schema([("k", pa.int64()), ("rowkind", pa.string())]))
    table.commit([(1, "x"), (2, "y")])
    reader = stream_read_builder(table.handle())
    assert ours(reader).to_pylist() == [{"k": 1, "rowkind": "x"}, {"k": 2, "rowkind": "y"}]
    reader.with_filter(reader.new_predicate_builder().equal("rowkind", "y"))
    assert ours(reader).to_pylist() == [{"k": 2, "rowkind": "y"}]


def test_the_constructor_is_pypaimons(table: Any) -> None:
    builder = stream_read_builder(table)
    with builder.new_streaming_scan() as scan:
        splits = scan.plan().splits()  # type: ignore[union-attr]
    predicate = builder.new_predicate_builder().greater_than("k", 2)
    read_type = [field(table, "v"), field(table, "k")]
    read = StreamTableRead(table, predicate, read_type)
    assert isinstance(read, TableRead)
    wanted = TableRead(table, predicate, read_type).to_arrow(splits)
    for each in (read, pickle.loads(pickle.dumps(read))):
        assert type(each) is StreamTableRead
        assert each.to_arrow(splits).to_pylist() == wanted.to_pylist() == [{"v": None, "k": 3}, {"v": "v4", "k": 4}]
    with_kind = StreamTableRead(table, predicate=None, read_type=[field(table, "k")], include_row_kind=True)
    assert with_kind.to_arrow(splits).to_pylist()[0] == {"_row_kind": "+I", "k": 1}
    assert type(builder.new_read()) is StreamTableRead


@pytest.mark.parametrize("projection", [{"z": "r.b.x", "a": "k"}, ["r.c", "k"]])
def test_the_constructor_takes_pypaimons_output_projection(table: Any, projection: Any) -> None:
    builder = table.new_read_builder().with_projection(projection)
    wanted = builder.new_read()
    read = StreamTableRead(
        table, None, builder.read_type(), output_projection=wanted.output_projection, limit=wanted.limit
    )
    with stream_read_builder(table).new_streaming_scan() as scan:
        splits = scan.plan().splits()  # type: ignore[union-attr]
    assert read.to_arrow(splits).to_pylist() == theirs(builder).to_pylist()


def test_the_constructor_refuses_what_a_stream_cannot_do(table: Any, tmp_path: Path) -> None:
    with pytest.raises(StreamConfigError, match="limit=5"):
        StreamTableRead(table, None, None, limit=5)
    keyed = Table(tmp_path / "p", primary_key=True)
    keyed.commit([1, ("-D", 1, "v1")])
    handle = keyed.handle()
    predicate = keyed.builder().new_predicate_builder().equal("v", "v1")
    with pytest.raises(StreamConfigError, match="include the row kind"):
        StreamTableRead(handle, predicate, handle.fields)
    with keyed.builder().with_start("earliest").new_streaming_scan() as scan:
        plans = available(scan)
    read = StreamTableRead(handle, predicate, handle.fields, include_row_kind=True)
    assert [kind for plan in plans for kind, _, _ in rows(read, plan)] == ["-D"]
