"""The garbage collector may run anywhere, also where a lock is held: what it ends must not wait for any."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.workers import Worker
from support.tables.streamed_table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each(range(1, 4))


@contextmanager
def held(pool: IOPool) -> Iterator[None]:
    """Another thread has the lock of a pool, as one that takes a job does."""
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._lock:
            taken.set()
            free.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    try:
        yield
    finally:
        free.set()
        holder.join()


def batches(table: Table) -> tuple[Any, Any]:
    stream = table.builder().with_poll_interval_ms(10).open_sync()
    next(stream)
    return stream, stream.scan


def plans(table: Table) -> tuple[Any, Any]:
    scan = table.builder().with_poll_interval_ms(10).new_streaming_scan()
    stream = scan.stream_sync()
    next(stream)
    return stream, scan


@pytest.mark.parametrize("opened", [batches, plans])
def test_collecting_a_stream_waits_for_no_lock(table: Table, opened: Callable[[Table], tuple[Any, Any]]) -> None:
    gc.collect()
    # A spare thread may serve the stream.
    known = {each for each in threading.enumerate() if not isinstance(each, Worker) or not each.is_spare}
    box = list(opened(table))
    threads = {each for each in threading.enumerate() if each.name.startswith("paimon-")} - known
    parts = box[1]._driver.parts.get()
    pools = [box[1]._driver._pool, parts.prefetcher._pool, parts.directory.store.pool]
    del parts
    collected = threading.Event()

    def collect() -> None:
        box.clear()
        gc.collect()
        collected.set()

    with held(pools[0]), held(pools[1]), held(pools[2]):
        threading.Thread(target=collect, daemon=True).start()
        assert collected.wait(300)
    assert threads
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
