"""Columns of a table of DuckDB follow those of the Paimon table by the ids of their fields, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import DuckDBTarget, StreamConfigError, replicate
from pypaimon.streaming.paimon.internals import PyarrowFieldParser
from support.tables.copied_table import COLUMNS, KEYS, batches, followed, held, keyed, rows_of, stream
from support.tables.handles import write_by_stream
from support.tables.streamed_table import COLUMNS as COLUMN_TYPES
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

INT, BIGINT, TEXT = AtomicType("INT"), AtomicType("BIGINT"), AtomicType("STRING")
CHANGES: list[tuple[str, list[Any], Callable[[int], dict[str, Any]]]] = [
    ("added", [SchemaChange.add_column("more", TEXT)], lambda key: {"v": f"v{key}", "more": "m"}),
    ("renamed", [SchemaChange.rename_column("v", "u")], lambda key: {"u": f"v{key}"}),
    ("widened", [SchemaChange.update_column_type("n", BIGINT)], lambda key: {"v": f"v{key}", "n": 2**40}),
    ("dropped", [SchemaChange.drop_column("v")], lambda _: {}),
    (
        "dropped and added again",
        [SchemaChange.drop_column("v"), SchemaChange.add_column("v", TEXT)],
        lambda key: {"v": f"new {key}"},
    ),
    (
        "swapped",
        [
            SchemaChange.rename_column("v", "tmp"),
            SchemaChange.rename_column("w", "v"),
            SchemaChange.rename_column("tmp", "w"),
        ],
        lambda key: {"v": "of w", "w": "of v"},
    ),
]


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "two runs"])
@pytest.mark.parametrize(("changes", "row"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_columns_follow_those_of_the_table(
    tmp_path: Path, changes: list[Any], row: Callable[[int], dict[str, Any]], restarts: bool
) -> None:
    """With `on_schema_change="follow"`, and over a restart with the newer schema."""
    source = Table(tmp_path / "warehouse")
    source.catalog.alter_table(source.name, [SchemaChange.add_column("n", INT), SchemaChange.add_column("w", TEXT)])
    wide = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int32()), ("w", pa.string())])
    rows = pa.Table.from_pylist([{"k": key, "v": f"v{key}", "n": key, "w": f"w{key}"} for key in range(3)], schema=wide)
    source.write(rows, table=source.handle())
    builder = source.builder().with_on_schema_change("follow").with_end(latest=True)
    database = duckdb.connect()
    if restarts:
        followed(database, source.builder().with_end(latest=True))
        position = DuckDBTarget(database, "copy", KEYS).load_position()
        assert position is not None
        builder.with_start(position=position)
    else:
        builder.with_start("earliest").with_catch_up("replay")
    for change in changes:
        source.catalog.alter_table(source.name, [change])
    names = [field.name for field in source.handle().fields]
    kinds = {"k": pa.int64(), "n": pa.int64() if 2**40 in row(0).values() else pa.int32()}
    columns = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    source.write(
        pa.Table.from_pylist([{"k": key, **row(key)} for key in (1, 5)], schema=columns), table=source.handle()
    )
    target = DuckDBTarget(database, "copy", KEYS)
    for batch in batches(builder):
        target.apply(batch)
    assert held(database, names) == sorted(_last(source, names), key=str)


def _last(source: Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The last row of each key."""
    found: dict[int, tuple[Any, ...]] = {}
    for batch in batches(source.builder().with_end(latest=True)):
        for row in batch.rows.to_pylist():
            found[row["k"]] = tuple(row[name] for name in names)
    return list(found.values())


ROWS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.string()),
        ("w", pa.string()),
        ("r", pa.struct([("x", pa.int32())])),
    ]
)
SWAP = CHANGES[-1][1]


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (["k", "r.x"], [SchemaChange.rename_column(["r", "x"], "z")], ["k", "r.z"]),
        (["k", "r.x"], [SchemaChange.rename_column("r", "s")], ["k", "s.x"]),
        (["k", "r.x"], [SchemaChange.add_column("r_x", TEXT)], ["k", "r.x"]),
        ({"k": "k", "v": "w"}, [SchemaChange.rename_column("v", "u")], {"k": "k", "v": "w"}),
        ({"k": "k", "v": "w"}, [SchemaChange.drop_column("v")], {"k": "k", "v": "w"}),
        (
            {"k": "k", "v": "w"},
            [SchemaChange.drop_column("v"), SchemaChange.add_column("v", TEXT)],
            {"k": "k", "v": "w"},
        ),
        ({"k": "k", "v": "w", "w": "v"}, SWAP, {"k": "k", "v": "v", "w": "w"}),
    ],
)
def test_columns_with_other_names_than_their_fields_follow_those(
    tmp_path: Path, before: Any, changes: list[Any], after: Any
) -> None:
    """Not the columns of the table that have these names."""
    source = Table(tmp_path, columns=ROWS, primary_keys=["k"], bucket="1")
    written = pa.Table.from_pylist([{"k": 1, "v": "of v", "w": "of w", "r": {"x": 5}}], ROWS)
    source.write(written, by=write_by_stream)
    with duckdb.connect() as database:
        target = DuckDBTarget(database, "copy", KEYS)
        replicate(source.builder().with_projection(before).with_end(latest=True), target)
        for change in changes:
            source.catalog.alter_table(source.name, [change])
        latest = source.handle()
        columns = PyarrowFieldParser.from_paimon_schema(latest.table_schema.fields)
        more = {each.name: {each.type[0].name: 6} if pa.types.is_struct(each.type) else "new" for each in columns}
        source.write(pa.Table.from_pylist([more | {"k": 2}], columns), table=latest, by=write_by_stream)
        stream = source.builder().with_projection(after).with_end(latest=True)
        replicate(stream, target)
        (state,) = batches(stream.with_include_row_kind(False))
        names = state.rows.schema.names
        assert held(database, names) == sorted((tuple(row.values()) for row in state.rows.to_pylist()), key=str)


