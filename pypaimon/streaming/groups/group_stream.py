"""`GroupStream` and `BlockingGroupStream`: the batches of a member of a group."""

from __future__ import annotations

import inspect
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Generic, NoReturn, TypeVar

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import Clock, Sleeper
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import AssignmentLostError, EndOfScan
from pypaimon.streaming.groups.assigned_slots import Assignment
from pypaimon.streaming.groups.group_reader import GroupReader, SlotChunk, UnconfirmedEnd
from pypaimon.streaming.groups.group_settings import GroupSettings, OnSlots
from pypaimon.streaming.groups.membership import AssignmentChangeKind
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.scanning.handover import Handover
from pypaimon.streaming.scanning.lag import Lag

asyncio = LazyModule("asyncio")
B = TypeVar("B")

# ---- batches ----


class _SlotTokens:
    """What batches of a group know in addition."""

    _tokens: Mapping[int, int]

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots whose rows these are, ascending."""
        return tuple(sorted(self._tokens))

    @property
    def tokens(self) -> Mapping[int, int]:
        """For each slot the generation that gave it to this member: a later owner has a greater one."""
        return MappingProxyType(dict(self._tokens))

    @property
    def token(self) -> int:
        """The greatest of `tokens`."""
        return max(self._tokens.values())


class GroupBatch(_SlotTokens, Batch):
    """A batch of an asynchronous stream of a group: a `Batch` with the rows of some slots.

    `position` is where these slots continue. `commit` confirms everything that the stream has handed out up to this
    batch.
    """

    def __init__(
        self, chunk: BatchChunk, tokens: Mapping[int, int], commit: Callable[[BatchChunk], Awaitable[None]]
    ) -> None:
        super().__init__(chunk, commit)
        self._tokens = tokens


class BlockingGroupBatch(_SlotTokens, BlockingBatch):
    """As `GroupBatch`, of a blocking stream."""

    def __init__(self, chunk: BatchChunk, tokens: Mapping[int, int], commit: Callable[[BatchChunk], None]) -> None:
        super().__init__(chunk, commit)
        self._tokens = tokens


# ---- plans that are not confirmed ----


@dataclass(slots=True, eq=False)
class _DeliveredPlan:
    plan: Plan
    slots: Mapping[int, int]
    has_rows: bool
    is_complete: bool


class DeliveredPlans:
    """The plans that the caller has and has not confirmed, in the order in which it got them, whatever their slots.

    Not thread-safe except for `has_complete`.
    """

    def __init__(self) -> None:
        self._plans: deque[_DeliveredPlan] = deque()
        self._last: BatchChunk | None = None

    @property
    def has_complete(self) -> bool:
        """Whether the caller has at least one complete plan, which it can confirm."""
        return any(each.is_complete for each in tuple(self._plans))

    def add(self, chunk: BatchChunk, slots: Mapping[int, int]) -> None:
        """The caller has a chunk. Repeating the call for the last chunk changes nothing.

        A chunk without rows is the end of a plan, or all of one.
        """
        if chunk is self._last:
            return
        last = self._plans[-1] if self._plans else None
        if last is None or last.plan is not chunk.plan:
            last = _DeliveredPlan(chunk.plan, slots, has_rows=False, is_complete=False)
            self._plans.append(last)
        last.has_rows = last.has_rows or chunk.data is not None
        last.is_complete = chunk.last
        self._last = chunk

    def confirm(self, chunk: BatchChunk | None) -> list[tuple[Mapping[int, int], Position]]:
        """Confirm everything up to a chunk. Returns the plans that this confirms: their slots and positions.

        A plan is confirmed with its last chunk, and plans without rows with the plan before them; with None only those
        at the front are. A plan whose slots went to another member halfway is never confirmed: that member reads it
        from its beginning.
        """
        found: list[_DeliveredPlan] = []
        if chunk is not None and any(each.plan is chunk.plan for each in self._plans):
            while self._plans[0].plan is not chunk.plan:
                found.append(self._plans.popleft())
            if chunk.last:
                found.append(self._plans.popleft())
        while self._plans and self._plans[0].is_complete and not self._plans[0].has_rows:
            found.append(self._plans.popleft())
        return [(each.slots, each.plan.position) for each in found if each.is_complete]


# ---- streams ----


class _GroupLoop(Generic[B]):
    """The part of both streams that neither blocks nor awaits."""

    def __init__(self, reader: GroupReader, settings: GroupSettings, clock: Clock) -> None:
        self._reader = reader
        self._settings = settings
        busy = "this stream is being read by another call; open one stream per reader"
        self._handover: Handover[B, SlotChunk | None] = Handover(None, busy)
        self._plans = DeliveredPlans()
        self._clock = clock
        self._sleeper = Sleeper(clock)
        self._stopping = False
        self._over = False
        self._is_at_end = False
        if settings.commit is CommitMode.MANUAL:
            # Not a method of this object, which the reader must not keep alive.
            plans = self._plans
            reader.has_unconfirmed = lambda: plans.has_complete
        # The threads must not outlive a stream that was dropped without being closed.
        weakref.finalize(self, spawn_detached, partial(_close_and_leave, reader))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group_id}, {self.assignment})"

    @property
    def assignment(self) -> Assignment | None:
        """What this member reads of the table now; None if it has no slots. No IO."""
        self._handover.refuse_elsewhere()
        member = self._reader.membership
        return None if member is None else member.assignment

    def _measured_lag(self) -> Lag | None:
        self._handover.refuse_elsewhere()
        return self._reader.lag()

    def stop(self) -> None:
        """End gracefully: the rest of the current plan still comes. From any thread or a signal handler."""
        self._stopping = True
        self._sleeper.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop()` was called."""
        return self._stopping

    def _pause(self, seconds: float) -> Wait[None]:
        return self._sleeper.until_due(self._clock.monotonic() + seconds, lambda: self._stopping or self._over)

    def _end(self) -> None:
        self._over = True
        self._reader.close()
        self._sleeper.wake()

    def _leave(self) -> None:
        self._end()
        self._reader.leave()

    def _is_stopped(self) -> bool:
        current = self._handover.state
        return self._stopping and (current is None or current.chunk.last)

    def _find(self, new_batch: Callable[[SlotChunk], B]) -> Waits[None]:
        """Put the next batch into the handover; EndOfScan if there is none."""
        current = self._note_current()
        if current is not None and self._settings.commit is CommitMode.AUTO:
            self._confirm(current.chunk)
        while not (self._over or self._handover.has_item):
            yield self._sleeper.until_done(self._reader.ready(), self._is_stopped)
            yield from self._run_callbacks()
            if self._is_stopped():
                raise EndOfScan("the stream was stopped")
            item = self._reader.peek()
            if item is not None:
                self._offer(item, new_batch)
        if self._over:
            raise EndOfScan("the stream is closed")

    def _offer(self, item: SlotChunk, new_batch: Callable[[SlotChunk], B]) -> None:
        if item.chunk.data is not None:
            self._handover.offer(new_batch(item), item)
            self._reader.drop(item)
            return
        # A plan without rows, or the end of one.
        self._plans.add(item.chunk, item.slots)
        self._reader.drop(item)
        self._confirm(None)

    # ---- what is confirmed ----

    def _note_current(self) -> SlotChunk | None:
        """The chunk of the batch that the caller got last; None if it has none, or the next one waits to be taken."""
        current = self._handover.state
        if current is None or self._handover.has_item:
            return None
        self._plans.add(current.chunk, current.slots)
        return current

    def _confirm(self, chunk: BatchChunk | None) -> tuple[list[tuple[Mapping[int, int], Position]], set[int]]:
        """Confirm everything up to a chunk. Returns the plans, and the slots of them that were lost meanwhile."""
        member = self._reader.membership
        assert member is not None
        confirmed = self._plans.confirm(chunk)
        lost = {slot for slots, after in confirmed for slot in member.confirm(slots, after)}
        if confirmed:
            self._reader.wake()
        return confirmed, lost

    def _commit(self, chunk: BatchChunk) -> Waits[None]:
        self._note_current()
        confirmed, lost = self._confirm(chunk)
        member = self._reader.membership
        assert member is not None
        for slots, after in confirmed:
            # This wait is never given up: each slot is saved or lost in the end, also when the member leaves.
            lost |= set((yield self._sleeper.until_done(member.saved(slots, after), lambda: False)))
        member.check()
        if self._is_at_end and not self._reader.has_unconfirmed():
            # The loop has ended, and the other members may wait for this one.
            self._end()
            spawn_detached(self._reader.leave)
        if lost:
            raise AssignmentLostError(tuple(sorted(lost)))

    def _run_callbacks(self) -> Waits[None]:
        member = self._reader.membership
        callbacks = {
            AssignmentChangeKind.ASSIGNED: self._settings.on_assigned,
            AssignmentChangeKind.REVOKED: self._settings.on_revoked,
            AssignmentChangeKind.LOST: self._settings.on_lost,
        }
        while member is not None and (change := member.pending_change()) is not None:
            callback = callbacks[change.kind]
            if callback is not None:
                yield _call(callback, tuple(sorted(change.slots)))
            member.change_handled(change)


