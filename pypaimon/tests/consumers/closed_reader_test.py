"""A closed reader writes nothing: it neither claims its file late nor ends the reader that took over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from pypaimon.streaming import EndOfScan, PaimonStreamError, StreamReadBuilder
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from support.stores.fault_file_io import FaultFileIO, HangingFileIO
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

FILE = "consumer-etl"
PATIENCE = 60


def held_at(kind: str) -> HangingFileIO:
    """Hold the next request of a kind for the consumer file."""
    file_io = HangingFileIO()
    file_io.hangs = lambda call: call.kind == kind and call.name == FILE and not file_io.hanging.is_set()
    return file_io


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "w").commit_each(range(3))
    ConsumerManager(FaultFileIO(), str(table.path)).write(ConsumerName("etl"), Consumer(1))
    return table


def builder(table: Table, file_io: FaultFileIO) -> StreamReadBuilder:
    return table.builder(file_io).with_prefetch(0).with_catch_up("replay").with_consumer_id("etl", commit="manual")


def owner(table: Table) -> str | None:
    found = ConsumerManager(FaultFileIO(), str(table.path)).read(ConsumerName("etl"))
    return None if found is None else found.owner


Reader = tuple[Callable[[], object], Callable[[], object]]


def by_scan(builder: StreamReadBuilder) -> Reader:
    scan = builder.new_streaming_scan()
    return scan.plan, scan.close


def by_plans(builder: StreamReadBuilder) -> Reader:
    plans = builder.new_streaming_scan().stream_sync()
    return lambda: next(plans, None), plans.close


def by_batches(builder: StreamReadBuilder) -> Reader:
    batches = builder.open_sync()
    return lambda: next(batches, None), batches.close


def by_tasks(builder: StreamReadBuilder) -> Reader:
    """A task that is cancelled while it waits."""
    asked = threading.Event()

    async def read(ended: threading.Event, closed: threading.Event) -> None:
        async with builder.open() as batches:
            waiting = asyncio.ensure_future(anext(batches))
            asked.set()
            await asyncio.to_thread(ended.wait, PATIENCE)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
        closed.set()

    ended, closed = threading.Event(), threading.Event()

    def close() -> None:
        ended.set()
        assert closed.wait(PATIENCE)

    return lambda: asyncio.run(read(ended, closed)), close


READERS = [by_scan, by_plans, by_batches, by_tasks]


@pytest.mark.parametrize("reader", READERS)
def test_requests_from_before_lead_to_no_write(table: Table, reader: Callable[[StreamReadBuilder], Reader]) -> None:
    held = held_at("read")
    ask, close = reader(builder(table, held))
    with ThreadPoolExecutor(1) as old:
        asking = old.submit(ask)
        assert held.hanging.wait(PATIENCE)
        close()
        new = builder(table, FaultFileIO()).new_streaming_scan()
        plan = new.plan()
        assert plan is not None
        taken = owner(table)
        held.go_on.set()
        with suppress(PaimonStreamError, EndOfScan, CancelledError):
            asking.result(PATIENCE)
    assert owner(table) == taken
    new.commit(plan)
    new.close()
    assert held.names("write") == []


@pytest.mark.parametrize("reader", READERS)
def test_a_write_that_is_under_way_is_waited_for(table: Table, reader: Callable[[StreamReadBuilder], Reader]) -> None:
    held = held_at("write")
    ask, close = reader(builder(table, held))
    with ThreadPoolExecutor(2) as old:
        asking = old.submit(ask)
        assert held.hanging.wait(PATIENCE)
        closing: Future[object] = old.submit(close)
        with pytest.raises(TimeoutError):
            closing.result(0.05)
        held.go_on.set()
        closing.result(PATIENCE)
        written = held.names("write")
        new = builder(table, FaultFileIO()).new_streaming_scan()
        plan = new.plan()
        assert plan is not None
        with suppress(PaimonStreamError, EndOfScan, CancelledError):
            asking.result(PATIENCE)
    new.commit(plan)
    new.close()
    assert held.names("write") == written


def test_a_rewrite_of_its_files_is_waited_for_and_none_begins_later(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", consumer__expiration_time="1 h").commit_each([1])
    held = HangingFileIO()
    scan = builder(table, held).with_start("earliest").new_streaming_scan()
    assert scan.plan() is not None
    progress = scan._driver.progress()
    with ThreadPoolExecutor(2) as old:
        held.hangs = lambda call: call.kind == "write" and call.name == FILE and not held.hanging.is_set()
        rewriting = old.submit(progress.keep_alive, 1e9)
        assert held.hanging.wait(PATIENCE)
        closing = old.submit(scan.close)
        with pytest.raises(TimeoutError):
            closing.result(0.05)
        held.go_on.set()
        closing.result(PATIENCE)
        assert rewriting.done()
    held.forget()
    progress.keep_alive(2e9)
    assert held.calls == []
