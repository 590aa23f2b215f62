"""Create, replace, rename and delete tags: what is there then, and which files stay."""

from __future__ import annotations

import json
import logging
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    CorruptTableError,
    StreamConfigError,
    compact,
    maintain,
    stream_read_builder,
)
from pypaimon.streaming.maintenance import create_tag, delete_tag, list_tags, rename_tag, replace_tag
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, available, rows
from support.tables.tagged_tables import (
    AUTOMATIC,
    LATEST_ONLY,
    at_days,
    filled,
    is_exact,
    keys_of,
    tags,
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A keyed table with an overwrite: six snapshots, of which the fifth has removed the rows of the others."""
    return filled(Table(tmp_path, "t", primary_key=True))


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


def test_a_rename_leaves_no_callback_out(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    create_tag(table.handle(), "kept")
    with caplog.at_level(logging.WARNING):
        rename_tag(table.handle(tag__callbacks="org.example.Other"), "kept", "new")
    assert caplog.records == []


@pytest.mark.parametrize("option", ["tag__callbacks", "metastore__tag_to_partition"])
def test_a_run_that_expires_a_tag_names_callbacks_too(
    table: Table, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    create_tag(table.handle(), "old", retention=timedelta(0))
    with caplog.at_level(logging.INFO):
        maintain(table.handle(**{option: "x"}))
    warned, done = [each.paimon for each in caplog.records if hasattr(each, "paimon")]
    assert (warned["event"], warned["options"]) == ("upkeep_left_out", option.replace("__", ".").replace("_", "-"))
    assert (done["event"], done["tags"], done["created_tags"], done["partitions"]) == ("maintained", 1, 0, 0)


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
    original = PlanExecution._check_unchanged

    def check(self: Any, *args: Any) -> None:
        (table.path / "tag" / "tag-one").unlink(missing_ok=True)
        original(self, *args)

    monkeypatch.setattr(PlanExecution, "_check_unchanged", check)
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
