"""A maintainer in the background: it runs again and again, stops when it is left, and reports what has failed."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import CorruptTableError, MaintenancePolicy, StreamConfigError, maintain
from pypaimon.streaming.maintenance import Maintainer, MaintenanceReport, create_tag
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.stores.fault_file_io import RESET, Call, FaultFileIO, failing
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
LONG = 60


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, "t")
    for key in range(5):
        table.commit([key])
    return table


def test_it_follows_what_is_written(table: Table) -> None:
    reports: queue.SimpleQueue[MaintenanceReport] = queue.SimpleQueue()
    with Maintainer(table.handle(), LATEST_ONLY, interval=0.01, on_report=reports.put) as running:
        assert reports.get(timeout=LONG).plan.snapshot_ids == (1, 2, 3, 4)
        table.commit([5])
        assert reports.get(timeout=LONG).plan.snapshot_ids == (5,)
        assert running.is_running and running.last_report is not None and running.last_error is None
    assert not running.is_running and table.ids() == [6]


def test_a_run_reads_what_is_new_since_the_last_one(table: Table) -> None:
    create_tag(table.handle(), "t", snapshot=2)
    # Files as young as a listing are read again.
    for path in (*(table.path / "snapshot").iterdir(), *(table.path / "tag").iterdir()):
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
    table.commit([50])
    (table.path / "tag" / "tag-young").write_bytes((table.path / "tag" / "tag-t").read_bytes())
    file_io, reports = FaultFileIO(), queue.SimpleQueue[MaintenanceReport]()
    again = threading.Semaphore(0)

    def wait(report: MaintenanceReport) -> None:
        reports.put(report)
        assert again.acquire(timeout=LONG)

    policy = MaintenancePolicy(min_snapshots=5, max_snapshots=5)
    with Maintainer(table.handle(file_io), policy, interval=0.01, on_report=wait):
        assert reports.get(timeout=LONG).plan.snapshot_ids == (1,)
        table.commit([60])
        file_io.forget()
        again.release()
        assert reports.get(timeout=LONG).plan.snapshot_ids == (2,)
        read = Counter(name for name in file_io.names("read") if name.startswith(("snapshot-", "tag-")))
        again.release()
    # The last one shows that the table was not rolled back before anything is deleted.
    assert read == {"snapshot-6": 2, "snapshot-7": 3, "tag-young": 2}


def test_the_event_loop_goes_on(table: Table) -> None:
    async def program() -> MaintenanceReport:
        found: asyncio.Queue[MaintenanceReport] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(report: MaintenanceReport) -> None:
            loop.call_soon_threadsafe(found.put_nowait, report)

        async with Maintainer(table.handle(), LATEST_ONLY, on_report=put):
            return await asyncio.wait_for(found.get(), LONG)

    assert asyncio.run(program()).plan.snapshot_ids == (1, 2, 3, 4)


def test_a_store_that_fails_is_asked_again(table: Table) -> None:
    file_io, failed = FaultFileIO(), threading.Event()

    def fault(call: Call) -> Any:
        failed.set()
        return failing(RESET)(call)

    file_io.wherever(fault)
    handle = table.handle(file_io)
    TableDirectory.of(handle).store._common.sleep = lambda _: None
    reports: queue.SimpleQueue[MaintenanceReport] = queue.SimpleQueue()
    with Maintainer(handle, LATEST_ONLY, on_report=reports.put) as running:
        assert failed.wait(LONG)
        file_io.wherever(None)
        assert reports.get(timeout=LONG).plan.snapshot_ids == (1, 2, 3, 4)
        assert running.is_running


def test_leaving_stops_it_in_the_midst(table: Table) -> None:
    file_io = FaultFileIO()
    begun, left = threading.Event(), threading.Event()

    def fault(call: Call) -> Any:
        if call.kind == "delete" and "/snapshot-" in call.path:
            begun.set()
            assert left.wait(LONG)
        return call.answer()

    file_io.wherever(fault)
    with Maintainer(table.handle(file_io), LATEST_ONLY) as running:
        assert begun.wait(LONG)
        threading.Timer(0.05, left.set).start()
    assert running.last_report is None and running.last_error is None
    assert needed_files(table.path) < files_of(table.path)
    maintain(table.handle(), LATEST_ONLY)
    assert files_of(table.path) == needed_files(table.path) and table.ids() == [5]


def test_an_error_is_raised_when_it_is_left(table: Table) -> None:
    (table.path / "tag").mkdir()
    (table.path / "tag" / "tag-t").write_text("{")
    with pytest.raises(CorruptTableError, match="tag-t"), Maintainer(table.handle(), LATEST_ONLY) as running:
        with pytest.raises(CorruptTableError):
            running.wait()
        assert not running.is_running and isinstance(running.last_error, CorruptTableError)
    with pytest.raises(ZeroDivisionError), Maintainer(table.handle()):
        raise ZeroDivisionError


@pytest.mark.parametrize("interval", [0, -1, "soon"])
def test_a_wrong_interval_is_refused(table: Table, interval: Any) -> None:
    with pytest.raises(StreamConfigError, match="Maintainer: interval"):
        Maintainer(table.handle(), interval=interval)


def test_wrong_options_are_refused_before_it_runs(table: Table) -> None:
    wrong = table.handle(snapshot__num_retained__min="5", snapshot__num_retained__max="1")
    with pytest.raises(StreamConfigError):
        Maintainer(wrong)