@pytest.mark.parametrize(("columns", "message"), [(COLUMNS, "'n' was not read before"), (["k"], "'v' was read before")])
def test_other_columns_than_before_are_refused(tmp_path: Path, columns: list[str], message: str) -> None:
    """The rows that are there would hold nulls where the table holds values."""
    source = Table(tmp_path / "warehouse")
    source.catalog.alter_table(source.name, [SchemaChange.add_column("n", INT)])
    wide = pa.schema([*COLUMN_TYPES, ("n", pa.int32())])
    database = duckdb.connect()
    source.write(pa.table({"k": [1], "v": ["a"], "n": [1]}, schema=wide), table=source.handle())
    followed(database, stream(source))
    source.write(pa.table({"k": [2], "v": ["b"], "n": [2]}, schema=wide), table=source.handle())
    before = held(database)
    more = [*columns, "n"] if columns == COLUMNS else columns
    with pytest.raises(StreamConfigError, match=message):
        followed(database, source.builder().with_projection(more).with_end(latest=True))
    assert held(database) == before
    database.execute("DROP TABLE copy")
    followed(database, source.builder().with_projection(more).with_end(latest=True))
    assert len(held(database, more)) == 2


@pytest.mark.parametrize("kind", ["STRING", "TIMESTAMP(6)"])
def test_a_type_that_depends_on_a_time_zone_is_refused(tmp_path: Path, kind: str) -> None:
    """DuckDB would make it of the rows that are there in the zone of the process, whatever zone the stream is told."""
    source = Table(tmp_path / "warehouse")
    local = AtomicType("TIMESTAMP(6) WITH LOCAL TIME ZONE")
    source.catalog.alter_table(source.name, [SchemaChange.add_column("t", local)])
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    source.write(pa.table({"k": [1], "v": ["a"], "t": moment}), table=source.handle())
    database = duckdb.connect()
    followed(database, source.builder().with_end(latest=True))
    before = held(database)
    source.catalog.alter_table(source.name, [SchemaChange.update_column_type("t", AtomicType(kind))])
    source.commit([2])
    with pytest.raises(StreamConfigError, match=r"column 't' was TIMESTAMP\(6\) WITH LOCAL TIME ZONE and is "):
        followed(database, source.builder().with_time_zone("Asia/Shanghai").with_end(latest=True))
    assert held(database) == before


def test_a_table_that_is_there_is_filled_and_gets_what_it_lacks(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    database = duckdb.connect()
    database.execute("CREATE TABLE copy (k DECIMAL(10, 0), own VARCHAR DEFAULT 'mine')")
    followed(database, stream(table))
    assert held(database) == rows_of(table)
    assert database.execute("SELECT DISTINCT own FROM copy").fetchall() == [("mine",)]


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ([SchemaChange.add_column(["st", "c"], INT)], True),
        ([SchemaChange.rename_column(["st", "b"], "c")], False),
        ([SchemaChange.drop_column(["st", "b"]), SchemaChange.add_column(["st", "b"], INT)], False),
    ],
    ids=["added", "renamed", "dropped and added again"],
)
def test_fields_inside_of_a_column(tmp_path: Path, changes: list[Any], follows: bool) -> None:
    source = Table(tmp_path / "warehouse")
    inner = [pa.field("a", pa.int32()), pa.field("b", pa.int32())]
    row = PyarrowFieldParser.to_paimon_type(pa.struct(inner), True)
    source.catalog.alter_table(source.name, [SchemaChange.add_column("st", row)])
    wide = pa.schema([*COLUMN_TYPES, ("st", pa.struct(inner))])
    source.write(pa.table({"k": [1], "v": ["x"], "st": [{"a": 1, "b": 2}]}, schema=wide), table=source.handle())
    database = duckdb.connect()
    followed(database, source.builder().with_end(latest=True))
    for change in changes:
        source.catalog.alter_table(source.name, [change])
    fields = [pa.field(field.name, pa.int32()) for field in source.handle().fields[2].type.fields]
    newer = pa.schema([*COLUMN_TYPES, ("st", pa.struct(fields))])
    value = {field.name: 7 for field in fields}
    source.write(pa.table({"k": [2], "v": ["y"], "st": [value]}, schema=newer), table=source.handle())
    builder = source.builder().with_end(latest=True)
    if not follows:
        with pytest.raises(StreamConfigError, match="inside of column 'st'"):
            followed(database, builder)
        database.execute("DROP TABLE copy")
        builder = source.builder().with_end(latest=True)
    followed(database, builder)
    assert held(database, ["k", "st"]) == sorted(_last(source, ["k", "st"]), key=str)
