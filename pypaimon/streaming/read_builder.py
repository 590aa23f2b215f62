"""`StreamReadBuilder`: the fluent face over the settings of a stream.

Scans, reads and batches are imported when the first one is made, which keeps the import of a builder cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pypaimon.streaming.former_names import FormerNames
from pypaimon.streaming.html_tables import html_dataclass
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.read_scope import View
from pypaimon.streaming.options.stream_options import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_LIVE_BYTES,
    DEFAULT_READ_AHEAD_BYTES,
)
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.paimon.read_internals import PaimonStreamReadBuilder
from pypaimon.streaming.spec.spec_builder import SpecBuilder, resolved
from pypaimon.streaming.spec.streamed_table import StreamedTable

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

    import pypaimon.streaming.paimon.filter_internals as filter_internals
    from pypaimon.streaming.batches import batch_stream
    from pypaimon.streaming.batches import stream as stream_loop
    from pypaimon.streaming.groups import group_stream
    from pypaimon.streaming.live import live_table
    from pypaimon.streaming.spec import openers, table_read
else:
    pa, polars = LazyModule("pyarrow"), LazyModule("polars")
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")
    batch_stream = LazyModule("pypaimon.streaming.batches.batch_stream")
    stream_loop = LazyModule("pypaimon.streaming.batches.stream")
    live_table = LazyModule("pypaimon.streaming.live.live_table")
    group_stream = LazyModule("pypaimon.streaming.groups.group_stream")
    openers = LazyModule("pypaimon.streaming.spec.openers")
    table_read = LazyModule("pypaimon.streaming.spec.table_read")


class StreamReadBuilder(SpecBuilder, PaimonStreamReadBuilder, FormerNames):
    """Settings of a stream. Setters change the builder and return it; `copy()` branches; every `new_*()` freezes them.

    Made by `table.new_stream_read_builder()` or `stream_read_builder(table)`. A builder call overrides the table option
    of the same meaning. Contradictions within one layer are errors, raised before the first read.

    Making a builder reads the newest schema, with which the stream reads, and the identity of the table, so that no
    stream continues in a re-created one. `new_streaming_scan()` and `new_read()` make no request, and share nothing
    that a rollback could change.

    On an event loop making a builder makes no request. The first plan, batch or read does, on a thread, for the builder
    and all its copies. It raises the errors below, and those of the setters, `new_streaming_scan()`, `new_read()` and
    `open()` about the table's columns and options. `new_predicate_builder()`, `read_type()` and pickling block if they
    come first; call them with `asyncio.to_thread`.

    Args:
        table: pypaimon's table.
        view: `"audit_log"`, `"binlog"`, `"ro"` or `"row_tracking"`, or None for the table itself.

    Raises:
        UnsupportedTableError: The table cannot be streamed.
        TableChangedError: The table is gone.
    """

    _former_names: ClassVar = {"between": "with_range", "with_group": "new_group"}

    def __init__(self, table: ReadableTable, view: View | None = None) -> None:
        # pypaimon's own __init__ is not run: it makes a batch builder with a second copy of the settings.
        SpecBuilder.__init__(self, StreamedTable.of(table), view)

    def __repr__(self) -> str:
        view = "" if self._spec.view is None else f", view {self._spec.view}"
        return f"{type(self).__name__}({self._table.name}{view})"

    def _repr_html_(self) -> str:
        return html_dataclass(repr(self), self._spec, whole=False)

    def new_streaming_scan(self) -> openers.AsyncStreamingTableScan:
        """A scan with the current settings.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        from pypaimon.streaming.spec.openers import new_scan

        return new_scan(resolved(self))

    def new_read(self) -> table_read.StreamTableRead:
        """A read with the current settings.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        from pypaimon.streaming.spec.table_read import new_read

        return new_read(resolved(self))

    def open(
        self,
        *,
        read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_progress: Callable[[stream_loop.StreamStatus], None] | None = None,
        commit_columns: bool = False,
    ) -> batch_stream.BatchStream:
        """The rows, for `async with` and `async for`: scan and read in one.

        Args:
            read_ahead_bytes: Prefetching pauses while this many bytes of rows wait; one batch is always prefetched.
            batch_bytes: A plan with more bytes of rows, or more than 64 record batches (a small file is one), comes as
                several batches.
            on_progress: Called with the status after each batch, in the call that requests it. If it raises, the same
                batch comes again.
            commit_columns: Add the commit of each row, after the row kind: `_snapshot_id` (BIGINT) and `_commit_time`
                (milliseconds, UTC). In a plan of several snapshots it is the last one.

        Raises:
            TableChangedError: The table is gone.
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        from pypaimon.streaming.batches.batch_stream import BatchStream
        from pypaimon.streaming.spec.openers import open_ahead

        opened = open_ahead(resolved(self), read_ahead_bytes, batch_bytes, commit_columns)
        return BatchStream(*opened, on_progress)

    def open_sync(
        self,
        *,
        read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_progress: Callable[[stream_loop.StreamStatus], None] | None = None,
        commit_columns: bool = False,
    ) -> batch_stream.BlockingBatchStream:
        """As `open`, for a plain `with` and `for`."""
        from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
        from pypaimon.streaming.spec.openers import open_ahead

        opened = open_ahead(resolved(self), read_ahead_bytes, batch_bytes, commit_columns)
        return BlockingBatchStream(*opened, on_progress)

    def open_live(
        self,
        *,
        memory_limit_bytes: int = DEFAULT_LIVE_BYTES,
        directory: str | PathLike[str] | None = None,
        save_to: str | PathLike[str] | None = None,
        save_interval: float | timedelta = 60.0,
    ) -> live_table.OpeningLiveTable:
        """The table kept live in memory for lookups by key: `async with builder.open_live() as live`.

        Entering it waits for the state of the table (`live = await builder.open_live()` does too). A thread then
        follows its changes, one snapshot at a time. The settings choose rows and columns, the poll interval, and the
        policy for schema changes. An error is raised by later calls: rows that no longer follow the table are never
        returned.

        Args:
            memory_limit_bytes: Bytes of memory for rows and their index, 2 GiB by default. Larger tables are kept in
                DuckDB on disk (extra `duckdb`), which is slower, until they are closed.
            directory: Where DuckDB creates a directory of its own; by default in the system's temporary directory.
            save_to: A file on this machine in which the rows are saved, as Arrow IPC, with the position that they have
                reached. The next start with this file reads only what follows; if that has expired, or the file holds
                other rows, it begins with the state of the table, and logs why. None: rows are not saved.
            save_interval: Seconds between two saves of rows that have changed. Meanwhile changes wait.

        Raises:
            UnsupportedTableError: The table has no primary key, or cannot be streamed, or its changes do not make its
                rows: docs/targets.md#what-cannot-be-copied.
            StreamConfigError: Settings or table options contradict each other, or exclude rows or key columns that a
                copy needs.
            PaimonStreamError: Reading failed.
        """
        from pypaimon.streaming.live.duckdb_row_store import memory_bound
        from pypaimon.streaming.live.live_table import OpeningLiveTable, opened
        from pypaimon.streaming.live.saved_rows import saved_rows

        bound, saved = memory_bound(memory_limit_bytes, directory), saved_rows(save_to, save_interval)
        return OpeningLiveTable(lambda: opened(resolved(self), bound, saved))

    def open_live_sync(
        self,
        *,
        memory_limit_bytes: int = DEFAULT_LIVE_BYTES,
        directory: str | PathLike[str] | None = None,
        save_to: str | PathLike[str] | None = None,
        save_interval: float | timedelta = 60.0,
    ) -> live_table.BlockingLiveTable:
        """As `open_live`, for a plain `with`; blocks until the state is there."""
        from pypaimon.streaming.live.duckdb_row_store import memory_bound
        from pypaimon.streaming.live.live_table import opened_sync
        from pypaimon.streaming.live.saved_rows import saved_rows

        bound, saved = memory_bound(memory_limit_bytes, directory), saved_rows(save_to, save_interval)
        return opened_sync(resolved(self), bound, saved)

    def new_group(
        self,
        group_id: str,
        *,
        member: str | None = None,
        session_timeout: float | timedelta | None = None,
        commit: Literal["auto", "manual"] = "auto",
        max_hold: float | timedelta | None = None,
        on_assigned: Callable[[tuple[int, ...]], object] | None = None,
        on_revoked: Callable[[tuple[int, ...]], object] | None = None,
        on_lost: Callable[[tuple[int, ...]], object] | None = None,
    ) -> group_stream.GroupStreamBuilder:
        """Share the table with the other members of a group, through its store alone.

        The table is divided into slots (see docs/consumers.md#groups). A new member gets slots from the others, and
        those of a member that ends, or misses its heartbeats for a session, go to the others. No row is lost, and
        unconfirmed rows come again. With an end the loop ends once all slots of the group are confirmed up to it.

        Args:
            group_id: Name of the group; all members have the same stream.
            member: Name with which this member gets its slots back after a restart; the newest of a name wins.
            session_timeout: Seconds without a heartbeat after which the others take over; by default 1.7 poll
                intervals, at least 5 s.
            commit: `"auto"`: requesting the next batch confirms the one before; `"manual"`: only `batch.commit()` does.
            max_hold: Seconds for which a slot that another member is to get waits until its batches are confirmed;
                after that they come again there. None: without limit.
            on_assigned: Called with slots (numbers, ascending) before their first batch. Like the other callbacks it is
                called by the call that requests the next batch, which raises its errors, and then again. For `open()`
                it may be a coroutine function.
            on_revoked: Called with slots that another member is to get, before they go: confirm finished work here.
            on_lost: Called with slots that are gone, because this member missed its heartbeats.

        Raises:
            StreamConfigError: Invalid argument.
        """
        from pypaimon.streaming.groups.group_settings import group_settings
        from pypaimon.streaming.groups.group_stream import GroupStreamBuilder

        calls = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        settings = group_settings(group_id, member, session_timeout, commit, max_hold, **calls)
        return GroupStreamBuilder(resolved(self), settings)

    def new_predicate_builder(self) -> filter_internals.PredicateBuilder:
        """A builder of predicates on the columns of the table, or of the view."""
        from pypaimon.streaming.paimon.filter_internals import PredicateBuilder

        return PredicateBuilder(resolved(self).fields)

    def read_type(self) -> list[Any]:
        """The columns that come out, as pypaimon's fields: what `with_read_type` takes."""
        return list(self.new_read().read_type)


