"""Slots that move at any moment: each has the same rows as a stream of that slot alone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import StreamReadBuilder, compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.group_bounds import GroupStart
from pypaimon.streaming.groups.group_files import GroupState, SlotOwnership
from pypaimon.streaming.groups.group_reader import GroupReader
from pypaimon.streaming.groups.group_stream import DeliveredPlans
from pypaimon.streaming.groups.slot_cursor import SlotCursor
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.slot_rule import SlotRule, SlotSet
from pypaimon.streaming.spec.spec_builder import resolved
from support.samples import SOAK, how_to_repeat, seeded, some
from support.tables.handles import catalog_with_database, write_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Row = tuple[Any, ...]
"""A row: its key `k`, then the other columns."""
BATCH_BYTES = 1
"""So small that each record batch is a chunk, and plans are often cut."""
_READ_AHEAD_BYTES = 400
_FOR_EVER = 120.0
_MAX_HOLD = 1.0


@dataclass
class Taken:
    """The part of a plan that was handed out.

    Attributes:
        rows: Rows of all these slots that were handed out.
        is_whole: Whether these are all rows of the plan.
        is_confirmed: Whether the caller has confirmed it.
    """

    plan: Plan
    slots: frozenset[int]
    rows: list[Row] = field(default_factory=list)
    is_whole: bool = False
    is_confirmed: bool = False


class Seat:
    """The membership of a reader, whose slots a test decides."""

    has_ended = False

    def __init__(self, name: str, shared: SharedSlots) -> None:
        self.name = name
        self.seconds = 0.0
        self._shared = shared
        self.assigned = AssignedSlots(self.now, _MAX_HOLD)
        self._plans = DeliveredPlans()
        self._hand: BatchChunk | None = None
        self._unconfirmed: list[Taken] = []
        self.reader = GroupReader(lambda _: self, _READ_AHEAD_BYTES, Clock())  # type: ignore[arg-type,return-value]
        self.lease(True)

    def now(self) -> float:
        return self.seconds

    def check(self) -> None:
        """It has no error."""

    def pending_change(self) -> None:
        """There are no callbacks."""

    def is_over(self) -> bool:
        return False

    def leave(self) -> None:
        """The test does that."""

    def open_cursor(self, slots: Mapping[int, int], position: Position) -> SlotCursor:
        return self._shared.cursor(slots, position, self.assigned)

    def lease(self, is_on: bool) -> None:
        """Allow or forbid to hand out plans."""
        self.assigned.saved({}, float("inf") if is_on else float("-inf"))
        self.reader.wake()

    # ---- as a stream does ----

    def take(self, seconds: float) -> bool:
        """Take a chunk, if there is one within some seconds. Returns whether there was."""
        ready = self.reader.ready()
        waiting = self.reader.peek()
        end = time.monotonic() + seconds
        while waiting is None and (left := end - time.monotonic()) > 0:
            try:
                ready.result(left)
            except TimeoutError:
                return False
            waiting = self.reader.peek()
            ready = self.reader.ready()
        if waiting is None:
            return False
        chunk, slots = waiting.chunk, waiting.slots
        self.reader.drop(waiting)
        self._plans.add(chunk, slots)
        self._unconfirmed += self._shared.took(chunk, slots)
        if chunk.data is None:
            self._confirm(None)
        else:
            self._hand = chunk
        return True

    def confirm(self) -> None:
        for taken in self._unconfirmed:
            taken.is_confirmed = taken.is_whole
        self._unconfirmed = [taken for taken in self._unconfirmed if not taken.is_whole]
        if self._hand is not None:
            self._confirm(self._hand)

    def _confirm(self, chunk: BatchChunk | None) -> None:
        plans = self._plans.up_to(chunk)
        for each in plans:
            if each.is_complete:
                self.assigned.confirm(each.slots, each.plan.position)
        self._plans.forget(plans)
        self.reader.wake()


class SharedSlots:
    """A table that members share, and what was handed out of each slot.

    Args:
        slots: Number of slots if files are divided by name or partition; otherwise there is one for each bucket.
    """

    def __init__(self, builder: StreamReadBuilder, slots: int, members: int) -> None:
        self._stream = stream = resolved(builder)
        rule = SlotRule.of(stream.traits, stream.schema)
        self.rule = replace(rule, count=min(slots, rule.count))
        self._start = GroupStart(stream.scan_parts(), "etl").find()
        self._taken: list[list[Taken]] = [[] for _ in range(self.rule.count)]
        self._number = self._passed = 0
        self._started = members
        self.seats = [Seat(f"m{index}", self) for index in range(members)]
        owners = [self.seats[slot % members].name for slot in range(self.rule.count)]
        self._owned = [SlotOwnership(owner, 1, self._start) for owner in owners]
        self._adopted()

    def cursor(self, slots: Mapping[int, int], position: Position, assigned: AssignedSlots | None = None) -> SlotCursor:
        """A stream of some slots. Without `assigned` it does not wait at overwrites."""
        chosen = SlotSet(self.rule, frozenset(slots))
        if assigned is not None:
            chosen = replace(chosen, may_pass=assigned.may_pass)
        stream = self._stream.with_spec(replace(self._stream.spec, slots=chosen, end=None))
        return SlotCursor(slots, position, stream, BATCH_BYTES)

    def took(self, chunk: BatchChunk, slots: Mapping[int, int]) -> list[Taken]:
        """A member has handed out a chunk. Returns the plans that begin with it."""
        rows = [] if chunk.data is None else _rows_of(chunk)
        begun = []
        for slot in slots:
            taken = self._taken[slot]
            if not chunk.first:
                assert taken and taken[-1].plan is chunk.plan and not taken[-1].is_whole, "the middle of another plan"
            else:
                if taken and not taken[-1].is_whole:
                    # It was incomplete, and is read again.
                    taken.pop()
                assert not taken or taken[-1].plan.position < chunk.plan.position, (slot, chunk.plan.position)
                taken.append(Taken(chunk.plan, frozenset(slots)))
                begun.append(taken[-1])
            taken[-1].rows += rows
            taken[-1].is_whole = chunk.last
        return begun

    # ---- what moves ----

    def move(self, slot: int, seat: Seat) -> None:
        """Revoke a slot: another member gets it once its owner has released it."""
        ownership = self._owned[slot]
        self._owned[slot] = replace(ownership, moves_to=None if ownership.owner == seat.name else seat.name)
        self._adopted()

    def save(self, seat: Seat, too_late: bool = False) -> None:
        """A member writes its record, and the group acts on it.

        Args:
            too_late: What it holds is held for too long by now.
        """
        seat.seconds += 2 * _MAX_HOLD * too_late
        held, released, barrier = seat.assigned.compose()
        for slot, entry in {**held, **released}.items():
            ownership = self._owned[slot]
            if ownership.owner == seat.name and ownership.since == entry.since and slot in released:
                self._given(slot, ownership.moves_to or seat.name, entry.position)
        seat.assigned.saved(held, float("inf"))
        if barrier is not None and all(self._reached(slot) >= barrier for slot in range(self.rule.count)):
            self._passed = max(self._passed, barrier)
        self._adopted()

    def crash(self, seat: Seat) -> None:
        """End a member: others continue where it has saved, and a new member takes its place."""
        saved = {slot: each.saved for slot, each in seat.assigned.current()[1].items()}
        self.seats.remove(seat)
        seat.reader.close()
        newer = Seat(f"m{self._started}", self)
        self._started += 1
        self.seats.append(newer)
        for slot, ownership in enumerate(self._owned):
            if ownership.owner == seat.name:
                self._given(slot, self.seats[slot % len(self.seats)].name, saved.get(slot, ownership.start))
            elif ownership.moves_to == seat.name:
                self._owned[slot] = replace(ownership, moves_to=newer.name)
        self._adopted()

    def _given(self, slot: int, owner: str, start: Position) -> None:
        self._owned[slot] = SlotOwnership(owner, self._number + 1, start)
        # Everything that was not confirmed is read again.
        kept = [each for each in self._taken[slot] if each.plan.position <= start]
        lost = [each for each in kept if each.rows and not (each.is_whole and each.is_confirmed)]
        assert not lost, f"slot {slot} continues at {start}, after plans that were not confirmed: {lost}"
        self._taken[slot] = kept

    def _adopted(self) -> None:
        self._number += 1
        names = tuple(seat.name for seat in self.seats)
        owned = tuple(self._owned)
        state = GroupState(self._number, self._start.table, self._start, True, "", "", names, owned, self._passed)
        for seat in self.seats:
            seat.assigned.adopt(state, seat.name)
            seat.reader.wake()

    def _reached(self, slot: int) -> int:
        """The snapshot before which all of a slot is confirmed."""
        for seat in self.seats:
            each = seat.assigned.current()[1].get(slot)
            if each is not None:
                inside = each.confirmed.order() > Position(each.confirmed.table, each.confirmed.snapshot).order()
                return each.confirmed.snapshot - inside
        return 0

    # ---- results ----

    def finish(self, latest: int) -> None:
        """Read until all slots have reached the end of the table, whose last snapshot is this."""
        end = time.monotonic() + _FOR_EVER
        for seat in self.seats:
            seat.lease(True)
        while min(self._reached(slot) for slot in range(self.rule.count)) <= latest:
            assert time.monotonic() < end, [self._reached(slot) for slot in range(self.rule.count)]
            for seat in self.seats:
                while seat.take(0.01):
                    pass
                seat.confirm()
                self.save(seat)

    def close(self) -> None:
        for seat in self.seats:
            seat.reader.close()

    def alone(self) -> list[list[Row]]:
        """The rows of a stream of each slot alone, from the start of the group to the end of the table."""
        found: list[list[Row]] = []
        for slot in range(self.rule.count):
            cursor = self.cursor({slot: 1}, self._start)
            found.append([])
            while (chunk := cursor.look()) is not None:
                found[slot] += [] if chunk.data is None else _rows_of(chunk)
            cursor.close()
        return found

    def shared(self, slot_of: Mapping[Any, int]) -> list[list[Row]]:
        """The rows of each slot that the members have handed out; rows that were read again count once."""
        found: list[list[Row]] = []
        for slot, taken in enumerate(self._taken):
            others = [row for each in taken for row in each.rows if slot_of[row[0]] not in each.slots]
            assert not others, (slot, others)
            found.append([row for each in taken for row in each.rows if slot_of[row[0]] == slot])
        return found


def _rows_of(chunk: BatchChunk) -> list[Row]:
    assert chunk.data is not None
    return [(row.pop("k"), *row.values()) for row in chunk.data.to_pylist()]


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
