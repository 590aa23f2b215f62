"""`copy_stream`: a stream into another Paimon table, exactly once."""

from __future__ import annotations

import asyncio

from pypaimon.streaming.apply_changes.copied_plans import CopiedPlans
from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.copied_stream import copied_stream, refuse_itself
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter, StreamWriter


async def copy_stream(source: StreamReadBuilder | BatchStream, writer: StreamWriter) -> Position | None:
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

    Returns:
        Where the source goes on.

    Raises:
        UnsupportedTableError: The changes of the source do not make its rows, such as those of a `sequence.field`
            without a complete changelog.
        StreamConfigError: The builder has a start without the state, a range, a view, or leaves out changes or the
            kinds of rows; it reads the table that is written; a table without a primary key is to take updates or
            deletes; the stream does not go on where the table stands.
        SchemaMismatchError: The source has columns that the table lacks or cannot hold.
        PositionExpiredError: What comes next has expired; `with_on_expired("full")` begins with the state again.
        PaimonStreamError: As the stream or the writer says. What was written of a plan is taken back.
    """
    if isinstance(source, StreamReadBuilder):
        refuse_itself(source.table, writer._opened.table)
        copied = await asyncio.to_thread(copied_stream, source, writer.position)
        async with copied.open() as stream:
            return await copy_stream(stream, writer)
    plans = CopiedPlans(writer._opened)
    try:
        async for batch in source:
            await writer._call(plans.apply, batch)
    finally:
        # Where the loop was left it is not known whether the writer is at a call: closing it waits for that.
        if writer._is_free:
            await writer._call(plans.leave)
    return writer.position


def copy_stream_sync(source: StreamReadBuilder | BlockingBatchStream, writer: BlockingStreamWriter) -> Position | None:
    """As `copy_stream`, blocking."""
    if isinstance(source, StreamReadBuilder):
        refuse_itself(source.table, writer._opened.table)
        with copied_stream(source, writer.position).open_sync() as stream:
            return copy_stream_sync(stream, writer)
    plans = CopiedPlans(writer._opened)
    try:
        for batch in source:
            plans.apply(batch)
    finally:
        plans.leave()
    return writer.position
