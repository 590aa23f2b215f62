"""`check_target`: checks that a target holds what its table holds, also after crashes and rollbacks."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from typing import Any

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.copying.replication import replicate
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.targets.changes import key_columns
from pypaimon.streaming.targets.target import Target
from pypaimon.streaming.testing.line_kills import homes_of, lines_of
from pypaimon.streaming.testing.small_table import SmallTable
from pypaimon.streaming.testing.table_changes import Rows, TableChanges, difference, shown

MakeTarget = Callable[[str], Target]
ReadRows = Callable[[str], Iterable[Mapping[str, Any]]]

_STEPS = 12
_KILLS = 8
"""Kills in each history: this many at random lines, and this many at the last lines, where everything is saved."""


def check_target(
    make_target: MakeTarget,
    read_rows: ReadRows,
    *,
    keys: str | Sequence[str] = "id",
    schema_changes: bool = True,
    nans: bool = True,
    infinities: bool = True,
    histories: int = 2,
    seed: int | None = None,
) -> None:
    """Check that a target holds what its table holds, exactly once.

    The check applies random histories of small tables: deletes, updates of keys, duplicate rows, values that are easily
    lost, streams that start again with a full state, plans that are replayed, unfinished or missing. It reopens the
    target again and again. Then it kills the target at some of its lines: the call ends there, and the target is
    dropped. At last it rolls the table back and recreates it, which a target refuses. After each step the rows and the
    position are those of one version of the table.

    The check takes seconds. It does not kill real processes.

    Args:
        make_target: Opens the target with a name. The same name opens the same target again; other names are other
            targets. The table has the columns `id` BIGINT, `name` STRING, `number` INT and `amount` DOUBLE, and
            columns that are added.
        seed: The seed of the histories; random by default. The error names it.
    """
    columns = key_columns(keys)
    assert columns in (["id"], []), f"keys {keys!r}: give 'id' or ()"
    drawn = SystemRandom().randrange(10**9) if seed is None else seed
    was_frozen = gc.get_freeze_count() > 0
    # Freezing the existing objects makes the collection after each dropped target cheap.
    gc.collect()
    gc.freeze()
    try:
        _check(make_target, read_rows, _Drawn(bool(columns), schema_changes, nans, infinities, drawn), histories)
    finally:
        # Collect the last targets here, not inside the next test.
        gc.collect()
        if not was_frozen:
            gc.unfreeze()


@dataclass(frozen=True, slots=True)
class _Drawn:
    is_keyed: bool
    alters: bool
    nans: bool
    infinities: bool
    seed: int


def _check(make_target: MakeTarget, read_rows: ReadRows, drawn: _Drawn, histories: int) -> None:
    for number in range(histories):
        name = f"history_{number}"
        with tempfile.TemporaryDirectory() as directory:
            table = SmallTable(directory, ("id",) if drawn.is_keyed else ())
            place = _Place(name, make_target, read_rows, drawn.seed)
            _History(place, table, drawn, Random(f"{drawn.seed} {name}")).run()


@dataclass(frozen=True, slots=True)
class _Held:
    position: Position | None
    rows: Rows


class _Place:
    def __init__(self, name: str, make_target: MakeTarget, read_rows: ReadRows, seed: int) -> None:
        self._name = name
        self._make_target = make_target
        self._read_rows = read_rows
        self._seed = seed
        self.steps: list[str] = []
        self.target: Target = make_target(name)

    def open_again(self) -> None:
        """Open the target again, as the next run of a program does. Nothing closes the former one."""
        del self.target
        # Some connections, as of sqlite3, are in a reference cycle.
        gc.collect()
        gc.freeze()
        self.target = self._make_target(self._name)

    def apply(self, batches: Iterable[BlockingBatch]) -> None:
        try:
            for batch in batches:
                self.target.apply(batch)
        except Exception as error:
            raise self.wrong("the batch to be applied", f"{type(error).__name__}: {error}") from error

    def refuses(self, apply: Callable[[], Any], what: str, held: _Held) -> None:
        self.steps.append(what)
        try:
            apply()
        except PaimonStreamError:
            pass
        except Exception as error:
            raise self.wrong("an error of pypaimon.streaming", f"{type(error).__name__}: {error}") from error
        else:
            raise self.wrong("an error", "none")
        self.check(held)
        self.open_again()
        self.check(held)

    def check(self, *allowed: _Held) -> _Held:
        found = _Held(self.target.load_position(), [dict(row) for row in self._read_rows(self._name)])
        there = [each for each in allowed if each.position == found.position]
        if not there:
            raise self.wrong(
                "position " + " or ".join(_text(each.position) for each in allowed), f"position {_text(found.position)}"
            )
        missing, extra = difference(there[0].rows, found.rows)
        if missing or extra:
            raise self.wrong(
                f"{len(there[0].rows)} rows at position {_text(found.position)}, among them {shown(missing)}",
                f"{len(found.rows)}, among them {shown(extra)}",
            )
        return there[0]

    def wrong(self, expected: str, found: str) -> AssertionError:
        steps = "".join(f"\n  {step}" for step in self.steps)
        return AssertionError(
            f"expected {expected}; found {found}. The steps of {self._name} (seed={self._seed}):{steps}"
        )


class _History:
    def __init__(self, place: _Place, table: SmallTable, drawn: _Drawn, random: Random) -> None:
        self._place = place
        self._table = table
        self._is_keyed = drawn.is_keyed
        self._alters = drawn.alters
        self._random = random
        self._changes = TableChanges(table, drawn.is_keyed, random, drawn.nans, drawn.infinities)
        self._held = _Held(None, [])
        self._plans: list[list[BlockingBatch]] = []

    def run(self) -> None:
        place = self._place
        place.check(self._held)
        # A table without rows has no first state.
        self._changes.commit_awkward()
        self._changes.commit()
        self._applied("the first state", self._full())
        steps: list[Callable[[], None]] = [self._follow] * 4 + [
            self._come_again,
            self._leave,
            self._miss,
            self._begin_again,
        ]
        for step in self._drawn([*steps, *([self._alter] * (self._changes.alterations * self._alters))]):
            step()
        if self._is_keyed:
            self._begin_empty()
            self._changes.commit_lasting()
        self._follow()
        self._killed("changes", self._next)
        self._killed("a later state", lambda: self._full(is_whole=True))
        self._roll_back()
        self._make_anew()

    def _drawn(self, steps: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        drawn = [*steps, *self._random.choices(steps, k=_STEPS - len(steps))] if len(steps) < _STEPS else list(steps)
        self._random.shuffle(drawn)
        return drawn

    # ---- plans ----

    def _next(self) -> list[list[BlockingBatch]]:
        assert self._held.position is not None
        return self._read(self._table.builder().with_start(position=self._held.position).with_catch_up("replay"))

    def _full(self, is_whole: bool = False) -> list[list[BlockingBatch]]:
        builder = self._table.builder().with_start("latest-full")
        return self._read(builder if is_whole or self._random.random() < 0.5 else builder.with_limits(max_splits=1))

    def _read(self, builder: StreamReadBuilder) -> list[list[BlockingBatch]]:
        plans: list[list[BlockingBatch]] = []
        with builder.open_sync(batch_bytes=1) as stream:
            for batch in stream:
                if batch.is_first:
                    plans.append([])
                plans[-1].append(batch)
        return plans

    def _applied(self, what: str, plans: Sequence[list[BlockingBatch]], stays_open: bool = False) -> None:
        place, random = self._place, self._random
        place.steps.append(f"{what}: {sum(len(plan) for plan in plans)} batches, {len(plans)} plans")
        for number, plan in enumerate(plans):
            if random.random() < 0.3 and not stays_open:
                place.steps.append("opened again")
                place.open_again()
            place.apply(plan)
            if number < len(plans) - 1:
                self._held = _Held(plan[-1].plan_after, [])
                continue
            self._held = _Held(plan[-1].plan_after, self._changes.rows())
            place.check(self._held)
        self._plans += plans

    # ---- steps ----

    def _follow(self) -> None:
        self._changes.commit()
        self._applied("changes", self._next())

    def _alter(self) -> None:
        """Change the columns after adding a row that no later change touches, so that the target has to convert it."""
        self._changes.commit_lasting()
        self._applied("a row that stays", self._next())
        self._place.steps.append(self._changes.alter())
        self._follow()

    def _come_again(self) -> None:
        for plan in [self._plans[-1], self._random.choice(self._plans), self._plans[0]]:
            self._place.steps.append(f"comes again: {plan[0]!r}")
            self._place.apply(plan)
            self._place.check(self._held)

    def _leave(self) -> None:
        """Leave a plan unfinished: the program ends, and later the stream is closed."""
        place = self._place
        while True:
            self._changes.commit()
            (plan,) = plans = self._next()
            if len(plan) > 1:
                break
            self._applied("changes", plans)
        place.steps.append(f"left unfinished: {plan[0]!r}")
        place.apply(plan[:1])
        place.steps.append("opened again")
        place.open_again()
        place.check(self._held)
        place.apply(plan[:1])
        self._applied("left again, and then the same plan", [plan], stays_open=True)

    def _miss(self) -> None:
        self._changes.commit()
        missed = self._changes.rows()
        self._changes.commit()
        one, two = self._next()
        self._place.refuses(lambda: self._apply_all(two), "a plan whose predecessor is missing", self._held)
        self._place.apply(one)
        self._held = _Held(one[-1].plan_after, missed)
        self._place.check(self._held)
        self._applied("both", [two])

    def _begin_again(self) -> None:
        """Start again with a state that includes changes which the target has missed."""
        self._changes.commit()
        self._changes.commit()
        self._applied("a later state", self._full())

    def _begin_empty(self) -> None:
        """Start again with an empty state, because the next changes have expired."""
        assert self._held.position is not None
        self._changes.empty()
        self._changes.empty()
        self._table.expire()
        builder = self._table.builder().with_start(position=self._held.position).with_on_expired("full")
        self._applied("a later state that is empty", self._read(builder))

    def _apply_all(self, plan: Iterable[BlockingBatch]) -> None:
        for batch in plan:
            self._place.target.apply(batch)

    # ---- kills ----

    def _killed(self, what: str, find: Callable[[], list[list[BlockingBatch]]]) -> None:
        place = self._place
        homes = homes_of(place.target)
        lines = 0
        for step in ("its lines are counted", "it is killed at lines"):
            self._changes.commit()
            ((plan,), rows) = find(), self._changes.rows()
            place.steps.append(f"{what}: {plan[0]!r}: {step}")
            after = _Held(plan[-1].plan_after, rows)
            for line in self._some(lines):
                lines_of(homes, partial(self._apply_all, plan), until=line)
                place.steps.append(f"killed at line {line} of those that apply runs, and opened again")
                place.open_again()
                place.check(self._held, after)
                place.steps.pop()
            lines = lines_of(homes, partial(self._apply_all, plan))
            if not lines:
                raise place.wrong(f"lines of Python in {', '.join(sorted(homes))} that apply runs", "none")
            place.check(after)
            self._held = after
            self._plans.append(plan)

    def _some(self, lines: int) -> list[int]:
        every = range(1, lines + 1)
        return sorted({*self._random.sample(every, min(lines, _KILLS)), *every[-_KILLS:]})

    # ---- other tables ----

    def _roll_back(self) -> None:
        position = self._held.position
        assert position is not None
        self._changes.commit()
        self._applied("changes", self._next())
        position, held = self._held.position, self._held
        assert position is not None
        self._table.table.rollback_to(position.snapshot - 2)
        refused = self._place.refuses
        refused(
            lambda: replicate(self._table.builder(), self._place.target),
            "the position is after the end of the table",
            held,
        )
        self._table.commit({"id": 1000})
        start = Position(position.table, position.snapshot - 1)
        for plan in self._read(self._table.builder().with_start(position=start)):
            refused(partial(self._apply_all, plan), "the table was rolled back, and changed in another way", held)

    def _make_anew(self) -> None:
        self._changes.make_anew()
        self._changes.commit_lasting()
        (plan, *_) = self._full()
        self._place.refuses(lambda: self._apply_all(plan), "the table was dropped and recreated", self._held)


def _text(position: Position | None) -> str:
    return "None" if position is None else position.to_json()
