"""Create, replace, rename and delete tags, and automatic tags of `maintain`: what is there, and which files stay."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    CorruptTableError,
    MaintenancePolicy,
    StreamConfigError,
    compact,
    maintain,
    stream_read_builder,
)
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import create_tag, delete_tag, list_tags, rename_tag, replace_tag
from pypaimon.streaming.maintenance.maintain import TableRun
from pypaimon.streaming.maintenance.tag_operations import create_due_tags
from pypaimon.streaming.maintenance.tag_writer import TagWriter
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.crash.crashing_store import DyingStore
from support.samples import SOAK, every
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, available, rows

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
DAY = 86_400_000
AUTOMATIC = {"tag__automatic_creation": "process-time", "time_zone": "UTC"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A keyed table with an overwrite: six snapshots, of which the fifth has removed the rows of the others."""
    return filled(Table(tmp_path, "t", primary_key=True))


def filled(table: Table) -> Table:
    for key in range(4):
        table.commit([key])
    table.commit([7], overwrite=True)
    table.commit([8])
    return table


def at_days(table: Table, *days: float) -> None:
    """Move the commits of a table to these days of 2026, at noon plus parts of a day."""
    for number, day in zip(table.ids(), days, strict=True):
        moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=day - 1)
        content = table.snapshot(number)
        table.snapshot_path(number).write_text(json.dumps({**content, "timeMillis": round(moment.timestamp() * 1000)}))


def tags(table: Table) -> dict[str, int]:
    return {each.name: each.snapshot.id for each in list_tags(table.handle())}


def keys_of(table: Table, name: str) -> list[int]:
    builder = table.builder().with_start(tag=name, full=True)
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None
        return sorted(key for _, key, _ in rows(builder.new_read(), plan))


def is_exact(table: Table) -> bool:
    """Whether a table has the files that it needs, and no others."""
    return files_of(table.path) == needed_files(table.path)


# ---- Create


def test_a_tag_keeps_its_snapshot_readable(table: Table) -> None:
    made = create_tag(table.handle(), "kept", snapshot=2)
    assert (made.name, made.snapshot.id, made.expires) == ("kept", 2, None)
    assert create_tag(table.handle(), "newest").snapshot.id == 6
    maintain(table.handle(), LATEST_ONLY)
    assert keys_of(table, "kept") == [0, 1] and tags(table) == {"kept": 2, "newest": 6} and is_exact(table)
    assert json.loads((table.path / "tag" / "tag-kept").read_text())["id"] == 2
    assert table.handle().tag_manager().get("kept").id == 2, "pypaimon reads it"


def test_a_tag_of_a_tag_whose_snapshot_has_expired(table: Table) -> None:
    create_tag(table.handle(), "kept", snapshot=2, retention=timedelta(days=1))
    maintain(table.handle(), LATEST_ONLY)
    made = create_tag(table.handle(), "other", snapshot=2)
    assert made.expires is None and "tagTimeRetained" not in (table.path / "tag" / "tag-other").read_text()
    delete_tag(table.handle(), "kept")
    assert keys_of(table, "other") == [0, 1] and is_exact(table)


def test_tags_by_time_and_watermark(table: Table) -> None:
    at_days(table, 1, 2, 3, 4, 5, 6)
    for number, watermark in ((2, 10), (4, 20)):
        path = table.snapshot_path(number)
        path.write_text(json.dumps({**json.loads(path.read_text()), "watermark": watermark}))
    handle = table.handle()
    assert create_tag(handle, "a", time="2026-01-03T00:00:00Z").snapshot.id == 3
    assert create_tag(handle, "b", time=datetime(2026, 1, 3, 12, tzinfo=timezone.utc)).snapshot.id == 3
    assert create_tag(handle, "c", watermark=11).snapshot.id == 4
    maintain(handle, LATEST_ONLY)
    assert create_tag(handle, "d", time="2026-01-02T00:00:00Z").snapshot.id == 3, "of an expired one that a tag keeps"
    assert create_tag(handle, "e", watermark=5).snapshot.id == 4
    assert create_tag(handle, "f", time="2026-01-05T00:00:00Z").snapshot.id == 6
    for wrong in (
        {"time": "2026-02-01T00:00:00Z"},
        {"watermark": 21},
        {"snapshot": 1},
        {"snapshot": 3, "watermark": 1},
    ):
        with pytest.raises(StreamConfigError):
            create_tag(handle, "g", **wrong)  # type: ignore[arg-type]


