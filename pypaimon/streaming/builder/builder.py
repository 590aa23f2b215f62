"""`StreamReadBuilder`: the fluent face: what comes of the settings; each `new_*()` freezes them.

Scans, reads and batches are imported when one is made.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from pypaimon.streaming.builder.assembly import StreamAssembly
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.late_modules import LateModule
from pypaimon.streaming.options.stream_options import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_LIVE_BYTES,
    DEFAULT_READ_AHEAD_BYTES,
)
from pypaimon.streaming.options.views import View, fields
from pypaimon.streaming.read_internals import PaimonStreamReadBuilder

if TYPE_CHECKING:
    import pypaimon.streaming.filter_internals as filter_internals
    from pypaimon.streaming.batches import batch_stream, stream_status
    from pypaimon.streaming.builder import read, scan
    from pypaimon.streaming.group_streams import builder as group_builder
    from pypaimon.streaming.live_tables import live_table
    from pypaimon.streaming.metadata.snapshots import Snapshot
else:
    filter_internals = LateModule("pypaimon.streaming.filter_internals")
    batch_stream = LateModule("pypaimon.streaming.batches.batch_stream")
    stream_status = LateModule("pypaimon.streaming.batches.stream_status")
    live_table = LateModule("pypaimon.streaming.live_tables.live_table")
    group_builder = LateModule("pypaimon.streaming.group_streams.builder")
    read, scan = LateModule("pypaimon.streaming.builder.read"), LateModule("pypaimon.streaming.builder.scan")


class StreamReadBuilder(StreamAssembly, PaimonStreamReadBuilder):
    """Settings of a stream. Setters change the builder and return it; `copy()` branches; every `new_*()` freezes them.

    Made by `table.new_stream_read_builder()` or `stream_read_builder(table)`. A builder call beats the table option of
    the same meaning; contradictions within one layer are errors, raised before the first read.

    Making a builder asks the store for the newest schema, which the stream reads with, and which table it is, so that
    no stream goes on in another one that takes its place. `new_streaming_scan()` and `new_read()` make no request, and
    share nothing that a rollback could change: each asks for itself.

    On an event loop it asks for nothing: the first plan, batch or read does, on a thread, for the builder and all its
    copies. That one raises what is said below, and what the setters, `new_streaming_scan()`, `new_read()` and `open()`
    would say of the table's columns and options. Only `new_predicate_builder()`, `read_type()` and pickling ask, and
    block, if they come before it: `asyncio.to_thread` calls them elsewhere.

    Args:
        table: pypaimon's table.
        view: `"audit_log"`, `"binlog"`, `"ro"` or `"row_tracking"`, or None for the table itself.
        clock: Where time comes from.

    Raises:
        UnsupportedTableError: The table cannot be streamed.
        TableChangedError: The table is gone.
    """

    def __init__(self, table: Any, view: View | None = None, clock: Clock | None = None) -> None:
        # pypaimon's own __init__ is not run: it makes a batch builder whose state would be a second truth.
        StreamAssembly.__init__(self, table, view, clock)

    def __repr__(self) -> str:
        view = "" if self._view is None else f", view {self._view}"
        return f"{type(self).__name__}({self.table.identifier.get_full_name()}{view})"

    def new_streaming_scan(self) -> scan.AsyncStreamingTableScan:
        """A scan with the settings as they are now.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        from pypaimon.streaming.builder.scan import driven_scan

        return driven_scan(self.table, self._scan_driver())

    def new_read(self) -> read.StreamTableRead:
        """A read with the settings as they are now.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        from pypaimon.streaming.builder.read import new_read

        return new_read(self)

    def open(
        self,
        *,
        read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_progress: Callable[[stream_status.StreamStatus], None] | None = None,
        commit_columns: bool = False,
    ) -> batch_stream.BatchStream:
        """The rows themselves, for `async with` and `async for`: scan and read in one, with these settings.

        Args:
            read_ahead_bytes: Reading ahead pauses while so many bytes of rows wait; one batch always may.
            batch_bytes: A plan with more bytes of rows comes as several batches.
            on_progress: Called with the status after each batch, by the one who asks for it. If it raises, the same
                batch comes again.
            commit_columns: Rows tell the commit that they came with: `_snapshot_id` (BIGINT) and `_commit_time`
                (milliseconds, UTC), behind the row kind. Of a plan of several snapshots it is the last one.

        Raises:
            TableChangedError: The table is gone.
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        from pypaimon.streaming.batches.batch_stream import BatchStream
        from pypaimon.streaming.builder.opened import opened

        return BatchStream(*opened(self, read_ahead_bytes, batch_bytes, commit_columns), on_progress)

    def open_sync(
        self,
        *,
        read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_progress: Callable[[stream_status.StreamStatus], None] | None = None,
        commit_columns: bool = False,
    ) -> batch_stream.BlockingBatchStream:
        """As `open`, for a plain `with` and `for`."""
        from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
        from pypaimon.streaming.builder.opened import opened

        return BlockingBatchStream(*opened(self, read_ahead_bytes, batch_bytes, commit_columns), on_progress)

    async def open_live(
        self, *, memory_limit: int = DEFAULT_LIVE_BYTES, directory: str | PathLike[str] | None = None
    ) -> live_table.LiveTable:
        """The table kept live in memory, asked by key: `async with await builder.open_live() as live`.

        It returns with the state of the table. A thread follows the changes from then on, one snapshot at a time; the
        settings say which rows and columns, how often it asks, and what becomes of a schema that changes. An error is
        raised by the calls that come after it: rows that do not follow the table any more are never given out.

        Args:
            memory_limit: Bytes that rows and their index may take in memory; by default 2 GiB. Larger tables lie in
                DuckDB on disk (extra `duckdb`), slower, until they are closed.
            directory: Where they lie then, in a directory of their own; by default where the system has such files.

        Raises:
            UnsupportedTableError: The table has no primary key, or cannot be streamed, or its changes do not make its
                rows: docs/guarantees.md#copies.
            StreamConfigError: Settings or table options contradict each other, or leave out something that a copy
                needs; or columns of the key are not read.
            PaimonStreamError: Reading failed.
        """
        from pypaimon.streaming.live_tables.disk_place import memory_bound
        from pypaimon.streaming.live_tables.live_table import opened

        return await opened(self, memory_bound(memory_limit, directory))

    def open_live_sync(
        self, *, memory_limit: int = DEFAULT_LIVE_BYTES, directory: str | PathLike[str] | None = None
    ) -> live_table.BlockingLiveTable:
        """As `open_live`, for a plain `with`; blocks until the state is there."""
        from pypaimon.streaming.live_tables.disk_place import memory_bound
        from pypaimon.streaming.live_tables.live_table import opened_sync

        return opened_sync(self, memory_bound(memory_limit, directory))

    def with_group(
        self,
        group_id: str,
        *,
        member: str | None = None,
        session_timeout: float | None = None,
        commit: Literal["auto", "manual"] = "auto",
        max_hold: float | None = None,
        on_assigned: Callable[[tuple[int, ...]], object] | None = None,
        on_revoked: Callable[[tuple[int, ...]], object] | None = None,
        on_lost: Callable[[tuple[int, ...]], object] | None = None,
    ) -> group_builder.GroupStreamBuilder:
        """Share the table with the other members of a group, which need nothing but its store.

        The table is divided into slots (see docs/groups.md). Who joins gets some of them from the others, and whose
        process ends, or is silent for a session, leaves them to the others. No row is lost, and those that were not
        confirmed come again. With an end the loop ends once all slots of the group are confirmed up to it (see
        there what that is with `commit="manual"`).

        Args:
            group_id: Under which the members find each other; all have the same stream.
            member: Name under which this one comes back to its slots after a restart; the newest of a name counts.
            session_timeout: Seconds of silence after which the others take over; by default 1.7 poll intervals, at
                least 5 s.
            commit: `"auto"`: asking for the next batch confirms the one before; `"manual"`: only `batch.commit()` does.
            max_hold: Seconds that a slot which another member is to get waits until what was handed out of it is
                confirmed; after that it comes again there. None: as long as it takes.
            on_assigned: Called with slots (numbers, ascending) before their first batch. As the others it is called by
                the one who asks for the next batch; for `open()` it may be a coroutine function; what it raises is
                raised there, and it is called again.
            on_revoked: Called with slots that are to go to another member: the place to confirm what is done. They go
                afterwards.
            on_lost: Called with slots that are gone already, as this member was silent for too long.

        Raises:
            StreamConfigError: An argument cannot be.
        """
        from pypaimon.streaming.group_streams.builder import GroupStreamBuilder, group_settings

        calls = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        settings = group_settings(group_id, member, session_timeout, commit, max_hold, **calls)
        return GroupStreamBuilder(self, settings)

    def new_predicate_builder(self) -> filter_internals.PredicateBuilder:
        """A builder of predicates on the columns of the table, or of the view."""
        from pypaimon.streaming.filter_internals import PredicateBuilder

        return PredicateBuilder(fields(self._schema, self._view))

    def read_type(self) -> list[Any]:
        """The columns that come out, as pypaimon's fields: what `with_read_type` takes."""
        return list(self.new_read().read_type)


def builder_of_newest(table: Any, newest: TableSchema | None, latest: Snapshot | None = None) -> StreamReadBuilder:
    """A builder for a table whose newest schema was read just now, if it is given: it is not asked for again.

    Args:
        table: pypaimon's table.
        newest: The schema.
        latest: The latest snapshot, if it was read before the schema: a first full plan begins with it.
    """
    builder = StreamReadBuilder.__new__(StreamReadBuilder)
    StreamAssembly.__init__(builder, table, newest=newest, latest=latest)
    return builder


def stream_read_builder(table: Any, view: View | None = None) -> StreamReadBuilder:
    """A builder for a table, without touching the table's class.

    Args:
        table: pypaimon's table.
        view: `"audit_log"`, `"binlog"`, `"ro"` or `"row_tracking"`, or None for the table itself.
    """
    return StreamReadBuilder(table, view)
