"""Changes applied elsewhere come to the same rows: in a dict, in DuckDB exactly once, in another Paimon table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from orders import COLUMNS, append, catalog, change, create_orders, events, orders

from pypaimon.streaming import BlockingBatch, StreamConfigError, StreamReadBuilder, stream_read_builder
from pypaimon.streaming.apply_changes import DuckDBTarget, PaimonTarget, apply_to_dict, last_changes


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path)


def stream(table: Any) -> StreamReadBuilder:
    return stream_read_builder(table).with_projection(COLUMNS).with_start("earliest").with_end(latest=True)


def batches(builder: StreamReadBuilder, **settings: Any) -> list[BlockingBatch]:
    with builder.open_sync(**settings) as opened:
        return list(opened)


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


def test_several_columns_may_be_the_key(tables: Any) -> None:
    table = create_orders(tables)
    change(table, "+I", (1, "placed", 1.5))
    state: dict[Any, Any] = {}
    for batch in batches(stream(table)):
        apply_to_dict(batch, state, ["id", "status"])
    assert state == {(1, "placed"): {"id": 1, "status": "placed", "amount": 1.5}}


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


# ---- DuckDB ----


def rows(database: duckdb.DuckDBPyConnection, table: str = "orders") -> dict[int, dict[str, Any]]:
    found = database.execute(f"SELECT * FROM {table}").fetchall()
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in found}


def test_duckdb_follows(tables: Any) -> None:
    database = duckdb.connect()
    target = DuckDBTarget(database, "orders", keys=["id"])
    for batch in batches(stream(busy(tables))):
        target.apply(batch)
    assert rows(database) == STATE
    position = target.position()
    assert position is not None and position.snapshot == 10


@pytest.mark.parametrize("applied", range(9))
def test_duckdb_goes_on_exactly_once_after_a_crash(tables: Any, tmp_path: Path, applied: int) -> None:
    table, file = busy(tables), str(tmp_path / "orders.db")
    with duckdb.connect(file) as database:
        target = DuckDBTarget(database, "orders", keys=["id"])
        for batch in batches(stream(table))[:applied]:
            target.apply(batch)
    with duckdb.connect(file) as database:
        target = DuckDBTarget(database, "orders", keys=["id"])
        builder, position = stream(table), target.position()
        if position is not None:
            builder.with_start(position=position)
        for batch in batches(builder):
            target.apply(batch)
        assert rows(database) == STATE


def test_without_keys_a_plan_that_was_half_applied_comes_again_as_a_whole(tables: Any, tmp_path: Path) -> None:
    table, file = events(tables, commits=2), str(tmp_path / "events.db")
    builder = stream_read_builder(table).with_end(latest=True)
    with duckdb.connect(file) as database:
        target = DuckDBTarget(database, "main.events")
        first, *_ = batches(builder, batch_bytes=1)
        assert not first.is_last
        target.apply(first)
    append(table, 2)
    with duckdb.connect(file) as database:
        target = DuckDBTarget(database, "main.events")
        assert target.position() is None
        for batch in batches(builder, batch_bytes=1):
            target.apply(batch)
        values = database.execute("SELECT value FROM events ORDER BY value").fetchall()
    assert values == [(n * 10 + day,) for n in range(3) for day in range(3)]


def test_without_keys_deletes_are_refused_and_nothing_is_kept(tables: Any) -> None:
    database = duckdb.connect()
    target = DuckDBTarget(database, "orders")
    first, second, *_ = batches(stream(orders(tables)))
    target.apply(first)
    with pytest.raises(StreamConfigError, match="cannot be appended"):
        target.apply(second)
    assert set(rows(database)) == {1, 2}
    assert target.position() == first.position


# ---- another Paimon table ----


def test_another_paimon_table_follows(tables: Any) -> None:
    source, target = busy(tables), create_orders(tables, "db.copy")
    applied = PaimonTarget(target)
    for batch in [*batches(stream(source)), *batches(stream(source))]:
        applied.apply(batch)
    state: dict[Any, Any] = {}
    for batch in batches(stream(target)):
        apply_to_dict(batch, state, "id")
    assert state == STATE


def test_an_append_table_takes_inserts(tables: Any) -> None:
    source, target = events(tables), events(tables, "db.copy", commits=0)
    applied = PaimonTarget(target)
    for batch in batches(stream_read_builder(source).with_end(latest=True)):
        applied.apply(batch)
    (copy,) = batches(stream_read_builder(target).with_end(latest=True))
    assert sorted(copy.data["value"].to_pylist()) == [n * 10 + day for n in range(3) for day in range(3)]


def test_a_target_that_cannot_take_deletes_says_so(tables: Any) -> None:
    table = orders(tables)
    target = events(tables, "db.copy", commits=0)
    _, deleting, *_ = batches(stream(table))
    with pytest.raises(StreamConfigError, match="cannot be appended"):
        PaimonTarget(target).apply(deleting)
