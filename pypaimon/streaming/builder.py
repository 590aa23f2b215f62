"""`StreamReadBuilder`: the fluent face: settings, checked as they are given, frozen by each `new_*()`."""

from __future__ import annotations

import copy
import logging
import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from pypaimon.streaming import builder_checks as checks
from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.batches.read_ahead import BATCH_BYTES, READ_AHEAD_BYTES, PieceReader, ReadAhead
from pypaimon.streaming.batches.stream_status import StreamStatus
from pypaimon.streaming.clock import Clock
from pypaimon.streaming.consumers.consumer import ConsumerManager
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.errors import StreamConfigError, TableChangedError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.internals import PaimonStreamReadBuilder, Predicate, PredicateBuilder, TableSchema
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.position import Position
from pypaimon.streaming.reading.read import StreamTableRead
from pypaimon.streaming.reading.read_layout import ReadSettings
from pypaimon.streaming.scan import AsyncStreamingTableScan
from pypaimon.streaming.settings.option_values import OptionValues
from pypaimon.streaming.settings.options import (
    CatchUp,
    CommitMode,
    ConsumerOptions,
    Limits,
    OnExpired,
    OnOverwrite,
    OnSchemaChange,
    StreamOptions,
    Unmatched,
    overwrite_policy,
    refuse_unmergeable,
    table_settings,
)
from pypaimon.streaming.settings.table_traits import TableTraits
from pypaimon.streaming.views import VIEWS, View, fields

_LOG = logging.getLogger(__name__)


