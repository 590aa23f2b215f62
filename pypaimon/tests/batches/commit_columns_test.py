"""Rows that tell the commit that they came with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError, stream_read_builder
from support.tables.handles import create_table
from support.tables.orders import COLUMNS, catalog, events, orders, write


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path / "warehouse")


def snapshots(table: Any) -> dict[int, Any]:
    manager = table.snapshot_manager()
    return {number: manager.get_snapshot_by_id(number).time_millis for number in range(1, 5)}


async def test_rows_report_snapshot_and_time(tables: Any) -> None:
    table = orders(tables)
    builder = stream_read_builder(table).with_projection(COLUMNS).with_start(snapshot_id=1, full=True)
    async with builder.with_end(latest=True).open(commit_columns=True) as stream:
        batches = [batch async for batch in stream]
    assert [batch.data.schema.names[:4] for batch in batches] == [
        ["_row_kind", "_snapshot_id", "_commit_time", "id"]
    ] * 4
    found = [(row["_snapshot_id"], row["_commit_time"]) for batch in batches for row in batch.data.to_pylist()]
    assert found == [(each.snapshot_id, each.commit_time) for each in batches for _ in range(each.num_rows)]
    assert {number: round(time.timestamp() * 1000) for number, time in found} == snapshots(table)


def test_without_kinds_they_come_first_and_the_last_commit_counts(tables: Any) -> None:
    builder = stream_read_builder(events(tables, commits=4)).with_include_row_kind(False).with_catch_up("net")
    with builder.with_start("earliest").with_end(latest=True).open_sync(commit_columns=True) as stream:
        rows = pa.table(stream)
    assert rows.schema.names == ["_snapshot_id", "_commit_time", "day", "value"]
    assert rows.num_rows == 12
    assert set(rows["_snapshot_id"].to_pylist()) <= {1, 2, 3, 4}


def test_a_column_of_that_name_is_not_hidden(tables: Any) -> None:
    columns = pa.schema([("_snapshot_id", pa.int64()), ("n", pa.int64())])
    table = create_table(tables, "t", columns)
    write(table, [{"_snapshot_id": 7, "n": 1}], columns)
    builder = stream_read_builder(table).with_end(latest=True)
    with builder.open_sync(commit_columns=True) as stream, pytest.raises(StreamConfigError, match="'_snapshot_id'"):
        next(stream)
    with builder.with_projection(["n"]).open_sync(commit_columns=True) as stream:
        assert next(stream).data["_snapshot_id"].to_pylist() == [1]
