"""Ending a stream while a request hangs: at once, with what was confirmed saved."""

from __future__ import annotations

import asyncio
import signal
import textwrap
import threading
from pathlib import Path

import pytest

from pypaimon.streaming import AsyncStreamingTableScan, EndOfScan, StreamReadBuilder
from support.crash.child_process import first_lines, run
from support.samples import some
from support.stores.fault_file_io import HangingFileIO, data_files_from
from support.tables.streamed_table import Table, available, snapshots
from support.waits import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]

NEVER = 3600.0
"""Seconds that a request may take: none is given up while a test runs."""
SOON = 120
"""Seconds after which what should have happened will not; how busy the machine is must not show."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each((1, 2))


def caught_up(table: Table, hanging: HangingFileIO, prefetch: int) -> AsyncStreamingTableScan:
    """A scan that has handed out two plans, of which the second is not confirmed; its next request hangs."""
    builder = table.builder(hanging, io_timeout=NEVER).with_start("earliest").with_catch_up("replay")
    scan = builder.with_prefetch(prefetch).with_consumer_id("c").with_poll_interval_ms(1).new_streaming_scan()
    stream = scan.stream_sync()
    assert [next(stream).snapshot_id for _ in range(2)] == [1, 2]
    hanging.written.clear()
    hanging.hangs = lambda call: call.name.startswith("snapshot-")
    if prefetch:
        scan._driver.parts.get().prefetcher.clear()
    return scan


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("end", ["stop", "close", "loop"])
def test_a_blocking_loop_ends_though_a_request_hangs(
    table: Table, hanging: HangingFileIO, end: str, prefetch: int
) -> None:
    scan = caught_up(table, hanging, prefetch)
    stream = scan.stream_sync()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(plan.snapshot_id for plan in stream), daemon=True)
    thread.start()
    assert hanging.hanging.wait(SOON)
    assert hanging.written.wait(SOON)
    {"stop": scan.stop, "close": scan.close, "loop": stream.close}[end]()
    thread.join(SOON)
    assert not thread.is_alive()
    assert found == []
    assert scan.committed() == 3
    scan.close()


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("end", ["stop", "close", "loop"])
async def test_an_async_loop_ends_though_a_request_hangs(
    table: Table, hanging: HangingFileIO, end: str, prefetch: int
) -> None:
    scan = caught_up(table, hanging, prefetch)
    stream = scan.stream()

    async def follow() -> list[int]:
        return [plan.snapshot_id async for plan in stream]

    waiting = asyncio.ensure_future(follow())
    for event in (hanging.hanging, hanging.written):
        assert await asyncio.to_thread(event.wait, SOON)
    if end == "loop":
        await stream.aclose()
    else:
        (scan.stop if end == "stop" else scan.close)()
    assert await asyncio.wait_for(waiting, SOON) == []
    assert scan.committed() == 3
    scan.close()


@pytest.mark.parametrize("end", ["stop", "close"])
def test_a_single_step_ends_though_a_request_hangs(table: Table, hanging: HangingFileIO, end: str) -> None:
    scan = caught_up(table, hanging, 0)
    ended = threading.Event()

    def step() -> None:
        with pytest.raises(EndOfScan):
            scan.plan()
        ended.set()

    threading.Thread(target=step, daemon=True).start()
    assert hanging.hanging.wait(SOON)
    (scan.stop if end == "stop" else scan.close)()
    assert ended.wait(SOON)
    scan.close()


def test_a_scan_that_was_stopped_before_its_first_plan_asks_for_nothing(table: Table, hanging: HangingFileIO) -> None:
    scan = table.builder(hanging).with_consumer_id("c").new_streaming_scan()
    hanging.forget()
    scan.stop()
    assert list(scan.stream_sync()) == []
    with pytest.raises(EndOfScan):
        scan.plan()
    assert hanging.calls == []
    scan.close()


def test_a_loop_that_was_left_while_a_request_hung_is_continued_by_the_next(
    table: Table, hanging: HangingFileIO
) -> None:
    scan = caught_up(table, hanging, 0)
    stream = scan.stream_sync()
    thread = threading.Thread(target=list, args=(stream,), daemon=True)
    thread.start()
    assert hanging.hanging.wait(SOON)
    stream.close()
    thread.join(SOON)
    table.commit([3])
    hanging.go_on.set()
    assert snapshots(available(scan)) == [3]
    scan.close()


# ---- batches ----


def batches(table: Table, hanging: HangingFileIO) -> StreamReadBuilder:
    """Batches, of which the third does not come."""
    hanging.hangs = data_files_from(3)
    table.commit([3])
    builder = table.builder(hanging, io_timeout=NEVER).with_start("earliest").with_catch_up("replay")
    return builder.with_consumer_id("c").with_poll_interval_ms(1)


@pytest.mark.parametrize("end", ["stop", "close"])
def test_blocking_batches_end_though_a_data_file_hangs(table: Table, hanging: HangingFileIO, end: str) -> None:
    stream = batches(table, hanging).open_sync()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(batch.snapshot_id for batch in stream), daemon=True)
    thread.start()
    assert hanging.hanging.wait(SOON)
    until(lambda: stream.scan.committed() == 3)
    {"stop": stream.stop, "close": stream.close}[end]()
    thread.join(SOON)
    assert not thread.is_alive()
    assert found == [1, 2]
    assert stream.scan.committed() == 3
    stream.close()


@pytest.mark.parametrize("end", ["stop", "aclose"])
async def test_awaited_batches_end_though_a_data_file_hangs(table: Table, hanging: HangingFileIO, end: str) -> None:
    stream = batches(table, hanging).open()

    async def follow() -> list[int]:
        return [batch.snapshot_id async for batch in stream]

    waiting = asyncio.ensure_future(follow())
    assert await asyncio.to_thread(hanging.hanging.wait, SOON)
    await asyncio.to_thread(until, lambda: stream.scan.committed() == 3)
    if end == "stop":
        stream.stop()
    else:
        await stream.aclose()
    assert await asyncio.wait_for(waiting, SOON) == [1, 2]
    assert stream.scan.committed() == 3
    await stream.aclose()


def test_stopped_in_the_middle_of_a_plan_the_rest_is_waited_for(table: Table, hanging: HangingFileIO) -> None:
    hanging.hangs = data_files_from(3)
    table.commit([3])
    builder = table.builder(hanging, io_timeout=NEVER).with_consumer_id("c").with_poll_interval_ms(1)
    found: list[int] = []
    with builder.open_sync(batch_bytes=1) as stream:
        for batch in stream:
            found += batch.data["k"].to_pylist()
            if found == [1, 2]:
                assert hanging.hanging.wait(SOON)
                stream.stop()
                hanging.go_on.set()
    assert found == [1, 2, 3]
    assert stream.scan.committed() == 4


@pytest.mark.parametrize("face", some("programs that hang", ["sync", "async"], 1))
def test_a_program_that_is_asked_to_stop_ends_though_a_request_hangs(table: Table, tmp_path: Path, face: str) -> None:
    loop = {
        "sync": """
        for plan in scan.stream_sync():
            handle(plan)
        """,
        "async": """
        import asyncio
        async def main():
            async with scan.stream() as stream:
                async for plan in stream:
                    handle(plan)
        asyncio.run(main())
        """,
    }[face]
    setup = """
        from support.stores.fault_file_io import HangingFileIO
        file_io = HangingFileIO()
        scan = (table.builder(file_io, io_timeout=3600.0).with_start("earliest").with_poll_interval_ms(1)
                .with_prefetch(0).with_consumer_id("c").new_streaming_scan())
        signal.signal(signal.SIGTERM, lambda *_: scan.stop())
        def tell():
            file_io.hanging.wait()
            print("hangs", flush=True)
        threading.Thread(target=tell, daemon=True).start()
        def handle(plan):
            print(plan.snapshot_id, flush=True)
            if plan.snapshot_id == 2:
                file_io.hangs = lambda call: call.name.startswith("snapshot-")
    """
    with run(tmp_path, textwrap.dedent(setup) + textwrap.dedent(loop) + 'print("end", scan.committed())\n') as process:
        assert first_lines(process, 3) == ["1", "2", "hangs"]
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=SOON)
        assert (output.strip(), errors, process.returncode) == ("end 3", "", 0)
