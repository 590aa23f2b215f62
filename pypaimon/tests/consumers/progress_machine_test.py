"""Progress under random work, crashes at any request, takeovers, resharding and compaction: nothing lost.

Little is repeated, and all first plans are of one snapshot.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.consumers.consumer_manager import ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName, reader_name
from pypaimon.streaming.consumers.progress import Progress, ResumePoint
from pypaimon.streaming.consumers.shared_start_coordinator import StartSettings
from pypaimon.streaming.errors import ConsumerConflictError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.position import Phase, Position, ReadUnit
from support.samples import SOAK
from support.stores.fault_file_io import SCHEME, DyingStore

pytestmark = [pytest.mark.slow, pytest.mark.soak]

UNITS = 6
"""Units of each snapshot; unit u belongs to shard u mod n, so that 1, 2 and 3 shards all get some.

In a full plan it is shard (u + c) mod n, after c compactions, where compaction moves rows between shards."""

Row = tuple[int, int]
"""A snapshot and a unit of it: what is delivered and confirmed, and must not be lost."""


@dataclass
class Reader:
    """A running reader of one slot, driven as its scan would.

    Attributes:
        open_plans: Plans that are not confirmed: the position after each, and its rows.
    """

    io: DyingStore
    progress: Progress
    position: Position
    open_plans: list[tuple[Position, set[Row]]] = field(default_factory=list)


class ProgressMachine(RuleBasedStateMachine):
    """Readers of one consumer id on a table that grows; every third snapshot contains nothing for a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.outside = ConsumerManager(LocalFileIO(), self.directory.name)
        self.owners = itertools.count()
        self.latest = 3
        self.compactions: list[int] = [0] * (self.latest + 1)
        self.first_plan: int | None = None
        self.shards = 0
        self.readers: dict[int, Reader] = {}
        self.zombies: list[tuple[int, Reader]] = []
        self.confirmed: set[Row] = set()
        self.checkpoints: dict[str, Position] = {}
        self.highest: dict[str, int] = {}
        self.now = 0.0

    def teardown(self) -> None:
        self.directory.cleanup()

    @initialize(starts_full=st.booleans(), auto=st.booleans(), shards=st.integers(0, 3), rows_move=st.booleans())
    def configure(self, starts_full: bool, auto: bool, shards: int, rows_move: bool) -> None:
        self.starts_full, self.auto, self.shards, self.rows_move = starts_full, auto, shards, rows_move

    # ---- the table and its rows ----

    def name(self, slot: int) -> ConsumerName:
        return reader_name("etl", shard=(slot, self.shards) if self.shards else None)

    def rows(self, name: ConsumerName, first: int, last: int) -> set[Row]:
        index, count = name.shard or (0, 1)
        units = [unit for unit in range(UNITS) if unit % count == index]
        return {(snapshot, unit) for snapshot in range(first, last + 1) if snapshot % 3 for unit in units}

    def full_rows(self, name: ConsumerName, snapshot: int) -> set[Row]:
        """The rows of a full plan."""
        index, count = name.shard or (0, 1)
        moved = self.compactions[snapshot] if self.rows_move else 0
        units = [unit for unit in range(UNITS) if (unit + moved) % count == index]
        return {(number, unit) for number in range(1, snapshot + 1) if number % 3 for unit in units}

    def rows_before(self, name: ConsumerName, next_snapshot: int) -> set[Row]:
        """Everything that a reader must have confirmed before it continues at a snapshot."""
        if self.first_plan is None:
            return self.rows(name, 1, next_snapshot - 1)
        return self.full_rows(name, self.first_plan) | self.rows(name, self.first_plan + 1, next_snapshot - 1)

    def slots(self) -> range:
        return range(max(self.shards, 1))

    @rule(count=st.integers(1, 4))
    def commit_snapshots(self, count: int) -> None:
        self.latest += count
        self.compactions += [self.compactions[-1]] * count

    @rule()
    def compact(self) -> None:
        """A compaction: from now on, rows of a full state belong to other shards."""
        self.commit_snapshots(1)
        self.compactions[-1] += 1

    @rule(seconds=st.sampled_from([1.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # ---- starts ----

    @rule(data=st.data(), dies_after=st.none() | st.integers(0, 12), by_position=st.booleans())
    def start(self, data: st.DataObject, dies_after: int | None, by_position: bool) -> None:
        """Start a reader, or a newer one that takes over."""
        self.start_slot(data.draw(st.sampled_from(self.slots())), dies_after, by_position)

    @rule()
    def start_the_missing(self) -> None:
        for slot in self.slots():
            if slot not in self.readers:
                self.start_slot(slot, None, False)

    def start_slot(self, slot: int, dies_after: int | None, by_position: bool) -> None:
        name = self.name(slot)
        by_position = by_position and name.text in self.checkpoints
        io = DyingStore()
        store = Store(io, sleep=lambda _: None)
        owner, commit = f"reader-{next(self.owners)}", "auto" if self.auto else "manual"
        progress = Progress(
            ConsumerManager(io, SCHEME + self.directory.name, store=store),
            name,
            owner=owner,
            commit=commit,
            poll_interval=10.0,
            expiration=30.0,
            start=StartSettings(explicit=by_position, rows_move=self.rows_move),
        )
        if slot in self.readers:
            self.zombies.append((slot, self.readers.pop(slot)))
        io.dies_after(dies_after)
        before = self.files()
        try:
            opened = progress.open(self.now)
            if opened.start is None:
                assert opened.next_snapshot == self.expected_start(name, before)
            position = self.start_position(name, opened, by_position)
            if before.get(name.text, 0) > position.snapshot:
                self.highest.pop(name.text, None)
            found = not by_position and opened == ResumePoint(None)
            assert progress.begin(position, self.now, found) is None
        except OSError:
            assert io.dead
            return
        io.dies_after(None)
        self.readers[slot] = Reader(io, progress, position)
        files = self.files()
        if position.phase is Phase.FULL:
            assert files[name.pin.text] == position.snapshot
            # A reader with a position of its caller does not share its start.
            assert by_position or files["etl.first-plan"] == position.snapshot
            assert position.snapshot == (self.first_plan or position.snapshot)
            self.first_plan = position.snapshot
            return
        assert files[name.text] == position.snapshot
        assert name.pin.text not in files
        if name.sharding <= {ConsumerName.parse(text) for text in files}:
            slowest = min(files[own.text] for own in name.sharding)
            names = {ConsumerName.parse(text) for text in files} - {name.shared_start}
            former = {each.text for each in names if each.progress not in name.sharding}
            assert all(files[text] > slowest for text in former)

    def start_position(self, name: ConsumerName, opened: ResumePoint, by_position: bool) -> Position:
        if by_position:
            return self.checkpoints[name.text]
        if opened.start is not None:
            return opened.start.position
        if opened.next_snapshot is not None:
            return Position("t", opened.next_snapshot)
        if self.starts_full:
            return Position("t", self.latest, phase=Phase.FULL)
        return Position("t", 1)

    def expected_start(self, name: ConsumerName, files: dict[str, int]) -> int | None:
        if name.text in files:
            return files[name.text]
        layouts = [[f"etl.shard-{index}-of-{count}" for index in range(count)] for count in (1, 2, 3)]
        complete = [layout for layout in [["etl"], *layouts] if set(layout) <= files.keys()]
        return max((min(files[text] for text in layout) for layout in complete), default=None)

    @rule(shards=st.integers(0, 3))
    def reshard(self, shards: int) -> None:
        """All readers stop; others start later with another number of shards."""
        for slot in list(self.readers):
            self.crash(slot)
        self.zombies.clear()
        self.shards = shards

    # ---- work ----

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), cut=st.booleans(), report_passed_over=st.booleans())
    def hand_out(self, data: st.DataObject, cut: bool, report_passed_over: bool) -> None:
        slot = data.draw(st.sampled_from(sorted(self.readers)))
        reader = self.readers[slot]
        if self.auto and not self.save(slot, reader, lambda: self.confirm_in_hand(reader)):
            return
        name, start = reader.progress.name, reader.position
        if start.phase is Phase.FULL:
            first, rows = None, self.full_rows(name, start.snapshot)
            after = Position("t", start.snapshot + 1)
        else:
            first = next((s for s in range(start.snapshot, self.latest + 1) if s % 3), None)
            if first is None or report_passed_over:
                target = Position("t", self.latest + 1 if first is None else first)
                if target.snapshot > start.snapshot:
                    reader.progress.on_passed_over(target)
                    reader.position = target
            if first is None:
                self.save(slot, reader, lambda: None)
                return
            rows, after = self.rows(name, first, first), Position("t", first + 1)
        if start.unit is not None:
            rows = {row for row in rows if row[1] > start.unit.index}
        if cut and len({unit for _, unit in rows}) > 1:
            last = min(unit for _, unit in rows)
            rows = {row for row in rows if row[1] <= last}
            after = Position("t", first or start.snapshot, phase=start.phase, unit=ReadUnit((), 0, "", last))
        reader.progress.on_plan(after, None if first is None else Position("t", first))
        reader.open_plans.append((after, rows))
        reader.position = after

    def confirm_in_hand(self, reader: Reader) -> None:
        self.confirm_rows(reader, len(reader.open_plans))
        reader.progress.confirm_handed_out()

    def confirm_rows(self, reader: Reader, count: int) -> None:
        for _, rows in reader.open_plans[:count]:
            self.confirmed |= rows
        del reader.open_plans[:count]

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), dies_after=st.none() | st.integers(0, 8))
    def commit(self, data: st.DataObject, dies_after: int | None) -> None:
        slot = data.draw(st.sampled_from(sorted(self.readers)))
        reader = self.readers[slot]
        if not reader.open_plans:
            return
        count = data.draw(st.integers(1, len(reader.open_plans)))
        position = reader.open_plans[count - 1][0]

        def confirm() -> None:
            self.confirm_rows(reader, count)
            reader.progress.confirm(position)

        self.save(slot, reader, confirm, dies_after)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), dies_after=st.none() | st.integers(0, 8))
    def poll(self, data: st.DataObject, dies_after: int | None) -> None:
        slot = data.draw(st.sampled_from(sorted(self.readers)))
        reader = self.readers[slot]

        def keep_alive() -> None:
            reader.progress.keep_alive(self.now)

        self.save(slot, reader, keep_alive, dies_after)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def store_fails_for_a_while(self, data: st.DataObject) -> None:
        """The store is down. The reader continues, and saves later."""
        reader = self.readers[data.draw(st.sampled_from(sorted(self.readers)))]
        reader.io.dies_after(data.draw(st.integers(0, 6)))
        try:
            reader.progress.flush(self.now, force=True)
        except OSError:
            assert reader.io.dead
        reader.io.dies_after(None)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def crash_somebody(self, data: st.DataObject) -> None:
        self.crash(data.draw(st.sampled_from(sorted(self.readers))))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def seek_backward(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.readers)))
        reader = self.readers[slot]
        if reader.position.phase is Phase.FULL or reader.position.snapshot == 1:
            return
        target = Position("t", data.draw(st.integers(1, reader.position.snapshot)))
        if any(self.is_full(rows) for _, rows in reader.open_plans):
            # A seek out of an unconfirmed full plan gives up the rows that only this plan would have delivered.
            self.confirmed |= self.rows_before(reader.progress.name, target.snapshot)
        self.highest.pop(reader.progress.name.text, None)
        reader.progress.begin(target, self.now)
        reader.open_plans = [plan for plan in reader.open_plans if plan[0] <= target]
        reader.position = target
        self.checkpoints.pop(reader.progress.name.text, None)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def an_old_reader_continues(self, data: st.DataObject) -> None:
        """It may confirm, but saves nothing once a newer reader has taken over."""
        slot, zombie = data.draw(st.sampled_from(self.zombies))
        newer = self.readers.get(slot)
        if zombie.position.phase is Phase.FOLLOW:
            self.confirmed |= self.rows(zombie.progress.name, zombie.position.snapshot, zombie.position.snapshot)
            zombie.position = Position("t", zombie.position.snapshot + 1)
            zombie.progress.on_passed_over(zombie.position)
        before = self.files()
        try:
            zombie.progress.keep_alive(self.now)
            zombie.progress.flush(self.now, force=True)
        except ConsumerConflictError:
            assert self.files() == before
            return
        assert newer is None or self.files() == before

    def crash(self, slot: int) -> None:
        reader = self.readers.pop(slot)
        confirmed = reader.progress.confirmed
        assert confirmed is not None
        self.checkpoints[reader.progress.name.text] = confirmed

    def save(self, slot: int, reader: Reader, first: Callable[[], None], dies_after: int | None = None) -> bool:
        """Do something, then flush: either the file holds exactly what it should, or the reader is dead."""
        reader.io.dies_after(dies_after)
        try:
            first()
            reader.progress.flush(self.now, force=True)
        except OSError:
            assert reader.io.dead
            self.crash(slot)
            return False
        reader.io.dies_after(None)
        expected = self.expected_saved(reader)
        files = self.files()
        if expected is not None:
            assert files[reader.progress.name.text] == expected
            assert reader.progress.name.pin.text not in files
        return True

    def expected_saved(self, reader: Reader) -> int | None:
        """The first snapshot of this run with a row that was not confirmed, or the one reached."""
        if reader.position.phase is Phase.FULL or any(self.is_full(rows) for _, rows in reader.open_plans):
            return None
        return min([reader.position.snapshot, *(snapshot for _, rows in reader.open_plans for snapshot, _ in rows)])

    def is_full(self, rows: set[Row]) -> bool:
        return len({snapshot for snapshot, _ in rows}) > 1

    # ---- what must always hold ----

    def files(self) -> dict[str, int]:
        return {info.name.text: info.next_snapshot for info in self.outside.infos()}

    @invariant()
    def nothing_is_lost(self) -> None:
        """For every file that a reader may start from, all rows before it were confirmed."""
        for text, next_snapshot in self.files().items():
            name = ConsumerName.parse(text)
            if not name.is_pin:
                missing = self.rows_before(name, next_snapshot) - self.confirmed
                assert not missing, (text, next_snapshot, missing)

    @invariant()
    def no_file_moves_backward(self) -> None:
        files = self.files()
        for text, next_snapshot in files.items():
            if not ConsumerName.parse(text).is_pin:
                assert next_snapshot >= self.highest.get(text, 0), text
        self.highest = files

    @invariant()
    def what_is_still_to_be_read_is_kept(self) -> None:
        files = self.files()
        for reader in self.readers.values():
            confirmed = reader.progress.confirmed
            assert confirmed is not None
            assert min(files.values()) <= confirmed.snapshot

    @invariant()
    def no_other_file_looks_like_a_consumer(self) -> None:
        directory = Path(self.directory.name) / "consumer"
        texts = {path.name for path in directory.glob("consumer-*")} if directory.exists() else set()
        assert all(text.removeprefix("consumer-").startswith("etl") and "tmp" not in text for text in texts)


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(
    max_examples=2500 if SOAK else 10,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
