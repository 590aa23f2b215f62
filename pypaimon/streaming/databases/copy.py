"""`copy_database`: keeps a whole database equal to another one's tables; and what it is copied to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pypaimon.streaming.databases.builder import DatabaseStreamBuilder, stream_database
from pypaimon.streaming.databases.events import DatabaseEvent, TableAdded, TableDropped, TableRenamed
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.stream import BlockingDatabaseStream, BlockingTableBatch
from pypaimon.streaming.databases.warehouses import refuse_another_warehouse, warehouse_of
from pypaimon.streaming.errors import PaimonStreamError, TablesFailedError
from pypaimon.streaming.options.arguments import needed


class DatabaseTarget(Protocol):
    """What a database is copied to. Calls block, one at a time."""

    def begin(self, database: str, location: str | None = None) -> DatabasePosition:
        """Where a copy of a database continues; nothing is in hand then.

        Args:
            database: Its name.
            location: Which warehouse it is in; saved with the rows, and told by the position. None: not known.
        """

    def apply(self, batch: BlockingTableBatch) -> bool:
        """Apply a batch; with the last one of a plan it is saved. An error takes back what was applied of the plan.

        Returns:
            Whether it was; False: what lies before is not there (by now), and the copy has to begin again.
        """

    def tell(self, event: DatabaseEvent) -> None:
        """Follow what happened to a table, while no plan is in hand; the same event may come again."""

    def leave(self) -> None:
        """Take back what was applied of a plan that is not at its end."""


def copy_database(
    catalog: Any,
    database: str,
    target: DatabaseTarget,
    *,
    include: str | None = None,
    exclude: str | None = None,
    configure: Callable[[DatabaseStreamBuilder], object] | None = None,
    on_open: Callable[[BlockingDatabaseStream], object] | None = None,
) -> DatabasePosition:
    """Bring a target up to the tables of a database, and keep it so: their states first, then every change.

    It blocks, until the end that `configure` gives (`lambda stream: stream.with_end(latest=True)`), else until somebody
    stops the stream that `on_open` has got.
    Whatever it is interrupted by, the next call goes on, with nothing lost and nothing twice. Each table is what it was
    at one of its snapshots; between tables there is no order. A table whose rows the target refuses is parked
    (`TableFailed`), and the others go on; the next call tries it again.

    Args:
        catalog: pypaimon's catalog.
        database: Name of the database.
        target: What it is copied to.
        include: A regular expression that the whole name of a table must match; None: any.
        exclude: One that it must not match; None: nothing.
        configure: Called with the builder of the stream; its start and position are the copy's own.
        on_open: Called with each stream that is opened, for other threads and signal handlers: `stop`, `lag`, `retry`.
            There may be several, one after the other.

    Returns:
        Where the target stands.

    Raises:
        StreamConfigError: An expression is invalid, there is no such database, or the target is a copy of the database
            of this name in another warehouse.
        TablesFailedError: The end is reached, but some tables are not copied to theirs.
        PaimonStreamError: As the stream, or the target, says.
    """
    builder = stream_database(catalog, database, include, exclude)
    needed("copy_database: target", target, "a target of a database such as DuckDBDatabase", "begin", "apply", "tell")
    if configure is not None:
        configure(builder)
    location = warehouse_of(catalog)
    refuse_another_warehouse(catalog, target.begin(database, location), location)
    while not _Copying(builder, target).is_done(database, location, on_open or (lambda _: None)):
        pass
    return target.begin(database, location)


class _Copying:
    """One stream of a database that is applied to a target."""

    def __init__(self, builder: DatabaseStreamBuilder, target: DatabaseTarget) -> None:
        self._builder = builder
        self._target = target
        self._in_hand: str | None = None
        """The table of whose plan a part was applied."""
        self._later: deque[DatabaseEvent] = deque()
        """Events that wait for the end of the plan in hand."""
        self._untold: dict[str, Exception] = {}
        """Errors of events, of tables of which nothing came since."""
        self._failed: set[str] = set()
        """Tables whose rows are not applied any more."""

    def is_done(self, database: str, location: str | None, on_open: Callable[[BlockingDatabaseStream], object]) -> bool:
        """Copy until the end of the stream; False: a plan came whose beginning the target does not hold by now."""
        builder = self._builder._for_copy(self._target.begin(database, location), self._on_event)
        failed: Mapping[str, Exception] = {}
        try:
            with builder.open_sync() as stream:
                on_open(stream)
                try:
                    for batch in stream:
                        if not self._goes_on_with(stream, batch):
                            return False
                except TablesFailedError as error:
                    failed = error.errors
            self._leave()
        finally:
            self._target.leave()
        if failed or self._untold:
            raise TablesFailedError({**failed, **self._untold})
        return True

    def _goes_on_with(self, stream: BlockingDatabaseStream, batch: BlockingTableBatch) -> bool:
        name = batch.table
        if self._in_hand is not None and (batch.is_first or self._in_hand != name):
            self._leave()
        error = self._untold.pop(name, None)
        if error is None and name not in self._failed:
            if self._in_hand is None and not batch.is_first:
                return False
            try:
                self._in_hand = name
                if not self._target.apply(batch):
                    return False
                if batch.is_last:
                    self._in_hand = None
                    self._tell()
            except PaimonStreamError as raised:
                if raised.retriable:
                    raise
                error = raised
                self._leave()
        if error is not None:
            self._failed.add(name)
            stream.park(name, error)
        return True

    def _on_event(self, event: DatabaseEvent) -> None:
        if not isinstance(event, TableAdded | TableDropped | TableRenamed):
            return
        former = event.former if isinstance(event, TableRenamed) else event.table
        self._failed -= {former, event.table}
        self._later.append(event)
        if self._in_hand == former:
            self._leave()
        elif self._in_hand is None:
            self._tell()

    def _leave(self) -> None:
        """Take back what is in hand; what comes of it yet is of no use."""
        self._in_hand = None
        self._target.leave()
        self._tell()

    def _tell(self) -> None:
        """No plan is in hand: events that waited for that are applied."""
        while self._later:
            event = self._later[0]
            self._untold.pop(event.table, None)
            try:
                self._target.tell(event)
            except PaimonStreamError as error:
                if error.retriable:
                    raise
                self._untold[event.table] = error
            self._later.popleft()
