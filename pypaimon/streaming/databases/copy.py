"""`copy_database`: keeps a copy of all tables of a database; `DatabaseTarget`: the protocol of its targets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from pypaimon.streaming.concurrency.threads_to_asyncio import finish_on_thread
from pypaimon.streaming.databases.builder import (
    DatabaseStreamBuilder,
    builder_for_copy,
    check_named_tables,
    database_stream_builder,
)
from pypaimon.streaming.databases.events import DatabaseEvent, TableAdded, TableDropped, TableRenamed
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.stream import BlockingDatabaseStream, BlockingTableBatch
from pypaimon.streaming.databases.warehouses import refuse_another_warehouse, warehouse_of
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, TablesFailedError
from pypaimon.streaming.options.arguments import needed, shown
from pypaimon.streaming.targets.transform import BatchTransform, Transform


class DatabaseTarget(Protocol):
    """A target of `copy_database`. Calls block, and are made one at a time."""

    def load_position(self, database: str, location: str | None = None) -> DatabasePosition:
        """Where the copy of a database continues. Discards what was applied of an unfinished plan.

        Args:
            database: Name of the database.
            location: The warehouse of the database, if known. It is saved with the rows and returned in the position.
        """

    def apply(self, batch: BlockingTableBatch) -> bool:
        """Apply a batch. The last batch of a plan saves the plan; an error rolls back what was applied of the plan.

        Returns:
            Whether the batch was applied. False: the target does not hold the rows before it, so the copy must restart.
        """

    def apply_event(self, event: DatabaseEvent) -> None:
        """Apply an event of a table, between plans. The same event may come again."""

    def roll_back(self) -> None:
        """Roll back what was applied of an unfinished plan."""


def copy_database(
    catalog: Any,
    database: str,
    target: DatabaseTarget,
    *,
    include: str | None = None,
    exclude: str | None = None,
    configure: Callable[[DatabaseStreamBuilder], object] | None = None,
    on_open: Callable[[BlockingDatabaseStream], object] | None = None,
    transforms: Mapping[str, Transform] | None = None,
) -> DatabasePosition:
    """Copy all tables of a database to a target and keep the copy up to date: first their states, then every change.

    It blocks until the end that `configure` sets (`lambda stream: stream.with_end(latest=True)`). Without an end, it
    blocks until the stream that `on_open` receives is stopped.
    After an interrupt of any kind, the next call continues without losing or repeating a row. Each copied table equals
    its source at one of its snapshots; there is no order between tables. If the target refuses the rows of a table,
    the table is parked (`TableFailed`) and the others continue. The next call tries the table again.

    Args:
        catalog: pypaimon's catalog.
        database: Name of the database.
        target: Where the tables are copied to.
        include: A regular expression that whole table names must match; None: all tables.
        exclude: A regular expression that whole table names must not match; None: no table is excluded.
        configure: Called with the builder of the stream. The copy itself sets the start and the position.
        on_open: Called with each stream that is opened, for other threads and signal handlers: `stop`, `lag`, `retry`.
            There may be several streams, one after the other.
        transforms: By table, without the database, what changes its rows: see `transform` of `replicate`. Others are
            copied as they are. If a transform raises, its table is parked.

    Returns:
        The position of the target.

    Raises:
        StreamConfigError: An expression is invalid, the database does not exist, `transforms` or `with_table` names a
            table that is not copied, or the target holds a copy of a database of this name in another warehouse.
        TablesFailedError: The end is reached, but some tables were not copied up to it.
        PaimonStreamError: An error of the stream or the target.
    """
    builder = database_stream_builder(catalog, database, include, exclude)
    needed(
        "copy_database: target",
        target,
        "a target of a database such as DuckDBDatabase",
        "load_position",
        "apply",
        "apply_event",
        "roll_back",
    )
    if configure is not None:
        configure(builder)
    changes = _changes_of(transforms)
    location = warehouse_of(catalog)
    position = target.load_position(database, location)
    refuse_another_warehouse(catalog, position, location)
    check_named_tables(builder, {"transforms": changes, "with_table": builder._of_table}, position.tables)
    while not _Copying(builder, target, changes).is_done(database, location, on_open or (lambda _: None)):
        pass
    return target.load_position(database, location)


async def copy_database_async(
    catalog: Any,
    database: str,
    target: DatabaseTarget,
    *,
    include: str | None = None,
    exclude: str | None = None,
    configure: Callable[[DatabaseStreamBuilder], object] | None = None,
    transforms: Mapping[str, Transform] | None = None,
) -> DatabasePosition:
    """As `copy_database`, without blocking the event loop: it runs on another thread, which also calls `configure`.

    If it is cancelled it ends after the current plan, so that the target is free again when it ends.
    """
    cancelled = threading.Event()
    opened: deque[BlockingDatabaseStream] = deque(maxlen=1)

    def on_open(stream: BlockingDatabaseStream) -> None:
        # The stream is known before the event is asked for, so one of the two stops it, whatever comes first.
        opened.append(stream)
        if cancelled.is_set():
            stream.stop()

    def on_cancel() -> None:
        cancelled.set()
        for stream in tuple(opened):
            stream.stop()

    settings = {"include": include, "exclude": exclude, "configure": configure, "transforms": transforms}
    copy = partial(copy_database, **settings, on_open=on_open)  # type: ignore[arg-type]
    return await finish_on_thread(copy, catalog, database, target, on_cancel=on_cancel)


def _changes_of(transforms: Mapping[str, Transform] | None) -> dict[str, BatchTransform]:
    if not isinstance(transforms, Mapping | None):
        raise StreamConfigError(f"copy_database: transforms: expected a mapping by table, got {shown(transforms)}")
    return {name: BatchTransform(f"copy_database: {name}", each) for name, each in (transforms or {}).items()}


class _Copying:
    """One stream of a database that is applied to a target."""

    def __init__(
        self, builder: DatabaseStreamBuilder, target: DatabaseTarget, changes: Mapping[str, BatchTransform]
    ) -> None:
        self._builder = builder
        self._changes = changes
        self._target = target
        self._open_table: str | None = None
        """The table whose plan was applied only partly so far."""
        self._later: deque[DatabaseEvent] = deque()
        """Events that wait for the end of the current plan."""
        self._event_errors: dict[str, Exception] = {}
        """Errors of events, until the next batch of the table."""
        self._failed: set[str] = set()
        """Tables whose rows are no longer applied."""

    def is_done(self, database: str, location: str | None, on_open: Callable[[BlockingDatabaseStream], object]) -> bool:
        """Copy until the end of the stream; False if the target no longer holds the rows before a plan."""
        builder = builder_for_copy(self._builder, self._target.load_position(database, location), self._on_event)
        failed: Mapping[str, Exception] = {}
        try:
            with builder.open_sync() as stream:
                on_open(stream)
                try:
                    for batch in stream:
                        if not self._has_applied(stream, batch):
                            return False
                except TablesFailedError as error:
                    failed = error.errors
            self._roll_back()
        finally:
            self._target.roll_back()
        if failed or self._event_errors:
            raise TablesFailedError({**failed, **self._event_errors})
        return True

    def _has_applied(self, stream: BlockingDatabaseStream, batch: BlockingTableBatch) -> bool:
        name = batch.table
        if self._open_table is not None and (batch.is_first or self._open_table != name):
            self._roll_back()
        # An event of the table was refused, so that its rows would not fit the copy.
        error = self._event_errors.pop(name, None)
        if error is None and name not in self._failed:
            # The rows of the plan before these were rolled back: another stream begins at the target's
            # position.
            if self._open_table is None and not batch.is_first:
                return False
            try:
                self._open_table = name
                if not self._target.apply(self._changed(batch)):
                    return False
                if batch.is_last:
                    self._open_table = None
                    self._apply_events()
            except PaimonStreamError as raised:
                if raised.retriable:
                    raise
                error = raised
                self._roll_back()
        if error is not None:
            self._failed.add(name)
            stream.park(name, error)
        return True

    def _changed(self, batch: BlockingTableBatch) -> BlockingTableBatch:
        changes = self._changes.get(batch.table)
        if changes is None:
            return batch
        try:
            return changes.of(batch)
        except PaimonStreamError:
            raise
        except Exception as error:
            # An error of a function of the caller, which concerns this table alone.
            raise StreamConfigError(f"The transform of {batch.table} raised {type(error).__name__}: {error}") from error

    def _on_event(self, event: DatabaseEvent) -> None:
        if not isinstance(event, TableAdded | TableDropped | TableRenamed):
            return
        former = event.former if isinstance(event, TableRenamed) else event.table
        # The name may have another table now.
        self._failed -= {former, event.table}
        self._later.append(event)
        if self._open_table == former:
            self._roll_back()
        elif self._open_table is None:
            self._apply_events()

    def _roll_back(self) -> None:
        self._open_table = None
        self._target.roll_back()
        self._apply_events()

    def _apply_events(self) -> None:
        while self._later:
            event = self._later[0]
            self._event_errors.pop(event.table, None)
            try:
                self._target.apply_event(event)
            except PaimonStreamError as error:
                if error.retriable:
                    raise
                self._event_errors[event.table] = error
            self._later.popleft()
