"""A live table continues from its saved rows, or begins with the state of the table, and never holds other rows."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import StreamConfigError, list_consumers
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.logs import FIELDS
from pypaimon.streaming.testing import SmallTable
from pypaimon.streaming.testing.table_changes import TableChanges
from support import programs
from support.samples import SOAK, seeded
from support.tables.handles import batch_read
from support.tables.live_tables import HeldClock, assert_ended, check, live_threads, often

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """With three rows, in snapshot 1."""
    table = SmallTable(tmp_path / "warehouse")
    table.commit({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3})
    return table


@pytest.fixture(autouse=True)
def _all_threads_end() -> Iterator[None]:
    yield
    assert_ended(live_threads())


def saved(file: Path, builder: Any, **more: Any) -> None:
    with builder.open_live_sync(save_to=file, **more) as live:
        live.save()
    # The thread may be saving too.
    assert_ended(live_threads())


def is_restored(caplog: pytest.LogCaptureFixture, builder: Any, file: Path) -> bool:
    """Open it, and find out by its first plan whether it has continued."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "pypaimon.streaming"), builder.open_live_sync(save_to=file) as live:
        table = builder.table
        check(live, table, batch_read(table))
        latest = table.snapshot_manager().get_latest_snapshot().id
        assert live.snapshot_id == latest
        live.save()
    assert_ended(live_threads())
    fields = [getattr(record, FIELDS, {}) for record in caplog.records]
    events = [each.get("event") for each in fields]
    begun_again = "full" in [each.get("kind") for each in fields if each.get("event") == "plan"]
    assert begun_again == ("saved_rows_unused" in events), events
    return not begun_again


@pytest.mark.parametrize("memory_limit_bytes", [1 << 30, 0], ids=["memory", "disk"])
def test_each_start_continues_where_the_last_one_was_saved(
    tmp_path: Path, table: SmallTable, memory_limit_bytes: int
) -> None:
    file = tmp_path / "live.arrow"
    random = seeded(f"saved {memory_limit_bytes}")
    table = SmallTable(tmp_path / "changing")
    changes = TableChanges(table, True, random)
    changes.commit()
    saved(file, often(table.table), memory_limit_bytes=memory_limit_bytes)
    for _ in range(10 if SOAK else 4):
        for _ in range(random.randint(0, 3)):
            if random.random() < 0.3:
                changes.alter()
            changes.commit()
        expected = batch_read(table.table)
        with often(table.table).open_live_sync(save_to=file, memory_limit_bytes=memory_limit_bytes) as live:
            # At once as new as the table is, though changes were missed.
            assert live.snapshot_id == table.table.snapshot_manager().get_latest_snapshot().id
            check(live, table.table, expected)
            changes.commit()
            if random.random() < 0.7:
                live.save()


