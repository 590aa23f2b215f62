"""`TablesOfDatabase`: the tables of a database that match, and a stream of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.errors import (
    CorruptTableError,
    NoDatabaseError,
    PaimonStreamError,
    StreamConfigError,
    UnsupportedTableError,
)
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.manifest_cache import ManifestCache
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.metadata.table_handle import FilesOnly, TableHandle
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import (
    DatabaseNotExistException,
    Identifier,
    TableNotExistException,
    TableSchema,
    is_filesystem_catalog,
    table_names,
    table_with_schema,
)
from pypaimon.streaming.read_builder import StreamReadBuilder, builder_of_newest
from pypaimon.streaming.spec.openers import OpenedChunks, open_chunks
from pypaimon.streaming.spec.spec_builder import resolved

Configure = Callable[[StreamReadBuilder], object]

_MOST_REQUESTS = 4
"""Requests of one table at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedTable:
    """A table that was opened and is not read yet.

    Attributes:
        builder: The settings of its stream, without a start.
        identity: The identity of the table; see `TablePosition`.
        batch_bytes: Of a chunk, as for `ChunkReader`.
        at: The time before the first request.
        chunks: Its stream, for a start by the options of the table.
        latest: The latest snapshot, if it was read.
    """

    builder: StreamReadBuilder
    identity: str
    batch_bytes: int
    at: float
    chunks: OpenedChunks
    latest: Snapshot | None = None

    def close(self) -> None:
        """Release the stream if it is not used."""
        self.chunks[0].close()


