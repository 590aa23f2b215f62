"""A stream that goes elsewhere while a request hangs: nothing of what it leaves holds up what comes next."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import AsyncStreamingTableScan
from support.stores.fault_file_io import Call, FaultFileIO, HangingFileIO
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

NEVER = 3600.0
LONG = 30.0


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each(range(1, 5))


def scan_of(table: Table, file_io: FaultFileIO, consumer: str | None, start: str, prefetch: int) -> Any:
    builder = table.builder(file_io, io_timeout=NEVER).with_start(start).with_catch_up("replay")
    builder.with_prefetch(prefetch).with_poll_interval_ms(1)
    return (builder if consumer is None else builder.with_consumer_id(consumer)).new_streaming_scan()


async def left_hanging(scan: AsyncStreamingTableScan, file_io: HangingFileIO) -> bool:
    """Ask for a plan, and cancel that if its request hangs; whether one did."""
    waiting = asyncio.ensure_future(scan.plan_async())
    hung = asyncio.ensure_future(asyncio.to_thread(file_io.hanging.wait, LONG))
    await asyncio.wait({waiting, hung}, return_when=asyncio.FIRST_COMPLETED)
    did, done = file_io.hanging.is_set(), waiting.done()
    file_io.hanging.set()
    await hung
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    return did and not done


@pytest.mark.parametrize("consumer", [None, "c"])
@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest-full", 0), ("earliest", 1)])
async def test_after_a_seek_no_request_of_what_was_left_is_waited_for(
    table: Table, start: str, first: int, consumer: str | None
) -> None:
    """Each read of a call hangs once: of finding the start, of a full plan, of what its fence protects, of a step."""
    for number in range(1, 100):
        for path in (table.path / "consumer").glob("*"):
            path.unlink()
        file_io = HangingFileIO()
        scan = scan_of(table, file_io, consumer, start, prefetch=0)
        for _ in range(first):
            assert await scan.plan_async() is not None
        file_io.forget()
        reads = 0

        def fault(call: Call, file_io: HangingFileIO = file_io, number: int = number) -> Any:
            nonlocal reads
            # A save looks at its file and writes it in one go, and is waited for.
            read = call.kind in ("read", "list") and "/consumer/" not in call.path
            reads += read
            return file_io.hang(call) if read and reads == number else call.answer()

        file_io.wherever(fault)
        hung = await left_hanging(scan, file_io)
        file_io.wherever(None)
        scan.restore(2)
        plan = await asyncio.wait_for(scan.plan_async(), LONG)
        assert plan is not None and plan.snapshot_id == 2
        assert (await asyncio.wait_for(scan.lag_async(), LONG)).snapshots == 2
        file_io.go_on.set()
        scan.close()
        if not hung:
            # After the first plan its successors' metadata is at hand.
            assert number > (0 if first else 3)
            return
    raise AssertionError("the call never ended")


def is_next_poll(file_io: HangingFileIO, call: Call) -> bool:
    """Whether this asks for what comes after the first plan; the start is found by looking there too."""
    return call.name == "snapshot-2" and any(name.startswith("manifest") for name in file_io.names())


async def test_after_a_seek_no_step_that_was_made_ahead_is_waited_for(tmp_path: Path, hanging: HangingFileIO) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    scan = scan_of(table, hanging, None, "earliest", prefetch=3)
    hanging.hangs = lambda call: is_next_poll(hanging, call)
    assert (await scan.plan_async()).snapshot_id == 1
    assert await asyncio.to_thread(hanging.hanging.wait, LONG)
    hanging.hangs = lambda call: False
    table.commit([2])
    scan.restore(1)
    assert [(await asyncio.wait_for(scan.plan_async(), LONG)).snapshot_id for _ in range(2)] == [1, 2]
    scan.close()


async def test_many_seeks_while_requests_hang_are_never_refused(table: Table, hanging: HangingFileIO) -> None:
    """Those that were left have not hung for long: they are not taken for a store that does not answer."""
    scan = scan_of(table, hanging, None, "earliest", prefetch=0)
    for _ in range(20):
        hanging.hanging.clear()
        hanging.hangs = lambda call: call.name == "snapshot-1"
        assert await left_hanging(scan, hanging)
        hanging.hangs = lambda call: False
        scan.restore(1)
    assert (await asyncio.wait_for(scan.plan_async(), LONG)).snapshot_id == 1
    scan.close()


@pytest.mark.parametrize("io_timeout", [NEVER, 2.0])
async def test_after_a_seek_a_save_is_waited_for_by_the_next_plan_until_its_requests_time_out(
    table: Table, hanging: HangingFileIO, io_timeout: float
) -> None:
    """`restore` waits for nothing. What is saved of the new place comes after what was to be saved of the old one."""
    builder = table.builder(hanging, io_timeout=io_timeout).with_start("earliest").with_prefetch(0)
    scan = builder.with_catch_up("replay").with_consumer_id("c").new_streaming_scan()
    for _ in range(2):
        assert await scan.plan_async() is not None
    saves = 0

    def fault(call: Call) -> Any:
        nonlocal saves
        save = call.kind == "write" and "/consumer/" in call.path
        saves += save
        # The request and its one repetition.
        return hanging.hang(call) if save and saves <= 2 else call.answer()

    hanging.wherever(fault)
    assert await left_hanging(scan, hanging)
    scan.restore(1)
    if io_timeout == NEVER:
        hanging.go_on.set()
    assert (await asyncio.wait_for(scan.plan_async(), LONG)).snapshot_id == 1
    assert scan.committed() == 1
    scan.close()


async def test_lag_and_commits_do_not_wait_for_a_step_that_hangs_nor_a_step_for_them(
    tmp_path: Path, hanging: HangingFileIO
) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    scan = scan_of(table, hanging, "c", "earliest", prefetch=0)
    plan = await scan.plan_async()
    hanging.hangs = lambda call: call.name == "snapshot-2"
    waiting = asyncio.ensure_future(scan.plan_async())
    assert await asyncio.to_thread(hanging.hanging.wait, LONG)
    assert (await asyncio.wait_for(scan.lag_async(), LONG)).snapshots == 0
    await asyncio.wait_for(scan.commit_async(plan), LONG)
    assert scan.committed() == 2
    waiting.cancel()
    await asyncio.wait([waiting])
    scan.restore(1)
    # Of many that measure the lag all hang; the next plan and commit do not wait for one of them.
    hanging.hanging.clear()
    hanging.hangs = lambda call: call.kind == "list"
    lags = [asyncio.ensure_future(scan.lag_async()) for _ in range(5)]
    assert await asyncio.to_thread(hanging.hanging.wait, LONG)
    plan = await asyncio.wait_for(scan.plan_async(), LONG)
    assert plan.snapshot_id == 1
    await asyncio.wait_for(scan.commit_async(plan), LONG)
    hanging.go_on.set()
    await asyncio.gather(*lags)
    scan.close()
