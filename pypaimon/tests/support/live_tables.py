"""Live tables under test: streams that ask often, or when they are told to; rows as batch reads give them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from pypaimon.streaming import Clock, StreamReadBuilder

POLL_MS = 10


class HeldClock(Clock):
    """While it is held, who waits does so until it is let go, or woken. It is not at first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_held = False
        self._waits = self._over = 0

    def hold(self) -> None:
        """Hold it; returns as soon as somebody waits anew."""
        with self._changed:
            self._is_held = True
            self._over = begun = self._waits
            assert self._changed.wait_for(lambda: self._waits > begun, 60)

    def let_go(self) -> None:
        """Let waits last as long as they do."""
        with self._changed:
            self._is_held = False
            self._changed.notify_all()

    def wait(self, woken: queue.SimpleQueue[None], seconds: float) -> None:
        with self._changed:
            self._waits += 1
            mine = self._waits
            self._changed.notify_all()
            while self._is_held and self._over < mine and woken.empty():
                self._changed.wait(0.05)
        super().wait(woken, seconds)


def often(table: Any, clock: Clock | None = None) -> StreamReadBuilder:
    """A stream that follows changes of the columns."""
    return StreamReadBuilder(table, None, clock).with_poll_interval_ms(POLL_MS).with_on_schema_change("follow")


def batch_read(table: Any) -> list[dict[str, Any]]:
    """The rows of the latest snapshot, as pypaimon reads them."""
    builder = table.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return [] if found is None else found.to_pylist()


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows that can be compared."""
    return sorted(repr(sorted(row.items())) for row in rows)


def live_threads() -> list[threading.Thread]:
    """The threads of live tables."""
    return [thread for thread in threading.enumerate() if thread.name == "paimon-live"]


def assert_ended(threads: Iterable[threading.Thread]) -> None:
    """Make sure that threads end."""
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
