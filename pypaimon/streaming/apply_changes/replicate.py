"""`replicate`: keeps a target equal to a table; and what a target is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol, TypeVar

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.copy_loop import SharedCommits, copy_batches
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.apply_changes.saved_state import OtherColumnsError, Source
from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.copied_stream import copied_stream
from pypaimon.streaming.concurrency.waits import run, run_async
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_builder, a_function, a_target, finite_seconds

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
        commit_interval_seconds: Plans share a transaction of the target, which is committed at the latest with the plan
            that ends after this many seconds. A database commits earlier if no more rows are read yet, because its
            transaction holds locks; a PaimonTarget waits for them, because each commit is a snapshot. None: each plan
            has a transaction of its own.

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
    commits = shared_commits("replicate", target, commit_interval_seconds)
    while not _copy(builder, target, on_open, commits):
        pass
    return target.position()


async def replicate_async(
    builder: StreamReadBuilder, target: Target, *, commit_interval_seconds: float | None = None
) -> Position | None:
    """As `replicate`, without blocking the event loop: the target works on another thread.

    If it is cancelled it waits for the batch that is being applied, so that the target is free again when it ends.
    """
    check_arguments("replicate_async", builder, target)
    commits = shared_commits("replicate_async", target, commit_interval_seconds)
    while not await _copy_async(builder, target, commits):
        pass
    return await _on_thread(target.position)


def shared_commits(call: str, target: Target, seconds: float | None) -> SharedCommits | None:
    """How plans of a target share transactions; None: each plan is committed by itself.

    Raises:
        StreamConfigError: The target has no transactions that plans could share, or the seconds are invalid.
    """
    if seconds is None:
        return None
    plans = _plans_of(target)
    if plans is None:
        finite_seconds(f"{call}: commit_interval_seconds", seconds)
        raise StreamConfigError(
            f"{call}: commit_interval_seconds: {type(target).__name__} commits each plan by itself. Leave it out, or "
            "give a DuckDBTarget, SQLiteTarget, PostgresTarget, ParquetTarget, DeltaTarget, IcebergTarget or "
            "PaimonTarget."
        )
    return SharedCommits(call, plans, seconds)


def _copy(
    builder: StreamReadBuilder,
    target: Target,
    on_open: Callable[[BlockingBatchStream], object] | None,
    commits: SharedCommits | None,
) -> bool:
    """Copy a stream up to its end. False: the columns have changed, and the target starts again with the state."""
    try:
        with _stream_of(builder, target, commits).open_sync() as stream, _sharing(commits):
            if on_open is not None:
                on_open(stream)
            run(copy_batches(stream, target.apply, commits))
    except OtherColumnsError:
        if not _begins_again(target):
            raise
        return False
    return True


async def _copy_async(builder: StreamReadBuilder, target: Target, commits: SharedCommits | None) -> bool:
    try:
        copied = await _on_thread(_stream_of, builder, target, commits)
        async with copied.open() as stream:
            with _sharing(commits):
                await run_async(copy_batches(stream, target.apply, commits, _on_thread))
    except OtherColumnsError:
        if not _begins_again(target):
            raise
        return False
    return True


def _stream_of(builder: StreamReadBuilder, target: Target, commits: SharedCommits | None) -> StreamReadBuilder:
    """A builder of the stream that the target needs."""
    copied = copied_stream(builder, _position(builder, target))
    if commits is not None:
        commits.configure(builder, copied)
    return copied


def _sharing(commits: SharedCommits | None) -> AbstractContextManager[None]:
    return nullcontext() if commits is None else commits.sharing()


def check_arguments(call: str, builder: Any, target: Any, on_open: Any = None) -> None:
    """Refuse what cannot be replicated.

    Raises:
        StreamConfigError: An argument is something else than its name says.
    """
    a_builder(f"{call}: builder", builder)
    a_target(f"{call}: target", target)
    if on_open is not None:
        a_function(f"{call}: on_open", on_open)


def _plans_of(target: Target) -> PlanTransactions | None:
    """The transactions of one of our targets; None for a target of the user's own."""
    plans = getattr(target, "_plans", None)
    return plans if isinstance(plans, PlanTransactions) else None


def _position(builder: StreamReadBuilder, target: Target) -> Position | None:
    """Where the target continues with what the builder reads; one of ours refuses what would not fit its rows."""
    position, plans = target.position(), _plans_of(target)
    if position is None or plans is None:
        return position
    return plans.position_for(Source.of_builder(builder))


def _begins_again(target: Target) -> bool:
    """Whether a target that could not follow the columns of its table may be filled again."""
    plans = _plans_of(target)
    return plans is not None and plans.begins_again


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
