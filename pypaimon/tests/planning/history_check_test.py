"""Rollbacks, tables made anew and repairs under a running stream: no row of another history comes out."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import AsyncStreamingTableScan, Plan, StreamReadBuilder, TableChangedError
from pypaimon.streaming.options.between import End
from pypaimon.streaming.options.stream_options import CatchUp, Limits
from support.samples import SOAK, every
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table, available, keys

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "none": {"primary_key": True, "bucket": "1"},
    "input": {"primary_key": True, "bucket": "1", "changelog_producer": "input"},
}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(tmp_path / "w", **KINDS[request.param]).commit_each(range(1, 4))


def following(table: Table, catch_up: str = "replay", prefetch: int = 0) -> StreamReadBuilder:
    return table.builder().with_start("earliest").with_catch_up(catch_up).with_prefetch(prefetch)


def polled(scan: AsyncStreamingTableScan, times: int = 20) -> None:
    for _ in range(times):
        assert scan.plan() is None, "a row of another history"


@pytest.mark.parametrize("kept", [0, 2])
@pytest.mark.parametrize("more", [0, pytest.param(1, marks=pytest.mark.nightly), 12])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_rollback_with_equal_counts_that_new_commits_overtook_is_found_before_a_row(
    table: Table, kept: int, more: int, prefetch: int
) -> None:
    builder = following(table, "auto", prefetch)
    with builder.new_streaming_scan() as scan:
        assert keys(builder.new_read(), available(scan)) == [1, 2, 3]
        if kept:
            table.rollback(kept)
        else:
            table.recreate()
            table._writer = table.handle()
        for key in range(kept + 1, 5 + more):
            table.commit([100 + key])
        with pytest.raises(TableChangedError, match="rolled back: snapshot 3" if kept else "re-created"):
            polled(scan)
        with pytest.raises(TableChangedError):
            scan.plan()


@pytest.mark.parametrize("start", ["earliest", "latest", "latest-full"])
def test_an_empty_table_that_was_recreated_while_a_stream_waited(tmp_path: Path, start: str) -> None:
    table = Table(tmp_path / "w")
    with table.builder().with_start(start).with_prefetch(0).new_streaming_scan() as scan:
        assert scan.plan() is None
        table.recreate()
        table._writer = table.handle()
        table.commit([1])
        with pytest.raises(TableChangedError, match="re-created"):
            polled(scan)


@pytest.mark.parametrize("catch_up", ["replay", "auto"])
def test_a_repair_that_recounts_the_totals_is_not_a_rollback(table: Table, catch_up: str) -> None:
    builder = following(table, catch_up)
    with builder.new_streaming_scan() as scan:
        read = builder.new_read()
        assert keys(read, available(scan)) == [1, 2, 3]
        for number in range(4, 24):
            table.commit([number])
            recounted(table, number, 1000 * number)
            if number < 8:
                assert keys(read, available(scan)) == [number]
        assert sorted(keys(read, available(scan))) == list(range(8, 24))


def recounted(table: Table, snapshot_id: int, total: int) -> None:
    """Another total in a snapshot, as a job writes it that counts all files anew."""
    path = table.snapshot_path(snapshot_id)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"totalRecordCount": total}))


class TwoHistories:
    """A table that is rolled back to a snapshot, and then holds other commits, at one moment."""

    def __init__(self, table: Table, scratch: Path, length: int, kept: int) -> None:
        self.table = table
        self._keys: dict[str, int] = {}
        for key in range(1, length + 1):
            self._commit(key)
        self._before, self._after, self._aside = scratch / "before", scratch / "after", scratch / "aside"
        shutil.copytree(table.path, self._before)
        table.rollback(kept)
        self.old = list(range(1, length + 1))
        self.new = [*range(1, kept + 1), *range(1001 + kept, 1003 + length)]
        for key in self.new[kept:]:
            self._commit(key)
        table.path.rename(self._after)

    def _commit(self, key: int) -> None:
        known = set(self.table.path.glob("bucket-*/*"))
        self.table.commit([key])
        (file,) = set(self.table.path.glob("bucket-*/*")) - known
        self._keys[file.name] = key

    @contextmanager
    def told(self, file_io: FaultFileIO, when: tuple[str, int]) -> Iterator[None]:
        """The old history, until a file is asked for so many times: then, before the answer, the new one."""
        self._before.rename(self.table.path)
        lock, asked = threading.Lock(), Counter[str]()

        def fault(call: Call) -> Any:
            with lock:
                asked[call.name] += 1
                if (call.name, asked[call.name]) == when:
                    self.table.path.rename(self._before)
                    self._after.rename(self.table.path)
                return call.answer()

        file_io.wherever(fault)
        try:
            yield
        finally:
            self.table.path.rename(self._before if self._after.exists() else self._after)

    def keys(self, plans: Iterable[Plan]) -> list[int]:
        """The keys in plans, without reading their files, some of which are gone by now."""
        return [self._keys[file.file_name] for plan in plans for split in plan.splits() for file in split.files]


@pytest.mark.parametrize(("kept", "catch_up"), [(5, CatchUp.REPLAY), (1, CatchUp.AUTO), (9, CatchUp.AUTO)])
def test_a_rollback_in_the_middle_of_any_request_mixes_no_histories(
    tmp_path: Path, kept: int, catch_up: CatchUp
) -> None:
    """Also between two requests of one window of snapshots."""
    histories = TwoHistories(Table(tmp_path / "w"), tmp_path, 12, kept)
    file_io = FaultFileIO()

    def seen(when: tuple[str, int]) -> list[int]:
        plans: list[Plan] = []
        with histories.told(file_io, when), suppress(TableChangedError):
            drive = Drive(histories.table.handle(file_io), EARLIEST, catch_up=catch_up)
            while (step := drive.step()).plan is not None or not step.idle:
                plans += [] if step.plan is None else [step.plan]
        return histories.keys(plans)

    file_io.forget()
    assert seen(("", 0)) == histories.old
    asked = Counter(name for name in file_io.names() if not name.startswith("manifest"))
    outcomes = []
    requests = [(name, time) for name, times in sorted(asked.items()) for time in range(1, times + 1)]
    for when in every(5, requests):
        found = seen(when)
        outcomes.append(found)
        assert found in (histories.old[: len(found)], histories.new[: len(found)]), (when, found)
    assert histories.new in outcomes
    assert histories.old in outcomes or not SOAK


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_data_file_that_a_rollback_took_is_not_damage(table: Table, commits: int) -> None:
    builder = following(table)
    with builder.new_streaming_scan() as scan:
        plans = available(scan)
    table.rollback(2)
    for key in range(commits):
        table.commit([100 + key])
    Path(plans[-1].splits()[0].files[0].file_path).unlink()
    known = "rolled back: snapshot 3" if commits else "rolled back, or is being dropped: it ends at snapshot 2"
    with pytest.raises(TableChangedError, match=known):
        builder.new_read().to_arrow(plans[-1].splits())


def test_a_rollback_that_new_commits_have_just_reached_is_found_while_nothing_comes(table: Table) -> None:
    """The next snapshot still is the next one to be committed."""
    with following(table).new_streaming_scan() as scan:
        assert len(available(scan)) == 3
        table.rollback(2)
        table.commit([100])
        with pytest.raises(TableChangedError, match="rolled back: snapshot 3"):
            polled(scan)


def test_a_known_end_that_is_missing_is_found_at_the_first_poll(table: Table) -> None:
    drive = Drive.of(table, EARLIEST, end=End(snapshot_id=4, exists=True))
    plans = []
    with pytest.raises(TableChangedError, match="it ends at snapshot 3"):
        while not (step := drive.step()).idle:
            plans.append(step.plan)
    assert plans


def test_a_snapshot_that_took_the_place_of_one_that_limits_had_cut_is_found(tmp_path: Path) -> None:
    """By a planner that knows only the state: the one that was cut had more files, and its manifests are gone."""
    table, limits = Table(tmp_path / "w"), Limits(max_splits=1)
    table.commit([1])
    table.commit_files([2, 3, 4])
    drive = Drive.of(table, EARLIEST, limits=limits)
    found: list[int] = []
    while len(found) < 3:
        plan = drive.step().plan
        found += [] if plan is None else drive.keys([plan])
    assert found[0] == 1 and drive.state.unit is not None
    manifests = table.path / "manifest" / table.snapshot(2)["deltaManifestList"]
    table.rollback(1)
    manifests.unlink(missing_ok=True)
    table.commit_each((5, 6))
    other = Drive.of(table, EARLIEST, limits=limits)
    other.state = drive.state
    with pytest.raises(TableChangedError, match="rolled back"):
        other.run()
