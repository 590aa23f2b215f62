"""How far a stream that is behind looks ahead: as far as it knows that there is something, and no further."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_file_io import FaultFileIO
from tables import Table, available
from virtual_clock import VirtualClock

from pypaimon.streaming import AsyncStreamingTableScan


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "w")
    for key in range(12):
        table.commit([key])
    return table


def behind(table: Table, file_io: FaultFileIO) -> AsyncStreamingTableScan:
    builder = table.builder(file_io, VirtualClock()).with_start(snapshot_id=2).with_prefetch(0)
    return builder.with_catch_up("replay").new_streaming_scan()


def test_all_that_is_known_to_be_there_is_asked_for_at_once(table: Table) -> None:
    file_io = FaultFileIO()
    scan = behind(table, file_io)
    plan = scan.plan()
    assert plan is not None
    assert plan.snapshot_id == 2
    names = file_io.names()
    first_manifest = next(index for index, name in enumerate(names) if name.startswith("manifest"))
    assert {f"snapshot-{number}" for number in range(2, 13)} <= set(names[:first_manifest])
    file_io.forget()
    assert [plan.snapshot_id for plan in available(scan)] == list(range(3, 13))
    assert [name for name in file_io.names() if name != "snapshot-13"] == []
    scan.close()


def test_a_poll_looks_at_one_snapshot_whatever_else_was_once_there(table: Table) -> None:
    """After a rollback greater ids are still known; a poll must not ask for all of them."""
    file_io = FaultFileIO()
    scan = behind(table, file_io)
    assert len(available(scan)) == 11
    for number in (11, 12):
        table.snapshot_path(number).unlink()
    (table.path / "snapshot" / "LATEST").write_text("10")
    scan.restore(11)
    scan.lag()
    for number in (11, 12):
        assert not table.snapshot_path(number).exists()
    assert scan.plan() is None
    file_io.forget()
    for _ in range(5):
        assert scan.plan() is None
    assert file_io.names() == ["snapshot-11"] * 5
    scan.close()
