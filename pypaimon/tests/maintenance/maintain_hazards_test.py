"""What could make maintenance delete a file that something needs, or stop it for ever."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    ConsumerConflictError,
    ConsumerManager,
    CorruptTableError,
    MaintenancePolicy,
    TableChangedError,
    maintain,
    stream_read_builder,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import create_tag, replace_tag
from pypaimon.streaming.maintenance.expiry import Protection
from pypaimon.streaming.maintenance.needed_files import NeededFiles
from pypaimon.streaming.maintenance.plan import MaintenancePlan, plan_files, plan_text
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from pypaimon.streaming.maintenance.references import TableFile
from pypaimon.streaming.metadata.snapshots import SnapshotManager
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Phase, Position
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
DAY = 86_400


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input")
    for key in range(4):
        table.commit([key])
    table.commit([7], overwrite=True)
    table.commit([8])
    return table


def is_exact(table: Table) -> bool:
    """Whether a table has the files that it needs, and no others."""
    return files_of(table.path) == needed_files(table.path)


def consumers(table: Table) -> ConsumerManager:
    return ConsumerManager(table.handle().file_io, str(table.path))


def before(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, action: Callable[[], object]) -> None:
    """Do something once, before a step of a run."""
    original = getattr(owner, method)
    done: list[bool] = []

    def step(self: Any, *args: Any) -> Any:
        if not done:
            done.append(True)
            action()
        return original(self, *args)

    monkeypatch.setattr(owner, method, step)


# ---- Files of others


def test_a_data_directory_outside_of_the_table_may_be_shared(tmp_path: Path) -> None:
    """Another table may have the same `data-file.path-directory`: its files are no orphans."""
    shared = str(tmp_path / "shared")
    ours, other = (Table(tmp_path, name, data_file__path_directory=shared) for name in ("t", "u"))
    for table in (ours, other):
        table.commit([1])
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 3 * DAY,) * 2)
    report = maintain(ours.handle(), MaintenancePolicy(orphan_age=timedelta(days=2)))
    assert report.plan.files == () and other.rows()


def test_an_unfinished_plan_of_a_copied_table_stays_in_the_copy(table: Table, tmp_path: Path) -> None:
    paths = [f"{table.path}/bucket-0/x.parquet", "/elsewhere/y.parquet"]
    text = plan_text([TableFile(path, "data") for path in paths], f"file://{table.path}")
    found = plan_files("file:///copy/t", text)
    assert [each.path for each in found] == ["/copy/t/bucket-0/x.parquet", "/elsewhere/y.parquet"]


# ---- Histories with a joint


def test_a_history_whose_parts_do_not_follow_each_other_keeps_all_files(tmp_path: Path) -> None:
    """A fast-forward to a branch whose fork has expired, and a rollback that was killed, join two histories."""
    table = Table(tmp_path, "t", primary_key=True)
    for key in range(3):
        table.commit([key])
    # Another history from snapshot 1 on: its snapshot 2 is not in the table any more, its snapshot 3 is.
    table.handle().create_tag("fork", 1)
    other = table.copy(tmp_path / "other")
    other.rollback(1)
    for key in (11, 12):
        other.commit([key])
    for path in other.path.rglob("*"):
        if path.is_file() and not (table.path / path.relative_to(other.path)).exists():
            (table.path / path.relative_to(other.path)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, table.path / path.relative_to(other.path))
    shutil.copy(other.snapshot_path(3), table.snapshot_path(3))
    (table.path / "tag" / "tag-fork").unlink()
    expected = table.rows()
    _age_all(table)
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=2, orphan_age=timedelta(days=2)))
    assert table.ids() == [2, 3] and table.rows() == expected
    assert is_exact(table)


def test_a_listing_without_the_latest_snapshot_is_not_believed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old answer of an object store hides what names the files of the latest snapshot."""
    original = SnapshotManager.list_statuses
    monkeypatch.setattr(SnapshotManager, "list_statuses", lambda self: dict([*original(self).items()][:-1]))
    _age_all(table)
    before = files_of(table.path)
    with pytest.raises(MaintenanceConflictError, match="snapshot 6 was not listed"):
        maintain(table.handle(), MaintenancePolicy(min_snapshots=1, orphan_age=timedelta(days=2)))
    assert files_of(table.path) == before


# ---- Races


