"""`replicate` keeps a target equal to a table; `Replication` does so as a service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.batches.run_forever import backoff_of
from pypaimon.streaming.batches.stream import StreamStatus
from pypaimon.streaming.concurrency.clock import Sleeper
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.concurrency.threads_to_asyncio import finish_on_thread
from pypaimon.streaming.concurrency.waits import run, run_async
from pypaimon.streaming.copying.copy_loop import SharedCommits, copy_batches, empty_state, source_of
from pypaimon.streaming.errors import OtherColumnsError, PaimonStreamError, StreamConfigError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_builder, a_function, a_target, finite_seconds
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.spec.copy_start import spec_for_copy
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import resolved, set_spec
from pypaimon.streaming.targets.plan_transactions import PlanTransactions
from pypaimon.streaming.targets.target import Target
from pypaimon.streaming.targets.transform import BatchTransform, Transform


def replicate(
    builder: StreamReadBuilder,
    target: Target,
    *,
    on_open: Callable[[BlockingBatchStream], object] | None = None,
    commit_interval: float | timedelta | None = None,
    transform: Transform | None = None,
) -> Position | None:
    """Copy a table to a target, and follow it: the state first, then every change, from where the target stands.

    Blocks until the end of the builder (`with_end(latest=True)`), otherwise for ever. After any interruption the next
    call continues, exactly once if the target saves its position with its rows.

    Args:
        builder: How the table is read; it is not changed. A consumer id keeps snapshots that the target needs from
            expiring; its saved progress is ignored.
        target: A target of its own for each stream: a full state replaces all that it holds.
        on_open: Called with the stream once it is open, for other threads and signal handlers: `stop`, `status`, `lag`.
        commit_interval: Plans share a transaction of the target, which is committed at the latest with the plan
            that ends after this many seconds. Every target but a PaimonTarget commits earlier if no more rows are read
            yet, because its transaction holds locks; a PaimonTarget waits for them, because each commit is a snapshot.
            None: each plan has a transaction of its own.
        transform: Changes each batch before the target gets it: a mapping of new column names by old ones, a
            function from an Arrow table to an Arrow table, `SoftDeletes()` or `RowVersions()` of
            `pypaimon.streaming.targets`, or a list of these. See docs/targets.md#transforms.

    Returns:
        Where the target stands.

    Raises:
        UnsupportedTableError: The changes of the table do not make its rows, such as those of a `sequence.field`
            without a complete changelog.
        StreamConfigError: The builder has a start without the state, a range, a view, or leaves out changes or the
            kinds of rows; the target holds rows of another table, of another filter, shard or key, or rows that no
            target has written; `commit_interval` is given for a target without transactions; or `transform` drops or
            changes a key, the kinds of rows or, with a key, their number.
        PositionExpiredError: What comes next has expired; `with_on_expired("full")` begins with the state again.
        PaimonStreamError: As the stream, or the target, says.
    """
    check_arguments("replicate", builder, target, on_open)
    commits = shared_commits("replicate", target, commit_interval)
    changes = _changes("replicate", target, transform)
    while not _copy(builder, target, on_open, commits, changes):
        pass
    return target.load_position()


async def replicate_async(
    builder: StreamReadBuilder,
    target: Target,
    *,
    commit_interval: float | timedelta | None = None,
    transform: Transform | None = None,
) -> Position | None:
    """As `replicate`, without blocking the event loop: the target and the transform work on another thread.

    If it is cancelled it waits for the batch that is being applied, so that the target is free again when it ends.
    """
    check_arguments("replicate_async", builder, target)
    commits = shared_commits("replicate_async", target, commit_interval)
    changes = _changes("replicate_async", target, transform)
    while not await _copy_async(builder, target, commits, changes):
        pass
    return await finish_on_thread(target.load_position)


def shared_commits(call: str, target: Target, interval: float | timedelta | None) -> SharedCommits | None:
    """How plans of a target share transactions; None: each plan is committed by itself."""
    if interval is None:
        return None
    plans = _plans_of(target)
    if plans is None:
        finite_seconds(f"{call}: commit_interval", interval)
        raise StreamConfigError(
            f"{call}: commit_interval: {type(target).__name__} commits each plan by itself. Leave it out, or "
            "give a target with transactions, such as DuckDBTarget or PaimonTarget."
        )
    return SharedCommits(call, plans, interval)


def _changes(call: str, target: Target, transform: Transform | None) -> BatchTransform:
    plans = _plans_of(target)
    return BatchTransform(call, transform, replaces=plans is not None and plans.may_replace)


def _copy(
    builder: StreamReadBuilder,
    target: Target,
    on_open: Callable[[BlockingBatchStream], object] | None,
    commits: SharedCommits | None,
    changes: BatchTransform,
) -> bool:
    """Copy a stream up to its end. False: the columns have changed, and the target starts again with the state."""
    try:
        with _stream_of(builder, target, commits, changes).open_sync() as stream, _sharing(commits):
            if on_open is not None:
                on_open(stream)
            run(copy_batches(stream, _apply(target, changes), commits, None, _make_table(builder, target, changes)))
    except OtherColumnsError:
        if not _begins_again(target):
            raise
        return False
    return True


async def _copy_async(
    builder: StreamReadBuilder, target: Target, commits: SharedCommits | None, changes: BatchTransform
) -> bool:
    try:
        copied = await finish_on_thread(_stream_of, builder, target, commits, changes)
        async with copied.open() as stream:
            with _sharing(commits):
                try:
                    apply, make_table = _apply(target, changes), _make_table(builder, target, changes)
                    await run_async(copy_batches(stream, apply, commits, finish_on_thread, make_table))
                finally:
                    if commits is not None:
                        await finish_on_thread(commits.take_back)
    except OtherColumnsError:
        if not _begins_again(target):
            raise
        return False
    return True


def _stream_of(
    builder: StreamReadBuilder, target: Target, commits: SharedCommits | None, changes: BatchTransform
) -> StreamReadBuilder:
    stream = resolved(builder)
    spec = spec_for_copy(stream, _position(stream, target, changes))
    return set_spec(builder.copy(), spec if commits is None else commits.spec_of(stream.spec, spec))


def _apply(target: Target, changes: BatchTransform) -> Callable[[Any], None]:
    plans = _plans_of(target)
    return changes.apply_to(target.apply) if plans is None else changes.apply_to(target.apply, plans.take_back)


def _make_table(builder: StreamReadBuilder, target: Target, changes: BatchTransform) -> Callable[[], None] | None:
    """What makes the table of a target that holds nothing of the source; None: such a target makes none."""
    plans = _plans_of(target)
    return None if plans is None else lambda: plans.make_table(lambda: changes.of(empty_state(builder)))


def _sharing(commits: SharedCommits | None) -> AbstractContextManager[None]:
    return nullcontext() if commits is None else commits.sharing()


def check_arguments(call: str, builder: Any, target: Any, on_open: Any = None) -> None:
    a_builder(f"{call}: builder", builder)
    a_target(f"{call}: target", target)
    if (plans := _plans_of(target)) is not None:
        plans.refuse_source(builder.table)
    if on_open is not None:
        a_function(f"{call}: on_open", on_open)


def _plans_of(target: Target) -> PlanTransactions | None:
    plans = getattr(target, "_plans", None)
    return plans if isinstance(plans, PlanTransactions) else None


def _position(stream: ResolvedStream, target: Target, changes: BatchTransform) -> Position | None:
    # A target of the user's own says only where it stands; ours also know which rows they hold.
    position, plans = target.load_position(), _plans_of(target)
    if position is None or plans is None:
        return position
    return plans.position_for(changes.of_source(source_of(stream)))


def _begins_again(target: Target) -> bool:
    plans = _plans_of(target)
    return plans is not None and plans.begins_again


_LOG = StreamLog(__name__)


class Replication:
    """Keeps a target equal to a table as long as a service runs. All calls but `run` are for any thread.

    Args:
        builder: As for `replicate`.
        target: As for `replicate`.
        first_pause: The pause after the first failure; half of it is random.
        longest_pause: Pauses double up to this one.
        commit_interval: As for `replicate`.
        transform: As for `replicate`.

    Raises:
        StreamConfigError: An argument is invalid.
    """

    def __init__(
        self,
        builder: StreamReadBuilder,
        target: Target,
        *,
        first_pause: float | timedelta = 1.0,
        longest_pause: float | timedelta = 60.0,
        commit_interval: float | timedelta | None = None,
        transform: Transform | None = None,
    ) -> None:
        check_arguments("Replication", builder, target)
        shared_commits("Replication", target, commit_interval)
        _changes("Replication", target, transform)
        self._builder = builder
        self._target = target
        self._backoff = backoff_of(5, first_pause, longest_pause)
        self._commit_interval = commit_interval
        self._transform = transform
        self._sleeper = Sleeper(resolved(builder).clock)
        self._stream: BlockingBatchStream | None = None
        self._stopping = False

    def run(self) -> None:
        """Run `replicate` until the end of the builder or `stop()`. Blocks.

        Retriable errors of the store and of the target, such as a lock, do not end it: after a pause another stream
        continues where the target stands. SIGTERM calls `stop()`, unless the program has a handler of its own. An
        outage logs one WARNING a minute (event `waits_out`).

        Raises:
            PaimonStreamError: As `replicate`, if the error is not retriable.
        """
        attempt = 0
        with on_sigterm(self.stop):
            while not self._stopping:
                self._stream = None
                try:
                    replicate(
                        self._builder,
                        self._target,
                        on_open=self._opened,
                        commit_interval=self._commit_interval,
                        transform=self._transform,
                    )
                    return
                except PaimonStreamError as error:
                    if not error.retriable:
                        raise
                    if self._stream is not None and self._stream.status.batches:
                        attempt = 0
                    attempt += 1
                    text = "a replication failed (attempt %(attempt)d) and continues after a pause: %(error)s"
                    _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=str(error))
                self._sleeper.pause(self._backoff.pause(attempt), lambda: self._stopping)

    def stop(self) -> None:
        """End after the current plan. For any thread and for signal handlers."""
        self._stopping = True
        stream = self._stream
        if stream is not None:
            stream.stop()
        self._sleeper.wake()

    @property
    def status(self) -> StreamStatus | None:
        """The status of the current stream, or None before the first one. No IO."""
        stream = self._stream
        return None if stream is None else stream.status

    def lag(self) -> Lag | None:
        """The lag of the target, or None before the first stream. Costs what `scan.lag()` costs."""
        stream = self._stream
        return None if stream is None else stream.lag()

    def _opened(self, stream: BlockingBatchStream) -> None:
        self._stream = stream
        if self._stopping:
            stream.stop()
