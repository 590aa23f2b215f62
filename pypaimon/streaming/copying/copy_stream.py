"""`copy_stream`: copies a stream into another Paimon table, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.concurrency.waits import run, run_async
from pypaimon.streaming.copying.copy_loop import SharedCommits, copy_batches, source_of
from pypaimon.streaming.errors import OtherColumnsError, StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import shown
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.copy_start import spec_for_copy
from pypaimon.streaming.spec.spec_builder import resolved, set_spec
from pypaimon.streaming.targets.paimon_target import PaimonRows
from pypaimon.streaming.targets.plan_transactions import PlanTransactions
from pypaimon.streaming.targets.transform import BatchTransform, Transform
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter, StreamWriter
from pypaimon.streaming.writing.table_writer import TableWriter


def copy_stream(
    source: StreamReadBuilder | BlockingBatchStream,
    writer: BlockingStreamWriter,
    *,
    replace: bool = False,
    commit_interval: float | timedelta | None = None,
    on_open: Callable[[BlockingBatchStream], object] | None = None,
    transform: Transform | None = None,
) -> Position | None:
    """Copy a stream into another Paimon table: the state first, then every change, with its row kind.

    The rows of a plan and the position of the source after it are one commit. So each run continues where the last one
    ended or died, with nothing lost and nothing twice, if its writer has the same commit user (`with_commit_user`). It
    ends where the source does (`with_end(latest=True)`), otherwise never.

    A full state, at the start and where `with_on_expired("full")` starts again, replaces all that the table holds, in
    one commit unless limits cut it.

    Args:
        source: How the source is read; it is opened where the table stands. Or an open stream, with settings of the
            caller's: plans that the table holds already are skipped, and a stream that begins after what the table
            holds is refused.
        writer: A writer of the other table, open, with no rows that wait in it. Nothing else uses it meanwhile.
        replace: The state of the source may replace rows that another stream, or another program, has written.
        commit_interval: Plans that arrive within this time are one commit. A state that replaces rows
            is a commit without the changes after it, because an overwrite has no changelog; a change of the source's
            schema begins another commit, and so does every plan of a table with `sequence.snapshot-ordering`. None:
            each plan is a commit.
        on_open: Called with the stream once a builder has opened it, for other threads and signal handlers.
        transform: As for `replicate`.

    Returns:
        Where the source continues.

    Raises:
        UnsupportedTableError: The changes of the source do not make its rows, such as those of a `sequence.field`
            without a complete changelog.
        StreamConfigError: The builder has a start without the state, a range, a view, or leaves out changes or the
            kinds of rows; it reads the table that is written; a table without a primary key is to take updates or
            deletes; the stream does not continue where the table stands; or an open stream saves its consumer by
            itself, which plans that share a commit do not allow.
        SchemaMismatchError: The source has columns that the table lacks or cannot hold.
        PositionExpiredError: What comes next has expired; `with_on_expired("full")` begins with the state again.
        PaimonStreamError: As the stream or the writer says. What was written of a plan is taken back.
    """
    if not isinstance(writer, BlockingStreamWriter):
        raise StreamConfigError(f"copy_stream: writer: expected an open BlockingStreamWriter, got {shown(writer)}")
    copy = _TableCopy("copy_stream", writer._opened, replace, commit_interval, transform)
    if isinstance(source, StreamReadBuilder):
        copy.plans.refuse_source(source.table)
        while not _copy_from_start(source, copy, on_open):
            pass
    else:
        _copy_batches(source, copy)
    return writer.position


def _copy_from_start(
    source: StreamReadBuilder, copy: _TableCopy, on_open: Callable[[BlockingBatchStream], object] | None
) -> bool:
    """Copy a stream up to its end. False: the columns have changed, and the copy starts again with the state."""
    try:
        with copy.stream_of(source).open_sync() as stream:
            if on_open is not None:
                on_open(stream)
            _copy_batches(stream, copy)
    except OtherColumnsError:
        if not copy.plans.begins_again:
            raise
        return False
    return True


def _copy_batches(stream: BlockingBatchStream, copy: _TableCopy) -> None:
    try:
        run(copy_batches(stream, copy.apply, copy.commits))
    finally:
        copy.plans.leave()


async def copy_stream_async(
    source: StreamReadBuilder | BatchStream,
    writer: StreamWriter,
    *,
    replace: bool = False,
    commit_interval: float | timedelta | None = None,
    transform: Transform | None = None,
) -> Position | None:
    """As `copy_stream`, for asyncio: the writer works on another thread."""
    if not isinstance(writer, StreamWriter):
        raise StreamConfigError(f"copy_stream_async: writer: expected an open StreamWriter, got {shown(writer)}")
    copy = _TableCopy("copy_stream_async", writer._opened, replace, commit_interval, transform)
    if isinstance(source, StreamReadBuilder):
        copy.plans.refuse_source(source.table)
        while not await _copy_from_start_async(source, writer, copy):
            pass
    else:
        await _copy_batches_async(source, writer, copy)
    return writer.position


async def _copy_from_start_async(source: StreamReadBuilder, writer: StreamWriter, copy: _TableCopy) -> bool:
    try:
        async with (await asyncio.to_thread(copy.stream_of, source)).open() as stream:
            await _copy_batches_async(stream, writer, copy)
    except OtherColumnsError:
        if not copy.plans.begins_again:
            raise
        return False
    return True


async def _copy_batches_async(stream: BatchStream, writer: StreamWriter, copy: _TableCopy) -> None:
    try:
        await run_async(copy_batches(stream, copy.apply, copy.commits, writer._call))
    finally:
        # If the loop was cancelled, a call may still be under way; closing the writer waits for it.
        if writer._is_free:
            await writer._call(copy.plans.leave)


class _TableCopy:
    def __init__(
        self,
        call: str,
        writer: TableWriter,
        replace: bool,
        interval: float | timedelta | None,
        transform: Transform | None,
    ) -> None:
        if writer.has_pending:
            raise StreamConfigError("rows wait in the writer: commit() or abort() before a stream is copied by it")
        self.plans = PlanTransactions(PaimonRows(writer.table, lambda: writer), replace)
        self.plans.shares_commits = interval is not None
        self._changes = BatchTransform(call, transform, replaces=replace)
        self.apply = self._changes.apply_to(self.plans.apply)
        self.commits = None if interval is None else SharedCommits(call, self.plans, interval)

    def stream_of(self, source: StreamReadBuilder) -> StreamReadBuilder:
        stream = resolved(source)
        spec = spec_for_copy(stream, self.plans.position_for(self._changes.of_source(source_of(stream))))
        return set_spec(source.copy(), spec if self.commits is None else self.commits.spec_of(stream.spec, spec))
