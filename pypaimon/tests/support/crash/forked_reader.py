"""A process that forks while requests of its readers hang and other threads hold every lock of the library there is.

The child reads with the table handle, the builder and the read that it inherited, and is refused what belongs to its
parent, whose stream then goes on. Argument: the warehouse, with a table `db.t` of the keys 1 to 4, one per
snapshot.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

_LOCKS: list[weakref.ref[Any]] = []
_MAKERS: set[str] = set()
_FREED = {"concurrency.forking", "io.io_pool"}
_OF_STREAMS = {
    "batches.read_ahead",
    "concurrency.cancel_scope",
    "consumers.progress",
    "consumers.unconfirmed",
    "scanning.prefetch",
    "scanning.worker",
}
"""Modules with locks of which a child uses none, since it is refused the streams that they belong to."""


def _recorded(make: Callable[[], Any]) -> Callable[[], Any]:
    def lock() -> Any:
        made = make()
        package, _, module = sys._getframe(1).f_globals["__name__"].partition(".streaming.")
        if package == "pypaimon":
            _LOCKS.append(weakref.ref(made))
            _MAKERS.add(module)
        return made

    return lock


# Before the library is imported, so that none is missed, of whatever module.
threading.Lock, threading.RLock = _recorded(threading.Lock), _recorded(threading.RLock)  # type: ignore[assignment, misc]

import pytest  # noqa: E402
from pypaimon import CatalogFactory  # noqa: E402

from pypaimon.streaming import StreamConfigError, StreamReadBuilder  # noqa: E402
from support.stores.fault_file_io import SCHEME, Call, FaultFileIO  # noqa: E402

KEYS = [1, 2, 3, 4]
PATIENCE = 600
_HANGS: dict[str, Callable[[Call], bool]] = {
    "step": lambda call: call.name.startswith("snapshot-2"),
    "save": lambda call: call.kind == "write" and "consumer-" in call.name,
    "data": lambda call: call.kind == "read" and call.name.endswith(".parquet"),
}


class Parent:
    """Readers of one handle, and the first request that hangs."""

    def __init__(self, warehouse: str, what: str) -> None:
        self.file_io = FaultFileIO()
        self.handle = CatalogFactory.create({"warehouse": warehouse}).get_table("db.t")
        self.handle.file_io, self.handle.table_path = self.file_io, SCHEME + str(self.handle.table_path)
        self.builder = StreamReadBuilder(self.handle).with_start("earliest").with_end(latest=True)
        self.builder.with_catch_up("replay")
        self.read = self.builder.new_read()
        following = self.builder.copy().with_consumer_id(f"reader-{what}")
        self.scan = following.new_streaming_scan()
        self.loop = self.scan.stream_sync()
        self.stream = self.builder.copy().with_consumer_id(f"other-{what}").open_sync()
        self.async_stream = self.builder.open()
        self.keys: list[int] = []
        self._hangs = _HANGS[what]
        self._held, self._go_on, self._forked = threading.Event(), threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Follow the table until a request hangs."""
        self.file_io.wherever(self._hang)
        self._run(self._follow)
        assert self._held.wait(PATIENCE)

    def _hang(self, call: Call) -> Any:
        if self._hangs(call):
            self._held.set()
            assert self._go_on.wait(PATIENCE)
        return call.answer()

    def _follow(self) -> None:
        for plan in self.loop:
            self.keys += self.read.to_arrow(plan.splits())["k"].to_pylist()

    def hold_locks(self) -> None:
        """Have a thread hold all locks that are free."""
        holds = threading.Event()
        self._run(lambda: self._hold(holds))
        assert holds.wait(PATIENCE)

    def _hold(self, holds: threading.Event) -> None:
        locks = [lock for each in _LOCKS if (lock := each()) is not None]
        held = [lock for lock in locks if lock.acquire(blocking=False)]
        assert len(held) > len(locks) / 2 > 5
        holds.set()
        assert self._forked.wait(PATIENCE)
        for lock in held:
            lock.release()

    def finish(self) -> None:
        """Let the locks and the requests go, and follow the table to its end."""
        self._forked.set()
        self._go_on.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert (self.keys, self.scan.committed()) == (KEYS, 5)
        assert [key for batch in self.stream for key in batch.data["k"].to_pylist()] == KEYS

    def _run(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()


def read_in_child(parent: Parent) -> None:
    """What the child may use: handle, builder and read."""
    parent.file_io.wherever(None)
    for builder in (parent.builder, StreamReadBuilder(parent.handle).with_start("earliest").with_end(latest=True)):
        with builder.new_streaming_scan().stream_sync() as plans:
            assert [key for plan in plans for key in parent.read.to_arrow(plan.splits())["k"].to_pylist()] == KEYS
        with builder.open_sync() as stream:
            assert [key for batch in stream for key in batch.data["k"].to_pylist()] == KEYS
        assert asyncio.run(_keys_of(builder, parent)) == KEYS


async def _keys_of(builder: StreamReadBuilder, parent: Parent) -> list[int]:
    keys: list[int] = []
    async with builder.new_streaming_scan().stream() as plans:
        async for plan in plans:
            keys += (await parent.read.to_arrow_async(plan.splits()))["k"].to_pylist()
    return keys


def refused_in_child(parent: Parent) -> None:
    """What belongs to the parent: it is refused at once, and to end it does nothing."""
    scan, stream, async_stream = parent.scan, parent.stream, parent.async_stream
    calls: list[Callable[[], object]] = [
        scan.plan,
        lambda: asyncio.run(scan.plan_async()),  # type: ignore[arg-type]
        lambda: next(parent.loop),
        lambda: next(scan.stream_sync()),
        lambda: scan.restore(1),
        lambda: scan.commit(3),
        lambda: asyncio.run(scan.commit_async(3)),
        scan.committed,
        scan.lag,
        lambda: asyncio.run(scan.lag_async()),
        lambda: next(stream),
        lambda: stream.status,
        stream.lag,
        lambda: asyncio.run(async_stream.__anext__()),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(StreamConfigError, match="make a new one from the builder"):
            call()
    assert scan.metrics.requests["read"] > 0
    scan.checkpoint()
    for ending in (scan.stop, scan.close, stream.stop, stream.close, parent.loop.close, async_stream.stop):
        ending()
    asyncio.run(async_stream.aclose())


def drop_in_child(parent: Parent) -> None:
    """The garbage collector ends what belongs to the parent."""
    vars(parent).clear()
    gc.collect()


def be_child(parent: Parent) -> None:
    """Read; if it waits for ever it is killed, and tells where that is."""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(PATIENCE // 2)
    read_in_child(parent)
    refused_in_child(parent)
    drop_in_child(parent)


def main() -> None:
    """Fork for each kind of request, in the way that PyTorch's data loader does."""
    # What Python warns of is what is tested here.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    for what in _HANGS:
        parent = Parent(sys.argv[1], what)
        parent.begin()
        assert _MAKERS <= _FREED | _OF_STREAMS, "take a ForkSafeLock"
        parent.hold_locks()
        child = get_context("fork").Process(target=be_child, args=(parent,))
        child.start()
        child.join()
        assert child.exitcode == 0
        parent.finish()
        print(what, flush=True)


if __name__ == "__main__":
    main()
