"""Which columns of two schemas hold the same values, so that a live table keeps its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import DictTarget, StreamConfigError
from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.errors import SchemaChangedError
from pypaimon.streaming.live.row_store import HeldColumns
from pypaimon.streaming.paimon.internals import DataField, RowType, TableSchema
from pypaimon.streaming.testing import SmallTable
from support.tables.live_tables import assert_ended, live_threads, often

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.string()), ("b", pa.string())])
EXCHANGED = [{"id": "id", "b": "a", "a": "b"}, {"id": "id", "x": "a", "y": "b"}, ["id", "b", "a"], None]
MEMORY = [1 << 30, 0]


def held(schema_id: int, nested_id: int, *names: str) -> HeldColumns:
    columns = {
        "k": DataField(0, "k", AtomicType("INT", False)),
        "s": DataField(1, "s", RowType(True, [DataField(nested_id, "a", AtomicType("INT"))])),
    }
    schema = TableSchema(TableSchema.CURRENT_VERSION, schema_id, list(columns.values()), 9, [], ["k"], {})
    arrow = {"k": pa.int32(), "s": pa.struct([("a", pa.int32())])}
    fields = {name: columns[name] for name in names}
    return HeldColumns(schema, pa.schema([(name, arrow[name]) for name in names]), fields)


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    table = SmallTable(tmp_path / "warehouse", columns=COLUMNS)
    table.commit({"id": 1, "a": "a1", "b": "b1"})
    return table


def exchange(table: SmallTable, one: str = "a", other: str = "b") -> None:
    for old, new in ((one, "between"), (other, one), ("between", other)):
        table.alter(SchemaChange.rename_column(old, new))


def test_a_nested_field_that_was_dropped_and_added_again_is_another_one() -> None:
    assert held(0, 2, "k", "s").are(held(1, 2, "k", "s"))
    assert not held(0, 2, "k", "s").are(held(1, 3, "k", "s"))
    assert held(0, 2, "k").are_in(held(1, 3, "k", "s"))


def test_a_column_that_was_not_read_has_no_values() -> None:
    with pytest.raises(SchemaChangedError, match="column 's'"):
        held(0, 2, "k").convert(pa.table({"k": pa.array([1], pa.int32())}), held(1, 2, "k", "s"))


@pytest.mark.parametrize("memory_limit_bytes", MEMORY)
@pytest.mark.parametrize("projection", EXCHANGED, ids=str)
def test_columns_exchange_their_names(table: SmallTable, projection: object, memory_limit_bytes: int) -> None:
    builder = often(table.table).with_on_schema_change("follow").with_projection(projection)
    with builder.open_live_sync(memory_limit_bytes=memory_limit_bytes) as live:
        before = live.get(1)
        exchange(table)
        live.wait_for(table.commit({"id": 2, "a": "b2", "b": "a2"}))
        first, second = live.get(1), live.get(2)
        assert {name: str(value)[0] for name, value in first.items()} == {
            name: str(value)[0] if name != "id" else "1" for name, value in second.items()
        }
        assert first == before if isinstance(projection, dict) else set(first) == set(before)
    assert_ended(live_threads())


@pytest.mark.parametrize("projection", EXCHANGED, ids=str)
def test_saved_rows_are_those_of_the_columns_that_are_read_now(
    tmp_path: Path, table: SmallTable, projection: object
) -> None:
    def check(filter_: str | None = None) -> None:
        builder = often(table.table).with_projection(projection)
        if filter_ is not None:
            builder.with_filter(filter_)
        with builder.open_live_sync() as fresh:
            expected = fresh.to_arrow().to_pylist()
        with builder.open_live_sync(save_to=tmp_path / "live") as live:
            assert live.to_arrow().to_pylist() == expected
            live.save()
        assert_ended(live_threads())

    for filter_ in (None, "a = 'a1'"):
        check(filter_)
        exchange(table)
        check(filter_)
        table.alter(SchemaChange.drop_column("a"))
        table.alter(SchemaChange.add_column("a", AtomicType("STRING")))
        check(filter_)
        table.alter(SchemaChange.drop_column("b"))
        table.alter(SchemaChange.add_column("b", AtomicType("STRING")))
        table.commit({"id": 1, "a": "a1", "b": "b1"})


def test_the_name_of_a_key_on_another_column_is_refused(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
    table = SmallTable(tmp_path, columns=columns)
    table.commit({"id": 1, "n": 7}, {"id": 2, "n": 7})
    builder = often(table.table).with_projection({"id": "n", "n": "id"})
    with pytest.raises(StreamConfigError, match="'id' of the rows is another one, 'n'"):
        builder.open_live_sync()
    with builder.with_end(latest=True).with_include_row_kind(True).open_sync() as stream:
        batch = next(iter(stream))
        assert isinstance(batch, BlockingBatch)
        for call in (batch.update_pairs, lambda: DictTarget(keys="id").apply(batch)):
            with pytest.raises(StreamConfigError, match="'id' of the rows is another one, 'n'"):
                call()
    assert_ended(live_threads())
