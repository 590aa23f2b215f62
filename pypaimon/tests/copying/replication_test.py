"""A replication waits out what may pass, continues where its target stands, and ends when it is stopped."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import DictTarget, Replication
from pypaimon.streaming.errors import StoreError, TargetError
from pypaimon.streaming.targets.changes import AnyBatch
from pypaimon.streaming.testing import SmallTable
from support.tables.handles import batch_read
from support.tables.live_tables import in_order
from support.tables.target_places import SQLitePlace

pytestmark = pytest.mark.slow

QUICK = {"first_pause": 0.0, "longest_pause": 0.0}
NEVER = {"first_pause": 1e6, "longest_pause": 1e6}
"""Pauses that outlast every test: only a stop ends one."""


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    source = SmallTable(tmp_path / "w")
    for number in range(3):
        source.commit({"id": number}, {"id": number + 10})
    return source


class Failing(DictTarget):
    """Fails at some of its batches."""

    def __init__(self, *failures: int) -> None:
        super().__init__()
        self._failures = set(failures)
        self.calls = 0

    def apply(self, batch: AnyBatch) -> None:
        self.calls += 1
        if self.calls in self._failures:
            raise StoreError("away")
        super().apply(batch)


def test_it_continues_after_a_failure_inside_a_plan(source: SmallTable, caplog: pytest.LogCaptureFixture) -> None:
    target = Failing(2, 3, 5)
    with caplog.at_level(logging.WARNING):
        builder = source.builder().with_limits(max_splits=1)
        (copy := Replication(builder, target, **QUICK)).run()
    assert in_order(target.rows.values()) == in_order(batch_read(source.table))
    assert "continues after a pause: away" in caplog.text
    assert copy.status is not None and copy.status.batches


def test_a_lock_is_waited_out(source: SmallTable, tmp_path: Path) -> None:
    place, calls = SQLitePlace(tmp_path), []
    with closing(place.connected()) as others:
        target: Any = place.opened(None)
        with others.cursor() as cursor:
            cursor.execute("CREATE TABLE theirs (id INTEGER)")
        locked = target.apply

        def apply(batch: AnyBatch) -> None:
            calls.append(batch)
            if len(calls) == 3:
                others.rollback()
            locked(batch)

        target.apply = apply
        Replication(source.builder(), target, **QUICK).run()
    assert len(calls) == 3
    assert in_order(place.held()) == in_order(batch_read(source.table))


def test_a_signal_ends_it_also_in_an_outage(source: SmallTable) -> None:
    class Away(DictTarget):
        def apply(self, batch: AnyBatch) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            raise StoreError("away")

    target = Away()
    Replication(source.builder(), target, **NEVER).run()
    assert target.load_position() is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_does_not_pass_is_raised(source: SmallTable) -> None:
    class Refusing(DictTarget):
        def apply(self, batch: AnyBatch) -> None:
            raise TargetError("no room")

    with pytest.raises(TargetError, match="no room"):
        Replication(source.builder(), Refusing(), **QUICK).run()
