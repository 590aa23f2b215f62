"""`LiveTable` and `BlockingLiveTable`: rows of a table, kept up to date, read by key, as Arrow or with SQL."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.threads_to_asyncio import call_on_thread
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, WaitTimeoutError
from pypaimon.streaming.html_tables import html_fields
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.live.arrow_row_store import ArrowRowStore
from pypaimon.streaming.live.duckdb_row_store import MemoryBound
from pypaimon.streaming.live.live_updater import LiveTableUpdater
from pypaimon.streaming.live.row_order import rows_between, rows_equal_to
from pypaimon.streaming.live.saved_rows import SavedRows
from pypaimon.streaming.live.subscriptions import BlockingSubscription, ChangeQueue, Subscription, awaited, blocked
from pypaimon.streaming.options.arguments import at_least, finite_seconds, typed
from pypaimon.streaming.spec.resolve import ResolvedStream

if TYPE_CHECKING:
    import duckdb as duckdb_module  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb_module = LazyModule("duckdb")


_FOR_ASYNCIO = "open_live() is for `async with`; without asyncio it is `with builder.open_live_sync()`"


class _LiveTable:
    """The reads of a live table. Each call sees the rows of one snapshot. Calls are for any thread.

    Args:
        updater: Keeps the rows equal to the table.
    """

    def __init__(self, updater: LiveTableUpdater) -> None:
        self._updater = updater
        # The thread must not outlive the last reference to the table.
        weakref.finalize(self, spawn_detached, updater.close)

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key, or None.

        Args:
            key: The value of the key; for several columns a tuple, in the order of the primary key, or a dict. Values
                are cast to the types of the columns if nothing is lost. A key with a null has no row.

        Raises:
            StreamConfigError: The key does not fit the columns of the primary key, or the live table is closed.
            PaimonStreamError: The stream has failed. A retriable failure is retried in the background.
        """
        return self._updater.rows().get(key)

    def get_many(self, keys: Any) -> pa.Table:
        """A row for each key, in order, all of one snapshot. A key without a row gives a row of nulls.

        Args:
            keys: An Arrow array, or a list, of the values of the key; or a table or record batch that has its columns,
                in any order; other columns are ignored. Each key is converted as in `get`.

        Raises:
            StreamConfigError: The keys do not fit the columns of the primary key, or the live table is closed.
            PaimonStreamError: As `get`.
        """
        return self._updater.rows().get_many(keys)

    def find(self, columns: str | Sequence[str], value: Any) -> pa.Table:
        """The rows with a value in a column, ordered by it, all of one snapshot. Nothing equals null.

        The first call for a column orders all rows by it, and keeps the order, which takes 4 bytes for each row. The
        thread that follows the table then orders new rows, which makes updates about five times as slow. On disk
        DuckDB looks for the rows.

        Args:
            columns: A column, or several.
            value: Its value; for several columns a tuple, or a dict. It is converted as a key in `get`.

        Raises:
            StreamConfigError: A column does not exist, the value does not fit, or the live table is closed.
            PaimonStreamError: As `get`.
        """
        rows = self._updater.rows()
        return rows.between(rows_equal_to(rows.columns, columns, value))

    def get_range(self, start: Any = None, end: Any = None) -> pa.Table:
        """The rows with `start <= key < end`, ordered by the key, all of one snapshot.

        The order of the keys is kept as in `find`.

        Args:
            start: As a key in `get`; a tuple may have the first columns of the key only. None: from the first key on.
            end: As `start`. None: up to the last key.

        Raises:
            StreamConfigError: A bound does not fit the columns of the primary key, or the live table is closed.
            PaimonStreamError: As `get`.
        """
        rows = self._updater.rows()
        return rows.between(rows_between(rows.columns, rows.lookup_keys.names, start, end))

    def to_arrow(self) -> pa.Table:
        """All rows, in no order.

        Raises:
            StreamConfigError: The live table is closed.
            PaimonStreamError: As `get`.
        """
        return self._updater.rows().to_arrow()

    def duckdb(self, name: str = "live") -> duckdb_module.DuckDBPyConnection:
        """A new connection of DuckDB in which the current rows are a view with this name. Close it afterwards.

        Raises:
            StreamConfigError: The live table is closed.
            PaimonStreamError: As `get`.
        """
        return self._updater.rows().to_duckdb(name)

    def __len__(self) -> int:
        """The number of rows. Raises as `to_arrow`."""
        return len(self._updater.rows())

    def __bool__(self) -> bool:
        """True, also for a table without rows."""
        return True

    def _repr_html_(self) -> str:
        try:
            values: dict[str, Any] = {
                "rows": len(self),
                "snapshot_id": self.snapshot_id,
                "as_of": self.as_of,
                "checked_at": self.checked_at,
                "nbytes": self.nbytes,
            }
        except PaimonStreamError as error:
            values = {"error": error}
        return html_fields(type(self).__name__, values)

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot whose changes are in the rows; None: the table has no snapshot. Raises as `to_arrow`.

        With the changelog producers `lookup` and `full-compaction` these are the changes of its compactions.
        """
        return self._updater.rows().table_version.snapshot_id

    @property
    def as_of(self) -> datetime | None:
        """When that snapshot was committed (aware, UTC). Raises as `to_arrow`."""
        return self._updater.rows().table_version.commit_time

    @property
    def checked_at(self) -> datetime | None:
        """The last time (aware, UTC) at which the store had nothing newer than the rows; None: it always had so far.

        While the store cannot be reached it stays as it is, and does not raise: a health check compares it with the
        clock.

        Raises:
            StreamConfigError: This process was forked after the live table was opened.
        """
        return self._updater.checked_at

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the rows and their index, or of DuckDB if the rows are on disk. Raises as `to_arrow`."""
        return self._updater.rows().nbytes


