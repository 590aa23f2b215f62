"""`new_snapshots`: each snapshot once for a chain of cursors, and what a cursor that cannot continue says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, rollback, stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import PositionExpiredError, StreamConfigError, TableChangedError, UnsupportedTableError
from pypaimon.streaming.orchestrators import NewSnapshot, new_snapshots
from pypaimon.streaming.orchestrators.snapshot_cursors import wait_for_snapshots
from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS, of_section, run_section
from support.stores.fault_file_io import HangingFileIO
from support.tables.chain_tables import ChainTable
from support.tables.orders import catalog, orders

pytestmark = pytest.mark.slow


def ids(table: SmallTable, found: NewSnapshot) -> list[int]:
    """The keys of the rows of a snapshot, as a run reads them."""
    builder = stream_read_builder(table.table).with_start(position=found.position)
    with builder.with_end(snapshot_id=found.snapshot_id).open_sync() as stream:
        return sorted(row["id"] for batch in stream for row in batch)


def overwrite(table: SmallTable, key: int) -> None:
    with stream_write_builder(table.table).with_overwrite().open_sync() as writer:
        writer.write(pa.table({"id": [key]}))
        writer.commit()


def test_each_snapshot_is_found_once_and_read_as_it_was(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    assert [*new_snapshots(table.table)] == []
    table.commit({"id": 1})
    table.commit({"id": 2})
    (state,) = new_snapshots(table.table)
    assert [*new_snapshots(table.table, state.cursor)] == []
    for number in range(3, 6):
        table.commit({"id": number})
    first, *others = new_snapshots(table.table, state.cursor)
    assert [*new_snapshots(table.table, state.cursor)] == [first, *others]
    assert [*new_snapshots(table.table, state.cursor, limit=1)] == [first]
    assert [*new_snapshots(table.table, first.cursor)] == others
    assert [ids(table, each) for each in (state, first, *others)] == [[1, 2], [3], [4], [5]]
    assert len({each.cursor for each in (state, first, *others)}) == 4


@pytest.mark.parametrize("keys", ["id", ()])
def test_compactions_and_changed_columns_are_no_news(tmp_path: Path, keys: Any) -> None:
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    table = SmallTable(tmp_path, keys=keys)
    table.commit({"id": 1})
    (state,) = new_snapshots(table.table)
    compact(table.table, full=True)
    table.alter(SchemaChange.add_column("note", AtomicType("STRING")))
    assert [*new_snapshots(table.table, state.cursor)] == []
    table.commit({"id": 2, "note": "new"})
    assert [ids(table, each) for each in new_snapshots(table.table, state.cursor)] == [[2]]


@pytest.mark.parametrize("keys", ["id", ()])
def test_overwrites_are_news(tmp_path: Path, keys: Any) -> None:
    table = SmallTable(tmp_path, keys=keys)
    table.commit({"id": 1})
    (state,) = new_snapshots(table.table)
    overwrite(table, 2)
    table.commit({"id": 3})
    assert [each.snapshot_id for each in new_snapshots(table.table, state.cursor)] == [2, 3]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_complete_changelogs_have_no_overwrites(tmp_path: Path, producer: str) -> None:
    table = SmallTable(tmp_path, options={"changelog-producer": producer})
    table.commit({"id": 1})
    compact(table.table, full=True)
    (state,) = new_snapshots(table.table)
    overwrite(table, 2)
    assert [*new_snapshots(table.table, state.cursor)] == []


def test_a_table_that_was_emptied_begins_with_its_empty_state(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1})
    table.commit(("-D", {"id": 1}))
    found = [*new_snapshots(table.table)]
    table.commit({"id": 2})
    found += new_snapshots(table.table, found[-1].cursor if found else None)
    assert [row for each in found for row in ids(table, each)] == [2]


def test_a_cursor_that_cannot_continue_is_an_error(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1})
    (state,) = new_snapshots(table.table)
    table.commit({"id": 2})
    (second,) = new_snapshots(table.table, state.cursor)
    rollback(table.table, snapshot_id=1)
    table.commit({"id": 3})
    with pytest.raises(TableChangedError):
        [*new_snapshots(table.table, second.cursor)]
    (another,) = new_snapshots(table.table, state.cursor)
    assert another.snapshot_id == second.snapshot_id and another.cursor != second.cursor
    table.commit({"id": 4})
    table.expire()
    with pytest.raises(PositionExpiredError, match="Snapshot 2 has expired"):
        [*new_snapshots(table.table, state.cursor)]
    with pytest.raises(StreamConfigError, match="not a position"):
        [*new_snapshots(table.table, "7")]
    with pytest.raises(StreamConfigError, match="limit"):
        [*new_snapshots(table.table, limit=0)]


async def test_waiting_leaves_the_event_loop_free_while_the_store_hangs(tmp_path: Path, hanging: HangingFileIO) -> None:
    written = SmallTable(tmp_path)
    await asyncio.to_thread(written.commit, {"id": 1})
    (state,) = await wait_for_snapshots(written.table, None, 0.01)
    table = written.table
    table.file_io = hanging
    hanging.hangs = lambda call: "snapshot" in call.path
    waiting = asyncio.create_task(wait_for_snapshots(table, state.cursor, 0.01))
    # The loop runs this while the wait's request hangs.
    assert await asyncio.to_thread(hanging.hanging.wait, 60)
    assert not waiting.done()
    await asyncio.to_thread(written.commit, {"id": 2})
    hanging.go_on.set()
    assert [each.snapshot_id for each in await asyncio.wait_for(waiting, 60)] == [2]


async def test_a_wait_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1})
    (state,) = new_snapshots(table.table)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(wait_for_snapshots(table.table, state.cursor, 600), 0.3)


def test_the_consumer_of_the_table_stays_where_it_is(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, options={"consumer-id": "job"})
    table.commit({"id": 1})
    (state,) = new_snapshots(table.table)
    table.commit({"id": 2})
    assert [each.snapshot_id for each in new_snapshots(table.table, state.cursor)] == [2]
    assert not [*tmp_path.rglob("consumer-job")]


def test_a_chain_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="chain table"):
        [*new_snapshots(ChainTable(tmp_path).handle())]


def test_the_page_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders(catalog(tmp_path / "warehouse"))
    run_section(DOCS / "orchestrators.md", "The cursor", tmp_path / "warehouse")
    (expected,) = (each.text for each in of_section(DOCS / "orchestrators.md", "The cursor") if each.language == "text")
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("framework", ["airflow", "bytewax", "dagster", "dlt"])
def test_a_missing_framework_names_its_extra(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, f"pypaimon.streaming.orchestrators.{framework}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'pypaimon-streaming\[{framework}\]'"):
        importlib.import_module(f"pypaimon.streaming.orchestrators.{framework}")