def test_the_retention_is_written_as_java_does(table: Table) -> None:
    handle = table.handle(time_zone="Asia/Kathmandu")
    create_tag(handle, "kept", snapshot=2, retention=90.5)
    text = (table.path / "tag" / "tag-kept").read_text()
    assert '"tagTimeRetained" : 90.500000000' in text
    (made,) = list_tags(handle)
    now = datetime.now(timezone(timedelta(hours=5, minutes=45))).replace(tzinfo=None)
    assert made.created is not None and abs(now - made.created) < timedelta(minutes=1)
    assert made.expires == made.created + timedelta(seconds=90.5)
    create_tag(table.handle(tag__default_time_retained="2 d"), "default", snapshot=2)
    assert {each.name: each.retention for each in list_tags(handle)}["default"] == timedelta(days=2)


@pytest.mark.parametrize("name", ["", " ", "a/b", "../x", "success-file", 7])
def test_bad_names_are_refused(table: Table, name: Any) -> None:
    create_tag(table.handle(), "kept")
    for call in (create_tag, lambda handle, name: rename_tag(handle, "kept", name)):
        with pytest.raises(StreamConfigError):
            call(table.handle(), name)
    assert tags(table) == {"kept": 6}


def test_an_existing_tag_stays_as_it_is(table: Table) -> None:
    create_tag(table.handle(), "kept", snapshot=2)
    with pytest.raises(StreamConfigError, match="has a tag 'kept' already"):
        create_tag(table.handle(), "kept")
    assert create_tag(table.handle(), "kept", exist_ok=True).snapshot.id == 2
    assert tags(table) == {"kept": 2}


def test_an_empty_table_has_nothing_to_tag(tmp_path: Path) -> None:
    with pytest.raises(StreamConfigError, match="no snapshot yet"):
        create_tag(Table(tmp_path, "t").handle(), "kept")


def test_a_second_automatic_name_on_a_snapshot_is_refused(table: Table) -> None:
    handle = table.handle(**AUTOMATIC)
    create_tag(handle, "2026-01-01", snapshot=2)
    create_tag(handle, "mine", snapshot=2)
    with pytest.raises(StreamConfigError, match="automatic tag '2026-01-01'"):
        create_tag(handle, "2026-01-02", snapshot=2)
    create_tag(handle, "2026-01-02", snapshot=3)
    with pytest.raises(StreamConfigError, match="automatic tag '2026-01-01'"):
        replace_tag(handle, "2026-01-02", snapshot=2)


def test_branches_have_tags_of_their_own(table: Table) -> None:
    create_tag(table.handle(), "fork", snapshot=3)
    table.handle().branch_manager().create_branch("b", "fork")
    branch = table.handle(branch="b")
    create_tag(branch, "own")
    assert (table.path / "branch" / "branch-b" / "tag" / "tag-own").exists() and tags(table) == {"fork": 3}
    delete_tag(table.handle(), "fork")
    maintain(table.handle(), LATEST_ONLY)
    assert is_exact(table)
    delete_tag(branch, "own")
    assert is_exact(table) and [each.name for each in list_tags(branch)] == ["fork"]


