"""Branches: what creating, renaming, deleting and fast-forwarding write and delete, also if they are killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    ConsumerManager,
    MaintenancePolicy,
    PositionExpiredError,
    StreamConfigError,
    TableChangedError,
    compact,
    maintain,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.errors import MaintenanceConflictError, UnsupportedTableError
from pypaimon.streaming.maintenance import branches, create_branch, delete_branch, fast_forward, rename_branch
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK
from support.stores.fault_file_io import Call, DyingStore, FaultFileIO
from support.tables.handles import sorted_rows
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, at_every_change, available, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A keyed table with four snapshots, a tag of the second one, and a schema that it has got since."""
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input")
    for key in range(4):
        table.commit([key])
    table.handle().create_tag("fork", 2)
    return table


def home(table: Table, name: str) -> Path:
    return table.path / "branch" / f"branch-{name}"


def small(directory: Path) -> dict[str, Any]:
    """The snapshots, tags, changelogs and schemas of a branch."""
    names = ("snapshot", "tag", "changelog", "schema")
    paths = [path for name in names for path in (directory / name).glob("*-*") if path.is_file()]
    return {str(path.relative_to(directory)): json.loads(path.read_text()) for path in paths}


def branch_rows(table: Table, name: str) -> list[Any]:
    return sorted_rows(table.handle(branch=name))


def commit_to(table: Table, name: str, *keys: int) -> None:
    for key in keys:
        table.write(table.arrow_rows([key]), table=table.handle(branch=name))


def is_whole(table: Table) -> bool:
    return bool(table.ids()) and needed_files(table.path) <= files_of(table.path)


# ---- Creating


def test_an_empty_branch_has_the_schemas(table: Table) -> None:
    create_branch(table.handle(), "b")
    assert set(small(home(table, "b"))) == {"schema/schema-0"}
    commit_to(table, "b", 7)
    assert [row[0] for row in branch_rows(table, "b")] == [7] and len(table.rows()) == 4


def test_a_branch_of_a_tag_has_its_snapshot_and_schemas(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    found = small(home(table, "b"))
    assert set(found) == {"schema/schema-0", "tag/tag-fork", "snapshot/snapshot-2"}
    assert found["snapshot/snapshot-2"] == table.snapshot(2)
    assert [row[0] for row in branch_rows(table, "b")] == [0, 1]
    assert not list((home(table, "b") / "consumer").glob("*"))


def test_a_branch_of_an_expired_snapshot_can_be_maintained(table: Table) -> None:
    """The changelog of the snapshot has expired: a branch that named it could not be maintained any more."""
    maintain(table.handle(), LATEST_ONLY)
    create_branch(table.handle(), "b", tag="fork")
    assert "changelogManifestList" not in small(home(table, "b"))["snapshot/snapshot-2"]
    table.handle().delete_tag("fork")
    commit_to(table, "b", 8)
    for name in ("main", "b"):
        maintain(table.handle(branch=name), LATEST_ONLY)
    assert [row[0] for row in branch_rows(table, "b")] == [0, 1, 8] and is_whole(table)


def test_a_branch_of_a_tag_that_goes_meanwhile_goes_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its snapshot, and a file that the branch needs."""
    maintain(table.handle(), LATEST_ONLY)
    path, original = table.path / "tag" / "tag-fork", branches._create

    def create(*args: Any) -> None:
        original(*args)
        (table.path / "manifest" / json.loads(path.read_text())["deltaManifestList"]).unlink()
        path.unlink()

    monkeypatch.setattr(branches, "_create", create)
    with pytest.raises(MaintenanceConflictError, match="tag 'fork' was deleted meanwhile"):
        create_branch(table.handle(), "b", tag="fork")
    assert not [*home(table, "b").rglob("*-*")], "nothing of the branch is left"


@pytest.mark.parametrize("name", ["", " ", "main", "12", "a/b", "..", "b"])
def test_names_that_a_branch_cannot_have_are_refused(table: Table, name: str) -> None:
    create_branch(table.handle(), "b")
    create_branch(table.handle(), "other")
    with pytest.raises(StreamConfigError):
        create_branch(table.handle(), name)
    with pytest.raises(StreamConfigError):
        rename_branch(table.handle(), "other", name)
    assert sorted(path.name for path in (table.path / "branch").iterdir()) == ["branch-b", "branch-other"]


def test_a_branch_that_exists_may_be_ignored(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    before = small(home(table, "b"))
    create_branch(table.handle(), "b", ignore_if_exists=True)
    assert small(home(table, "b")) == before
    with pytest.raises(StreamConfigError, match=r"no tag 'no'\. Tags: fork"):
        create_branch(table.handle(), "c", tag="no")


# ---- Deleting and renaming


def test_the_files_of_a_deleted_branch_go_with_the_next_maintenance(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7, 8)
    before = table.rows()
    assert delete_branch(table.handle(), "b") > 0
    assert not home(table, "b").exists() and files_of(table.path) != needed_files(table.path)
    maintain(table.handle())
    assert files_of(table.path) == needed_files(table.path) and table.rows() == before
    assert not list((table.path / "consumer").glob("*"))


def test_what_a_run_and_the_deletion_of_a_branch_leave_to_each_other_is_an_orphan(table: Table) -> None:
    """The run has seen that the branch needs the files of the fork, and the deletion that main does."""
    create_branch(table.handle(), "b", tag="fork")
    table.handle().delete_tag("fork")
    compact(table.handle(), full=True)
    file_io, deleted = FaultFileIO(), list[int]()

    def fault(call: Call) -> Any:
        if call.kind == "delete" and "/snapshot-" in call.path and not deleted:
            deleted.append(delete_branch(table.handle(), "b"))
        return call.answer()

    file_io.wherever(fault)
    maintain(table.handle(file_io), LATEST_ONLY)
    assert deleted
    maintain(table.handle(), LATEST_ONLY)
    assert files_of(table.path) > needed_files(table.path)
    maintain(table.handle(), MaintenancePolicy(orphan_age=0, young_orphans=True))
    assert files_of(table.path) == needed_files(table.path)


def test_maintenance_during_a_deletion_leaves_no_file(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7)
    step, interrupted, recorded = 0, True, 0
    while interrupted:
        step += 1 if SOAK else 6
        other = table.copy(tmp_path_factory.mktemp("wh") / "wh")
        records: list[Path] = []

        def run(other: Table = other, records: list[Path] = records) -> None:
            records += (other.path / "consumer").glob("maintenance-branch-*")
            maintain(other.handle())

        handle = other.handle()
        handle.file_io = MortalFileIO()
        handle.file_io.interruption = (step, run)
        delete_branch(handle, "b")
        interrupted = handle.file_io.interruption is None
        maintain(other.handle(), LATEST_ONLY)
        recorded += bool(records)
        assert needed_files(other.path) <= files_of(other.path), f"step {step}"
        assert not records or needed_files(other.path) == files_of(other.path), f"step {step}"
        shutil.rmtree(other.path.parents[1])
    assert recorded > (2 if SOAK else 1)


def test_a_damaged_branch_can_be_deleted(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    (home(table, "b") / "snapshot" / "snapshot-2").write_text("{")
    TableDirectory.of(handle := table.handle()).store._common.sleep = lambda _: None
    assert delete_branch(handle, "b") == 0 and not home(table, "b").exists() and is_whole(table)


@pytest.mark.parametrize("option", ["scan.fallback-branch", "scan.primary-branch"])
def test_a_branch_that_an_option_names_stays(table: Table, option: str) -> None:
    create_branch(table.handle(), "b")
    handle = table.handle().copy_without_time_travel({option: "b"})
    for act in (lambda: delete_branch(handle, "b"), lambda: rename_branch(handle, "b", "c")):
        with pytest.raises(StreamConfigError, match=f"option '{option}' names branch 'b'"):
            act()
    with pytest.raises(StreamConfigError, match="Load it on another branch"):
        delete_branch(table.handle(branch="b"), "b")
    with pytest.raises(StreamConfigError, match=r"there is no branch 'x'\. Branches: b"):
        delete_branch(table.handle(), "x")
    assert home(table, "b").exists()


def test_a_renamed_branch_is_the_same(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7)
    before = small(home(table, "b"))
    rename_branch(table.handle(), "b", "c")
    assert small(home(table, "c")) == before and not home(table, "b").exists()
    assert [row[0] for row in branch_rows(table, "c")] == [0, 1, 7]


@pytest.mark.parametrize("what", ["create", "rename", "delete"])
def test_a_dead_object_store_leaves_what_the_same_call_finishes(
    table: Table, tmp_path_factory: pytest.TempPathFactory, what: str
) -> None:
    if what != "create":
        create_branch(table.handle(), "b", tag="fork")
        commit_to(table, "b", 7)
    calls: dict[str, Callable[[Any], object]] = {
        "create": lambda handle: create_branch(handle, "b", tag="fork"),
        "rename": lambda handle: rename_branch(handle, "b", "c"),
        "delete": lambda handle: delete_branch(handle, "b"),
    }
    step, died, before = 0, True, table.rows()
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        store = DyingStore()
        store.dies_after(step)
        handle = killed.handle(store)
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        try:
            calls[what](handle)
        except OSError:
            assert store.dead
        died = store.dead
        if died:
            store.dies_after(None)
            # The last request may have taken effect although it failed.
            with suppress(StreamConfigError):
                calls[what](killed.handle(store))
        assert is_whole(killed) and killed.rows() == before, f"died after step {step}"
        names = {path.name for path in (killed.path / "branch").glob("*") if any(path.rglob("*-*"))}
        assert names == {"create": {"branch-b"}, "rename": {"branch-c"}, "delete": set()}[what], f"step {step}"
        for name in names:
            assert "snapshot/snapshot-2" in small(killed.path / "branch" / name)
            assert not list((killed.path / "branch" / name / "consumer").glob("unfinished"))
        shutil.rmtree(killed.path.parents[1])
        step += 1 if SOAK else 13
    assert step > 20


def test_a_part_of_a_branch_of_another_tag_is_not_mixed_in(
    table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table.handle().create_tag("late", 4)
    step, died = 0, True
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        handle = killed.handle()
        handle.file_io = MortalFileIO(step)
        try:
            create_branch(handle, "b", tag="late")
            died = False
        except Killed:
            try:
                create_branch(killed.handle(), "b", tag="fork")
            except StreamConfigError:
                if killed.handle().branch_manager().branch_exists("b"):
                    delete_branch(killed.handle(), "b")
                create_branch(killed.handle(), "b", tag="fork")
            assert [row[0] for row in branch_rows(killed, "b")] == [0, 1], f"killed before request {step}"
            assert [path.name for path in (home(killed, "b") / "tag").iterdir()] == ["tag-fork"]
        shutil.rmtree(killed.path.parents[1])
        step += 1
    assert step > 10


# ---- Fast-forward


def test_the_table_has_the_history_of_the_branch(table: Table) -> None:
    table.handle().create_tag("tip", 4)
    create_branch(table.handle(), "b", tag="tip")
    commit_to(table, "b", 7, 8)
    table.handle(branch="b").create_tag("new", 6)
    report = fast_forward(table.handle(), "b")
    assert (report.fork_id, report.copied_snapshots, report.lost_snapshots) == (4, (5, 6), ())
    assert table.ids() == [1, 2, 3, 4, 5, 6] and table.rows() == branch_rows(table, "b")
    assert small(home(table, "b")).items() <= small(table.path).items()
    assert [(table.path / "snapshot" / name).read_text() for name in ("EARLIEST", "LATEST")] == ["1", "6"]
    assert not list((table.path / "consumer").glob("*"))
    assert table.commit([9]) == 7
    assert fast_forward(table.handle(), "b", dry_run=False, discard_own_commits=True).lost_snapshots == (7,)


def test_a_tag_that_java_has_made_of_the_same_snapshot_is_not_lost(table: Table) -> None:
    """Java 1.4 leaves `uuid`, which it does not know, out of the tag."""
    create_branch(table.handle(), "b", tag="fork")
    tag = table.path / "tag" / "tag-fork"
    assert json.loads(tag.read_text())["uuid"]
    tag.write_text(json.dumps({name: given for name, given in json.loads(tag.read_text()).items() if name != "uuid"}))
    dry = fast_forward(table.handle(), "b", discard_own_commits=True, dry_run=True)
    assert dry.fork_id is not None and dry.lost_snapshots and "fork" not in dry.lost_tags


@pytest.mark.parametrize("of_branch", [False, True])
def test_a_listing_without_the_latest_snapshot_is_not_believed(table: Table, of_branch: bool) -> None:
    """Otherwise a commit of the table, or of the branch, would be lost without a word."""
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7, 8)
    file_io = FaultFileIO()
    latest = Path("branch/branch-b" if of_branch else table.path.name, "snapshot", "snapshot-4")

    def old_listing(call: Call) -> Any:
        found = call.answer()
        is_listing = (call.kind, call.name) == ("list", "snapshot")
        return [each for each in found if not each.path.endswith(str(latest))] if is_listing else found

    file_io.wherever(old_listing)
    before = small(table.path)
    with pytest.raises(MaintenanceConflictError, match="snapshot 4 was not listed, but is there"):
        fast_forward(table.handle(file_io), "b", discard_own_commits=True)
    assert small(table.path) == before


def test_own_commits_are_lost_only_on_demand(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7)
    table.handle().create_tag("own", 3)
    before = small(table.path)
    with pytest.raises(StreamConfigError, match=r"would lose snapshots 3, 4, tag own\. If that is intended"):
        fast_forward(table.handle(), "b")
    assert small(table.path) == before
    dry = fast_forward(table.handle(), "b", discard_own_commits=True, dry_run=True)
    assert (dry.lost_snapshots, dry.lost_tags) == ((3, 4), ("own",)) and small(table.path) == before
    fast_forward(table.handle(), "b", discard_own_commits=True)
    assert table.ids() == [1, 2, 3] and table.rows() == branch_rows(table, "b")
    assert [row[0] for row in table.rows()] == [0, 1, 7]


def test_the_hint_of_the_branch_hides_no_older_snapshot(table: Table) -> None:
    """Java copies it, and its expiry never finds what is below it."""
    table.handle().create_tag("tip", 4)
    create_branch(table.handle(), "b", tag="tip")
    commit_to(table, "b", 7)
    (home(table, "b") / "snapshot" / "EARLIEST").write_text("4")
    fast_forward(table.handle(), "b")
    assert (table.path / "snapshot" / "EARLIEST").read_text() == "1"
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [5] and is_whole(table)


def test_snapshots_that_have_expired_in_the_branch_are_a_gap_that_readers_are_told_of(table: Table) -> None:
    table.handle().create_tag("tip", 4)
    create_branch(table.handle(), "b", tag="tip")
    commit_to(table, "b", 7, 8, 9)
    maintain(table.handle(branch="b"), LATEST_ONLY)
    with table.builder().with_start("earliest").new_streaming_scan() as scan:
        assert len(available(scan)) == 4
        fast_forward(table.handle(), "b")
        assert table.ids() == [1, 2, 3, 4, 7] and table.rows() == branch_rows(table, "b")
        with pytest.raises(PositionExpiredError):
            for _ in range(20):
                available(scan)
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [7] and is_whole(table)


def test_the_changelogs_of_the_branch_close_the_gap(tmp_path: Path) -> None:
    limits = {"changelog__num_retained__max": "9", "snapshot__num_retained__max": "1"}
    least = {"snapshot__num_retained__min": "1"}
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input", **limits, **least)
    for key in (0, 1):
        table.commit([key])
    table.handle().create_tag("tip", 2)
    create_branch(table.handle(), "b", tag="tip")
    commit_to(table, "b", 7, 8, 9)
    maintain(table.handle(branch="b"))
    fast_forward(table.handle(), "b")
    assert table.ids() == [1, 2, 5] and (table.path / "snapshot" / "EARLIEST").read_text() == "1"
    with table.builder().with_start(snapshot_id=1).new_streaming_scan() as scan:
        assert len(available(scan)) == 5


def test_another_schema_of_the_branch_replaces_that_of_the_table(table: Table) -> None:
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7)
    table.catalog.alter_table(table.name, [SchemaChange.add_column("own", AtomicType("INT"))], False)
    with pytest.raises(StreamConfigError, match="schema 1"):
        fast_forward(table.handle(), "b")
    fast_forward(table.handle(), "b", discard_own_commits=True)
    assert sorted(path.name for path in (table.path / "schema").iterdir()) == ["schema-0"]
    assert table.rows() == branch_rows(table, "b")


def test_a_schema_that_older_snapshots_need_is_not_replaced(table: Table) -> None:
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7)
    schema = home(table, "b") / "schema" / "schema-0"
    schema.write_text(json.dumps({**json.loads(schema.read_text()), "comment": "another"}))
    with pytest.raises(UnsupportedTableError, match="need its schema 0"):
        fast_forward(table.handle(), "b", discard_own_commits=True)


def test_a_branch_without_a_common_snapshot_replaces_everything(table: Table) -> None:
    for commits in (1, 3, 6):
        name = f"b{commits}"
        create_branch(table.handle(), name)
        commit_to(table, name, *range(50, 50 + commits))
        with pytest.raises(StreamConfigError, match="would lose snapshot"):
            fast_forward(table.handle(), name)
        report = fast_forward(table.handle(), name, discard_own_commits=True)
        assert report.fork_id is None and table.ids() == list(range(1, commits + 1))
        assert table.rows() == branch_rows(table, name) and is_whole(table)


def test_what_cannot_be_fast_forwarded_is_refused(table: Table) -> None:
    create_branch(table.handle(), "empty")
    with pytest.raises(StreamConfigError, match="has no snapshot"):
        fast_forward(table.handle(), "empty")
    with pytest.raises(StreamConfigError, match="there is no branch 'no'"):
        fast_forward(table.handle(), "no")


def test_consumers_beyond_the_fork_are_reported(table: Table) -> None:
    ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer("beyond", Consumer(5))
    create_branch(table.handle(), "b", tag="fork")
    commit_to(table, "b", 7)
    report = fast_forward(table.handle(), "b", discard_own_commits=True)
    assert [each.name for each in report.overtaken] == ["beyond"]


def test_a_commit_that_comes_meanwhile_is_not_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.handle().create_tag("tip", 4)
    create_branch(table.handle(), "b", tag="tip")
    commit_to(table, "b", 7, 8)
    file_io = MortalFileIO()
    step = 0
    while True:
        step += 1 if SOAK else 4
        other = table.copy(table.path.parents[1].parent / f"{step}")
        file_io = MortalFileIO()
        file_io.interruption = (step, lambda other=other: other.commit([99]))  # type: ignore[misc]
        handle = other.handle()
        handle.file_io = file_io
        try:
            fast_forward(handle, "b")
        except (MaintenanceConflictError, StreamConfigError):
            assert 99 in [row[0] for row in other.rows()], f"step {step}"
        assert is_whole(other)
        if file_io.interruption is not None:
            break
        shutil.rmtree(other.path.parents[1])


def test_the_newest_snapshot_is_found_while_snapshots_are_copied(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at a gap: otherwise the next commit would follow the snapshot before it."""
    table.handle().create_tag("tip", 4)
    create_branch(table.handle(), "b", tag="tip")
    commit_to(table, "b", 7, 8, 9)
    maintain(table.handle(branch="b"), LATEST_ONLY)
    found: list[bool] = []
    at_every_change(monkeypatch, lambda: found.append(table.found_ids()[-1] == table.latest()))
    fast_forward(table.handle(), "b")
    assert table.latest() == 7 and len(found) > 8 and all(found)


@pytest.mark.parametrize("kind", ["own commits", "nothing common", "expired", "longer", "shorter"])
def test_a_fast_forward_that_is_killed_is_finished_by_the_next(
    table: Table, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    create_branch(table.handle(), "b", tag="fork" if kind == "own commits" else None)
    if kind in ("expired", "longer", "shorter"):
        # So the snapshots of the branch from before the first one of main are copied last.
        table.handle().delete_tag("fork")
        maintain(table.handle(), MaintenancePolicy(min_snapshots=2, max_snapshots=2))
        assert table.ids()[0] > 2
    commit_to(table, "b", *range({"longer": 7, "shorter": 2}.get(kind, 3)))
    done = table.copy(tmp_path_factory.mktemp("done") / "wh")
    fast_forward(done.handle(), "b", discard_own_commits=True)
    step, died = 0, True
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        handle = killed.handle()
        handle.file_io = MortalFileIO(step)
        try:
            fast_forward(handle, "b", discard_own_commits=True)
            died = False
        except Killed:
            assert is_whole(killed) and killed.rows(), f"killed before request {step}"
        fast_forward(killed.handle(), "b", discard_own_commits=True)
        assert small(killed.path) == small(done.path), f"killed before request {step}"
        for hint in ("EARLIEST", "LATEST"):
            assert (killed.path / "snapshot" / hint).read_text() == (done.path / "snapshot" / hint).read_text()
        for name in ("consumer", "branch/branch-b/consumer"):
            assert not list((killed.path / name).glob("*"))
        shutil.rmtree(killed.path.parents[1])
        step += 1 if SOAK else 7
    assert step > 30


# ---- Maintenance of branches


def test_every_branch_reads_the_same_after_each_is_maintained(table: Table) -> None:
    """A tag that was renamed and deleted, compaction in a branch, expiry of the fork: nothing is lost anywhere."""
    from pypaimon.streaming import compact

    create_branch(table.handle(), "b", tag="fork")
    table.handle().delete_tag("fork")
    commit_to(table, "b", 7)
    compact(table.handle(branch="b"), full=True)
    create_branch(table.handle(), "c")
    commit_to(table, "c", 8, 9)
    names = ("main", "b", "c")
    before = {name: branch_rows(table, name) for name in names}
    changes = _all_changes(table)
    for name in ("b", "main", "c"):
        assert _all_changes(table) == changes
        maintain(table.handle(branch=name), LATEST_ONLY)
        assert {each: branch_rows(table, each) for each in names} == before and is_whole(table)
        changes = _all_changes(table) if name == "main" else changes
    (home(table, "b") / "tag" / "tag-fork").unlink()
    maintain(table.handle(), LATEST_ONLY)
    assert {each: branch_rows(table, each) for each in names} == before and is_whole(table)


def _all_changes(table: Table) -> list[Any]:
    """All changes of main that can still be read."""
    builder = table.builder().with_start("earliest")
    with builder.new_streaming_scan() as scan:
        return [row for plan in available(scan) for row in rows(builder.new_read(), plan)]


@pytest.mark.parametrize("tag", ["fork", None], ids=["of a tag", "empty"])
def test_readers_and_writers_of_a_deleted_branch_find_it_out(table: Table, tag: str | None) -> None:
    """As those of a dropped table do."""
    create_branch(table.handle(), "b", tag=tag)
    builder = table.builder(branch="b").with_poll_interval_ms(1)
    with table.writer(branch="b").open_sync() as writer, builder.open_sync() as stream:
        assert (stream.poll(60) if tag else stream.poll(0.1)) is None or tag
        writer.write(table.arrow_rows([9]))
        delete_branch(table.handle(), "b")
        with pytest.raises(TableChangedError, match="was dropped"):
            writer.commit()
        with pytest.raises(TableChangedError):
            stream.poll(60)
