"""How many snapshots a stream that is behind prefetches: as far as it knows of snapshots, and no further."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import AsyncStreamingTableScan, CorruptTableError, IOTimeoutError, Plan, TableChangedError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CatchUp
from pypaimon.streaming.planning import catch_up
from pypaimon.streaming.planning.next_snapshots import Window, _NextWindow
from support.stores.fault_file_io import Call, FaultFileIO
from support.stores.request_time import hang
from support.stores.virtual_clock import VirtualClock
from support.tables.planner_drive import Drive
from support.tables.streamed_table import Table, available

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each(range(12))


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


# ---- the next window ----


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of four snapshots."""
    monkeypatch.setattr(catch_up, "_WIDEST_OF_REPLAY", 4)


def in_first_window(table: Table, file_io: FaultFileIO | None = None) -> tuple[Drive, list[Plan]]:
    """A stream that has read one snapshot of its first window.

    It has fetched the next window, and the snapshots of the one after that.
    """
    drive = Drive(table.handle(file_io or FaultFileIO()), Start(StartMode.FROM_SNAPSHOT, 2), catch_up=CatchUp.REPLAY)
    plans: list[Plan] = []
    while not plans:
        plans += [step.plan for step in [drive.step()] if step.plan is not None]
    assert _next_window(drive).after is not None
    return drive, plans


def _next_window(drive: Drive) -> Window:
    following = drive.planner._prefetcher._next
    found = None if following is None else following.result()
    assert found is not None
    if found.after is not None:
        # Waits. The stream meets an error when it gets there.
        found.after.future.exception()
    return found


def test_the_next_window_is_fetched_while_plans_are_made(table: Table, narrow: None) -> None:
    file_io = FaultFileIO()
    drive, plans = in_first_window(table, file_io)
    assert {f"snapshot-{number}" for number in range(6, 13)} <= set(file_io.names())
    file_io.forget()
    while plans[-1].snapshot_id < 6:
        plans += [step.plan for step in [drive.step()] if step.plan is not None]
    asked = set(file_io.names())
    # The window after it is the last one.
    assert _next_window(drive).after is None
    # The proof of that window.
    assert asked & {f"snapshot-{number}" for number in range(2, 13)} == {"snapshot-5", "snapshot-9"}
    plans += drive.run()
    assert drive.keys(plans) == list(range(1, 12))


def test_no_window_is_prefetched_without_prefetched_plans(table: Table, narrow: None) -> None:
    drive = Drive(table.handle(FaultFileIO()), Start(StartMode.EARLIEST), catch_up=CatchUp.REPLAY, prefetch=0)
    assert drive.keys() == list(range(12))
    assert drive.planner._prefetcher._next is None


@pytest.mark.parametrize("kept", [5, 6, 8, 9, 11])
def test_a_prefetched_window_that_was_rolled_back_is_fetched_again(table: Table, narrow: None, kept: int) -> None:
    drive, plans = in_first_window(table)
    table.rollback(kept)
    table.commit_each(range(100, 110))
    plans += drive.run()
    assert drive.keys(plans) == [*range(1, kept), *range(100, 110)]


def test_a_rollback_of_read_snapshots_is_found_with_a_prefetched_window(table: Table, narrow: None) -> None:
    drive, plans = in_first_window(table)
    while plans[-1].snapshot_id < 5:
        plans += [step.plan for step in [drive.step()] if step.plan is not None]
    table.rollback(3)
    table.commit_each(range(100, 110))
    with pytest.raises(TableChangedError):
        drive.run()


def test_an_error_in_a_prefetched_window_is_raised_when_it_is_reached(table: Table, narrow: None) -> None:
    path = table.snapshot_path(8)
    sound = path.read_bytes()
    path.write_bytes(b"{}")
    drive, plans = in_first_window(table)
    with pytest.raises(CorruptTableError, match="snapshot-8"):
        while True:
            plans += [step.plan for step in [drive.step()] if step.plan is not None]
    assert drive.keys(plans) == list(range(1, 7))
    path.write_bytes(sound)
    plans += drive.run()
    assert drive.keys(plans) == list(range(1, 12))


def test_a_seek_drops_the_prefetched_window(table: Table, narrow: None) -> None:
    drive, _ = in_first_window(table)
    drive.planner.forget()
    assert drive.planner._prefetcher._next is None


# ---- what hangs ----


@pytest.mark.parametrize(("part", "read", "most"), [("manifest-list-", [], 2), ("snapshot-5", [2, 3, 4], 5)])
def test_what_hangs_is_asked_for_once_ahead_and_once_in_its_turn(
    table: Table, narrow: None, part: str, read: list[int], most: int
) -> None:
    """Where the last snapshot of a window hangs, each of the steps to it asks ahead, and rows come between them."""
    file_io, over = FaultFileIO(), threading.Event()
    drive = Drive(table.handle(file_io), Start(StartMode.FROM_SNAPSHOT, 2), catch_up=CatchUp.REPLAY, prefetch=0)
    hung: list[str] = []

    def answer(call: Call) -> Any:
        if call.name.startswith(part):
            hung.append(call.name)
            hang(over)
        return call.answer()

    file_io.wherever(answer)
    plans: list[Plan] = []
    try:
        with pytest.raises(IOTimeoutError):
            while True:
                plans += [step.plan for step in [drive.step()] if step.plan is not None]
    finally:
        over.set()
    assert [plan.snapshot_id for plan in plans] == read
    assert max(map(hung.count, hung)) == most
    file_io.wherever(None)
    plans += drive.run()
    assert drive.keys(plans) == list(range(1, 12))


class Looked(IOPool):
    """A pool that tells when somebody waits for one of its calls."""

    def __init__(self) -> None:
        super().__init__(1, timeout=float("inf"))
        self.is_waited_for = threading.Event()

    @property
    def tick(self) -> float:
        self.is_waited_for.set()
        return 0.25


def test_a_window_that_hangs_is_an_error_for_its_callers(table: Table) -> None:
    pool = Looked()

    def hangs() -> Any:
        pool.is_waited_for.wait()
        raise IOTimeoutError("snapshot-9")

    with pytest.raises(IOTimeoutError, match="snapshot-9"):
        _NextWindow(1, None, pool, pool.submit(hangs)).result()
    # What had hung before it is asked for is asked for anew.
    over = pool.submit(hangs)
    assert isinstance(over.exception(), IOTimeoutError)
    assert _NextWindow(1, None, pool, over).result() is None
    pool.close()
