"""`replicate`: keeps a target equal to a table; and what a target is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.copied_plans import CopiedPlans
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.apply_changes.saved_state import Source
from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.copied_stream import copied_stream
from pypaimon.streaming.errors import OtherColumnsError, StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_builder, a_function, a_target, finite_seconds
from pypaimon.streaming.options.stream_options import CommitMode

T = TypeVar("T")


class Target(Protocol):
    """What follows a stream: a class of your own with these two methods. docs/targets.md has one in 30 lines.

    It holds what the table held at one of its snapshots, after each plan whose last batch was applied.
    """

    def position(self) -> Position | None:
        """Where to go on: it holds what lies before. None: it holds nothing that counts, and wants the whole state."""

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch. One that begins a full state (`Batch.begins_state`) replaces all that the target holds.

        A target that outlives its program saves `batch.plan_after` as its position together with the rows, in one
        transaction, at the last batch of a plan (`Batch.is_last`). At the first one (`Batch.is_first`) it takes back
        what is left of a plan that did not come to its end, and passes over the plan if it holds it: `is_to_apply`.

        Args:
            batch: The next one of its stream, or the first one of a plan.
        """


def replicate(
    builder: StreamReadBuilder,
    target: Target,
    *,
    on_open: Callable[[BlockingBatchStream], object] | None = None,
    commit_interval_seconds: float | None = None,
) -> Position | None:
    """Bring a target up to a table, and keep it so: the state first, then every change, from where the target stands.

    It blocks, until the end that the builder has (`with_end(latest=True)`), else for ever. Whatever it is interrupted
    by, the next call goes on; exactly once where the target saves its position with its rows.

    Args:
        builder: How the table is read; it is not changed. With a consumer id, snapshots that the target needs are kept
            from expiring; what the consumer has saved does not count.
        target: A target of its own for each stream: a full state replaces all that it holds.
        on_open: Called with the stream once it is open, for other threads and signal handlers: `stop`, `status`, `lag`.
        commit_interval_seconds: Plans that are read faster than they are applied share a transaction of the target,
            which is committed at the latest with the plan that ends after this many seconds. None: each plan has a
            transaction of its own.

    Returns:
        Where the target stands.

    Raises:
        UnsupportedTableError: The changes of the table do not make its rows, such as those of a `sequence.field`
            without a complete changelog.
        StreamConfigError: The builder has a start without the state, a range, a view, or leaves out changes or the
            kinds of rows; or the target holds rows of another table, of another filter, shard or key, or that no target
            has written; or it has no transactions that plans could share.
        PositionExpiredError: What comes next has expired; `with_on_expired("full")` begins with the state again.
        PaimonStreamError: As the stream, or the target, says.
    """
    check_arguments("replicate", builder, target, on_open)
    commits = Commits.of("replicate", target, commit_interval_seconds)
    while not _follows(builder, target, on_open, commits):
        pass
    return target.position()


async def replicate_async(
    builder: StreamReadBuilder, target: Target, *, commit_interval_seconds: float | None = None
) -> Position | None:
    """As `replicate`, without holding up the event loop: the target works on another thread.

    If it is cancelled it waits for the batch that is being applied, so that the target is free again when it ends.
    """
    check_arguments("replicate_async", builder, target)
    commits = Commits.of("replicate_async", target, commit_interval_seconds)
    while not await _follows_async(builder, target, commits):
        pass
    return await _on_thread(target.position)


