"""Openers of a stream: its scan, and the rows of its plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pypaimon.streaming.batches.chunks import ChunkReader
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.plan import Plan, StreamSplit
from pypaimon.streaming.options.arguments import at_least, typed
from pypaimon.streaming.options.stream_options import DEFAULT_POLL_INTERVAL_MS, CommitMode
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import PaimonFollowUpScanner
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.scan import StreamScan
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import SpecBuilder, resolved
from pypaimon.streaming.spec.streamed_table import StreamedTable

if TYPE_CHECKING:
    import pypaimon.streaming.paimon.filter_internals as filter_internals
else:
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")


class AsyncStreamingTableScan(StreamScan):
    """The plans of a table, one after the other.

    Made by `StreamReadBuilder.new_streaming_scan()`, or with pypaimon's arguments below, where the table's options
    decide every other setting. Each plan is delivered at least once over restarts by consumer, and exactly once over
    restarts by `Position`. Within one scan nothing is repeated or left out, regardless of errors, cancellations or
    seeks between plans. One call drives it at a time (`stream`, `stream_sync`, `plan`). `stop`, `commit`, `checkpoint`,
    `lag` and `metrics` may be called from any thread, but not in a forked process.

    Requests: one per poll that finds nothing. A new snapshot costs one for itself, its manifest list, each of its
    manifests, and the snapshot before. Making a scan makes the requests of making a builder.

    Args:
        table: pypaimon's table.
        predicate: As `with_filter`.
        poll_interval_ms: As `with_poll_interval_ms`; with the default 1000 the table's options decide.
        follow_up_scanner: As `with_follow_up_scanner`; None: the table's own rule.
        bucket_filter: As `with_bucket_filter`.
        prefetch_enabled: False: as `with_prefetch(0)`.
        diff_threshold: As `with_catch_up("auto", after=...)`; 0 is as 1.
        consumer_id: As `with_consumer_id`.
        shard_index: With `shard_count` as `with_shard`.
        shard_count: With `shard_index` as `with_shard`.

    Raises:
        StreamConfigError: Arguments or table options contradict each other.
        UnsupportedTableError: The table, or one of its options, cannot be streamed.
        TableChangedError: The table is gone.
    """

    def __init__(
        self,
        table: ReadableTable,
        predicate: filter_internals.Predicate | pc.Expression | str | None = None,
        poll_interval_ms: int = DEFAULT_POLL_INTERVAL_MS,
        follow_up_scanner: PaimonFollowUpScanner | None = None,
        bucket_filter: Callable[[int], bool] | None = None,
        prefetch_enabled: bool = True,
        diff_threshold: int = 10,
        consumer_id: str | None = None,
        shard_index: int | None = None,
        shard_count: int | None = None,
    ) -> None:
        builder = SpecBuilder(StreamedTable.of(table))
        builder.with_filter(predicate).with_follow_up_scanner(follow_up_scanner)
        if poll_interval_ms != DEFAULT_POLL_INTERVAL_MS:
            builder.with_poll_interval_ms(poll_interval_ms)
        if bucket_filter is not None:
            builder.with_bucket_filter(bucket_filter)
        if not prefetch_enabled:
            builder.with_prefetch(0)
        if follow_up_scanner is None:
            builder.with_catch_up("auto", after=at_least(0, "diff_threshold", diff_threshold) or 1)
        if consumer_id is not None:
            builder.with_consumer_id(consumer_id)
        if (shard_index is None) != (shard_count is None):
            raise StreamConfigError(
                f"shard_index={shard_index!r}, shard_count={shard_count!r}: give both, or neither for the whole table"
            )
        if shard_index is not None and shard_count is not None:
            builder.with_shard(shard_index, shard_count)
        super().__init__(table, resolved(builder).scan_driver())


def new_scan(stream: ResolvedStream, driver: ScanDriver | None = None) -> AsyncStreamingTableScan:
    """A scan of a stream, with a driver of it that was made before, if given."""
    scan = AsyncStreamingTableScan.__new__(AsyncStreamingTableScan)
    StreamScan.__init__(scan, stream.table.handle, driver or stream.scan_driver())
    return scan


OpenedChunks = tuple[AsyncStreamingTableScan, ScanDriver, ChunkReader]
"""A scan, its driver, and the reader of its rows."""


def open_ahead(
    stream: ResolvedStream, read_ahead_bytes: int, batch_bytes: int, commit_columns: bool
) -> tuple[AsyncStreamingTableScan, ScanDriver, ReadAhead]:
    """A scan, its driver, and its prefetched rows; see `StreamReadBuilder.open`."""
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
    from pypaimon.streaming.spec.table_read import new_read

    size = at_least(1, "open: batch_bytes", batch_bytes)
    # Plans are requested ahead of the caller, so requesting one confirms nothing.
    driver = stream.scan_driver(CommitMode.MANUAL)
    with_commits = typed(bool, "open: commit_columns", commit_columns)
    timeout, scope = stream.spec.io_timeout, Lazy(lambda: stream.scope)
    reader = ChunkReader(driver, new_read(stream), size, timeout, with_commits, splits_of, scope)
    return new_scan(stream, driver), driver, reader