def test_callbacks_of_java_are_named_once(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    handle = table.handle(tag__callbacks="org.example.Callback")
    with caplog.at_level(logging.WARNING):
        create_tag(handle, "kept")
        delete_tag(handle, "kept")
    (line,) = [each.paimon for each in caplog.records if hasattr(each, "paimon")]
    assert (line["event"], line["options"]) == ("upkeep_left_out", "tag.callbacks")


def test_success_files(table: Table) -> None:
    handle = table.handle(tag__create_success_file="true")
    create_tag(handle, "kept", snapshot=2)
    path = table.path / "tag" / "tag-success-file" / "kept_SUCCESS"
    first = json.loads(path.read_text())
    replace_tag(handle, "kept", snapshot=3)
    second = json.loads(path.read_text())
    assert first["creationTime"] == second["creationTime"] <= second["modificationTime"]
    assert tags(table) == {"kept": 3}
    delete_tag(handle, "kept")
    assert not path.exists()


# ---- Delete, replace, rename


def test_a_deleted_tag_takes_the_files_that_only_it_kept(table: Table) -> None:
    for name, number in (("one", 1), ("two", 2), ("again", 2), ("three", 3)):
        create_tag(table.handle(), name, snapshot=number)
    maintain(table.handle(), LATEST_ONLY)
    dry = delete_tag(table.handle(), "two", "again", dry_run=True)
    assert len(tags(table)) == 4 and dry.plan.files and is_exact(table)
    assert delete_tag(table.handle(), "two").plan.files == (), "another tag has its snapshot"
    report = delete_tag(table.handle(), "again")
    assert report.plan.file_counts == dry.plan.file_counts
    assert is_exact(table) and keys_of(table, "one") == [0] and keys_of(table, "three") == [0, 1, 2]
    delete_tag(table.handle(), "one", "three")
    assert is_exact(table) and tags(table) == {} and table.rows()


def test_a_tag_of_a_snapshot_that_is_there_takes_no_file(table: Table) -> None:
    create_tag(table.handle(), "kept", snapshot=2)
    before = files_of(table.path)
    assert delete_tag(table.handle(), "kept").plan.files == ()
    assert files_of(table.path) == before and not list((table.path / "consumer").glob("*"))


def test_a_branch_outlives_the_tag_that_it_was_made_of(table: Table) -> None:
    """Under another name, so that names prove nothing."""
    create_tag(table.handle(), "fork", snapshot=3)
    table.handle().branch_manager().create_branch("b", "fork")
    rename_tag(table.handle(), "fork", "renamed")
    maintain(table.handle(), LATEST_ONLY)
    delete_tag(table.handle(), "renamed")
    delete_tag(table.handle(branch="b"), "fork")
    assert is_exact(table)
    branch = stream_read_builder(table.handle(branch="b"))
    (plan,) = available(branch.new_streaming_scan())
    assert sorted(key for _, key, _ in rows(branch.new_read(), plan)) == [0, 1, 2]


def test_a_replaced_tag_takes_the_files_of_the_former_snapshot(table: Table) -> None:
    """Java leaves them as orphans."""
    create_tag(table.handle(), "kept", snapshot=2, retention=60)
    create_tag(table.handle(), "three", snapshot=3)
    maintain(table.handle(), LATEST_ONLY)
    report = replace_tag(table.handle(), "kept", snapshot=3)
    assert report.plan.files and is_exact(table) and tags(table) == {"kept": 3, "three": 3}
    assert list_tags(table.handle())[0].expires is None
    with pytest.raises(StreamConfigError, match="no tag 'other'; it has: kept, three"):
        replace_tag(table.handle(), "other")


def test_a_renamed_tag(table: Table) -> None:
    create_tag(table.handle(), "kept", snapshot=2)
    create_tag(table.handle(), "other", snapshot=3)
    rename_tag(table.handle(), "kept", "kept")
    rename_tag(table.handle(), "kept", "new")
    assert tags(table) == {"new": 2, "other": 3}
    for name, new_name in (("kept", "x"), ("new", "other")):
        with pytest.raises(StreamConfigError, match="tag"):
            rename_tag(table.handle(), name, new_name)
    shutil.copy(table.path / "tag" / "tag-new", table.path / "tag" / "tag-kept")
    rename_tag(table.handle(), "kept", "new")
    assert tags(table) == {"new": 2, "other": 3}, "an interrupted one is finished"


def test_unknown_tags_are_not_deleted(table: Table) -> None:
    create_tag(table.handle(), "kept")
    with pytest.raises(StreamConfigError, match="no tag 'keptt'; it has: kept"):
        delete_tag(table.handle(), "kept", "keptt")
    with pytest.raises(StreamConfigError):
        delete_tag(table.handle())
    assert tags(table) == {"kept": 6}


def test_neighbours_of_a_deleted_tag_stay_readable(tmp_path: Path) -> None:
    """Of three tags around compactions the middle one goes."""
    table = Table(tmp_path, "t", primary_key=True)
    for number in range(3):
        for key in range(3):
            table.commit([(number + key, f"{number}")])
        create_tag(table.handle(), f"t{number}")
        compact(table.handle(), full=True)
    maintain(table.handle(), LATEST_ONLY)
    before = {name: keys_of(table, name) for name in ("t0", "t2")}
    delete_tag(table.handle(), "t1")
    assert {name: keys_of(table, name) for name in before} == before and is_exact(table)
    assert len(table.rows()) == 5


def test_long_lived_changelogs_keep_their_files(tmp_path: Path) -> None:
    """Without a producer they are read from data files, which Java deletes with the tag."""
    limits = {"snapshot__num_retained__max": "1", "changelog__num_retained__max": "9"}
    least = {"snapshot__num_retained__min": "1", "changelog__num_retained__min": "1"}
    table = Table(tmp_path, "t", **limits, **least)
    for key in range(3):
        table.commit([key])
    create_tag(table.handle(), "kept", snapshot=2)
    table.commit([9], overwrite=True)
    maintain(table.handle())
    delete_tag(table.handle(), "kept")
    assert table.ids() == [4] and is_exact(table)
    builder = table.builder().with_start(snapshot_id=1)
    with builder.new_streaming_scan() as scan:
        keys = [key for plan in available(scan) for _, key, _ in rows(builder.new_read(), plan)]
    assert keys[:3] == [0, 1, 2]


def test_a_file_that_came_back_stays(table: Table) -> None:
    """The tag's files were deleted by a commit and are added again by a later one, as a rollback in Java does."""
    create_tag(table.handle(), "kept", snapshot=4)
    again = {**table.snapshot(4), "id": 7, "uuid": "again", "timeMillis": table.snapshot(6)["timeMillis"] + 1}
    table.snapshot_path(7).write_text(json.dumps(again))
    (table.path / "snapshot" / "LATEST").write_text("7")
    maintain(table.handle(), LATEST_ONLY)
    delete_tag(table.handle(), "kept")
    assert table.ids() == [7] and is_exact(table) and [key for key, *_ in table.rows()] == [0, 1, 2, 3]


def test_a_tag_that_vanishes_meanwhile_changes_nothing_else(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("one", 1), ("two", 2)):
        create_tag(table.handle(), name, snapshot=number)
    maintain(table.handle(), LATEST_ONLY)
    original = TableRun._check_unchanged

    def check(self: Any, *args: Any) -> None:
        (table.path / "tag" / "tag-one").unlink(missing_ok=True)
        original(self, *args)

    monkeypatch.setattr(TableRun, "_check_unchanged", check)
    delete_tag(table.handle(), "two")
    assert tags(table) == {} and needed_files(table.path) <= files_of(table.path)


@pytest.mark.parametrize("what", ["list of a neighbour", "list of the tag", "neighbour", "list of a branch"])
def test_a_neighbour_that_cannot_be_read_keeps_all_files(table: Table, what: str) -> None:
    for number in (1, 2, 3):
        create_tag(table.handle(), f"t{number}", snapshot=number)
    create_tag(table.handle(), "fork", snapshot=4)
    table.handle().branch_manager().create_branch("b", "fork")
    maintain(table.handle(), LATEST_ONLY)
    delete_tag(table.handle(), "fork")
    tag = table.path / "tag" / ("tag-t2" if what == "list of the tag" else "tag-t1")
    home = table.path / "branch/branch-b/snapshot/snapshot-4" if what == "list of a branch" else tag
    if what == "neighbour":
        tag.write_text("{ half")
    else:
        (table.path / "manifest" / json.loads(home.read_text())["deltaManifestList"]).write_text("half")
    before = files_of(table.path)
    if what == "list of the tag":
        with pytest.raises(CorruptTableError):
            delete_tag(table.handle(), "t2")
    else:
        with pytest.raises(CorruptTableError):
            delete_tag(table.handle(), "t3")
    assert files_of(table.path) == before and (table.path / "tag" / "tag-t3").exists()


# ---- Races and crashes


def test_a_tag_of_a_snapshot_that_expires_meanwhile(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files have gone: there is no tag then."""
    original = Store.replace

    def replace(self: Any, path: str, data: bytes, seen: Any) -> None:
        maintain(table.handle(), LATEST_ONLY)
        original(self, path, data, seen)

    monkeypatch.setattr(Store, "replace", replace)
    with pytest.raises(MaintenanceConflictError, match=r"snapshot 2 has expired meanwhile: .* is gone"):
        create_tag(table.handle(), "kept", snapshot=2)
    assert tags(table) == {} and is_exact(table)


def test_a_tag_that_came_in_time_stays_although_its_snapshot_is_gone(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TagWriter._is_there

    def is_there(self: Any, snapshot: Any) -> bool:
        maintain(table.handle(), LATEST_ONLY)
        return original(self, snapshot)

    monkeypatch.setattr(TagWriter, "_is_there", is_there)
    create_tag(table.handle(), "kept", snapshot=2)
    assert table.ids() == [6] and keys_of(table, "kept") == [0, 1] and is_exact(table)


def test_a_replaced_tag_of_an_expired_snapshot_is_as_before(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    create_tag(table.handle(), "kept", snapshot=2)
    original = TagWriter._is_there

    def is_there(self: Any, snapshot: Any) -> bool:
        table.snapshot_path(3).unlink(missing_ok=True)
        (table.path / "manifest" / snapshot.delta_manifest_list).unlink(missing_ok=True)
        return original(self, snapshot)

    monkeypatch.setattr(TagWriter, "_is_there", is_there)
    with pytest.raises((MaintenanceConflictError, StreamConfigError)):
        replace_tag(table.handle(), "kept", snapshot=3)
    assert tags(table) == {"kept": 2}


def steps_of(call: Callable[[Any], object], table: Table, warehouse: Path) -> int:
    file_io = MortalFileIO()
    call(_handle(table.copy(warehouse), file_io))
    return file_io.steps


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "delete": lambda handle: delete_tag(handle, "two"),
    "replace": lambda handle: replace_tag(handle, "two", snapshot=3),
    "rename": lambda handle: rename_tag(handle, "two", "new"),
    "create": lambda handle: create_tag(handle, "new", snapshot=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_that_is_killed(table: Table, tmp_path_factory: pytest.TempPathFactory, what: str) -> None:
    """Killed before each request: nothing that is needed goes, and the next run of `maintain` leaves no more."""
    for number in (1, 2, 3):
        create_tag(table.handle(), ("one", "two", "three")[number - 1], snapshot=number)
    maintain(table.handle(), LATEST_ONLY)
    operation = OPERATIONS[what]
    steps = steps_of(operation, table, tmp_path_factory.mktemp("count") / "wh")
    for step in every(3, range(steps)):
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        with pytest.raises(Killed):
            operation(_handle(killed, MortalFileIO(step)))
        assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        maintain(killed.handle(), LATEST_ONLY)
        assert is_exact(killed), f"killed before request {step}"
        assert not list((killed.path / "consumer").glob("maintenance-*")) and len(tags(killed)) >= 2
        shutil.rmtree(killed.path.parents[1])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["delete", "replace"])
def test_a_store_that_dies_loses_nothing(table: Table, tmp_path_factory: pytest.TempPathFactory, what: str) -> None:
    """As above, in an object store, where a request may also have taken effect although it failed."""
    for name, number in (("one", 1), ("two", 2), ("three", 3)):
        create_tag(table.handle(), name, snapshot=number)
    maintain(table.handle(), LATEST_ONLY)
    step, died = 0, True
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        store = DyingStore()
        store.dies_after(step)
        handle = killed.handle(store)
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        try:
            OPERATIONS[what](handle)
        except OSError:
            assert store.dead
        died = store.dead
        assert needed_files(killed.path) <= files_of(killed.path), f"died after step {step}"
        maintain(killed.handle(), LATEST_ONLY)
        assert is_exact(killed), f"died after step {step}"
        shutil.rmtree(killed.path.parents[1])
        step += 1 if SOAK else 16
    assert step > 60


@pytest.mark.parametrize("what", ["create", "rename"])
def test_a_tag_whose_files_are_about_to_go(table: Table, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Another run has looked for tags for the last time, and has not deleted the files yet."""
    create_tag(table.handle(), "old", snapshot=2)
    maintain(table.handle(), LATEST_ONLY)
    copied = json.loads((table.path / "tag" / "tag-old").read_text())
    plan = table.path / "consumer" / "maintenance-running"
    original = Store.replace

    def replace(self: Any, path: str, data: bytes, seen: Any) -> None:
        (table.path / "tag" / "tag-old").unlink()
        plan.write_text(json.dumps({"version": 1, "files": [f"manifest/{copied['baseManifestList']}"]}))
        original(self, path, data, seen)

    monkeypatch.setattr(Store, "replace", replace)
    with pytest.raises(MaintenanceConflictError, match="about to go"):
        if what == "create":
            create_tag(table.handle(), "new", snapshot=2)
        else:
            rename_tag(table.handle(), "old", "new")
    assert tags(table) == {}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["create", "rename", "replace"])
def test_expiry_at_any_moment_of_an_operation(
    table: Table, tmp_path_factory: pytest.TempPathFactory, what: str
) -> None:
    """Snapshots expire, and the tag with them."""
    create_tag(table.handle(), "two", snapshot=2)
    path = table.path / "tag" / "tag-two"
    expired = {"tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": 1.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), **expired}))
    steps = steps_of(OPERATIONS[what], table, tmp_path_factory.mktemp("count") / "wh")
    for step in every(1, range(1, steps + 1)):
        raced = table.copy(tmp_path_factory.mktemp("raced") / "wh")
        file_io = MortalFileIO()
        file_io.interruption = (step, lambda raced=raced: maintain(raced.handle(), LATEST_ONLY))
        with suppress(MaintenanceConflictError, StreamConfigError):
            OPERATIONS[what](_handle(raced, file_io))
        assert needed_files(raced.path) <= files_of(raced.path), f"before request {step}"
        shutil.rmtree(raced.path.parents[1])


