"""What the threads of a database stream do at the same time: items are taken once, and no thread is missing."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.engine import DatabaseEngine
from pypaimon.streaming.databases.engine_state import OPENERS, WORKERS, EngineState, Item
from pypaimon.streaming.databases.events import TableAdded, TableFailed
from pypaimon.streaming.databases.jobs import EngineSettings, OnTableError
from pypaimon.streaming.databases.table_registry import FailedTable
from pypaimon.streaming.scanning.metrics import ScanMetrics
from support.tables.databases import Database, keys

LONG = 60.0
SETTINGS = EngineSettings(1.0, 1, 1, OnTableError.PARK, is_bounded=False, places=None)


class _Hurried(EngineState):
    """A state whose next item is taken at the moment at which a thread finds that none is.

    `drop` sets `taken` without the lock, so this can happen between any two lines.
    """

    next_item_taken: Item | None = None

    @property  # type: ignore[override]
    def taken(self) -> Item | None:
        found = self._taken
        if found is None:
            self._taken, self.next_item_taken = self.next_item_taken, None
        return found

    @taken.setter
    def taken(self, item: Item | None) -> None:
        self._taken = item


def test_an_item_that_is_taken_while_the_one_before_is_applied_comes_once() -> None:
    engine: Any = DatabaseEngine(None, SETTINGS, Clock())  # type: ignore[arg-type]
    state = engine._state = _Hurried(SETTINGS, Clock())
    state.emit(TableAdded("a"))
    state.emit(TableAdded("b"))
    assert engine.peek() == TableAdded("a")
    state.taken = engine.peek()
    engine._apply_taken()
    second = engine.peek()
    assert second == TableAdded("b")
    # Every call of `drop` and `ready` has the item applied, so a call may find nothing to apply.
    state.next_item_taken = second
    engine._apply_taken()
    engine._apply_taken()
    assert not state.pending_events
    engine.close()


def test_a_table_is_closed_while_others_use_the_state() -> None:
    """Closing may wait for a write, and calls on an event loop need the lock."""
    state, table = EngineState(SETTINGS, Clock()), _Closing()
    state.registry.followed["t"] = table  # type: ignore[assignment]

    def forget() -> None:
        with state.lock:
            state.forget("t")

    thread = threading.Thread(target=forget)
    try:
        thread.start()
        assert table.is_closing.wait(LONG)
        assert state.lock.acquire(timeout=LONG / 10)
        state.lock.release()
    finally:
        table.may_end.set()
        thread.join(LONG)


def test_an_error_of_a_parked_table_is_reported_once_and_its_identity_is_kept() -> None:
    state = EngineState(SETTINGS, Clock())
    errors = [ValueError("request 1"), ValueError("request 2"), TypeError("request 3")]
    state.park("t", errors[0], None, "its identity")
    for error in errors[1:]:
        state.park("t", error, None)
        assert state.registry.failed["t"] == FailedTable(error, "its identity")
    assert [each.event for each in state.pending_events] == [TableFailed("t", errors[0]), TableFailed("t", errors[2])]


class _Closing:
    def __init__(self) -> None:
        self.name = "t"
        self.chunks: list[Any] = []
        self.driver = SimpleNamespace(metrics=ScanMetrics())
        self.is_closing, self.may_end = threading.Event(), threading.Event()

    def close(self) -> None:
        self.is_closing.set()
        self.may_end.wait(LONG)


@pytest.mark.slow
@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize("number", [1, WORKERS, WORKERS + OPENERS])
def test_an_interrupt_while_threads_start_leaves_none_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, has_started: bool
) -> None:
    database, start = Database(tmp_path / "w"), BackgroundThread.start
    database.create("t", 1)

    def interrupted(thread: BackgroundThread) -> None:
        if thread.name != f"paimon-database-{number}":
            return start(thread)
        monkeypatch.undo()
        if has_started:
            start(thread)
        raise KeyboardInterrupt

    others = threading.enumerate()
    monkeypatch.setattr(BackgroundThread, "start", interrupted)
    with database.stream().open_sync() as stream:
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert keys(next(stream)) == [1]
        names = [each.name.removeprefix("paimon-database-") for each in threading.enumerate() if each not in others]
    started = sorted(int(name) for name in names if name.isdecimal())
    # Whether a thread has started is not known after an interrupt, so there may be one more.
    twice = [number] if has_started else []
    assert started == sorted([*range(1, WORKERS + OPENERS + 1), *twice])
