"""`Subscription` and `BlockingSubscription`: the changes of some keys of a live table, as they are applied."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from pypaimon.streaming.concurrency.clock import is_done_within
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.live.row_store import RowStore
from pypaimon.streaming.options.arguments import finite_seconds

_TICK_SECONDS = 0.25
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The row of a key before and after one version of a live table.

    Attributes:
        key: The key as it was subscribed to.
        before: The row before; None: there was none.
        after: The row after; None: there is none.
        snapshot_id: The snapshot of the row after.
        commit_time: When it was committed (aware, UTC).
        count: The number of changes that were joined into this one, because the subscriber was slow; else 1.
    """

    key: Any
    before: Row | None
    after: Row | None
    snapshot_id: int | None
    commit_time: datetime | None
    count: int = 1


class KeyWatch:
    """Finds the changes of subscribed keys: one look-up of all of them for each version, nothing without subscribers.

    The updater calls `changed` and `end`; other calls are for any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: list[weakref.ref[ChangeQueue]] = []
        self._end: tuple[BaseException | None] | None = None

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: ChangeQueue, current_rows: Callable[[], RowStore], current: bool) -> None:
        """Give the later changes of its keys to a queue; with `current` the rows that there are, too.

        Raises:
            StreamConfigError: A key does not fit the columns of the primary key.
        """
        with self._lock:
            # First, so that the updater compares a version that it publishes while the rows are looked up.
            self._queues.append(added := weakref.ref(queue))
            try:
                rows = current_rows()
                queue.seen = _rows_of(rows, [queue])
            except BaseException:
                self._queues.remove(added)
                raise
            if current:
                queue.put(rows, [None] * len(queue.keys), queue.seen)
            if self._end is not None:
                queue.end(*self._end)

    def changed(self, rows: RowStore) -> None:
        """Compare the rows with the version before."""
        with self._lock:
            queues = [queue for each in self._queues if (queue := each()) is not None and not queue.is_ended]
            self._queues = [weakref.ref(queue) for queue in queues]
            if not queues:
                return
            try:
                found = iter(_rows_of(rows, queues))
            except StreamConfigError as error:
                # The columns of the key have changed, so that a value no longer fits.
                for queue in queues:
                    queue.end(error)
                return
            for queue in queues:
                now = [next(found) for _ in queue.keys]
                queue.put(rows, queue.seen, now)
                queue.seen = now

    def end(self, error: BaseException | None) -> None:
        """End all subscriptions, after the changes that they still hold, with an error or None."""
        with self._lock:
            if self._end is None:
                self._end = (error,)
                for each in self._queues:
                    if (queue := each()) is not None:
                        queue.end(error)


def _rows_of(rows: RowStore, queues: Sequence[ChangeQueue]) -> list[Row | None]:
    keys = rows.lookup_keys
    asked = [keys.arrays(keys.values(key)) for queue in queues for key in queue.keys]
    columns = [pa.concat_arrays(parts) for parts in zip(*asked, strict=True)]
    found = rows.get_many(pa.table(columns, keys.names)).to_pylist()
    return [None if row[keys.names[0]] is None else row for row in found]


class ChangeQueue:
    """The changes that a subscriber has not taken yet.

    Args:
        keys: What it is subscribed to.
        most: With this many changes waiting, a change is joined to the one of the same key that waits, if there is one.

    Attributes:
        seen: The rows of the keys in the last version, for `KeyWatch`.
        is_ended: Whether no changes follow those that wait.
    """

    def __init__(self, keys: Sequence[Any], most: int) -> None:
        self.keys = keys
        self.seen: list[Row | None] = []
        self.is_ended = False
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, KeyChange]] = deque()
        self._error: BaseException | None = None
        self._ready: Future[None] | None = None

    def put(self, rows: RowStore, before: Sequence[Row | None], after: Sequence[Row | None]) -> None:
        version = rows.table_version
        with self._lock:
            for number, (old, new) in enumerate(zip(before, after, strict=True)):
                if _differ(old, new):
                    self._put(number, KeyChange(self.keys[number], old, new, version.snapshot_id, version.commit_time))
            if self._waiting:
                self._wake()

    def _put(self, number: int, change: KeyChange) -> None:
        if len(self._waiting) >= self._most:
            for place in reversed(range(len(self._waiting))):
                other, earlier = self._waiting[place]
                if other == number:
                    joined = replace(change, before=earlier.before, count=earlier.count + 1)
                    self._waiting[place] = number, joined
                    return
        self._waiting.append((number, change))

    def end(self, error: BaseException | None) -> None:
        with self._lock:
            self.is_ended, self._error = True, error
            self._wake()

    def close(self) -> None:
        """End now, without the changes that wait."""
        with self._lock:
            self.is_ended = True
            self._waiting.clear()
            self._wake()

    def ready(self) -> Future[None]:
        """Done when `take` gives a change, or the end."""
        future: Future[None] = Future()
        with self._lock:
            if self._waiting or self.is_ended:
                future.set_result(None)
            else:
                self._ready = future
        return future

    def take(self) -> KeyChange | None:
        """The next change; None: there is none yet.

        Raises:
            EndOfScan: The subscription has ended.
            PaimonStreamError: The live table has failed.
        """
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()[1]
            if self.is_ended:
                raise EndOfScan("the subscription has ended") if self._error is None else self._error
            return None

    def _wake(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None and ready.set_running_or_notify_cancel():
            ready.set_result(None)


def _differ(old: Row | None, new: Row | None) -> bool:
    # The second comparison is for NaN, which does not equal itself.
    return old != new and repr(old) != repr(new)


class _Subscription:
    """
    Args:
        live: The live table, which must not end while it has subscribers.
    """

    def __init__(self, live: object, queue: ChangeQueue) -> None:
        self._live = live
        self._queue = queue


class Subscription(_Subscription, AsyncIterator[KeyChange]):
    """Changes of keys of a `LiveTable`, for `async for`; made by `subscribe`. It ends with the live table."""

    async def __anext__(self) -> KeyChange:
        try:
            while (change := self._queue.take()) is None:
                await awaited(self._queue.ready())
        except EndOfScan:
            raise StopAsyncIteration from None
        return change

    async def poll(self, timeout: float | timedelta = 0.0) -> KeyChange | None:
        """The next change, or None if none comes in time.

        Args:
            timeout: Seconds to wait.

        Raises:
            EndOfScan: The subscription has ended.
            PaimonStreamError: The live table has failed.
        """
        seconds = finite_seconds("poll: timeout", timeout)
        change = self._queue.take()
        if change is None and await awaited(self._queue.ready(), seconds):
            change = self._queue.take()
        return change

    async def aclose(self) -> None:
        """End it. Idempotent."""
        self._queue.close()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._queue.close()


class BlockingSubscription(_Subscription, Iterator[KeyChange]):
    """As `Subscription`, of a `BlockingLiveTable`, for `for`; Ctrl-C interrupts its waits."""

    def __next__(self) -> KeyChange:
        try:
            while (change := self._queue.take()) is None:
                blocked(self._queue.ready())
        except EndOfScan:
            raise StopIteration from None
        return change

    def poll(self, timeout: float | timedelta = 0.0) -> KeyChange | None:
        """As `Subscription.poll`; blocks."""
        seconds = finite_seconds("poll: timeout", timeout)
        change = self._queue.take()
        if change is None and blocked(self._queue.ready(), seconds):
            change = self._queue.take()
        return change

    def close(self) -> None:
        """End it. Idempotent."""
        self._queue.close()

    def __enter__(self) -> BlockingSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.close()


async def awaited(future: Future[None], seconds: float | None = None) -> bool:
    """Wait for a future, for a time at most; returns whether it was done in time."""
    import asyncio

    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, future.cancel)
    try:
        await wait_for_future(future)
    except CancelledError:
        return False
    finally:
        future.cancel()
        if timer is not None:
            timer.cancel()
    return True


def blocked(future: Future[None], seconds: float | None = None) -> bool:
    """As `awaited`; blocks."""
    due = None if seconds is None else time.monotonic() + seconds
    try:
        while not future.done():
            left = _TICK_SECONDS if due is None else due - time.monotonic()
            if left <= 0:
                break
            # In pieces, because on Windows Ctrl-C does not end a wait.
            is_done_within(future, min(left, _TICK_SECONDS))
    finally:
        future.cancel()
    with suppress(CancelledError):
        future.result()
        return True
    return False
