"""`LiveTable` and `BlockingLiveTable`: rows of a table, kept up to date, read by key, as Arrow or with SQL."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.html_tables import html_fields
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.live.arrow_row_store import ArrowRowStore
from pypaimon.streaming.live.duckdb_row_store import MemoryBound
from pypaimon.streaming.live.live_updater import LiveTableUpdater
from pypaimon.streaming.options.arguments import at_least
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
    def nbytes(self) -> int:
        """Bytes of memory of the rows and their index, or of DuckDB if the rows are on disk. Raises as `to_arrow`."""
        return self._updater.rows().nbytes


class LiveTable(_LiveTable):
    """A table kept live; made by `StreamReadBuilder.open_live()`. Use it within `async with`, which ends its thread.

    Reads do not wait, and may be called from any thread.
    """

    async def wait_for(self, snapshot_id: int) -> None:
        """Wait until the changes of a snapshot, and of all before it, are in the rows. A cancelled wait loses nothing.

        With the changelog producers `lookup` and `full-compaction` these are the changes of compactions: the changes of
        a commit come with the later snapshot of its compaction. The wait has no time limit, and retriable errors do not
        end it.

        Args:
            snapshot_id: The id of the snapshot, such as `commit().snapshot_id` of a writer.

        Raises:
            StreamConfigError: The id is invalid, the stream has ended before it, or the live table is closed.
            PaimonStreamError: The stream has failed for good.
        """
        await _awaited(self._updater.reached(_snapshot(snapshot_id)))

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

    def wait_for(self, snapshot_id: int) -> None:
        """As `LiveTable.wait_for`; blocks."""
        _blocked(self._updater.reached(_snapshot(snapshot_id)))

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


async def opened(stream: ResolvedStream, bound: MemoryBound) -> LiveTable:
    updater = _updater(stream, bound)
    try:
        await _awaited(updater.begin())
    except BaseException:
        updater.close()
        raise
    return LiveTable(updater)


def opened_sync(stream: ResolvedStream, bound: MemoryBound) -> BlockingLiveTable:
    """See `StreamReadBuilder.open_live_sync`."""
    updater = _updater(stream, bound)
    try:
        _blocked(updater.begin())
    except BaseException:
        updater.close()
        raise
    return BlockingLiveTable(updater)


def _updater(stream: ResolvedStream, bound: MemoryBound) -> LiveTableUpdater:
    return LiveTableUpdater(stream, partial(ArrowRowStore, bound=bound))


def _snapshot(given: Any) -> int:
    return at_least(1, "wait_for: snapshot_id", given)


async def _awaited(future: Future[None]) -> None:
    try:
        await wait_for_future(future)
    finally:
        future.cancel()


def _blocked(future: Future[None]) -> None:
    try:
        until_done(future, lambda: False)
        future.result()
    finally:
        future.cancel()