class LiveTable(_LiveTable):
    """A table kept live; made by `StreamReadBuilder.open_live()`. Use it within `async with`, which ends its thread.

    Reads do not wait, and may be called from any thread.
    """

    async def wait_for(self, snapshot_id: int, timeout: float | timedelta | None = None) -> None:
        """Wait until the changes of a snapshot, and of all before it, are in the rows. A cancelled wait loses nothing.

        With the changelog producers `lookup` and `full-compaction` these are the changes of compactions: the changes of
        a commit come with the later snapshot of its compaction. Retriable errors do not end the wait.

        Args:
            snapshot_id: The id of the snapshot, such as `commit().snapshot_id` of a writer.
            timeout: Seconds to wait; None: without limit.

        Raises:
            StreamConfigError: The id is invalid, the stream has ended before it, or the live table is closed.
            WaitTimeoutError: The snapshot is not in the rows in time; call again to wait on.
            PaimonStreamError: The stream has failed for good.
        """
        wanted, seconds = _snapshot(snapshot_id), _timeout(timeout)
        if not await awaited(self._updater.reached(wanted), seconds):
            raise _late(self, wanted, seconds)

    def subscribe(self, *keys: Any, current: bool = False, max_waiting: int = 1000) -> Subscription:
        """The changes of the rows of some keys, from now on: `async for change in live.subscribe(7)`.

        A change is that from one version of the rows to the next one, whose snapshot it names. Rows that are written
        again as they are do not change. A slow subscriber loses no row and holds up nobody: if `max_waiting` changes
        wait for it, later ones of a key are joined into one (`KeyChange.count`). It costs one look-up of all subscribed
        keys for each snapshot with rows.

        Args:
            keys: Each as in `get`.
            current: Whether the rows that there are now come first, as changes from None.
            max_waiting: Changes that wait before they are joined; a key always has one.

        Raises:
            StreamConfigError: There is no key, one does not fit, or the live table is closed.
            PaimonStreamError: As `get`; also raised by the loop, if the live table fails for good. After `aclose` and
                at the end of a bounded stream the loop ends.
        """
        return Subscription(self, _subscribed(self._updater, keys, current, max_waiting))

    async def save(self) -> None:
        """Save the rows to the file of `save_to` now.

        Raises:
            StreamConfigError: `open_live` was not given such a file, or the live table is closed.
            TargetError: The file cannot be written.
        """
        await call_on_thread(self._updater.save, "paimon-live-save")

    async def aclose(self) -> None:
        """Stop following the table. Idempotent."""
        self._updater.close()

    async def __aenter__(self) -> LiveTable:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._updater.close()

    def __enter__(self) -> NoReturn:
        self._updater.close()
        raise TypeError(_FOR_ASYNCIO)

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` asks for it before it enters."""


class BlockingLiveTable(_LiveTable):
    """A table kept live; made by `StreamReadBuilder.open_live_sync()`. As `LiveTable`; Ctrl-C interrupts its waits."""

    def wait_for(self, snapshot_id: int, timeout: float | timedelta | None = None) -> None:
        """As `LiveTable.wait_for`; blocks."""
        wanted, seconds = _snapshot(snapshot_id), _timeout(timeout)
        if not blocked(self._updater.reached(wanted), seconds):
            raise _late(self, wanted, seconds)

    def subscribe(self, *keys: Any, current: bool = False, max_waiting: int = 1000) -> BlockingSubscription:
        """As `LiveTable.subscribe`, for a plain `for`."""
        return BlockingSubscription(self, _subscribed(self._updater, keys, current, max_waiting))

    def save(self) -> None:
        """As `LiveTable.save`; blocks."""
        self._updater.save()

    def close(self) -> None:
        """Stop following the table. Idempotent."""
        self._updater.close()

    def __enter__(self) -> BlockingLiveTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._updater.close()

    async def __aenter__(self) -> NoReturn:
        self._updater.close()
        raise TypeError("open_live_sync() is for `with`; with asyncio it is `async with builder.open_live()`")

    async def __aexit__(self, *_: object) -> None:
        """Never reached; `async with` asks for it before it enters."""


class OpeningLiveTable:
    """A live table that `open_live()` is about to open: for `async with`, or for `await`, which gives the table."""

    def __init__(self, opened: Callable[[], Awaitable[LiveTable]]) -> None:
        self._open = opened
        self._live: LiveTable | None = None

    def __await__(self) -> Generator[Any, None, LiveTable]:
        return self._open().__await__()

    async def __aenter__(self) -> LiveTable:
        self._live = await self
        return self._live

    async def __aexit__(self, *_: object) -> None:
        if self._live is not None:
            await self._live.aclose()

    def __enter__(self) -> NoReturn:
        raise TypeError(_FOR_ASYNCIO)

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` asks for it before it enters."""


async def opened(stream: ResolvedStream, bound: MemoryBound, saved: SavedRows | None) -> LiveTable:
    updater = _updater(stream, bound, saved)
    try:
        await awaited(updater.begin())
    except BaseException:
        updater.close()
        raise
    return LiveTable(updater)


def opened_sync(stream: ResolvedStream, bound: MemoryBound, saved: SavedRows | None) -> BlockingLiveTable:
    """See `StreamReadBuilder.open_live_sync`."""
    updater = _updater(stream, bound, saved)
    try:
        blocked(updater.begin())
    except BaseException:
        updater.close()
        raise
    return BlockingLiveTable(updater)


def _updater(stream: ResolvedStream, bound: MemoryBound, saved: SavedRows | None) -> LiveTableUpdater:
    return LiveTableUpdater(stream, partial(ArrowRowStore, bound=bound), saved)


def _snapshot(given: Any) -> int:
    return at_least(1, "wait_for: snapshot_id", given)


def _timeout(given: Any) -> float | None:
    return None if given is None else finite_seconds("wait_for: timeout", given)


def _late(live: _LiveTable, wanted: int, seconds: float | None) -> WaitTimeoutError:
    return WaitTimeoutError(
        f"snapshot {wanted} is not in the rows after {seconds:g} s: they are those of snapshot {live.snapshot_id}, and "
        f"the store was last known to have nothing newer at {live.checked_at}."
    )


def _subscribed(updater: LiveTableUpdater, keys: Sequence[Any], current: bool, max_waiting: int) -> ChangeQueue:
    if not keys:
        raise StreamConfigError("subscribe: give at least one key; all changes of a table come from builder.open()")
    queue = ChangeQueue(keys, at_least(1, "subscribe: max_waiting", max_waiting))
    updater.subscribe(queue, typed(bool, "subscribe: current", current))
    return queue
