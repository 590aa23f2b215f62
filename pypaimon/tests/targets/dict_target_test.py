"""Changes applied to a dict come to the rows of the table; a full state replaces what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from pypaimon.streaming import (
    DuckDBDatabase,
    StreamConfigError,
    StreamReadBuilder,
    UnsupportedTableError,
    copy_database,
    stream_read_builder,
)
from pypaimon.streaming.targets import apply_to_dict, last_changes
from pypaimon.streaming.targets.changes import inserts
from support.tables.copied_table import at, batches, changed, keyed, rows_of
from support.tables.copied_table import stream as copied
from support.tables.handles import create_table, write_by_pypaimon
from support.tables.orders import COLUMNS, catalog, change, orders
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path)


def stream(table: Any) -> StreamReadBuilder:
    return stream_read_builder(table).with_projection(COLUMNS).with_start("earliest").with_end(latest=True)


def busy(tables: Any) -> Any:
    """Orders that come, change and go, some of them several times."""
    table = orders(tables)
    change(table, "+I", (3, "placed", 1.0), (4, "placed", 2.0), (5, "placed", 3.0))
    change(table, "-D", (3, "placed", 1.0))
    change(table, "+I", (3, "again", 9.0))
    change(table, "-U", (4, "placed", 2.0))
    change(table, "+U", (4, "paid", 2.5))
    return table


STATE = {
    1: {"id": 1, "status": "paid", "amount": 1.5},
    3: {"id": 3, "status": "again", "amount": 9.0},
    4: {"id": 4, "status": "paid", "amount": 2.5},
    5: {"id": 5, "status": "placed", "amount": 3.0},
}


def test_a_dict_follows(tables: Any) -> None:
    state: dict[Any, Any] = {}
    for batch in batches(stream(busy(tables))):
        apply_to_dict(batch, state, "id")
    assert state == STATE


def test_a_row_that_leaves_the_filter_goes(tables: Any) -> None:
    table = busy(tables)
    builder = stream(table)
    builder.with_filter(builder.new_predicate_builder().equal("status", "placed"))
    state: dict[Any, Any] = {}
    for batch in batches(builder):
        apply_to_dict(batch, state, "id")
    assert set(state) == {5}


def test_the_last_change_of_a_key_counts(tables: Any) -> None:
    table = busy(tables)
    with stream(table).with_catch_up("replay").open_sync() as opened:
        found = [last_changes(batch, ["id"]) for batch in opened]
    assert all(set(sets["id"].to_pylist()).isdisjoint(gone["id"].to_pylist()) for sets, gone in found)


def test_keys_must_be_there(tables: Any) -> None:
    (first, *_) = batches(stream(orders(tables)))
    for keys in (["nothing"], []):
        with pytest.raises(StreamConfigError, match="the batch has columns"):
            last_changes(first, keys)


# ---- full states ----


def values(state: dict[Any, Any]) -> list[tuple[Any, ...]]:
    return sorted(((row["k"], row["v"]) for row in state.values()), key=str)


@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}])
def test_a_full_state_in_the_middle_replaces_what_a_dict_holds(tmp_path: Path, limits: dict[str, int]) -> None:
    table = keyed(tmp_path)
    state: dict[Any, Any] = {}
    first, second = copied(table).with_limits(**limits), copied(table).with_limits(**limits).with_on_expired("full")
    for batch in batches(first, batch_bytes=1):
        apply_to_dict(batch, state, "k")
    position = batch.position
    changed(table)
    for batch in batches(second.with_start(position=position), batch_bytes=1):
        apply_to_dict(batch, state, "k")
    assert values(state) == rows_of(table)


def test_a_full_state_that_is_empty_empties_a_dict(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    state: dict[Any, Any] = {7: {"k": 7, "v": "old"}}
    table.commit([("-D", key, "") for key in range(10)])
    table.expire(4)
    for batch in batches(copied(table).with_start(position=at(table, 2)).with_on_expired("full")):
        apply_to_dict(batch, state, "k")
    assert state == {}


def test_a_second_stream_from_the_state_on_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    state: dict[Any, Any] = {}
    for _ in range(2):
        for batch in batches(copied(table)):
            apply_to_dict(batch, state, "k")
        assert values(state) == rows_of(table)
        changed(table)


def test_a_key_that_is_missing_leaves_a_dict_as_it_is(tmp_path: Path) -> None:
    state = {1: {"k": 1}}
    with pytest.raises(StreamConfigError, match="the batch has columns"):
        apply_to_dict(batches(copied(keyed(tmp_path)))[0], state, "nothing")
    assert state == {1: {"k": 1}}


def test_an_update_is_not_a_row_to_append(tmp_path: Path) -> None:
    """Also where what it was before does not come: only in a full state it stands for a row."""
    table = Table(tmp_path / "w", primary_key=True, changelog_producer="input", bucket="1")
    table.commit([("+I", 1, "a")])
    table.commit([("+U", 1, "b")])
    for start, whole in (({"snapshot_id": 2}, False), ({"snapshot_id": 2, "full": True}, True)):
        with table.builder().with_start(**start).with_end(latest=True).open_sync() as found:
            (batch,) = found
        if whole:
            assert inserts(batch)["v"].to_pylist() == ["b"]
        else:
            with pytest.raises(StreamConfigError, match=r"\+U"):
                inserts(batch)


def test_rows_that_move_between_partitions_need_these_among_the_keys(tables: Any) -> None:
    columns = pa.schema([("id", pa.int64()), ("day", pa.string()), ("kind", pa.string())])
    options = {"bucket": "2", "rowkind.field": "kind", "changelog-producer": "input"}
    table = create_table(tables, "moving", columns, partition_keys=["day"], primary_keys=["id"], options=options)
    for rows in [[(1, "b", "+I"), (2, "a", "+I")], [(1, "b", "-D"), (1, "a", "+I"), (2, "a", "-D"), (2, "b", "+I")]]:
        write_by_pypaimon(
            table, pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], columns)
        )
    state: dict[Any, Any] = {}
    for batch in batches(stream_read_builder(table).with_start("earliest").with_end(latest=True)):
        with pytest.raises(StreamConfigError, match=r"give them as keys too, \['id', 'day'\]"):
            apply_to_dict(batch, {}, "id")
        apply_to_dict(batch, state, ["id", "day"])
    assert sorted(state) == [(1, "a"), (2, "b")]
    with pytest.raises(UnsupportedTableError, match="lacks the partition columns"):
        stream_read_builder(table).open_live_sync()
    with duckdb.connect() as database:
        copy_database(tables, "db", DuckDBDatabase(database), configure=lambda each: each.with_end(latest=True))
        assert sorted(database.execute("SELECT id, day FROM moving").fetchall()) == [(1, "a"), (2, "b")]
