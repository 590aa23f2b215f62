"""What a reader of a crafted table must see next: beliefs, and how they move on.

What comes next is not always known: a cancelled call may have found the start or not, an expired snapshot may have been
fetched ahead or not. So there are several beliefs, each of which says where the stream may stand. What is seen must fit
one of them at least; those that it does not fit are given up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pypaimon.streaming import Plan, Position
from pypaimon.streaming.model.position import Phase
from pypaimon.streaming.stream_types import PlanKind
from support.models.table import (
    ADDS,
    KEY,
    PARTITION,
    Column,
    Commit,
    Handed,
    StreamModel,
    TableColumns,
    in_shard,
    restricted,
)
from support.tables.crafted_table import CraftedTable

Moment = tuple[int, int]
"""The earliest and the latest snapshot of the table at a moment."""

STATES = (PlanKind.FULL, PlanKind.OVERWRITE)
FOLLOWING = (PlanKind.DELTA, PlanKind.CHANGELOG, PlanKind.OVERWRITE, PlanKind.COLLAPSED, PlanKind.NET)


@dataclass(frozen=True)
class Settings:
    """How a reader reads.

    Attributes:
        start: `earliest`, `latest`, `latest-full` or `compacted-full`.
        shard: (index, count), or None.
        consumer: Its consumer id, or None: it keeps its position itself.
        projection: Names of columns, or None for all.
        least_key: Rows with smaller keys are filtered out; None: no filter.
        overwrites: Whether overwrites are read.
        on_expired: What becomes of it when its position has expired.
        on_schema_change: What becomes of it when what it reads changes.
        limits: Arguments of `with_limits`.
        catch_up: `auto`, `replay` or `net`.
        old_handle: Whether it reads on the handle that was there first, which it shares with other readers.
    """

    start: str = "earliest"
    shard: tuple[int, int] | None = None
    consumer: str | None = None
    projection: tuple[str, ...] | None = None
    least_key: int | None = None
    overwrites: bool = False
    on_expired: str = "fail"
    on_schema_change: str = "fail"
    limits: tuple[tuple[str, int], ...] = ()
    catch_up: str = "auto"
    prefetch: int = 0
    old_handle: bool = False


@dataclass(frozen=True, eq=False)
class Belief:
    """Where a stream may stand.

    Attributes:
        phase: `start` (not found yet), `full` (of snapshot `next`) or `follow` (before snapshot `next`).
        next: The snapshot; at the start 1 if the table was found to be empty, else 0.
        left: What is still to come of the snapshot, once a part of it was handed out.
    """

    phase: str
    next: int
    schema: TableColumns
    left: tuple[Handed, ...] | None = None


class Refused(Exception):
    """The stream must not go on: what it reads has changed."""


class Mismatch(Exception):
    """What was seen does not fit a belief."""


class Expectations:
    """What a stream of a table must hand out."""

    def __init__(self, table: CraftedTable, model: StreamModel, by_file: bool, settings: Settings) -> None:
        self._table, self._model, self._by_file, self._settings = table, model, by_file, settings
        self._schema = table.columns
        names = settings.projection or [column.name for column in self._schema.columns]
        self._projected = [self._schema.named(name).id for name in names]

    def beliefs(self, phase: str = "start", number: int = 0) -> list[Belief]:
        """One belief of a stream that was just built."""
        return [Belief(phase, number, self._schema)]

    def rebuilt(self, beliefs: list[Belief]) -> list[Belief]:
        """The same beliefs of a stream that reads with its own schema."""
        return [replace(belief, schema=self._schema) for belief in beliefs]

    # ---- what was seen ----

    def fit(self, belief: Belief, plan: Plan, names: list[str], rows: list[tuple[Any, ...]]) -> Belief:
        """Where the stream stands behind a plan with these columns and rows; Mismatch, Refused if it cannot be."""
        last = plan.snapshot_id
        assert last is not None
        try:
            return self._behind(belief, plan, last, names, rows)
        except Mismatch:
            follows = belief.phase == "follow" and belief.left is None
            unchanged = self._unchanged_until(belief.next, last) if follows else 0
            if not unchanged:
                raise
            return self._behind(self._passed(belief, unchanged + 1), plan, last, names, rows)

    def _behind(self, belief: Belief, plan: Plan, last: int, names: list[str], rows: list[tuple[Any, ...]]) -> Belief:
        if belief.phase == "full" and plan.kind is not PlanKind.FULL:
            belief = self._followed(belief)
        expected = {"full": (PlanKind.FULL,), "follow": FOLLOWING, "start": ()}[belief.phase]
        if plan.kind not in expected or (last < belief.next if belief.phase == "follow" else last != belief.next):
            raise Mismatch(f"{plan.kind} of snapshot {last}")
        if plan.kind is PlanKind.NET:
            self._check_net(belief, last, rows)
            return Belief("follow", last + 1, self._schema)
        left = [] if belief.left is None else list(belief.left)
        schema = belief.schema
        for number in range(belief.next, last + 1):
            commit = self._table.commits[number]
            if left and number > belief.next and plan.kind is not PlanKind.COLLAPSED:
                raise Mismatch(f"rows of snapshot {number - 1} were left out")
            schema = self._schema_at(schema, commit, belief.phase)
            if belief.left is None or number > belief.next:
                left += self._to_come(commit, belief.phase)
        wanted = [column.name for column in self._columns(schema)]
        if names != wanted:
            raise Mismatch(f"columns {names} instead of {wanted}")
        ordered = self._model.ordered and plan.kind not in STATES
        for row in rows:
            self._take(left, row, schema, ordered, plan.kind)
        cut = plan.position.snapshot == last
        if not cut and left:
            raise Mismatch(f"{len(left)} rows of snapshot {last} are missing")
        if cut:
            return Belief(belief.phase, last, schema, tuple(left))
        return Belief("follow", last + 1, schema)

    def _take(
        self, left: list[Handed], row: tuple[Any, ...], schema: TableColumns, ordered: bool, kind: PlanKind
    ) -> None:
        """Find a row among those that are to come, in its place."""
        columns = self._columns(schema)
        key = self._key(row, schema)
        number = next((number for number, each in enumerate(left) if each.record.key == key), None)
        if number is None:
            raise Mismatch(f"{row} is not to come")
        found = left.pop(number)
        known = "+I" if found.kind == "+U" and kind in STATES else found.kind
        wanted = (known, *(column.value(found.record) for column in columns))
        if row != wanted:
            raise Mismatch(f"{row} instead of {wanted}")
        if ordered and any(each.place == found.place for each in left[:number]):
            raise Mismatch(f"{row} is out of order")

    def _key(self, row: tuple[Any, ...], schema: TableColumns) -> tuple[str | None, int]:
        values = dict(zip((column.name for column in self._columns(schema)), row[1:], strict=True))
        return values.get(PARTITION), values[KEY]

    def _check_net(self, belief: Belief, last: int, rows: list[tuple[Any, ...]]) -> None:
        """The changes lead from the state before them, behind what was passed over, to the one behind them."""
        reason = Mismatch(f"no changes up to snapshot {last}")
        for first in range(belief.next, last + 1):
            try:
                self._check_changes(self._state(first - 1), self._state(last), rows)
            except Mismatch as mismatch:
                reason = mismatch
            else:
                return
            if self._to_come(self._table.commits[first], "follow"):
                break
        raise reason

    def _check_changes(self, before: dict[Any, Any], after: dict[Any, Any], rows: list[tuple[Any, ...]]) -> None:
        for row in rows:
            key = self._key(row, self._schema)
            if row[0] in ADDS:
                before[key] = row[1:]
            elif before.pop(key, None) != row[1:]:
                raise Mismatch(f"{row} was not there")
        if before != after:
            raise Mismatch(f"{before} instead of {after}")

    def _state(self, number: int) -> dict[tuple[str | None, int], tuple[Any, ...]]:
        if not number:
            return {}
        rows = self._to_come(self._table.commits[number], "full")
        columns = self._columns(self._schema)
        return {each.record.key: tuple(column.value(each.record) for column in columns) for each in rows}

    # ---- what it must see ----

    def _to_come(self, commit: Commit, phase: str) -> list[Handed]:
        """The rows of a snapshot for this reader."""
        shard, least = self._settings.shard, self._settings.least_key
        if shard is not None:
            commit = restricted(commit, lambda file: in_shard(file, *shard, self._by_file))
        if phase == "full":
            rows = self._model.first_plan(commit)
        else:
            rows = self._model.follow(commit, self._settings.overwrites)
        return [each for each in rows if least is None or each.record.key[1] >= least]

    def _ahead(self, belief: Belief) -> Iterator[tuple[Commit, str]]:
        """The snapshots that a belief leads to, each with its phase."""
        if belief.phase == "full":
            yield self._table.commits[belief.next], "full"
        if belief.phase != "start":
            first = belief.next + 1 if belief.phase == "full" else belief.next
            for number in range(first, self._table.latest + 1):
                yield self._table.commits[number], "follow"

    def first_with_rows(self, belief: Belief) -> int:
        """Up to which snapshot there is nothing to be confirmed; 0 before a first plan is."""
        if belief.phase == "start":
            return 0
        if belief.left is not None:
            return belief.next if belief.phase == "follow" else 0
        for commit, phase in self._ahead(belief):
            if self._to_come(commit, phase):
                return commit.id if phase == "follow" else 0
        return max(belief.next, self._table.latest + 1)

    def _columns(self, schema: TableColumns) -> list[Column]:
        if self._settings.projection is None:
            return list(schema.columns)
        return [column for column in map(schema.find, self._projected) if column is not None]

    def _schema_at(self, schema: TableColumns, commit: Commit, phase: str) -> TableColumns:
        """What a snapshot is read with; Refused if it must not be."""
        newer, policy = commit.schema, self._settings.on_schema_change
        read = phase == "full" or self._model.is_read(commit, self._settings.overwrites)
        if not read or policy == "ignore" or newer.id <= schema.id:
            return schema
        if self._settings.projection is None:
            dropped, same = False, schema.columns == newer.columns
        else:
            columns = [newer.find(number) for number in self._projected]
            dropped, same = None in columns, columns == self._columns(schema)
        if same:
            return schema
        if policy == "fail" or dropped:
            raise Refused(f"snapshot {commit.id} has schema {newer.id}")
        return newer

    def refuses(self, belief: Belief) -> bool:
        """Whether a changed schema may be found before any row."""
        schema = belief.schema
        at_once = self._settings.catch_up == "replay" or bool(self._settings.limits)
        for commit, phase in self._ahead(belief):
            try:
                schema = self._schema_at(schema, commit, phase)
                if self._settings.on_schema_change == "ignore":
                    for file in (*commit.added, *commit.removed, *commit.changelog, *commit.live):
                        for record in file.records:
                            for column in self._columns(schema):
                                column.value(record)
            except (Refused, OverflowError):
                return True
            if at_once and self._to_come(commit, phase):
                return False
        return False

    def idle(self, belief: Belief) -> Belief:
        """Where a stream stands that found nothing new."""
        if belief.phase == "start" and self._table.commits and not self.overdue(belief):
            raise Mismatch("the start is there")
        if belief.phase == "start":
            return replace(belief, next=1)
        return belief if self.expired(belief) else self._passed(belief, self._table.latest + 1)

    def _passed(self, belief: Belief, until: int) -> Belief:
        """Behind snapshots that hold nothing."""
        if belief.left is not None and belief.next < until:
            raise Mismatch("it is inside of a snapshot")
        schema, unchanged = belief.schema, 0
        for commit, phase in self._ahead(belief):
            if commit.id >= until and phase == "follow":
                break
            schema = self._schema_at(schema, commit, phase)
            if commit.id > unchanged and self._to_come(commit, phase):
                unchanged = self._unchanged_until(commit.id, until) if phase == "follow" else 0
                if not unchanged:
                    raise Mismatch(f"there are rows in snapshot {commit.id}")
        return Belief("follow", max(until, belief.next), schema)

    def _unchanged_until(self, first: int, until: int) -> int:
        """The last of several snapshots that change nothing together, which net catch-up passes over; 0 if they do."""
        if self._settings.catch_up != "net" or not self._model.keyed:
            return 0
        before = self._state(first - 1)
        return max((number for number in range(first + 1, until) if self._state(number) == before), default=0)

    def _followed(self, belief: Belief) -> Belief:
        """Behind a first plan that was not handed out, since it held nothing."""
        return self._passed(belief, belief.next + 1)

    def at(self, belief: Belief, position: Position) -> Iterator[Belief]:
        """Where a belief is at a position, if it leads there."""
        phase = "full" if position.phase is Phase.FULL else "follow"
        if (belief.phase, belief.next) == (phase, position.snapshot):
            yield belief
        elif phase == "follow" and belief.phase != "start" and belief.next < position.snapshot:
            with contextlib.suppress(Mismatch, Refused):
                yield self._passed(belief, position.snapshot)

    # ---- what may have happened ----

    def branched(self, beliefs: list[Belief], moments: Sequence[Moment]) -> list[Belief]:
        """With what the stream would do if it looked at the table at one of these moments, or at several of them."""
        found = list(beliefs)
        for number, (earliest, latest) in enumerate(moments):
            later = [each for each, _ in moments[number + 1 :]]
            for belief in list(found):
                if belief.phase == "start":
                    found += self._starts(belief, earliest, latest, later)
            # What holds nothing was passed over then, and may have expired since.
            for belief in list(found):
                if belief.phase == "follow" and belief.left is None and earliest <= belief.next <= latest:
                    with contextlib.suppress(Mismatch, Refused):
                        found.append(self._passed(belief, min(self.first_with_rows(belief), latest + 1)))
            # The start may be one that has expired, or an overwrite of what has.
            for belief in list(found):
                if belief.phase != "start" and (belief.next < earliest or self.replaces_expired(belief)):
                    found += self._alternatives(belief, earliest, latest)
            found = _once_each(found)
        return found

    def _starts(self, belief: Belief, earliest: int, latest: int, later: list[int]) -> Iterator[Belief]:
        """Where a stream begins at a moment; it looks for the earliest snapshot a little later than for the latest."""
        start = self._settings.start
        shared = self._table.start_of(self._settings.consumer)
        if shared is not None:
            yield Belief(*shared, self._schema)
            if shared[1] >= max(earliest, *later, 0):
                return
        # There is none yet, or it may have expired before it was protected: then another one is looked for.
        if not latest:
            yield replace(belief, next=1)
        elif start == "latest" and belief.next:
            yield Belief("follow", 1, self._schema)
        elif start == "earliest":
            yield Belief("follow", earliest, self._schema)
        elif start == "latest":
            yield Belief("follow", latest + 1, self._schema)
        else:
            ids = range(earliest, latest + 1)
            compacted = [number for number in ids if self._table.commits[number].kind == "COMPACT"]
            chosen = compacted[-1] if compacted and start == "compacted-full" else latest
            yield Belief("full", chosen, self._schema)
            if any(each > chosen for each in later):
                yield Belief("full", latest, self._schema)

    def _alternatives(self, belief: Belief, earliest: int, latest: int) -> Iterator[Belief]:
        policy = self._settings.on_expired
        if policy == "latest":
            yield Belief("follow", latest + 1, belief.schema)
        elif policy == "full":
            yield Belief("full", latest, belief.schema)
        elif policy == "earliest" and belief.next < earliest:
            yield Belief(belief.phase, earliest, belief.schema)

    def expired(self, belief: Belief) -> bool:
        """Whether the next snapshot is gone."""
        return belief.phase != "start" and belief.next < self._table.earliest

    def overdue(self, belief: Belief) -> bool:
        """Whether the next poll need not find out what is there: of what has expired, or was empty, many are needed."""
        late = belief.phase == "start" and belief.next == 1 and self._table.earliest > 1
        return late or self.expired(belief)

    def replaces_expired(self, belief: Belief) -> bool:
        """Whether it comes to an overwrite of rows that have expired with the snapshot before it."""
        number = self._table.earliest
        commit = self._table.commits.get(number)
        if commit is None or number == 1 or not self._model.keyed or not self._settings.overwrites:
            return False
        return commit.kind == "OVERWRITE" and belief.phase == "follow" and belief.next == number


def _once_each(beliefs: list[Belief]) -> list[Belief]:
    """The first of those that say the same."""
    known = {(each.phase, each.next, each.schema.id, each.left and len(each.left)): each for each in beliefs[::-1]}
    return list(known.values())[::-1]