@dataclass(frozen=True, slots=True)
class Commits:
    """When the plans of a target are committed, and confirmed to a consumer.

    Attributes:
        plans: Those of the target; None: it applies each plan by itself.
        seconds: See `replicate`.
    """

    plans: PlanTransactions | None
    seconds: float

    @staticmethod
    def of(call: str, target: Target, seconds: float | None) -> Commits:
        """Those of a target.

        Raises:
            StreamConfigError: Its plans cannot share transactions, or the seconds are none.
        """
        if seconds is None:
            return Commits(None, 0.0)
        what = f"{call}: commit_interval_seconds"
        finite_seconds(what, seconds)
        plans = getattr(target, "_plans", None)
        if not isinstance(plans, PlanTransactions):
            raise StreamConfigError(
                f"{what}: {type(target).__name__} commits each plan by itself. Leave it out, or give a DuckDBTarget, "
                "SQLiteTarget, PostgresTarget, ParquetTarget, DeltaTarget or IcebergTarget."
            )
        return Commits(plans, seconds)

    def stream(self, builder: StreamReadBuilder, target: Target) -> StreamReadBuilder:
        """A builder of the stream that the target needs."""
        copied = copied_stream(builder, _position(builder, target))
        consumer = copied._given.consumer
        if self.plans is not None and consumer is not None:
            # The consumer must not pass what waits for its commit: what the target needs again might expire.
            copied._given = replace(copied._given, consumer=replace(consumer, commit=CommitMode.MANUAL))
        return copied

    def shared(self, stream: BlockingBatchStream | BatchStream) -> AbstractContextManager[None]:
        """Within, plans share transactions."""
        return nullcontext() if self.plans is None else self.plans.sharing(_Holding(stream, self.seconds).holds)

    def confirms(self, given: StreamReadBuilder, copied: StreamReadBuilder) -> bool:
        """Whether a batch is to be confirmed to a consumer, as all that was applied is committed.

        Args:
            given: The builder of the caller, which may leave that to the caller.
            copied: That of the stream.
        """
        if self.plans is None or self.plans.is_open or copied._given.consumer is None:
            return False
        consumer = given._given.consumer
        return consumer is None or consumer.commit is CommitMode.AUTO

    def flush(self) -> None:
        """Commit what waits."""
        if self.plans is not None:
            self.plans.flush()


class _Holding:
    """Holds a transaction open while the next rows are there already, for some seconds at most."""

    def __init__(self, stream: BlockingBatchStream | BatchStream, seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds
        self._since: float | None = None

    def holds(self) -> bool:
        """Whether the transaction waits for the next plan."""
        now = self._stream._clock.monotonic()
        since = self._since = now if self._since is None else self._since
        if not self._stream._has_next or now - since >= self._seconds:
            self._since = None
        return self._since is not None


def _follows(
    builder: StreamReadBuilder,
    target: Target,
    on_open: Callable[[BlockingBatchStream], object] | None,
    commits: Commits,
) -> bool:
    """Apply a stream up to its end; False: its columns are others now, and the target begins again with the state."""
    try:
        copied = commits.stream(builder, target)
        with copied.open_sync() as stream, commits.shared(stream):
            if on_open is not None:
                on_open(stream)
            for batch in stream:
                target.apply(batch)
                if commits.confirms(builder, copied):
                    batch.commit()
            commits.flush()
    except OtherColumnsError:
        if not _begins_again(target):
            raise
        return False
    return True


async def _follows_async(builder: StreamReadBuilder, target: Target, commits: Commits) -> bool:
    try:
        copied = await _on_thread(commits.stream, builder, target)
        async with copied.open() as stream:
            with commits.shared(stream):
                async for batch in stream:
                    await _on_thread(target.apply, batch)
                    if commits.confirms(builder, copied):
                        await batch.commit()
                await _on_thread(commits.flush)
    except OtherColumnsError:
        if not _begins_again(target):
            raise
        return False
    return True


def check_arguments(call: str, builder: Any, target: Any, on_open: Any = None) -> None:
    """Refuse what cannot be replicated.

    Raises:
        StreamConfigError: An argument is something else than its name says.
    """
    a_builder(f"{call}: builder", builder)
    a_target(f"{call}: target", target)
    if on_open is not None:
        a_function(f"{call}: on_open", on_open)


def _position(builder: StreamReadBuilder, target: Target) -> Position | None:
    """Where the target continues with what the builder reads; one of ours refuses what would not fit its rows."""
    position = target.position()
    plans = getattr(target, "_plans", None)
    if position is None or not isinstance(plans, PlanTransactions | CopiedPlans):
        return position
    return plans.position_for(Source.of_builder(builder))


def _begins_again(target: Target) -> bool:
    """Whether a target that could not follow the columns of its table may be filled again."""
    plans = getattr(target, "_plans", None)
    return isinstance(plans, PlanTransactions | CopiedPlans) and plans.begins_again


async def _on_thread(call: Callable[..., T], *arguments: Any) -> T:
    """The result of a call on another thread; a cancellation comes out after it has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise
