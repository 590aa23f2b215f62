"""`GroupStream` and `BlockingGroupStream`: the batches of a member of a group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from pypaimon.streaming.batches.batch import Batch, BatchRows, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.stream import AsyncStream, BlockingStream, StreamLoop
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.threads_to_asyncio import call_on_thread
from pypaimon.streaming.concurrency.waits import Wait, Waits, calling, run, run_async
from pypaimon.streaming.errors import AssignmentLostError, EndOfScan
from pypaimon.streaming.groups.assigned_slots import Assignment
from pypaimon.streaming.groups.group_reader import GroupReader, SlotChunk, UnconfirmedEnd
from pypaimon.streaming.groups.group_settings import GroupSettings
from pypaimon.streaming.groups.membership import AssignmentChangeKind, Membership
from pypaimon.streaming.html_tables import html_dataclass
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_BYTES, DEFAULT_READ_AHEAD_BYTES, CommitMode
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.spec.resolve import ResolvedStream

B = TypeVar("B")

# ---- batches ----


class _OfSlots(BatchRows):
    """What batches of a group know in addition."""

    def __init__(self, item: SlotChunk, commit: Callable[[], Any]) -> None:
        super().__init__(item.chunk, commit)
        self._tokens = item.slots

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


class GroupBatch(_OfSlots, Batch):
    """A batch of an asynchronous stream of a group: a `Batch` with the rows of some slots.

    `position` is where these slots continue. `commit` confirms everything that the stream has handed out up to this
    batch.
    """


class BlockingGroupBatch(_OfSlots, BlockingBatch):
    """As `GroupBatch`, of a blocking stream."""


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

    def up_to(self, chunk: BatchChunk | None) -> list[_DeliveredPlan]:
        """The plans that confirming a chunk confirms. `forget` them afterwards, which an interrupt may prevent.

        A plan is confirmed with its last chunk, and plans without rows with the plan before them; with None only those
        at the front are. A plan whose slots went to another member halfway is never confirmed: that member reads it
        from its beginning.
        """
        plans, count = list(self._plans), 0
        if chunk is not None and (whole := [number for number, each in enumerate(plans) if each.plan is chunk.plan]):
            count = whole[0] + chunk.last
        while count < len(plans) and plans[count].is_complete and not plans[count].has_rows:
            count += 1
        return plans[:count]

    def forget(self, plans: list[_DeliveredPlan]) -> None:
        for each in plans:
            if self._plans and self._plans[0] is each:
                self._plans.popleft()


# ---- streams ----


class _GroupLoop(StreamLoop[SlotChunk, B]):
    """What is special about the stream of a member: its slots, and how it confirms plans of them."""

    def __init__(self, reader: GroupReader, settings: GroupSettings, clock: Clock) -> None:
        super().__init__(reader, clock, abandon=partial(_close_and_leave, reader))
        self._reader = reader
        self._settings = settings
        self._plans = DeliveredPlans()
        self._is_at_end = False
        if settings.commit is CommitMode.MANUAL:
            # Not a method of this object, which the reader must not keep alive.
            plans = self._plans
            reader.has_unconfirmed = lambda: plans.has_complete

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group_id}, {self.assignment})"

    @property
    def assignment(self) -> Assignment | None:
        """What this member reads of the table now; None if it has no slots. No IO."""
        self._handover.refuse_elsewhere()
        member = self._reader.membership
        return None if member is None else member.assignment

    @property
    def position(self) -> Position | None:
        """Where the slot continues of which the caller has received least. No IO.

        Everything before it has reached the caller, of all slots that the member has now; `lag()` is the distance from
        it to the latest snapshot. Inside a plan it is the beginning of that plan. It is None while the member has no
        slots, and once the stream is closed. No restart needs it, because the group saves the progress of each slot.

        Raises:
            StreamConfigError: This process was forked after the stream was opened.
        """
        self._handover.refuse_elsewhere()
        offered = self._handover.offered
        return self._reader.position(None if offered is None else offered.chunk)

    def _ended(self) -> Wait[None]:
        return Wait(self._reader.leave, lambda: call_on_thread(self._reader.leave, "paimon-group-leave"))

    def _on_end(self, end: EndOfScan) -> Waits[None]:
        if isinstance(end, UnconfirmedEnd):
            self._is_at_end = True
            return
        self._end()
        yield self._ended()

    def _measured_lag(self) -> Lag | None:
        self._handover.refuse_elsewhere()
        self._lag = self._reader.lag()
        return self._lag

    def _chunk_of(self, item: SlotChunk) -> BatchChunk:
        return item.chunk

    def _offer(self, item: SlotChunk, chunk: BatchChunk) -> None:
        super()._offer(item, chunk)
        # Reading ahead continues while the caller handles the batch.
        self._reader.drop(item)

    def _pass_over(self, item: SlotChunk) -> Waits[None]:
        self._note_received(item)
        self._confirm(None)
        yield from ()

    def _notify(self) -> Waits[None]:
        member = self._reader.membership
        callbacks = {
            AssignmentChangeKind.ASSIGNED: self._settings.on_assigned,
            AssignmentChangeKind.REVOKED: self._settings.on_revoked,
            AssignmentChangeKind.LOST: self._settings.on_lost,
        }
        while member is not None and (change := member.pending_change()) is not None:
            callback = callbacks[change.kind]
            if callback is not None:
                yield calling(callback, tuple(sorted(change.slots)))
            member.change_handled(change)

    # ---- what is confirmed ----

    def _note_received(self, item: SlotChunk) -> None:
        self._plans.add(item.chunk, item.slots)
        super()._note_received(item)

    def _confirm_received(self, item: SlotChunk) -> Waits[None]:
        if self._settings.commit is CommitMode.AUTO:
            self._confirm(item.chunk)
        yield from ()

    def _confirm(self, chunk: BatchChunk | None) -> tuple[list[tuple[Mapping[int, int], Position]], set[int]]:
        """Confirm everything up to a chunk. Returns the plans, and the slots of them that were lost meanwhile."""
        member = self._reader.membership
        assert member is not None
        plans = self._plans.up_to(chunk)
        confirmed = [(each.slots, each.plan.position) for each in plans if each.is_complete]
        # Confirming twice is harmless, never confirming is not.
        lost = {slot for slots, after in confirmed for slot in member.confirm(slots, after)}
        self._plans.forget(plans)
        if confirmed:
            self._reader.wake()
        return confirmed, lost

    def _commit(self, chunk: BatchChunk) -> Waits[None]:
        item = self._handover.state.item
        if item is not None and not self._handover.has_item:
            self._note_received(item)
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


def _close_and_leave(reader: GroupReader) -> None:
    reader.close()
    reader.leave()


class GroupStream(_GroupLoop[GroupBatch], AsyncStream[SlotChunk, GroupBatch]):
    """The batches of a member of a group, for `async for`; made by `GroupStreamBuilder.open()`.

    Use it in `async with`: leaving the block leaves the group, for a session at most, and the others continue at once
    where this member has confirmed. A cancelled wait loses nothing. With `commit="auto"` asking for the next batch
    confirms the one before, and the member saves that soon afterwards; with `commit="manual"` only `batch.commit()`
    confirms, and has saved when it returns.
    """

    def _new_batch(self, item: SlotChunk) -> GroupBatch:
        chunk = item.chunk
        return GroupBatch(item, lambda: run_async(self._commit(chunk)))

    async def lag(self) -> Lag | None:
        """The lag of this member: that of the slot it has handed out least; None if it has no slots now.

        `committed` is saved of all its slots; `status.lag` holds the lag afterwards. Costs a listing, and a request for
        each snapshot in between that is not known yet.

        Raises:
            StoreError: The store failed.
        """
        lag: Lag | None = await call_on_thread(self._measured_lag, "paimon-group-lag")
        return lag


class BlockingGroupStream(_GroupLoop[BlockingGroupBatch], BlockingStream[SlotChunk, BlockingGroupBatch]):
    """As `GroupStream`, for a plain `for` and `with`; Ctrl-C interrupts it and loses nothing."""

    def _new_batch(self, item: SlotChunk) -> BlockingGroupBatch:
        chunk = item.chunk
        return BlockingGroupBatch(item, lambda: run(self._commit(chunk)))

    def lag(self) -> Lag | None:
        """As `GroupStream.lag`. Blocks; from any thread."""
        return self._measured_lag()


class GroupStreamBuilder:
    """Opens streams that share a table as the members of a group; made by `StreamReadBuilder.new_group`.

    Each `open` is a member. Filter, start and limits of the stream are the same for all members.
    """

    def __init__(self, stream: ResolvedStream, settings: GroupSettings) -> None:
        self._stream = stream
        self._settings = settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group_id}, {self._stream.table.name})"

    def _repr_html_(self) -> str:
        return html_dataclass(repr(self), self._settings)

    def open(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> GroupStream:
        """The rows of a new member's slots, for `async with` and `async for`. It joins with the first batch.

        Args:
            read_ahead_bytes: Reading ahead pauses while this many bytes of rows wait; one batch is always read.
            batch_bytes: A plan with more bytes of rows, or more than 64 record batches (a small file is one), comes as
                several batches.

        Raises:
            StreamConfigError: A size is invalid. With the first batch: the stream or its table does not allow a group,
                or the group has other settings.
            UnsupportedTableError: With the first batch: the table cannot be streamed, or not be divided.
        """
        clock = Clock()
        return GroupStream(self._reader(read_ahead_bytes, batch_bytes, clock), self._settings, clock)

    def open_sync(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> BlockingGroupStream:
        """As `open`, for a plain `with` and `for`."""
        clock = Clock()
        return BlockingGroupStream(self._reader(read_ahead_bytes, batch_bytes, clock), self._settings, clock)

    def _reader(self, read_ahead_bytes: int, batch_bytes: int, clock: Clock) -> GroupReader:
        size = at_least(1, "open: batch_bytes", batch_bytes)
        join = partial(Membership, self._stream, self._settings, size, clock)
        return GroupReader(join, at_least(0, "open: read_ahead_bytes", read_ahead_bytes), clock)
