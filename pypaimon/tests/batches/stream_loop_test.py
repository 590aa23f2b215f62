"""The one loop of batches, over each of its sources: a table, a member of a group, a database."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    BatchStream,
    GroupStream,
    Lag,
    Position,
    StreamConfigError,
    run_forever,
    run_forever_async,
    stream_read_builder,
)
from pypaimon.streaming.batches.read_ahead import ReadingThread
from pypaimon.streaming.batches.stream import StreamLoop
from pypaimon.streaming.concurrency import forking
from pypaimon.streaming.databases import DatabasePosition
from support.crash.interrupted_call import Interrupt
from support.samples import SOAK, how_to_repeat, is_drawn
from support.tables.databases import Database, keys
from support.waits import until

pytestmark = pytest.mark.slow

LONG = 60.0
SESSION = 5.0
ONE_IN = 1 if SOAK else 48
LOOP = ("stream.py", "batch_stream.py", "group_stream.py", "handover.py", "read_ahead.py", "group_reader.py")
"""Modules between a source and its caller."""
DELICATE = {
    f"{Path(call.__code__.co_filename).name}:{line}"
    for call in (ReadingThread.ready, StreamLoop._offer, BatchStream._offer, GroupStream._offer)
    for *_, line in call.__code__.co_lines()
}
"""Where two things change: a thread is noted and started, a batch is offered and its chunk dropped."""


class Source:
    """A table `t`, and streams of it: of the table, of a member of a group, or of its database."""

    def __init__(self, kind: str, database: Database) -> None:
        self.kind = kind
        self._database = database
        self._groups = 0
        database.create("t", 1, 2)

    def builder(self, commit: str | None = None, *, replays: bool = False) -> Any:
        """A builder of a stream that polls often.

        Args:
            commit: The commit mode of a consumer id or of a new group; None: no progress is saved, if that is possible.
            replays: Whether it gives each snapshot up to now as a plan, and ends.
        """
        if self.kind == "database":
            stream = self._database.stream()
            if replays:
                stream.with_start("earliest").with_end(latest=True)
                stream.with_each_table(lambda builder: builder.with_catch_up("replay"))
            return stream if commit is None else stream.with_consumer_id("etl", commit=commit)
        table = stream_read_builder(self._database.table("t")).with_poll_interval_ms(10)
        if replays:
            table.with_start("earliest").with_catch_up("replay").with_end(latest=True)
        if self.kind == "table":
            return table if commit is None else table.with_consumer_id("etl", commit=commit)
        self._groups += 1
        return table.new_group(f"group-{self._groups}", session_timeout=SESSION, commit=commit or "auto")

    def write(self, *rows: int) -> None:
        self._database.write("t", *rows)

    def write_soon(self, *rows: int) -> threading.Timer:
        timer = threading.Timer(0.1, self.write, rows)
        timer.start()
        return timer

    def place(self, position: Any) -> Position | None:
        """The position in the table."""
        if self.kind == "database":
            assert isinstance(position, DatabasePosition)
            place = position.tables.get("t")
            return None if place is None else place.position
        assert position is None or isinstance(position, Position)
        return position

    def lag(self, stream: Any) -> Any:
        """The measured lag of a blocking stream."""
        return stream.lag(fresh=True) if self.kind == "database" else stream.lag()


@pytest.fixture(params=["table", "group", "database"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    return Source(request.param, Database(tmp_path / "w"))


# ---- status, position, lag ----


def test_the_status_counts_what_the_caller_has_received(source: Source) -> None:
    with source.builder().open_sync() as stream:
        before = stream.status
        assert (before.batches, before.rows, before.bytes, before.position, before.lag) == (0, 0, 0, None, None)
        first = next(stream)
        status = stream.status
        assert (status.batches, status.rows, status.bytes) == (1, 2, first.data.nbytes)
        assert (status.rows_by_kind, status.snapshot_id) == ({"+I": 2}, 1)
        assert status.commit_time == first.commit_time
        assert status.commit_time is not None and status.commit_time.tzinfo is timezone.utc
        assert (status.position, status.scan.plans) == (first.position, 1)
        assert sum(status.scan.requests.values()) > 0
        source.write(3)
        second = next(stream)
        after = stream.status
        assert (after.batches, after.rows, after.snapshot_id, after.scan.plans) == (2, 3, 2, 2)
        assert after.position == second.position
        assert after.scan.requests["read"] >= status.scan.requests["read"]
        assert status.rows == 2, "a status is a plain value"
    assert (stream.status.rows, stream.status.scan.plans) == (3, 2), "it can be read after the end"


def test_the_status_knows_what_is_read_ahead(source: Source) -> None:
    with source.builder().open_sync() as stream:
        first = next(stream)
        source.write(3, 4, 5)
        until(lambda: stream.status.read_ahead_bytes >= 3 * 8)
        assert (stream.status.rows, stream.status.position) == (2, first.position)


def test_the_position_is_after_what_the_caller_has_received(source: Source) -> None:
    with source.builder().open_sync() as stream:
        assert source.place(stream.position) is None
        assert keys(next(stream)) == [1, 2]
        assert snapshot_of(source, stream) == 2
        source.write(3)
        until(lambda: stream.status.read_ahead_bytes >= 8)
        assert snapshot_of(source, stream) == 2, "what was only read ahead does not count"
        assert keys(next(stream)) == [3]
        assert snapshot_of(source, stream) == 3


def test_inside_a_plan_the_position_is_its_beginning(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypaimon.streaming.batches.chunks._UNCUT_ROWS", 1)
    with source.builder().open_sync(batch_bytes=1) as stream:
        read = 0
        while read < 2:
            read += next(stream).num_rows
        source.write(3, 4)
        while keys(part := next(stream)) != [3]:
            pass
        assert not part.is_last and snapshot_of(source, stream) == part.plan_before.snapshot == 2
        while not next(stream).is_last:
            pass
        assert snapshot_of(source, stream) == 3


def test_the_lag_is_that_of_the_last_batch(source: Source) -> None:
    with source.builder().open_sync() as stream:
        assert keys(next(stream)) == [1, 2]
        assert source.lag(stream).snapshots == 0
        source.write(3)
        source.write(4)
        found = source.lag(stream)
        assert (found.snapshots, found.rows) == (2, 2) and found.seconds > 0
        status = stream.status.lag
        assert isinstance(status, Lag)
        assert (status.snapshots, status.rows, status.seconds) == (found.snapshots, found.rows, found.seconds)
        assert keys(next(stream)) == [3] or source.kind == "table"
        while source.lag(stream).snapshots:
            next(stream)
        assert stream.status.lag.rows == 0


async def test_awaited_it_knows_the_same(source: Source) -> None:
    async with source.builder().open() as stream:
        assert keys(await anext(stream)) == [1, 2]
        source.write(3)
        lag = await (stream.lag(fresh=True) if source.kind == "database" else stream.lag())
        assert (lag.snapshots, stream.status.lag.snapshots, stream.status.rows) == (1, 1, 2)
        place = source.place(stream.position)
        assert place is not None and place.snapshot == 2
        assert keys(await anext(stream)) == [3]


# ---- pauses and ends ----


def test_a_pause_takes_its_time_and_a_stop_or_a_close_ends_it(source: Source) -> None:
    with source.builder().open_sync() as stream:
        next(stream)
        start = time.monotonic()
        stream.pause(0.05)
        assert time.monotonic() - start >= 0.05
        threading.Timer(0.05, stream.stop).start()
        stream.pause(LONG * 60)
        assert stream.is_stopping
        stream.pause(LONG * 60)
    with source.builder().open_sync() as stream:
        threading.Timer(0.05, stream.close).start()
        stream.pause(LONG * 60)
        assert not stream.is_stopping


async def test_an_awaited_pause_ends_with_a_stop_or_a_close(source: Source) -> None:
    async with source.builder().open() as stream:
        asyncio.get_running_loop().call_later(0.05, stream.stop)
        await stream.pause(LONG * 60)
        assert stream.is_stopping
    async with source.builder().open() as stream:
        closing = asyncio.create_task(stream.aclose())
        await stream.pause(LONG * 60)
        await closing


def test_a_stop_waits_for_the_rest_of_the_plan(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypaimon.streaming.batches.chunks._UNCUT_ROWS", 1)
    source.write(3, 4, 5)
    with source.builder().open_sync(batch_bytes=1) as stream:
        first = next(stream)
        assert not first.is_last
        stream.stop()
        source.write(6)
        assert keys(first) + [key for batch in stream for key in keys(batch)] == [1, 2, 3, 4, 5]
        assert next(stream, None) is None


def test_a_close_ends_a_call_of_another_thread(source: Source) -> None:
    with source.builder().open_sync() as stream:
        next(stream)
        threading.Timer(0.1, stream.close).start()
        assert next(stream, None) is None
        assert next(stream, None) is None
    assert stream.status.rows == 2


async def test_a_close_ends_a_call_of_another_task(source: Source) -> None:
    async with source.builder().open() as stream:
        await anext(stream)
        waiting = asyncio.create_task(anext(stream, None))
        await asyncio.sleep(0.1)
        await stream.aclose()
        assert await waiting is None
        assert await anext(stream, None) is None


async def test_the_wrong_kind_of_with_is_refused(source: Source) -> None:
    with pytest.raises(TypeError, match=r"builder\.open_sync\(\)"), source.builder().open():
        pass
    with pytest.raises(TypeError, match=r"builder\.open\(\)"):
        async with source.builder().open_sync():
            pass


# ---- one caller at a time, in one process ----


def test_a_second_caller_is_refused_and_the_first_loses_nothing(source: Source) -> None:
    with source.builder().open_sync() as stream:
        next(stream)
        found: list[Any] = []
        first = threading.Thread(target=lambda: found.append(next(stream)))
        first.start()
        until(lambda: bool(stream._handover._calls))
        with pytest.raises(StreamConfigError, match="read by another call"):
            next(stream)
        source.write(3)
        first.join(LONG)
        assert [keys(batch) for batch in found] == [[3]]
        source.write(4)
        assert keys(next(stream)) == [4]


def test_a_forked_process_cannot_use_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    with source.builder().open_sync() as stream:
        next(stream)
        with monkeypatch.context() as forked:
            forked.setattr(forking, "_generation", forking._generation + 1)
            calls: list[Callable[[], object]] = [
                lambda: next(stream),
                lambda: stream.status,
                lambda: source.lag(stream),
            ]
            for call in calls:
                with pytest.raises(StreamConfigError, match="forked"):
                    call()
            stream.close()
        source.write(3)
        # Its end is not that of the parent's stream, whose threads still read.
        until(lambda: stream.status.read_ahead_bytes >= 8)


# ---- nothing lost, nothing doubled ----


async def test_a_cancelled_wait_loses_and_repeats_nothing(source: Source) -> None:
    async with source.builder().open() as stream:
        found: list[int] = []
        last = 2
        for turn in range(60):
            if not turn % 4:
                last += 1
                source.write(last)
            waiting = asyncio.create_task(anext(stream))
            for _ in range(turn % 7):
                await asyncio.sleep(0.001 * (turn % 3))
            waiting.cancel()
            try:
                found += keys(await waiting)
            except asyncio.CancelledError:
                continue
        while len(found) < last:
            found += keys(await asyncio.wait_for(anext(stream), LONG))
        assert found == list(range(1, last + 1))
        assert stream.status.rows == last


@pytest.mark.soak
def test_ctrl_c_at_any_line_loses_and_repeats_nothing(source: Source) -> None:
    source.write(3)
    source.write(4)
    tracer = Interrupt()
    assert followed(source, tracer) == Counter(range(1, 5))
    lines = [line for line in tracer.seen if line.split(":")[0] in LOOP]
    assert len(lines) > 50
    drawn = [line for line in lines if line in DELICATE or is_drawn(f"{source.kind} {line}", ONE_IN)]
    for line in drawn:
        for number in {1, min(2, tracer.seen[line])}:
            found = followed(source, Interrupt(line, number))
            assert found == Counter(range(1, 5)), (line, number, how_to_repeat())


def followed(source: Source, interrupt: Interrupt) -> Counter[int]:
    """The keys that come in three batches, and how often."""
    found: Counter[int] = Counter()
    with source.builder(replays=True).open_sync() as stream:
        batch: Any = ()
        while batch is not None:
            with suppress(KeyboardInterrupt):
                batch = interrupt.call(lambda: next(stream, None))
                found.update(() if batch is None else keys(batch))
    return found


# ---- run_forever ----


def test_run_forever_handles_every_batch(source: Source) -> None:
    handled: list[list[int]] = []
    aside: list[tuple[list[int], str]] = []
    with source.builder().open_sync() as stream:

        def handle(batch: Any) -> None:
            handled.append(keys(batch))
            if len(handled) == 1:
                raise ValueError("comes again")
            if 3 in keys(batch):
                raise ValueError("goes aside")
            stream.stop() if 4 in keys(batch) else source.write(len(handled) + 1)

        quick: dict[str, Any] = {"first_pause": 0.0, "longest_pause": 0.0}
        run_forever(stream, handle, attempts=2, dead_letter=lambda *each: put_aside(source, aside, *each), **quick)
        assert stream.is_stopping and stream.status.batches == 3
    assert handled == [[1, 2], [1, 2], [3], [3], [4]]
    assert aside == [([3], "goes aside")]


def put_aside(source: Source, aside: list[tuple[list[int], str]], batch: Any, error: Exception) -> None:
    aside.append((keys(batch), str(error)))
    source.write(4)


async def test_run_forever_async_handles_every_batch(source: Source) -> None:
    handled: list[list[int]] = []
    async with source.builder().open() as stream:

        async def handle(batch: Any) -> None:
            handled.append(keys(batch))
            stream.stop() if 3 in keys(batch) else source.write(3)

        await run_forever_async(stream, handle)
    assert handled == [[1, 2], [3]]


# ---- what is confirmed ----


@pytest.mark.parametrize("commit", ["auto", "manual"])
def test_asking_for_the_next_or_a_commit_confirms(source: Source, commit: str) -> None:
    builder = source.builder(commit)
    with builder.open_sync() as stream:
        first = next(stream)
        source.write(3)
        if commit == "manual":
            first.commit()
        assert keys(next(stream)) == [3]
    with builder.open_sync() as stream:
        assert keys(next(stream)) == [3], "the second batch was not confirmed"


def snapshot_of(source: Source, stream: Any) -> int:
    place = source.place(stream.position)
    assert place is not None
    return place.snapshot