class StreamReadBuilder(PaimonStreamReadBuilder):
    """Settings of a stream. Setters change the builder and return it; `copy()` branches; every `new_*()` freezes them.

    Made by `table.new_stream_read_builder()` or `stream_read_builder(table)`. A builder call beats the table option of
    the same meaning; contradictions within one layer are errors, raised before the first read.

    Making a builder asks the store for the newest schema, which the stream reads with; each `new_streaming_scan()` asks
    for the table's identity.

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
        checks.refuse_unstreamable(table)
        if view is not None and view not in VIEWS:
            raise StreamConfigError(f"view={view!r}: choose one of {', '.join(VIEWS)}")
        self.table = table
        self._view = view
        self._clock = clock or Clock()
        self._io_timeout = 60.0
        self._schema = _latest_schema(table)
        self._traits = TableTraits.of(self._schema)
        self._settings: dict[str, Any] = {}
        self._projection: tuple[str, ...] | None = None
        self._include_row_kind: bool | None = None

    def copy(self) -> StreamReadBuilder:
        """An independent builder with the same settings."""
        other = copy.copy(self)
        other._settings = dict(self._settings)
        return other

    # ---- what is read ----

    def with_filter(self, predicate: Predicate | None, unmatched: str = "delete") -> StreamReadBuilder:
        """Read only rows that match.

        Args:
            predicate: Made with `new_predicate_builder()`.
            unmatched: What becomes of a record of a primary-key stream with changelog producer `none` or `input` that
                does not match: `"delete"`: it comes out as -D, so that nothing stale stays downstream; `"drop"`: it is
                left out.

        Raises:
            StreamConfigError: A column is not there, or `unmatched` is no choice.
        """
        chosen = checks.choice(Unmatched, "with_filter: unmatched", unmatched)
        if predicate is not None:
            checks.typed(Predicate, "with_filter", predicate)
            checks.known_columns("with_filter", columns_of(predicate), self._columns())
        self._settings.update(predicate=predicate, unmatched=chosen)
        return self

    def with_projection(self, projection: Iterable[str] | None) -> StreamReadBuilder:
        """Read only these columns, in this order; fields of rows as `row.field`. None: all.

        Raises:
            StreamConfigError: A column is not there, or named twice.
        """
        if projection is None:
            self._projection = None
            return self
        if isinstance(projection, (str, dict)) or not isinstance(projection, Iterable):
            raise StreamConfigError(f"with_projection({projection!r}): give a list of column names")
        names = checks.known_columns("with_projection", projection, self._columns())
        if len(set(names)) != len(names):
            raise StreamConfigError(f"with_projection: a column is named twice in {list(names)}")
        self._projection = names
        return self

    def with_include_row_kind(self, include: bool = True) -> StreamReadBuilder:
        """Whether `_row_kind` (`+I -U +U -D`) is the first column; by default where the stream can carry -U or -D."""
        self._include_row_kind = checks.typed(bool, "with_include_row_kind", include)
        return self

    def with_raw(self, raw: bool = True) -> StreamReadBuilder:
        """Refuse no merge engine; follow-ups are the records as written, first plans are merged as always."""
        self._settings["raw"] = checks.typed(bool, "with_raw", raw)
        return self

    # ---- where it begins and ends ----

    def with_start(
        self,
        mode: str | None = None,
        *,
        snapshot_id: int | None = None,
        timestamp: datetime | int | None = None,
        file_creation_time: datetime | int | None = None,
        creation_time: datetime | int | None = None,
        tag: str | None = None,
        position: Position | str | None = None,
        full: bool = False,
    ) -> StreamReadBuilder:
        """Where the stream begins; give exactly one. A consumer that exists beats any of them but `position`.

        Args:
            mode: `"latest-full"`, `"latest"`, `"earliest"` or `"compacted-full"`.
            snapshot_id: Changes from this snapshot on.
            timestamp: Changes committed at this time or later (aware datetime, or epoch milliseconds).
            file_creation_time: The state, of files created at this time or later, then changes.
            creation_time: Changes since this time if the table reaches back so far, else as `file_creation_time`.
            tag: What came after a tag.
            position: A saved position, or its JSON.
            full: With `snapshot_id` or `tag`: its full state first.

        Raises:
            StreamConfigError: None or several are given, or one has a wrong type.
        """
        given = {
            "mode": mode,
            "snapshot_id": snapshot_id,
            "timestamp": timestamp,
            "file_creation_time": file_creation_time,
            "creation_time": creation_time,
            "tag": tag,
            "position": position,
        }
        self._settings["start"] = checks.start(given, full)
        return self

    def with_end(
        self,
        *,
        latest: bool = False,
        snapshot_id: int | None = None,
        timestamp: datetime | int | None = None,
        watermark: int | None = None,
    ) -> StreamReadBuilder:
        """Where the stream ends; give exactly one.

        Args:
            latest: At the snapshot that is the latest when the stream starts; at once on an empty table.
            snapshot_id: After this snapshot.
            timestamp: Before the first snapshot committed later than this; once that is past, when caught up, too.
            watermark: Before the first snapshot with a greater watermark (epoch milliseconds).

        Raises:
            StreamConfigError: None or several are given, or one has a wrong type.
        """
        bound, greatest_watermark = checks.end(latest, snapshot_id, timestamp, watermark)
        self._settings["end"] = bound
        self._settings.pop("end_watermark", None)
        if greatest_watermark is not None:
            self._settings["end_watermark"] = greatest_watermark
        return self

    # ---- how it runs ----

    def with_poll_interval_ms(self, poll_interval_ms: int) -> StreamReadBuilder:
        """Pause after a poll that found nothing, in milliseconds (default 1000)."""
        self._settings["poll_interval_ms"] = checks.at_least(1, "with_poll_interval_ms", poll_interval_ms)
        return self

    def with_consumer_id(
        self, consumer_id: str, commit: str = "auto", member: str | None = None, ignore_progress: bool = False
    ) -> StreamReadBuilder:
        """Save progress under a name, and begin where it was saved.

        Args:
            consumer_id: The name; Java readers see the same one.
            commit: `"auto"`: asking for the next plan confirms the one before; `"manual"`: only `scan.commit` does.
            member: Name of this reader among several that share the id (needed with chosen buckets).
            ignore_progress: Begin as configured, but save.

        Raises:
            StreamConfigError: The id cannot be a file name, or `commit` is no choice.
        """
        mode = checks.choice(CommitMode, "with_consumer_id: commit", commit)
        reader_name(consumer_id, member=member)
        ignore = checks.typed(bool, "with_consumer_id: ignore_progress", ignore_progress)
        self._settings["consumer"] = ConsumerOptions(consumer_id, mode, member, ignore)
        return self

    def with_shard(self, index: int, count: int) -> StreamReadBuilder:
        """Read shard `index` of `count`: the shards of a table are disjoint and together complete."""
        checks.at_least(1, "with_shard: count", count)
        if checks.at_least(0, "with_shard: index", index) >= count:
            raise StreamConfigError(f"with_shard({index}, {count}): index must be from 0 to {count - 1}")
        self._settings["shard"] = (index, count)
        return self

    def with_buckets(self, bucket_ids: Iterable[int]) -> StreamReadBuilder:
        """Read only these buckets."""
        if isinstance(bucket_ids, (str, dict)) or not isinstance(bucket_ids, Iterable):
            raise StreamConfigError(f"with_buckets({bucket_ids!r}): give a list of bucket numbers")
        buckets = frozenset(checks.typed(int, "with_buckets", each) for each in bucket_ids)
        if not buckets:
            raise StreamConfigError("with_buckets: the list is empty, so nothing would ever be read")
        return self.with_bucket_filter(buckets.__contains__)

    def with_bucket_filter(self, bucket_filter: Callable[[int], bool]) -> StreamReadBuilder:
        """Read only buckets for which this is true."""
        if not callable(bucket_filter):
            raise StreamConfigError(f"with_bucket_filter({bucket_filter!r}): give a function of a bucket number")
        self._settings["bucket_filter"] = bucket_filter
        return self

    def with_limits(
        self, max_rows: int | None = None, max_bytes: int | None = None, max_splits: int | None = None
    ) -> StreamReadBuilder:
        """Soft bounds of each plan, which may cut inside a snapshot; at least one unit is handed out.

        Args:
            max_rows: Physical records.
            max_bytes: Bytes of files.
            max_splits: Units: files, or whole buckets where files are merged.
        """
        for name, value in (("max_rows", max_rows), ("max_bytes", max_bytes), ("max_splits", max_splits)):
            if value is not None:
                checks.at_least(1, f"with_limits: {name}", value)
        self._settings["limits"] = Limits(max_rows, max_bytes, max_splits)
        return self

    def with_catch_up(self, mode: str) -> StreamReadBuilder:
        """How to catch up when far behind: `"auto"`, `"replay"` or `"net"` (primary-key tables: one change per key)."""
        self._settings["catch_up"] = checks.choice(CatchUp, "with_catch_up", mode)
        return self

    def with_prefetch(self, plans: int) -> StreamReadBuilder:
        """Plans made ahead of the caller (metadata only); 0 is off."""
        self._settings["prefetch"] = checks.at_least(0, "with_prefetch", plans)
        return self

    def with_io_timeout(self, seconds: float) -> StreamReadBuilder:
        """Seconds that one request may take; a longer one becomes a retriable `IOTimeoutError`."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            raise StreamConfigError(f"with_io_timeout({seconds!r}): give a number of seconds above 0")
        self._io_timeout = float(seconds)
        return self

    def with_on_expired(self, policy: str) -> StreamReadBuilder:
        """Where to go on when a saved position has expired: `"fail"`, `"earliest"`, `"latest"` or `"full"`."""
        self._settings["on_expired"] = checks.choice(OnExpired, "with_on_expired", policy)
        return self

    def with_on_schema_change(self, policy: str) -> StreamReadBuilder:
        """What to do where columns that are read change: `"fail"`, `"follow"` or `"ignore"`."""
        self._settings["on_schema_change"] = checks.choice(OnSchemaChange, "with_on_schema_change", policy)
        return self

    def with_on_overwrite(self, policy: str | None) -> StreamReadBuilder:
        """What to do with OVERWRITE snapshots: `"skip"`, `"read"`, `"fail"`, or None for the table's options."""
        chosen = None if policy is None else checks.choice(OnOverwrite, "with_on_overwrite", policy)
        self._settings["on_overwrite"] = chosen
        return self

    # ---- what comes of it ----

    def new_streaming_scan(self) -> AsyncStreamingTableScan:
        """A scan with the settings as they are now. One request: which table it is, should another take its place.

        Raises:
            TableChangedError: The table is gone.
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        options = self._options()
        self._check_read(options)
        directory = TableDirectory.of(self.table, self._io_timeout)
        with _table_gone():
            _ = directory.identity
        planner = Planner(directory, self._schema, options, self._read_columns(), self._clock.time_millis)
        return AsyncStreamingTableScan(directory, planner, options, self._progress(options), self._clock)

    def new_read(self) -> StreamTableRead:
        """A read with the settings as they are now.

        Raises:
            StreamConfigError: Settings or table options contradict each other.
            UnsupportedTableError: The table, or one of its options, cannot be streamed.
        """
        options = self._options()
        self._check_read(options)
        if self._include_row_kind is False and self._traits.can_retract:
            _LOG.warning("with_include_row_kind(False): deletes and old rows come out as rows like any other")
        settings = ReadSettings(
            schema=self._schema,
            projection=self._projection,
            predicate=options.predicate,
            unmatched=options.unmatched.value,
            include_row_kind=self._includes_row_kind(),
            view=self._view,
        )
        return StreamTableRead(TableDirectory.of(self.table, self._io_timeout), settings)

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
            on_progress: Called with the status after each batch, by the one who asks for it.

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

    def _opened(
        self, read_ahead_bytes: int, batch_bytes: int
    ) -> tuple[AsyncStreamingTableScan, ReadAhead, CommitMode | None]:
        ahead = checks.at_least(0, "open: read_ahead_bytes", read_ahead_bytes)
        size = checks.at_least(1, "open: batch_bytes", batch_bytes)
        builder, consumer = self.copy(), self._options().consumer
        if consumer is not None:
            # The scan is asked for plans ahead of the caller, so that asking confirms nothing.
            builder._settings["consumer"] = replace(consumer, commit=CommitMode.MANUAL)
        scan, read = builder.new_streaming_scan(), builder.new_read()
        reader = PieceReader(scan, read, size, self._io_timeout)
        return scan, ReadAhead(reader, ahead), None if consumer is None else consumer.commit

    def new_predicate_builder(self) -> PredicateBuilder:
        """A builder of predicates on the columns of the table, or of the view."""
        return PredicateBuilder(fields(self._schema, self._view))

    def read_type(self) -> list[Any]:
        """The columns that are read, as pypaimon's fields."""
        return list(self.new_read().read_type)

    def _columns(self) -> set[str]:
        return {field.name for field in fields(self._schema, self._view)}

    def _options(self) -> StreamOptions:
        settings = table_settings(self._schema) | self._settings
        chosen = settings.get("on_overwrite")
        settings["read_overwrite"] = overwrite_policy(
            self._traits, OptionValues(self._schema.options), cast("OnOverwrite | None", chosen)
        )
        options = StreamOptions(io_timeout=self._io_timeout, **cast("dict[str, Any]", settings))
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

    def _progress(self, options: StreamOptions) -> Progress | None:
        consumer = options.consumer
        if consumer is None:
            return None
        name = reader_name(
            consumer.consumer_id,
            shard=options.shard,
            member=consumer.member,
            some_buckets=options.bucket_filter is not None,
        )
        directory = TableDirectory.of(self.table, self._io_timeout)
        manager = ConsumerManager(self.table.file_io, self.table.table_path, directory.branch, store=directory.store)
        expiration = OptionValues(self._schema.options).duration_millis("consumer.expiration-time")
        return Progress(
            manager,
            name,
            owner=uuid.uuid4().hex,
            commit=consumer.commit,
            poll_interval=options.poll_interval_ms / 1000,
            expiration=None if expiration is None else expiration / 1000,
        )


def stream_read_builder(table: Any, view: View | None = None) -> StreamReadBuilder:
    """A builder for a table, without touching the table's class.

    Args:
        table: pypaimon's table.
        view: `"audit_log"`, `"binlog"`, `"ro"` or `"row_tracking"`, or None for the table itself.
    """
    return StreamReadBuilder(table, view)


def _latest_schema(table: Any) -> TableSchema:
    """The newest schema in the store, with the options that this table handle has."""
    with _table_gone():
        return TableDirectory.of(table).latest_schema().copy(new_options=table.table_schema.options)


@contextmanager
def _table_gone() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise TableChangedError(f"The table was dropped: {error} is not there. Load the table again.") from error
