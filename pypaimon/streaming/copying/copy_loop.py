"""The loop of a copy: it applies each batch of a stream, and commits plans that arrive together in one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.waits import Wait, Waits
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import finite_seconds
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.reading.read import fields_of
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.spec.stream_spec import StreamSpec
from pypaimon.streaming.targets.changes import AnyBatch
from pypaimon.streaming.targets.plan_transactions import PlanTransactions
from pypaimon.streaming.targets.target_state import SourceTable

AnyStream = BatchStream | BlockingBatchStream
OnThread = Callable[..., Awaitable[Any]]

_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 1.0
_POLL_SECONDS = 0.05


class SharedCommits:
    """Decides when plans that share a transaction are committed, and confirmed to a consumer.

    Args:
        interval: A transaction is committed after this time (seconds, or a timedelta), at the end of a plan.
    """

    def __init__(self, call: str, plans: PlanTransactions, interval: float | timedelta) -> None:
        self._call = call
        self._plans = plans
        self._seconds = finite_seconds(f"{call}: commit_interval", interval)
        self._first: AnyBatch | None = None
        self._since = 0.0
        self._confirms = False

    def spec_of(self, given: StreamSpec, copied: StreamSpec) -> StreamSpec:
        """The spec of a copy's stream that leaves its consumer to this object."""
        consumer = copied.consumer
        if consumer is None:
            return copied
        self._confirms = given.consumer is None or given.consumer.commit is CommitMode.AUTO
        # A consumer that passes uncommitted plans would let the snapshots expire that the target needs after a crash.
        return replace(copied, consumer=replace(consumer, commit=CommitMode.MANUAL))

    def check(self, stream: AnyStream) -> None:
        """Refuse a stream whose consumer passes plans that are not committed. Known with the first batch."""
        if stream._driver.commit_mode is CommitMode.AUTO:
            raise StreamConfigError(
                f"{self._call}: commit_interval: the consumer of the open stream would be saved before the "
                "rows are committed. Give the builder instead of a stream, or open the stream with "
                'with_consumer_id(..., commit="manual").'
            )

    def is_due(self, stream: AnyStream) -> Waits[bool]:
        """Whether to commit now, after a batch was applied. Waits for the next plan if the table allows it."""
        if not self._plans.is_whole:
            return False
        clock = stream._clock
        if self._plans.first is not self._first:
            self._first, self._since = self._plans.first, clock.monotonic()
        due = self._since + self._seconds
        if self._plans.waits:
            yield from _until_next(stream, due)
        return not stream._has_next or clock.monotonic() >= due

    def flush(self) -> None:
        self._plans.flush()
        self._first = None

    @property
    def confirms_now(self) -> bool:
        """Whether to confirm the last batch: the target has committed all that it was given."""
        return self._confirms and not self._plans.is_open

    def take_back(self) -> None:
        """Take back what is not committed. Blocks, because a Paimon table deletes files."""
        self._plans.take_back()

    @contextmanager
    def sharing(self) -> Iterator[None]:
        with self._plans.sharing():
            yield


def copy_batches(
    stream: AnyStream,
    apply: Callable[[Any], None],
    commits: SharedCommits | None,
    on_thread: OnThread | None = None,
    make_table: Callable[[], None] | None = None,
) -> Waits[None]:
    """Apply every batch of a stream, in order, until its end.

    Args:
        commits: Of plans that share transactions; None: each plan is committed as it is applied.
        on_thread: Awaits a blocking call. None: the stream blocks, and so may the calls.
        make_table: Called if the source turns out to have no rows yet.
    """

    def call(function: Callable[..., None], *arguments: Any) -> Wait[None]:
        return Wait(lambda: function(*arguments), lambda: on_thread(function, *arguments))  # type: ignore[misc]

    batch = (yield _next(stream)) if make_table is None else (yield from _first(stream, call(make_table)))
    while batch is not None:
        if commits is not None:
            commits.check(stream)
        yield call(apply, batch)
        if commits is not None:
            if (yield from commits.is_due(stream)):
                yield call(commits.flush)
            if commits.confirms_now:
                yield Wait(batch.commit, batch.commit)
        batch = yield _next(stream)
    if commits is not None:
        # A stream may be stopped while it has rows of a next plan, for which `is_due` waited.
        yield call(commits.flush)


def source_of(stream: ResolvedStream) -> SourceTable:
    return SourceTable(stream.identity, stream.schema, stream.scope, bool(stream.schema.primary_keys))


def empty_state(builder: StreamReadBuilder) -> BlockingBatch:
    """The state of a table without rows, as a stream of the builder would have it. Blocks."""
    stream = resolved(builder)
    position, schema = Position(stream.identity, 0), stream.schema
    plan = Plan((), 0, kind=PlanKind.FULL, position=position, schema=schema, commit_time_millis=0)
    read, scope = builder.new_read(), Lazy.of(stream.scope)
    rows, fields = read.schema.empty_table(), Lazy.of(fields_of(read, plan))
    return BlockingBatch(BatchChunk(plan, None, rows, True, True, True, scope, fields=fields), lambda: None)


def _first(stream: Any, make_table: Wait[None]) -> Waits[Any]:
    """The first batch. The table of the target is made if the stream ends before it, or a poll finds no rows."""
    is_idle = False
    while not is_idle:
        # Asked before the queue of batches, because the poll comes after the state.
        is_idle = stream.status.scan.idle_polls > 0
        wait = 0.0 if is_idle else _FIRST_WAIT_SECONDS
        try:
            batch = yield Wait(lambda: stream.poll(wait), lambda: stream.poll(wait))  # noqa: B023
        except EndOfScan:
            if not stream.is_stopping:
                yield make_table
            return None
        if batch is not None:
            return batch
    yield make_table
    return (yield _next(stream))


def _next(stream: Any) -> Wait[Any]:
    return Wait(lambda: next(stream, None), lambda: anext(stream, None))


def _until_next(stream: AnyStream, due: float) -> Waits[None]:
    ahead, clock, sleeper = stream._ahead, stream._clock, stream._sleeper

    def is_over() -> bool:
        return stream.is_stopping or not ahead.is_idle()

    while not is_over() and (now := clock.monotonic()) < due:
        ready = ahead.ready()
        # A plan without rows counts as ready, and only the next batch takes it away.
        pause = _POLL_SECONDS if ready.done() else _LONGEST_WAIT_SECONDS
        if not ready.done():
            ready.add_done_callback(lambda _: sleeper.wake())
        yield sleeper.until_due(min(due, now + pause), is_over)