def _call(callback: OnSlots, slots: tuple[int, ...]) -> Wait[None]:
    def block() -> None:
        callback(slots)

    async def awaitable() -> None:
        if inspect.isawaitable(answer := callback(slots)):
            await answer

    return Wait(block, awaitable)


def _close_and_leave(reader: GroupReader) -> None:
    reader.close()
    reader.leave()


class GroupStream(_GroupLoop[GroupBatch]):
    """The batches of a member of a group, for `async for`; made by `GroupStreamBuilder.open()`.

    Use it in `async with`: leaving the block leaves the group, and the others continue at once where this member has
    confirmed. A cancelled wait loses nothing. With `commit="auto"` asking for the next batch confirms the one before,
    and the member saves that soon afterwards; with `commit="manual"` only `batch.commit()` confirms, and has saved when
    it returns.
    """

    def __aiter__(self) -> GroupStream:
        return self

    async def __anext__(self) -> GroupBatch:
        try:
            await self._handover.exclusively_async(lambda: run_async(self._find(self._new_batch)))
        except UnconfirmedEnd:
            self._is_at_end = True
            raise StopAsyncIteration from None
        except EndOfScan:
            await self.aclose()
            raise StopAsyncIteration from None
        return self._handover.take()

    def _new_batch(self, item: SlotChunk) -> GroupBatch:
        return GroupBatch(item.chunk, item.slots, lambda chunk: run_async(self._commit(chunk)))

    async def lag(self) -> Lag | None:
        """The lag of this member: that of the slot it has handed out least; None if it has no slots now.

        `committed` is saved of all its slots. Costs a listing, and a request for each snapshot in between that is not
        known yet.

        Raises:
            StoreError: The store failed.
        """
        lag: Lag | None = await asyncio.to_thread(self._measured_lag)
        return lag

    async def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until `stop()` or `aclose()`. For handlers that try again."""
        await self._pause(seconds).awaitable()

    async def aclose(self) -> None:
        """End at once and leave the group, for a session at most; confirms nothing. Idempotent."""
        self._end()
        await asyncio.to_thread(self._leave)

    async def __aenter__(self) -> GroupStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> NoReturn:
        self._end()
        raise TypeError("open() is for `async with` and `async for`; without asyncio use `with group.open_sync()`")

    def __exit__(self, *_: object) -> None:
        """Never called. Without it `with` would raise an error of its own before `__enter__`."""


class BlockingGroupStream(_GroupLoop[BlockingGroupBatch]):
    """As `GroupStream`, for a plain `for` and `with`; Ctrl-C interrupts it and loses nothing."""

    def __iter__(self) -> BlockingGroupStream:
        return self

    def __next__(self) -> BlockingGroupBatch:
        try:
            self._handover.exclusively(lambda: run(self._find(self._new_batch)))
        except UnconfirmedEnd:
            self._is_at_end = True
            raise StopIteration from None
        except EndOfScan:
            self._leave()
            raise StopIteration from None
        return self._handover.take()

    def _new_batch(self, item: SlotChunk) -> BlockingGroupBatch:
        return BlockingGroupBatch(item.chunk, item.slots, lambda chunk: run(self._commit(chunk)))

    def lag(self) -> Lag | None:
        """As `GroupStream.lag`. Blocks; from any thread."""
        return self._measured_lag()

    def pause(self, seconds: float) -> None:
        """Block for some seconds, or until `stop()` or `close()`. For handlers that try again."""
        self._pause(seconds).block()

    def close(self) -> None:
        """End at once and leave the group, for a session at most; confirms nothing. Idempotent."""
        self._leave()

    def __enter__(self) -> BlockingGroupStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    async def __aenter__(self) -> NoReturn:
        self._end()
        raise TypeError("open_sync() is for `with` and `for`; with asyncio use `async with group.open()`")

    async def __aexit__(self, *_: object) -> None:
        """Never called. Without it `async with` would raise an error of its own before `__aenter__`."""
