"""Openers of the rows of a stream: its scan, and the reader of its plans."""

from __future__ import annotations

from collections.abc import Callable

from pypaimon.streaming.batches.chunks import ChunkReader
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.model.plan import Plan, StreamSplit
from pypaimon.streaming.options.arguments import at_least, typed
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.spec.read import new_read
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.scan import AsyncStreamingTableScan, new_scan

OpenedChunks = tuple[AsyncStreamingTableScan, ScanDriver, ChunkReader]
"""A scan, its driver, and the reader of its rows."""


def open_ahead(
    stream: ResolvedStream, read_ahead_bytes: int, batch_bytes: int, commit_columns: bool
) -> tuple[AsyncStreamingTableScan, ScanDriver, ReadAhead]:
    """A scan, its driver, and its prefetched rows; see `StreamReadBuilder.open`.

    Raises:
        StreamConfigError: Invalid argument, or settings or table options contradict each other.
        UnsupportedTableError: The table, or one of its options, cannot be streamed.
    """
    ahead = at_least(0, "open: read_ahead_bytes", read_ahead_bytes)
    scan, driver, reader = open_chunks(stream, batch_bytes, commit_columns)
    return scan, driver, ReadAhead(reader, ahead)


def open_chunks(
    stream: ResolvedStream,
    batch_bytes: int,
    commit_columns: bool = False,
    splits_of: Callable[[Plan], list[StreamSplit]] = Plan.splits,
) -> OpenedChunks:
    """As `open_ahead`, with rows that the caller reads; `splits_of` chooses the splits of a plan."""
    size = at_least(1, "open: batch_bytes", batch_bytes)
    # Plans are requested ahead of the caller, so requesting one confirms nothing.
    driver = stream.scan_driver(CommitMode.MANUAL)
    with_commits = typed(bool, "open: commit_columns", commit_columns)
    timeout, scope = stream.spec.io_timeout, Lazy(lambda: stream.scope)
    reader = ChunkReader(driver, new_read(stream), size, timeout, with_commits, splits_of, scope)
    return new_scan(stream, driver), driver, reader
