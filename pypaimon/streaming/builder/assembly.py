"""`StreamAssembly`: the settings of a stream, and the parts of scans and reads made from them.

These parts are imported when the first of them is made.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pypaimon.streaming.builder.chain_tables import followed_table, options_of_chain
from pypaimon.streaming.builder.checks import refuse_unstreamable
from pypaimon.streaming.builder.settings import BuilderSettings
from pypaimon.streaming.builder.table_facts import TableFacts
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.threads_to_asyncio import on_event_loop
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import columns_of, conjunction
from pypaimon.streaming.filtering.partition_spec import chosen_partitions
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import of_table
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.model.time_zone import TIME_ZONE, option_zone
from pypaimon.streaming.options.arguments import typed
from pypaimon.streaming.options.between import BetweenMode
from pypaimon.streaming.options.end import End
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.read_scope import ReadScope
from pypaimon.streaming.options.slot_rule import SlotSet
from pypaimon.streaming.options.stream_options import (
    CatchUp,
    CommitMode,
    StreamOptions,
    options_of_range,
    options_of_table,
    overwrite_policy,
    refuse_hidden_deletes,
    refuse_unmergeable,
    refuse_unshared_start,
)
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.options.views import LOGS, VIEWS, View
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.consumers.progress import Progress
    from pypaimon.streaming.metadata.snapshots import Snapshot
    from pypaimon.streaming.reading.read_parts import ReadParts
    from pypaimon.streaming.scanning.driver import ScanDriver
    from pypaimon.streaming.scanning.parts import ScanParts

T = TypeVar("T")
B = TypeVar("B", bound="StreamAssembly")


class StreamAssembly(BuilderSettings):
    """The common base of the builder and of the scan's own constructor: settings, and the parts made from them.

    Args:
        table: pypaimon's table.
        view: See `StreamReadBuilder`.
        clock: The source of time.
        newest: The newest schema of the table, if it was just read.

    Raises:
        UnsupportedTableError: The table cannot be streamed.
        TableChangedError: The table is gone.
    """

    def __init__(
        self,
        table: ReadableTable,
        view: View | None = None,
        clock: Clock | None = None,
        newest: TableSchema | None = None,
    ) -> None:
        refuse_unstreamable(table)
        if view is not None and view not in VIEWS:
            raise StreamConfigError(f"view={view!r}: choose one of {', '.join(VIEWS)}")
        self.table = table
        self._followed, self._chain = followed_table(table)
        known = newest if self._chain is None else None
        self._latest: Snapshot | None = None
        self._latest_at = float("-inf")
        super().__init__(Lazy(partial(_facts_of, self._followed, newest=known)), view)
        self._clock = clock or Clock()
        self._asks: TableDirectory | None = None
        if not on_event_loop():
            self._facts.get()

    def with_time_zone(self: B, name: str) -> B:
        """Set the time zone of the table's readers and writers; default: its option `time-zone`, else the process's.

        Java uses the zone of its JVM: give that to get the same rows. In this zone a TIMESTAMP WITH LOCAL TIME ZONE
        becomes text, a date or a timestamp without zone when the type of a column changes, and names a partition. Times
        without a zone are in it, and so are timestamps in Java's ORC files that name no zone.

        Args:
            name: Such as `"Asia/Shanghai"`, `"UTC"` or `"+08:00"`.

        Raises:
            StreamConfigError: The zone does not exist.
        """
        option_zone(typed(str, "with_time_zone", name))
        self.table = self.table.copy_without_time_travel({TIME_ZONE: name})
        self._followed, self._chain = followed_table(self.table)
        known, self._asks = self._facts.known, None
        if known is None:
            self._facts = Lazy(partial(_facts_of, self._followed))
        else:
            schema = known.schema.copy(new_options={**known.schema.options, TIME_ZONE: name})
            self._facts = Lazy.of(replace(known, schema=schema))
        return self

    def _scan_driver(self, commit: CommitMode | None = None) -> ScanDriver:
        """The driver of a scan with the current settings.

        Args:
            commit: How its plans are confirmed; None: as the settings say.
        """
        from pypaimon.streaming.scanning.driver import ScanDriver

        parts = self._deferred(lambda frozen: frozen._scan_parts(commit))
        return ScanDriver(parts, self._given.start, self._clock)

    def _deferred(self, make: Callable[[StreamAssembly], T]) -> Lazy[T]:
        """An object made with the current settings: at once if the table is known, else by the first use."""
        frozen = self.copy()
        made: Lazy[T] = Lazy(partial(make, frozen))
        if self._facts.known is not None:
            made.get()
        else:
            # One for all attempts, so that hanging requests are counted together.
            frozen._asks = TableDirectory.of(self._followed, self._given.io_timeout)
        return made

    def _scan_parts(self, commit: CommitMode | None) -> ScanParts:
        from pypaimon.streaming.planning.planner import Planner
        from pypaimon.streaming.scanning.parts import ScanParts

        options = self._options()
        self._check_read(options)
        refuse_unshared_start(self._traits, options)
        options = replace(options, planned_for=self._row_selection(options))
        directory = self._directory()
        columns, now = self._read_columns(), self._clock.time_millis
        planner = Planner(directory, self._schema, options, columns, now, latest=self._latest)
        progress = self._progress(options, directory, commit)
        return ScanParts.of(directory, planner, options, progress, self._clock, self._latest_at)

    def _row_selection(self, options: StreamOptions) -> RowSelection | None:
        """The chosen filter and columns; None: neither."""
        given = self._given.predicate
        names = self._projection, self._output_names
        selection = RowSelection(
            self._schema.id, given, options.unmatched.value, *names, nested=self._read_type is not None
        )
        return None if selection.is_everything else selection

    def _hides_changes(self, options: StreamOptions) -> bool:
        """Whether deletes and old rows are given without their kinds."""
        return self._include_row_kind is False and self._traits.can_retract and not _is_difference(options)

    def _read_parts(self) -> ReadParts:
        from pypaimon.streaming.reading.read_layout import ReadSettings
        from pypaimon.streaming.reading.read_parts import ReadParts

        options = self._options()
        self._check_read(options)
        if self._hides_changes(options):
            text = "with_include_row_kind(False): deletes and old rows are given as plain rows"
            StreamLog.of(__name__, self.table).warning("row_kinds_hidden", text)
        settings = ReadSettings(
            schema=self._schema,
            projection=self._projection,
            output_names=self._output_names,
            nested=self._read_type is not None,
            predicate=options.predicate,
            own_filter=self._given.predicate,
            unmatched=options.unmatched,
            include_row_kind=self._includes_row_kind(),
            view=self._view,
            blob_descriptors=self._blob_descriptors,
            blob_places=self._blob_places,
        )
        directory = self._directory()
        directory.know(self._table_facts.newest)
        return ReadParts.of(directory, settings)

    @property
    def _table_facts(self) -> TableFacts:
        """The facts of the table; blocks while they are not known."""
        known = self._facts.known
        if known is not None:
            return known
        return self._facts.get(self._asks or TableDirectory.of(self._followed, self._given.io_timeout))

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
        """A directory of the table for one scan or read."""
        return TableDirectory.of(self._followed, self._given.io_timeout, self._identity)

    def _options(self) -> StreamOptions:
        schema = self._schema
        self._resolve_columns()
        options = self._given.over(options_of_table(schema))
        # A log has the row kind in a column of its own, as in Java.
        kinds = self._includes_row_kind() and self._view not in LOGS
        options = options_of_range(self._given, options, kinds=kinds)
        start = options.start
        if start.position is not None:
            start = replace(start, position=of_table(start.position, self._identity))
        of_streams = OptionValues(schema.options if options.between is None else {})
        filters = (chosen_partitions(schema), options.predicate)
        options = replace(
            options,
            start=start,
            predicate=conjunction([each for each in filters if each is not None]),
            read_overwrite=overwrite_policy(self._traits, of_streams, options.on_overwrite),
        )
        if options.shard is not None and options.bucket_filter is not None:
            raise StreamConfigError(
                "a shard and chosen buckets (with_buckets, scan.bucket) cannot be combined; give one"
            )
        if options.follow_up_scanner is not None and options.catch_up is CatchUp.NET:
            raise StreamConfigError(
                "with_catch_up('net') compares states and asks no follow-up scanner: leave it out, or "
                "with_follow_up_scanner(...)"
            )
        if self._chain is not None:
            options = options_of_chain(self.table, self._chain, schema, self._given, options)
        refuse_unmergeable(self._traits, options.raw or options.between is not None)
        if self._view == "ro" and self._traits.primary_key:
            raise UnsupportedTableError("Unsupported streaming scan for read optimized table with a primary key.")
        return options

    def _check_read(self, options: StreamOptions) -> None:
        if options.predicate is not None and not _is_difference(options):
            hides_kinds = self._include_row_kind is False
            filtered = columns_of(options.predicate)
            refuse_hidden_deletes(self._schema, filtered, options.unmatched, raw=options.raw, hides_kinds=hides_kinds)

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
        from pypaimon.streaming.consumers.consumer_manager import consumers_of
        from pypaimon.streaming.consumers.progress import Progress
        from pypaimon.streaming.consumers.shared_start_coordinator import StartSettings

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


def scan_driver(settings: StreamAssembly) -> ScanDriver:
    """The driver of a scan with these settings."""
    return settings._scan_driver()


def group_parts(settings: StreamAssembly) -> tuple[ScanParts, TableSchema]:
    """The parts of a scan with these settings, and its schema. Blocks."""
    return settings._scan_parts(None), settings._schema


def of_slots(settings: B, slots: SlotSet, last: int | None = None) -> B:
    """A copy of a builder that reads only some slots of its table, up to a snapshot if one is given."""
    return with_options(settings, slots=slots, end=None if last is None else End(snapshot_id=last))


def with_options(settings: B, **given: Any) -> B:
    """A copy of a builder with these fields of `GivenOptions`."""
    copied = settings.copy()
    copied._given = replace(copied._given, **given)
    return copied


def identity_of(settings: StreamAssembly) -> str:
    """The identity of the table, see `TableDirectory.identity`. Blocks while the table is not known."""
    return settings._identity


def with_latest(settings: B, latest: Snapshot | None, at: float) -> B:
    """A copy of a builder whose next stream may begin with the latest snapshot.

    Args:
        settings: The builder.
        latest: The snapshot, if it was read before the table's schema.
        at: The time before it was requested, on the monotonic clock.
    """
    copied = settings.copy()
    is_of_table = settings._chain is None and settings.table.current_branch() in (None, "", "main")
    copied._latest, copied._latest_at = latest if is_of_table else None, at
    return copied


def schema_of(settings: StreamAssembly) -> TableSchema:
    """The schema of the stream. Blocks while the table is not known."""
    return settings._schema


def scope_of(settings: StreamAssembly) -> Lazy[ReadScope]:
    """The rows of the table that these settings read; made when it is needed."""
    frozen = settings.copy()
    return Lazy(lambda: ReadScope.of(frozen._options(), frozen._schema, frozen._view))


def followed(settings: StreamAssembly) -> Any:
    """The handle of the table, or branch, that these settings read."""
    return settings._followed


def read_parts(settings: StreamAssembly) -> Lazy[ReadParts]:
    """The parts of a read with these settings."""
    return settings._deferred(StreamAssembly._read_parts)


def _is_difference(options: StreamOptions) -> bool:
    """Whether states are compared, so that a row replaces another only by its kind."""
    return options.between is not None and options.between.mode is BetweenMode.DIFF


def _facts_of(
    table: ReadableTable, directory: TableDirectory | None = None, newest: TableSchema | None = None
) -> TableFacts:
    """The facts of a table, read through a directory of it, or after unpickling with the default time limit."""
    return TableFacts.of(directory or TableDirectory.of(table), newest)
