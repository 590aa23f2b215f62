"""Live tables under test: streams that poll often or when a test says so, and checks of the rows."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from pypaimon.streaming import StreamReadBuilder
from pypaimon.streaming.concurrency.clock import Clock

POLL_MS = 10


class HeldClock(Clock):
    """A clock that a test can hold: waits then last until `let_go` or until they are woken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_held = False
        self._waits = self._over = 0

    def hold(self) -> None:
        """Hold it, and return when the next wait has begun."""
        with self._changed:
            self._is_held = True
            self._over = begun = self._waits
            assert self._changed.wait_for(lambda: self._waits > begun, 60)

    def let_go(self) -> None:
        """Let waits take their usual time."""
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
    builder = StreamReadBuilder(table).with_poll_interval_ms(POLL_MS).with_on_schema_change("follow")
    builder._clock = clock or builder._clock
    return builder


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def live_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "paimon-live"]


def assert_ended(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def check(live: Any, table: Any, expected: list[dict[str, Any]]) -> None:
    """Check that every way to read a live table gives these rows."""
    keys = table.primary_keys
    assert in_order(live.to_arrow().to_pylist()) == in_order(expected)
    assert len(live) == len(expected)
    asked = [tuple(row[key] for key in keys) for row in expected]
    assert [live.get(key if len(key) > 1 else key[0]) for key in asked] == expected
    if expected:
        kinds = live.to_arrow().schema
        given = {key: pa.array([row[key] for row in expected], kinds.field(key).type) for key in keys}
        assert live.get_many(pa.table(given)).to_pylist() == expected


KEYS: dict[str, tuple[dict[str, pa.DataType], Callable[[Random], tuple[Any, ...]]]] = {
    "text": ({"a": pa.string()}, lambda random: (random.choice(["", "a", "ä" * 9, "x" * 40]) * random.randint(0, 2),)),
    "text and int": ({"a": pa.string(), "b": pa.int32()}, lambda random: (random.choice("abc"), random.randint(-2, 2))),
    "decimal": ({"a": pa.decimal128(10, 2)}, lambda random: (Decimal(random.randint(-9, 9)).scaleb(-1),)),
    "time and boolean": (
        {"a": pa.timestamp("ms"), "b": pa.bool_()},
        lambda random: (datetime(1970, 1, random.randint(1, 5)), random.random() < 0.5),
    ),
    "double": ({"a": pa.float64()}, lambda random: (random.choice([0.5, -1.5, 1e300, random.randint(-3, 3) / 3]),)),
    "bytes": ({"a": pa.binary()}, lambda random: (bytes([random.randint(0, 5)]) * random.randint(0, 3),)),
}
"""The columns of a key, and a function that draws one."""
_VALUES = {"number": pa.int64(), "money": pa.decimal128(20, 4), "list": pa.list_(pa.string())}


def columns_of(kind: str) -> pa.Schema:
    """The columns of a key, and some columns of values."""
    columns = KEYS[kind][0]
    return pa.schema([pa.field(name, each, nullable=name not in columns) for name, each in (columns | _VALUES).items()])


def keyed_changes(kind: str, step: int, random: Random) -> list[tuple[str, dict[str, Any]]]:
    """Some changes of a table with these columns, perhaps several of one key."""
    columns, draw = KEYS[kind]
    changes: list[tuple[str, dict[str, Any]]] = []
    for _ in range(random.randint(1, 20)):
        row: dict[str, Any] = dict(zip(columns, draw(random), strict=True))
        row["number"] = random.choice([None, step])
        row["money"] = random.choice([None, Decimal(step).scaleb(-4)])
        row["list"] = random.choice([None, [], ["a", None]])
        changes.append((random.choice(["+I", "+U", "-D"]), row))
    return changes
