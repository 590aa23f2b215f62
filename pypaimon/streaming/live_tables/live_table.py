"""`LiveTable` and `BlockingLiveTable`: a table kept live, asked by key, as Arrow or with SQL."""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from pypaimon.streaming.builder.assembly import StreamAssembly
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.io.io_pool import spawn_detached
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.live_tables.disk_place import MemoryBound
from pypaimon.streaming.live_tables.follower import Follower
from pypaimon.streaming.live_tables.in_memory import InMemory
from pypaimon.streaming.options.arguments import at_least

if TYPE_CHECKING:
    import duckdb as duckdb_module  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb_module = LazyModule("duckdb")


class _LiveTable:
    """What both faces share. Each call sees one state of the table, that of a snapshot; from any thread.

    Args:
        follower: Keeps the rows equal to the table.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        # The thread must not outlive a table that nobody holds any more.
        weakref.finalize(self, spawn_detached, follower.close)

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key; None: there is none.

        Args:
            key: The value of the key; of several columns a tuple, in the order of the primary key, or a dict. Values
                are cast to the types of the columns where nothing is lost. With a null it has no row.

        Raises:
            StreamConfigError: It is no key of this table, of another type or too great for its columns, or the live
                table is closed.
            PaimonStreamError: The stream has failed; what may pass is tried again meanwhile.
        """
        return self._follower.rows().get(key)

    def get_many(self, keys: Any) -> pa.Table:
        """A row for each key, in order; all its values are null where there is none. All are of one snapshot.

        Args:
            keys: An Arrow array, or a list, of the values of the key; or a table or record batch that has its columns,
                in any order, of which others are passed over. What holds for the key of `get` holds for each.

        Raises:
            StreamConfigError: They are no keys of this table, or the live table is closed.
            PaimonStreamError: As `get`.
        """
        return self._follower.rows().get_many(keys)

    def to_arrow(self) -> pa.Table:
        """All rows, in no order.

        Raises:
            StreamConfigError: The live table is closed.
            PaimonStreamError: As `get`.
        """
        return self._follower.rows().to_arrow()

    def duckdb(self, name: str = "live") -> duckdb_module.DuckDBPyConnection:
        """A new connection of DuckDB in which the rows, as they are now, are a table of a name; close it afterwards.

        Raises:
            StreamConfigError: The live table is closed.
            PaimonStreamError: As `get`.
        """
        return self._follower.rows().to_duckdb(name)

    def __len__(self) -> int:
        """How many rows there are. Errors as `to_arrow`."""
        return len(self._follower.rows())

    def __bool__(self) -> bool:
        """True, also without rows."""
        return True

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot whose changes are in the rows; None: the table has none. Errors as `to_arrow`.

        With the changelog producers `lookup` and `full-compaction`: the changes that compactions have made until then.
        """
        return self._follower.rows().moment.snapshot_id

    @property
    def as_of(self) -> datetime | None:
        """When that snapshot was committed (aware, UTC). Errors as `to_arrow`."""
        return self._follower.rows().moment.commit_time

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows and their index take; on disk those of DuckDB. Errors as `to_arrow`."""
        return self._follower.rows().nbytes


class LiveTable(_LiveTable):
    """A table kept live; made by `StreamReadBuilder.open_live()`. Best within `async with`, which ends its thread.

    What asks for rows does not wait, and may be called from any thread.
    """

    async def wait_for(self, snapshot: int) -> None:
        """Wait until the changes of a snapshot, and of all before it, are in the rows. A cancelled wait loses nothing.

        With the changelog producers `lookup` and `full-compaction` these are the changes that its compactions have
        made: those of a commit come with a later snapshot, the compaction's. There is no limit of time, and an error
        that may pass (`retriable`) is waited out.

        Args:
            snapshot: Its id, an int: `commit().snapshot` of a writer.

        Raises:
            StreamConfigError: It is no id of a snapshot, the stream has ended before, or the live table is closed.
            PaimonStreamError: The stream has failed for good.
        """
        await _awaited(self._follower.reached(_snapshot(snapshot)))

    async def aclose(self) -> None:
        """End it. Idempotent."""
        self._follower.close()

    async def __aenter__(self) -> LiveTable:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._follower.close()

    def __enter__(self) -> NoReturn:
        self._follower.close()
        raise TypeError("open_live() is for `async with`; without asyncio it is `with builder.open_live_sync()`")

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` asks for it before it enters."""


class BlockingLiveTable(_LiveTable):
    """A table kept live; made by `StreamReadBuilder.open_live_sync()`. As `LiveTable`; Ctrl-C interrupts its waits."""

    def wait_for(self, snapshot: int) -> None:
        """As `LiveTable.wait_for`; blocks."""
        _blocked(self._follower.reached(_snapshot(snapshot)))

    def close(self) -> None:
        """End it. Idempotent."""
        self._follower.close()

    def __enter__(self) -> BlockingLiveTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.close()

    async def __aenter__(self) -> NoReturn:
        self._follower.close()
        raise TypeError("open_live_sync() is for `with`; with asyncio it is `async with await builder.open_live()`")

    async def __aexit__(self, *_: object) -> None:
        """Never reached; `async with` asks for it before it enters."""


async def opened(builder: StreamAssembly, bound: MemoryBound) -> LiveTable:
    """See `StreamReadBuilder.open_live`."""
    follower = _follower(builder, bound)
    try:
        await _awaited(follower.begin())
    except BaseException:
        follower.close()
        raise
    return LiveTable(follower)


def opened_sync(builder: StreamAssembly, bound: MemoryBound) -> BlockingLiveTable:
    """See `StreamReadBuilder.open_live_sync`."""
    follower = _follower(builder, bound)
    try:
        _blocked(follower.begin())
    except BaseException:
        follower.close()
        raise
    return BlockingLiveTable(follower)


def _follower(builder: StreamAssembly, bound: MemoryBound) -> Follower:
    return Follower(builder, partial(InMemory, bound=bound))


def _snapshot(given: Any) -> int:
    return at_least(1, "wait_for: snapshot", given)


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
