"""A live table reads whatever changes its rows, and refuses streams whose records do not tell which row holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import TableChangedError, UnsupportedTableError, compact
from pypaimon.streaming.testing import SmallTable
from pypaimon.streaming.testing.small_table import COLUMNS
from support.samples import SOAK
from support.tables.handles import batch_read, write_by_pypaimon
from support.tables.live_tables import check, often

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("option", ["sequence.field", "merge-engine"])
def test_records_that_do_not_say_which_row_holds_are_refused(tmp_path: Path, producer: str, option: str) -> None:
    values = ["number"] if option == "sequence.field" else ["partial-update", "aggregation", "first-row"]
    for count, value in enumerate(values):
        table = SmallTable(tmp_path, options={"changelog-producer": producer, option: value}, name=f"db.t{count}")
        with pytest.raises(UnsupportedTableError, match=rf"db\.t{count} has .*{value}.*'{producer}'.*'lookup'"):
            often(table.table).with_raw(option == "merge-engine").open_live_sync()


def test_the_greatest_sequence_counts_where_compactions_make_changes(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, options={"changelog-producer": "lookup", "sequence.field": "number"})
    with often(table.table).open_live_sync() as live:
        for number in (5, 3, 7, 6):
            table.commit({"id": 1, "name": str(number), "number": number})
            compact(table.table, full=True)
            live.wait_for(table.table.snapshot_manager().get_latest_snapshot().id)
            check(live, table.table, batch_read(table.table))
        assert live.get(1)["number"] == 7


def overwritten(table: SmallTable, *rows: dict[str, Any]) -> int:
    """Replace all rows of a table; returns the snapshot."""
    write_by_pypaimon(table.table, pa.Table.from_pylist(list(rows), schema=COLUMNS), overwrite=True)
    return int(table.table.snapshot_manager().get_latest_snapshot().id)


@pytest.mark.parametrize("producer", ["none", "input"])
def test_overwrites_are_read(tmp_path: Path, producer: str) -> None:
    table = SmallTable(tmp_path, options={"changelog-producer": producer})
    table.commit(*({"id": number, "name": "old"} for number in range(20)))
    with often(table.table).open_live_sync() as live:
        live.wait_for(overwritten(table, *({"id": number, "name": "new"} for number in range(10, 30))))
        check(live, table.table, batch_read(table.table))
        assert live.get(9) is None and live.get(10)["name"] == "new" and len(live) == 20
        live.wait_for(table.commit({"id": 1}, ("-D", {"id": 10})))
        check(live, table.table, batch_read(table.table))
        live.wait_for(overwritten(table, {"id": 2}))
        check(live, table.table, batch_read(table.table))
        assert live.get(2) is not None and len(live) == 1


@pytest.mark.parametrize("memory_limit_bytes", [1 << 30, 0])
@pytest.mark.parametrize("producer", ["none", "input"])
def test_overwrites_may_move_keys_to_other_buckets(tmp_path: Path, producer: str, memory_limit_bytes: int) -> None:
    table = SmallTable(tmp_path, options={"changelog-producer": producer, "bucket": "1"})
    table.commit(*({"id": number, "name": "old"} for number in range(40)))
    builder = often(table.table).with_limits(max_splits=2)
    with builder.open_live_sync(memory_limit_bytes=memory_limit_bytes) as live:
        for begin, buckets in enumerate((3, 2, 4, 1) if SOAK else (3, 1)):
            table.alter(SchemaChange.set_option("bucket", str(buckets)))
            rows = [{"id": number, "name": str(buckets)} for number in range(begin, 30)]
            live.wait_for(overwritten(table, *rows))
            assert len(live) == len(rows)
            check(live, table.table, batch_read(table.table))


def test_overwrites_that_are_not_read_end_it(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1})
    with often(table.table).with_on_overwrite("fail").open_live_sync() as live:
        snapshot = overwritten(table, {"id": 2})
        with pytest.raises(TableChangedError, match=f"Snapshot {snapshot} overwrites data"):
            live.wait_for(snapshot)
        with pytest.raises(TableChangedError):
            live.get(1)


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_where_overwrites_have_no_changes_the_state_begins_again(tmp_path: Path, producer: str) -> None:
    table = SmallTable(tmp_path, options={"changelog-producer": producer})
    table.commit(*({"id": number} for number in range(5)))
    compact(table.table, full=True)
    with often(table.table).open_live_sync() as live:
        assert len(live) == 5
        overwritten(table, {"id": 2})
        compact(table.table, full=True)
        live.wait_for(table.table.snapshot_manager().get_latest_snapshot().id)
        check(live, table.table, batch_read(table.table))
        assert len(live) == 1