class TableChanges:
    """A range of changes of a table, as `scan_changes` gives it. Each use reads it again, with the same rows.

    It is an Arrow stream (`pyarrow.table(changes)`, `polars.DataFrame(changes)`, its name in a query of DuckDB).
    """

    def __init__(self, builder: StreamReadBuilder) -> None:
        self._builder = builder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._builder.table.identifier.get_full_name()})"

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader of Arrow, which reads a batch when it is asked for one."""
        return self._builder.open_sync().to_arrow_batch_reader()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """As `to_arrow_batch_reader`, for consumers of Arrow's PyCapsules."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def lazy(self) -> polars.LazyFrame:
        """The rows as a lazy frame of polars, which reads only the columns and the rows that its query needs."""
        from polars.io.plugins import register_io_source

        from pypaimon.streaming.reading.read import polars_frame

        schema = self._builder.new_read().schema

        def frames(
            columns: list[str] | None, predicate: polars.Expr | None, most: int | None, _: int | None
        ) -> Iterator[polars.DataFrame]:
            builder = self._builder.copy()
            if columns is not None and not compares:
                builder.with_projection([name for name in columns if name in stored] or stored[:1])
            with builder.open_sync() as stream:
                for batch in stream:
                    frame = batch.to_polars() if columns is None else _selected(batch.to_polars(), columns)
                    if most is not None:
                        frame = frame.head(most)
                        most -= len(frame)
                    yield frame if predicate is None else frame.filter(predicate)
                    if most == 0:
                        return

        stored = [name for name in schema.names if name != ROW_KIND]
        stream = resolved(self._builder)
        between = stream.spec.between
        # A row that differs only in a column that the query leaves out has changed, too.
        compares = bool(stream.schema.primary_keys) and between is not None and between.may_compare
        return register_io_source(frames, schema=polars_frame([], schema).schema)


