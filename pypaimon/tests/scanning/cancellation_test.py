"""Asyncio and threads around a scan: cancelled, left, collected, interrupted; nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import AsyncStreamingTableScan, EndOfScan, StreamConfigError, StreamReadBuilder
from pypaimon.streaming.errors import StoreError
from support.crash.child_process import first_lines, run
from support.samples import some
from support.stores.fault_file_io import RESET, Call, FaultFileIO, failing
from support.stores.request_time import hang
from support.stores.virtual_clock import VirtualClock
from support.tables.streamed_table import Table, available, keys, snapshots

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PATIENCE = 120
"""Seconds after which what should have happened will not; how busy the machine is must not show."""


@pytest.fixture(autouse=True)
def _no_scan_is_left() -> Iterator[None]:
    """After each test the threads of its scans are gone."""
    yield
    _assert_ended("paimon-scan", "paimon-plan", "paimon-read-ahead", "paimon-batches")


@pytest.fixture(autouse=True, scope="module")
def _no_thread_is_left() -> Iterator[None]:
    """Those of a table handle that nobody closed end too, once they were idle for a while."""
    yield
    _assert_ended("paimon")


def _assert_ended(*names: str) -> None:
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while living := [thread for thread in threading.enumerate() if thread.name.startswith(names)]:
        assert time.monotonic() < deadline, f"threads are left: {living}"
        living[0].join(0.05)


@pytest.fixture
def file_io() -> FaultFileIO:
    return FaultFileIO()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four commits, snapshot n with the keys 10 n and 10 n + 1."""
    table = Table(tmp_path / "w")
    for number in range(1, 5):
        table.commit([number * 10, number * 10 + 1])
    return table


def stream_of(table: Table, file_io: Any = None, clock: Any = None, **settings: Any) -> AsyncStreamingTableScan:
    builder = table.builder(file_io, clock).with_start("earliest").with_poll_interval_ms(20)
    for name, value in settings.items():
        getattr(builder, f"with_{name}")(*value) if isinstance(value, tuple) else getattr(builder, f"with_{name}")(
            value
        )
    return builder.new_streaming_scan()


async def steps_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


# ---- cancellation ----


@pytest.mark.parametrize("consumer", [False, True])
@pytest.mark.parametrize("prefetch", [0, 4])
async def test_cancelled_at_any_await_the_stream_hands_out_the_same_plans(
    table: Table, prefetch: int, consumer: bool
) -> None:
    settings: dict[str, Any] = {"prefetch": prefetch}
    if consumer:
        settings["consumer_id"] = "c"
    for cancel_after in range(12):
        for path in (table.path / "consumer").glob("*"):
            path.unlink()
        scan = stream_of(table, **settings)
        found: list[int] = []
        stream = scan.stream()
        while len(found) < 4:
            for steps in (cancel_after, cancel_after, None):
                waiting = asyncio.ensure_future(stream.__anext__())
                if steps is not None:
                    await steps_of_the_loop(steps)
                    waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found.append((await waiting).snapshot_id)
                if len(found) == 4:
                    break
        assert found == [1, 2, 3, 4]
        scan.close()


class Cancel:
    """Cancels once, at the n-th time that the calls wait for anything: as it begins, or as the wait is over.

    Attributes:
        file_io: Reads a data file only for a wait, so that there are as many waits as files.
    """

    def __init__(self, number: int, late: bool) -> None:
        self.came = False
        self.file_io = FaultFileIO()
        self.file_io.wherever(self._read)
        # One ahead: a batch is handed out once the one after it was read.
        self._waits = threading.Semaphore(1)
        self._left = number
        self._late = late

    async def call(self, coroutine: Any) -> Any:
        """The result of a call, unless it is cancelled."""
        return await _Steps(self._steps(coroutine.__await__()))

    def _steps(self, steps: Any) -> Generator[Any, Any, Any]:
        give = steps.send, None
        while True:
            try:
                waits_for = give[0](give[1])
            except StopIteration as end:
                return end.value
            self._left -= 1
            self._waits.release()
            cancels = self._left == 0
            if self._late or not cancels:
                yield waits_for
            self.came = self.came or cancels
            give = (steps.throw, asyncio.CancelledError()) if cancels else (steps.send, None)

    def _read(self, call: Any) -> Any:
        if call.path.endswith(".parquet"):
            assert self._waits.acquire(timeout=PATIENCE)
        return call.answer()