@pytest.mark.slow
def test_maintenance_at_any_moment_of_a_deletion(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    """And a tag of the same snapshot, which keeps the files if it comes in time."""
    create_tag(table.handle(), "two", snapshot=2)
    steps = steps_of(OPERATIONS["delete"], table, tmp_path_factory.mktemp("count") / "wh")

    def expire(raced: Table) -> None:
        maintain(raced.handle(), LATEST_ONLY)

    def tag(raced: Table) -> None:
        try:
            create_tag(raced.handle(), "late", snapshot=2)
        except (StreamConfigError, MaintenanceConflictError):
            assert "late" not in tags(raced)

    for action in (expire, tag):
        for step in every(4, range(1, steps + 1)):
            raced = table.copy(tmp_path_factory.mktemp("raced") / "wh")
            if action is tag:
                maintain(raced.handle(), LATEST_ONLY)
            file_io = MortalFileIO()
            file_io.interruption = (step, lambda raced=raced, action=action: action(raced))
            delete_tag(_handle(raced, file_io), "two")
            assert "two" not in tags(raced)
            assert needed_files(raced.path) <= files_of(raced.path), f"{action} before request {step}"
            shutil.rmtree(raced.path.parents[1])


# ---- Automatic tags


@pytest.fixture
def daily(tmp_path: Path) -> Table:
    """Six snapshots on four days: the first of days 2, 3 and 4 are snapshots 3, 5 and 6."""
    table = filled(Table(tmp_path, "t", primary_key=True, **AUTOMATIC))
    at_days(table, 1, 1.1, 2, 2.1, 3, 4)
    return table


def test_maintenance_creates_due_tags_before_anything_expires(daily: Table) -> None:
    dry = maintain(daily.handle(), LATEST_ONLY, dry_run=True)
    assert tags(daily) == {} and daily.ids() == [1, 2, 3, 4, 5, 6]
    report = maintain(daily.handle(), LATEST_ONLY)
    assert report.plan == dry.plan
    assert maintain(daily.handle(), LATEST_ONLY, dry_run=True).plan.created_tags == ()
    expected = {"2025-12-31": 1, "2026-01-01": 3, "2026-01-02": 5, "2026-01-03": 6}
    assert {each.name: each.snapshot.id for each in report.plan.created_tags} == expected == tags(daily)
    assert daily.ids() == [6] and is_exact(daily) and keys_of(daily, "2026-01-01") == [0, 1, 2]
    assert maintain(daily.handle(), LATEST_ONLY).plan.is_empty
    assert report.plan.to_value()["created_tags"][1] == {"name": "2026-01-01", "snapshot": 3}


def test_the_oldest_automatic_tags_go_with_their_files(daily: Table) -> None:
    create_tag(daily.handle(), "mine", snapshot=1)
    report = maintain(daily.handle(tag__num_retained_max="2"), LATEST_ONLY)
    assert [each.name for each in report.plan.created_tags] == ["2026-01-02", "2026-01-03"]
    assert tags(daily) == {"2026-01-02": 5, "2026-01-03": 6, "mine": 1} and is_exact(daily)
    at_days(daily, 5)
    daily.commit([9])
    at_days(daily, 4, 6)
    report = maintain(daily.handle(tag__num_retained_max="2"), LATEST_ONLY)
    assert report.plan.deleted_tags == ("2026-01-02",) and is_exact(daily)
    assert tags(daily) == {"2026-01-03": 6, "2026-01-05": 7, "mine": 1}


def test_automatic_tags_of_a_branch_are_its_own(daily: Table) -> None:
    """In Java they are tags of main."""
    create_tag(daily.handle(), "fork", snapshot=6)
    daily.handle().branch_manager().create_branch("b", "fork")
    maintain(daily.handle(branch="b", **AUTOMATIC))
    assert tags(daily) == {"fork": 6}
    assert [each.name for each in list_tags(daily.handle(branch="b"))] == ["2026-01-03", "fork"]


def test_due_tags_after_a_commit(daily: Table) -> None:
    given = PaimonTable(daily.handle(tag__num_retained_max="2"))
    assert [each.name for each in create_due_tags(given)] == ["2026-01-02", "2026-01-03"]
    assert daily.ids() == [1, 2, 3, 4, 5, 6], "nothing expires"
    assert create_due_tags(given) == () == create_due_tags(PaimonTable(daily.handle(tag__automatic_creation="none")))


def test_batch_mode_moves_the_tag_of_the_day(daily: Table) -> None:
    options = {"tag__automatic_creation": "batch", "tag__num_retained_max": "1"}
    create_tag(daily.handle(), "mine", snapshot=1)
    maintain(daily.handle(**options), LATEST_ONLY)
    assert tags(daily) == {"batch-write-2026-01-04": 6, "mine": 1}
    daily.commit([10])
    at_days(daily, 4, 4.1)
    report = maintain(daily.handle(**options), LATEST_ONLY)
    assert report.plan.deleted_tags == () and [each.name for each in report.plan.created_tags] == [
        "batch-write-2026-01-04"
    ]
    assert tags(daily) == {"batch-write-2026-01-04": 7, "mine": 1} and is_exact(daily)
    daily.commit([11])
    at_days(daily, 4.1, 5)
    maintain(daily.handle(**options), LATEST_ONLY)
    assert tags(daily) == {"batch-write-2026-01-05": 8, "mine": 1} and is_exact(daily)


@pytest.mark.slow
def test_automatic_tags_of_a_run_that_is_killed(daily: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    def call(handle: Any) -> object:
        return maintain(handle.copy({"tag.num-retained-max": "2"}), LATEST_ONLY)

    done = daily.copy(tmp_path_factory.mktemp("done") / "wh")
    call(done.handle())
    steps = steps_of(call, daily, tmp_path_factory.mktemp("count") / "wh")
    for step in every(6, range(steps)):
        killed = daily.copy(tmp_path_factory.mktemp("killed") / "wh")
        with pytest.raises(Killed):
            call(_handle(killed, MortalFileIO(step)))
        assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        call(killed.handle())
        assert files_of(killed.path) == files_of(done.path) and tags(killed) == tags(done), f"before request {step}"
        shutil.rmtree(killed.path.parents[1])


def _handle(table: Table, file_io: Any) -> Any:
    handle = table.handle()
    handle.file_io = file_io
    return handle