def _selected(frame: polars.DataFrame, columns: list[str]) -> polars.DataFrame:
    """Columns of a frame; also without any, as polars asks for to number the rows, it has its rows."""
    if columns:
        return frame.select(columns)
    try:
        return polars.DataFrame(height=frame.height)
    except TypeError:  # polars before it had frames of rows without columns; these are too many
        return frame


def scan_changes(
    table: ReadableTable,
    start: int | str | datetime | None,
    end: int | str | datetime,
    mode: Literal["auto", "delta", "changelog", "diff"] = "auto",
) -> TableChanges:
    """What happened to a table after `start`, up to and including `end`, for polars, DuckDB and Arrow.

    Args:
        table: pypaimon's table.
        start: A snapshot id, a tag or an aware datetime; None: the automatic tag before `end`.
        end: As `start`.
        mode: As `StreamReadBuilder.with_range` takes it. For filters and columns of a stream use that.

    Raises:
        StreamConfigError: The ends are of different kinds or in the wrong order, or `mode` is unknown.
    """
    return TableChanges(StreamReadBuilder(table).with_range(start, end, mode))


def builder_of_newest(table: ReadableTable, newest: TableSchema | None) -> StreamReadBuilder:
    """A builder for a table whose newest schema was just read, if given, so that it is not read again."""
    builder = StreamReadBuilder.__new__(StreamReadBuilder)
    SpecBuilder.__init__(builder, StreamedTable.of(table, newest))
    return builder


def stream_read_builder(table: ReadableTable, view: View | None = None) -> StreamReadBuilder:
    """A builder for a table, without touching the table's class.

    Args:
        table: pypaimon's table.
        view: `"audit_log"`, `"binlog"`, `"ro"` or `"row_tracking"`, or None for the table itself.
    """
    return StreamReadBuilder(table, view)