class _Steps:
    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("start", ["earliest", "latest-full"])
async def test_cancelled_at_any_await_a_stream_hands_out_the_same_batches(table: Table, start: str, late: bool) -> None:
    """From `earliest` one batch a plan, from `latest-full` several batches of one plan, each confirmed by asking."""
    wanted = [number * 10 + each for number in range(1, 5) for each in (0, 1)]
    for number in itertools.count(1):
        for path in (table.path / "consumer").glob("*"):
            path.unlink()
        cancel = Cancel(number, late)
        builder = table.builder(cancel.file_io).with_catch_up("replay").with_end(latest=True).with_consumer_id("c")
        builder.with_poll_interval_ms(1).with_start(start)
        assert await batches_through(cancel, builder) == (wanted, 5)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if not cancel.came:
            assert number > 3
            break


async def batches_through(cancel: Cancel, builder: StreamReadBuilder) -> tuple[list[int], int | None]:
    """Keys of all batches, and what is saved at last; nothing is saved that was not handed out."""
    keys: list[int] = []
    allowed = 1
    async with builder.open(batch_bytes=1, read_ahead_bytes=0) as stream:
        while True:
            try:
                batch = await cancel.call(stream.__anext__())
            except asyncio.CancelledError:
                batch = None
            except StopAsyncIteration:
                return keys, stream.scan.committed()
            assert (stream.scan.committed() or 0) <= allowed
            if batch is not None:
                keys += batch.data["k"].to_pylist()
                allowed = allowed if batch.position is None else batch.position.snapshot


async def test_cancelled_while_each_request_is_under_way_nothing_is_lost(table: Table, file_io: FaultFileIO) -> None:
    """Every request of the scenario is held, the waiting call cancelled, the request let go."""
    scan = stream_of(table, file_io, prefetch=0)
    file_io.forget()
    held, let_go = threading.Semaphore(0), threading.Semaphore(0)

    def hold(call: Call) -> Any:
        held.release()
        let_go.acquire()
        return call.answer()

    file_io.wherever(hold)
    found: list[int] = []
    stream = scan.stream()
    cancelled = 0
    while len(found) < 4:
        waiting = asyncio.ensure_future(stream.__anext__())
        await until(lambda call=waiting: call.done() or held.acquire(blocking=False))  # type: ignore[misc]
        if not waiting.done():
            waiting.cancel()
            cancelled += 1
            let_go.release()
        with contextlib.suppress(asyncio.CancelledError):
            found.append((await waiting).snapshot_id)
    fetched = [name for name in file_io.names("read") if name.startswith("manifest")]
    assert found == [1, 2, 3, 4] and len(fetched) == len(set(fetched)) == 8
    assert cancelled >= len(file_io.calls) > 8, (cancelled, file_io.calls)
    let_go.release(100)
    scan.close()


async def test_a_timed_wait_loses_nothing_and_keeps_the_poll_interval(table: Table, file_io: FaultFileIO) -> None:
    clock = VirtualClock()
    scan = stream_of(table, file_io, clock, prefetch=0)
    stream = scan.stream()
    assert [(await stream.__anext__()).snapshot_id for _ in range(4)] == [1, 2, 3, 4]
    held = asyncio.Event()

    async def hold(woken: asyncio.Event, seconds: float) -> None:
        held.set()
        await asyncio.Event().wait()

    clock.wait_async = hold  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(stream.__anext__())
    await held.wait()
    file_io.forget()
    waiting.cancel()
    # Until a cancelled call has ended, the stream is driven by it.
    await asyncio.wait([waiting])
    for _ in range(20):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream.__anext__(), 0.001)
    assert file_io.calls == []  # the next poll was not due
    clock.now += 1
    table.commit([50])
    assert (await asyncio.wait_for(stream.__anext__(), 10)).snapshot_id == 5
    scan.close()


