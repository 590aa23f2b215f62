"""A reader of a crafted table that holds every plan, error and position against what it must see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pypaimon.common.predicate import Predicate

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    Plan,
    Position,
    PositionExpiredError,
    SchemaChangedError,
    StreamReadBuilder,
    StreamTableRead,
)
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.models.expectations import STATES, Belief, Expectations, Mismatch, Refused, Settings
from support.models.table import KEY, StreamModel
from support.tables.crafted_table import CraftedTable

IDLE_POLLS = 40
"""More than it takes until an idle stream finds the start of a table that was empty, and then checks its range."""
ROUNDS_PER_COMMIT = 50
"""More plans than limits can cut a commit into, a full state before it included."""


class BelievingReader:
    """One reader.

    Args:
        model: What streams of the table hand out.
    """

    def __init__(self, table: CraftedTable, model: StreamModel, by_file: bool, settings: Settings) -> None:
        self._table, self._model, self._by_file = table, model, by_file
        self.plans: list[tuple[Position, list[Belief]]] = []
        self._confirmable, self._cancelled = 0, False
        self.open(settings)

    # ---- what it does ----

    def open(self, settings: Settings, position: str | None = None) -> None:
        """Build a stream at a position; without one at its consumer's progress or its start.

        Not on an event loop, where a builder would ask for its schema later.
        """
        self.settings = settings
        self._looked = len(self._table.moments) - 1
        self._began: int | None = None
        self.expected = Expectations(self._table, self._model, self._by_file, settings)
        builder = self._builder(position)
        self.scan: AsyncStreamingTableScan = builder.new_streaming_scan()
        self._read: StreamTableRead = builder.new_read()
        self.beliefs = self.expected.beliefs()

    def _builder(self, position: str | None) -> StreamReadBuilder:
        settings = self.settings
        handle = self._table.first_handle if settings.old_handle else self._table.handle()
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        builder = StreamReadBuilder(handle).with_start(settings.start).with_include_row_kind()
        builder.with_prefetch(settings.prefetch).with_catch_up(settings.catch_up).with_limits(**dict(settings.limits))
        builder.with_on_expired(settings.on_expired).with_on_schema_change(settings.on_schema_change)
        builder.with_on_overwrite("read" if settings.overwrites else "skip")
        if settings.projection is not None:
            builder.with_projection(list(settings.projection))
        if settings.least_key is not None:
            builder.with_filter(Predicate("greaterOrEqual", None, KEY, [settings.least_key]))
        if settings.shard is not None:
            builder.with_shard(*settings.shard)
        if settings.consumer is not None:
            builder.with_consumer_id(settings.consumer)
        if position is not None:
            builder.with_start(position=position)
        return builder

    def restart(self, settings: Settings) -> None:
        """Go away, perhaps with a plan in hand, and come back: by the consumer's progress, else at the position."""
        self.scan.close()
        if self.settings.consumer is not None:
            if self._cancelled:
                self._branch()
                self._confirmable = max(self._confirmable, *map(self.expected.first_with_rows, self.beliefs))
            saved = self.scan.committed()
            assert saved is None or saved <= self._confirmable, f"{saved} was saved, not confirmed"
            self.plans.clear()
            self.open(replace(settings, consumer=self.settings.consumer))
            if saved is not None:
                self.beliefs = self.expected.beliefs("follow", saved)
            if self._cancelled:
                # A save that was under way may still come to its end.
                later = range((saved or 0) + 1, self._confirmable + 1)
                self.beliefs += [each for number in later for each in self.expected.beliefs("follow", number)]
            else:
                self._confirmable = saved or 0
            return
        self._resume(settings, self.scan.checkpoint(), self.beliefs)

    def _resume(self, settings: Settings, position: Position | None, beliefs: list[Belief]) -> None:
        if position is None:
            self.open(settings)
            return
        found = [each for belief in beliefs for each in self.expected.at(belief, position)]
        assert found, f"nothing led to {position}: {beliefs}"
        self.open(settings, position.to_json())
        self.beliefs = self.expected.rebuilt(found)

    def seek(self, number: int) -> None:
        """Back to behind a plan that was handed out."""
        if self.plans and self.settings.consumer is None:
            position, beliefs = self.plans[number % len(self.plans)]
            self.scan.restore(position)
            self.beliefs = self.expected.rebuilt(beliefs)
            del self.plans[number % len(self.plans) + 1 :]

    async def step(self, cancel_after: int | None = None) -> bool:
        """Ask for a plan, perhaps cancelled after so many rounds of the event loop; whether more may be there."""
        self._branch()
        before, position, reading = self.beliefs, self.scan.checkpoint(), False
        self._confirmable, self._cancelled = max(map(self.expected.first_with_rows, before)), cancel_after is not None
        waiting = asyncio.ensure_future(self.scan.plan_async())
        if cancel_after is not None:
            for _ in range(cancel_after):
                await asyncio.sleep(0)
            waiting.cancel()
        try:
            plan = await waiting
            reading = plan is not None
            if plan is None:
                self._see(self.expected.idle)
                return any(map(self.expected.overdue, self.beliefs))
            names, rows = self._rows(plan)
        except asyncio.CancelledError:
            return True
        except PositionExpiredError as error:
            self._check_expired(error, before, reading)
            await asyncio.to_thread(self._afresh, error)
            return True
        except SchemaChangedError as error:
            self._check_refused(error, before)
            await asyncio.to_thread(self._with_newer_schema, position, before)
            return True
        self._see(lambda belief: self.expected.fit(belief, plan, names, rows))
        self.plans.append((plan.position, self.beliefs))
        return True

    def _branch(self) -> None:
        """Believe all that can have been found by now: a cancelled call goes on, and plans are made ahead."""
        moments = self._table.moments
        since = self._looked if self._cancelled or self.settings.prefetch else len(moments) - 1
        self.beliefs = self.expected.branched(self.beliefs, moments[since:])
        self._looked = len(moments) - 1

    async def catch_up(self) -> None:
        """Until nothing new is there; a position that has expired must be found out by then."""
        idle, left = 0, IDLE_POLLS + ROUNDS_PER_COMMIT * len(self._table.commits)
        while idle < IDLE_POLLS and await self.step():
            idle = idle + 1 if any(map(self.expected.overdue, self.beliefs)) else 0
            left -= 1
            assert left, f"it does not come to an end at {self.scan.checkpoint()}: {self.settings}, {self.beliefs}"
        assert not all(map(self.expected.overdue, self.beliefs)), f"it waits for what has expired: {self.beliefs}"

    def _afresh(self, error: PositionExpiredError) -> None:
        """Come back as the error advises, where the same progress, or start, would lead to it again."""
        on_expired = self.settings.on_expired
        if error.earliest_needs_it:
            on_expired = "full"
        elif on_expired == "fail" and self.settings.consumer is not None:
            on_expired = "earliest"
        settings = replace(self.settings, projection=None, on_expired=on_expired)
        if self.settings.consumer is not None:
            self.restart(settings)
            return
        self.scan.close()
        self.plans.clear()
        self.open(settings)

    def _with_newer_schema(self, position: Position | None, beliefs: list[Belief]) -> None:
        """Come back with a stream that knows the newest schema, behind the last rows that were seen."""
        settings = replace(self.settings, projection=None)
        if self.settings.consumer is not None:
            self.restart(settings)
            return
        self.scan.close()
        self.plans.clear()
        self._resume(settings, position, beliefs)

    # ---- what it sees ----

    def _rows(self, plan: Plan) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows of a plan, the row kind first; updates of a state are like inserts."""
        # A state in the midst of a stream is told though it has no rows, which could tell its schema.
        table = self._read.to_arrow(plan.splits()) if plan.splits() else self._read.schema_of(plan).empty_table()
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        if plan.kind in STATES:
            rows = [("+I" if row[0] == "+U" else row[0], *row[1:]) for row in rows]
        return table.column_names[1:], rows

    def _see(self, fit: Callable[[Belief], Belief]) -> None:
        """Give up the beliefs that what was seen does not fit; the others move on."""
        reasons: list[str] = []

        def moved(belief: Belief) -> Belief | None:
            try:
                return fit(belief)
            except (Mismatch, Refused, OverflowError) as reason:
                reasons.append(f"{belief}: {reason!r}")
                return None

        found = [each for each in map(moved, self.beliefs) if each is not None]
        assert found, "\n".join(reasons)
        self.beliefs = found
        if self._began is None and all(each.phase != "start" for each in found):
            self._began = len(self._table.moments)

    def _check_refused(self, error: SchemaChangedError, beliefs: list[Belief]) -> None:
        assert any(map(self.expected.refuses, beliefs)), f"{error}: {beliefs}"

    def _check_expired(self, error: PositionExpiredError, beliefs: list[Belief], reading: bool) -> None:
        # On an empty table `latest` has no position yet that a consumer could save.
        unsaved = self.settings.start == "latest" and any((each.phase, each.next) == ("start", 1) for each in beliefs)
        # A cancelled call may have found the start, and have been about to save it.
        until, then = self._table.unprotected
        unsaved = unsaved or (error.wanted < until and (self._began is None or then <= self._began))
        # What a consumer keeps is its next snapshot, not the rows of the one before that an overwrite retracts.
        kept = not unsaved and not any(map(self.expected.replaces_expired, beliefs))
        assert self.settings.consumer is None or not kept, f"the table expired under its consumer: {error}"
        fails = reading or self.settings.on_expired == "fail"
        gone = self.expected.expired if fails else self.expected.replaces_expired
        assert any(gone(each) or self.expected.replaces_expired(each) for each in beliefs), f"{error}: {beliefs}"
