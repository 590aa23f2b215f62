"""Maintenance of tables that this library and pypaimon write: what stays, what goes, in which order."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    ConsumerManager,
    CorruptTableError,
    MaintenancePolicy,
    StreamConfigError,
    maintain,
    stream_read_builder,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, every
from support.stores.fault_file_io import DyingStore
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, available, rows

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
DAY = 86_400


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A keyed table with an overwrite: six snapshots, of which the fifth has removed the rows of the others."""
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input")
    for key in range(4):
        table.commit([key])
    table.commit([7], overwrite=True)
    table.commit([8])
    return table


def changes_from(table: Table, first: int) -> list[Any]:
    """All changes from a snapshot on."""
    builder = table.builder().with_start(snapshot_id=first)
    with builder.new_streaming_scan() as scan:
        return [row for plan in available(scan) for row in rows(builder.new_read(), plan)]


def is_exact(table: Table) -> bool:
    """Whether a table has the files that it needs, and no others."""
    return files_of(table.path) == needed_files(table.path)


def test_what_nothing_needs_goes(table: Table) -> None:
    before = table.rows()
    report = maintain(table.handle(), LATEST_ONLY)
    assert report.plan.snapshot_ids == (1, 2, 3, 4, 5) and table.ids() == [6]
    assert (table.path / "snapshot" / "EARLIEST").read_text() == "6"
    assert is_exact(table) and table.rows() == before
    assert not list((table.path / "consumer").glob("*")), "no plan is left"


def test_a_dry_run_deletes_nothing_and_plans_the_same(table: Table) -> None:
    before = files_of(table.path)
    dry = maintain(table.handle(), LATEST_ONLY, dry_run=True)
    assert files_of(table.path) == before and table.ids() == [1, 2, 3, 4, 5, 6]
    assert maintain(table.handle(), LATEST_ONLY).plan == dry.plan


def test_the_options_of_the_table_decide(tmp_path: Path) -> None:
    options = {"snapshot__num_retained__min": "2", "snapshot__num_retained__max": "3"}
    table = Table(tmp_path, "t", **options)
    for key in range(6):
        table.commit([key])
    assert maintain(table.handle()).plan.snapshot_ids == (1, 2, 3)
    assert maintain(table.handle()).plan.is_empty


def test_a_misspelled_option_is_refused_before_anything_expires(table: Table) -> None:
    for key, meant in (
        ("snapshot__time_retaind", "snapshot.time-retained"),
        ("tag__num_retained_mx", "tag.num-retained-max"),
    ):
        with pytest.raises(StreamConfigError, match=f"Did you mean '{meant}'"):
            maintain(table.handle(**{key: "7"}), LATEST_ONLY)
    assert table.ids() == [1, 2, 3, 4, 5, 6]


def test_a_second_run_has_nothing_to_do(table: Table) -> None:
    maintain(table.handle(), LATEST_ONLY)
    assert maintain(table.handle(), LATEST_ONLY).plan.is_empty