@dataclass(frozen=True)
class TablesOfDatabase:
    """The tables of a database by name, and how each is read.

    Attributes:
        catalog: pypaimon's catalog.
        database: Name of the database.
        include: Whole names must match this pattern, if given.
        exclude: Whole names must not match this pattern, if given.
        start: Arguments of `with_start` for tables that exist at the start; empty: by the options of each table.
        configure: Called with the builder of each table, in this order.
        of_table: The same for single tables, by name.
        has_position: Whether a position of an earlier stream says which tables that stream knew.
        manifests: The cache of manifests of all tables, 64 MiB together.
    """

    catalog: Any
    database: str
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    start: Mapping[str, Any] = field(default_factory=dict)
    configure: tuple[Configure, ...] = ()
    of_table: Mapping[str, tuple[Configure, ...]] = field(default_factory=dict)
    has_position: bool = False
    manifests: ManifestCache = field(default_factory=ManifestCache)

    def names(self) -> set[str]:
        """The names of the matching tables that exist now. One listing.

        Raises:
            NoDatabaseError: The database does not exist.
            StoreError: The store failed (retriable).
        """
        try:
            with translating(self.database):
                found = table_names(self.catalog, self.database)
        except DatabaseNotExistException as error:
            raise NoDatabaseError(f"There is no database '{self.database}' in this catalog.") from error
        return {name for name in found if matches(name, self.include, self.exclude)}

    def open(
        self,
        name: str,
        batch_bytes: int,
        monotonic: Callable[[], float],
        place: TablePosition | None = None,
        *,
        is_followed: bool = False,
    ) -> OpenedTable | None:
        """Open a table, without a start; None if it does not exist.

        Args:
            name: Name of the table.
            batch_bytes: Of a chunk, as for `ChunkReader`.
            monotonic: Seconds of a clock that never goes back.
            place: Where an earlier stream of this table stopped, if there was one.
            is_followed: Whether the table is followed already, and probably continues. Otherwise the latest snapshot is
                read too, with which a stream probably begins.

        Raises:
            UnsupportedTableError: The table cannot be streamed.
            StreamConfigError: What `configure` sets does not suit the table.
            CorruptTableError: The newest schema cannot be read.
            StoreError: The store failed (retriable).
        """
        opened_at = monotonic()
        found = self._found(name, not is_followed and self._begins_with_latest(place))
        if found is None:
            return None
        table, newest, latest = found
        if not hasattr(table, "table_schema"):
            raise UnsupportedTableError(f"{name} is not a Paimon table, but a {type(table).__name__}.")
        builder = builder_of_newest(table, newest).with_on_schema_change("follow")
        for each in (*self.configure, *self.of_table.get(name, ())):
            each(builder)
        # Made now, because what it refuses must be raised before `TableAdded`.
        stream = resolved(builder).with_latest(latest, opened_at)
        chunks = open_chunks(stream, batch_bytes)
        consumer, start = stream.options.consumer, self._options_without_position(builder).start
        is_found_anew = start.stands_when_empty and not start.has_state
        if consumer is not None and not consumer.ignore_progress and is_found_anew and not self.has_position:
            chunks[0].close()
            raise later_tables_unknown()
        return OpenedTable(builder, stream.identity, batch_bytes, opened_at, chunks, latest)

    def _begins_with_latest(self, place: TablePosition | None) -> bool:
        """Whether a stream begins with the latest snapshot, or probably after it. Options of a table may differ."""
        if place is not None:
            return place.position is not None
        mode = self.start.get("mode")
        return not self.start or (mode is not None and Start(StartMode(mode)).is_latest_state)

    def _found(self, name: str, with_latest: bool) -> tuple[ReadableTable, TableSchema | None, Snapshot | None] | None:
        """A table with its newest schema and latest snapshot, as far as these were read; None if it does not exist."""
        identifier = Identifier.create(self.database, name)
        try:
            with translating(name):
                # A table of a file system is opened below, with a listing and its schema: pypaimon's catalog
                # takes four requests for that, and the builder would ask for the schema again.
                if not is_filesystem_catalog(self.catalog):
                    table = self.catalog.get_table(f"{self.database}.{name}")
                    self._limit(table)
                    return table, None, None
                path = self.catalog.get_table_path(identifier)
                handle = TableHandle.found(
                    self.catalog.file_io, path, FilesOnly(identifier), with_latest=with_latest, prepare=self._limit
                )
                if handle is None:
                    return None
                table = table_with_schema(self.catalog, identifier, handle.table_schema)
                TableDirectory.pass_on(handle, table)
                return table, handle.newest, handle.latest
        except TableNotExistException:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            if isinstance(error, PaimonStreamError):
                raise
            raise CorruptTableError(f"{self.database}.{name}", f"its schema cannot be read: {error}") from error

    def _limit(self, table: ReadableTable) -> None:
        TableDirectory.share(table, _MOST_REQUESTS, self.manifests)

    def begin(self, opened: OpenedTable, place: TablePosition | None, *, is_new: bool) -> OpenedChunks:
        """The stream of a table from its start.

        A table that appeared while others were already followed is read from its first row, whichever start was given
        for all tables, by `configure` or by its own options: from snapshot 1 if changes were asked for and snapshot 1
        still exists, otherwise its state first.

        Args:
            opened: The table.
            place: Where an earlier stream of this table stopped, if there was one.
            is_new: Whether the table appeared while others were followed.
        """
        builder = opened.builder
        if place is not None and place.position is not None:
            builder.with_start(position=place.position)
        elif is_new and _leaves_out_rows(self._options_without_position(builder)):
            with_changelogs = resolved(builder).traits.decoupled_changelog
            earliest = SnapshotRangeValidator(TableDirectory.of(builder.table), with_changelogs).earliest_id()
            builder.with_start("earliest" if earliest in (None, 1) else "latest-full")
        elif self.start:
            builder.with_start(**self.start)
        else:
            return opened.chunks
        opened.close()
        return open_chunks(resolved(builder).with_latest(opened.latest, opened.at), opened.batch_bytes)

    def _options_without_position(self, builder: StreamReadBuilder) -> StreamOptions:
        """The settings of the stream of a table: its start is that of all tables, or else as its builder says."""
        return resolved(builder.copy().with_start(**self.start) if self.start else builder).options


def _leaves_out_rows(options: StreamOptions) -> bool:
    # A position of this table, and a range, say by themselves which rows are wanted.
    return not options.start.has_state and options.start.position is None and options.between is None


def later_tables_unknown() -> StreamConfigError:
    """The error for a consumer id and a start of changes without a position of the database."""
    return StreamConfigError(
        "with_consumer_id cannot be combined with a start at changes: a table that was created while nobody "
        "was reading would not be recognised as new.",
        advice="Leave out with_start(...) and the option scan.mode, or save stream.position and give it to "
        "with_start(position=...).",
        option="with_start of a database",
    )


def matches(name: str, include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> bool:
    """Whether a table name matches `include` and does not match `exclude`."""
    is_in = include is None or include.fullmatch(name) is not None
    return is_in and (exclude is None or exclude.fullmatch(name) is None)


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Translate errors of a store, which pypaimon's catalogs raise as their client does, to errors of this package."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        found = None if cause is None else translated(what, cause)
        if found is None or isinstance(found, FileNotFoundError):
            raise
        raise found from error