def test_a_consumer_that_is_reset_meanwhile_is_protected(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    consumers(table).reset_consumer("c", Consumer(6))
    before(monkeypatch, PlanExecution, "_check_unchanged", lambda: consumers(table).reset_consumer("c", Consumer(3)))
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [2, 3, 4, 5, 6]


def test_files_of_an_unfinished_plan_are_checked_again_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag that is written while its snapshot expires keeps the files, although an earlier run wanted them gone."""
    (table.path / "consumer").mkdir(exist_ok=True)
    files = [str(path.relative_to(table.path)) for path in table.path.rglob("*") if path.name in files_of(table.path)]
    (table.path / "consumer" / "maintenance-dead").write_text(json.dumps({"version": 1, "files": files}))
    before(monkeypatch, NeededFiles, "newly_needed", lambda: shutil.copy(late, table.path / "tag" / "tag-late"))
    (table.path / "tag").mkdir(exist_ok=True)
    late = table.path / "late"
    shutil.copy(table.snapshot_path(2), late)
    maintain(table.handle(), LATEST_ONLY)
    late.unlink()
    assert needed_files(table.path) <= files_of(table.path)


def test_the_plan_of_a_run_under_way_stays(table: Table) -> None:
    """A rollback looks for it. One that is old has died; what it names may be needed by something newer."""
    (table.path / "consumer").mkdir(exist_ok=True)
    plan = table.path / "consumer" / "maintenance-of-another"
    needed = needed_files(table.path)
    data = next(path for path in table.path.glob("bucket-0/*.parquet") if path.name in needed)
    plan.write_text(json.dumps({"version": 1, "files": [str(data.relative_to(table.path))]}))
    maintain(table.handle())
    assert plan.exists()
    os.utime(plan, (time.time() - 3600,) * 2)
    maintain(table.handle())
    assert data.exists() and not plan.exists()


def test_a_tag_that_is_replaced_while_it_expires_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = table.path / "tag" / "tag-kept"
    create_tag(table.handle(), "kept", snapshot=2, retention=timedelta(days=1))
    expired = json.loads(tag.read_bytes())
    tag.write_text(json.dumps({**expired, "tagCreateTime": [2020, 1, 1, 0, 0]}))
    before(monkeypatch, PlanExecution, "_check_unchanged", lambda: replace_tag(table.handle(), "kept", snapshot=3))
    assert maintain(table.handle(), LATEST_ONLY).plan.tags == ()
    assert json.loads(tag.read_bytes())["id"] == 3 and needed_files(table.path) <= files_of(table.path)


def test_two_runs_may_keep_the_same_changelogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _with_changelogs(tmp_path, most=9)
    before(monkeypatch, PlanExecution, "_expire_changelogs", lambda: maintain(table.handle()))
    maintain(table.handle())
    assert table.ids() == [4] and is_exact(table)
    assert {path.name for path in (table.path / "changelog").glob("changelog-*")} == {
        f"changelog-{n}" for n in (1, 2, 3)
    }


def test_a_changelog_that_has_expired_meanwhile_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run expires the snapshots, then their changelogs, while this one is about to write them."""
    table = _with_changelogs(tmp_path, most=9)
    original = Store.write_atomic
    raced: list[str] = []

    def write_atomic(self: Any, path: str, data: bytes) -> None:
        if "/changelog/changelog-" in path and not raced:
            raced.append(path)
            maintain(table.handle())
            maintain(table.handle(), MaintenancePolicy(max_changelogs=1))
        original(self, path, data)

    monkeypatch.setattr(Store, "write_atomic", write_atomic)
    maintain(table.handle())
    assert raced and needed_files(table.path) <= files_of(table.path)


def test_a_changelog_that_comes_back_after_its_files_have_gone_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slower run writes it, and finds its files still there, just before they are deleted."""
    table = _with_changelogs(tmp_path, most=9)
    maintain(table.handle())
    changelog = table.path / "changelog" / "changelog-1"
    data = changelog.read_bytes()
    before(monkeypatch, PlanExecution, "_delete_revived_changelogs", lambda: changelog.write_bytes(data))
    maintain(table.handle(), MaintenancePolicy(max_changelogs=1))
    assert not changelog.exists() and needed_files(table.path) <= files_of(table.path)


def test_an_expired_consumer_that_saves_keeps_its_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It saves after the last look at all consumers, before its file is deleted."""
    consumers(table).reset_consumer("c", Consumer(3))
    os.utime(table.path / "consumer" / "consumer-c", (time.time() - 3 * DAY,) * 2)
    before(monkeypatch, PlanExecution, "_mark_expired", lambda: consumers(table).reset_consumer("c", Consumer(4)))
    maintain(table.handle(consumer__expiration_time="1 d"), LATEST_ONLY)
    assert consumers(table).consumer("c") == Consumer(4) and table.ids() == [3, 4, 5, 6]


def test_without_conditional_writes_the_save_of_an_expired_consumer_may_be_lost(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is marked in the same moment. The next save says so, and where it stood."""
    builder = stream_read_builder(table.handle(FaultFileIO())).with_consumer_id("c").with_start(snapshot_id=3)
    with builder.new_streaming_scan() as scan:
        scan.commit(scan.plan())
        os.utime(table.path / "consumer" / "consumer-c", (time.time() - 3 * DAY,) * 2)
        before(monkeypatch, PlanExecution, "_mark_expired", lambda: scan.commit(scan.plan()))
        monkeypatch.setattr(ConsumerManager, "delete", lambda *_: None)
        maintain(table.handle(FaultFileIO(), consumer__expiration_time="1 d"), MaintenancePolicy(min_snapshots=9))
        with pytest.raises(ConsumerConflictError, match=r"expiration-time had passed.*last saved: 5\)"):
            scan.commit(scan.plan())


def test_an_expired_consumer_is_finished_by_the_next_run(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed has changed its file, which looks young therefore."""
    consumers(table).reset_consumer("c", Consumer(3))
    os.utime(table.path / "consumer" / "consumer-c", (time.time() - 3 * DAY,) * 2)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        before(killed, PlanExecution, "_expire_changelogs", _raise_interrupt)
        killed.setattr(ConsumerManager, "delete", lambda *_: None)
        maintain(table.handle(consumer__expiration_time="1 d"), LATEST_ONLY)
    assert maintain(table.handle(consumer__expiration_time="1 d"), LATEST_ONLY).plan.consumers == ("c",)
    assert table.ids() == [6] and is_exact(table)


def test_snapshots_that_a_killed_run_has_hidden_go_at_any_age(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader finds them; Java's expiry neither, since it begins at the hint, and it deletes files they name."""
    original = Store.delete_all

    def delete_all(self: Any, paths: Any) -> None:
        original(self, paths)
        if any("/snapshot-" in path for path in paths):
            raise KeyboardInterrupt

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Store, "delete_all", delete_all)
        maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [1, 2, 3, 4, 6]
    # What Java deletes next to them: they cannot be read any more, and nothing depends on that.
    (table.path / "manifest" / table.snapshot(1)["deltaManifestList"]).unlink()
    maintain(table.handle(), MaintenancePolicy(snapshot_age=timedelta(days=99)))
    assert table.ids() == [6] and is_exact(table)


FEW = MaintenancePolicy(min_snapshots=1, max_snapshots=1, expire_limit=2)


def lose(table: Table, number: int) -> None:
    """Delete a manifest list that only this snapshot needs."""
    (table.path / "manifest" / table.snapshot(number)["deltaManifestList"]).unlink()


def hide(table: Table) -> None:
    """Leave what Java's expiry leaves if a run of ours was killed after it had moved the hint to snapshot 5."""
    lose(table, 4)
    table.snapshot_path(5).unlink()
    (table.path / "snapshot" / "EARLIEST").write_text("6")


def test_hidden_snapshots_that_stay_for_now_need_nothing_that_is_gone(table: Table) -> None:
    """The limit of a run keeps some of them. Neither that run nor the next one waits for their files."""
    hide(table)
    maintain(table.handle(), FEW)
    assert table.ids() == [3, 4, 6]
    maintain(table.handle(), FEW)
    assert table.ids() == [6] and needed_files(table.path) <= files_of(table.path)


def test_snapshots_that_are_hidden_meanwhile_are_a_conflict(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt that meets their missing files ends; the next one knows that they are hidden."""
    (table.path / "snapshot" / "EARLIEST").write_text("5")
    before(monkeypatch, NeededFiles, "of", lambda: hide(table))
    maintain(table.handle(), FEW)
    assert table.ids() == [3, 4, 6]


def test_what_a_snapshot_needs_that_readers_find_is_damage(table: Table) -> None:
    """Also next to hidden ones, and as often as it is tried."""
    hide(table)
    lose(table, 6)
    for _ in range(2):
        with pytest.raises(CorruptTableError, match=r"is missing, although .* needs it\. .* keep fewer snapshots"):
            maintain(table.handle(), FEW)
        assert table.ids() == [1, 2, 3, 4, 6]


@pytest.mark.parametrize(
    "options",
    [
        {"tag__automatic_creation": "batch"},
        {"snapshot__num_retained__max": "1", "snapshot__num_retained__min": "1", "changelog__num_retained__max": "9"},
    ],
    ids=["tag", "changelog"],
)
def test_damage_is_no_conflict_if_a_tag_or_changelog_is_to_be_written(table: Table, options: dict[str, str]) -> None:
    """The run needs their files already, and has not written them yet: that is not as if they had expired."""
    maintain(table.handle(**options), MaintenancePolicy(min_snapshots=3, max_snapshots=3))
    table.commit([9])
    planned = maintain(table.handle(**options), LATEST_ONLY, dry_run=True).plan
    assert planned.created_tags or planned.kept_changelog_ids
    lose(table, 7)
    with pytest.raises(CorruptTableError, match="is missing, although"):
        maintain(table.handle(**options), LATEST_ONLY)


def test_readers_find_no_gap_between_expired_snapshots(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of them goes first: from then on the hint is right, and hides the others."""
    deleted: list[str] = []
    original = Store.delete_all

    def delete_all(self: Any, paths: Any) -> None:
        deleted.extend(Path(path).name for path in paths if "/snapshot-" in path)
        if len(deleted) > 1:
            assert not table.snapshot_path(5).exists()
        original(self, paths)

    monkeypatch.setattr(Store, "delete_all", delete_all)
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [6] and deleted


def test_a_snapshot_that_could_not_be_deleted_keeps_its_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete that an object store lost: the snapshot is still there, so readers find it."""
    stored = table.snapshot_path(2).read_bytes()
    before(monkeypatch, NeededFiles, "newly_needed", lambda: table.snapshot_path(2).write_bytes(stored))
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [2, 6] and needed_files(table.path) <= files_of(table.path)
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [6] and is_exact(table)


# ---- What callers and consumers need


def test_a_position_inside_a_range_protects_the_whole_range(table: Table) -> None:
    """The changes after snapshot 2, up to 5, are one plan: it compares both states."""
    position = Position(UNKNOWN_TABLE, 5, phase=Phase.RANGE, since=2)
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1, protect=(position,)))
    assert table.ids() == [2, 3, 4, 5, 6]


def test_a_consumer_that_keeps_only_changelogs_holds_no_snapshot_back() -> None:
    plan = MaintenancePlan("t", protections=(Protection("consumer", "c", 3, changelog_only=True),), earliest_id=7)
    assert plan.held_back == ()


def test_a_position_of_another_table_protects_nothing_here(table: Table) -> None:
    """Its ids would be taken for those of this table."""
    for position, text in (
        (Position("another", 2), "another table or branch"),
        (Position(UNKNOWN_TABLE, 3, "of a snapshot 2 that was rolled back"), "rolled back"),
        (Position(UNKNOWN_TABLE, 3, "of a snapshot 3 that was rolled back", Phase.FULL), "rolled back"),
    ):
        with pytest.raises(TableChangedError, match=text):
            maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1, protect=(position,)))
    own = Position(UNKNOWN_TABLE, 3, SnapshotManager(table.handle().file_io, str(table.path)).get(2).fingerprint)
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1, protect=(own,)))
    assert table.ids() == [2, 3, 4, 5, 6]


# ---- What a table may hold


@pytest.mark.parametrize("producers", [("none", "input"), ("input", "none")])
def test_a_changelog_is_judged_by_the_option_of_its_commit(tmp_path: Path, producers: tuple[str, str]) -> None:
    """The producer was switched on or off since: each changelog needs what was recorded when it was committed."""
    table = _with_changelogs(tmp_path, most=9, producer=producers[0])
    maintain(table.handle())
    table.catalog.alter_table(table.name, [SchemaChange.set_option("changelog-producer", producers[1])], False)
    for key in range(3):
        table.commit([key], table=table.handle())
    maintain(table.handle())
    assert table.ids() == [7] and is_exact(table)
    assert len(list((table.path / "changelog").glob("changelog-*"))) == 6


def test_temporary_files_that_a_dead_writer_has_left_go(table: Table) -> None:
    small = [table.path / name for name in ("snapshot", "changelog", "tag", "consumer")]
    temporary = [directory / ".x.0b9c.tmp" for directory in small]
    kept = [directory / name for directory in small for name in (".x.new", "stranger")]
    for path in (*temporary, *kept):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    _age_all(table)
    maintain(table.handle(), MaintenancePolicy(orphan_age=timedelta(days=2)))
    assert [path.exists() for path in (*temporary, *kept)] == [False] * 4 + [True] * 8


def test_the_success_files_of_tags_are_no_tag(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    success = table.path / "tag" / "tag-success-file"
    success.mkdir()
    (success / "kept_SUCCESS").write_text("{}")
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [6] and is_exact(table)


@pytest.mark.parametrize("name", ["writer", "shared.group"])
def test_writers_and_groups_keep_snapshots_where_consumers_keep_changelogs(tmp_path: Path, name: str) -> None:
    """A writer finds its commits in snapshots only, and a group may be in its first plan."""
    options = {
        "changelog__num_retained__max": "99",
        "snapshot__num_retained__max": "50",
        "consumer__changelog_only": "true",
    }
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input", **options)
    for key in range(4):
        table.commit([key])
    directory = table.path / "consumer"
    directory.mkdir(exist_ok=True)
    (directory / f"consumer-{name}").write_text(json.dumps({"nextSnapshot": 3}))
    (directory / "consumer-reader").write_text(json.dumps({"nextSnapshot": 1}))
    (directory / "sink-writer").write_text("{}")
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [2, 3, 4]


@pytest.mark.parametrize("what", ["tag/tag-kept", "consumer/consumer-etl"])
def test_what_is_listed_and_not_found_is_looked_for_again(table: Table, what: str) -> None:
    """A store that does not find a file once has not lost it, and one that never finds it says nothing about it."""
    table.handle().create_tag("kept", 2)
    consumers(table).reset_consumer("etl", Consumer(3))
    file_io, lost = FaultFileIO(), [99]

    def fault(call: Call) -> Any:
        if call.kind == "read" and call.path.endswith(what) and lost[0]:
            lost[0] -= 1
            raise FileNotFoundError(call.path)
        return call.answer()

    file_io.wherever(fault)
    ids = table.ids()
    with pytest.raises(CorruptTableError, match="is listed, but cannot be found") as caught:
        maintain(table.handle(file_io), LATEST_ONLY)
    assert what in str(caught.value) and table.ids() == ids and is_exact(table)
    lost[0] = 1
    maintain(table.handle(file_io), LATEST_ONLY)
    assert not lost[0] and table.ids() == [2, 3, 4, 5, 6] and is_exact(table)


def test_a_branch_without_a_schema_stops_only_the_cleaning_of_orphans(table: Table) -> None:
    table.handle().create_tag("fork", 2)
    table.handle().branch_manager().create_branch("b", "fork")
    shutil.rmtree(table.path / "branch/branch-b/schema")
    (table.path / "manifest" / "orphan").write_bytes(b"x")
    _age_all(table)
    with pytest.raises(CorruptTableError, match=r"branch-b/schema.*holds no schema"):
        maintain(table.handle(), MaintenancePolicy(max_snapshots=1, min_snapshots=1, orphan_age=DAY))
    assert (table.path / "manifest" / "orphan").exists() and len(table.ids()) == 6
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [6]
    shutil.rmtree(table.path / "branch/branch-b")
    maintain(table.handle(), MaintenancePolicy(orphan_age=DAY))
    assert not (table.path / "manifest" / "orphan").exists()


def test_a_damaged_branch_is_no_conflict(table: Table) -> None:
    """Its snapshots have ids that the maintained branch need not have."""
    table.handle().create_tag("fork", 2)
    table.handle().branch_manager().create_branch("b", "fork")
    table.handle().delete_tag("fork")
    maintain(table.handle(), LATEST_ONLY)
    lost = json.loads((table.path / "branch/branch-b/snapshot/snapshot-2").read_text())["baseManifestList"]
    (table.path / "manifest" / lost).unlink()
    table.commit([9])
    with pytest.raises(CorruptTableError, match=lost):
        maintain(table.handle(), LATEST_ONLY)


def _with_changelogs(tmp_path: Path, most: int, producer: str = "input") -> Table:
    """A table of four snapshots that keeps one, and this many changelogs."""
    least = {"snapshot__num_retained__min": "1", "changelog__num_retained__min": "1"}
    limits = {"snapshot__num_retained__max": "1", "changelog__num_retained__max": str(most)}
    table = Table(tmp_path, "t", primary_key=True, changelog_producer=producer, **limits, **least)
    for key in range(4):
        table.commit([key])
    return table


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


def _age_all(table: Table) -> None:
    then = time.time() - 3 * DAY
    for path in table.path.rglob("*"):
        os.utime(path, (then, then))
