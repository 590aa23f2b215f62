"""Slots that move at any moment: each has the same rows as a stream of that slot alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from support.groups.shared_slots import Row, SharedSlots
from support.samples import SOAK, how_to_repeat, seeded, some
from support.tables.handles import catalog_with_database, write_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

HISTORIES = 40 if SOAK else 1
STEPS = 50
SLOTS = 6
COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False), ("v", pa.int64())]
)
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))
KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "none": ([], ["k"], {"bucket": "5"}),
    "input": ([], ["k"], {"bucket": "5", "changelog-producer": "input"}),
    "lookup": ([], ["k"], {"bucket": "5", "changelog-producer": "lookup"}),
    "full-compaction": ([], ["k"], {"bucket": "5", "changelog-producer": "full-compaction"}),
    "partitions": (["p"], ["p", "k"], {"bucket": "2"}),
    "append": ([], [], {"bucket": "4", "bucket-key": "k"}),
    "append partitions": (["p"], [], {"bucket": "2", "bucket-key": "k"}),
    "unaware": ([], [], {"bucket": "-1"}),
}


class History:
    """A table that is written and read by members, as drawn numbers decide."""

    def __init__(self, warehouse: Path, kind: str, numbers: random.Random) -> None:
        partitions, keys, options = KINDS[kind]
        catalog = catalog_with_database(warehouse)
        schema = Schema.from_pyarrow_schema(COLUMNS, partitions or None, keys or None, options)
        catalog.create_table("db.t", schema, False)
        self.table = catalog.get_table("db.t")
        self.numbers = numbers
        self._keyed, self._fresh, self._values = bool(keys), count(), count()
        self._by_file = kind == "unaware"
        for _ in range(numbers.randint(1, 3)):
            self.write()

    def rows(self, *, kinded: bool) -> pa.Table:
        # Where slots contain files, not keys, each key is used once, so that it identifies the slot of its row.
        found = []
        for _ in range(self.numbers.randint(3, 12)):
            key = next(self._fresh) if self._by_file else self.numbers.randrange(16)
            kind = "-D" if kinded and self.numbers.random() < 0.2 else "+I"
            found.append({"k": key, "p": f"p{key % 3}", "v": next(self._values), "_row_kind": kind})
        return pa.Table.from_pylist(found, KINDED if kinded else COLUMNS)

    def write(self) -> None:
        write_with(stream_write_builder(self.table).with_commit_user("w"), self.rows(kinded=self._keyed))

    def overwrite(self) -> None:
        write_with(stream_write_builder(self.table).with_commit_user("o").with_overwrite(), self.rows(kinded=False))

    def compact(self, *, full: bool = False) -> None:
        compact(self.table, full=full or self.numbers.random() < 0.5)

    def stream(self) -> Any:
        builder = stream_read_builder(self.table).with_poll_interval_ms(5)
        builder = builder.with_start(self.numbers.choice(["latest-full", "latest-full", "earliest"]))
        limits: dict[str, int] = self.numbers.choice([{}, {"max_rows": 1}, {"max_rows": 4}])
        return builder.with_limits(**limits) if limits else builder

    def latest(self) -> int:
        snapshot = self.table.snapshot_manager().get_latest_snapshot()
        assert snapshot is not None
        return int(snapshot.id)


def steps(history: History, shared: SharedSlots) -> Iterator[str]:
    """Do one step after the other, and note what each was."""
    numbers = history.numbers
    names = ["write", "overwrite", "compact", "take", "confirm", "move", "save", "too late", "crash", "lapse", "lease"]
    weights = [6, 1, 2, 20, 10, 8, 12, 8, 4, 1, 3]
    for name in numbers.choices(names, weights, k=STEPS):
        seat = numbers.choice(shared.seats)
        if name == "write":
            # This many snapshots at once make the stream catch up.
            for _ in range(numbers.choice([1] * 9 + [9])):
                history.write()
        elif name in ("overwrite", "compact"):
            getattr(history, name)()
        elif name == "take":
            for _ in range(numbers.randint(1, 3)):
                seat.take(0.02)
        elif name == "confirm":
            seat.confirm()
        elif name == "move":
            for slot in numbers.sample(range(shared.rule.count), numbers.randint(1, 2)):
                shared.move(slot, seat)
        elif name == "save":
            shared.save(seat)
        elif name == "too late":
            # Perhaps inside a plan that other members keep reading.
            seat.take(0.02)
            if own := list(seat.assigned.readable()):
                shared.move(numbers.choice(own), numbers.choice(shared.seats))
            shared.save(seat, too_late=True)
        elif name == "crash":
            shared.crash(seat)
        else:
            seat.lease(name == "lease")
        yield name


def slots_of(alone: list[list[Row]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for slot, rows in enumerate(alone):
        for row in rows:
            assert found.setdefault(row[0], slot) == slot, (row, slot)
    return found


def promised(rows: list[Row], kind: str) -> list[Row]:
    """Rows of a slot, sorted unless their order is guaranteed, as it is within a bucket."""
    return sorted(rows) if kind == "unaware" else sorted(rows, key=lambda row: row[-2])


@pytest.mark.parametrize("kind", some("kinds of moving slots", sorted(KINDS), 2))
def test_moving_slots_do_not_change_the_rows_of_a_slot(tmp_path: Path, kind: str) -> None:
    for number in range(HISTORIES):
        numbers = seeded(f"moving slots {kind} {number}")
        history = History(tmp_path / str(number), kind, numbers)
        shared = SharedSlots(history.stream(), SLOTS, numbers.randint(2, 3))
        done: list[str] = []
        try:
            done.extend(steps(history, shared))
            history.write()
            history.compact(full=True)
            shared.finish(history.latest())
        finally:
            shared.close()
        alone = shared.alone()
        assert any(alone)
        found = shared.shared(slots_of(alone))
        for slot, rows in enumerate(alone):
            assert promised(found[slot], kind) == promised(rows, kind), (number, slot, done, how_to_repeat())