def test_what_a_tag_needs_stays(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    state = _tagged_rows(table, "kept")
    maintain(table.handle(), LATEST_ONLY)
    assert is_exact(table) and _tagged_rows(table, "kept") == state


def test_what_a_branch_needs_stays(table: Table) -> None:
    table.handle().create_tag("fork", 3)
    table.handle().branch_manager().create_branch("b", "fork")
    table.handle().delete_tag("fork")
    maintain(table.handle(), LATEST_ONLY)
    assert is_exact(table)
    branch = stream_read_builder(table.handle(branch="b"))
    (plan,) = available(branch.new_streaming_scan())
    assert sorted(key for _, key, _ in rows(branch.new_read(), plan)) == [0, 1, 2]


def test_a_branch_is_maintained_by_its_own_handle(table: Table) -> None:
    table.handle().create_tag("fork", 3)
    table.handle().branch_manager().create_branch("b", "fork")
    before = changes_from(table, 1)
    maintain(table.handle(branch="b"), LATEST_ONLY)
    assert is_exact(table) and changes_from(table, 1) == before


def test_a_consumer_keeps_its_snapshot_and_the_one_before(table: Table) -> None:
    manager = ConsumerManager(table.handle().file_io, str(table.path))
    manager.reset_consumer("slow", _consumer(4))
    expected = changes_from(table, 4)
    report = maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [3, 4, 5, 6] and changes_from(table, 4) == expected
    assert [each.name for each in report.plan.held_back] == ["slow"] and report.plan.held_ids == (3, 4, 5)


def test_a_position_is_protected(table: Table) -> None:
    builder = table.builder().with_start(snapshot_id=1)
    with builder.new_streaming_scan() as scan:
        first = scan.plan()
        assert first is not None
    policy = MaintenancePolicy(min_snapshots=1, max_snapshots=1, protect=(first.position,))
    maintain(table.handle(), policy)
    resumed = table.builder().with_start(position=first.position)
    with resumed.new_streaming_scan() as scan:
        assert [key for plan in available(scan) for _, key, _ in rows(resumed.new_read(), plan)]


def test_a_consumer_that_has_not_saved_for_long_expires(table: Table) -> None:
    manager = ConsumerManager(table.handle().file_io, str(table.path))
    for name in ("old", "young", "writer"):
        manager.reset_consumer(name, _consumer(1))
    for name in ("old", "writer"):
        _age(table.path / "consumer" / f"consumer-{name}", 2 * DAY)
    (table.path / "consumer" / "sink-writer").write_text("{}")
    report = maintain(table.handle(consumer__expiration_time="1 d"), LATEST_ONLY)
    assert report.plan.consumers == ("old",), "a writer saves only when it commits"
    assert manager.list_all_ids() == ["writer", "young"] and table.ids()[0] == 1


def test_a_tag_expires_with_its_files(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    path = table.path / "tag" / "tag-kept"
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": 86400.0}))
    assert maintain(table.handle(tag__time_expire_enabled="false"), LATEST_ONLY).plan.tags == ()
    assert is_exact(table) and path.exists()
    assert maintain(table.handle(), LATEST_ONLY).plan.tags == ("kept",)
    assert is_exact(table) and not path.exists()


@pytest.mark.parametrize("age", [timedelta(days=2), 2 * DAY])
def test_old_files_that_nothing_names_go(table: Table, age: float | timedelta) -> None:
    bucket = table.path / "bucket-0"
    orphans = [bucket / "data-lost-0.parquet", table.path / "manifest" / "manifest-lost-0"]
    strangers = [bucket / "young.parquet", table.path / "notes.txt", bucket / "deep" / "x", bucket / "a.managed.blob"]
    strangers[2].parent.mkdir()
    for path in (*orphans, *strangers):
        path.write_bytes(b"x")
    for path in table.path.rglob("*"):
        if path.is_file() and path.name != "young.parquet":
            _age(path, 3 * DAY)
    before = table.rows()
    report = maintain(table.handle(), MaintenancePolicy(orphan_age=age))
    assert {each.path for each in report.plan.files} == {str(path) for path in orphans}
    assert all(path.exists() for path in strangers) and table.rows() == before


def test_young_orphans_need_a_flag() -> None:
    with pytest.raises(StreamConfigError, match="less than a day"):
        MaintenancePolicy(orphan_age=timedelta(hours=1))
    with pytest.raises(StreamConfigError, match="less than a day"):
        MaintenancePolicy(orphan_age=3600)
    MaintenancePolicy(orphan_age=timedelta(hours=1), young_orphans=True)


@pytest.mark.parametrize(
    "value", [{"min_snapshots": 0}, {"max_snapshots": 0}, {"snapshot_age": -timedelta(1)}, {"changelog_age": -1.0}]
)
def test_bad_policies_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(StreamConfigError):
        MaintenancePolicy(**value)


def test_more_at_least_than_at_most_is_refused(table: Table) -> None:
    with pytest.raises(StreamConfigError, match="at least 10 must be"):
        maintain(table.handle(), MaintenancePolicy(max_snapshots=5))


# ---- Long-lived changelogs


def kept(*, snapshots: int, changelogs: int) -> dict[str, str]:
    """Options of a table that keeps this many, whatever their age."""
    limits = {"snapshot": snapshots, "changelog": changelogs}
    most = {f"{what}__num_retained__max": str(count) for what, count in limits.items()}
    return most | {f"{what}__num_retained__min": "1" for what in limits}


def test_a_changelog_outlives_its_snapshot(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input", **kept(snapshots=2, changelogs=4))
    for key in range(6):
        table.commit([key])
    expected = changes_from(table, 1)
    report = maintain(table.handle())
    assert report.plan.kept_changelog_ids == (3, 4) and report.plan.changelog_ids == (1, 2)
    assert table.ids() == [5, 6] and is_exact(table)
    assert changes_from(table, 3) == expected[2:]


def test_without_a_producer_the_data_files_of_changelogs_stay(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", **kept(snapshots=1, changelogs=5))
    for key in range(3):
        table.commit([key])
    table.commit([9], overwrite=True)
    expected = changes_from(table, 1)
    maintain(table.handle())
    assert table.ids() == [4] and changes_from(table, 1) == expected and is_exact(table)


def test_changelogs_that_a_table_no_longer_keeps_go(tmp_path: Path) -> None:
    """In Java they stay for ever."""
    table = Table(tmp_path, "t", **kept(snapshots=1, changelogs=9))
    for key in range(3):
        table.commit([key])
    maintain(table.handle())
    assert (table.path / "changelog" / "changelog-1").exists()
    maintain(table.handle(changelog__num_retained__max="1"))
    assert not list((table.path / "changelog").glob("*")) and is_exact(table)


# ---- What cannot be read


@pytest.mark.parametrize("what", ["tag/tag-kept", "consumer/consumer-c", "snapshot/snapshot-6"])
def test_what_decides_and_cannot_be_read_stops_everything(table: Table, what: str) -> None:
    table.handle().create_tag("kept", 2)
    ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer("c", _consumer(2))
    (table.path / what).write_text("{ half")
    before = files_of(table.path)
    with pytest.raises(CorruptTableError, match=what.rpartition("/")[2]):
        maintain(table.handle(), LATEST_ONLY)
    assert files_of(table.path) == before and len(table.ids()) == 6


def test_a_missing_manifest_of_what_stays_stops_everything(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    lost = json.loads((table.path / "tag" / "tag-kept").read_text())["baseManifestList"]
    (table.path / "manifest" / lost).unlink()
    before = files_of(table.path)
    with pytest.raises(CorruptTableError, match=lost):
        maintain(table.handle(), LATEST_ONLY)
    assert files_of(table.path) == before and len(table.ids()) == 6


def test_half_expired_snapshots_are_finished(table: Table) -> None:
    """Java deletes the files first: a run of it that was killed leaves snapshots without any."""
    for list_name in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
        if name := table.snapshot(2).get(list_name):
            (table.path / "manifest" / name).unlink()
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [6] and needed_files(table.path) <= files_of(table.path)


# ---- Crashes and races


def steps_of(table: Table, warehouse: Path, policy: MaintenancePolicy = LATEST_ONLY) -> int:
    """How many requests of the FileIO a run makes."""
    other = table.copy(warehouse)
    file_io = MortalFileIO()
    maintain(_handle(other, file_io), policy)
    return file_io.steps


@pytest.mark.soak
@pytest.mark.slow
def test_a_run_that_is_killed_is_finished_by_the_next(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Killed before each request: whatever a reader can find is complete, and the next run ends as if nothing was."""
    table.handle().create_tag("kept", 2)
    done = table.copy(tmp_path_factory.mktemp("done") / "wh")
    maintain(done.handle(), LATEST_ONLY)
    steps = steps_of(table, tmp_path_factory.mktemp("count") / "wh")
    assert steps > 40
    for step in every(9, range(steps)):
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        with pytest.raises(Killed):
            maintain(_handle(killed, MortalFileIO(step)), LATEST_ONLY)
        assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        maintain(killed.handle(), LATEST_ONLY)
        assert files_of(killed.path) == files_of(done.path), f"killed before request {step}"
        assert killed.ids() == [6]
        # A young plan may be that of a run that is still under way, and stays.
        for plan in (killed.path / "consumer").glob("maintenance-*"):
            os.utime(plan, (time.time() - 3600,) * 2)
        maintain(killed.handle(), LATEST_ONLY)
        assert files_of(killed.path) == files_of(done.path), f"killed before request {step}"
        assert not list((killed.path / "consumer").glob("maintenance-*"))
        shutil.rmtree(killed.path.parents[1])


@pytest.mark.slow
def test_a_store_that_dies_loses_nothing(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As above, in an object store, where a request may also have taken effect although it failed."""
    done = table.copy(tmp_path_factory.mktemp("done") / "wh")
    maintain(done.handle(), LATEST_ONLY)
    step, died = 0, True
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        store = DyingStore()
        store.dies_after(step)
        handle = killed.handle(store)
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        try:
            maintain(handle, LATEST_ONLY)
        except OSError:
            assert store.dead
        died = store.dead
        assert needed_files(killed.path) <= files_of(killed.path), f"died after step {step}"
        maintain(killed.handle(), LATEST_ONLY)
        assert files_of(killed.path) == files_of(done.path), f"died after step {step}"
        shutil.rmtree(killed.path.parents[1])
        step += 1 if SOAK else 16
    assert step > 100


def _tag(table: Table) -> None:
    """Tag snapshot 2, which may expire meanwhile: the tag is there if the snapshot still is after it was written."""
    with suppress(ValueError):
        table.handle().create_tag("late", 2)
        if not table.snapshot_path(2).exists():
            (table.path / "tag" / "tag-late").unlink()


ACTIONS: dict[str, Callable[[Table], object]] = {
    "commit": lambda table: table.commit([99]),
    "overwrite": lambda table: table.commit([98], overwrite=True),
    "tag": _tag,
    "consumer": lambda table: ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer(
        "c", _consumer(3)
    ),
    "other run": lambda table: maintain(table.handle(), LATEST_ONLY),
}


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_others_at_any_moment(table: Table, tmp_path_factory: pytest.TempPathFactory, action: str) -> None:
    """Before each request something else happens to the table; nothing that is needed then goes."""
    steps = steps_of(table, tmp_path_factory.mktemp("count") / "wh")
    for step in every(11, range(1, steps + 1)):
        raced = table.copy(tmp_path_factory.mktemp("raced") / "wh")
        file_io = MortalFileIO()
        file_io.interruption = (step, lambda raced=raced: ACTIONS[action](raced))
        maintain(_handle(raced, file_io), LATEST_ONLY)
        assert file_io.interruption is None
        assert needed_files(raced.path) <= files_of(raced.path), f"before request {step}"
        if action == "consumer" and 3 in raced.ids():
            assert changes_from(raced, 3)
        shutil.rmtree(raced.path.parents[1])


def _handle(table: Table, file_io: Any) -> Any:
    handle = table.handle()
    handle.file_io = file_io
    return handle


def _consumer(next_snapshot: int) -> Consumer:
    return Consumer(next_snapshot)


def _tagged_rows(table: Table, name: str) -> list[Any]:
    builder = table.builder().with_start(tag=name, full=True)
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None
        return rows(builder.new_read(), plan)


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))
