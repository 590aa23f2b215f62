"""`database_stream_builder` and `DatabaseStreamBuilder`: the settings of a stream of all tables of a database."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, ClassVar, Literal

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.engine import DatabaseEngine
from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.databases.jobs import EngineSettings, OnTableError
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.stream import BlockingDatabaseStream, DatabaseStream, OnEvent
from pypaimon.streaming.databases.tables_of_database import (
    Configure,
    TablesOfDatabase,
    later_tables_unknown,
    matches,
)
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.former_names import FormerNames
from pypaimon.streaming.html_tables import html_fields
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.options.arguments import (
    a_catalog,
    a_name,
    at_least,
    choice,
    did_you_mean,
    finite_seconds,
    nearest,
)
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_BYTES, DEFAULT_READ_AHEAD_BYTES
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.copy_start import spec_for_copy
from pypaimon.streaming.spec.spec_builder import resolved, set_spec

_LOG = StreamLog(__name__)


class _Start(Enum):
    LATEST_FULL = "latest-full"
    LATEST = "latest"
    EARLIEST = "earliest"


def database_stream_builder(
    catalog: Any, database: str, include: str | None = None, exclude: str | None = None
) -> DatabaseStreamBuilder:
    """A builder of a stream of all tables of a database, including tables that are created later. No IO.

    Args:
        catalog: pypaimon's catalog.
        database: Name of the database.
        include: A regular expression that whole table names must match; None: all tables.
        exclude: A regular expression that whole table names must not match; None: no table is excluded.

    Raises:
        StreamConfigError: Invalid regular expression.
    """
    a_catalog("database_stream_builder: catalog", catalog)
    a_name("database_stream_builder: database", database)
    return DatabaseStreamBuilder(catalog, database, _pattern("include", include), _pattern("exclude", exclude))


class DatabaseStreamBuilder(FormerNames):
    """Settings of a stream of a database, made by `database_stream_builder`.

    Setters change the builder and return it.
    """

    _former_names: ClassVar = {
        "for_each": "with_each_table",
        "for_table": "with_table",
        "on_event": "with_on_event",
        "with_position": "_with_position",
    }

    def __init__(
        self,
        catalog: Any,
        database: str,
        include: re.Pattern[str] | None = None,
        exclude: re.Pattern[str] | None = None,
    ) -> None:
        self._catalog = catalog
        self._database = database
        self._include = include
        self._exclude = exclude
        self._clock = Clock()
        self._start: dict[str, Any] = {}
        self._configure: tuple[Configure, ...] = ()
        self._of_table: dict[str, tuple[Configure, ...]] = {}
        self._position: DatabasePosition | None = None
        self._has_consumer = False
        self._is_bounded = False
        self._discovery_seconds = 60.0
        self._on_table_error = OnTableError.PARK
        self._on_event: OnEvent | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database})"

    def _repr_html_(self) -> str:
        tables = {"include": self._include, "exclude": self._exclude}
        chosen = {name: each.pattern for name, each in tables.items() if each is not None}
        return html_fields(repr(self), {**chosen, **{f"start: {name}": each for name, each in self._start.items()}})

    def with_start(
        self,
        mode: Literal["latest-full", "latest", "earliest"] | None = None,
        *,
        timestamp: datetime | str | int | None = None,
        position: DatabasePosition | str | None = None,
    ) -> DatabaseStreamBuilder:
        """Where the stream begins in tables that exist when it is opened; the default is set by the table's options.

        A table that is created later is read from its first row, and with a position so is each table that it lacks.
        Renamed tables continue. Events report tables that were renamed, dropped or re-created.

        Args:
            mode: See `StreamReadBuilder.with_start`.
            timestamp: See `StreamReadBuilder.with_start`.
            position: Continue at the position of an earlier stream of this database: `stream.position`, or its JSON. A
                mode or a timestamp then applies to those of its tables that had not been read.

        Raises:
            StreamConfigError: Nothing is given, or both a mode and a timestamp. The position is invalid, or belongs to
                another database.
        """
        if mode is not None and timestamp is not None or (mode is timestamp is position is None):
            raise StreamConfigError("with_start of a database: give a mode or a timestamp, or a position")
        if mode is not None:
            choice(_Start, "with_start of a database", mode)
        if mode is not None or timestamp is not None:
            self._start = {"mode": mode} if mode is not None else {"timestamp": timestamp}
        if position is not None:
            self._position = self._own(position)
        return self

    def with_end(
        self,
        mode: Literal["latest"] | None = None,
        *,
        latest: bool = False,
        timestamp: datetime | str | int | None = None,
    ) -> DatabaseStreamBuilder:
        """Where the stream of each table ends; see `StreamReadBuilder.with_end`. Later tables are not read."""
        self._is_bounded = True
        return self.with_each_table(lambda builder: builder.with_end(mode, latest=latest, timestamp=timestamp))

    def with_consumer_id(
        self, consumer_id: str, *, commit: Literal["auto", "manual"] = "auto"
    ) -> DatabaseStreamBuilder:
        """Save progress under this id in each table; see `StreamReadBuilder.with_consumer_id`."""
        self._has_consumer = True
        return self.with_each_table(lambda builder: builder.with_consumer_id(consumer_id, commit=commit))

    def with_poll_interval_ms(self, poll_interval_ms: int) -> DatabaseStreamBuilder:
        """The least time between two polls of a table.

        A table that was quiet for long is polled less often: after an eighth of that time, at most 30 s.
        """
        return self.with_each_table(lambda builder: builder.with_poll_interval_ms(poll_interval_ms))

    def with_discovery_interval(self, interval: float | timedelta) -> DatabaseStreamBuilder:
        """Set the time between two listings of the tables; the default is a minute."""
        self._discovery_seconds = finite_seconds("with_discovery_interval", interval, above_zero=True)
        return self

    def with_on_table_error(self, policy: Literal["park", "raise"]) -> DatabaseStreamBuilder:
        """What happens to a table after an error that will not pass.

        Args:
            policy: `"park"`: the table is no longer read, a `TableFailed` event reports the error, and the other tables
                continue. `"raise"`: the stream raises the error.
        """
        self._on_table_error = choice(OnTableError, "with_on_table_error", policy)
        return self

    def _with_position(self, position: DatabasePosition | str) -> DatabaseStreamBuilder:
        return self.with_start(position=position)

    def with_on_event(self, call: OnEvent) -> DatabaseStreamBuilder:
        """Call a function with each event, before the batch that the event concerns.

        It runs on the thread that asks for the next batch. If it raises, the same event comes again. For `open()` it
        may be a coroutine function.
        """
        self._on_event = call
        return self

    def with_each_table(self, configure: Callable[[StreamReadBuilder], object]) -> DatabaseStreamBuilder:
        """Call a function with the builder of each table, on another thread, before the table is opened."""
        self._configure = (*self._configure, configure)
        return self

    def with_table(self, name: str, configure: Callable[[StreamReadBuilder], object]) -> DatabaseStreamBuilder:
        """As `with_each_table`, for one table:

        `stream.with_table("orders", lambda builder: builder.with_filter("amount > 3"))`."""
        self._of_table = {**self._of_table, name: (*self._of_table.get(name, ()), configure)}
        return self

    def copy(self) -> DatabaseStreamBuilder:
        """Another builder with the same settings."""
        return copy.copy(self)

    def open(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> DatabaseStream:
        """The rows of all tables, for `async with` and `async for`.

        Args:
            read_ahead_bytes: Reading ahead pauses while this many bytes of rows are buffered, of all tables together.
            batch_bytes: A plan with more bytes of rows, or more than 64 record batches (a small file is one), comes as
                several batches.

        Raises:
            StreamConfigError: Settings contradict each other.
        """
        return DatabaseStream(self._database, self._engine(read_ahead_bytes, batch_bytes), self._on_event, self._clock)

    def open_sync(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> BlockingDatabaseStream:
        """As `open`, for a plain `with` and `for`."""
        engine = self._engine(read_ahead_bytes, batch_bytes)
        return BlockingDatabaseStream(self._database, engine, self._on_event, self._clock)

    def _own(self, position: DatabasePosition | str) -> DatabasePosition:
        found = position if isinstance(position, DatabasePosition) else DatabasePosition.from_json(position)
        if found.database != self._database:
            raise StreamConfigError(
                f"with_start: position: it belongs to database '{found.database}', not '{self._database}'"
            )
        return found

    def _engine(self, read_ahead_bytes: int, batch_bytes: int) -> DatabaseEngine:
        if self._has_consumer and self._position is None and self._start.get("mode", "latest-full") != "latest-full":
            raise later_tables_unknown()
        tables = TablesOfDatabase(
            self._catalog,
            self._database,
            self._include,
            self._exclude,
            self._start,
            self._configure,
            self._of_table,
            has_position=self._position is not None,
        )
        settings = EngineSettings(
            self._discovery_seconds,
            at_least(0, "open: read_ahead_bytes", read_ahead_bytes),
            at_least(1, "open: batch_bytes", batch_bytes),
            self._on_table_error,
            self._is_bounded,
            None if self._position is None else dict(self._position.tables),
        )
        return DatabaseEngine(tables, settings, self._clock)


def builder_for_copy(
    builder: DatabaseStreamBuilder, position: DatabasePosition, on_event: OnEvent
) -> DatabaseStreamBuilder:
    """A builder of the stream for a copy: from the copy's position, and with the state of tables that it lacks.

    Args:
        builder: How the database is read.
        position: The position of the copy. Tables of it that do not match are ignored.
        on_event: Called with each event, before the function of the builder.
    """
    of_user, include, exclude = builder._on_event, builder._include, builder._exclude

    def on_each(event: DatabaseEvent) -> None:
        on_event(event)
        if of_user is not None:
            of_user(event)

    tables = {name: place for name, place in position.tables.items() if matches(name, include, exclude)}
    held = DatabasePosition(position.database, tables)
    copied = builder.copy().with_start("latest-full", position=held).with_on_event(on_each)
    copied.with_each_table(_configure_for_copy)
    for name in builder._of_table:
        copied.with_table(name, _configure_for_copy)
    return copied


def check_named_tables(
    builder: DatabaseStreamBuilder, named: Mapping[str, Iterable[str]], copied: Collection[str]
) -> None:
    """Check that the tables for which there are settings of their own are those of a copy. At most one listing.

    A table may still be created while its database is followed. If there is none of a name by then, it is logged.

    Args:
        builder: How the database is read.
        named: Names of tables, by the argument that names them.
        copied: The tables of the copy so far, some of which may have been dropped.

    Raises:
        StreamConfigError: A table is left out by `include` or `exclude`. Or it does not exist, and tables that are
            created later are not copied.
        NoDatabaseError: The database does not exist.
        StoreError: The store failed (retriable).
    """
    include, exclude = builder._include, builder._exclude
    known: set[str] | None = None
    for argument, names in named.items():
        for name in names:
            if not matches(name, include, exclude):
                raise StreamConfigError(f"{argument}: table {name!r} is left out by include or exclude.")
            if known is None:
                known = {*TablesOfDatabase(builder._catalog, builder._database).names(), *copied}
            if name in known:
                continue
            found = {"argument": argument, "named": name, "database": builder._database}
            text = "%(argument)s: there is no table '%(named)s' in %(database)s." + did_you_mean(nearest(name, known))
            if builder._is_bounded:
                raise StreamConfigError(text % found)
            _LOG.warning("named_table_missing", text, **found)


def _configure_for_copy(builder: StreamReadBuilder) -> None:
    """Change a builder to one of an empty copy. Its start may still be set."""
    set_spec(builder, spec_for_copy(resolved(builder), None))


def _pattern(name: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    if name == "include" and "$branch_" in text:
        raise StreamConfigError(
            f"{name}={text!r}: a database lists tables, not their branches: read a branch by its name, as a table."
        )
    try:
        return re.compile(text)
    except re.error as error:
        raise StreamConfigError(f"{name}={text!r}: invalid regular expression: {error}") from error
