"""Merging the rows of a branch into another one: only where it is certain which files both have had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import MaintenancePolicy, StreamConfigError, UnsupportedTableError, compact, maintain
from pypaimon.streaming.maintenance import branch_merge, create_branch, create_tag, delete_branch, merge_branch
from support.tables.handles import sorted_rows
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, available, rows

pytestmark = pytest.mark.slow

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)


def forked(table: Table) -> Table:
    """A table with a branch since its second snapshot, and commits in both since then."""
    for key in (1, 2):
        table.commit([key])
    create_tag(table.handle(), "fork")
    create_branch(table.handle(), "b", tag="fork")
    table.commit([3])
    commit_to(table, 10, 11)
    return table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return forked(Table(tmp_path, "t"))


def commit_to(table: Table, *keys: int) -> None:
    for key in keys:
        table.write(table.arrow_rows([key]), table=table.handle(branch="b"))


def keys(table: Table, **options: str) -> list[Any]:
    return sorted(row[0] for row in sorted_rows(table.handle(**options)))


def test_rows_are_added_once(table: Table) -> None:
    assert merge_branch(table.handle(), "b", dry_run=True).rows == 2 and table.latest() == 3
    report = merge_branch(table.handle(), "b")
    assert (report.fork_id, report.snapshot_id, report.files, report.rows) == (2, 4, 2, 2)
    assert keys(table) == [1, 2, 3, 10, 11] and keys(table, branch="b") == [1, 2, 10, 11]
    snapshot = table.snapshot(4)
    assert snapshot["commitKind"] == "APPEND" and snapshot["totalRecordCount"] == 5
    assert merge_branch(table.handle(), "b").snapshot_id is None and table.latest() == 4
    commit_to(table, 12)
    assert merge_branch(table.handle(), "b").rows == 1 and keys(table) == [1, 2, 3, 10, 11, 12]
    assert not list((table.path / "branch/branch-b/consumer").glob("*"))


def test_main_can_be_merged_into_a_branch(table: Table) -> None:
    assert merge_branch(table.handle(branch="b"), "main").rows == 1
    assert keys(table, branch="b") == [1, 2, 3, 10, 11] and keys(table) == [1, 2, 3]
    assert merge_branch(table.handle(), "b").rows == 2 and keys(table) == [1, 2, 3, 10, 11]


def test_streams_read_what_was_merged_as_new_rows(table: Table) -> None:
    with table.builder().with_start(snapshot_id=4).new_streaming_scan() as scan:
        merge_branch(table.handle(), "b")
        read = table.builder().new_read()
        assert sorted(key for plan in available(scan) for _, key, _ in rows(read, plan)) == [10, 11]


def test_the_files_stay_when_the_branch_goes(table: Table) -> None:
    merge_branch(table.handle(), "b")
    delete_branch(table.handle(), "b")
    maintain(table.handle(), LATEST_ONLY)
    assert keys(table) == [1, 2, 3, 10, 11] and needed_files(table.path) == files_of(table.path)


def test_rows_get_new_ids(tmp_path: Path) -> None:
    table = forked(Table(tmp_path, "t", row_tracking__enabled="true"))
    merge_branch(table.handle(), "b")
    assert table.snapshot(4)["nextRowId"] == 5 and keys(table) == [1, 2, 3, 10, 11]


def test_a_branch_without_a_common_snapshot_needs_its_whole_history(tmp_path: Path) -> None:
    table = Table(tmp_path, "t")
    create_branch(table.handle(), "b")
    with pytest.raises(StreamConfigError, match="branch 'b' has no snapshot"):
        merge_branch(table.handle(), "b")
    commit_to(table, 10, 11)
    with pytest.raises(StreamConfigError, match="branch 'main' has no snapshot"):
        merge_branch(table.handle(), "b")
    table.commit([1])
    assert merge_branch(table.handle(), "b").fork_id is None and keys(table) == [1, 10, 11]
    table.commit([2])
    maintain(table.handle(), LATEST_ONLY)
    commit_to(table, 12)
    with pytest.raises(StreamConfigError, match="branch 'main' since its beginning have expired"):
        merge_branch(table.handle(), "b")


@pytest.mark.parametrize("branch", ["main", "b"])
def test_what_has_not_only_appended_is_refused(table: Table, branch: str) -> None:
    handle = table.handle(branch=branch) if branch != "main" else table.handle()
    compact(handle, full=True)
    with pytest.raises(StreamConfigError, match=f"'{branch}' has not only appended since the common snapshot 2"):
        merge_branch(table.handle(), "b")
    assert keys(table) == [1, 2, 3]


def test_a_compaction_that_comes_between_is_noticed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    original = branch_merge.commit_maintenance

    def late(*args: Any) -> Any:
        compact(table.handle(), full=True)
        return original(*args)

    monkeypatch.setattr(branch_merge, "commit_maintenance", late)
    with pytest.raises(StreamConfigError, match="not only appended"):
        merge_branch(table.handle(), "b")
    assert keys(table) == [1, 2, 3] and not list((table.path / "branch/branch-b/consumer").glob("*"))


def test_two_merges_at_once_add_the_rows_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    original = branch_merge.commit_maintenance

    def late(*args: Any) -> Any:
        monkeypatch.setattr(branch_merge, "commit_maintenance", original)
        merge_branch(table.handle(), "b")
        return original(*args)

    monkeypatch.setattr(branch_merge, "commit_maintenance", late)
    report = merge_branch(table.handle(), "b")
    assert (report.snapshot_id, report.files, report.rows) == (None, 0, 0)
    assert keys(table) == [1, 2, 3, 10, 11] and table.latest() == 4


def test_other_tables_and_schemas_are_refused(tmp_path: Path, table: Table) -> None:
    keyed = forked(Table(tmp_path, "keyed", primary_key=True))
    with pytest.raises(UnsupportedTableError, match="has a primary key"):
        merge_branch(keyed.handle(), "b")
    for name, match in (("b", "there is no branch"), ("main", "loaded on branch")):
        with pytest.raises(StreamConfigError, match=match):
            merge_branch(Table(tmp_path, f"u{name}").handle(), name)
    _add_column(table)
    with pytest.raises(UnsupportedTableError, match="differ in columns"):
        merge_branch(table.handle(), "b")


def _add_column(table: Table) -> None:
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    table.catalog.alter_table(table.name, [SchemaChange.add_column("late", AtomicType("INT"))], False)
