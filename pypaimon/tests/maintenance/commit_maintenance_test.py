"""Maintenance that commits start: when it runs, what it costs, and that no commit fails by it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import (
    Compactor,
    ConsumerManager,
    CorruptTableError,
    PaimonTarget,
    StoreError,
    StreamConfigError,
    compact,
    maintain,
    replicate,
    stream_write_builder,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance, When
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK
from support.stores.fault_file_io import RESET, Call, FaultFileIO
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table
from support.tables.tagged_tables import AUTOMATIC, at_days, filled, tags

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SOON = {"snapshot__num_retained__min": "2", "snapshot__time_retained": "0s"}
LONG = 60


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table whose snapshots expire at once, except for the last two."""
    return Table(tmp_path, "t", **SOON)


def write(
    table: Table, handle: Any, commits: int, user: str = "w", after: Callable[[Any], None] = lambda _: None
) -> Any:
    """Commit one after another; each waits for the maintenance that it has started."""
    with stream_write_builder(handle).with_commit_user(user).with_maintenance("auto").open_sync() as writer:
        for number in range(commits):
            writer.write(table.arrow_rows([number]))
            writer.commit()
            writer.maintenance.close()
            after(writer)
    return writer.maintenance


def fast(handle: Any) -> Any:
    """A handle whose retries do not pause."""
    TableDirectory.of(handle).store._common.sleep = lambda _: None
    return handle


def test_a_writer_of_many_commits_keeps_the_number_of_files_flat(table: Table) -> None:
    counts: list[int] = []
    half = 250 if SOAK else 130
    status = write(table, table.handle(), 2 * half, after=lambda _: counts.append(len(table.ids())))
    # The consumer of the commit user is renewed every 64 snapshots.
    assert max(counts[:half]) < 150 and max(counts[half:]) <= max(counts[:half])
    assert status.last_error is None and status.last_report.plan.snapshot_ids
    assert len(table.rows()) == 2 * half
    maintain(table.handle())
    assert files_of(table.path) == needed_files(table.path)


def requests(handle: Any) -> Counter[str]:
    """The requests so far of all that shares a handle."""
    return Counter(TableDirectory.of(handle).store.requests)


def test_nothing_is_requested_while_nothing_can_be_due(tmp_path: Path) -> None:
    def asked(name: str, when: When) -> list[Counter[str]]:
        table = Table(tmp_path, name, snapshot__time_retained="1 h")
        handle, found = table.handle(), []
        with stream_write_builder(handle).with_maintenance(when).open_sync() as writer:
            for number in range(90):
                before = requests(handle)
                writer.write(table.arrow_rows([number]))
                writer.commit()
                if writer.maintenance is not None:
                    writer.maintenance.close()
                found.append(requests(handle) - before)
        return found

    extra = [dict(auto - off) for auto, off in zip(asked("auto", "auto"), asked("off", "off"), strict=True)]
    # A listing at the first commit. One more, and the time of a snapshot, once there are enough for a run and the
    # consumer of the commit user has left them; then nothing until that snapshot is old enough.
    assert [each for each in extra if each] == [{"list": 1}, {"list": 1, "read": 1}]


def test_the_cost_of_runs_is_spread_over_commits(table: Table) -> None:
    handle = table.handle()
    counts: list[Counter[str]] = []
    write(table, handle, 96, after=lambda _: counts.append(requests(handle)))
    spent = counts[-1] - counts[31]
    # Without maintenance a commit makes one of each.
    assert spent["read"] / 64 < 4 and spent["list"] / 64 < 2


def test_a_run_reads_and_decodes_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    decode = ManifestReader._decoded

    def counted(reader: ManifestReader, name: str, *rest: Any) -> Any:
        decoded.append(name)
        return decode(reader, name, *rest)

    monkeypatch.setattr(ManifestReader, "_decoded", counted)

    def work(kept: int) -> tuple[int, int]:
        table = Table(tmp_path, f"t{kept}", snapshot__num_retained__max=f"{kept}")
        file_io = FaultFileIO()
        status = CommitMaintenance(PaimonTable(table.handle(file_io)))
        for earliest in (11, 21):
            for number in range(table.latest() if table.ids() else 0, kept + earliest - 1):
                table.commit([number])
            for number in table.ids()[:-1]:
                os.utime(table.snapshot_path(number), (0, 0))
            decoded.clear()
            file_io.forget()
            status.after_commit(table.latest())
            status.close()
            assert status.last_error is None and table.ids() == [*range(earliest, kept + earliest)]
        return len(decoded), len(file_io.calls)

    assert work(20) == work(60)


