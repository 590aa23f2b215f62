"""`StreamReadBuilder`: the fluent face: what comes of the settings; each `new_*()` freezes them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.batches.chunks import BATCH_BYTES, ChunkReader
from pypaimon.streaming.batches.read_ahead import READ_AHEAD_BYTES, ReadAhead
from pypaimon.streaming.batches.stream_status import StreamStatus
from pypaimon.streaming.builder.checks import refuse_unstreamable
from pypaimon.streaming.builder.settings import BuilderSettings
from pypaimon.streaming.builder.table_facts import TableFacts
from pypaimon.streaming.concurrency.bridge import on_event_loop
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.deferred import Deferred
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.consumers.start_group import StartSettings
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import columns_of, conjunction
from pypaimon.streaming.filtering.partition_option import chosen_partitions
from pypaimon.streaming.internals import PaimonStreamReadBuilder, PredicateBuilder, TableSchema
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import of_table
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.stream_options import (
    CommitMode,
    StreamOptions,
    Unmatched,
    options_of_table,
    overwrite_policy,
    refuse_unmergeable,
    refuse_unshared_start,
)
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.options.views import VIEWS, View, fields
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.reading.read import ReadParts, StreamTableRead
from pypaimon.streaming.reading.read_layout import ReadSettings
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.parts import ScanParts
from pypaimon.streaming.scanning.scan import AsyncStreamingTableScan

T = TypeVar("T")


class StreamReadBuilder(BuilderSettings, PaimonStreamReadBuilder):
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
        refuse_unstreamable(table)
        if view is not None and view not in VIEWS:
            raise StreamConfigError(f"view={view!r}: choose one of {', '.join(VIEWS)}")
        # pypaimon's own __init__ is not run: it makes a batch builder whose state would be a second truth.
        BuilderSettings.__init__(self, Deferred(partial(_facts_of, table)), view)
        self.table = table
        self._clock = clock or Clock()
        self._asks: TableDirectory | None = None
        if not on_event_loop():
            self._facts.get()

    def new_streaming_scan(self) -> AsyncStreamingTableScan:
        """A scan with the settings as they are now.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        return AsyncStreamingTableScan(self.table, self._driver(self._deferred(StreamReadBuilder._scan_parts)))

    def _driver(self, parts: Deferred[ScanParts]) -> ScanDriver:
        return ScanDriver(parts, self._given.start, self._clock)

    def _deferred(self, make: Callable[[StreamReadBuilder], T]) -> Deferred[T]:
        """What is made with the settings as they are now: at once, if the table is known."""
        builder = self.copy()
        made: Deferred[T] = Deferred(partial(make, builder))
        if self._facts.known is not None:
            made.get()
        else:
            # One for all attempts, so that requests which hang are counted together.
            builder._asks = TableDirectory.of(self.table, self._given.io_timeout)
        return made

    def _scan_parts(self, commit: CommitMode | None = None) -> ScanParts:
        """The parts of a scan.

        Args:
            commit: Who confirms its plans; None: as the settings say.
        """
        options = self._options()
        self._check_read(options)
        refuse_unshared_start(self._traits, options)
        directory = self._directory()
        planner = Planner(directory, self._schema, options, self._read_columns(), self._clock.time_millis)
        return ScanParts.of(directory, planner, options, self._progress(options, directory, commit), self._clock)

    def new_read(self) -> StreamTableRead:
        """A read with the settings as they are now.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        return StreamTableRead(self.table, self._given.io_timeout, self._deferred(StreamReadBuilder._read_parts))

    def _read_parts(self) -> ReadParts:
        options = self._options()
        self._check_read(options)
        if self._include_row_kind is False and self._traits.can_retract:
            text = "with_include_row_kind(False): deletes and old rows come out as rows like any other"
            StreamLog.of(__name__, self.table).warning("row_kinds_hidden", text)
        settings = ReadSettings(
            schema=self._schema,
            projection=self._projection,
            predicate=options.predicate,
            unmatched=options.unmatched,
            include_row_kind=self._includes_row_kind(),
            view=self._view,
        )
        directory = self._directory()
        directory.know(self._table_facts.newest)
        return ReadParts.of(directory, settings)

    @property
    def _table_facts(self) -> TableFacts:
        """The table; blocks while it is not known."""
        return self._facts.get(self._asks or TableDirectory.of(self.table, self._given.io_timeout))

    @property
    def _schema(self) -> TableSchema:
        return self._table_facts.schema

    @property
    def _traits(self) -> TableTraits:
        return self._table_facts.traits

    @property
    def _identity(self) -> str:
        return self._table_facts.identity

    def _directory(self) -> TableDirectory:
        """The table as one scan or read gets to know it."""
        return TableDirectory.of(self.table, self._given.io_timeout, self._identity)

    def open(
        self,
        *,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        batch_bytes: int = BATCH_BYTES,
        on_progress: Callable[[StreamStatus], None] | None = None,
    ) -> BatchStream:
        """The rows themselves, for `async with` and `async for`: scan and read in one, with these settings.

        Args:
            read_ahead_bytes: Reading ahead pauses while so many bytes of rows wait; one batch always may.
            batch_bytes: A plan with more bytes of rows comes as several batches.
            on_progress: Called with the status after each batch, by the one who asks for it. If it raises, the same
                batch comes again.

        Raises:
            TableChangedError: The table is gone.
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        return BatchStream(*self._opened(read_ahead_bytes, batch_bytes), on_progress)

    def open_sync(
        self,
        *,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        batch_bytes: int = BATCH_BYTES,
        on_progress: Callable[[StreamStatus], None] | None = None,
    ) -> BlockingBatchStream:
        """As `open`, for a plain `with` and `for`."""
        return BlockingBatchStream(*self._opened(read_ahead_bytes, batch_bytes), on_progress)

    def _opened(self, read_ahead_bytes: int, batch_bytes: int) -> tuple[AsyncStreamingTableScan, ScanDriver, ReadAhead]:
        ahead = at_least(0, "open: read_ahead_bytes", read_ahead_bytes)
        size = at_least(1, "open: batch_bytes", batch_bytes)
        # The scan is asked for plans ahead of the caller, so that asking confirms nothing.
        driver = self._driver(self._deferred(lambda builder: builder._scan_parts(CommitMode.MANUAL)))
        reader = ChunkReader(driver, self.new_read(), size, self._given.io_timeout)
        return AsyncStreamingTableScan(self.table, driver), driver, ReadAhead(reader, ahead)

    def new_predicate_builder(self) -> PredicateBuilder:
        """A builder of predicates on the columns of the table, or of the view."""
        return PredicateBuilder(fields(self._schema, self._view))

    def read_type(self) -> list[Any]:
        """The columns that are read, as pypaimon's fields."""
        return list(self.new_read().read_type)

    def _options(self) -> StreamOptions:
        schema = self._schema
        self._check_all_columns()
        options = self._given.over(options_of_table(schema))
        start = options.start
        if start.position is not None:
            start = replace(start, position=of_table(start.position, self._identity))
        filters = (chosen_partitions(schema), options.predicate)
        options = replace(
            options,
            start=start,
            predicate=conjunction([each for each in filters if each is not None]),
            read_overwrite=overwrite_policy(self._traits, OptionValues(schema.options), options.on_overwrite),
        )
        if options.shard is not None and options.bucket_filter is not None:
            raise StreamConfigError(
                "a shard and chosen buckets (with_buckets, scan.bucket) cannot be combined; give one"
            )
        refuse_unmergeable(self._traits, options.raw)
        if self._view == "ro" and self._traits.primary_key:
            raise UnsupportedTableError("Unsupported streaming scan for read optimized table with a primary key.")
        return options

    def _check_read(self, options: StreamOptions) -> None:
        upserts = self._traits.primary_key and not self._traits.producer.complete
        if options.predicate is None or not upserts:
            return
        keys = {*self._schema.primary_keys, *self._schema.partition_keys}
        on_values = not columns_of(options.predicate) <= keys
        if on_values and options.unmatched is Unmatched.DELETE:
            if options.raw:
                raise StreamConfigError("with_raw(True) and a filter on other columns than keys: give unmatched='drop'")
            if self._include_row_kind is False:
                raise StreamConfigError(
                    "with_include_row_kind(False) would hide that rows are deletes: give unmatched='drop', "
                    "or include the row kind"
                )

    def _includes_row_kind(self) -> bool:
        if self._include_row_kind is not None:
            return self._include_row_kind
        return self._traits.can_retract and self._view is None

    def _read_columns(self) -> frozenset[str] | None:
        return None if self._projection is None else frozenset(self._projection)

    def _progress(
        self, options: StreamOptions, directory: TableDirectory, commit: CommitMode | None = None
    ) -> Progress | None:
        consumer = options.consumer
        if consumer is None:
            return None
        name = reader_name(
            consumer.consumer_id,
            shard=options.shard,
            member=consumer.member,
            some_buckets=options.bucket_filter is not None,
        )
        manager = consumers_of(directory)
        expiration = OptionValues(self._schema.options).duration_millis("consumer.expiration-time")
        return Progress(
            manager,
            name,
            owner=uuid.uuid4().hex,
            commit=commit or consumer.commit,
            poll_interval=options.poll_interval_ms / 1000,
            expiration=None if expiration is None else expiration / 1000,
            start=StartSettings(
                options.start.text,
                explicit=options.start.position is not None,
                ignore_progress=consumer.ignore_progress,
                rows_move=self._traits.rows_move,
            ),
        )


def _facts_of(table: Any, directory: TableDirectory | None = None) -> TableFacts:
    """What must be known of a table, asked through a directory of it; for a pickle with the default time limit."""
    return TableFacts.of(directory or TableDirectory.of(table))


def stream_read_builder(table: Any, view: View | None = None) -> StreamReadBuilder:
    """A builder for a table, without touching the table's class.

    Args:
        table: pypaimon's table.
        view: `"audit_log"`, `"binlog"`, `"ro"` or `"row_tracking"`, or None for the table itself.
    """
    return StreamReadBuilder(table, view)
