"""`stream_database` and `DatabaseStreamBuilder`: settings of a stream of all tables of a database."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Literal

from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.copy_start import configure_for_copy
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.engine import DatabaseEngine
from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.databases.jobs import EngineSettings, OnTableError
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.stream import BlockingDatabaseStream, DatabaseStream, OnEvent
from pypaimon.streaming.databases.tables_of_database import Configure, TablesOfDatabase, matches
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.arguments import a_catalog, a_name, at_least, choice, finite_seconds
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_BYTES, DEFAULT_READ_AHEAD_BYTES


class _Start(Enum):
    LATEST_FULL = "latest-full"
    LATEST = "latest"
    EARLIEST = "earliest"


def stream_database(
    catalog: Any, database: str, include: str | None = None, exclude: str | None = None
) -> DatabaseStreamBuilder:
    """A builder of a stream of all tables of a database, those that come later too. Asks for nothing.

    Args:
        catalog: pypaimon's catalog.
        database: Name of the database.
        include: A regular expression that the whole name of a table must match; None: any.
        exclude: One that it must not match; None: nothing.

    Raises:
        StreamConfigError: An expression is none.
    """
    a_catalog("stream_database: catalog", catalog)
    a_name("stream_database: database", database)
    return DatabaseStreamBuilder(catalog, database, _pattern("include", include), _pattern("exclude", exclude))


class DatabaseStreamBuilder:
    """Settings of a stream of a database. Setters change the builder and return it; made by `stream_database`.

    Args:
        catalog: pypaimon's catalog.
        database: Name of the database.
        include: See `stream_database`.
        exclude: See `stream_database`.
        clock: Where time comes from.
    """

    def __init__(
        self,
        catalog: Any,
        database: str,
        include: re.Pattern[str] | None = None,
        exclude: re.Pattern[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._catalog = catalog
        self._database = database
        self._include = include
        self._exclude = exclude
        self._clock = clock or Clock()
        self._start: dict[str, Any] = {}
        self._configure: tuple[Configure, ...] = ()
        self._of_table: dict[str, tuple[Configure, ...]] = {}
        self._position: DatabasePosition | None = None
        self._has_consumer = False
        self._is_bounded = False
        self._discovery_seconds = 60.0
        self._on_table_error = OnTableError.PARK
        self._on_event: OnEvent | None = None

    def with_start(
        self,
        mode: Literal["latest-full", "latest", "earliest"] | None = None,
        *,
        timestamp: datetime | str | int | None = None,
    ) -> DatabaseStreamBuilder:
        """Where the stream begins in the tables that are there when it is opened; else as each says.

        A table that comes later is read from its first row.

        Args:
            mode: As `StreamReadBuilder.with_start`.
            timestamp: Likewise.

        Raises:
            StreamConfigError: Neither or both are given.
        """
        if (mode is None) == (timestamp is None):
            raise StreamConfigError("with_start of a database: give a mode, or a timestamp")
        if mode is not None:
            choice(_Start, "with_start of a database", mode)
        self._start = {"mode": mode} if mode is not None else {"timestamp": timestamp}
        return self

    def with_position(self, position: DatabasePosition | str) -> DatabaseStreamBuilder:
        """Go on where a stream of this database stood: `stream.position`, or its JSON.

        Tables that it does not know are read from their first row; those that were renamed go on, those that were
        dropped or made anew are told.

        Raises:
            StreamConfigError: It is none, or of another database.
        """
        found = position if isinstance(position, DatabasePosition) else DatabasePosition.from_json(position)
        if found.database != self._database:
            raise StreamConfigError(
                f"with_position: a position of database '{found.database}' is none of '{self._database}'"
            )
        self._position = found
        return self

    def with_end(self, *, latest: bool = False, timestamp: datetime | str | int | None = None) -> DatabaseStreamBuilder:
        """Where the stream ends, table by table, as `StreamReadBuilder.with_end`. Later tables are not read."""
        self._is_bounded = True
        return self.for_each(lambda builder: builder.with_end(latest=latest, timestamp=timestamp))

    def with_consumer_id(
        self, consumer_id: str, *, commit: Literal["auto", "manual"] = "auto"
    ) -> DatabaseStreamBuilder:
        """Save progress under this id in each table; see `StreamReadBuilder.with_consumer_id`."""
        self._has_consumer = True
        return self.for_each(lambda builder: builder.with_consumer_id(consumer_id, commit=commit))

    def with_poll_interval_ms(self, milliseconds: int) -> DatabaseStreamBuilder:
        """The least time between two looks for new snapshots of a table.

        A table that was quiet for long is looked at less often: after an eighth of that time, at most 30 s.
        """
        return self.for_each(lambda builder: builder.with_poll_interval_ms(milliseconds))

    def with_discovery_interval(self, seconds: float) -> DatabaseStreamBuilder:
        """Seconds between two looks at which tables there are; 60 without this."""
        self._discovery_seconds = finite_seconds("with_discovery_interval", seconds, above_zero=True)
        return self

    def with_on_table_error(self, policy: Literal["park", "raise"]) -> DatabaseStreamBuilder:
        """What becomes of a table that meets an error which does not pass.

        Args:
            policy: `"park"`: it is not read any more, told as `TableFailed`, and all others go on; `"raise"`: the
                stream raises it.
        """
        self._on_table_error = choice(OnTableError, "with_on_table_error", policy)
        return self

    def on_event(self, call: OnEvent) -> DatabaseStreamBuilder:
        """Have something called with each event, by the one who asks for the next batch, before the batch it concerns.

        If it raises, the same event comes again. For `open()` it may be a coroutine function.
        """
        self._on_event = call
        return self

    def for_each(self, configure: Callable[[StreamReadBuilder], object]) -> DatabaseStreamBuilder:
        """Have something called with the builder of each table before it is opened, on another thread."""
        self._configure = (*self._configure, configure)
        return self

    def for_table(self, name: str, configure: Callable[[StreamReadBuilder], object]) -> DatabaseStreamBuilder:
        """The same for one table: `stream.for_table("orders", lambda builder: builder.with_filter("amount > 3"))`."""
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
            read_ahead_bytes: Reading ahead pauses while so many bytes of rows wait, of all tables together.
            batch_bytes: A plan with more bytes of rows comes as several batches.

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

    def _for_copy(self, position: DatabasePosition, on_event: OnEvent) -> DatabaseStreamBuilder:
        """Another builder, whose stream begins where a copy stands, and with the state of what that does not hold.

        Args:
            position: Where it stands. Tables of it that do not match are passed over.
            on_event: Called before what the builder calls with each event.
        """
        told = self._on_event

        def tell(event: DatabaseEvent) -> None:
            on_event(event)
            if told is not None:
                told(event)

        tables = {name: place for name, place in position.tables.items() if matches(name, self._include, self._exclude)}
        held = DatabasePosition(position.database, tables)
        copied = self.copy().with_start("latest-full").with_position(held).on_event(tell).for_each(configure_for_copy)
        for name in self._of_table:
            copied.for_table(name, configure_for_copy)
        return copied

    def _engine(self, read_ahead_bytes: int, batch_bytes: int) -> DatabaseEngine:
        if self._has_consumer and self._position is None and self._start.get("mode", "latest-full") != "latest-full":
            raise StreamConfigError(
                "with_consumer_id and a start of changes: of a table that was made while nobody read, nothing tells "
                "that it is new.",
                advice="Leave with_start(...) out, or save stream.position and give it to with_position(...).",
                option="with_position",
            )
        tables = TablesOfDatabase(
            self._catalog,
            self._database,
            self._include,
            self._exclude,
            self._start,
            self._configure,
            self._of_table,
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


def _pattern(name: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise StreamConfigError(f"{name}={text!r}: no regular expression: {error}") from error