async def test_a_cancelled_call_does_not_keep_what_it_found_out_for_ever(table: Table, file_io: FaultFileIO) -> None:
    """A poll, or an error, that nobody has seen is not the answer to a call that comes later."""
    scan = stream_of(table, file_io, prefetch=0)
    assert [(await scan.plan_async()).snapshot_id for _ in range(4)] == [1, 2, 3, 4]  # type: ignore[union-attr]
    for fault in (None, failing(PermissionError(13, "denied"))):
        file_io.forget()
        file_io.asked.clear()
        file_io.gate.clear()
        if fault:
            file_io.at(1, fault)
        waiting = asyncio.ensure_future(scan.plan_async())
        await until(file_io.asked.is_set)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        file_io.gate.set()
        await until(lambda: scan._driver._pending is not None and scan._driver._pending.found.done())
        table.commit([table.latest() * 10])
        plan = await scan.plan_async()
        assert plan is not None and plan.snapshot_id == table.latest()
    scan.close()


async def test_gathered_streams_are_cancelled_together_without_loss(table: Table) -> None:
    other = stream_of(table)
    scan = stream_of(table)
    found: dict[int, list[int]] = {0: [], 1: []}

    async def follow(number: int, stream: AsyncIterator[Any]) -> None:
        async for plan in stream:
            found[number].append(plan.snapshot_id)

    async def fail() -> None:
        await until(lambda: len(found[0]) == len(found[1]) == 4)
        raise RuntimeError("a sibling fails")

    if sys.version_info >= (3, 11):
        with pytest.raises(BaseException, match="unhandled errors"):
            async with asyncio.TaskGroup() as group:
                group.create_task(follow(0, scan.stream()))
                group.create_task(follow(1, other.stream()))
                group.create_task(fail())
    else:
        tasks = [asyncio.ensure_future(follow(n, s.stream())) for n, s in enumerate((scan, other))]
        with pytest.raises(RuntimeError):
            await asyncio.gather(*tasks, fail())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    table.commit([50])
    assert found == {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]}
    assert snapshots(available(scan)) == snapshots(available(other)) == [5]
    scan.close()
    other.close()


async def test_a_seek_after_a_cancelled_call_beats_what_that_call_still_does(
    table: Table, file_io: FaultFileIO
) -> None:
    """The worker that a cancelled call left must not tell the consumer that the stream begins where it was."""
    scan = stream_of(table, file_io, prefetch=0, consumer_id="c")
    file_io.forget()
    file_io.asked.clear()
    file_io.wherever(lambda call: file_io.gate.wait() and call.answer())
    for number in range(1, 12):
        waiting = asyncio.ensure_future(scan.plan_async())
        await asyncio.sleep(0)
        file_io.gate.clear()
        await steps_of_the_loop(number)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        scan.restore(3)
        file_io.gate.set()
        assert [(await scan.plan_async()).snapshot_id for _ in range(2)] == [3, 4]  # type: ignore[union-attr]
        assert scan.committed() == 4
        scan.restore(1)
    scan.close()


# ---- leaving ----


async def test_a_loop_that_was_left_by_break_is_continued_by_the_next(table: Table) -> None:
    scan = stream_of(table)
    async for plan in scan.stream():
        if plan.snapshot_id == 2:
            break
    async with scan.stream() as stream:
        assert (await stream.__anext__()).snapshot_id == 3
    assert [plan.snapshot_id for plan in [await scan.plan_async()] if plan] == [4]
    scan.close()


async def test_a_later_loop_ends_the_earlier_one(table: Table) -> None:
    scan = stream_of(table)
    first, second = scan.stream(), scan.stream()
    assert (await first.__anext__()).snapshot_id == 1
    assert (await second.__anext__()).snapshot_id == 2
    assert [plan async for plan in first] == []
    assert (await second.__anext__()).snapshot_id == 3
    scan.close()


async def test_single_steps_and_seeks_do_not_end_a_loop(table: Table) -> None:
    scan = stream_of(table)
    stream = scan.stream()
    assert (await stream.__anext__()).snapshot_id == 1
    assert (await scan.plan_async()).snapshot_id == 2  # type: ignore[union-attr]
    assert (await stream.__anext__()).snapshot_id == 3
    scan.restore(2)
    assert (await stream.__anext__()).snapshot_id == 2
    scan.close()


