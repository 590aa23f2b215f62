"""A compactor in the background: it follows what is written, stops when it is left, and tells what has failed."""

from __future__ import annotations

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import Compactor, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.compaction import CompactionReport
from support.spark.sink_world import World

pytestmark = pytest.mark.slow

DUE = {"compaction.min.file-num": "2"}
LONG = 60


def test_it_follows_what_is_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    reports: queue.SimpleQueue[CompactionReport] = queue.SimpleQueue()
    with Compactor(world.table().copy(DUE), interval=0.01, on_report=reports.put) as running:
        for _ in range(3):
            for _ in range(3):
                world.run()
            assert reports.get(timeout=LONG).before.files >= 2
            assert running.is_running
            assert running.last_report is not None
    assert not running.is_running
    world.check()


def test_the_event_loop_continues(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.run()

    async def program() -> CompactionReport:
        told: asyncio.Queue[CompactionReport] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(report: CompactionReport) -> None:
            loop.call_soon_threadsafe(told.put_nowait, report)

        async with Compactor(world.table().copy(DUE), on_report=tell):
            return await asyncio.wait_for(told.get(), LONG)

    assert asyncio.run(program()).after.files == 1
    world.check()


def test_leaving_stops_it_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.run()
    before, latest = world.data_files(), world.latest()
    table = world.table().copy(DUE)
    reading, left = threading.Event(), threading.Event()
    opened = table.file_io.new_output_stream

    def held(path: str) -> Any:
        if "/data-" in path:
            reading.set()
            assert left.wait(LONG)
        return opened(path)

    monkeypatch.setattr(table.file_io, "new_output_stream", held)
    with Compactor(table):
        assert reading.wait(LONG)
        threading.Timer(0.05, left.set).start()
    assert (world.data_files(), world.latest()) in [(before, latest), (world.data_files(), latest + 1)]
    world.check()


def test_an_error_is_raised_when_it_is_left(tmp_path: Path) -> None:
    table = World(tmp_path, keyed=True).table().copy_without_time_travel({"clustering.incremental": "true"})
    with pytest.raises(UnsupportedTableError, match="clustering"), Compactor(table) as running:
        with pytest.raises(UnsupportedTableError):
            running.wait()
        assert not running.is_running
    with pytest.raises(ZeroDivisionError), Compactor(table):
        raise ZeroDivisionError
    with pytest.raises(StreamConfigError, match="interval"):
        Compactor(table, interval=-1)


def test_what_a_report_is_handed_to_may_end_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.run()

    def fail(report: CompactionReport) -> None:
        raise KeyError(report.after.files)

    with pytest.raises(KeyError), Compactor(world.table().copy(DUE), on_report=fail) as running:
        running.wait()


def test_a_compactor_that_would_rewrite_everything_each_time_is_refused(tmp_path: Path) -> None:
    table = World(tmp_path).table().copy({"compaction.force-rewrite-all-files": "true"})
    with pytest.raises(StreamConfigError, match="force-rewrite-all-files"):
        Compactor(table, full=True)
    with Compactor(table) as running:
        assert running.is_running
