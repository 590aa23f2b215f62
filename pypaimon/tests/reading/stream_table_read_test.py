"""`StreamTableRead`: modes, row kinds, filters, projections, views and output forms."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pypaimon.common.predicate import Predicate
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.row.generic_row import GenericRow

from pypaimon.streaming.errors import (
    CorruptTableError,
    IOTimeoutError,
    PositionExpiredError,
    SchemaChangedError,
    StreamConfigError,
)
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.reading.read import StreamRead
from support.stores.fault_file_io import HangingFileIO, data_files_from
from support.tables.handles import create_table
from support.tables.stream_files import put, read_of, reader, records, split, write

APPEND = pa.schema([("id", pa.int32()), ("v", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])


def leaf(method: str, field: str, *literals: Any) -> Predicate:
    return Predicate(method, None, field, list(literals))


def rows(*values: tuple[int, str | None]) -> pa.Table:
    return pa.table({"id": [id for id, _ in values], "v": [v for _, v in values]}, schema=APPEND)


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def append(warehouse: Any) -> Any:
    return create_table(warehouse, "append", APPEND)


@pytest.fixture
def keyed(warehouse: Any) -> Any:
    return create_table(warehouse, "keyed", KEYED, primary_keys=["id"], options={"bucket": "1"})


@pytest.fixture
def producer(warehouse: Any) -> Any:
    options = {"bucket": "1", "changelog-producer": "lookup"}
    return create_table(warehouse, "producer", KEYED, primary_keys=["id"], options=options)


def changes(table: Any) -> Any:
    return put(table, "data-1.parquet", records([0, 1, 2, 3], rows((1, "a"), (2, "b"), (2, "c"), (3, None))))


def test_append_files_are_inserts_in_order(append: Any) -> None:
    files = write(append, rows((1, "a"), (2, None))) + write(append, rows((3, "c")))
    table = reader(append).to_arrow([split(SplitMode.ROWS, files)])
    assert shown(table) == [("+I", 1, "a"), ("+I", 2, None), ("+I", 3, "c")]
    assert table.schema == pa.schema([("_row_kind", pa.string()), *APPEND])


def test_what_pypaimon_wrote_with_a_key_is_read_with_its_kinds(keyed: Any) -> None:
    files = write(keyed, rows((2, "b"), (1, "a")))
    assert shown(reader(keyed).to_arrow([split(SplitMode.RECORDS, files)])) == [("+I", 1, "a"), ("+I", 2, "b")]


@pytest.mark.parametrize("mode", [SplitMode.RECORDS, SplitMode.CHANGELOG])
def test_records_keep_their_kinds(keyed: Any, mode: SplitMode) -> None:
    table = reader(keyed).to_arrow([split(mode, [changes(keyed)])])
    assert shown(table) == [("+I", 1, "a"), ("-U", 2, "b"), ("+U", 2, "c"), ("-D", 3, None)]


def test_without_row_kinds(keyed: Any) -> None:
    table = reader(keyed, include_row_kind=False).to_arrow([split(SplitMode.RECORDS, [changes(keyed)])])
    assert table.column_names == ["id", "v"]
    assert table.num_rows == 4


def test_projection_reorders_and_columns_of_a_filter_are_read_in_addition(append: Any) -> None:
    files = write(append, rows((1, "a"), (2, "b")))
    read = reader(append, projection=("v",), predicate=leaf("greaterThan", "id", 1))
    assert read.to_arrow([split(SplitMode.ROWS, files)]).to_pylist() == [{"_row_kind": "+I", "v": "b"}]
    turned = reader(append, projection=("v", "id"), include_row_kind=False)
    assert shown(turned.to_arrow([split(SplitMode.ROWS, files)])) == [("a", 1), ("b", 2)]


def test_nothing_projected_still_counts_rows(append: Any) -> None:
    files = write(append, rows((1, "a"), (2, "b")))
    table = reader(append, projection=()).to_arrow([split(SplitMode.ROWS, files)])
    assert table.to_pylist() == [{"_row_kind": "+I"}, {"_row_kind": "+I"}]


def test_nested_projection(warehouse: Any) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    table = create_table(warehouse, "nested", pa.schema([("id", pa.int32()), ("r", inner)]))
    data = pa.Table.from_pylist([{"id": 1, "r": {"x": 5, "y": ["a"]}}, {"id": 2, "r": None}], table_schema(table))
    files = write(table, data)
    read = reader(table, projection=("r.x", "id"), predicate=leaf("isNotNull", "r.y"))
    assert read.to_arrow([split(SplitMode.ROWS, files)]).to_pylist() == [{"_row_kind": "+I", "r_x": 5, "id": 1}]


def table_schema(table: Any) -> pa.Schema:
    from pypaimon.schema.data_types import PyarrowFieldParser

    return PyarrowFieldParser.from_paimon_schema(table.fields)


@pytest.mark.parametrize("setting", [{"projection": ("x",)}, {"predicate": leaf("equal", "x", 1)}])
def test_unknown_columns_are_refused_at_once(append: Any, setting: dict[str, Any]) -> None:
    with pytest.raises(StreamConfigError, match="x"):
        reader(append, **setting)


# Filters on streams of a table with a primary key.


def test_a_record_that_does_not_match_becomes_a_delete(keyed: Any) -> None:
    read = reader(keyed, predicate=leaf("equal", "v", "c"))
    table = read.to_arrow([split(SplitMode.RECORDS, [changes(keyed)])])
    assert shown(table) == [("-D", 1, "a"), ("-D", 2, "b"), ("+U", 2, "c"), ("-D", 3, None)]


def test_or_is_left_out_as_sql_engines_do(keyed: Any) -> None:
    read = reader(keyed, predicate=leaf("equal", "v", "c"), unmatched=Unmatched.DROP)
    assert shown(read.to_arrow([split(SplitMode.RECORDS, [changes(keyed)])])) == [("+U", 2, "c")]


def test_parts_on_keys_drop(keyed: Any) -> None:
    predicate = Predicate("and", None, None, [leaf("greaterThan", "id", 1), leaf("equal", "v", "b")])
    table = reader(keyed, predicate=predicate).to_arrow([split(SplitMode.RECORDS, [changes(keyed)])])
    assert shown(table) == [("-U", 2, "b"), ("-D", 2, "c"), ("-D", 3, None)]


def test_complete_changelogs_are_filtered_exactly(producer: Any) -> None:
    read = reader(producer, predicate=leaf("equal", "v", "c"))
    assert shown(read.to_arrow([split(SplitMode.CHANGELOG, [changes(producer)])])) == [("+U", 2, "c")]


def keyed_file(table: Any, name: str, kinds: list[int], data: pa.Table, sequence: int, **changed: Any) -> Any:
    stored = records(kinds, data)
    numbers = pa.array(range(sequence, sequence + data.num_rows), pa.int64())
    stored = stored.set_column(0, "_SEQUENCE_NUMBER", numbers)
    field = table.fields[:1]
    ids = data["id"].to_pylist()
    low, high = GenericRow([min(ids)], field), GenericRow([max(ids)], field)
    return put(table, name, stored, min_key=low, max_key=high, **changed)


def test_first_plans_merge_and_then_filter(keyed: Any) -> None:
    old = keyed_file(keyed, "data-old.parquet", [0, 0, 0], rows((1, "a"), (2, "b"), (3, "c")), 0, level=5)
    new = keyed_file(keyed, "data-new.parquet", [2, 3], rows((1, "z"), (3, "c")), 10)
    plan = [split(SplitMode.MERGE, [old, new])]
    assert shown(reader(keyed).to_arrow(plan)) == [("+U", 1, "z"), ("+I", 2, "b")]
    # What matched before it was replaced does not come back.
    assert shown(reader(keyed, predicate=leaf("equal", "v", "a")).to_arrow(plan)) == []
    assert shown(reader(keyed, projection=("v",), predicate=leaf("equal", "id", 1)).to_arrow(plan)) == [("+U", "z")]
    audit = reader(keyed, view="audit_log", include_row_kind=False).to_arrow(plan)
    assert shown(audit) == [("+U", 1, "z"), ("+I", 2, "b"), ("-D", 3, "c")]


def test_merged_files_come_out_as_inserts(keyed: Any) -> None:
    file = keyed_file(keyed, "data-1.parquet", [0, 2], rows((1, "a"), (2, "b")), 0, level=5)
    assert shown(reader(keyed).to_arrow([split(SplitMode.MERGE, [file])])) == [("+I", 1, "a"), ("+I", 2, "b")]


def test_overwrites_retract_what_was_there(keyed: Any) -> None:
    before = keyed_file(keyed, "data-old.parquet", [0, 0], rows((1, "a"), (2, "b")), 0)
    after = keyed_file(keyed, "data-new.parquet", [0], rows((2, "c")), 10)
    plan = [split(SplitMode.OVERWRITE, [after], before_files=[before])]
    assert shown(reader(keyed).to_arrow(plan)) == [("-D", 1, "a"), ("-D", 2, "b"), ("+I", 2, "c")]


def test_net_changes(keyed: Any) -> None:
    before = keyed_file(keyed, "old.parquet", [0] * 4, rows((1, "a"), (2, "b"), (3, "c"), (4, None)), 0)
    after = keyed_file(keyed, "new.parquet", [0] * 4, rows((2, "B"), (3, "c"), (4, None), (5, "e")), 10)
    plan = [split(SplitMode.NET, [after], before_files=[before])]
    wanted = [("-D", 1, "a"), ("-U", 2, "b"), ("+U", 2, "B"), ("+I", 5, "e")]
    assert shown(reader(keyed).to_arrow(plan)) == wanted
    matching = reader(keyed, predicate=leaf("in", "v", "b", "e"))
    assert shown(matching.to_arrow(plan)) == [("-D", 2, "b"), ("+I", 5, "e")]


# Data evolution and row tracking.


@pytest.fixture
def evolving(warehouse: Any) -> Any:
    options = {"data-evolution.enabled": "true", "row-tracking.enabled": "true"}
    return create_table(warehouse, "evolving", APPEND, options=options)


def test_data_evolution_takes_each_column_from_the_newest_file(evolving: Any) -> None:
    whole = put(evolving, "a.parquet", rows((1, "a"), (2, "b")), first_row_id=0, max_sequence_number=1)
    column = rows((0, "A"), (0, None)).select(["v"])
    newer = put(evolving, "b.parquet", column, first_row_id=0, max_sequence_number=2, write_cols=["v"])
    later = put(evolving, "c.parquet", rows((3, "c")), first_row_id=2, max_sequence_number=3)
    plan = [split(SplitMode.EVOLUTION, [later, newer, whole])]
    assert shown(reader(evolving).to_arrow(plan)) == [("+I", 1, "A"), ("+I", 2, None), ("+I", 3, "c")]
    tracked = reader(evolving, view="row_tracking", projection=("id", "_ROW_ID", "_SEQUENCE_NUMBER"))
    assert shown(tracked.to_arrow(plan)) == [("+I", 1, 0, 2), ("+I", 2, 1, 2), ("+I", 3, 2, 3)]
    # A follow-up holds the new column only.
    assert shown(reader(evolving).to_arrow([split(SplitMode.EVOLUTION, [newer])])) == [
        ("+I", None, "A"),
        ("+I", None, None),
    ]


def test_groups_larger_than_a_batch(evolving: Any) -> None:
    count = 1000
    ids = pa.table({"id": pa.array(np.arange(count), pa.int32())})
    texts = pa.table({"v": [str(number) for number in range(count)]})
    one = put(evolving, "a.parquet", ids, first_row_id=0, write_cols=["id"])
    two = put(evolving, "b.parquet", texts, first_row_id=0, write_cols=["v"])
    table = reader(evolving, batch_size=64).to_arrow([split(SplitMode.EVOLUTION, [one, two])])
    assert shown(table) == [("+I", number, str(number)) for number in range(count)]


def test_row_ids_are_stored_or_counted(evolving: Any) -> None:
    stored = rows((1, "a"), (2, "b")).append_column("_ROW_ID", pa.array([7, None], pa.int64()))
    file = put(evolving, "a.parquet", stored, first_row_id=100, max_sequence_number=4)
    read = reader(evolving, view="row_tracking", include_row_kind=False)
    table = read.to_arrow([split(SplitMode.ROWS, [file])])
    assert shown(table) == [(1, "a", 7, 4), (2, "b", 101, 4)]


def test_audit_log_has_the_kind_in_a_column_and_is_filtered_by_it(keyed: Any) -> None:
    plan = [split(SplitMode.RECORDS, [changes(keyed)])]
    table = reader(keyed, view="audit_log").to_arrow(plan)
    assert table.column_names == ["_row_kind", "rowkind", "id", "v"]
    assert [row[:2] for row in shown(table)] == [("+I", "+I"), ("+I", "-U"), ("+I", "+U"), ("+I", "-D")]
    changed = reader(keyed, view="audit_log", projection=("id",), predicate=leaf("equal", "rowkind", "-D"))
    assert shown(changed.to_arrow(plan)) == [("+I", 3)]


# Schemas that change.


def test_following_a_newer_schema_by_field_id(warehouse: Any, append: Any) -> None:
    files = write(append, rows((1, "a")))
    warehouse.alter_table("db.append", [SchemaChange.rename_column("v", "w"), SchemaChange.drop_column("id")], False)
    newer = warehouse.get_table("db.append").table_schema
    plan = [split(SplitMode.ROWS, files, schema=newer)]
    assert reader(append).to_arrow(plan).to_pylist() == [{"_row_kind": "+I", "w": "a"}]
    renamed = reader(append, projection=("v",), predicate=leaf("equal", "v", "a"))
    assert renamed.to_arrow(plan).to_pylist() == [{"_row_kind": "+I", "w": "a"}]
    with pytest.raises(SchemaChangedError, match="'id' was dropped"):
        reader(append, predicate=leaf("equal", "id", 1)).to_arrow(plan)


# Files that are lost or damaged.


def test_a_missing_file_is_named(append: Any) -> None:
    files = write(append, rows((1, "a")))
    os.remove(files[0].file_path)
    with pytest.raises(CorruptTableError, match="missing, though snapshot 1 needs it") as caught:
        reader(append).to_arrow([split(SplitMode.ROWS, files)])
    assert caught.value.path == files[0].file_path


def test_a_file_that_is_gone_with_its_snapshot_has_expired(append: Any) -> None:
    files = write(append, rows((1, "a")))
    write(append, rows((2, "b")))
    os.remove(files[0].file_path)
    os.remove(append.snapshot_manager().get_snapshot_path(1))
    with pytest.raises(PositionExpiredError) as caught:
        reader(append).to_arrow([split(SplitMode.ROWS, files)])
    assert caught.value.wanted == 1


def test_a_damaged_file_is_named(append: Any) -> None:
    files = write(append, rows((1, "a")))
    path = Path(files[0].file_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptTableError) as caught:
        reader(append).to_arrow([split(SplitMode.ROWS, files)])
    assert caught.value.path == files[0].file_path


@pytest.mark.parametrize("option", ["scan.ignore-lost-files", "scan.ignore-corrupt-files"])
def test_lost_and_damaged_files_may_be_passed_over(append: Any, option: str, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = write(append, rows((1, "a"))), write(append, rows((2, "b")))
    if "lost" in option:
        os.remove(bad[0].file_path)
    else:
        Path(bad[0].file_path).write_bytes(b"PAR1 no more PAR1")
    lenient = append.copy({option: "true"})
    with caplog.at_level(logging.WARNING):
        table = reader(lenient).to_arrow([split(SplitMode.ROWS, bad + good)])
    assert shown(table) == [("+I", 2, "b")]
    assert bad[0].file_name in caplog.text


# Output forms.


def test_batches_are_bounded_and_lazy(append: Any) -> None:
    files = write(append, rows(*((number, "v") for number in range(100))))
    read = reader(append, batch_size=30)
    assert [batch.num_rows for batch in read.iter_batches([split(SplitMode.ROWS, files)])] == [30, 30, 30, 10]
    batches = read.to_arrow_batch_reader([split(SplitMode.ROWS, files)])
    assert batches.schema == read.schema
    assert batches.read_next_batch().num_rows == 30


def test_no_splits_give_an_empty_table_with_the_schema(append: Any) -> None:
    table = reader(append).to_arrow([])
    assert table.num_rows == 0
    assert table.column_names == ["_row_kind", "id", "v"]


def test_rows_and_frames(keyed: Any) -> None:
    plan = [split(SplitMode.RECORDS, [changes(keyed)])]
    read = reader(keyed)
    iterated = list(read.to_iterator(plan))
    assert [row.get_field(0) for row in iterated] == [1, 2, 2, 3]
    assert [row.get_row_kind().to_string() for row in iterated] == ["+I", "-U", "+U", "-D"]
    assert read.to_pandas(plan)["v"].tolist() == ["a", "b", "c", None]
    assert read.to_polars(plan)["_row_kind"].to_list() == ["+I", "-U", "+U", "-D"]


# asyncio.


def test_reading_in_asyncio(append: Any) -> None:
    files = write(append, rows((1, "a")))
    read = reader(append)
    table = asyncio.run(read.to_arrow_async([split(SplitMode.ROWS, files)]))
    assert shown(table) == [("+I", 1, "a")]


def test_a_cancelled_read_leaves_the_reader_usable(append: Any, hanging: HangingFileIO) -> None:
    files = write(append, rows((1, "a")))
    append.file_io, hanging.hangs = hanging, data_files_from(1)
    read: StreamRead = reader(append)

    async def go() -> pa.Table:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(read.to_arrow_async([split(SplitMode.ROWS, files)]))
        await loop.run_in_executor(None, hanging.hanging.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hanging.go_on.set()
        return await read.to_arrow_async([split(SplitMode.ROWS, files)])

    assert shown(asyncio.run(go())) == [("+I", 1, "a")]


def test_a_hung_read_is_a_timeout(append: Any, hanging: HangingFileIO) -> None:
    from pypaimon.streaming.metadata.table_directory import TableDirectory
    from pypaimon.streaming.reading.read_layout import ReadSettings

    files = write(append, rows((1, "a")))
    append.file_io, hanging.hangs = hanging, data_files_from(1)
    directory = TableDirectory.of(append, io_timeout=2.0)
    read = read_of(directory, ReadSettings(append.table_schema))
    with pytest.raises(IOTimeoutError):
        asyncio.run(read.to_arrow_async([split(SplitMode.ROWS, files)]))
    hanging.go_on.set()
    assert read.to_arrow([split(SplitMode.ROWS, files)]).num_rows == 1


# Copies elsewhere, as Spark's executors have them.


def test_a_read_and_its_splits_can_be_pickled(append: Any) -> None:
    plan = [split(SplitMode.ROWS, write(append, rows((1, "a"), (2, "b"))))]
    read = reader(append, projection=("v",), predicate=leaf("equal", "id", 2))
    assert read.to_arrow(plan).num_rows == 1
    copy, splits = pickle.loads(pickle.dumps((read, plan)))
    assert copy.to_arrow(splits) == read.to_arrow(plan)
    assert asyncio.run(copy.to_arrow_async(splits)) == read.to_arrow(plan)