async def test_a_second_driver_is_refused_and_harms_nothing(table: Table, file_io: FaultFileIO) -> None:
    scan = stream_of(table, file_io)
    file_io.asked.clear()
    file_io.gate.clear()
    first = asyncio.ensure_future(scan.stream().__anext__())
    await until(file_io.asked.is_set)
    for drive in (scan.plan, lambda: next(scan.stream_sync()), lambda: scan.restore(1)):
        with pytest.raises(StreamConfigError, match="driven by another call"):
            drive()
    with pytest.raises(StreamConfigError, match="driven by another call"):
        await scan.stream().__anext__()
    file_io.gate.set()
    assert (await first).snapshot_id == 1
    scan.close()


@pytest.mark.parametrize("end", ["aclose", "scan_close", "stop"])
@pytest.mark.parametrize("during", ["request", "pause"])
async def test_closed_from_another_task_a_waiting_loop_ends(
    table: Table, file_io: FaultFileIO, end: str, during: str
) -> None:
    scan = stream_of(table, file_io, poll_interval_ms=3_600_000, prefetch=0)
    if during == "pause":
        assert snapshots(available(scan)) == [1, 2, 3, 4]
    file_io.forget()
    file_io.asked.clear()
    stream = scan.stream()
    if during == "request":
        file_io.gate.clear()
    waiting = asyncio.ensure_future(stream.__anext__())
    if during == "request":
        await until(file_io.asked.is_set)
    else:
        await until(lambda: scan._driver._sleeper._wakers)
    if end == "aclose":
        await stream.aclose()
    elif end == "stop":
        scan.stop()
    else:
        await scan.aclose()
    file_io.gate.set()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 10)
    if end == "aclose":
        table.commit([50])
        assert snapshots(available(scan))[-1:] == [5]
    else:
        with pytest.raises(EndOfScan):
            scan.plan()
    scan.close()


async def test_what_was_closed_may_be_closed_again_and_says_so(table: Table) -> None:
    scan = stream_of(table, consumer_id=("c", "manual"))
    plan = await scan.plan_async()
    assert plan is not None
    scan.close()
    await scan.aclose()
    with pytest.raises(EndOfScan, match="closed"):
        await scan.plan_async()
    with pytest.raises(EndOfScan, match="closed"):
        scan.plan()
    assert [each async for each in scan.stream()] == []
    # What was handed out may still be confirmed.
    await scan.commit_async(plan)
    assert scan.committed() == 2
    assert (await scan.lag_async()).snapshots == 3
    scan.close()


