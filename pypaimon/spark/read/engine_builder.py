"""`EngineReadBuilder`: the stream's builder for an engine that keeps positions itself and reads in other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pypaimon.spark.options.tables import load_stream_table
from pypaimon.spark.read.time_travel import snapshot_of_version
from pypaimon.streaming.builder.assembly import StreamAssembly, followed, read_parts
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.metadata.table_handle import TableHandle
from pypaimon.streaming.options.between import Between
from pypaimon.streaming.options.end import End
from pypaimon.streaming.options.stream_options import Limits, StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.options.views import View, fields
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import DataField, TableSchema

if TYPE_CHECKING:
    from pypaimon.spark.options.source_options import SourceOptions
    from pypaimon.streaming.consumers.progress import Progress
    from pypaimon.streaming.planning.planned_units import KeptUnits
    from pypaimon.streaming.planning.planner import Planner
    from pypaimon.streaming.reading.read import StreamRead
    from pypaimon.streaming.scanning.lag import LagMeter


@contextmanager
def _option(name: str) -> Iterator[None]:
    """Prefix errors with the option that they are about."""
    try:
        yield
    except StreamConfigError as error:
        raise StreamConfigError(f"Option '{name}': {error}") from error


class EngineReadBuilder(StreamAssembly):
    """The settings of a stream, and the parts below its scans and reads. Each process imports only what it needs.

    Args:
        table: pypaimon's table.
        view: A view of it, or None.
        schema_id: The schema to read with; None: the table's latest.
        newest: The table's latest schema, where that was read just now.
    """

    def __init__(
        self,
        table: ReadableTable,
        view: View | None = None,
        schema_id: int | None = None,
        newest: TableSchema | None = None,
    ) -> None:
        super().__init__(table, view, newest=newest)
        self._batch = False
        if schema_id is not None and schema_id != self._schema.id:
            schema = self.directory.reading_schema(schema_id)
            self._facts = Lazy.of(replace(self._table_facts, schema=schema, traits=TableTraits.of(schema)))

    @staticmethod
    def of(
        options: SourceOptions, columns: Sequence[str] | None = None, schema_id: int | None = None
    ) -> EngineReadBuilder:
        """The builder that a source's options ask for.

        Args:
            options: The options.
            columns: Columns to read instead of those of the options. All columns of the table count as no projection.
            schema_id: The schema to read with; None: that of the version that the options name, else the latest one.

        Raises:
            PaimonStreamError: The table cannot be read so.
        """
        table, view = load_stream_table(options)
        if schema_id is None and options.version is not None:
            schema_id = snapshot_of_version(TableDirectory.of(table), *options.version).schema_id
        newest = table.newest if isinstance(table, TableHandle) else None
        builder = EngineReadBuilder(table, view, schema_id, newest)
        everything = fields(builder.schema, view)
        names = options.columns if columns is None else tuple(columns)
        if names is not None and names != tuple(field.name for field in everything):
            with _option("columns"):
                builder.with_projection(names)
        if options.filter is not None:
            from pypaimon.streaming.filtering.filter_text import parse_filter

            with _option("filter"):
                builder.with_filter(parse_filter(options.filter, everything), unmatched=options.unmatched)
        consumer_id = options.table_options.get("consumer-id")
        if consumer_id is not None:
            with _option("consumer-id"):
                reader_name(consumer_id)
        if options.blob_places is not None:
            with _option("blob-places"):
                builder.with_blob_places(options.blob_places)
        if options.include_row_kind is not None:
            builder.with_include_row_kind(options.include_row_kind)
        if options.raw:
            builder.with_raw(True)
        if options.start is not None:
            with _option("start"):
                builder.with_start(options.start)
        if options.start_tag is not None:
            builder.with_start(tag=options.start_tag, full=options.start_full)
        if options.on_overwrite is not None:
            with _option("on-overwrite"):
                builder.with_on_overwrite(options.on_overwrite)
        if options.include_snapshot_id:
            builder.with_catch_up("replay")
        builder.with_on_expired("fail" if options.fail_on_data_loss else "earliest")
        return builder

    def with_range(self, between: Between) -> EngineReadBuilder:
        """Read a range that options name, as `between` does."""
        self._given = replace(self._given, between=between)
        return self

    @cached_property
    def directory(self) -> TableDirectory:
        """The table's files, as all planners of this builder know them."""
        return self._directory()

    def refuse_chain(self, what: str) -> None:
        """Refuse what reads the snapshots of one branch alone.

        Args:
            what: What it is, for the error.

        Raises:
            UnsupportedTableError: The table is a chain table.
        """
        if self._chain is not None:
            name = f"{self.table.identifier.get_database_name()}.{self.table.identifier.get_table_name()}"
            raise UnsupportedTableError(
                f"The chain table {name} cannot be read so: {what} are of one branch. Load "
                f"'{name}$branch_{self._chain.delta}' or '{name}$branch_{self._chain.snapshot}', or read a stream."
            )

    @property
    def schema(self) -> TableSchema:
        """The schema that is read with."""
        return self._schema

    @property
    def traits(self) -> TableTraits:
        """The table's kind."""
        return self._traits

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        return self._clock

    @property
    def includes_row_kind(self) -> bool:
        """Whether `_row_kind` comes out."""
        return self._includes_row_kind()

    @property
    def options(self) -> StreamOptions:
        """The stream's settings, checked."""
        options = self._options()
        self._check_read(options)
        return options

    def output_fields(self) -> list[DataField]:
        """The columns that come out, without `_row_kind`."""
        from pypaimon.streaming.reading.read_layout import ReadSettings, layout

        settings = ReadSettings(schema=self._schema, projection=self._projection, view=self._view)
        return [DataField(each.ids[-1], each.name, each.type) for each in layout(settings).outputs]

    def new_read(self, *, batch: bool = False) -> StreamRead:
        """What reads splits, with the settings as they are now.

        Args:
            batch: They are of a batch read: a state has no deletes, and of a range all comes that was asked for.
        """
        from pypaimon.streaming.reading.read import StreamRead

        self._batch = batch
        return StreamRead(followed(self), self._given.io_timeout, read_parts(self))

    def _hides_changes(self, options: StreamOptions) -> bool:
        return not self._batch and super()._hides_changes(options)

    def new_planner(
        self,
        limits: Limits | None = None,
        last_snapshot: int | None = None,
        kept_units: KeptUnits | None = None,
    ) -> Planner:
        """The state machine by itself.

        Args:
            limits: Of each of its plans.
            last_snapshot: Nothing is planned beyond this snapshot.
            kept_units: Shared with the planners of this builder that have other limits.
        """
        from pypaimon.streaming.planning.planner import Planner

        options = replace(self.options, limits=limits or Limits())
        if last_snapshot is not None:
            options = replace(options, end=End(snapshot_id=last_snapshot))
        columns, clock = self._read_columns(), self._clock
        return Planner(self.directory, self._schema, options, columns, clock.time_millis, kept_units)

    def new_lag_meter(self) -> LagMeter:
        """What measures the lag of a planner's state."""
        from pypaimon.streaming.scanning.lag import LagMeter

        return LagMeter(self.directory, self.new_planner(), self._clock)

    def new_progress(self) -> Progress | None:
        """The progress of the consumer id; None without one."""
        options = self.options
        with _option("consumer-id"):
            return self._progress(options, self.directory)
