"""`GroupStream` and `BlockingGroupStream`: the rows that a member of a group is given, as they come."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, NoReturn, TypeVar

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.clock import Clock, Sleeper
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import AssignmentLostError, EndOfScan
from pypaimon.streaming.group_streams.assignment import Assignment
from pypaimon.streaming.group_streams.batch import BlockingGroupBatch, GroupBatch
from pypaimon.streaming.group_streams.group_settings import GroupSettings, OnSlots
from pypaimon.streaming.group_streams.handed_out_plans import HandedOutPlans
from pypaimon.streaming.group_streams.membership import ChangeKind
from pypaimon.streaming.group_streams.reader import GroupReader, UnconfirmedEnd, Waiting
from pypaimon.streaming.io.io_pool import spawn_detached
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.scanning.handover import Handover
from pypaimon.streaming.scanning.lag import Lag

asyncio = LazyModule("asyncio")
B = TypeVar("B")


@dataclass(frozen=True, slots=True, eq=False)
class _Delivered:
    """What the caller was given.

    Attributes:
        chunk: It.
        slots: Whose rows it has, with the numbers of their tenures.
    """

    chunk: BatchChunk
    slots: Mapping[int, int]


class _GroupLoop(Generic[B]):
    """What both streams share.

    Args:
        reader: Reads what the member has.
        settings: Of the group.
        clock: Where time comes from.
    """

    def __init__(self, reader: GroupReader, settings: GroupSettings, clock: Clock) -> None:
        self._reader = reader
        self._settings = settings
        busy = "this stream is being read by another call; open one stream per reader"
        self._handover: Handover[B, _Delivered | None] = Handover(None, busy)
        self._plans = HandedOutPlans()
        self._clock = clock
        self._sleeper = Sleeper(clock)
        self._stopping = False
        self._over = False
        self._is_at_end = False
        # The threads must not outlive a stream that nobody holds any more.
        weakref.finalize(self, spawn_detached, partial(_let_go, reader))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group_id}, {self.assignment})"

    @property
    def assignment(self) -> Assignment | None:
        """What of the table the member has now; None: nothing. No IO."""
        self._handover.refuse_elsewhere()
        member = self._reader.membership
        return None if member is None else member.assignment

    def _measured_lag(self) -> Lag | None:
        self._handover.refuse_elsewhere()
        member = self._reader.membership
        return None if member is None else member.lag()

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: what is left of the plan in hand still comes."""
        self._stopping = True
        self._sleeper.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop()` was called."""
        return self._stopping

    def _pause(self, seconds: float) -> Wait[None]:
        """For so long, or until the stream is stopped or closed."""
        return self._sleeper.until_due(self._clock.monotonic() + seconds, lambda: self._stopping or self._over)

    def _end(self) -> None:
        self._over = True
        self._reader.close()
        self._sleeper.wake()

    def _leave(self) -> None:
        """Leave the group; blocks for a session at the most."""
        self._end()
        self._reader.leave()

    def _has_unconfirmed(self) -> bool:
        """Whether the caller has yet to confirm what it was given."""
        return self._settings.commit is CommitMode.MANUAL and self._plans.has_whole

    def _is_stopped(self) -> bool:
        hand = self._handover.state
        return self._stopping and (hand is None or hand.chunk.last)

    def _find(self, new_batch: Callable[[BatchChunk, Mapping[int, int]], B]) -> Waits[None]:
        """Have a batch wait in the handover; EndOfScan if there is none any more."""
        hand = self._note_hand()
        if hand is not None and self._settings.commit is CommitMode.AUTO:
            self._confirm(hand.chunk)
        while not (self._over or self._handover.has_item):
            yield self._sleeper.until_done(self._reader.ready(self._has_unconfirmed), self._is_stopped)
            yield from self._tell_news()
            if self._is_stopped():
                raise EndOfScan("the stream was stopped")
            waiting = self._reader.peek()
            if waiting is not None:
                self._offer(waiting, new_batch)
        if self._over:
            raise EndOfScan("the stream is closed")

    def _offer(self, waiting: Waiting, new_batch: Callable[[BatchChunk, Mapping[int, int]], B]) -> None:
        chunk, slots = waiting.chunk, waiting.cursor.slots
        if chunk.data is not None:
            self._handover.offer(new_batch(chunk, slots), _Delivered(chunk, slots))
            self._reader.drop(waiting)
            return
        # A plan without rows, or the end of one.
        self._plans.add(chunk, slots)
        self._reader.drop(waiting)
        self._confirm(None)

    # ---- what is confirmed ----

    def _note_hand(self) -> _Delivered | None:
        """What the caller has in hand; None: nothing, or something waits to be taken."""
        hand = self._handover.state
        if hand is None or self._handover.has_item:
            return None
        self._plans.add(hand.chunk, hand.slots)
        return hand

    def _confirm(self, chunk: BatchChunk | None) -> tuple[list[tuple[Mapping[int, int], Position]], set[int]]:
        """All up to a chunk is confirmed: what that is, and the slots of it that were lost meanwhile."""
        member = self._reader.membership
        assert member is not None
        confirmed = self._plans.confirmed(chunk)
        lost = {slot for slots, after in confirmed for slot in member.confirm(slots, after)}
        if confirmed:
            self._reader.wake()
        return confirmed, lost

    def _commit(self, chunk: BatchChunk) -> Waits[None]:
        self._note_hand()
        confirmed, lost = self._confirm(chunk)
        member = self._reader.membership
        assert member is not None
        for slots, after in confirmed:
            # Never given up: the member tells what became of it, also when it leaves.
            lost |= set((yield self._sleeper.until_done(member.saved(slots, after), lambda: False)))
        member.check()
        if self._is_at_end and not self._has_unconfirmed():
            # Nothing is left to do here, and the others may wait.
            self._end()
            spawn_detached(self._reader.leave)
        if lost:
            raise AssignmentLostError(tuple(sorted(lost)))

    def _tell_news(self) -> Waits[None]:
        member = self._reader.membership
        calls = {
            ChangeKind.ASSIGNED: self._settings.on_assigned,
            ChangeKind.REVOKED: self._settings.on_revoked,
            ChangeKind.LOST: self._settings.on_lost,
        }
        while member is not None and (change := member.news()) is not None:
            call = calls[change.kind]
            if call is not None:
                yield _called(call, tuple(sorted(change.slots)))
            member.told(change)


def _called(call: OnSlots, slots: tuple[int, ...]) -> Wait[None]:
    def block() -> None:
        call(slots)

    async def awaitable() -> None:
        if inspect.isawaitable(answer := call(slots)):
            await answer

    return Wait(block, awaitable)


def _let_go(reader: GroupReader) -> None:
    reader.close()
    reader.leave()


class GroupStream(_GroupLoop[GroupBatch]):
    """Batches of what a member of a group has, for `async for`; made by `GroupStreamBuilder.open()`.

    Best within `async with`: leaving it leaves the group, and the others go on at once where this member has confirmed.
    A cancelled wait loses nothing. With `commit="auto"` asking for the next batch confirms the one before, which the
    member saves soon afterwards; with `commit="manual"` only `batch.commit()` does, and it has saved when it returns.
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

    def _new_batch(self, chunk: BatchChunk, slots: Mapping[int, int]) -> GroupBatch:
        return GroupBatch(chunk, slots, lambda chunk: run_async(self._commit(chunk)))

    async def lag(self) -> Lag | None:
        """How far this member is behind: the slot of it of which least was handed out; None: it has nothing now.

        `committed` is what is saved of all of its slots. Costs a listing, and a request for each snapshot in between
        that is not known yet.

        Raises:
            StoreError: The store failed.
        """
        lag: Lag | None = await asyncio.to_thread(self._measured_lag)
        return lag

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until `stop()` or `aclose()`: a pause of a handler that tries again."""
        await self._pause(seconds).awaitable()

    async def aclose(self) -> None:
        """End at once and leave the group; confirms nothing. Idempotent."""
        self._end()
        await asyncio.to_thread(self._leave)

    async def __aenter__(self) -> GroupStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> NoReturn:
        self._end()
        raise TypeError("open() is for `async with` and `async for`; without asyncio it is `with group.open_sync()`")

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` asks for it before it enters."""


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

    def _new_batch(self, chunk: BatchChunk, slots: Mapping[int, int]) -> BlockingGroupBatch:
        return BlockingGroupBatch(chunk, slots, lambda chunk: run(self._commit(chunk)))

    def lag(self) -> Lag | None:
        """As `GroupStream.lag`. Blocks; from any thread."""
        return self._measured_lag()

    def pause(self, seconds: float) -> None:
        """Block for so long, or until `stop()` or `close()`: a pause of a handler that tries again."""
        self._pause(seconds).block()

    def close(self) -> None:
        """End at once and leave the group; confirms nothing. Idempotent."""
        self._leave()

    def __enter__(self) -> BlockingGroupStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    async def __aenter__(self) -> NoReturn:
        self._end()
        raise TypeError("open_sync() is for `with` and `for`; with asyncio it is `async with group.open()`")

    async def __aexit__(self, *_: object) -> None:
        """Never reached; `async with` asks for it before it enters."""