async def test_collected_without_being_closed_a_scan_leaves_nothing(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that may wait for ever end, and those that no pool needs."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    threads: set[threading.Thread] = set()
    files = len(os.listdir("/dev/fd"))

    async def leave() -> None:
        async for _ in stream_of(table).stream():
            break
        cycle: list[Any] = [stream_of(table, consumer_id="c").stream()]
        await cycle[0].__anext__()
        cycle.append(cycle)
        for _ in stream_of(table).stream_sync():
            break
        builder = table.builder().with_start("earliest").with_catch_up("replay")
        batches, blocking = builder.open(batch_bytes=1), builder.open_sync(batch_bytes=1)
        await batches.__anext__()
        next(blocking)
        threads.update(thread for thread in threading.enumerate() if thread.name.startswith("paimon-"))

    await leave()
    gc.collect()
    names = {thread.name.rstrip("-0123456789") for thread in threads}
    assert names >= {"paimon-read-ahead", "paimon-spare"}
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(os.listdir("/dev/fd")) == files
    assert list(temporary.iterdir()) == []


async def test_context_managers_close(table: Table) -> None:
    async with stream_of(table) as scan, scan.stream() as stream:
        assert (await stream.__anext__()).snapshot_id == 1
    with stream_of(table) as scan, scan.stream_sync() as blocking:
        assert next(blocking).snapshot_id == 1
        blocking.close()
        assert list(blocking) == []
    assert [each async for each in stream] == []


# ---- the event loop ----


async def test_requests_never_hold_the_event_loop(table: Table, file_io: FaultFileIO) -> None:
    """Each request comes back only after the loop has gone round some times more; one that held it never would."""
    scan = stream_of(table, file_io, prefetch=2, consumer_id=("c", "manual"))
    waiting: list[threading.Event] = []

    def answer_later(call: Any) -> Any:
        seen = threading.Event()
        waiting.append(seen)
        assert seen.wait(PATIENCE), "the event loop stood still while a request was under way"
        return call.answer()

    async def beat() -> None:
        while True:
            asked = list(waiting)
            for _ in range(5):
                await asyncio.sleep(0)
            for seen in asked:
                seen.set()

    file_io.wherever(answer_later)
    heart = asyncio.ensure_future(beat())
    found = []
    async with scan.stream() as stream:
        async for plan in stream:
            found.append(plan.snapshot_id)
            await scan.commit_async(plan)
            await scan.lag_async()
            break
    file_io.wherever(None)
    for seen in waiting:
        seen.set()
    heart.cancel()
    assert found == [1]
    assert len(waiting) > 5
    scan.close()


async def test_a_hung_request_stalls_nothing_but_its_own_stream(table: Table, file_io: FaultFileIO) -> None:
    hung, fine = stream_of(table, file_io), stream_of(table)
    file_io.asked.clear()
    file_io.gate.clear()
    waiting = asyncio.ensure_future(hung.stream().__anext__())
    await until(file_io.asked.is_set)
    stream = fine.stream()
    assert [(await stream.__anext__()).snapshot_id for _ in range(4)] == [1, 2, 3, 4]
    assert not waiting.done()
    file_io.gate.set()
    assert (await waiting).snapshot_id == 1
    hung.close()
    fine.close()


async def test_a_request_that_hangs_for_good_is_an_error_that_may_be_tried_again(
    table: Table, file_io: FaultFileIO
) -> None:
    scan = stream_of(table, file_io, prefetch=0)
    over = threading.Event()
    file_io.wherever(lambda call: hang(over) or call.answer())
    with pytest.raises(StoreError) as caught:
        await scan.plan_async()
    assert caught.value.retriable and isinstance(caught.value, TimeoutError)
    over.set()
    file_io.wherever(None)
    assert (await scan.plan_async()).snapshot_id == 1  # type: ignore[union-attr]
    scan.close()


async def test_one_loop_holds_several_scans_and_reads(table: Table) -> None:
    async def follow() -> list[int]:
        builder = table.builder().with_start("earliest")
        read, found = builder.new_read(), []
        async with builder.new_streaming_scan() as scan:
            async for plan in scan.stream():
                found += (await read.to_arrow_async(plan.splits()))["k"].to_pylist()
                if plan.snapshot_id == 4:
                    break
        return found

    assert await asyncio.gather(*(follow() for _ in range(5))) == [[10, 11, 20, 21, 30, 31, 40, 41]] * 5


# ---- blocking faces ----


async def test_blocking_calls_work_inside_a_running_loop_and_in_threads(table: Table) -> None:
    scan = stream_of(table)
    stream = scan.stream_sync()
    assert [next(stream).snapshot_id for _ in range(2)] == [1, 2]
    assert await asyncio.to_thread(lambda: next(stream).snapshot_id) == 3
    assert next(stream).snapshot_id == 4
    scan.close()


def test_stopped_from_another_thread_a_waiting_loop_ends_at_once(table: Table, file_io: FaultFileIO) -> None:
    scan = stream_of(table, file_io, poll_interval_ms=3_600_000, prefetch=0, consumer_id="c")
    found: list[int] = []

    def follow() -> None:
        found.extend(plan.snapshot_id for plan in scan.stream_sync())

    thread = threading.Thread(target=follow)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while scan.metrics.idle_polls == 0:
        assert time.monotonic() < deadline
        thread.join(0.001)
    scan.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert found == [1, 2, 3, 4]
    assert scan.committed() == 5
    scan.close()


def test_after_an_error_the_same_stream_continues(table: Table, file_io: FaultFileIO) -> None:
    scan = stream_of(table, file_io, prefetch=2)
    stream = scan.stream_sync()
    assert next(stream).snapshot_id == 1
    file_io.wherever(failing(RESET))
    scan._driver.parts.get().prefetcher.clear()
    with pytest.raises(StoreError):
        while True:
            next(stream)
    reached = scan.next_snapshot_id
    with pytest.raises(StoreError):
        next(stream)
    assert scan.next_snapshot_id == reached
    file_io.wherever(None)
    assert [plan.snapshot_id for plan in available(scan)] == list(range(reached or 0, 5))
    scan.close()


# ---- processes ----


def test_exit_does_not_wait_for_a_request_that_hangs(table: Table, tmp_path: Path) -> None:
    with run(
        tmp_path,
        """
        file_io = FaultFileIO()
        scan = table.builder(file_io, io_timeout=3600).with_start("earliest").new_streaming_scan()
        print(scan.plan().snapshot_id, flush=True)
        file_io.gate.clear()
        file_io.asked.clear()
        threading.Thread(target=lambda: available(scan), daemon=True).start()
        file_io.asked.wait()
        print("hangs", flush=True)
        """,
    ) as process:
        assert first_lines(process, 2) == ["1", "hangs"]
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")


def test_ctrl_c_interrupts_a_blocking_loop_and_loses_nothing(table: Table, tmp_path: Path) -> None:
    with run(
        tmp_path,
        """
        scan = table.builder().with_start("earliest").with_poll_interval_ms(3_600_000).new_streaming_scan()
        stream = scan.stream_sync()
        try:
            for plan in stream:
                print(plan.snapshot_id, flush=True)
        except KeyboardInterrupt:
            print("interrupted at", scan.next_snapshot_id, flush=True)
        sys.stdin.readline()
        print([plan.snapshot_id for plan in available(scan)], flush=True)
        scan.close()
        """,
    ) as process:
        assert first_lines(process, 4) == ["1", "2", "3", "4"]
        process.send_signal(signal.SIGINT)
        assert first_lines(process, 1) == ["interrupted at 5"]
        table.commit([50])
        output, errors = process.communicate("\n", timeout=PATIENCE)
        assert (output.strip(), errors, process.returncode) == ("[5]", "", 0)


@pytest.mark.parametrize("face", some("programs that are stopped", ["sync", "async"], 1))
def test_stop_in_a_sigterm_handler_finishes_the_plan_in_hand_and_saves_it(
    table: Table, tmp_path: Path, face: str
) -> None:
    loop = {
        "sync": """
        for plan in scan.stream_sync():
            handle(plan)
        """,
        "async": """
        import asyncio
        async def main():
            async for plan in scan.stream():
                handle(plan)
        asyncio.run(main())
        """,
    }[face]
    body = """
        scan = (table.builder().with_start("earliest").with_poll_interval_ms(3_600_000)
                .with_consumer_id("c").new_streaming_scan())
        signal.signal(signal.SIGTERM, lambda *_: scan.stop())
        def handle(plan):
            print(plan.snapshot_id, flush=True)
            if plan.snapshot_id == 2 and len(sys.argv) > 3:
                os.kill(os.getpid(), signal.SIGTERM)
    """
    with run(tmp_path, textwrap.dedent(body) + textwrap.dedent(loop) + 'print("end", scan.committed())\n') as process:
        assert first_lines(process, 4) == ["1", "2", "3", "4"]
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert (output.strip(), errors, process.returncode) == ("end 5", "", 0)


def test_stop_while_a_plan_is_in_hand_ends_after_it(table: Table) -> None:
    scan = stream_of(table, consumer_id="c")
    found = []
    for plan in scan.stream_sync():
        found.append(plan.snapshot_id)
        if plan.snapshot_id == 2:
            previous = signal.signal(signal.SIGTERM, lambda *_: scan.stop())
            os.kill(os.getpid(), signal.SIGTERM)
            signal.signal(signal.SIGTERM, previous)
    assert found == [1, 2]
    assert scan.committed() == 3
    with pytest.raises(EndOfScan):
        scan.plan()
    scan.close()


def test_leaving_with_a_plan_in_hand_confirms_nothing(table: Table) -> None:
    read = table.builder().new_read()
    for leave in ("break", "close", "error"):
        scan = stream_of(table, consumer_id=leave)
        with contextlib.suppress(RuntimeError), scan, scan.stream_sync() as stream:
            for plan in stream:
                if plan.snapshot_id == 2:
                    if leave == "error":
                        raise RuntimeError("the caller fails")
                    if leave == "close":
                        scan.close()
                    break
        again = stream_of(table, consumer_id=leave)
        assert keys(read, available(again))[:2] == [20, 21]
        again.close()
