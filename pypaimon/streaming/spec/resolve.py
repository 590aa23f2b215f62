"""`resolve`: a `StreamSpec` checked against its table, and the parts of scans and reads that follow from both.

The parts are imported when the first of them is made, which keeps the import of a builder cheap.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import columns_of, conjunction
from pypaimon.streaming.filtering.partition_spec import chosen_partitions
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import of_table
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.read_scope import LOGS, ReadScope, view_fields
from pypaimon.streaming.options.stream_options import (
    CatchUp,
    CommitMode,
    StreamOptions,
    options_of_table,
    overwrite_policy,
    refuse_hidden_deletes,
    refuse_unmergeable,
    refuse_unshared_start,
)
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import DataField, TableSchema
from pypaimon.streaming.spec.stream_spec import StreamSpec, check_names, check_types, options_of_range
from pypaimon.streaming.spec.streamed_table import StreamedTable, TableFacts, options_of_chain

if TYPE_CHECKING:
    from pypaimon.streaming.consumers.progress import Progress
    from pypaimon.streaming.metadata.snapshots import Snapshot
    from pypaimon.streaming.paimon.filter_internals import Predicate
    from pypaimon.streaming.planning.planned_units import KeptUnits
    from pypaimon.streaming.planning.planner import Planner
    from pypaimon.streaming.reading.read_layout import Output, ReadSettings
    from pypaimon.streaming.reading.read_parts import ReadParts
    from pypaimon.streaming.scanning.driver import ScanDriver
    from pypaimon.streaming.scanning.parts import ScanParts

T = TypeVar("T")


def resolve(table: StreamedTable, spec: StreamSpec, clock: Clock | None = None) -> ResolvedStream:
    """The stream of a table that a spec asks for.

    Makes no request. Members that depend on the table, or on the combination of settings, block while the table is not
    known, and raise the errors below. `scan_driver` and `read_parts` raise them at once if the table is known,
    otherwise in the first step.

    Raises:
        StreamConfigError: By a member: settings or table options contradict each other, or a column does not exist.
        UnsupportedTableError: By a member: the table, or one of its options, cannot be streamed.
        TableChangedError: By a member: the table is gone.
    """
    return ResolvedStream(table, spec, clock or Clock())


class ResolvedStream:
    """A stream of one table, made by `resolve`. Immutable. Pickling it blocks while the table is not known."""

    def __init__(self, table: StreamedTable, spec: StreamSpec, clock: Clock) -> None:
        self.table = table
        self.spec = spec
        self.clock = clock
        self._options: StreamOptions | None = None
        self._facts_directory: TableDirectory | None = None
        self._directory: TableDirectory | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ResolvedStream, (self.table, self.spec, self.clock)

    def with_spec(self, spec: StreamSpec) -> ResolvedStream:
        return ResolvedStream(self.table, spec, self.clock)

    def with_latest(self, latest: Snapshot | None, at: float) -> ResolvedStream:
        """The stream with the latest snapshot, with which it may begin; see `StreamedTable.with_latest`."""
        return ResolvedStream(self.table.with_latest(latest, at), self.spec, self.clock)

    # ---- the table ----

    @property
    def _facts(self) -> TableFacts:
        known = self.table.facts.known
        if known is not None:
            return known
        return self.table.facts.get(
            self._facts_directory or TableDirectory.of(self.table.followed, self.spec.io_timeout)
        )

    @property
    def schema(self) -> TableSchema:
        return self._facts.schema

    @property
    def traits(self) -> TableTraits:
        return self._facts.traits

    @property
    def identity(self) -> str:
        return self._facts.identity

    @property
    def fields(self) -> list[DataField]:
        """All columns of the table, or of the view."""
        return view_fields(self.schema, self.spec.view)

    def new_directory(self) -> TableDirectory:
        return TableDirectory.of(self.table.followed, self.spec.io_timeout, self.identity)

    @property
    def directory(self) -> TableDirectory:
        if self._directory is None:
            self._directory = self.new_directory()
        return self._directory

    # ---- the settings ----

    @property
    def options(self) -> StreamOptions:
        """The settings of the caller over the options of the table, checked."""
        if self._options is None:
            self._options = self._checked_options()
        return self._options

    @property
    def filter(self) -> Predicate | None:
        """The filter of the caller; without the partitions that the table's options choose."""
        given = self.spec.filter
        if given is None:
            return None
        from pypaimon.streaming.filtering.filter_expressions import filter_of

        return filter_of(given, self.fields)

    @property
    def includes_row_kind(self) -> bool:
        if self.spec.include_row_kind is not None:
            return self.spec.include_row_kind
        return self.traits.can_retract and self.spec.view is None

    @property
    def scope(self) -> ReadScope:
        return ReadScope.of(self.options, self.schema, self.spec.view)

    def outputs(self) -> tuple[Output, ...]:
        """The columns that come out, without `_row_kind`."""
        from pypaimon.streaming.reading.read_layout import layout

        return layout(self._read_settings()).outputs

    def output_fields(self) -> list[DataField]:
        """The columns that come out, without `_row_kind`, as fields of their own."""
        from pypaimon.streaming.reading.read_layout import layout

        found = layout(self._read_settings())
        return [DataField(each.ids[-1], each.name, found.given_out(each)) for each in found.outputs]

    def _checked_options(self) -> StreamOptions:
        spec, schema, traits = self.spec, self.schema, self.traits
        filter_ = self.check_columns()
        # A log has the row kind in a column of its own, as in Java.
        kinds = self.includes_row_kind and spec.view not in LOGS
        options = options_of_range(spec, spec.over(options_of_table(schema)), kinds=kinds)
        start = options.start
        if start.position is not None:
            start = replace(start, position=of_table(start.position, self.identity))
        of_streams = schema.options if options.between is None else {}
        filters = (chosen_partitions(schema), filter_)
        options = replace(
            options,
            start=start,
            predicate=conjunction([each for each in filters if each is not None]),
            read_overwrite=overwrite_policy(traits, of_streams, options.on_overwrite),
        )
        _refuse_combinations(options)
        if self.table.chain is not None:
            options = options_of_chain(self.table.handle, self.table.chain, schema, spec, options)
        refuse_unmergeable(traits, options.raw or options.between is not None)
        if spec.view == "ro" and traits.primary_key:
            raise UnsupportedTableError("Unsupported streaming scan for read optimized table with a primary key.")
        if options.predicate is not None and not options.compares_states:
            hides_kinds = spec.include_row_kind is False
            filtered = columns_of(options.predicate)
            refuse_hidden_deletes(schema, filtered, options.unmatched, raw=options.raw, hides_kinds=hides_kinds)
        return options

    def check_columns(self) -> Predicate | None:
        """The filter. Raises if it, the projection or the read type names a column that does not exist."""
        filter_, fields, read_type = self.filter, self.fields, self.spec.read_type
        names = {field.name for field in fields}
        check_names("with_filter", () if filter_ is None else columns_of(filter_), names)
        check_names("with_projection" if read_type is None else "with_read_type", self.spec.projection or (), names)
        check_types(read_type or (), fields)
        return filter_

    # ---- scans ----

    def scan_driver(self, commit: CommitMode | None = None) -> ScanDriver:
        """A driver of the plans.

        Args:
            commit: How its plans are confirmed; None: as the settings say.
        """
        from pypaimon.streaming.scanning.driver import ScanDriver

        return ScanDriver(self._deferred(lambda: self.scan_parts(commit)), self.spec.start, self.clock)

    def scan_parts(self, commit: CommitMode | None = None) -> ScanParts:
        """The parts of a scan. Blocks while the table is not known."""
        from pypaimon.streaming.scanning.parts import ScanParts

        options = self.options
        refuse_unshared_start(self.traits, options)
        options = replace(options, planned_for=self._row_selection())
        directory = self.new_directory()
        planner, progress = self.new_planner(directory, options), self.new_progress(directory, commit)
        return ScanParts(directory, planner, options, progress, self.clock, self.table.latest_at)

    def new_planner(
        self, directory: TableDirectory, options: StreamOptions, kept_units: KeptUnits | None = None
    ) -> Planner:
        from pypaimon.streaming.planning.planner import Planner

        columns = None if self.spec.projection is None else frozenset(self.spec.projection)
        clock, latest_at = self.clock, self.table.latest_at
        return Planner(
            directory,
            self.schema,
            options,
            columns,
            clock.time_millis,
            kept_units,
            self.table.latest,
            lambda: clock.monotonic() - latest_at,
        )

    def new_progress(self, directory: TableDirectory, commit: CommitMode | None = None) -> Progress | None:
        options, consumer = self.options, self.options.consumer
        if consumer is None:
            return None
        from pypaimon.streaming.consumers.consumer_manager import consumers_of
        from pypaimon.streaming.consumers.progress import Progress
        from pypaimon.streaming.consumers.shared_start_coordinator import StartSettings
        from pypaimon.streaming.metadata.history import SnapshotRangeValidator

        name = reader_name(
            consumer.consumer_id,
            shard=options.shard,
            member=consumer.member,
            some_buckets=options.bucket_filter is not None,
        )
        manager = consumers_of(directory)
        expiration = option_keys.CONSUMER_EXPIRATION_TIME.of(self.schema.options)
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
                rows_move=self.traits.rows_move,
            ),
            diagnosed=SnapshotRangeValidator(directory, with_changelogs=False).diagnosed,
        )

    # ---- reads ----

    def read_parts(self, *, batch: bool = False) -> Lazy[ReadParts]:
        return self._deferred(lambda: self._read_parts(batch))

    def _read_parts(self, batch: bool) -> ReadParts:
        from pypaimon.streaming.metadata.history import ReaderKind
        from pypaimon.streaming.reading.read_parts import ReadParts

        options = self.options
        hides_changes = self.spec.include_row_kind is False and self.traits.can_retract and not options.compares_states
        if hides_changes and not batch:
            text = "with_include_row_kind(False): deletes and old rows are given as plain rows"
            StreamLog.of(__name__, self.table.handle).warning("row_kinds_hidden", text)
        settings = replace(
            self._read_settings(),
            predicate=options.predicate,
            own_filter=self.filter,
            unmatched=options.unmatched,
            include_row_kind=self.includes_row_kind,
            reader=ReaderKind.BATCH if batch or options.between is not None else ReaderKind.STREAM,
        )
        directory = self.new_directory()
        directory.know(self._facts.newest)
        return ReadParts.of(directory, settings)

    def _read_settings(self) -> ReadSettings:
        from pypaimon.streaming.reading.read_layout import ReadSettings

        spec = self.spec
        return ReadSettings(
            schema=self.schema,
            projection=spec.projection,
            output_names=spec.output_names,
            nested=spec.read_type is not None,
            view=spec.view,
            blob_descriptors=spec.blob_descriptors,
            blob_places=spec.blob_places,
        )

    def _row_selection(self) -> RowSelection | None:
        spec = self.spec
        names, nested = (spec.projection, spec.output_names), spec.read_type is not None
        selection = RowSelection(self.schema.id, self.filter, spec.unmatched.value, *names, nested=nested)
        return None if selection.is_everything else selection

    def _deferred(self, make: Callable[[], T]) -> Lazy[T]:
        """A part of the stream: made at once if the table is known, otherwise by the first use."""
        made: Lazy[T] = Lazy(make)
        if self.table.facts.known is not None:
            made.get()
        elif self._facts_directory is None:
            # One for all attempts, so that hanging requests are counted together.
            self._facts_directory = TableDirectory.of(self.table.followed, self.spec.io_timeout)
        return made


def _refuse_combinations(options: StreamOptions) -> None:
    if options.shard is not None and options.bucket_filter is not None:
        raise StreamConfigError("a shard and chosen buckets (with_buckets, scan.bucket) cannot be combined; give one")
    if options.follow_up_scanner is not None and options.catch_up is CatchUp.NET:
        raise StreamConfigError(
            "with_catch_up('net') compares states and asks no follow-up scanner: leave it out, or "
            "with_follow_up_scanner(...)"
        )
