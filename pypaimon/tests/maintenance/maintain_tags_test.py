"""Automatic tags of `maintain`, and of the call after a commit: which are there, and which files stay."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError, maintain
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.maintenance import create_branch, create_tag, list_tags, rename_tag
from pypaimon.streaming.maintenance.tag_operations import create_due_tags
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, every
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table
from support.tables.tagged_tables import (
    AUTOMATIC,
    LATEST_ONLY,
    at_days,
    filled,
    handle_of,
    is_exact,
    keys_of,
    steps_of,
    tags,
)


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


def test_a_branch_that_is_deleted_is_not_there_again_with_its_automatic_tag(daily: Table, tmp_path: Path) -> None:
    create_tag(daily.handle(), "fork", snapshot=6)
    create_branch(daily.handle(), "b", tag="fork")
    step, interrupted, conflicts = 0, True, 0
    while interrupted:
        step += 1 if SOAK else 3
        other = daily.copy(tmp_path / f"{step}")
        handle = other.handle(branch="b", tag__create_success_file="true", **AUTOMATIC)
        handle.file_io = MortalFileIO()
        handle.file_io.interruption = (step, partial(shutil.rmtree, other.path / "branch"))
        try:
            maintain(handle)
        except MaintenanceConflictError:
            conflicts += 1
        interrupted = handle.file_io.interruption is None
        there = [path.name for path in (other.path / "branch").rglob("*") if path.is_file()]
        assert bool(there) != interrupted, f"step {step}: {there}"
        shutil.rmtree(other.path.parents[1])
    assert conflicts


def test_a_tag_of_the_last_day_of_all_ends_no_run(daily: Table) -> None:
    create_tag(daily.handle(), "9999-12-31", snapshot=1)
    assert maintain(daily.handle(), LATEST_ONLY).plan.created_tags == ()
    done = create_due_tags(PaimonTable(daily.handle()))
    assert done is None or not done.plan.created_tags
    assert daily.ids() == [6] and is_exact(daily)


def test_a_rename_makes_no_second_automatic_tag_of_a_snapshot(daily: Table) -> None:
    maintain(daily.handle(), LATEST_ONLY)
    create_tag(daily.handle(), "mine", snapshot=6)
    with pytest.raises(StreamConfigError, match="second one"):
        rename_tag(daily.handle(), "mine", "2026-01-09")
    rename_tag(daily.handle(), "2026-01-03", "2026-01-08")
    assert maintain(daily.handle(), LATEST_ONLY).plan.is_empty


def test_due_tags_after_a_commit(daily: Table) -> None:
    given = PaimonTable(daily.handle(tag__num_retained_max="2"))
    done = create_due_tags(given)
    assert done is not None and [each.name for each in done.plan.created_tags] == ["2026-01-02", "2026-01-03"]
    assert daily.ids() == [1, 2, 3, 4, 5, 6], "nothing expires"
    assert create_due_tags(given) is None
    assert create_due_tags(PaimonTable(daily.handle(tag__automatic_creation="none"))) is None


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


@pytest.mark.soak
@pytest.mark.slow
def test_automatic_tags_of_a_run_that_is_killed(daily: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    def call(handle: Any) -> object:
        return maintain(handle.copy({"tag.num-retained-max": "2"}), LATEST_ONLY)

    done = daily.copy(tmp_path_factory.mktemp("done") / "wh")
    call(done.handle())
    steps = steps_of(call, daily, tmp_path_factory.mktemp("count") / "wh")
    for step in every(11, range(steps)):
        killed = daily.copy(tmp_path_factory.mktemp("killed") / "wh")
        with pytest.raises(Killed):
            call(handle_of(killed, MortalFileIO(step)))
        assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        call(killed.handle())
        assert files_of(killed.path) == files_of(done.path) and tags(killed) == tags(done), f"before request {step}"
        shutil.rmtree(killed.path.parents[1])
