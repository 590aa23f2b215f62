"""`copy_stream`: a stream into another Paimon table, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pypaimon.streaming.apply_changes.copied_plans import CopiedPlans
from pypaimon.streaming.apply_changes.saved_state import Source
from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.copied_stream import copied_stream, refuse_itself
from pypaimon.streaming.errors import OtherColumnsError, StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import shown
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter, StreamWriter


async def copy_stream(
    source: StreamReadBuilder | BatchStream, writer: StreamWriter, *, replace: bool = False
) -> Position | None:
    """Copy a stream into another Paimon table: the state first, then every change, with its row kind.

    The rows of a plan and the position of the source behind it are one commit. So each run goes on where the last one
    ended, or died, with nothing lost and nothing twice, if its writer has the same commit user (`with_commit_user`).
    It ends where the source does (`with_end(latest=True)`), else never.

    A full state, at the start and where `with_on_expired("full")` begins anew, takes the place of all that the table
    holds, in one commit unless limits cut it.

    Args:
        source: How the source is read; it is opened where the table stands. Or a stream that is open, with settings
            of the caller's: plans that the table holds already are passed over, and one that begins after what the
            table holds is refused.
        writer: Of the other table, open, with nothing that waits in it. Nobody else uses it meanwhile.
        replace: The state of the source may replace rows that another stream, or somebody else, has written.

    Returns:
        Where the source goes on.

    Raises:
        UnsupportedTableError: The changes of the source do not make its rows, such as those of a `sequence.field`
            without a complete changelog.
        StreamConfigError: The builder has a start without the state, a range, a view, or leaves out changes or the
            kinds of rows; it reads the table that is written; a table without a primary key is to take updates or
            deletes; the stream does not continue where the table stands.
        SchemaMismatchError: The source has columns that the table lacks or cannot hold.
        PositionExpiredError: What comes next has expired; `with_on_expired("full")` begins with the state again.
        PaimonStreamError: As the stream or the writer says. What was written of a plan is taken back.
    """
    if not isinstance(writer, StreamWriter):
        raise StreamConfigError(f"copy_stream: writer: expected an open StreamWriter, got {shown(writer)}")
    plans = CopiedPlans(writer._opened, replace=replace)
    if not isinstance(source, StreamReadBuilder):
        await _copied(source, writer, plans)
        return writer.position
    refuse_itself(source.table, writer._opened.table)
    while not await _follows(source, writer, plans):
        pass
    return writer.position


async def _follows(source: StreamReadBuilder, writer: StreamWriter, plans: CopiedPlans) -> bool:
    """Copy a stream up to its end; False: its columns are others now, and the copy begins again with the state."""
    try:
        copied = await asyncio.to_thread(lambda: copied_stream(source, plans.position_for(Source.of_builder(source))))
        async with copied.open() as stream:
            await _copied(stream, writer, plans)
    except OtherColumnsError:
        if not plans.begins_again:
            raise
        return False
    return True


async def _copied(stream: BatchStream, writer: StreamWriter, plans: CopiedPlans) -> None:
    try:
        async for batch in stream:
            await writer._call(plans.apply, batch)
    finally:
        # Where the loop was left it is not known whether the writer is at a call: closing it waits for that.
        if writer._is_free:
            await writer._call(plans.leave)


def copy_stream_sync(
    source: StreamReadBuilder | BlockingBatchStream,
    writer: BlockingStreamWriter,
    *,
    replace: bool = False,
    on_open: Callable[[BlockingBatchStream], object] | None = None,
) -> Position | None:
    """As `copy_stream`, blocking.

    Args:
        source: See there.
        writer: See there.
        replace: See there.
        on_open: Called with the stream once a builder has opened it, for other threads and signal handlers.
    """
    if not isinstance(writer, BlockingStreamWriter):
        raise StreamConfigError(f"copy_stream_sync: writer: expected an open BlockingStreamWriter, got {shown(writer)}")
    plans = CopiedPlans(writer._opened, replace=replace)
    if not isinstance(source, StreamReadBuilder):
        _copied_sync(source, plans)
        return writer.position
    refuse_itself(source.table, writer._opened.table)
    while not _follows_sync(source, plans, on_open):
        pass
    return writer.position


def _follows_sync(
    source: StreamReadBuilder, plans: CopiedPlans, on_open: Callable[[BlockingBatchStream], object] | None
) -> bool:
    try:
        with copied_stream(source, plans.position_for(Source.of_builder(source))).open_sync() as stream:
            if on_open is not None:
                on_open(stream)
            _copied_sync(stream, plans)
    except OtherColumnsError:
        if not plans.begins_again:
            raise
        return False
    return True


def _copied_sync(stream: BlockingBatchStream, plans: CopiedPlans) -> None:
    try:
        for batch in stream:
            plans.apply(batch)
    finally:
        plans.leave()