def test_what_is_due_stays_within_a_tenth(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", snapshot__num_retained__max="80")
    counts: list[int] = []
    write(table, table.handle(), 220, after=lambda _: counts.append(len(table.ids())))
    # The consumer of the writer is at most 64 snapshots back.
    assert max(counts) < 80 / 0.9 + 1, max(counts)
    assert sum(a > b for a, b in pairwise(counts[80:])) <= 220 / 8


def test_a_writer_knows_what_its_consumer_keeps(table: Table) -> None:
    with stream_write_builder(table.handle()).with_commit_user("w").open_sync() as writer:
        for number in range(5):
            writer.write(table.arrow_rows([number]))
            writer.commit()
            (info,) = consumers_of(TableDirectory.of(table.handle())).infos()
            assert writer._writer is not None
            assert writer._writer._session.first_kept == info.next_snapshot - 1


class NoTags(LocalFileIO):  # type: ignore[misc]
    """A store in which tags cannot be listed."""

    def list_status(self, path: str) -> Any:
        if path.rstrip("/").endswith("/tag"):
            raise RESET
        return super().list_status(path)


def test_an_error_of_maintenance_fails_no_commit(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    handle = table.handle()
    handle.file_io = NoTags()
    status = write(table, fast(handle), 90)
    assert isinstance(status.last_error, StoreError) and status.last_report is None
    assert "maintenance_failed" in [each.paimon["event"] for each in caplog.records if hasattr(each, "paimon")]
    assert len(table.rows()) == 90 and len(table.ids()) == 90


def test_a_damaged_tag_is_reported_and_deletes_nothing(table: Table) -> None:
    table.commit([1])
    table.handle().create_tag("t", 1)
    (table.path / "tag" / "tag-t").write_text("{")
    status = write(table, table.handle(), 80)
    assert isinstance(status.last_error, CorruptTableError) and "tag-t" in str(status.last_error)
    assert table.ids() == list(range(1, 82))


def test_an_error_pauses_it(table: Table) -> None:
    for key in range(15):
        table.commit([key])
    now = [time.time() + 10]
    (table.path / "tag").mkdir()
    (table.path / "tag" / "tag-t").write_text("{")
    status = CommitMaintenance(PaimonTable(table.handle()), clock=lambda: now[0])
    status.after_commit(15)
    status.close()
    assert status.last_error is not None
    (table.path / "tag" / "tag-t").unlink()
    status.after_commit(16)
    status.close()
    assert status.last_error is not None, "it pauses"
    now[0] += 100
    status.after_commit(17)
    status.close()
    assert status.last_error is None and table.ids() == [14, 15]


def test_closing_in_the_midst_leaves_a_plan_that_a_later_run_finishes(table: Table) -> None:
    for key in range(30):
        table.commit([key])
    file_io = FaultFileIO()
    begun, left = threading.Event(), threading.Event()

    def fault(call: Call) -> Any:
        if call.kind == "delete" and "/snapshot-" in call.path:
            begun.set()
            assert left.wait(LONG)
        return call.answer()

    file_io.wherever(fault)
    status = CommitMaintenance(PaimonTable(table.handle(file_io)))
    status.after_commit(30)
    assert begun.wait(LONG)
    status.after_commit(31)
    threading.Timer(0.05, left.set).start()
    status.close(finish=False)
    status.close()
    assert status.last_report is None and status.last_error is None
    (plan,) = (table.path / "consumer").glob("maintenance-*")
    maintain(table.handle())
    assert table.ids() == [29, 30] and files_of(table.path) == needed_files(table.path)
    # A young plan may be that of a run that is still under way, and stays.
    os.utime(plan, (time.time() - 3600,) * 2)
    maintain(table.handle())
    assert not list((table.path / "consumer").glob("maintenance-*"))


def test_a_writer_that_ends_with_an_error_does_not_wait_for_a_run(table: Table) -> None:
    for key in range(30):
        table.commit([key])
    with pytest.raises(ZeroDivisionError), table.writer().with_maintenance("auto").open_sync() as writer:
        writer.write(table.arrow_rows([1]))
        writer.commit()
        raise ZeroDivisionError
    assert writer._writer is not None and writer._writer.maintenance._running.done()  # type: ignore[union-attr]
    maintain(table.handle())
    assert files_of(table.path) == needed_files(table.path)


def test_two_writers_do_not_both_do_it(table: Table) -> None:
    for key in range(30):
        table.commit([key])
    first, second = (CommitMaintenance(PaimonTable(table.handle())) for _ in range(2))
    for each in (first, second):
        each.after_commit(30)
        each.close()
    assert first.last_report is not None and second.last_report is None
    assert first.last_error is None and second.last_error is None


def test_two_writers_at_once_are_exact(table: Table) -> None:
    threads = [threading.Thread(target=write, args=(table, table.handle(), 60, user)) for user in ("a", "b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(table.rows()) == 120 and len(table.ids()) < 110
    maintain(table.handle())
    assert files_of(table.path) == needed_files(table.path)


def test_a_consumer_that_holds_it_back_makes_it_wait(table: Table) -> None:
    for key in range(30):
        table.commit([key])
    ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer("reader", Consumer(1))
    file_io = FaultFileIO()
    status = CommitMaintenance(PaimonTable(table.handle(file_io)))
    status.after_commit(30)
    status.close()
    assert status.last_report is None
    file_io.forget()
    for number in range(31, 40):
        status.after_commit(number)
        status.close()
    assert not file_io.names()
    assert table.ids() == list(range(1, 31))


def test_a_write_only_table_is_left_to_its_compactor(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", write_only="true", **SOON)
    for key in range(20):
        table.commit([key])
    assert write_once(table).maintenance is None and len(table.ids()) == 21
    compact(table.handle(), maintain="auto")
    # The writer's last commit, and the snapshot before.
    assert table.ids()[0] == 19


def write_once(table: Table) -> Any:
    with table.writer().with_maintenance("auto").open_sync() as writer:
        writer.write(table.arrow_rows([99]))
        writer.commit()
    return writer


def test_a_compactor_maintains_and_stops_with_its_context(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", write_only="true", **SOON)
    for key in range(20):
        table.commit([key])
    with Compactor(table.handle(), maintain="auto", interval=0.01) as running:
        until = time.monotonic() + LONG
        while running.maintenance.last_report is None and time.monotonic() < until:  # type: ignore[union-attr]
            time.sleep(0.01)
    assert running.maintenance is not None and running.maintenance.last_error is None
    assert table.ids() == [table.latest() - 1, table.latest()] and len(table.rows()) == 20


def test_leaving_an_async_writer_waits_for_the_run_that_its_commit_has_started(table: Table) -> None:
    for key in range(20):
        table.commit([key])

    async def program() -> CommitMaintenance | None:
        async with stream_write_builder(table.handle()).with_maintenance("auto").open() as writer:
            await writer.write(table.arrow_rows([20]))
            await writer.commit()
        return writer.maintenance

    status = asyncio.run(program())
    assert status is not None and status.last_report is not None and status.last_error is None
    assert table.ids()[0] > 10 and len(table.rows()) == 21


def test_commits_create_automatic_tags_and_ask_for_them_once_in_a_period(tmp_path: Path) -> None:
    table = filled(Table(tmp_path, "t", primary_key=True, snapshot__expire__limit="0", **AUTOMATIC))
    file_io, now = FaultFileIO(), [0.0]
    status = CommitMaintenance(PaimonTable(table.handle(file_io)), clock=lambda: now[0])

    def after_commit(*days: float) -> dict[str, int]:
        at_days(table, *days)
        now[0] = table.snapshot(table.latest())["timeMillis"] / 1000
        file_io.forget()
        status.after_commit(table.latest())
        status.close()
        assert status.last_error is None
        return tags(table)

    days = [1, 1.1, 2, 2.1, 3, 4.49]
    status._timed_run = float("inf")
    first = {"2025-12-31": 1, "2026-01-01": 3, "2026-01-02": 5, "2026-01-03": 6}
    assert after_commit(*days) == first
    table.commit([10])
    assert after_commit(*days, 4.495) == first and not file_io.names(), "no tag is due before midnight"
    table.commit([11])
    assert after_commit(*days, 4.495, 4.505) == {**first, "2026-01-04": 8}
    assert len(status.last_report.plan.created_tags) == 1 and len(table.ids()) == 8  # type: ignore[union-attr]


def test_processes_that_commit_once_reach_the_hourly_run(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", snapshot__expire__limit="0", consumer__expiration_time="1 h")
    table.commit([1])
    manager, now = ConsumerManager(table.handle().file_io, str(table.path)), [time.time()]

    def commit_once() -> CommitMaintenance:
        status = CommitMaintenance(PaimonTable(table.handle()), clock=lambda: now[0])
        status.after_commit(1)
        status.close()
        assert status.last_error is None
        return status

    first = commit_once()
    assert first.last_report is not None, "nothing says that one was within the hour"
    manager.reset_consumer("silent", Consumer(1))
    path = table.path / "consumer" / "consumer-silent"
    os.utime(path, (now[0] - 7200, now[0] - 7200))
    now[0] += 3000
    assert commit_once().last_report is None and path.exists()
    now[0] += 1000
    statuses = [commit_once(), commit_once()]
    assert [each.last_report is not None for each in statuses] == [True, False] and not path.exists()
    first.after_commit(1)
    first.close()
    now[0] -= 10_000
    assert commit_once().last_report is None, "a mark of the future is one of this hour"


def test_a_run_by_time_that_failed_is_repeated_by_its_process(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", consumer__expiration_time="1 h")
    table.commit([1])
    now = [time.time()]
    (table.path / "tag").mkdir()
    (table.path / "tag" / "tag-t").write_text("{")
    status = CommitMaintenance(PaimonTable(table.handle()), clock=lambda: now[0])
    for _ in range(2):
        status.after_commit(1)
        status.close()
        assert isinstance(status.last_error, CorruptTableError)
        now[0] += 100
    (table.path / "tag" / "tag-t").unlink()
    status.after_commit(1)
    status.close()
    assert status.last_error is None and status.last_report is not None


def test_the_limit_of_the_table_is_kept(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", snapshot__expire__limit="3", **SOON)
    for key in range(30):
        table.commit([key])
    status = CommitMaintenance(PaimonTable(table.handle()))
    for number, earliest in ((30, 4), (31, 7), (33, 13)):
        status.after_commit(number)
        status.close()
        assert table.ids()[0] == earliest
    off = CommitMaintenance(PaimonTable(table.handle(snapshot__expire__limit="0")))
    off.after_commit(40)
    off.close()
    assert table.ids()[0] == 13


def test_a_target_maintains_its_table(tmp_path: Path) -> None:
    source, table = Table(tmp_path, "s"), Table(tmp_path, "t", **SOON)
    for key in range(30):
        source.commit([key])
        table.commit([key])
    target = PaimonTarget(table.handle(), replace=True, maintain="auto")
    replicate(source.builder().with_end(latest=True), target)
    target.close()
    assert len(table.ids()) < 10
    assert table.rows() == source.rows()


def test_other_words_are_refused(table: Table) -> None:
    for call in (
        lambda: table.writer().with_maintenance("on"),  # type: ignore[arg-type]
        lambda: PaimonTarget(table.handle(), maintain="yes"),  # type: ignore[arg-type]
        lambda: compact(table.handle(), maintain=True),  # type: ignore[arg-type]
    ):
        with pytest.raises(StreamConfigError, match="'off' or 'auto'"):
            call()
    for options in (
        {"snapshot__num_retained__min": "5", "snapshot__num_retained__max": "1"},
        {"partition__expiration_time": "a while"},
        {"partition__idle_time_to_done": "a while"},
    ):
        with pytest.raises(StreamConfigError):
            stream_write_builder(table.handle(**options)).with_maintenance("auto").open_sync().__enter__()
    assert not table.ids()
