"""`TablesOfDatabase`: which tables a database has that are to be followed, and a stream of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.builder.assembly import identity_of
from pypaimon.streaming.builder.builder import StreamReadBuilder, builder_of_newest
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.errors import (
    CorruptTableError,
    NoDatabaseError,
    PaimonStreamError,
    UnsupportedTableError,
)
from pypaimon.streaming.internals import (
    DatabaseNotExistException,
    Identifier,
    TableNotExistException,
    TableSchema,
    is_filesystem_catalog,
    table_with_schema,
)
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.metadata.manifest_cache import ManifestCache
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.metadata.table_handle import FilesOnly, TableHandle
from pypaimon.streaming.options.start import Start, StartMode

Configure = Callable[[StreamReadBuilder], object]

_MOST_REQUESTS = 4
"""Of one table at the same time."""


@dataclass(frozen=True)
class TablesOfDatabase:
    """Tables by name, and how each is read.

    Attributes:
        catalog: pypaimon's.
        database: Name of the database.
        include: What a whole name must match; None: any.
        exclude: What it must not; None: nothing.
        start: Arguments of `with_start` for the tables that are there at the start; none: the options of each.
        configure: Called with the builder of each table, in this order.
        of_table: Likewise, by name of the table.
        manifests: Where manifests of all tables are kept, 64 MiB together.
    """

    catalog: Any
    database: str
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    start: Mapping[str, Any] = field(default_factory=dict)
    configure: tuple[Configure, ...] = ()
    of_table: Mapping[str, tuple[Configure, ...]] = field(default_factory=dict)
    manifests: ManifestCache = field(default_factory=ManifestCache)

    def names(self) -> set[str]:
        """The tables that there are now, of those that match. One listing.

        Raises:
            NoDatabaseError: There is no such database.
            StoreError: The store failed (retriable).
        """
        try:
            with translating(self.database):
                found = self.catalog.list_tables(self.database)
        except DatabaseNotExistException as error:
            raise NoDatabaseError(f"There is no database '{self.database}' in this catalog.") from error
        return {name for name in found if matches(name, self.include, self.exclude)}

    def builder(self, name: str) -> StreamReadBuilder | None:
        """The builder of a table, without its start; None: it is gone.

        Raises:
            UnsupportedTableError: It cannot be streamed.
            StreamConfigError: What `configure` asks for does not suit it.
            CorruptTableError: Its newest schema cannot be read.
            StoreError: The store failed (retriable).
        """
        found = self._found(name)
        if found is None:
            return None
        table, newest = found
        if not hasattr(table, "table_schema"):
            raise UnsupportedTableError(f"{name} is no table of Paimon's own: {type(table).__name__}.")
        TableDirectory.share(table, _MOST_REQUESTS, self.manifests)
        builder = builder_of_newest(table, newest).with_on_schema_change("follow")
        for each in (*self.configure, *self.of_table.get(name, ())):
            each(builder)
        # What it refuses is told before the table is said to be followed.
        builder.new_streaming_scan().close()
        return builder

    def _found(self, name: str) -> tuple[Any, TableSchema | None] | None:
        """A table and its newest schema, where that was read; None: there is none of this name.

        In a file system these are a listing and the schema: pypaimon's catalog takes four requests for them, and the
        builder would ask again.
        """
        identifier = Identifier.create(self.database, name)
        try:
            with translating(name):
                if not is_filesystem_catalog(self.catalog):
                    return self.catalog.get_table(f"{self.database}.{name}"), None
                path = self.catalog.get_table_path(identifier)
                handle = TableHandle.found(self.catalog.file_io, path, FilesOnly(identifier))
                if handle is None:
                    return None
                return table_with_schema(self.catalog, identifier, handle.table_schema), handle.newest
        except TableNotExistException:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            if isinstance(error, PaimonStreamError):
                raise
            raise CorruptTableError(f"{self.database}.{name}", f"its schema cannot be read: {error}") from error

    def begin(self, builder: StreamReadBuilder, place: TablePlace | None, *, is_new: bool) -> None:
        """Tell a builder where its stream begins.

        A table that came while others were followed already is read from its first row: from snapshot 1 on where
        changes were asked for and it is there still, else its state first.

        Args:
            builder: Of the table.
            place: Where an earlier stream stood in it; None: nowhere.
            is_new: Whether it came later.
        """
        if place is not None and place.position is not None:
            builder.with_start(position=place.position)
        elif is_new and (mode := self.start.get("mode")) and not Start(StartMode(mode)).has_state:
            earliest = TableDirectory.of(builder.table).snapshots.earliest_id()
            builder.with_start("earliest" if earliest in (None, 1) else "latest-full")
        elif self.start:
            builder.with_start(**self.start)

    def identity(self, builder: StreamReadBuilder) -> str:
        """Which table it is; see `TablePlace`."""
        return identity_of(builder)


def matches(name: str, include: re.Pattern[str] | None, exclude: re.Pattern[str] | None) -> bool:
    """Whether the whole name of a table matches what is to be followed."""
    is_in = include is None or include.fullmatch(name) is not None
    return is_in and (exclude is None or exclude.fullmatch(name) is None)


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Raise what a store comes to as our error, of `what`: pypaimon's catalogs give what their client of it raises."""
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
