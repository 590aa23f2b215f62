"""Members of the group `etl` of a written table, in threads of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from pypaimon.streaming import PaimonStreamError, stream_read_builder
from pypaimon.streaming.groups import GroupStreamBuilder
from support.tables.streamed_table import Table
from support.tables.written_tables import rows

BUCKETS = 4
SESSION = 2.0
FOR_EVER = 120


def write(table: Table, *keys: int) -> None:
    with table.writer().open_sync() as writer:
        writer.write(rows(*keys))
        writer.commit()


def group(table: Table, **settings: Any) -> GroupStreamBuilder:
    """The group `etl`, with a short poll interval."""
    builder = stream_read_builder(table.handle()).with_poll_interval_ms(20)
    return builder.new_group("etl", **{"session_timeout": SESSION, **settings})


def keys(batch: Any) -> list[int]:
    found: list[int] = batch.rows["k"].to_pylist()
    return found


def waits_before(table: Table) -> set[int]:
    """The barriers in the records of all members."""
    found = set()
    for path in (table.path / "consumer" / "group-etl" / "1").glob("member-*"):
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        if "barrier" in record:
            found.add(record["barrier"])
    return found


class Member:
    def __init__(self, builder: Callable[..., GroupStreamBuilder]) -> None:
        self.keys: list[int] = []
        self.slots: set[int] = set()
        self.error: PaimonStreamError | None = None
        self._changed = threading.Condition()
        self.stream = builder(on_assigned=self._got, on_revoked=self._gave, on_lost=self._gave).open_sync()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _got(self, slots: tuple[int, ...]) -> None:
        with self._changed:
            self.slots |= set(slots)
            self._changed.notify_all()

    def _gave(self, slots: tuple[int, ...]) -> None:
        with self._changed:
            self.slots -= set(slots)
            self._changed.notify_all()

    def _read(self) -> None:
        with self.stream:
            try:
                for batch in self.stream:
                    with self._changed:
                        assert set(batch.slots) <= self.slots
                        self.keys += keys(batch)
                        self._changed.notify_all()
            except PaimonStreamError as error:
                self.error = error

    def wait(self, condition: Callable[[Member], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), FOR_EVER)

    def end(self) -> None:
        self.stream.stop()
        self.join()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(FOR_EVER)
        assert not self._thread.is_alive()
        assert self.error is None, self.error