def test_only_changes_are_read_after_a_restart(
    tmp_path: Path, table: SmallTable, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "live.arrow"
    saved(file, often(table.table))
    assert is_restored(caplog, often(table.table), file)
    table.commit(("-D", {"id": 1, "name": "a"}), {"id": 4})
    assert is_restored(caplog, often(table.table), file)


@pytest.mark.parametrize(
    "what", ["expired", "rolled back", "re-created", "filter", "columns", "damaged", "cut", "other"]
)
def test_otherwise_it_begins_with_the_state(
    tmp_path: Path, table: SmallTable, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    file = tmp_path / "live.arrow"
    table.commit({"id": 4, "name": "d"})
    before = often(table.table)
    if what == "filter":
        before.with_filter("id > 1")
    if what == "columns":
        before.with_projection(["id", "name"])
    saved(file, before)
    if what == "expired":
        for step in range(3):
            table.commit(("+U", {"id": 1, "name": f"{step}"}))
        table.expire()
    elif what == "rolled back":
        table.table.rollback_to(1)
        table.commit({"id": 5})
    elif what == "re-created":
        table.catalog.drop_table(table.name)
        table = SmallTable(tmp_path / "warehouse")
        table.commit({"id": 1, "name": "a"})
    elif what == "damaged":
        file.write_bytes(b"x" * 100)
    elif what == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif what == "other":
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, pa.schema([("id", pa.int64())])):
            pass
    assert not is_restored(caplog, often(table.table), file)
    # What was saved now is used by the next one.
    assert is_restored(caplog, often(table.table), file)


def test_columns_that_changed_meanwhile(tmp_path: Path, table: SmallTable, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "live.arrow"
    saved(file, often(table.table))
    table.alter(SchemaChange.rename_column("name", "title"))
    table.alter(SchemaChange.update_column_type("number", AtomicType("BIGINT")))
    table.alter(SchemaChange.add_column("more", AtomicType("INT")))
    assert is_restored(caplog, often(table.table), file)
    table.commit({"id": 4, "title": "d", "more": 1})
    assert is_restored(caplog, often(table.table), file)


def test_rows_are_saved_by_themselves(tmp_path: Path, table: SmallTable) -> None:
    file, clock = tmp_path / "live.arrow", HeldClock()
    builder = often(table.table, clock).with_consumer_id("live")
    with builder.open_live_sync(save_to=file, save_interval=0) as live:
        clock.hold()
        first = file.read_bytes()
        table.commit({"id": 4})
        table.commit({"id": 5})
        clock.let_go()
        live.wait_for(3)
        clock.hold()
        assert file.read_bytes() != first
    with pa.OSFile(str(file)) as opened:
        assert pa.ipc.open_file(opened).read_all()["id"].to_pylist() == [1, 2, 3, 4, 5]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["live.arrow"]


def test_a_consumer_keeps_what_follows_the_saved_rows(tmp_path: Path, table: SmallTable) -> None:
    file, clock = tmp_path / "live.arrow", HeldClock()
    builder = often(table.table, clock).with_consumer_id("live")
    with builder.open_live_sync(save_to=file, save_interval=3600) as live:
        live.wait_for(table.commit({"id": 4}))
        clock.hold()
        (consumer,) = list_consumers(table.table)
        assert consumer.next_snapshot == 2
        clock.let_go()
        live.save()
        clock.hold()
        clock.let_go()
        clock.hold()
        (consumer,) = list_consumers(table.table)
        assert consumer.next_snapshot == 3


KILLED = """
import os, signal, sys
from pypaimon.streaming import open_table, stream_read_builder
from pypaimon.streaming.live import saved_rows

def main(warehouse, file, until, home):
    live = stream_read_builder(open_table("db.small", {"warehouse": warehouse})).open_live_sync(save_to=file)
    count = 0

    def on_line(frame, event, _):
        nonlocal count
        count += 1
        if count == int(until):
            os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    sys.settrace(lambda frame, event, _: on_line if frame.f_code.co_filename == home else None)
    live.save()
    sys.settrace(None)
    live.close()

main(*sys.argv[1:], saved_rows.__file__)
"""


def test_a_killed_save_leaves_a_whole_file(tmp_path: Path, table: SmallTable) -> None:
    file, killed = tmp_path / "live.arrow", 0
    saved(file, often(table.table))
    for line in range(20, 60, 1 if SOAK else 14):
        latest = table.commit(("+U", {"id": 1, "name": f"{line}"}))
        command = [sys.executable, "-c", KILLED, tmp_path / "warehouse", file, line]
        killed += programs.run(list(map(str, command)), timeout=60).returncode == -signal.SIGKILL
        with pa.OSFile(str(file)) as opened:
            assert pa.ipc.open_file(opened).read_all().num_rows == 3
        with often(table.table).open_live_sync(save_to=file) as live:
            assert live.snapshot_id == latest and live.get(1)["name"] == f"{line}"
    assert killed >= 2


async def test_invalid_files_are_refused(tmp_path: Path, table: SmallTable) -> None:
    for given in (tmp_path, tmp_path / "missing" / "file", 1, ""):
        with pytest.raises(StreamConfigError, match="save_to"):
            often(table.table).open_live_sync(save_to=given)
    with pytest.raises(StreamConfigError, match="save_interval"):
        often(table.table).open_live(save_to=tmp_path / "file", save_interval=-1)
    with pytest.raises(StreamConfigError, match="with_buckets"):
        often(table.table).with_buckets([0]).open_live_sync(save_to=tmp_path / "file")
    async with often(table.table).open_live() as live:
        with pytest.raises(StreamConfigError, match="save_to="):
            await live.save()


def test_a_file_that_cannot_be_written_does_not_end_it(
    tmp_path: Path, table: SmallTable, caplog: pytest.LogCaptureFixture
) -> None:
    directory, clock = tmp_path / "saved", HeldClock()
    directory.mkdir()
    with often(table.table, clock).open_live_sync(save_to=directory / "file", save_interval=0) as live:
        clock.hold()
        (directory / "file").unlink()
        directory.rmdir()
        table.commit({"id": 4})
        clock.let_go()
        live.wait_for(2)
        clock.hold()
        assert "rows_not_saved" in [getattr(record, FIELDS, {}).get("event") for record in caplog.records]
        with pytest.raises(TargetError, match="cannot save"):
            live.save()
        assert live.get(4) is not None
        directory.mkdir()
        live.save()
        assert (directory / "file").exists()
        clock.let_go()
